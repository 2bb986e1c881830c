"""What declared intervals cover: the holes between them, and until when all windows are closed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

Interval = tuple[int, int]


class Coverage(NamedTuple):
    """The intervals that committed runs declare, in ms, ends exclusive.

    `covered` are those that touch made one, `holes` are between them. Windows are closed up to
    `closed_until_ms`, the first hole or the end; None if no run declares an interval. `usual_ms` is
    the median length of a declared interval.
    """

    declared: int
    covered: list[Interval]
    holes: list[Interval]
    closed_until_ms: int | None
    usual_ms: int

    @property
    def covered_until_ms(self) -> int | None:
        """The end of the last interval; None without one."""
        return self.covered[-1][1] if self.covered else None

    def lag_ms(self, now_ms: int) -> int | None:
        """How long ago the closed time ended: what to alert on; None without an interval."""
        return None if self.closed_until_ms is None else max(0, now_ms - self.closed_until_ms)


def coverage(intervals: Iterable[Interval], oldest_ms: int | None = None) -> Coverage:
    """What these intervals cover. A hole that ends before `oldest_ms` does not count any more."""
    given = sorted(each for each in intervals if each[0] < each[1])
    covered: list[Interval] = []
    for start, end in given:
        if covered and start <= covered[-1][1]:
            covered[-1] = covered[-1][0], max(covered[-1][1], end)
        else:
            covered.append((start, end))
    gaps = [(before[1], after[0]) for before, after in pairwise(covered)]
    holes = [hole for hole in gaps if oldest_ms is None or hole[1] > oldest_ms]
    last = covered[-1][1] if covered else None
    lengths = sorted(end - start for start, end in given)
    usual = lengths[len(lengths) // 2] if lengths else 0
    return Coverage(len(given), covered, holes, holes[0][0] if holes else last, usual)
