"""Plan which bytes of which segments a read needs.

Plans use zone maps, and key indexes if the read has keys. Planning reads nothing for a segment
whose records are all in the window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat, starmap

from seglake.errors import UsageError
from seglake.format.records import Int64s
from seglake.limits import INT64_MIN, NO_END, REQUESTS
from seglake.log.fetch import run_after, run_ahead
from seglake.log.key_indexes import SubjectHashes
from seglake.log.reads import PartitionReader
from seglake.log.segment import ALL_RECORDS, Piece, Window
from seglake.log.zone_maps import NO_WINDOWS, Marked, meet
from seglake.times.instants import Time, to_epoch_ms

_FIRST_RANGES = 4  # first read of a search for the newest records; each next read is doubled


def open_window(start: Time | None, end: Time | None) -> Window:
    """Return the window [start, end). None leaves a side open; two None include all records.

    Raises UsageError if the window ends before it starts.
    """
    if start is None and end is None:
        return ALL_RECORDS
    start_ms = INT64_MIN if start is None else to_epoch_ms(start)
    end_ms = NO_END if end is None else to_epoch_ms(end)
    if start_ms > end_ms:
        raise UsageError(f"the window from {start!r} to {end!r} ends before it starts. Swap them")
    return Window.from_times(start_ms, end_ms)


@dataclass
class BlockPlan:
    """The blocks of a log partition that can hold a wanted record.

    A record is wanted if it is in `window`, in one of `windows` (see `NO_WINDOWS`), and has the
    `sought` hashes. A key index only lists the blocks that may hold a key, so the records of these
    blocks must be compared. `by_index` counts the segments that were searched with a key index,
    `scanned` the other segments.
    """

    reader: PartitionReader
    window: Window
    windows: Int64s
    sought: SubjectHashes
    by_index: int = 0
    scanned: int = 0

    @staticmethod
    def from_window(
        reader: PartitionReader, window: Window, sought: SubjectHashes, windows: Int64s = NO_WINDOWS
    ) -> BlockPlan:
        """Return the blocks of a window, limited to `windows`."""
        above = window.above(reader.view.log_start_offset)
        return BlockPlan(reader, above, windows, sought)

    def pieces(self) -> Iterator[Piece]:
        """Return the pieces to read, in offset order."""
        make = partial(self._piece, joined=True)
        rows = _rows(self.reader, self.window, self.windows)
        return _made(make, rows, remote=self.reader.store.remote)

    def newest_pieces(self) -> Iterator[Piece]:
        """Yield the pieces to read, a few blocks at a time, in descending order."""
        make = partial(self._piece, joined=False)
        rows = [*_rows(self.reader, self.window, self.windows)]
        for piece in _made(make, reversed(rows), remote=False):
            end, step = len(piece.starts), _FIRST_RANGES
            while end:
                start = max(0, end - step)
                yield piece.take(slice(start, end)).joined()
                end, step = start, 2 * step

    def _piece(
        self, reader: PartitionReader, window: Window, index: int, whole: int, records: int, *,
        joined: bool,
    ) -> Piece | None:  # fmt: skip
        """Return the piece of a row, or None if no block can hold a wanted record."""
        if not records:  # see `_piece_of`
            return None
        found = self._by_index(index, records, joined=joined) if self.sought else None
        self.by_index += found is not None
        self.scanned += found is None
        if found is None:
            return _piece_of(reader, window, index, whole, records, self.windows)
        return found if len(found.starts) else None

    def _by_index(self, index: int, records: int, *, joined: bool) -> Piece | None:
        """Return the blocks that a key index lists.

        Returns None if the segment has no usable key index for the search.
        """
        segment = self.reader.segment(index)
        if not any(segment.keyindex_kinds >> subject.kind & 1 for subject in self.sought):
            return None
        key_index = self.reader.key_index(segment)
        marks: Marked = partial(key_index.blocks, self.sought)
        if self.reader.store.remote:  # read its tables concurrently with the head of the zone map
            marks = run_after(key_index.load, marks)
        zones = self.reader.zones(segment)
        return zones.among(marks, self.window, self.windows, records, joined=joined)


_Row = tuple[PartitionReader, Window, int, int, int]
"""A segment that meets a window: its position, whether all its records are wanted, their count"""


def pieces_of(reads: Iterable[tuple[PartitionReader, Window]]) -> Iterator[Piece]:
    """Return the pieces to read of these log partitions, one after another, in offset order.

    Zone maps on an object store are read concurrently.
    """
    rows, remote = list[Iterator[_Row]](), False
    for reader, asked in reads:
        start = reader.view.log_start_offset
        rows.append(_rows(reader, asked.above(start) if start > asked.start_offset else asked))
        remote = reader.store.remote
    return _made(_piece_of, chain.from_iterable(rows), remote=remote)


def _rows(reader: PartitionReader, window: Window, windows: Int64s = NO_WINDOWS) -> Iterator[_Row]:
    """Return a row for each segment that can contain a wanted record."""
    bases, ends, lows, highs = reader.view.extents
    numbers, whole = meet(window, windows, lows, highs, bases, ends)
    columns = numbers.tolist(), whole.tolist(), reader.view.record_counts[numbers].tolist()
    return zip(repeat(reader), repeat(window), *columns)  # `repeat` does not end


def _piece_of(
    reader: PartitionReader, window: Window, index: int, whole: int, records: int,
    windows: Int64s = NO_WINDOWS,
) -> Piece | None:  # fmt: skip
    """Return the piece of a row, or None if no block can hold a wanted record."""
    if not records:  # the segment only covers a gap
        return None
    segment = reader.segment(index)
    if whole:
        return segment.whole()
    piece = reader.zones(segment).within(window, windows, most_records=records)
    return piece if len(piece.starts) else None


def _made(
    make: Callable[..., Piece | None], rows: Iterable[_Row], *, remote: bool
) -> Iterator[Piece]:
    """Return the pieces that `make` makes from rows. Run calls ahead on an object store."""
    if remote:
        return filter(None, run_ahead(((1, partial(make, *row)) for row in rows), REQUESTS))
    return filter(None, starmap(make, rows))
