"""A record, and lookups of many times or offsets in sorted order, which decode each block once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seglake.format.decode import Decoded
from seglake.format.records import Headers, Int64s, Spans
from seglake.log.execute import execute, schema_of
from seglake.log.fetch import LogFetch
from seglake.log.reads import PartitionReader
from seglake.log.segment import ALL_RECORDS, LogSegment, Piece, Window
from seglake.log.zone_maps import distinct


class Record(NamedTuple):
    """One record. `timestamp` is in ms, or -1; its type is 0 (CreateTime) or 1 (LogAppendTime)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

    @staticmethod
    def from_batch(topic: str, partition: int, batch: Decoded, row: int) -> Record:
        """Return the record at `row` of a decoded batch."""
        records = batch.records
        numbers = batch.offsets, records.timestamps, batch.timestamp_types
        offset, timestamp, timestamp_type = (int(column[row]) for column in numbers)
        key, value = _item(records.keys, row), _item(records.values, row)
        headers = _headers_of(records.headers, row)
        return Record(topic, partition, offset, timestamp, timestamp_type, key, value, headers)


def _headers_of(headers: Headers | None, row: int) -> list[tuple[str, bytes | None]]:
    if headers is None:
        return []
    items = range(int(headers.firsts[row]), int(headers.firsts[row + 1]))
    return [(_text(_item(headers.keys, i)), _item(headers.values, i)) for i in items]


def _item(spans: Spans, row: int) -> bytes | None:
    start, length = int(spans.starts[row]), int(spans.lengths[row])
    return None if length < 0 else spans.data[start : start + length].tobytes()


def _text(key: bytes | None) -> str:
    return (key or b"").decode(errors="replace")


_FETCH_BYTES = 2**20


def offsets_for_times(reader: PartitionReader, times: Int64s) -> tuple[Int64s, Int64s]:
    """Return the offsets and timestamps of `PartitionReader.offset_for_time` for each of `times`.

    Both are -1 if no record is that late.
    """
    order = np.argsort(times, kind="stable")
    ascending = times[order]
    answers = _Answers(ascending)
    indexes = reader.segments_reaching(ascending)
    count = len(reader.view.segments.base_offsets)
    for index in distinct(indexes[indexes < count]).tolist():
        first, last = np.searchsorted(indexes, [index, index + 1])
        answers.search(reader, reader.segment(index), int(first), int(last))
    answers.look_up(reader, (answers.offsets < 0) & (indexes < count))
    offsets, timestamps = np.empty_like(times), np.empty_like(times)
    offsets[order], timestamps[order] = answers.offsets, answers.timestamps
    return offsets, timestamps


class _Answers:
    """The answers for ascending times. An answer is -1 until it is found."""

    def __init__(self, times: Int64s) -> None:
        self.times = times
        self.offsets, self.timestamps = np.full((2, len(times)), -1, np.int64)

    def search(self, reader: PartitionReader, segment: LogSegment, first: int, last: int) -> None:
        """Answer times `first` to `last` (exclusive) from the blocks of a segment."""
        blocks, which = reader.zones(segment).reaching(self.times[first:last])
        which = which[which < len(blocks)]
        touched = distinct(which)
        begins, ends = blocks.first_offsets[which], blocks.end_offsets[which]
        piece = blocks.take(touched).as_piece(segment, ALL_RECORDS)
        start = reader.view.log_start_offset
        for offsets, stamps in _decoded(reader.fetch, piece, start):
            # Times and their blocks are both ascending, so the times of this chunk are adjacent.
            low = int(np.searchsorted(ends, offsets[0], "right"))
            high = int(np.searchsorted(begins, offsets[-1], "right"))
            part = slice(first + low, first + high)
            self._place(part, offsets, stamps, begins[low:high], ends[low:high])

    def _place(
        self, part: slice, offsets: Int64s, stamps: Int64s, begins: Int64s, ends: Int64s
    ) -> None:
        # If a later block answers a time, no earlier block reaches the time. So the first record of
        # the chunk that reaches a time is the answer, if it is in the block of that time.
        highest = np.maximum.accumulate(stamps)
        at = np.minimum(highest.searchsorted(self.times[part]), len(offsets) - 1)
        hit = (stamps[at] >= self.times[part]) & (self.offsets[part] < 0)
        hit &= (offsets[at] >= begins) & (offsets[at] < ends)
        self.offsets[part] = np.where(hit, offsets[at], self.offsets[part])
        self.timestamps[part] = np.where(hit, stamps[at], self.timestamps[part])

    def look_up(self, reader: PartitionReader, missing: npt.NDArray[np.bool_]) -> None:
        """Look up each time at the positions `missing` separately.

        The records that the zone map promised for these times were deleted from their blocks.
        """
        for time in distinct(self.times[missing]).tolist():
            first, last = np.searchsorted(self.times, [time, time + 1])
            answer = reader.offset_for_time(time)
            if answer is not None:
                self.offsets[first:last], self.timestamps[first:last] = answer


def _decoded(fetch: LogFetch, piece: Piece, log_start: int) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield offsets and timestamps of the records at or above the log start, in chunks."""
    for chunk in fetch.chunks([piece], fetch_bytes=_FETCH_BYTES):
        for _, decoded in chunk.decode_in_parts(chunk.record_batches, _FETCH_BYTES):
            first = int(np.searchsorted(decoded.offsets, log_start))
            if first < len(decoded.offsets):
                yield decoded.offsets[first:], decoded.records.timestamps[first:]


def records_at(reader: PartitionReader, offsets: Int64s, schema: pa.Schema) -> pa.Table:
    """Return the records at exactly these offsets, in the order of `offsets`.

    Raises what `PartitionReader.batch_at` raises.
    """
    ascending, places = np.unique(offsets, return_inverse=True)
    for offset in ascending[[0, -1]].tolist() if len(ascending) else []:
        reader.require(offset, reader.view.end_offset - 1)
    indexes = reader.view.segments.base_offsets.searchsorted(ascending, "right") - 1
    parts, batches = [ascending[:0]], []
    for index in distinct(indexes).tolist():
        first, last = np.searchsorted(indexes, [index, index + 1])
        for present, batch in _records_in(
            reader, reader.segment(index), ascending[first:last], schema
        ):
            parts.append(present)
            batches.append(batch)
    present = np.concatenate(parts)
    if len(present) < len(ascending):
        missing = ascending[: len(present) + 1] != np.append(present, -1)
        raise reader.not_found(int(ascending[missing.argmax()]))
    return pa.Table.from_batches(batches, schema).take(places)


def _records_in(
    reader: PartitionReader, segment: LogSegment, targets: Int64s, schema: pa.Schema
) -> Iterator[tuple[Int64s, pa.RecordBatch]]:
    """Yield the records of a segment at the ascending offsets `targets`, skipping gaps."""
    blocks, which = reader.zones(segment).holding(targets)
    window = Window(start_offset=int(targets[0]), end_offset=int(targets[-1]) + 1)
    piece = blocks.take(distinct(which[which >= 0])).as_piece(segment, window)
    with_offsets = schema_of([*dict.fromkeys([*schema.names, "offset"])])
    for batch in execute(reader.fetch, [piece], with_offsets):
        offsets: Int64s = batch["offset"].to_numpy()
        low, high = targets.searchsorted(offsets[[0, -1]] + [0, 1])
        rows = offsets.searchsorted(targets[low:high])
        rows = rows[offsets[rows] == targets[low:high]]
        if len(rows):
            yield offsets[rows], batch.take(rows).select(schema.names)
