"""The compiled loops of choosing: which segments and which index blocks can hold a wanted record.

Blocks are entries of a zone map (`zonemap.ENTRY`). An item is a segment or a page of blocks. Item i
has timestamps lows[i] to highs[i], inclusive, and offsets base + firsts[i] to base + ends[i],
exclusive. `limits` and `windows` are those of `Bounds`.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from seglake.format.records import Flags, Int64s
from seglake.interpreted import INTERPRETED, meanwhile
from seglake.jit import njit

# A column for each page of a zone map: first and end offset of its blocks, relative to the base
# offset (OFFSET_END is exclusive); their smallest and largest timestamp; where they end in the log;
# the address of the blocks in memory or 0; the number of blocks in memory.
FENCE_ROWS = 7
OFFSET, OFFSET_END, LOW, HIGH, PAGE_END, PAGE, BLOCKS = range(FENCE_ROWS)


@njit(cache=True, nogil=True)
def _window_at(windows: npt.NDArray[Any], low: int, high: int) -> int:
    """The first window that meets the timestamps `low` to `high`; -1 if none does."""
    number = int(np.searchsorted(windows[1], low, "left"))
    return -1 if number == windows.shape[1] or windows[0, number] > high else number


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def meeting(
    lows: Int64s, highs: Int64s, firsts: Int64s, ends: Int64s,
    base: int, limits: Int64s, windows: npt.NDArray[Any], rows: npt.NDArray[Any],
) -> int:  # fmt: skip
    """Find the items that can hold a wanted record. Returns how many there are.

    Fills rows[0] with the numbers of the items, and rows[1] with whether all records of the item
    are wanted. Limits that hold no time or no offset meet nothing, also within an item.
    """
    low_time, high_time, low_offset, high_offset = limits[0], limits[1], limits[2], limits[3]
    count = 0
    if low_time > high_time or low_offset > high_offset:
        return count
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
            whole = whole and windows[0, at] <= low and high <= windows[1, at]
        rows[0, count], rows[1, count] = i, whole
        count += 1
    return count


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def first_at_least(values: Int64s, start: int, least: int) -> int:
    """The first position from `start` on with a value of at least `least`, or the length."""
    for i in range(start, len(values)):
        if values[i] >= least:
            return i
    return len(values)


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def next_block(
    blocks: npt.NDArray[Any], start: int, end_offset: int, end_position: int, timestamp: int
) -> tuple[int, int, int, int, int]:
    """The first block from `start` on that reaches `timestamp`, in the form of `_block`.

    The number is -1 if there is none.
    """
    for i in range(start, len(blocks)):
        if blocks[i].max_timestamp >= timestamp:
            return _block(blocks, i, end_offset, end_position)
    return -1, 0, 0, 0, 0


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def block_before(
    blocks: npt.NDArray[Any], end_offset: int, end_position: int, offset: int
) -> tuple[int, int, int, int, int]:
    """The last block that begins at or before `offset`, or the first, in the form of `_block`."""
    low, high = 0, len(blocks)
    while low < high:
        middle = (low + high) // 2
        if blocks[middle].relative_offset <= offset:
            low = middle + 1
        else:
            high = middle
    return _block(blocks, max(0, low - 1), end_offset, end_position)


@njit(cache=True, nogil=True)
def _block(
    blocks: npt.NDArray[Any], i: int, end_offset: int, end_position: int
) -> tuple[int, int, int, int, int]:
    """(number, position, end position, relative offset, end offset) of a block."""
    position, offset = int(blocks[i].position), int(blocks[i].relative_offset)
    if i + 1 < len(blocks):
        end_offset, end_position = int(blocks[i + 1].relative_offset), int(blocks[i + 1].position)
    return i, position, end_position, offset, end_offset


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def join_meeting(
    blocks: npt.NDArray[Any], end_offset: int, end_position: int,
    base: int, limits: Int64s, windows: npt.NDArray[Any], most_bytes: int,
    ranges: npt.NDArray[Any], count: int,
) -> tuple[int, int]:  # fmt: skip
    """Append the blocks that can hold a wanted record to `count` ranges; neighbours become one.

    Neighbours of more than `most_bytes` together are not joined. The last block ends at
    `end_offset`, relative to `base`, and at byte `end_position` of the log. A column of `ranges` is
    start, end (both bytes), first offset and end offset. Returns how many ranges there are now, and
    how many offsets within the limits these blocks have.
    """
    offsets = 0
    for i in range(len(blocks)):
        count, more = _join(
            blocks, i, end_offset, end_position, base, limits, windows, most_bytes, ranges, count
        )
        offsets += more
    return count, offsets


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def join_marked(
    blocks: npt.NDArray[Any], end_offset: int, end_position: int, marks: Flags,
    base: int, limits: Int64s, windows: npt.NDArray[Any], most_bytes: int,
    ranges: npt.NDArray[Any], count: int,
) -> tuple[int, int]:  # fmt: skip
    """As `join_meeting`, of the blocks i with marks[i] only."""
    offsets = 0
    for i in range(len(marks)):
        if marks[i]:
            count, more = _join(
                blocks, i, end_offset, end_position, base, limits, windows, most_bytes, ranges,
                count,
            )  # fmt: skip
            offsets += more
    return count, offsets


@njit(cache=True, nogil=True)
def _join(
    blocks: npt.NDArray[Any], i: int, end_offset: int, end_position: int,
    base: int, limits: Int64s, windows: npt.NDArray[Any], most_bytes: int,
    ranges: npt.NDArray[Any], count: int,
) -> tuple[int, int]:  # fmt: skip
    """Append block i if it can hold a wanted record. Returns as `join_meeting`."""
    low_time, high_time, low_offset, high_offset = limits[0], limits[1], limits[2], limits[3]
    low, high = blocks[i].min_timestamp, blocks[i].max_timestamp
    _, position, stop, first, end = _block(blocks, i, end_offset, end_position)
    first, end = base + first, base + end
    if high < low_time or low > high_time or end <= low_offset or first > high_offset:
        return count, 0
    if windows.shape[1] and _window_at(windows, low, high) < 0:
        return count, 0
    follows = count and ranges[1, count - 1] == position
    if follows and stop - ranges[0, count - 1] <= most_bytes:
        ranges[1, count - 1], ranges[3, count - 1] = stop, end
    else:
        ranges[0, count], ranges[1, count] = position, stop
        ranges[2, count], ranges[3, count] = first, end
        count += 1
    return count, min(end - 1, high_offset) - max(first, low_offset) + 1
