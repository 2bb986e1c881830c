"""Find the blocks of a log partition that may hold wanted records: by key indexes, or all blocks.

An index only says which blocks may hold a key, so the records of these blocks must be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from seglake.format.records import Int64s
from seglake.limits import REQUESTS
from seglake.log.key_indexes import SubjectHashes
from seglake.log.piece import Piece, Window
from seglake.log.segment import LogRanges, LogSegment
from seglake.log.segment_lookup import PartitionReader
from seglake.log.threads import after, ahead
from seglake.log.zones.bounds import Bounds
from seglake.log.zones.search import Marked

_FIRST_RANGES = 4  # first read of a search for the newest records; each next read is doubled

Pieces = Iterator[Piece]


@dataclass
class SearchCounts:
    """How many segments of a log partition were searched with a key index, and how many whole."""

    by_index: int = 0
    scanned: int = 0


@dataclass(frozen=True)
class SearchBlocks:
    """The blocks of a log partition that may hold a wanted record with all sought hashes.

    `sought` is empty if every record within the bounds is wanted.
    """

    reader: PartitionReader
    bounds: Bounds
    sought: SubjectHashes
    searched: SearchCounts = field(default_factory=SearchCounts)

    @staticmethod
    def of(
        reader: PartitionReader,
        window: Window,
        sought: SubjectHashes,
        windows: Int64s | None = None,
    ) -> SearchBlocks:
        """Return the blocks of a window, limited to `windows` (see `Bounds`) if given."""
        above = window.above(reader.view.log_start_offset)
        return SearchBlocks(reader, Bounds.of(above, windows), sought)

    def pieces(self) -> Pieces:
        """Yield the pieces to read, in offset order."""
        calls = self._calls(joined=True)
        if self.reader.store.remote:
            yield from _filled(ahead(((1, call) for call in calls), REQUESTS))
        else:
            yield from _filled(call() for call in calls)

    def newest_pieces(self) -> Pieces:
        """Yield the pieces to read, a few blocks at a time, in descending order."""
        calls = [*self._calls(joined=False)]
        for piece in _filled(call() for call in reversed(calls)):
            end, step = len(piece.ranges.starts), _FIRST_RANGES
            while end:
                start = max(0, end - step)
                yield piece._replace(ranges=piece.ranges.take(slice(start, end)).joined())
                end, step = start, 2 * step

    def _calls(self, *, joined: bool) -> Iterator[Callable[[], Piece]]:
        """Yield a call for each segment that meets the bounds. Its piece may be empty."""
        view, bounds = self.reader.view, self.bounds
        bases, ends, lows, highs = view.extents
        numbers, whole = bounds.meet(lows, highs, bases, ends)
        counts = view.segments.details["record_count"][numbers]
        for index, all_wanted, records in zip(
            numbers.tolist(), whole.tolist(), counts.tolist(), strict=True
        ):
            if records:  # a segment without records only covers a gap
                segment = self.reader.segment(index)
                wanted = bool(all_wanted)
                yield partial(self._piece, segment, records, whole=wanted, joined=joined)

    def _piece(self, segment: LogSegment, records: int, *, whole: bool, joined: bool) -> Piece:
        bounds = self.bounds
        found = self._by_index(segment, joined=joined)
        if found is not None:
            self.searched.by_index += 1
            return Piece(segment, bounds.window, found[0], min(found[1], records))
        self.searched.scanned += 1
        if whole:
            return Piece(segment, bounds.window, segment.log, records)
        ranges, offsets = self.reader.zones(segment).within(bounds)
        return Piece(segment, bounds.window, ranges, min(offsets, records))

    def _by_index(self, segment: LogSegment, *, joined: bool) -> tuple[LogRanges, int] | None:
        """Return the blocks that a key index names and their most records; None without one."""
        if not any(segment.keyindex_kinds >> subject.kind & 1 for subject in self.sought):
            return None
        marks: Marked = partial(self.reader.key_blocks, segment, self.sought)
        if self.reader.store.remote:  # fetch its head concurrently with the head of the zone map
            marks = after(partial(self.reader.open_key_index, segment), marks)
        return self.reader.zones(segment).among(marks, self.bounds, joined=joined)


def _filled(pieces: Pieces) -> Pieces:
    return (piece for piece in pieces if len(piece.ranges.starts))
