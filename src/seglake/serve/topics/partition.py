"""Provide a log partition as clients see it: its start and end, its records, its times."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from seglake.layout import SUFFIXES
from seglake.limits import INT64_MAX, INT64_MIN
from seglake.log.execute import execute, schema_of
from seglake.log.reads import OffsetAndTimestamp, PartitionReader, SharedReads
from seglake.log.segment import ALL_RECORDS, Piece, Window
from seglake.read.window.plan import pieces_of
from seglake.serve.records.batch_reader import ByteRange, decode_byte_range

_RANGE_BYTES = 800  # memory of a byte range and its segment, with the names of its files
_PARTITION_BYTES = 4096


class ServedPartition:
    """A log partition in one version, with its log start offset `start` and high watermark `end`.

    With `remote`, lookups wait for an object store that has some of the log. Attached logs of a
    local lake are on an object store, too. `held_bytes` is about how much memory the object uses.
    """

    def __init__(self, reader: PartitionReader) -> None:
        self._reader, self._view = reader, reader.view
        self.start, self.end = reader.view.log_start_offset, reader.view.end_offset
        segments = reader.view.segments
        self.remote = reader.store.remote or bool(segments.details["external"].any())
        columns = sum(column.nbytes for column in segments.columns)
        self.held_bytes = _PARTITION_BYTES + columns + _RANGE_BYTES * len(self._view)

    def byte_ranges(self, offset: int) -> Iterator[ByteRange]:
        """Return the byte ranges that have the records from an offset on."""
        for index in range(max(0, self._view.index_of(offset)), len(self._view)):
            segment = self._reader.segment(index)
            if segment.log_bytes:
                base, end = segment.base_offset, segment.end_offset
                yield ByteRange(segment, 0, segment.log_bytes, base, end)

    def at_time(self, timestamp: int) -> OffsetAndTimestamp | None:
        """Return the first record at a time (ms) or later."""
        return self._reader.offset_for_time(timestamp)

    def max_timestamp(self) -> OffsetAndTimestamp | None:
        """Return the first record with the largest timestamp."""
        return self._reader.max_timestamp()

    def log_bytes(self) -> int:
        """Return the size of the partition's stored logs in bytes."""
        sizes = self._view.segments.details["sizes"][:, SUFFIXES.index("log")]
        return int(sizes.sum(dtype="int64"))


# ---------------- window
# A window of time as a partition: exactly the records of `read_range`.
#
# The window is planned when it is first requested. Segments and index blocks whose records are all
# in the window are sent as stored. Blocks that also have records outside the window are encoded
# again without those records.

_TIMES = ["offset", "timestamp"]


class WindowPartition(ServedPartition):
    """The records of a log partition with start_ms <= timestamp < end_ms, in one version.

    Create it on a thread, because planning reads zone maps, and the batches at both ends.
    """

    def __init__(self, reader: PartitionReader, reads: SharedReads, window: Window) -> None:
        super().__init__(reader)
        self._reads = reads
        self._window = window.above(self.start)
        self._byte_ranges = list(_plan_byte_ranges(reader, self._window))
        self.end = self.start  # unless a record is in the window
        self._trim()
        self._ends = [byte_range.end_offset for byte_range in self._byte_ranges]
        self.held_bytes += _RANGE_BYTES * (len(self._byte_ranges) - len(self._view))

    def byte_ranges(self, offset: int) -> Iterator[ByteRange]:
        """See `ServedPartition`."""
        return iter(self._byte_ranges[bisect_right(self._ends, offset) :])

    def at_time(self, timestamp: int) -> OffsetAndTimestamp | None:
        """See `ServedPartition`."""
        window = self._window._replace(start_ms=max(timestamp, self._window.start_ms))
        if window.start_ms >= window.end_ms:
            return None
        pieces = pieces_of([(self._reader, window)])
        for batch in execute(self._reads.cached_fetch, pieces, schema_of(_TIMES)):
            if batch.num_rows:
                offset, time = (column.cast(pa.int64())[0].as_py() for column in batch.columns)
                return OffsetAndTimestamp(int(offset), int(time))
        return None

    def max_timestamp(self) -> OffsetAndTimestamp | None:
        """See `ServedPartition`."""
        newest = None
        low, high = self._window.start_ms - 1, self._window.end_ms - 1
        while low < high:
            middle = (low + high + 1) // 2
            record = self.at_time(middle)
            if record is None:
                high = middle - 1
            else:
                low, newest = record.timestamp, record
        return newest

    def log_bytes(self) -> int:
        """See `ServedPartition`. Batches at both ends of the window count whole."""
        return sum(byte_range.end - byte_range.start for byte_range in self._byte_ranges)

    def _trim(self) -> None:
        """Drop byte ranges without a record at both ends; set where the partition starts and ends.

        It ends after its last record, in every version. A stored batch may have offsets after that
        record, so the last index block is a separate byte range, which is encoded again if
        necessary.
        """
        end = None
        while self._byte_ranges and end is None:
            last = self._byte_ranges.pop()
            if last.window is None:
                last = self._without_last_block(last)
            end = max((end for _, end in self._sent(last)), default=None)
            if end is not None:
                window = self._window._replace(end_offset=end)
                self._byte_ranges.append(last._replace(window=window))
        start = None
        while self._byte_ranges and start is None:
            start = self._start_of(self._byte_ranges[0])
            if start is None:
                del self._byte_ranges[0]
        if start is not None and end is not None:
            self.start, self.end = start, end

    def _without_last_block(self, byte_range: ByteRange) -> ByteRange:
        """Return the last index block of a byte range. Append the rest to `_byte_ranges`."""
        block = self._reader.zones(byte_range.segment).block_at(byte_range.end_offset - 1)
        start, first = byte_range.start, byte_range.first_offset
        if block is not None and block.position > start:
            start, first = block.position, block.first_offset
            self._byte_ranges.append(byte_range._replace(end=start, end_offset=first))
        return byte_range._replace(start=start, first_offset=first, window=self._window)

    def _start_of(self, byte_range: ByteRange) -> int | None:
        """Return the base offset of the first batch that is sent, or None."""
        if byte_range.window is not None:
            return next((first for first, _ in self._sent(byte_range)), None)
        block = self._reader.zones(byte_range.segment).block_at(byte_range.first_offset)
        if block is None:
            return None
        table = self._reads.fetch.chunk_of(block.as_piece(byte_range.segment)).table
        return int(table[0]["base_offset"]) if len(table) else None

    def _sent(self, byte_range: ByteRange) -> Iterator[tuple[int, int]]:
        """Yield (base offset of the first batch that is sent, offset after the last record).

        There is a pair for each chunk of the byte range with a record in its window.
        """
        piece = byte_range.segment.part(
            byte_range.start, byte_range.end, byte_range.first_offset, byte_range.end_offset
        )
        for chunk in self._reads.fetch.chunks([piece]):
            start = int(chunk.log_positions[0]) if len(chunk.log_positions) else byte_range.start
            table, decoded, stays = decode_byte_range(memoryview(chunk.data), byte_range, start)
            rows = np.flatnonzero(stays)
            if len(rows):
                first = table["base_offset"][decoded.batch[rows[0]]]
                yield int(first), int(decoded.offsets[rows[-1]]) + 1


def _plan_byte_ranges(reader: PartitionReader, window: Window) -> Iterator[ByteRange]:
    """Yield byte ranges of a window. In each, all blocks have outside records, or no block has."""
    outside = np.array([[INT64_MIN, window.end_ms], [window.start_ms - 1, INT64_MAX]], np.int64)
    for piece in pieces_of([(reader, window)]):
        segment = piece.segment
        if piece.window == ALL_RECORDS:
            base, end = segment.base_offset, segment.end_offset
            yield ByteRange(segment, 0, segment.log_bytes, base, end)
            continue
        mixed = reader.zones(segment).within(ALL_RECORDS, outside)
        if window.start_offset > segment.base_offset:  # the log starts inside: filter all
            mixed = piece
        for start, end, first, stop, is_mixed in _split(piece, mixed):
            yield ByteRange(segment, start, end, first, stop, window if is_mixed else None)


def _split(piece: Piece, mixed: Piece) -> Iterator[tuple[int, int, int, int, bool]]:
    """Yield (start, end, first offset, end offset, is mixed) of a piece's ranges, cut at `mixed`.

    `mixed` are blocks that also have records outside the window. All ranges begin and end at
    boundaries of index blocks.
    """
    cuts = dict(zip(mixed.starts.tolist(), mixed.first_offsets.tolist(), strict=True))
    cuts |= dict(zip(mixed.ends.tolist(), mixed.end_offsets.tolist(), strict=True))
    places = np.array(sorted(cuts), np.int64)
    for start, end, first, stop in zip(*(column.tolist() for column in piece[2:6]), strict=True):
        inner = places[places.searchsorted(start, "right") : places.searchsorted(end)].tolist()
        bounds = [(start, first), *((place, cuts[place]) for place in inner), (end, stop)]
        for (low, low_offset), (high, high_offset) in pairwise(bounds):
            yield low, high, low_offset, high_offset, _holds(mixed, low)


def _holds(piece: Piece, position: int) -> bool:
    at = int(piece.starts.searchsorted(position, "right")) - 1
    return at >= 0 and position < int(piece.ends[at])
