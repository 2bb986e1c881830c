"""Compiled loops of the read side: where fetched batches belong, which are wanted, Arrow columns.

As in `format.encode_kernels`; the one kernel called from another module is `put_bytes`.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
from numba import njit

from seglake.format.batch import BatchTable
from seglake.format.encode_kernels import put_bytes
from seglake.format.records import Bytes, Int32s, Int64s

BAD_OFFSETS, BAD_BOUNDARY = 1, 2

_CONTROL = 0x20


@njit(cache=True, nogil=True)
def meeting(
    lows: Int64s, highs: Int64s, firsts: Int64s, ends: Int64s,
    base: int, low_time: int, high_time: int, low_offset: int, high_offset: int, rows: Int64s,
) -> int:  # fmt: skip
    """Fill `rows` with what can hold a record within the bounds, all inclusive; returns how many.

    Item i has timestamps from lows[i] to highs[i] (inclusive), and offsets from base + firsts[i] to
    base + ends[i] (exclusive).
    """
    found = 0
    for i in range(len(lows)):
        if (highs[i] >= low_time and lows[i] <= high_time
                and base + ends[i] > low_offset and base + firsts[i] <= high_offset):  # fmt: skip
            rows[found] = i
            found += 1
    return found


@njit(cache=True, nogil=True)
def join_blocks(
    positions: Int64s, position_ends: Int64s, firsts: Int64s, ends: Int64s, rows: Int64s,
    base: int, low_offset: int, high_offset: int, ranges: npt.NDArray[Any], count: int,
) -> tuple[int, int]:  # fmt: skip
    """Put the blocks at `rows` behind the `count` columns of `ranges`, neighbours in one.

    A column is start, end, first offset and end offset. Returns how many columns there are now, and
    how many offsets the blocks have within the bounds, which are inclusive.
    """
    offsets = 0
    for i in rows:
        first, end = base + firsts[i], base + ends[i]
        if count and ranges[1, count - 1] == positions[i]:
            ranges[1, count - 1], ranges[3, count - 1] = position_ends[i], end
        else:
            ranges[0, count], ranges[1, count] = positions[i], position_ends[i]
            ranges[2, count], ranges[3, count] = first, end
            count += 1
        offsets += min(end - 1, high_offset) - max(first, low_offset) + 1
    return count, offsets


@njit(cache=True, nogil=True)
def place_batches(
    table: BatchTable, starts: Int64s, owners: Int64s, lows: Int64s, highs: Int64s,
    last_offset: int, owner_of: Int32s,
) -> tuple[int, int]:  # fmt: skip
    """Find the stretch of the data that each batch is in, and check that it may stand there.

    Stretch s begins at starts[s], belongs to the extent owners[s], and has offsets from lows[s] to
    highs[s] (exclusive). Fills in each batch's extent; returns (0, 0), or the first batch that
    cannot be and its problem: offsets that do not ascend from `last_offset` on or leave the range,
    for they are outside the checksum, or bytes that belong to the next stretch.
    """
    current = 0
    last = last_offset
    for i in range(len(table)):
        position, base = table[i].position, table[i].base_offset
        if current + 1 < len(starts) and position >= starts[current + 1]:
            current += 1
            if position != starts[current]:
                return max(i - 1, 0), BAD_BOUNDARY
            if owners[current] != owners[current - 1]:
                last = -1
        if base <= last or base < lows[current] or table[i].last_offset >= highs[current]:
            return i, BAD_OFFSETS
        last = table[i].last_offset
        owner_of[i] = owners[current]
    unmet = len(starts) - current - 1
    if unmet and len(table):
        end = table[-1].position + table[-1].size
        if unmet > 1 or end != starts[current + 1]:  # else its first batch has only begun
            return len(table) - 1, BAD_BOUNDARY
    return 0, 0


@njit(cache=True, nogil=True)
def wanted_batches(
    table: BatchTable, owner_of: Int32s, windows: npt.NDArray[Any], rows: Int64s
) -> int:
    """Fill `rows` with the batches that may have a record in the window of their extent."""
    found = 0
    for i in range(len(table)):
        row, window = table[i], windows[owner_of[i]]
        if (
            row.attributes & _CONTROL == 0
            and row.max_timestamp >= window[0]
            and row.last_offset >= window[2]
            and row.base_offset <= window[3]
        ):
            rows[found] = i
            found += 1
    return found


@njit(cache=True, nogil=True)
def bytes_of_batches(table: BatchTable, batches: Int32s) -> int:
    """Bytes of the different batches among the ascending `batches`."""
    total, last = 0, -1
    for batch in batches:
        if batch != last:
            total += table[batch].size
            last = batch
    return total


@njit(cache=True, nogil=True)
def append_items(
    data: Bytes, starts: Int64s, lengths: Int32s,
    at: int, offsets: Int32s, out: Bytes, valid: Bytes,
) -> int:  # fmt: skip
    """Copy items behind the `at` items of an Arrow column; returns how many of them are null."""
    nulls = 0
    used = int(offsets[at])
    for i in range(len(starts)):
        length = int(lengths[i])
        used = put_bytes(out, used, data, starts[i], length)
        offsets[at + i + 1] = used
        valid[at + i] = length >= 0
        nulls += length < 0
    return nulls
