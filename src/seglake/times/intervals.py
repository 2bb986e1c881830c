"""Intervals on the time line, all of them [start, end): closed at the start, open at the end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.format.records import Int64s
from seglake.limits import INT64_MAX


def covers(intervals: Iterable[tuple[int, int]], start: int, end: int) -> bool:
    """Whether intervals, in any order, leave no hole in [start, end)."""
    reached = start
    for low, high in sorted(intervals):
        if low > reached:
            break
        reached = max(reached, high)
    return reached >= end


class Windows(NamedTuple):
    """Windows of time in ms: ascending, with a hole between any two."""

    starts: Int64s
    ends: Int64s

    @staticmethod
    def union(starts: Int64s, ends: Int64s) -> Windows:
        """The union of intervals; `starts` and `ends` must ascend, and no interval be empty."""
        begins = np.append(True, starts[1:] > ends[:-1])[: len(starts)]
        finishes = np.append(begins[1:], True)[: len(starts)]
        return Windows(starts[begins], ends[finishes])

    def meet(self, lows: Int64s, highs: Int64s) -> npt.NDArray[np.bool_]:
        """For each range from low to high, both inclusive: whether any window has a part of it."""
        following = np.searchsorted(self.ends, lows, "right")  # the first window that ends after it
        met: npt.NDArray[np.bool_] = np.append(self.starts, INT64_MAX)[following] <= highs
        return met & (following < len(self.ends))

    def hold(self, lows: Int64s, highs: Int64s) -> npt.NDArray[np.bool_]:
        """For each range from low to high, both inclusive: whether one window has all of it."""
        following = np.searchsorted(self.ends, lows, "right")
        starts, ends = np.append(self.starts, INT64_MAX), np.append(self.ends, INT64_MAX)
        inside: npt.NDArray[np.bool_] = (starts[following] <= lows) & (highs < ends[following])
        return inside
