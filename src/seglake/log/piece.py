"""A piece of a read: byte ranges of one segment's log, and the window of wanted records."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seglake.format.records import Int64s
from seglake.limits import INT64_MAX, INT64_MIN, NO_END
from seglake.log.segment import LogRanges, LogSegment


class Window(NamedTuple):
    """A range of times and a range of offsets, both with exclusive ends.

    A record is in the window if it is in both ranges. `Window()` contains every record: no record
    has the offset INT64_MAX, because the end offset of its log would not fit into int64. For bounds
    in arrays, use the inclusive `limits`: `end_ms` may be NO_END, which does not fit either.
    """

    start_ms: int = INT64_MIN
    end_ms: int = NO_END
    start_offset: int = 0
    end_offset: int = INT64_MAX

    @staticmethod
    def of_times(start_ms: int, end_ms: int) -> Window:
        """Return the window of records with start_ms <= timestamp < end_ms.

        A record without a timestamp (-1) is in no window of times, however long the window is.
        """
        return Window(max(start_ms, 0), max(end_ms, 0))

    def above(self, offset: int) -> Window:
        """Return the window without the offsets below `offset`."""
        return self if self.start_offset >= offset else self._replace(start_offset=offset)

    def limits(self) -> tuple[int, int, int, int]:
        """Return the smallest and largest timestamp and offset in the window, inclusive."""
        return self.start_ms, self.end_ms - 1, self.start_offset, self.end_offset - 1


class Piece(NamedTuple):
    """The part of a read that is in one segment. With `Window()`, all its records are wanted."""

    segment: LogSegment
    window: Window
    ranges: LogRanges
    records_at_most: int

    @staticmethod
    def of(segment: LogSegment, ranges: LogRanges) -> Piece:
        """Return a piece with all records in these ranges of a segment's log."""
        offsets = int((ranges.end_offsets - ranges.first_offsets).sum())
        return Piece(segment, Window(), ranges, offsets)

    @property
    def size_bytes(self) -> int:
        """Return the number of bytes in the ranges."""
        starts, ends, _, _ = self.ranges
        size: int = sum(ends.tolist()) - sum(starts.tolist())
        return size

    def spans(self, gap_bytes: int) -> tuple[Int64s, Int64s]:
        """Return the starts and ends of the byte ranges to request, joined across small gaps.

        Ranges that are at most `gap_bytes` apart are joined.
        """
        starts, ends = self.ranges[:2]
        if len(starts) == 1:
            return starts, ends
        apart = starts[1:] - ends[:-1] > gap_bytes
        first, last = np.append(True, apart), np.append(apart, True)
        return starts[first[: len(starts)]], ends[last[: len(ends)]]
