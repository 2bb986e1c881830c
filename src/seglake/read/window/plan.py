"""Plan which bytes of which segments a read needs: by zone maps, and by key indexes if it has keys.

Planning reads nothing for a segment whose records are all in the window. A caller can inspect a
plan before executing it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import starmap
from typing import Any, NamedTuple

import pyarrow as pa

from seglake.errors import UsageError
from seglake.format.records import Int64s
from seglake.limits import INT64_MIN, NO_END, REQUESTS
from seglake.log.chunk import Fetch
from seglake.log.execute import MEMORY_BYTES, ReadStats, execute
from seglake.log.key_indexes import SubjectHashes
from seglake.log.piece import Piece, Window
from seglake.log.segment import LogRanges, LogSegment
from seglake.log.segment_lookup import PartitionReader
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


def window_of(start: Time, end: Time) -> Window:
    """Return the window [start, end). Raises UsageError if it ends before it starts."""
    return _checked(start, end, to_epoch_ms(start), to_epoch_ms(end))


def _checked(start: Time | None, end: Time | None, start_ms: int, end_ms: int) -> Window:
    if start_ms > end_ms:
        raise UsageError(f"the window from {start!r} to {end!r} ends before it starts. Swap them")
    return Window.of_times(start_ms, end_ms)


def open_window(start: Time | None, end: Time | None) -> Window:
    """Return the window [start, end). None leaves a side open; two None include all records."""
    if start is None and end is None:
        return Window()
    start_ms = INT64_MIN if start is None else to_epoch_ms(start)
    return _checked(start, end, start_ms, NO_END if end is None else to_epoch_ms(end))


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
    def of(
        reader: PartitionReader,
        window: Window,
        sought: SubjectHashes,
        windows: Int64s | None = None,
    ) -> BlockPlan:
        """Return the blocks of a window, limited to `windows` (see `Bounds`) if given."""
        above = window.above(reader.view.log_start_offset)
        return BlockPlan(reader, Bounds.of(above, windows), sought, SearchCounts())

    def pieces(self) -> Iterator[Piece]:
        """Return the pieces to read, in offset order."""
        rows = _rows([(self.reader, self.bounds)])
        return _made(partial(self._piece, joined=True), rows, remote=self.reader.store.remote)

    def newest_pieces(self) -> Iterator[Piece]:
        """Yield the pieces to read, a few blocks at a time, in descending order."""
        rows = reversed([*_rows([(self.reader, self.bounds)])])
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


def pieces_of(reads: Sequence[tuple[PartitionReader, Window]]) -> Iterator[Piece]:
    """Return the pieces to read of these log partitions, one after another, in offset order.

    Zone maps on an object store are read concurrently.
    """
    bounded, bounds = list[tuple[PartitionReader, Bounds]](), None
    for reader, asked in reads:
        start = reader.view.log_start_offset
        window = asked.above(start) if start > asked.start_offset else asked
        if bounds is None or window != bounds.window:  # nearly always, all have the same window
            bounds = Bounds.of(window)
        bounded.append((reader, bounds))
    remote = bool(bounded) and bounded[0][0].store.remote
    return _made(_piece_of, _rows(bounded), remote=remote)


def _rows(reads: Iterable[tuple[PartitionReader, Bounds]]) -> Iterator[_Row]:
    for reader, bounds in reads:
        view = reader.view
        bases, ends, lows, highs = view.extents
        numbers, whole = bounds.meet(lows, highs, bases, ends)
        columns = numbers.tolist(), whole.tolist(), view.record_counts[numbers].tolist()
        for index, all_wanted, records in zip(*columns, strict=True):
            yield reader, bounds, index, all_wanted, records


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
    """Return the pieces that `make` makes from rows. On an object store, its calls run ahead."""
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
        """Return an upper bound of the bytes that `execute` fetches. It uses cached batches."""
        return sum(int((ends - starts).sum()) for starts, ends in self.spans)

    @property
    def records_at_most(self) -> int:
        """Return an upper bound of the number of records."""
        return sum(piece.records_at_most for piece in self.pieces)

    @property
    def ranges(self) -> int:
        """Return the number of byte ranges that `execute` fetches. It may cut a large range."""
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
