"""Provide a log partition as clients see it: its start and end, its records, its times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from seglake.format.records import fixed
from seglake.layout import SUFFIXES
from seglake.limits import INT64_MAX, INT64_MIN
from seglake.log.blocks.search import OffsetAndTimestamp
from seglake.log.decode.columns import schema_of
from seglake.log.execute import execute
from seglake.log.piece import Window
from seglake.log.reads import SharedReads
from seglake.log.segment import LogRanges, LogSegment
from seglake.log.segment_lookup import PartitionReader
from seglake.log.zones.bounds import Bounds
from seglake.read.window.plan import pieces_of
from seglake.serve.records.taking import Run, decode_run

_RUN_BYTES = 800  # memory of a run and its segment, with the names of its files
_PARTITION_BYTES = 4096


class ServedPartition(ABC):
    """A log partition for handlers, from its log start offset `start` to its high watermark `end`.

    With `remote`, some of the log is on an object store or attached from one, so that lookups wait.
    `held_bytes` is about its memory.
    """

    start: int
    end: int
    remote: bool
    held_bytes: int

    @abstractmethod
    def runs(self, offset: int) -> Iterator[Run]:
        """Return the runs of bytes that hold the records from an offset on."""

    @abstractmethod
    def at_time(self, timestamp: int) -> OffsetAndTimestamp | None:
        """Return the first record at a time (ms) or later."""

    @abstractmethod
    def max_timestamp(self) -> OffsetAndTimestamp | None:
        """Return the first record with the largest timestamp."""

    @abstractmethod
    def log_bytes(self) -> int:
        """Return the bytes of its logs that are stored."""


def is_remote(reader: PartitionReader) -> bool:
    """Return whether reading a log may wait. A local lake may have attached logs, which do."""
    return reader.store.remote or bool(reader.view.segments.details["external"].any())


def held_bytes(reader: PartitionReader, runs: int) -> int:
    """Estimate the memory of a partition: its columns of segments, and its runs."""
    segments = reader.view.segments
    columns = sum(column.nbytes for column in segments.columns)
    return _PARTITION_BYTES + columns + _RUN_BYTES * runs


class WholePartition(ServedPartition):
    """A whole partition of a topic of the lake, in one version."""

    def __init__(self, reader: PartitionReader) -> None:
        self._reader, self._view = reader, reader.view
        self.start, self.end = reader.view.log_start_offset, reader.view.end_offset
        self.remote, self.held_bytes = is_remote(reader), held_bytes(reader, len(self._view))

    def runs(self, offset: int) -> Iterator[Run]:
        """See `ServedPartition`."""
        for index in range(max(0, self._view.index_of(offset)), len(self._view)):
            segment = self._reader.segment(index)
            if segment.log_bytes:
                base, end = segment.base_offset, segment.end_offset
                yield Run(segment, 0, segment.log_bytes, base, end)

    def at_time(self, timestamp: int) -> OffsetAndTimestamp | None:
        """See `ServedPartition`."""
        return self._reader.offset_for_time(timestamp)

    def max_timestamp(self) -> OffsetAndTimestamp | None:
        """See `ServedPartition`."""
        return self._reader.max_timestamp()

    def log_bytes(self) -> int:
        """See `ServedPartition`."""
        sizes = self._view.segments.details["sizes"][:, SUFFIXES.index("log")]
        return int(sizes.sum(dtype="int64"))


# ---------------- window
# A window of time as a partition: exactly the records of `read_range`.
#
# The window is planned when it is first requested. Segments and index blocks whose records are all
# in the window are sent as stored. Blocks that also have records outside the window, here called
# strangers, are encoded again without them.

_TIMES = ["offset", "timestamp"]


class WindowPartition(ServedPartition):
    """The records of a log partition with start_ms <= timestamp < end_ms, in one version.

    Create it on a thread: planning reads zone maps, and the batches at both ends.
    """

    def __init__(self, reader: PartitionReader, reads: SharedReads, window: Window) -> None:
        self._reader, self._reads = reader, reads
        self._window = window.above(reader.view.log_start_offset)
        self._runs = list(_planned(reader, self._window))
        self.remote = is_remote(reader)
        self.start = self.end = reader.view.log_start_offset
        self._trim()
        self._ends = [run.end_offset for run in self._runs]
        self.held_bytes = held_bytes(reader, len(self._runs))

    def runs(self, offset: int) -> Iterator[Run]:
        """See `ServedPartition`."""
        return iter(self._runs[bisect_right(self._ends, offset) :])

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
        return sum(run.end - run.start for run in self._runs)

    def _trim(self) -> None:
        """Drop runs without a record at both ends; set where the partition starts and ends.

        It ends after its last record, in every version. A stored batch may have offsets after that
        record, so the last index block is a run of its own, which is encoded again if necessary.
        """
        end = None
        while self._runs and end is None:
            last = self._runs.pop()
            if last.window is None:
                last = self._without_last_block(last)
            end = max((end for _, end in self._sent(last)), default=None)
            if end is not None:
                window = self._window._replace(end_offset=end)
                self._runs.append(last._replace(window=window))
        start = None
        while self._runs and start is None:
            start = self._start_of(self._runs[0])
            if start is None:
                del self._runs[0]
        if start is not None and end is not None:
            self.start, self.end = start, end

    def _without_last_block(self, run: Run) -> Run:
        """Return the last index block of a run as a run. What is before it stays in `_runs`."""
        block = self._reader.zones(run.segment).block_at(run.end_offset - 1)
        start, first = run.start, run.first_offset
        if block is not None and block.ranges.starts[0] > start:
            start, first = int(block.ranges.starts[0]), int(block.ranges.first_offsets[0])
            self._runs.append(run._replace(end=start, end_offset=first))
        return run._replace(start=start, first_offset=first, window=self._window)

    def _start_of(self, run: Run) -> int | None:
        """Return the base offset of the first batch that is sent, or None."""
        if run.window is not None:
            return next((first for first, _ in self._sent(run)), None)
        block = self._reader.zones(run.segment).block_at(run.first_offset)
        if block is None:
            return None
        table = self._reads.fetch.chunk_of(run.segment, block.ranges).table
        return int(table[0]["base_offset"]) if len(table) else None

    def _sent(self, run: Run) -> Iterator[tuple[int, int]]:
        """Yield the base offset of the first batch that is sent, and the end of the last record.

        One pair for each chunk of the run that has a record in its window.
        """
        ranges = LogRanges.one(run.start, run.end, run.first_offset, run.end_offset)
        for chunk in self._reads.fetch.chunks_of(run.segment, ranges):
            start = int(chunk.log_positions[0]) if len(chunk.log_positions) else run.start
            table, decoded, stays = decode_run(memoryview(chunk.data), run, start)
            rows = np.flatnonzero(stays)
            if len(rows):
                first = table["base_offset"][decoded.batch[rows[0]]]
                yield int(first), int(decoded.offsets[rows[-1]]) + 1


def _planned(reader: PartitionReader, window: Window) -> Iterator[Run]:
    """Yield the runs of a window: byte ranges whose blocks are all in it, or all have strangers."""
    view = reader.view
    bounds = Bounds.of(window)
    bases, ends, lows, highs = map(fixed, view.segments[:4])
    numbers, whole = bounds.meet(lows, highs, bases, ends)
    counts = view.segments.details["record_count"][numbers].tolist()
    for number, is_whole, records in zip(numbers.tolist(), whole.tolist(), counts, strict=True):
        if not records:
            continue
        segment = reader.segment(number)
        if is_whole:
            base, end = segment.base_offset, segment.end_offset
            yield Run(segment, 0, segment.log_bytes, base, end)
        else:
            yield from _of_segment(reader, segment, bounds)


def _of_segment(reader: PartitionReader, segment: LogSegment, bounds: Bounds) -> Iterator[Run]:
    window = bounds.window
    ranges, _ = reader.zones(segment).within(bounds)
    outside = np.array([[INT64_MIN, window.end_ms], [window.start_ms - 1, INT64_MAX]], np.int64)
    strange, _ = reader.zones(segment).within(Bounds.of(Window(), outside))
    if window.start_offset > segment.base_offset:  # the log starts inside the segment: filter all
        strange = ranges
    for start, end, first, stop, has_strangers in _split(ranges, strange):
        yield Run(segment, start, end, first, stop, window if has_strangers else None)


def _split(ranges: LogRanges, strange: LogRanges) -> Iterator[tuple[int, int, int, int, bool]]:
    """Yield the `ranges`, cut where `strange` ones begin and end, and whether each is strange.

    All bounds are bounds of index blocks.
    """
    cuts = dict(zip(strange.starts.tolist(), strange.first_offsets.tolist(), strict=True))
    cuts |= dict(zip(strange.ends.tolist(), strange.end_offsets.tolist(), strict=True))
    places = np.array(sorted(cuts), np.int64)
    for start, end, first, stop in zip(*(column.tolist() for column in ranges), strict=True):
        inner = places[places.searchsorted(start, "right") : places.searchsorted(end)].tolist()
        bounds = [(start, first), *((place, cuts[place]) for place in inner), (end, stop)]
        for (low, low_offset), (high, high_offset) in pairwise(bounds):
            yield low, high, low_offset, high_offset, _holds(strange, low)


def _holds(ranges: LogRanges, position: int) -> bool:
    at = int(ranges.starts.searchsorted(position, "right")) - 1
    return at >= 0 and position < int(ranges.ends[at])
