"""Plan which bytes of which segments a read needs, and read a window in offset or time order.

Plans use zone maps, and key indexes if the read has keys. Planning reads nothing for a segment
whose records are all in the window. A caller can inspect a plan before executing it.

Windows are read in bounded memory. In time order, the partitions become one stream. The window is
cut into slices of time that fit into memory, and the records of a slice are collected and sorted.
Where events are nearly in order, zone maps let a slice fetch little more than its records. A slice
with too many records is cut to end at the median time of its records so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat, starmap
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seglake.errors import UsageError
from seglake.format.records import Int64s
from seglake.limits import INT64_MIN, NO_END, REQUESTS
from seglake.log.execute import MEMORY_BYTES, SCHEMA, ReadStats, execute
from seglake.log.fetch import Fetch
from seglake.log.key_indexes import SubjectHashes
from seglake.log.reads import PartitionReader
from seglake.log.segment import LogRanges, LogSegment, Piece, Window
from seglake.log.threads import after, ahead
from seglake.log.zone_maps import Bounds, Marked
from seglake.read.window.reader import WindowReader
from seglake.terminal.tables import Column, ShowsTable, Table, number, size
from seglake.terminal.wording import counted, short_bytes
from seglake.times.instants import Time, to_epoch_ms

_SHOWN = 20  # segments in a table
_FIRST_RANGES = 4  # first read of a search for the newest records; each next read is doubled

PLAN_COLUMNS = [
    Column("segment", "segment"),
    number("ranges", "ranges"),
    size("bytes", "bytes"),
    size("of_bytes", "of"),
    number("records_at_most", "records at most"),
]


def open_window(start: Time | None, end: Time | None) -> Window:
    """Return the window [start, end). None leaves a side open; two None include all records.

    Raises UsageError if the window ends before it starts.
    """
    if start is None and end is None:
        return Window()
    start_ms = INT64_MIN if start is None else to_epoch_ms(start)
    end_ms = NO_END if end is None else to_epoch_ms(end)
    if start_ms > end_ms:
        raise UsageError(f"the window from {start!r} to {end!r} ends before it starts. Swap them")
    return Window.from_times(start_ms, end_ms)


@dataclass
class SearchCounts:
    """How many segments of a log partition were searched with a key index, and how many without."""

    by_index: int = 0
    scanned: int = 0


class BlockPlan(NamedTuple):
    """The blocks of a log partition that can hold a wanted record.

    A record is wanted if it is within the bounds and has the `sought` hashes. A key index only
    lists the blocks that may hold a key, so the records of these blocks must be compared.
    """

    reader: PartitionReader
    bounds: Bounds
    sought: SubjectHashes
    searched: SearchCounts

    @staticmethod
    def from_window(
        reader: PartitionReader,
        window: Window,
        sought: SubjectHashes,
        windows: Int64s | None = None,
    ) -> BlockPlan:
        """Return the blocks of a window, limited to `windows` (see `Bounds`) if given."""
        above = window.above(reader.view.log_start_offset)
        return BlockPlan(reader, Bounds.from_window(above, windows), sought, SearchCounts())

    def pieces(self) -> Iterator[Piece]:
        """Return the pieces to read, in offset order."""
        rows = _rows(self.reader, self.bounds)
        return _made(partial(self._piece, joined=True), rows, remote=self.reader.store.remote)

    def newest_pieces(self) -> Iterator[Piece]:
        """Yield the pieces to read, a few blocks at a time, in descending order."""
        rows = reversed([*_rows(self.reader, self.bounds)])
        for piece in _made(partial(self._piece, joined=False), rows, remote=False):
            end, step = len(piece.ranges.starts), _FIRST_RANGES
            while end:
                start = max(0, end - step)
                yield piece._replace(ranges=piece.ranges.take(slice(start, end)).joined())
                end, step = start, 2 * step

    def _piece(
        self, reader: PartitionReader, bounds: Bounds, index: int, whole: int, records: int, *,
        joined: bool,
    ) -> Piece | None:  # fmt: skip
        """Return the piece of a row, or None if no block can hold a wanted record."""
        if not records:  # see `_piece_of`
            return None
        segment = reader.segment(index)
        found = self._by_index(segment, joined=joined) if self.sought else None
        self.searched.by_index += found is not None
        self.searched.scanned += found is None
        if found is None:
            return _piece_of(reader, bounds, index, whole, records)
        ranges, offsets = found
        return (
            Piece(segment, bounds.window, ranges, min(offsets, records)) if len(ranges[0]) else None
        )

    def _by_index(self, segment: LogSegment, *, joined: bool) -> tuple[LogRanges, int] | None:
        """Return the blocks that a key index lists, and an upper bound of their wanted records.

        Returns None if the segment has no usable key index for the search.
        """
        if not any(segment.keyindex_kinds >> subject.kind & 1 for subject in self.sought):
            return None
        index = self.reader.key_index(segment)
        marks: Marked = partial(index.blocks, self.sought)
        if self.reader.store.remote:  # read its tables concurrently with the head of the zone map
            marks = after(index.load, marks)
        return self.reader.zones(segment).among(marks, self.bounds, joined=joined)


_Row = tuple[PartitionReader, Bounds, int, int, int]
"""A segment that meets the bounds: its position, whether all its records are wanted, their count"""


def pieces_of(reads: Iterable[tuple[PartitionReader, Window]]) -> Iterator[Piece]:
    """Return the pieces to read of these log partitions, one after another, in offset order.

    Zone maps on an object store are read concurrently.
    """
    bounded, bounds, remote = list[tuple[PartitionReader, Bounds]](), None, False
    for reader, asked in reads:
        start = reader.view.log_start_offset
        window = asked.above(start) if start > asked.start_offset else asked
        if bounds is None or window != bounds.window:  # nearly always, all have the same window
            bounds = Bounds.from_window(window)
        bounded.append((reader, bounds))
        remote = reader.store.remote
    return _made(_piece_of, chain.from_iterable(starmap(_rows, bounded)), remote=remote)


def _rows(reader: PartitionReader, bounds: Bounds) -> Iterator[_Row]:
    """Return a row for each segment that meets the bounds."""
    bases, ends, lows, highs = reader.view.extents
    numbers, whole = bounds.meet(lows, highs, bases, ends)
    columns = numbers.tolist(), whole.tolist(), reader.view.record_counts[numbers].tolist()
    return zip(repeat(reader), repeat(bounds), *columns)  # `repeat` does not end


def _piece_of(
    reader: PartitionReader, bounds: Bounds, index: int, whole: int, records: int
) -> Piece | None:
    """Return the piece of a row, or None if no block can hold a wanted record."""
    if not records:  # the segment only covers a gap
        return None
    segment = reader.segment(index)
    if whole:
        return Piece(segment, Window(), segment.log, records)
    ranges, offsets = reader.zones(segment).within(bounds)
    return Piece(segment, bounds.window, ranges, min(offsets, records)) if len(ranges[0]) else None


def _made(
    make: Callable[..., Piece | None], rows: Iterable[_Row], *, remote: bool
) -> Iterator[Piece]:
    """Return the pieces that `make` makes from rows. Run calls ahead on an object store."""
    if remote:
        return filter(None, ahead(((1, partial(make, *row)) for row in rows), REQUESTS))
    return filter(None, starmap(make, rows))


@dataclass(frozen=True, repr=False)
class Plan(ShowsTable):
    """A read of one topic in one version of the lake that is not executed yet. Can be pickled."""

    version: int
    pieces: tuple[Piece, ...]
    schema: pa.Schema = field(repr=False)
    fetch: Fetch = field(repr=False)

    def _table(self) -> Table:
        rows = [tuple(row.values()) for row in self.rows(_SHOWN)]
        topics = sorted({piece.segment.topic for piece in self.pieces})
        title = (
            f"A read of {', '.join(topics) or 'nothing'} in version {self.version}: "
            f"{short_bytes(self.size_bytes)} in {counted(self.ranges, 'range')} of "
            f"{counted(len(self.pieces), 'segment')}, at most "
            f"{counted(self.records_at_most, 'record')}"
        )
        return Table(title, PLAN_COLUMNS, rows, len(self.pieces))

    def rows(self, most: int | None = None) -> list[dict[str, Any]]:
        """Return a row for each segment that is read, or for the first `most` of these segments."""
        spans = [(piece, *piece.spans(self.fetch.gap_bytes)) for piece in self.pieces[:most]]
        return [
            {
                "segment": piece.segment.log_key,
                "ranges": len(starts),
                "bytes": int((ends - starts).sum()),
                "of_bytes": piece.segment.log_bytes,
                "records_at_most": piece.records_at_most,
            }
            for piece, starts, ends in spans
        ]

    @property
    def spans(self) -> list[tuple[Int64s, Int64s]]:
        """Return, for each piece, the starts and ends of the byte ranges to request."""
        return [piece.spans(self.fetch.gap_bytes) for piece in self.pieces]

    @property
    def size_bytes(self) -> int:
        """Return an upper bound of the bytes that `execute` fetches. It skips cached batches."""
        return sum(int((ends - starts).sum()) for starts, ends in self.spans)

    @property
    def records_at_most(self) -> int:
        """Return an upper bound of the number of records."""
        return sum(piece.records_at_most for piece in self.pieces)

    @property
    def ranges(self) -> int:
        """Return the number of byte ranges to fetch. `execute` may cut a large range."""
        return sum(len(starts) for starts, _ in self.spans)

    def execute(
        self, *, memory_bytes: int = MEMORY_BYTES, stats: ReadStats | None = None
    ) -> WindowReader:
        """Return the records, one partition after another, in offset order.

        Args:
            memory_bytes: About how much memory the read uses.
            stats: Counts requests, bytes and records of all reads together.
        """
        batches = partial(
            execute, self.fetch, self.pieces, self.schema, memory_bytes=memory_bytes, stats=stats
        )
        return WindowReader(self.schema, batches, self._table)


_OUTPUT_ROWS = 65_536
_MOST_BYTES = 2**30  # Arrow's offsets have 32 bits, also while a slice is sorted
_ORDER = ("timestamp", "partition", "offset")


def in_offset_order(
    readers: Sequence[PartitionReader],
    window: Window,
    schema: pa.Schema,
    memory_bytes: int,
    stats: ReadStats,
) -> Iterator[pa.RecordBatch]:
    """Return the records of `window`, partition after partition, each in offset order."""
    if not readers:
        return iter(())
    # Iterate over pieces: a Plan would keep all of them in memory.
    pieces = pieces_of(zip(readers, repeat(window)))
    return execute(readers[0].cached_fetch, pieces, schema, memory_bytes=memory_bytes, stats=stats)


def in_time_order(
    readers: Sequence[PartitionReader],
    window: Window,
    schema: pa.Schema,
    memory_bytes: int,
    stats: ReadStats,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of `window` by (timestamp, partition, offset), as batches of `schema`."""
    names = [name for name in _ORDER if name not in schema.names]
    inner = pa.schema([*schema, *(SCHEMA.field(name) for name in names)])
    ordered = sorted(readers, key=lambda reader: reader.view.partition)
    start, width = window.start_ms, window.end_ms - window.start_ms
    while ordered and start < window.end_ms:
        slice_ = _Slice(start, min(start + width, window.end_ms), inner, memory_bytes, stats)
        for batch in slice_.records(ordered):
            yield batch.select(schema.names)
        start, width = slice_.end_ms, slice_.next_width()


class _Slice:
    """Records with start_ms <= timestamp < end_ms. `end_ms` is lowered if they are too many."""

    def __init__(
        self, start_ms: int, end_ms: int, schema: pa.Schema, memory_bytes: int, stats: ReadStats
    ) -> None:
        self.start_ms, self.end_ms = start_ms, end_ms
        self._schema, self._memory_bytes, self._stats = schema, memory_bytes, stats
        self._batches: list[pa.RecordBatch] = []
        self._size = 0

    @property
    def _limit(self) -> int:
        return min(self._memory_bytes // 4, _MOST_BYTES)  # sorting makes a copy

    def next_width(self) -> int:
        """Return the width (ms) at which a slice of this density fills two thirds of its memory."""
        growth = min(8.0, self._limit * 2 / 3 / max(1, self._size))
        return max(1, int((self.end_ms - self.start_ms) * growth))

    def records(self, readers: Sequence[PartitionReader]) -> Iterator[pa.RecordBatch]:
        """Yield the records in time order. `end_ms` is final after the last record."""
        if not self._collect(readers):
            # A single millisecond has too many records. Their order is partition and offset.
            self._drop(self._batches)
            self._batches = []
            yield from self._read(readers, 0)
        elif self._batches:
            batch, self._batches = _sorted(self._batches), []
            for first in range(0, len(batch), _OUTPUT_ROWS):
                yield batch.slice(first, _OUTPUT_ROWS)

    def _collect(self, readers: Sequence[PartitionReader]) -> bool:
        """Collect all records of the slice. Return False if one millisecond has too many."""
        following = self._collect_from(readers, 0)
        while following is not None:
            if not self._narrow():
                return False
            partition, offset = following
            left = [reader for reader in readers if reader.view.partition >= partition]
            following = self._collect_from(left, offset)
        return True

    def _collect_from(
        self, readers: Sequence[PartitionReader], offset: int
    ) -> tuple[int, int] | None:
        """Collect the records of the first partition from `offset` on, and of all other partitions.

        If there are too many, return the partition and the offset at which to continue.
        """
        for batch in self._read(readers, offset):
            self._batches.append(batch)
            self._size += batch.nbytes
            if self._size > self._limit:
                return batch["partition"][-1].as_py(), batch["offset"][-1].as_py() + 1
        return None

    def _read(self, readers: Sequence[PartitionReader], offset: int) -> Iterator[pa.RecordBatch]:
        window = Window(self.start_ms, self.end_ms)
        windows = [window._replace(start_offset=offset), *[window] * (len(readers) - 1)]
        pieces = pieces_of(zip(readers, windows, strict=True))
        return execute(
            readers[0].cached_fetch, pieces, self._schema,
            memory_bytes=self._memory_bytes // 4, stats=self._stats,
        )  # fmt: skip

    def _narrow(self) -> bool:
        """End the slice earlier, so that about half of its records so far remain."""
        if self.end_ms - self.start_ms == 1:
            return False
        times = np.concatenate([_times(batch) for batch in self._batches])
        middle = int(np.partition(times, len(times) // 2)[len(times) // 2])
        self.end_ms = max(self.start_ms + 1, middle)
        left = [batch.take(np.flatnonzero(_times(batch) < self.end_ms)) for batch in self._batches]
        self._stats.records += sum(map(len, left))
        self._drop(self._batches)
        self._batches = [batch for batch in left if len(batch)]
        self._size = sum(batch.nbytes for batch in self._batches)
        return True

    def _drop(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Subtract records that will be read again from the counts: each record counts once."""
        self._stats.records -= sum(map(len, batches))


def _times(batch: pa.RecordBatch) -> Int64s:
    times: Int64s = batch["timestamp"].cast(pa.int64()).to_numpy()
    return times


def _sorted(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    # The batches are sorted by partition and offset, so a stable sort by time is enough.
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch.take(np.argsort(_times(batch), kind="stable"))


def records_from(
    reader: PartitionReader, offset: int, max_records: int, schema: pa.Schema
) -> pa.Table:
    """Return the records at or above `offset`, at most `max_records`.

    Raises OffsetOutOfRange if `offset` is below the log start or above the end, UsageError for a
    negative count, CorruptData and StoreError.
    """
    if max_records < 0:
        raise UsageError(f"max_records must be 0 or more, not {max_records}")
    reader.require(offset, reader.view.end_offset)
    pieces = pieces_of([(reader, Window(start_offset=offset))])
    memory_bytes = min(MEMORY_BYTES, 8 * reader.bytes_of(max_records))
    batches = execute(reader.fetch, pieces, schema, memory_bytes=memory_bytes)
    return pa.Table.from_batches(_first(batches, max_records), schema)


def _first(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if count <= 0:
            return
        yield batch.slice(0, count)
        count -= len(batch)
