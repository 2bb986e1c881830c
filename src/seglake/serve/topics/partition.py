"""Provide a log partition as clients see it: its start and end, its records, its times."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from seglake.format.records import Int64s, fixed
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
    """A log partition for handlers. `start` is the log start offset.

    With `remote`, some of the log is on an object store or attached from one, so that lookups wait.
    `held_bytes` is about its memory. `limit` is the largest offset that a client may use: the end,
    or the end that a replay will have.
    """

    start: int
    limit: int
    remote: bool
    held_bytes: int

    def end(self) -> int:
        """Return the high watermark: the end offset of what clients may read now."""
        return self.limit

    def grows_in(self) -> float | None:
        """Return the seconds until the end may grow. None if only a new version brings more."""
        return None

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
        self.start, self.limit = reader.view.log_start_offset, reader.view.end_offset
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

_NONE = np.empty(0, np.int64)
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
        self.start = self.limit = reader.view.log_start_offset
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
        end, newest = self.end(), None
        low, high = self._window.start_ms - 1, self._window.end_ms - 1
        while low < high:
            middle = (low + high + 1) // 2
            record = self.at_time(middle)
            if record is None or record.offset >= end:
                high = middle - 1
            else:
                low, newest = record.timestamp, record
        return newest

    def log_bytes(self) -> int:
        """See `ServedPartition`. Batches at both ends of the window count whole."""
        return sum(run.end - run.start for run in self._runs)

    def _blocks(self) -> tuple[Int64s, Int64s]:
        """Return two ascending arrays with an item for each index block: end offsets and times.

        A time (ms) is the largest of all blocks up to and including this one, and at most the
        window's end. It includes records outside the window. The last end offset is `limit`.
        """
        segments = {run.segment.log_key: run.segment for run in self._runs}
        ends, latest = list[Int64s](), list[Int64s]()
        for segment in segments.values():
            counts, _, highs = self._reader.zones(segment).times()
            ends.append(segment.base_offset + np.cumsum(counts))
            latest.append(highs)
        all_ends = np.minimum(np.concatenate([*ends, _NONE]), self.limit)
        times = np.minimum(np.concatenate([*latest, _NONE]), self._window.end_ms - 1)
        inside = all_ends > self.start
        all_ends, times = all_ends[inside], np.maximum.accumulate(times[inside])
        last = np.append(all_ends[1:] > all_ends[:-1], True)[: len(all_ends)]
        return all_ends[last], times[last]

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
            self.start, self.limit = start, end

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


# ---------------- clock
# A replay is a window whose records appear again at their times, at a chosen speed.
#
# The clock of a name starts at its first fetch. Event time then advances from the start of the
# window, `speed` times as fast as real time, even while no server runs, because the start is stored
# with the offsets that groups commit. A record appears when event time has passed its timestamp
# and the timestamps of all records before it. Index blocks appear as a whole, so no record appears
# too early.
#
# Fetches from offsets that have not appeared yet wait. Groups may have committed such offsets: the
# stored start may be lost, and a merge may move the ends of index blocks.


class Starts(Protocol):
    """When replays started, in epoch milliseconds. Only the event loop may call it."""

    async def replay_started(self, name: str) -> int | None:
        """Return when the replay of this name started. None if it did not. Raises StoreError."""

    def start_replay(self, name: str) -> None:
        """Store that a replay starts now, before any offset that is committed later."""


class Clock:
    """The event time of one replay. It begins at `start`, which calls `on_start`.

    `ran_s` is how many seconds it has been running; None if it has not started.
    """

    def __init__(
        self,
        start_ms: int,
        speed: int,
        ran_s: float | None = None,
        on_start: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start_ms, self.speed, self._now = start_ms, speed, now
        self._started = None if ran_s is None else now() - ran_s
        self._on_start = on_start

    def start(self) -> None:
        """Start the clock, unless it is running."""
        if self._started is None:
            self._started = self._now()
            self._on_start()

    def event_time_ms(self) -> int | None:
        """Return the event time now; None before the start."""
        if self._started is None:
            return None
        return self._start_ms + int((self._now() - self._started) * 1000 * self.speed)

    def seconds_until(self, time_ms: int) -> float:
        """Return the seconds until event time has passed `time_ms`."""
        now = self.event_time_ms()
        return max(0.0, time_ms + 1 - (self._start_ms if now is None else now)) / 1000 / self.speed


class ReplayedPartition(WindowPartition):
    """A partition of a window topic under a clock. It grows by whole index blocks.

    `log_bytes` includes the records that have not appeared yet.
    """

    def __init__(
        self, reader: PartitionReader, reads: SharedReads, window: Window, clock: Clock
    ) -> None:
        super().__init__(reader, reads, window)
        self._clock = clock
        self._block_ends, self._block_times = self._blocks()
        self.held_bytes += self._block_ends.nbytes + self._block_times.nbytes

    def end(self) -> int:
        """See `ServedPartition`."""
        now = self._clock.event_time_ms()
        shown = 0 if now is None else int(self._block_times.searchsorted(now))
        return int(self._block_ends[shown - 1]) if shown else self.start

    def grows_in(self) -> float | None:
        """See `ServedPartition`."""
        self._clock.start()
        later = int(self._block_ends.searchsorted(self.end(), "right"))
        if later == len(self._block_ends):
            return None
        return self._clock.seconds_until(int(self._block_times[later]))
