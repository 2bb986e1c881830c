"""The compiled loop of a short window: from zone maps to Arrow columns in one call.

It does what planning, fetching and decoding do, with their kernels. But it knows the usual alone:
files of this machine, zone maps in memory, batches as they should be. All else it leaves to them.
"""

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
)

# a segment with a part of the window: its open file, its mark in the cache of batches, its offsets,
# the bytes of its log if all of it is wanted, its pages (address and number), the limits
SEGMENT_FIELDS = 11
FD, MARK, BASE, END, WHOLE_BYTES, PAGES, PAGE_COUNT, LIMITS = range(SEGMENT_FIELDS - 3)

STRETCHES = 5  # rows for the stretches of the data: see `place_batches`
OWNER, START, SHIFT, FIRST, END_OFFSET = range(STRETCHES)
RANGES = 4  # rows of byte ranges of logs: see `join_meeting`
COSTS = 2
REQUESTS, SIZE = range(COSTS)
ELSEWHERE = 3  # beside the reasons of `fill`: the window is not for this kernel

_call4 = call_of(4)


@intrinsic
def _pointer(_typing_context, _address):
    """An address as a pointer to anything."""

    def generate(_context, builder, _signature, arguments):
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


@njit(cache=True, nogil=True)
def read_window(
    segments, pread, seen, most_cached_bytes, addresses, max_bytes,
    log, ranges, stretches, table, owner_of, positions, rows, window_of,
    held, held_bytes, arena, arena_ends, sizes, place, costs, wanted, limit_bytes, state,
    offsets, timestamps, timestamp_types, batches,
    key_ends, keys, key_valid, value_ends, values, value_valid,
):  # fmt: skip
    """Append the records of a window to columns; returns why it stopped, as `fill`, or `ELSEWHERE`.

    `pread` is the address of the C function. A window of up to `most_cached_bytes` is for the cache
    of batches when it is read again, so its batches are looked for among the `seen` ones, and
    marked there. From `log` to `costs` there is room for what is found on the way; `place` and
    `costs` say what was. The others are those of `fill`.
    """
    place[:] = 0
    count, size = _place_ranges(segments, ranges, stretches)
    if count < 0 or size > len(log):
        return ELSEWHERE
    found, marks, caches = stretches[:, :count], segments[:, MARK], size <= most_cached_bytes
    begins = found[START] + found[SHIFT]
    if caches and 2 * count_seen(seen, marks, found[OWNER], begins) > count:
        return ELSEWHERE
    if not _fetch(segments, pread, log, found, size):
        return ELSEWHERE
    n, _, problem = find_batches(log[:size])
    if problem or n > len(table):
        return ELSEWHERE
    batch_table, owners, places = table[:n], owner_of[:n], positions[:n]
    read_headers(log, 0, UNKNOWN, batch_table)
    if not _sound(log, batch_table, addresses):
        return ELSEWHERE
    _, misplaced = place_batches(
        batch_table, found[START], found[SHIFT], found[OWNER], found[FIRST], found[END_OFFSET],
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
    costs[REQUESTS], costs[SIZE] = count, size
    return reason


@njit(cache=True, nogil=True)
def _place_ranges(segments, ranges, stretches):
    """Place the ranges of all segments one behind another: how many there are, and their bytes.

    The number is -1 if there is no room for them, or a page is not in memory.
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
def _fetch(segments, pread, log, stretches, size):
    """Read the stretches, `size` bytes together; returns whether all bytes came."""
    count = stretches.shape[1]
    for i in range(count):
        start = stretches[START, i]
        length = (stretches[START, i + 1] if i + 1 < count else size) - start
        fd, position = segments[stretches[OWNER, i], FD], start + stretches[SHIFT, i]
        if _call4(pread, (fd, log.ctypes.data + start, length, position)) != length:
            return False
    return True


@njit(cache=True, nogil=True)
def _ranges_of(segment, ranges):
    """Fill in the ranges of a segment's log that can hold a wanted record; -1 as `_fetch`."""
    if segment[WHOLE_BYTES]:
        ranges[0, 0], ranges[1, 0] = 0, segment[WHOLE_BYTES]
        ranges[2, 0], ranges[3, 0] = segment[BASE], segment[END]
        return 1
    base, limits = segment[BASE], segment[LIMITS:]
    pages = carray(_pointer(segment[PAGES]), (FENCE_ROWS, segment[PAGE_COUNT]), np.int64)  # type: ignore[call-arg]  # numba adds the context
    count = 0
    for p in range(pages.shape[1]):
        if pages[HIGH, p] < limits[0] or pages[LOW, p] > limits[1]:
            continue
        if base + pages[OFFSET_END, p] <= limits[2] or base + pages[OFFSET, p] > limits[3]:
            continue
        if pages[PAGE, p] == 0 or count + pages[BLOCKS, p] > ranges.shape[1]:
            return -1
        blocks = carray(_pointer(pages[PAGE, p]), (pages[BLOCKS, p],), ENTRY)
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
