"""The compiled loops of a short window: from zone maps to Arrow columns without a stop.

They do what planning, fetching and decoding do, with their kernels. But they know the usual alone:
files of this machine, zone maps in memory, batches as they should be. All else they leave to them.
"""

from typing import Any

import numpy as np
from numba import carray  # type: ignore[attr-defined]  # it is documented

from seglake.format.batch import CRC_AT, CRC_START, TABLE, UNKNOWN
from seglake.format.codecs.kernels import call_of, checksum, pointer
from seglake.format.decode_kernels import find_batches, get_big_endian, read_headers
from seglake.format.zonemap import ENTRY
from seglake.jit import njit
from seglake.log.decode.kernels import DONE, FULL, fill, wanted_batches
from seglake.log.fetch_kernels import (
    ADDRESS,
    BATCH_END,
    LENGTH,
    POSITION,
    SHELF_ROWS,
    count_seen,
    mark_seen,
    was_seen,
)
from seglake.log.zones.kernels import (
    BLOCKS,
    FENCE_ROWS,
    HIGH,
    LOW,
    OFFSET,
    OFFSET_END,
    PAGE,
    PAGE_END,
    join_meeting,
    meeting,
)

# a segment with a part of the window: its open file, its mark in the cache of batches, its offsets,
# the bytes of its log if all of it is wanted, its pages and its shelf by address, the limits
SEGMENT_FIELDS = 14
(
    FD, MARK, BASE, END, WHOLE_BYTES, PAGES, PAGE_COUNT, SHELF, SHELF_TABLE, SHELF_COUNT, LIMITS,
) = range(SEGMENT_FIELDS - 3)  # fmt: skip

CHOSEN = 3  # rows of chosen segments
RANGES = 4  # rows of byte ranges of logs: see `join_meeting`
STRETCHES = 7  # rows of ranges with their segments, and where they are on the segment's shelf
OWNER, START, STOP, FIRST, END_OFFSET, SHELVED, BATCHES = range(STRETCHES)
COSTS = 4
REQUESTS, SIZE, KEPT, ALL = range(COSTS)  # and batches for the cache: with records, with others
ELSEWHERE = 3  # beside the reasons of `fill`: the window is not for these kernels

_call4 = call_of(4)


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
def plan_stretches(segments, ranges, stretches, seen, most_bytes):
    """Find the ranges that can hold a wanted record, and which of them are cached.

    A range has at most `most_bytes`, if it can be cut. Returns how many there are, their bytes in
    the log if they are not cached, in memory if they are, and whether one of the former begins with
    a batch that was read before. The number is -1 if there is no room for them, or a page is not in
    memory.
    """
    count, fresh_bytes, cached_bytes, known = 0, np.int64(0), np.int64(0), 0
    for s in range(len(segments)):
        segment = segments[s]
        found = _ranges_of(segment, ranges, most_bytes)
        if found < 0 or count + found > stretches.shape[1]:
            return -1, fresh_bytes, cached_bytes, False
        for r in range(found):
            start, stop = ranges[0, r], ranges[1, r]
            stretches[OWNER, count], stretches[START:SHELVED, count] = s, ranges[:, r]
            first, batches, size = _on_shelf(segment, start, stop)
            stretches[SHELVED, count], stretches[BATCHES, count] = first, batches
            cached_bytes += size
            if first < 0:
                fresh_bytes += stop - start
                known += was_seen(seen, segment[MARK], start)
            count += 1
    return count, fresh_bytes, cached_bytes, known > 0


@njit(cache=True, nogil=True)
def read_stretches(
    segments, stretches, pread, seen, caches, addresses, max_bytes,
    log, table, owner_of, positions, rows, window_of, held, held_bytes,
    arena, arena_ends, sizes, place, costs, wanted, limit_bytes, state,
    offsets, timestamps, timestamp_types, batches,
    key_ends, keys, key_valid, value_ends, values, value_valid,
):  # fmt: skip
    """Append the records of some stretches to columns; returns why it stopped: see `fill`.

    Or else it is `ELSEWHERE`. `pread` is the address of the C function. With `caches`, batches that
    are read again are for the cache: they are looked for among the `seen` ones, and marked there.
    If most are, then costs[ALL] batches, from the first on, are in `table`, `window_of` and
    `positions`. The first costs[KEPT] of them are those with wanted records. Where `held` is 0,
    these are in `arena` up to `arena_ends`. From `log` to `costs` there is room for what is found
    on the way; `costs` says what was fetched. The others are those of `fill`.
    """
    place[:], costs[:] = 0, 0
    marks = segments[:, MARK]
    n = _gather(
        segments, stretches, pread, addresses, log, table, owner_of, positions, held, held_bytes,
        costs,
    )  # fmt: skip
    if n < 0:
        return ELSEWHERE
    owners, places = owner_of[:n], positions[:n]
    keeps = caches and costs[REQUESTS] > 0 and 2 * count_seen(seen, marks, owners, places) > n
    limits = segments[:, LIMITS:]
    count = wanted_batches(table[:n], owners, limits, rows)
    if keeps:
        costs[KEPT], costs[ALL] = count, n
        _put_others_last(rows, count, table[:n], owners, places, window_of)
    for i in range(count):
        row = rows[i]
        if not keeps:
            table[i], window_of[i] = table[row], owner_of[row]
        held[i], held_bytes[i] = held[row], held_bytes[row]
    reason = fill(
        log, table[:count], window_of, limits, held, held_bytes, addresses, max_bytes,
        arena, keeps, arena_ends, sizes, place, wanted, limit_bytes, state,
        offsets, timestamps, timestamp_types, batches,
        key_ends, keys, key_valid, value_ends, values, value_valid,
    )  # fmt: skip
    if reason == DONE and caches:
        mark_seen(seen, marks, window_of[:n] if keeps else owners, places)
    return reason if reason in (DONE, FULL) or not keeps else ELSEWHERE  # perhaps for lack of room


@njit(cache=True, nogil=True)
def _put_others_last(rows, count, table, owners, places, window_of):
    """Put the `count` batches at `rows` first, and all others behind them."""
    found, was_at, was_of = table.copy(), places.copy(), owners.copy()
    wanted, other = 0, count
    for row in range(len(found)):
        at = other
        if wanted < count and rows[wanted] == row:
            at = wanted
            wanted += 1
        else:
            other += 1
        table[at], places[at], window_of[at] = found[row], was_at[row], was_of[row]


@njit(cache=True, nogil=True)
def _on_shelf(segment, start, stop):
    """(first row on the segment's shelf, number of rows, bytes of records) of a range's batches.

    The first row is -1 if one is not there, or lacks records that may be wanted.
    """
    nothing = -1, 0, np.int64(0)
    if segment[SHELF_COUNT] == 0:
        return nothing
    shelf, table = _shelf(segment)
    first = row = np.searchsorted(shelf[POSITION], start)
    at, size = start, np.int64(0)
    while at < stop:
        if row == len(table) or shelf[POSITION, row] != at:
            return nothing
        if shelf[ADDRESS, row] == 0 and table[row].max_timestamp >= segment[LIMITS]:
            return nothing
        at, size = shelf[BATCH_END, row], size + shelf[LENGTH, row]
        row += 1
    return (first, row - first, size) if at == stop else nothing


@njit(cache=True, nogil=True)
def _held(segment, position):
    """The address and the size of the records of the batch at a position; 0 if not cached."""
    if segment[SHELF_COUNT] == 0:
        return np.int64(0), np.int64(0)
    shelf, _ = _shelf(segment)
    row = np.searchsorted(shelf[POSITION], position)
    if row == shelf.shape[1] or shelf[POSITION, row] != position:
        return np.int64(0), np.int64(0)
    return shelf[ADDRESS, row], shelf[LENGTH, row]


@njit(cache=True, nogil=True)
def _shelf(segment):
    count = segment[SHELF_COUNT]
    rows: Any = pointer(segment[SHELF])
    table: Any = pointer(segment[SHELF_TABLE])
    return carray(rows, (SHELF_ROWS, count), np.int64), carray(table, (count,), TABLE)


@njit(cache=True, nogil=True)
def _gather(
    segments, stretches, pread, addresses, log, table, owner_of, positions, held, held_bytes, costs
):
    """Put the batches of all stretches, cached or fetched, in a table; returns how many, or -1.

    It is -1 if there is no room for them, a read is short, or a batch is not as it should be.
    """
    n = 0
    for i in range(stretches.shape[1]):
        owner, first = stretches[OWNER, i], n
        segment = segments[owner]
        if stretches[SHELVED, i] >= 0:
            n = _take(segment, stretches[:, i], table, held, held_bytes, n)
        else:
            n = _fetch(segment, stretches[:, i], pread, addresses, log, table, n, costs)
        if n < 0:
            return -1
        shift = stretches[START, i] - (table[first].position if n > first else 0)
        for row in range(first, n):
            owner_of[row], positions[row] = owner, table[row].position + shift
            if stretches[SHELVED, i] < 0:
                held[row], held_bytes[row] = _held(segment, positions[row])
    return n


@njit(cache=True, nogil=True)
def _take(segment, stretch, table, held, held_bytes, n):
    """Put the cached batches of a stretch behind `n` others; returns their number, -1: no room."""
    if n + stretch[BATCHES] > len(table):
        return -1
    shelf, rows = _shelf(segment)
    for row in range(stretch[SHELVED], stretch[SHELVED] + stretch[BATCHES]):
        table[n], held[n], held_bytes[n] = rows[row], shelf[ADDRESS, row], shelf[LENGTH, row]
        n += 1
    return n


@njit(cache=True, nogil=True)
def _fetch(segment, stretch, pread, addresses, log, table, n, costs):
    """Fetch the batches of a stretch and check them; as `_take`, -1 also for anything unusual."""
    at, size = costs[SIZE], stretch[STOP] - stretch[START]
    if size > len(log) - at:
        return -1
    if _call4(pread, (segment[FD], log.ctypes.data + at, size, stretch[START])) != size:
        return -1
    data = log[at : at + size]
    count, _, problem = find_batches(data)
    if problem or n + count > len(table):
        return -1
    found, last = table[n : n + count], stretch[FIRST] - 1
    read_headers(data, at, UNKNOWN, found)
    for b in range(count):
        batch, start = found[b], found[b].position
        if batch.base_offset <= last or batch.last_offset >= stretch[END_OFFSET]:
            return -1
        last = batch.last_offset
        stored = get_big_endian(log, start + CRC_AT, 4) & 0xFFFFFFFF
        if checksum(log, start + CRC_START, start + batch.size, addresses) != stored:
            return -1
    costs[REQUESTS] += 1
    costs[SIZE] += size
    return n + count


@njit(cache=True, nogil=True)
def _ranges_of(segment, ranges, most_bytes):
    """Fill in the ranges of a segment's log that can hold a wanted record, as `plan_stretches`."""
    if segment[WHOLE_BYTES]:
        ranges[0, 0], ranges[1, 0] = 0, segment[WHOLE_BYTES]
        ranges[2, 0], ranges[3, 0] = segment[BASE], segment[END]
        return 1
    base, limits = segment[BASE], segment[LIMITS:]
    place: Any = pointer(segment[PAGES])
    pages = carray(place, (FENCE_ROWS, segment[PAGE_COUNT]), np.int64)
    count = 0
    for p in range(pages.shape[1]):
        if pages[HIGH, p] < limits[0] or pages[LOW, p] > limits[1]:
            continue
        if base + pages[OFFSET_END, p] <= limits[2] or base + pages[OFFSET, p] > limits[3]:
            continue
        if pages[PAGE, p] == 0 or count + pages[BLOCKS, p] > ranges.shape[1]:
            return -1
        blocks_at: Any = pointer(pages[PAGE, p])
        blocks = carray(blocks_at, (pages[BLOCKS, p],), ENTRY)
        count, _ = join_meeting(
            blocks,
            pages[OFFSET_END, p],
            pages[PAGE_END, p],
            base,
            limits,
            _NO_WINDOWS,
            most_bytes,
            ranges,
            count,
        )
    return count


_NO_WINDOWS = np.empty((2, 0), np.int64)
