"""Kernels that choose the segments and index blocks that can contain a wanted record.

Blocks are entries of a zone map (`zonemap.ENTRY`). An item is a segment or a page of blocks. Item i
has timestamps lows[i] to highs[i], inclusive, and offsets base + firsts[i] to base + ends[i],
exclusive. For `limits` see `window_limits`, for `windows` see `NO_WINDOWS`.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.compile.fallback import INTERPRETED, meanwhile
from seglake.compile.jit import njit
from seglake.format.records import Int64s

# A column for each page of a zone map: first and end offset of its blocks, relative to the base
# offset (OFFSET_END is exclusive); their smallest and largest timestamp; where they end in the log.
PAGE_ROWS = 5
OFFSET, OFFSET_END, LOW, HIGH, PAGE_END = range(PAGE_ROWS)
NO_BLOCK, NOT_LOADED = -1, -2


class Zones(NamedTuple):
    """The part of a zone map that is in memory.

    Page p has the blocks p * span to (p + 1) * span, or fewer if it is the last page. They are in
    `entries` from rows[p] on; rows[p] is -1 if the page is not loaded.
    """

    entries: npt.NDArray[Any]  # of `zonemap.ENTRY`
    pages: Int64s  # see `PAGE_ROWS`
    rows: Int64s
    blocks: int  # of all pages
    span: int
    base: int  # the base offset


@njit(cache=True, nogil=True)
def _window_at(windows: npt.NDArray[Any], low: int, high: int) -> int:
    """Return the first window that meets the timestamps `low` to `high`, or -1."""
    number = int(np.searchsorted(windows[1], low, "left"))
    return -1 if number == windows.shape[1] or windows[0, number] > high else number


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def meeting(
    lows: Int64s, highs: Int64s, firsts: Int64s, ends: Int64s,
    base: int, limits: Int64s, windows: npt.NDArray[Any], rows: npt.NDArray[Any],
) -> int:  # fmt: skip
    """Find the items that can contain a wanted record. Return their number.

    Fills rows[0] with the numbers of the items, and rows[1] with whether all records of the item
    are wanted. If `limits` contain no time or no offset, no item is found.
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
def next_block(zones, after, timestamp):
    """Find the first block with max timestamp >= `timestamp` that ends above byte `after`.

    Returns the block in the form of `_block`, (NO_BLOCK, …) if there is no such block, and
    (NOT_LOADED, page, …) if a required page is not loaded.
    """
    for page in range(zones.pages.shape[1]):
        if zones.pages[PAGE_END, page] <= after or zones.pages[HIGH, page] < timestamp:
            continue
        first = zones.rows[page]
        if first < 0:
            return NOT_LOADED, page, 0, 0, 0
        for i in range(first, first + _length(zones, page)):
            block = _block(zones, page, i)
            if block[2] > after and zones.entries[i].max_timestamp >= timestamp:
                return block
    return NO_BLOCK, 0, 0, 0, 0


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def block_before(zones, offset):
    """Find the last block that begins at or before `offset`, else the first block.

    Returns it like `next_block`.
    """
    if zones.blocks == 0:
        return NO_BLOCK, 0, 0, 0, 0
    offset = offset - zones.base
    page = max(0, np.searchsorted(zones.pages[OFFSET], offset, "right") - 1)
    first = zones.rows[page]
    if first < 0:
        return NOT_LOADED, page, 0, 0, 0
    low, high = first, first + _length(zones, page)
    while low < high:
        middle = (low + high) // 2
        if zones.entries[middle].relative_offset <= offset:
            low = middle + 1
        else:
            high = middle
    return _block(zones, page, max(first, low - 1))


@njit(cache=True, nogil=True)
def _length(zones, page):
    """Return the number of blocks in a page."""
    return min(zones.span, zones.blocks - page * zones.span)


@njit(cache=True, nogil=True)
def _block(zones, page, i):
    """Return (number, position, end position, offset, end offset) of the block in row i."""
    entries, number = zones.entries, page * zones.span + i - zones.rows[page]
    end, stop = zones.pages[PAGE_END, page], zones.pages[OFFSET_END, page]
    if i + 1 < zones.rows[page] + _length(zones, page):
        end, stop = np.int64(entries[i + 1].position), np.int64(entries[i + 1].relative_offset)
    first = np.int64(entries[i].relative_offset) + zones.base
    return number, np.int64(entries[i].position), end, first, stop + zones.base


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def blocks_within(zones, limits, windows, marks, most_bytes, ranges):
    """Find the blocks that can contain a wanted record, joined to at most `most_bytes`.

    With `marks`, only the blocks i with marks[i] are found, and no block if `marks` is of another
    number of blocks. The rows of `ranges` are filled with the start byte, end byte, first offset
    and end offset of ranges. Returns the number of ranges, and the number of offsets within the
    limits. If the number of ranges is above the width of `ranges`, only the first ones are filled
    in. If pages must be loaded first, row 0 has their numbers, and the second result is
    `NOT_LOADED`.
    """
    if len(marks) and len(marks) != zones.blocks:
        return 0, 0
    low_time, high_time, low_offset, high_offset = limits[0], limits[1], limits[2], limits[3]
    pages = np.empty((2, zones.pages.shape[1]), np.int64)
    lows, highs = zones.pages[LOW], zones.pages[HIGH]
    firsts, ends = zones.pages[OFFSET], zones.pages[OFFSET_END]
    meet = meeting(lows, highs, firsts, ends, zones.base, limits, windows, pages)
    room, count, offsets, missing = ranges.shape[1], 0, 0, 0
    start, stop = np.int64(-1), np.int64(-1)  # of the last range
    for at in range(meet):
        page = pages[0, at]
        row, number = zones.rows[page], page * zones.span
        if len(marks) and not marks[number : number + _length(zones, page)].any():
            continue
        if row < 0 and missing < room:
            ranges[0, missing] = page
            missing += 1
        if missing:
            continue
        for i in range(row, row + _length(zones, page)):
            if len(marks) and not marks[number + i - row]:
                continue
            low, high = zones.entries[i].min_timestamp, zones.entries[i].max_timestamp
            _, position, block_end, first, end = _block(zones, page, i)
            if high < low_time or low > high_time or end <= low_offset or first > high_offset:
                continue
            if windows.shape[1] and _window_at(windows, low, high) < 0:
                continue
            if position != stop or block_end - start > most_bytes:
                start, count = position, count + 1
                if count <= room:
                    ranges[0, count - 1], ranges[2, count - 1] = position, first
            stop = block_end
            if count <= room:
                ranges[1, count - 1], ranges[3, count - 1] = stop, end
            offsets += min(end - 1, high_offset) - max(first, low_offset) + 1
    if missing:
        return missing, NOT_LOADED
    return count, offsets
