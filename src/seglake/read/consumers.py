"""Compute the progress of consumers in a log partition, and where they continue in another log."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seglake.errors import CorruptData, MissingObject, OffsetNotFound, UsageError
from seglake.format.records import Int64s
from seglake.log.execute import MEMORY_BYTES, schema_of
from seglake.log.reads import PartitionReader
from seglake.read.window.reader import records_from


class Lag(NamedTuple):
    """The distance from a committed offset to the log's end: in offsets, and in ms of record time.

    `records` is the difference of the offsets, as in Kafka: an offset without a record counts too.
    """

    records: int
    milliseconds: int


def lag(reader: PartitionReader, committed: int) -> Lag:
    """Return the lag of a consumer with this committed offset.

    Raises OffsetOutOfRange if the offset is above the end, UsageError if it is below 0.
    """
    if committed < 0:
        raise UsageError(f"{committed} is not a committed offset. Leave out partitions without one")
    view = reader.view
    offset = max(committed, view.log_start_offset)
    reader.require(offset, view.end_offset)
    newest, since = reader.max_timestamp(), _first_timestamp(reader, offset)
    behind = newest.timestamp - since if newest and since >= 0 else 0
    return Lag(view.end_offset - offset, max(0, behind))


def _first_timestamp(reader: PartitionReader, offset: int) -> int:
    """Return the timestamp (ms) of the first record at or above `offset`, or -1 without one."""
    if offset == reader.view.end_offset:
        return -1
    try:
        batch, row = reader.batch_at(offset)
        return int(batch.records.timestamps[row])
    except OffsetNotFound:  # a gap
        records = records_from(reader, offset, 1, schema_of(["timestamp"]))
        timestamps = records["timestamp"].cast(pa.int64()).to_numpy()
        return int(timestamps[0]) if len(timestamps) else -1


def unread_since(reader: PartitionReader, offset: int) -> int:
    """Return a lower bound, in ms, of the timestamps of the records at or above `offset`.

    If there is no such record, the bound is 1 ms after the newest timestamp of the partition. The
    bound is negative if one of these records may have no timestamp.
    """
    view = reader.view
    offset, newest = max(offset, view.log_start_offset), reader.max_timestamp()
    after = newest.timestamp + 1 if newest else 0
    if offset >= view.end_offset or not len(view):
        return after
    index = view.index_of(offset)
    smallest, filled = view.segments.min_timestamps, view.segments.details["record_count"] > 0
    later = smallest[index + 1 :][filled[index + 1 :]]
    return int(np.concatenate([later, *_lows(reader, index, offset)]).min(initial=after))


def oldest_in(reader: PartitionReader, index: int) -> int:
    """Return the smallest timestamp (ms) of a segment's records at or above the log start.

    The result is -1 if no such record exists, or if one of them has no timestamp. The catalog
    has the smallest timestamp of the whole segment. If the log start is inside the segment, the
    segment is read. If its file is missing or damaged, the catalog's value is returned, because
    listings must work while someone investigates damage.
    """
    view = reader.view
    whole = int(view.segments.min_timestamps[index])
    if view.segments.base_offsets[index] >= view.log_start_offset:
        return whole
    try:
        lows = [*_lows(reader, index, view.log_start_offset)]
    except (CorruptData, MissingObject):
        return whole
    return min((int(each.min()) for each in lows if len(each)), default=-1)


def _lows(reader: PartitionReader, index: int, offset: int) -> Iterator[Int64s]:
    """Yield timestamps of a segment. The smallest one bounds all records at or above `offset`.

    The block of `offset` is decoded. Later blocks contribute lower bounds from the zone map.
    """
    view, segment = reader.view, reader.segment(index)
    filled = view.segments.details["record_count"][index] > 0
    block = reader.zones(segment).block_at(offset) if filled else None
    if block is not None:
        dated = bool(view.segments.min_timestamps[index] >= 0)
        yield reader.zones(segment).min_timestamps_after(block.end, dated=dated)
        chunk = reader.fetch.chunk_of(block.as_piece(segment))
        for _, decoded in chunk.decode_in_parts(chunk.record_batches, MEMORY_BYTES):
            yield decoded.records.timestamps[decoded.offsets >= offset]


def offset_of_last(reader: PartitionReader, count: int) -> int:
    """Return the offset of the first of the last `count` records.

    If there are fewer records, return the log start offset.
    """
    start, end = reader.view.log_start_offset, reader.view.end_offset
    distance = count
    while distance:
        begin = max(start, end - distance)
        offsets: Any = records_from(reader, begin, end - begin, schema_of(["offset"]))["offset"]
        if len(offsets) >= count:
            return int(offsets[len(offsets) - count].as_py())
        if begin == start:
            return start
        distance *= 4  # there are gaps
    return end


def offset_from(reader: PartitionReader, time: int) -> int:
    """Return the offset of the first record at or after `time` (ms).

    If no record is that late, return the end offset. For a negative time, return the log start
    offset.
    """
    if time < 0:
        return reader.view.log_start_offset
    record = reader.offset_for_time(time)
    return reader.view.end_offset if record is None else record.offset
