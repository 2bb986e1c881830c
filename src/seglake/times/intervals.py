"""Intervals on the time line, all of them [start, end): closed at the start, open at the end."""

from collections.abc import Iterable


def covers(intervals: Iterable[tuple[int, int]], start: int, end: int) -> bool:
    """Whether intervals, in any order, leave no hole in [start, end)."""
    reached = start
    for low, high in sorted(intervals):
        if low > reached:
            break
        reached = max(reached, high)
    return reached >= end
