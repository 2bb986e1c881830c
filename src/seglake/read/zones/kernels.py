"""The compiled loops of choosing: which segments, and which index blocks, meet some bounds.

Item i (a segment, a page of blocks or a block) has timestamps lows[i] to highs[i], inclusive, and
offsets base + firsts[i] to base + ends[i], exclusive. `limits` and `windows` are those of `Bounds`.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from seglake.format.records import Int64s
from seglake.jit import njit


@njit(cache=True, nogil=True)
def _window_at(windows: npt.NDArray[Any], low: int, high: int) -> int:
    """The first window that meets the timestamps `low` to `high`; -1 if none does."""
    number = int(np.searchsorted(windows[1], low, "right"))
    return -1 if number == windows.shape[1] or windows[0, number] > high else number


@njit(cache=True, nogil=True)
def meeting(
    lows: Int64s, highs: Int64s, firsts: Int64s, ends: Int64s,
    base: int, limits: Int64s, windows: npt.NDArray[Any], rows: npt.NDArray[Any],
) -> int:  # fmt: skip
    """Find the items that can hold a wanted record; returns how many there are.

    Fills rows[0] with their numbers, and rows[1] with whether all records of the item are wanted.
    """
    low_time, high_time, low_offset, high_offset = limits[0], limits[1], limits[2], limits[3]
    found = 0
    for i in range(len(lows)):
        low, high, first, end = lows[i], highs[i], base + firsts[i], base + ends[i]
        if high < low_time or low > high_time or end <= low_offset or first > high_offset:
            continue
        whole = low >= low_time and high <= high_time
        whole = whole and first >= low_offset and end - 1 <= high_offset
        if windows.shape[1]:
            at = _window_at(windows, low, high)
            if at < 0:
                continue
            whole = whole and windows[0, at] <= low and high < windows[1, at]
        rows[0, found], rows[1, found] = i, whole
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
    offsets = 0
    for i in range(len(lows)):
        first, end = base + firsts[i], base + ends[i]
        if highs[i] < low_time or lows[i] > high_time or end <= low_offset or first > high_offset:
            continue
        if windows.shape[1] and _window_at(windows, lows[i], highs[i]) < 0:
            continue
        if count and ranges[1, count - 1] == positions[i]:
            ranges[1, count - 1], ranges[3, count - 1] = position_ends[i], end
        else:
            ranges[0, count], ranges[1, count] = positions[i], position_ends[i]
            ranges[2, count], ranges[3, count] = first, end
            count += 1
        offsets += min(end - 1, high_offset) - max(first, low_offset) + 1
    return count, offsets
