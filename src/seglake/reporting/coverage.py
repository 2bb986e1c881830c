"""Coverage by declared intervals: the holes in it, and up to where all windows are closed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from seglake.times.intervals import Interval, united


class Coverage(NamedTuple):
    """The intervals that committed runs declare, in ms, ends exclusive.

    `declared` is their count. `covered` has them united, `holes` lie between these. Windows are
    closed up to `closed_until_ms`, the first hole or the end; None without an interval. `usual_ms`
    is the median length of a declared interval.
    """

    declared: int
    covered: list[Interval]
    holes: list[Interval]
    closed_until_ms: int | None
    usual_ms: int

    def lag_ms(self, now_ms: int) -> int | None:
        """The coverage lag: the time since `closed_until_ms`; None without an interval."""
        return None if self.closed_until_ms is None else max(0, now_ms - self.closed_until_ms)


def coverage(intervals: Iterable[Interval], oldest_ms: int | None = None) -> Coverage:
    """The coverage by these intervals. A hole that ends at `oldest_ms` or before does not count."""
    declared = [interval for interval in intervals if interval[0] < interval[1]]
    covered = united(declared)
    gaps = [(before[1], after[0]) for before, after in pairwise(covered)]
    holes = [hole for hole in gaps if oldest_ms is None or hole[1] > oldest_ms]
    last = covered[-1][1] if covered else None
    lengths = sorted(end - start for start, end in declared)
    usual = lengths[len(lengths) // 2] if lengths else 0
    return Coverage(len(declared), covered, holes, holes[0][0] if holes else last, usual)
