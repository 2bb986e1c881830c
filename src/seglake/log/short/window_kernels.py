"""The compiled loops of a short window: from zone maps to Arrow columns in one call.

These loops plan, fetch and decode, with the kernels of planning, fetching and decoding. They
handle only the usual case: files of this machine, zone maps in memory, sound batches. In any other
case they stop, and the window is planned, fetched and decoded step by step.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import carray  # type: ignore[attr-defined]  # it is documented

from seglake.format.batch import CRC_AT, CRC_START, TABLE, UNKNOWN, BatchTable
from seglake.format.codecs.codec_kernels import call_of, checksum, pointer
from seglake.format.decode_kernels import find_batches, get_big_endian, read_headers
from seglake.format.records import Bytes, Int32s, Int64s
from seglake.format.sought_kernels import EVERY_KEY
from seglake.format.zonemap import ENTRY
from seglake.interpreted import meanwhile
from seglake.jit import njit
from seglake.log.decode.column_kernels import (
    DONE,
    FULL,
    Arena,
    FetchedBatches,
    fill,
    wanted_batches,
)
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
from seglake.log.zones.zone_kernels import (
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

# A segment that may have records of the window: its open file, its mark in the cache of batches,
# its offsets, the bytes of its log if every record is wanted or else 0, the addresses of its pages
# and of its shelf, and the limits of the window.
SEGMENT_FIELDS = 14
(
    FD, MARK, BASE, END, WHOLE_BYTES, PAGES, PAGE_COUNT, SHELF, SHELF_TABLE, SHELF_COUNT, LIMITS,
) = range(SEGMENT_FIELDS - 3)  # fmt: skip

CHOSEN = 3  # rows of the array of chosen segments, see `choose`
RANGES = 4  # rows of the array of byte ranges, see `join_meeting`
# A stretch is a byte range of a segment's log: the number of the segment, start and stop (bytes),
# first and end offset; and on the segment's shelf, the first row or -1, and the number of batches.
STRETCHES = 7
OWNER, START, STOP, FIRST, END_OFFSET, SHELVED, BATCHES = range(STRETCHES)
# What a read did: requests, fetched bytes, batches for the cache with records, and all batches for
# the cache.
COSTS = 4
REQUESTS, SIZE, KEPT, ALL = range(COSTS)
ELSEWHERE = 3  # beside the reasons of `fill`: these kernels cannot read the window

_call4 = call_of(4)


@njit(cache=True, nogil=True)
@meanwhile(lambda *_: -1)
def choose(extents, firsts, limits, chosen):
    """Find the segments that can hold a record within the limits. Returns how many, or -1.

    `extents` has a column for each segment: base offset, end offset (exclusive), smallest and
    largest timestamp. The segments of partition p begin at column firsts[p]. The kernel fills in
    the partition of each segment, the segment's position in the partition, and whether all records
    of the segment are wanted. It returns -1 if there is no room for the segments.
    """
    rows = np.empty((2, extents.shape[1]), np.int64)
    bases, ends, lows, highs = extents[0], extents[1], extents[2], extents[3]
    count = meeting(lows, highs, bases, ends, 0, limits, _NO_WINDOWS, rows)
    if count > chosen.shape[1]:
        return -1
    for i in range(count):
        partition = np.searchsorted(firsts, rows[0, i], "right") - 1
        chosen[0, i], chosen[1, i] = partition, rows[0, i] - firsts[partition]
        chosen[2, i] = rows[1, i]
    return count


@njit(cache=True, nogil=True)
@meanwhile(lambda *_: (-1, 0, 0, False))
def plan_stretches(segments, ranges, stretches, seen, most_bytes):
    """Find the ranges that can hold a wanted record, and which ranges are cached.

    A range has at most `most_bytes`, if it can be cut. Returns how many ranges there are, the bytes
    in logs of the ranges that are not cached, the bytes in memory of those that are, and whether a
    range that is not cached begins with a batch that was read twice before. The number of ranges is
    -1 if there is no room for them, or if a page is not in memory.
    """
    count, fresh_bytes, cached_bytes, repeated = 0, np.int64(0), np.int64(0), 0
    for s in range(len(segments)):
        segment = segments[s]
        more = _ranges_of(segment, ranges, most_bytes)
        if more < 0 or count + more > stretches.shape[1]:
            return -1, fresh_bytes, cached_bytes, False
        for r in range(more):
            start, stop = ranges[0, r], ranges[1, r]
            stretches[OWNER, count], stretches[START:SHELVED, count] = s, ranges[:, r]
            first, batches, size = _on_shelf(segment, start, stop)
            stretches[SHELVED, count], stretches[BATCHES, count] = first, batches
            cached_bytes += size
            if first < 0:
                fresh_bytes += stop - start
                repeated += was_seen(seen, segment[MARK], start)
            count += 1
    return count, fresh_bytes, cached_bytes, repeated > 0


class StretchTable(NamedTuple):
    """Some stretches of a short window, and how to read them."""

    segments: Int64s  # a row of `SEGMENT_FIELDS` for each segment
    columns: Int64s  # a column of `STRETCHES` for each stretch
    pread: int  # the address of C's function
    seen: npt.NDArray[np.uint64]  # marks of the batches that were read before, see `mark_seen`
    caches: bool  # whether batches that were read twice before are for the cache


class BatchRoom(NamedTuple):
    """Room for the batches of stretches."""

    log: Bytes  # the fetched bytes
    table: BatchTable  # the headers of the batches
    owner_of: Int32s  # for each batch, the number of its segment
    positions: Int64s  # for each batch, its position in its log
    rows: Int64s  # the numbers of the wanted batches
    window_of: Int32s  # for each wanted batch, the number of its window: that of its segment
    cached_at: Int64s  # as in `FetchedBatches`, with the next one
    cached_bytes: Int64s


@njit(cache=True, nogil=True)
def read_stretches(stretches, room, arena, place, costs, columns):
    """Append the records of `StretchTable` to columns. Returns why it stopped.

    `room` is a `BatchRoom`; `arena`, `place` and `columns` are those of `fill`. The reasons are
    those of `fill`, and `ELSEWHERE` if these kernels cannot read the stretches. `costs` receives
    what `COSTS` says.

    With `caches`, the batches are looked up among the `seen` batches, and marked there. If most
    were seen, the caller caches them. Then costs[ALL] batches are in `table`, `window_of` and
    `positions`, the first costs[KEPT] of them with wanted records. Of these, the records of the
    batches that were not cached are in the arena, and end there at its `ends`.
    """
    place[:], costs[:] = 0, 0
    marks, limits = stretches.segments[:, MARK], stretches.segments[:, LIMITS:]
    # 1. Collect the batches: headers from the shelf or from the log, which is read and checked.
    n = _gather(stretches, room, arena.addresses, costs)
    if n < 0:
        return ELSEWHERE
    table, owners, places = room.table[:n], room.owner_of[:n], room.positions[:n]
    # 2. Decide whether the batches are for the cache: most were read twice before, and some were
    # fetched. A batch that is read once is not worth the memory.
    fetched, caches = costs[REQUESTS] > 0, stretches.caches
    keeps = caches and fetched and 2 * count_seen(stretches.seen, marks, owners, places) > n
    # 3. Put the wanted batches first, as `fill` takes them. The others stay after them only for the
    # cache, which has room for their headers.
    count = wanted_batches(table, owners, limits, room.rows)
    if keeps:
        costs[KEPT], costs[ALL] = count, n
        _put_others_last(room.rows, count, table, owners, places, room.window_of)
    for i in range(count):
        row = room.rows[i]
        if not keeps:
            table[i], room.window_of[i] = table[row], owners[row]
        room.cached_at[i], room.cached_bytes[i] = room.cached_at[row], room.cached_bytes[row]
    # 4. Decode the wanted batches into the columns. The arena keeps their records for the cache.
    reason = fill(
        FetchedBatches(
            room.log, table[:count], room.window_of, limits, room.cached_at, room.cached_bytes
        ),
        Arena(arena.addresses, arena.max_bytes, arena.data, keeps, arena.ends, arena.sizes),
        place,
        columns,
        EVERY_KEY,
    )
    # 5. Mark the batches, so that the third read of them caches them. Only a read that succeeded
    # counts: another one is repeated in the usual way, which marks the batches.
    if reason == DONE and caches:
        mark_seen(stretches.seen, marks, room.window_of[:n] if keeps else owners, places)
    # An arena that keeps all batches may lack room, so `UNKNOWN` does not condemn the codec.
    return reason if reason in (DONE, FULL) or not keeps else ELSEWHERE


@njit(cache=True, nogil=True)
def _put_others_last(rows, count, table, owners, places, window_of):
    """Put the `count` batches at `rows` first, and all other batches after them."""
    headers, was_at, was_of = table.copy(), places.copy(), owners.copy()
    first, other = 0, count
    for row in range(len(headers)):
        at = other
        if first < count and rows[first] == row:
            at = first
            first += 1
        else:
            other += 1
        table[at], places[at], window_of[at] = headers[row], was_at[row], was_of[row]


@njit(cache=True, nogil=True)
def _on_shelf(segment, start, stop):
    """(first row on the segment's shelf, number of rows, bytes of records) of a range's batches.

    The first row is -1 if a batch is not on the shelf, or if its records may be wanted and are not
    in memory.
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
def _cached_records(segment, position):
    """Address and size of the records of the batch at a position; (0, 0) if they are not cached."""
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
def _gather(stretches, room, addresses, costs):
    """Put the headers of all batches of the stretches in a table. Returns how many, or -1.

    Returns -1 if there is no room for the batches, if a read is short, or if a batch is damaged.
    """
    n = 0
    for i in range(stretches.columns.shape[1]):
        stretch, first = stretches.columns[:, i], n
        owner, cached = stretch[OWNER], stretch[SHELVED] >= 0
        segment = stretches.segments[owner]
        # 1. The headers of the stretch, and where the records are if all of them are cached.
        if cached:
            n = _take(segment, stretch, room, n)
        else:
            n = _fetch(segment, stretch, stretches.pread, addresses, room, n, costs)
        if n < 0:
            return -1
        # 2. The place of each batch in its log, by which the cache names it: fetched batches of
        # which others were cached already are not decompressed again.
        shift = stretch[START] - (room.table[first].position if n > first else 0)
        for row in range(first, n):
            position = room.table[row].position + shift
            room.owner_of[row], room.positions[row] = owner, position
            if not cached:
                address, size = _cached_records(segment, position)
                room.cached_at[row], room.cached_bytes[row] = address, size
    return n


@njit(cache=True, nogil=True)
def _take(segment, stretch, room, n):
    """Put the cached batches of a stretch after `n` others. Returns the new number; -1: no room."""
    if n + stretch[BATCHES] > len(room.table):
        return -1
    shelf, rows = _shelf(segment)
    for row in range(stretch[SHELVED], stretch[SHELVED] + stretch[BATCHES]):
        room.table[n] = rows[row]
        room.cached_at[n], room.cached_bytes[n] = shelf[ADDRESS, row], shelf[LENGTH, row]
        n += 1
    return n


@njit(cache=True, nogil=True)
def _fetch(segment, stretch, pread, addresses, room, n, costs):
    """Fetch and check the batches of a stretch, as `_take`; -1 also if a batch is damaged."""
    log, at, size = room.log, costs[SIZE], stretch[STOP] - stretch[START]
    # 1. Read the bytes, after those of other stretches.
    if size > len(log) - at:
        return -1
    if _call4(pread, (segment[FD], room.log.ctypes.data + at, size, stretch[START])) != size:
        return -1
    # 2. Check every header before one is used.
    data = log[at : at + size]
    count, _, problem = find_batches(data)
    if problem or n + count > len(room.table):
        return -1
    headers, last = room.table[n : n + count], stretch[FIRST] - 1
    read_headers(data, at, UNKNOWN, headers)
    # 3. Check offsets, which are outside the checksum, and checksums.
    for b in range(count):
        batch, start = headers[b], headers[b].position
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
    """Fill in the ranges of a segment's log that can hold a wanted record.

    Returns how many, or -1 as `plan_stretches`.
    """
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
