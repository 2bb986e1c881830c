"""What a read takes of one segment: byte ranges of its log, and the window of wanted records."""

from __future__ import annotations

from typing import NamedTuple

from seglake.limits import INT64_MAX, INT64_MIN
from seglake.read.fetch.log_segment import LogRanges, LogSegment


class Window(NamedTuple):
    """A range of times and a range of offsets, both with exclusive ends; a record must be in both.

    Without arguments it holds every record.
    """

    start_ms: int = INT64_MIN
    end_ms: int = INT64_MAX
    start_offset: int = 0
    end_offset: int = INT64_MAX

    def above(self, offset: int) -> Window:
        """The window without the offsets below `offset`."""
        return self if self.start_offset >= offset else self._replace(start_offset=offset)

    def limits(self) -> tuple[int, int, int, int]:
        """Smallest and largest timestamp, smallest and largest offset in the window."""
        return self.start_ms, self.end_ms - 1, self.start_offset, self.end_offset - 1


class Piece(NamedTuple):
    """The part of a read that one segment answers."""

    segment: LogSegment
    window: Window
    ranges: LogRanges
    records_at_most: int

    @staticmethod
    def of(segment: LogSegment, ranges: LogRanges) -> Piece:
        """Every record in some ranges of a segment's log."""
        offsets = int((ranges.end_offsets - ranges.first_offsets).sum())
        return Piece(segment, Window(), ranges, offsets)

    @property
    def size_bytes(self) -> int:
        """Bytes to fetch."""
        return int((self.ranges.ends - self.ranges.starts).sum())
