"""The compiled loop of a short window: from zone maps to Arrow columns in one call.

It does what planning, fetching and decoding do, with their kernels. But it knows the usual alone:
files of this machine, zone maps in memory, batches as they should be. All else it leaves to them.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types  # type: ignore[attr-defined]  # it is documented
from numba.extending import intrinsic

from seglake.format.batch import CRC_AT, CRC_START, UNKNOWN
from seglake.format.codecs.kernels import CRC32C, call_of, checksum
from seglake.format.decode_kernels import find_batches, get_big_endian, read_headers
from seglake.format.zonemap import ENTRY
from seglake.jit import njit
from seglake.read.decode.kernels import DONE, fill, wanted_batches
from seglake.read.fetch.kernels import count_seen, mark_seen, place_batches
from seglake.read.zones.kernels import (
    BLOCKS,
    FENCE_ROWS,
    HIGH,
    LOW,
    OFFSET,
    OFFSET_END,
    PAGE,
    STOP,
    join_meeting,
    meeting,
)

# a segment with a part of the window: its open file, its mark in the cache of batches, its offsets,
# the bytes of its log if all of it is wanted, its pages (address and number), the limits
SEGMENT_FIELDS = 11
FD, MARK, BASE, END, WHOLE_BYTES, PAGES, PAGE_COUNT, LIMITS = range(SEGMENT_FIELDS - 3)

STRETCHES = 5  # rows for the stretches of the data: see `place_batches`
OWNER, START, SHIFT, FIRST, END_OFFSET = range(STRETCHES)
CHOSEN = 3  # rows of chosen segments
RANGES = 4  # rows of byte ranges of logs: see `join_meeting`
ELSEWHERE = 3  # beside the reasons of `fill`: the window is not for this kernel

_call4 = call_of(4)


@intrinsic
def _pointer(_typing_context, _address):
    """An address as a pointer to anything."""

    def generate(_context, builder, _signature, arguments):
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


@njit(cache=True, nogil=True)
def choose(extents, firsts, limits, found):
    """Find the segments that can hold a record within the limits; returns their number, or -1.

    `extents` has base and end offsets, smallest and largest timestamps; the segments from firsts[p]
    on are those of partition p. Fills in partitions, positions in them, and whether all records are
    wanted. There are too many where it returns -1.
    """
    rows = np.empty((2, extents.shape[1]), np.int64)
    bases, ends, lows, highs = extents[0], extents[1], extents[2], extents[3]
    count = meeting(lows, highs, bases, ends, 0, limits, _NO_WINDOWS, rows)
    if count > found.shape[1]:
        return -1
    for i in range(count):
        partition = np.searchsorted(firsts, rows[0, i], "right") - 1
        found[0, i], found[1, i] = partition, rows[0, i] - firsts[partition]
        found[2, i] = rows[1, i]
    return count


@njit(cache=True, nogil=True)
def place_ranges(segments, ranges, stretches):
    """Place the ranges that can hold a wanted record one behind another: their number and bytes.

    Fills in the `stretches` of the data. The number is -1 if there is no room for them, or a page
    is not in memory.
    """
    count, size = 0, np.int64(0)
    for s in range(len(segments)):
        found = _ranges_of(segments[s], ranges)
        if found < 0 or count + found > stretches.shape[1]:
            return -1, size
        for r in range(found):
            stretches[OWNER, count], stretches[START, count] = s, size
            stretches[SHIFT, count] = ranges[0, r] - size
            stretches[FIRST, count], stretches[END_OFFSET, count] = ranges[2, r], ranges[3, r]
            size += ranges[1, r] - ranges[0, r]
            count += 1
    return count, size


@njit(cache=True, nogil=True)
def read_stretches(
    segments, stretches, size, pread, seen, caches, addresses, max_bytes,
    log, table, owner_of, positions, rows, window_of,
    held, held_bytes, arena, arena_ends, sizes, place, wanted, limit_bytes, state,
    offsets, timestamps, timestamp_types, batches,
    key_ends, keys, key_valid, value_ends, values, value_valid,
):  # fmt: skip
    """Append the records of some stretches to columns; returns why it stopped: see `fill`.

    Or else it is `ELSEWHERE`. The stretches have `size` bytes together. `pread` is the address of
    the C function. With `caches`, batches that are read again are for the cache: they are looked
    for among the `seen` ones, and marked there. From `log` to `place` there is room for what is
    found on the way. The others are those of `fill`.
    """
    place[:] = 0
    marks, starts = segments[:, MARK], stretches[START] - stretches[START, 0]
    shifts = stretches[SHIFT] + stretches[START, 0]
    if size > len(log) or (
        caches and 2 * count_seen(seen, marks, stretches[OWNER], starts + shifts) > len(starts)
    ):
        return ELSEWHERE
    if not _fetch(segments[:, FD], stretches[OWNER], starts, shifts, size, pread, log):
        return ELSEWHERE
    n, _, problem = find_batches(log[:size])
    if problem or n > len(table):
        return ELSEWHERE
    batch_table, owners, places = table[:n], owner_of[:n], positions[:n]
    read_headers(log, 0, UNKNOWN, batch_table)
    if not _sound(log, batch_table, addresses):
        return ELSEWHERE
    _, misplaced = place_batches(
        batch_table, starts, shifts, stretches[OWNER], stretches[FIRST], stretches[END_OFFSET],
        -1, owners, places,
    )  # fmt: skip
    if misplaced or (caches and 2 * count_seen(seen, marks, owners, places) > n):
        return ELSEWHERE
    limits = segments[:, LIMITS:]
    n = wanted_batches(batch_table, owners, limits, rows)
    for i in range(n):
        table[i], window_of[i] = table[rows[i]], owner_of[rows[i]]
    reason = fill(
        log, table[:n], window_of, limits, held, held_bytes, addresses, max_bytes,
        arena, False, arena_ends, sizes, place, wanted, limit_bytes, state,
        offsets, timestamps, timestamp_types, batches,
        key_ends, keys, key_valid, value_ends, values, value_valid,
    )  # fmt: skip
    if reason == DONE and caches:
        mark_seen(seen, marks, owners, places)
    return reason


@njit(cache=True, nogil=True)
def _fetch(fds, owners, starts, shifts, size, pread, log):
    """Read the stretches, `size` bytes together; returns whether all bytes came."""
    for i in range(len(starts)):
        length = (starts[i + 1] if i + 1 < len(starts) else size) - starts[i]
        words = (fds[owners[i]], log.ctypes.data + starts[i], length, starts[i] + shifts[i])
        if _call4(pread, words) != length:
            return False
    return True


@njit(cache=True, nogil=True)
def _ranges_of(segment, ranges):
    """Fill in the ranges of a segment's log that can hold a wanted record; -1 as `place_ranges`."""
    if segment[WHOLE_BYTES]:
        ranges[0, 0], ranges[1, 0] = 0, segment[WHOLE_BYTES]
        ranges[2, 0], ranges[3, 0] = segment[BASE], segment[END]
        return 1
    base, limits = segment[BASE], segment[LIMITS:]
    place: Any = _pointer(segment[PAGES])  # type: ignore[call-arg]  # numba adds the context
    pages = carray(place, (FENCE_ROWS, segment[PAGE_COUNT]), np.int64)
    count = 0
    for p in range(pages.shape[1]):
        if pages[HIGH, p] < limits[0] or pages[LOW, p] > limits[1]:
            continue
        if base + pages[OFFSET_END, p] <= limits[2] or base + pages[OFFSET, p] > limits[3]:
            continue
        if pages[PAGE, p] == 0 or count + pages[BLOCKS, p] > ranges.shape[1]:
            return -1
        blocks_at: Any = _pointer(pages[PAGE, p])
        blocks = carray(blocks_at, (pages[BLOCKS, p],), ENTRY)
        count, _ = join_meeting(
            blocks, pages[OFFSET_END, p], pages[STOP, p], base, limits, _NO_WINDOWS, ranges, count
        )
    return count


@njit(cache=True, nogil=True)
def _sound(log, table, addresses):
    """Whether every batch has its checksum, and there is a function to tell."""
    if addresses[CRC32C] == 0:
        return False
    for b in range(len(table)):
        start, end = table[b].position, table[b].position + table[b].size
        stored = get_big_endian(log, start + CRC_AT, 4) & 0xFFFFFFFF
        if checksum(log, start + CRC_START, end, addresses) != stored:
            return False
    return True


_NO_WINDOWS = np.empty((2, 0), np.int64)
