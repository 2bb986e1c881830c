"""The compiled loops of choosing: which segments, and which index blocks, meet some bounds.

Item i (a segment, some blocks or one block) has timestamps lows[i] to highs[i], both inclusive, and
offsets base + firsts[i] to base + ends[i], exclusive. `limits` and `windows` are those of `Bounds`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from seglake.format.records import Int64s

_OUTSIDE, _PARTLY, _WHOLE = -1, 0, 1


@njit(cache=True, nogil=True)
def _place_in(windows: npt.NDArray[Any], low: int, high: int) -> int:
    """How the timestamps `low` to `high` stand to the windows."""
    starts, ends = windows[0], windows[1]
    number = np.searchsorted(ends, low, "right")  # the first window that ends after `low`
    if number == len(ends) or starts[number] > high:
        return _OUTSIDE
    return _WHOLE if starts[number] <= low and high < ends[number] else _PARTLY


@njit(cache=True, nogil=True)
def meeting(
    lows: Int64s, highs: Int64s, firsts: Int64s, ends: Int64s,
    base: int, limits: Int64s, windows: npt.NDArray[Any], rows: npt.NDArray[Any],
) -> int:  # fmt: skip
    """Find the items that can hold a wanted record; returns how many there are.

    Fills rows[0] with their numbers, and rows[1] with 1 where all records of the item are wanted,
    else 0.
    """
    low_time, high_time, low_offset, high_offset = limits[0], limits[1], limits[2], limits[3]
    several = windows.shape[1] > 0
    found = 0
    for i in range(len(lows)):
        low, high, first, end = lows[i], highs[i], base + firsts[i], base + ends[i]
        if high < low_time or low > high_time or end <= low_offset or first > high_offset:
            continue
        place = _place_in(windows, low, high) if several else _WHOLE
        if place == _OUTSIDE:
            continue
        inside = low >= low_time and high <= high_time and first >= low_offset
        rows[0, found] = i
        rows[1, found] = place == _WHOLE and inside and end - 1 <= high_offset
        found += 1
    return found


@njit(cache=True, nogil=True)
def join_meeting(
    lows: Int64s, highs: Int64s, firsts: Int64s, ends: Int64s,
    positions: Int64s, position_ends: Int64s,
    base: int, limits: Int64s, windows: npt.NDArray[Any], ranges: npt.NDArray[Any], count: int,
) -> tuple[int, int]:  # fmt: skip
    """Put the blocks that can hold a wanted record behind `count` ranges, neighbours in one.

    Block i has the bytes positions[i] to position_ends[i] of the log. A column of `ranges` is
    start, end, first offset and end offset. Returns how many ranges there are now, and how many
    offsets within the limits these blocks have.
    """
    low_time, high_time, low_offset, high_offset = limits[0], limits[1], limits[2], limits[3]
    several = windows.shape[1] > 0
    offsets = 0
    for i in range(len(lows)):
        first, end = base + firsts[i], base + ends[i]
        if highs[i] < low_time or lows[i] > high_time or end <= low_offset or first > high_offset:
            continue
        if several and _place_in(windows, lows[i], highs[i]) == _OUTSIDE:
            continue
        if count and ranges[1, count - 1] == positions[i]:
            ranges[1, count - 1], ranges[3, count - 1] = position_ends[i], end
        else:
            ranges[0, count], ranges[1, count] = positions[i], position_ends[i]
            ranges[2, count], ranges[3, count] = first, end
            count += 1
        offsets += min(end - 1, high_offset) - max(first, low_offset) + 1
    return count, offsets
