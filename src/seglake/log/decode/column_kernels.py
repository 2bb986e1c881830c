"""The compiled loops of decoding: which record batches are wanted, and how they fill Arrow columns.

`fill` goes from fetched bytes to columns in one call. It decompresses a batch, parses the records,
and copies the wanted fields of the records in the window. `fill` stops at a batch that it cannot
decode. Slower code parses such a batch, and `append_items` copies the records to the columns.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import carray  # type: ignore[attr-defined]  # it is documented

from seglake.format.batch import CODEC_MASK, CONTROL, LEAST_RECORD_BYTES, OVERHEAD, BatchTable
from seglake.format.codecs.codec_kernels import payload_bound, pointer, put_payload
from seglake.format.decode_kernels import (
    BAD,
    batch_head,
    lies_in,
    limits_of,
    next_record,
    record_body,
)
from seglake.format.encode_kernels import put_bytes
from seglake.format.records import Bytes, Int32s, Int64s
from seglake.jit import njit

STATES = 3
COUNT, NULL_KEYS, NULL_VALUES = range(STATES)  # state of columns: records, null keys, null values
ROW, ARENA_BYTES, LOG_BYTES = range(STATES)  # progress in batches: see `fill`
KEYS, VALUES, HEADERS = 1, 2, 4  # the wanted fields of a record, beside its numbers
DONE, FULL, UNKNOWN = 0, 1, 2  # why `fill` stopped


@njit(cache=True, nogil=True)
def wanted_batches(
    table: BatchTable, owner_of: Int32s, limits: npt.NDArray[Any], rows: Int64s
) -> int:
    """Fill `rows` with the numbers of the batches that may have a record in their piece's window.

    Piece p has the window limits[p]: smallest and largest timestamp, smallest and largest offset,
    all inclusive. Returns how many numbers are filled in.
    """
    count = 0
    for i in range(len(table)):
        row, window = table[i], limits[owner_of[i]]
        if (
            row.attributes & CONTROL == 0
            and row.max_timestamp >= window[0]
            and row.last_offset >= window[2]
            and row.base_offset <= window[3]
        ):
            rows[count] = i
            count += 1
    return count


@njit(cache=True, nogil=True)
def bytes_of_batches(table: BatchTable, batches: Int32s) -> int:
    """Bytes of the batches in `batches`, which ascend. A repeated batch counts once."""
    total, last = 0, -1
    for batch in batches:
        if batch != last:
            total += table[batch].size
            last = batch
    return total


@njit(cache=True, nogil=True)
def append_items(
    data: Bytes, starts: Int64s, lengths: Int32s,
    at: int, ends: Int32s, out: Bytes, valid: Bytes,
) -> int:  # fmt: skip
    """Copy items to an Arrow column, after its first `at` items. Returns how many are null."""
    nulls = 0
    used = int(ends[at])
    for i in range(len(starts)):
        length = int(lengths[i])
        used = put_bytes(out, used, data, starts[i], length)
        ends[at + i + 1] = used
        valid[at + i] = length >= 0
        nulls += length < 0
    return nulls


@njit(cache=True, nogil=True)
def fill(
    log, table, window_of, windows, cached_at, cached_bytes, addresses, max_bytes,
    arena, keeps, arena_ends, sizes, place, fields, limit_bytes, state,
    offsets, timestamps, timestamp_types, batches,
    key_ends, keys, key_valid, value_ends, values, value_valid,
):  # fmt: skip
    """Append the wanted records of batches to columns, from batch place[ROW] on.

    A record is wanted if it lies in the window of its batch. The parameters by group:

    Batches
        log               the fetched bytes
        table             the headers of the batches; their positions are positions in `log`
        window_of         for each batch, the number of its window
        windows           windows: smallest and largest timestamp, smallest and largest offset
        cached_at         for each batch, the address of its cached records; 0: not cached
        cached_bytes      for each batch, the size of its cached records
    Codecs
        addresses         the functions of the codecs' libraries, see `native`
        max_bytes         a batch that may decompress to more bytes is `UNKNOWN`
    Decompressed records
        arena             room for them
        keeps             whether the arena keeps the records of every batch, or only of the last
        arena_ends        output, if `keeps`: where the records of each batch end in the arena
        sizes             room for two numbers
    Progress, from call to call
        place             the next batch; used bytes of the arena; bytes of batches with a record
    Columns
        fields            a sum of `KEYS`, `VALUES` and `HEADERS`; other fields are not copied
        limit_bytes       the most bytes of keys and values in the columns
        state             from call to call: records in the columns, null keys, null values
        offsets, timestamps, timestamp_types, batches  output, for each record; `batches` has the
                          numbers of the records' batches
        key_ends, keys, key_valid        output: Arrow's buffers of the keys
        value_ends, values, value_valid  output: Arrow's buffers of the values

    Returns `DONE` after the last batch. Returns `FULL` if the columns lack room for the next batch,
    or would hold more than `limit_bytes`. Returns `UNKNOWN` if the next batch is damaged, has a
    codec without an address, or has headers that are wanted. No record of the next batch is then
    in the columns.
    """
    for row in range(place[ROW], len(table)):
        place[ROW] = row
        batch, window = table[row], windows[window_of[row]]
        start, end = batch.position + OVERHEAD, batch.position + batch.size
        # 1. Find the decompressed records: in the cache, in the log if the batch is not compressed,
        # else in the arena. Only the arena outlives the call, so `keeps` needs a copy there.
        address, size = cached_at[row], cached_bytes[row]
        if address == 0 and batch.attributes & CODEC_MASK == 0 and not keeps:
            address, size = log.ctypes.data + start, end - start
        elif address == 0:
            at = place[ARENA_BYTES]
            bound = payload_bound(log, start, end, batch.attributes, addresses, max_bytes)
            if bound < 0 or bound > len(arena) - at:
                return UNKNOWN
            size = put_payload(
                arena, at, bound, log, start, end, batch.attributes, addresses, sizes
            )
            if size < 0:
                return UNKNOWN
            address = arena.ctypes.data + at
        # 2. Check the room before any record is copied, so that a batch is appended as a whole. The
        # record count comes from the header: it must fit the bytes, or it would reserve any room.
        if batch.count < 0 or np.int64(batch.count) * LEAST_RECORD_BYTES > size:
            return UNKNOWN
        first, used = state[COUNT], np.int64(0)
        if fields & KEYS:
            used += key_ends[first]
        if fields & VALUES:
            used += value_ends[first]
        if first + batch.count > len(offsets) or used + size > limit_bytes:
            return FULL
        # 3. Parse the records and copy those in the window. A malformed record ends the call before
        # `state` counts any record of the batch.
        count, null_keys, null_values = _fill_one(
            carray(pointer(address), (size,), np.uint8),
            batch, row, window, fields, first,
            offsets, timestamps, timestamp_types, batches,
            key_ends, keys, key_valid, value_ends, values, value_valid,
        )  # fmt: skip
        if count < 0:
            return UNKNOWN
        # 4. Count the batch: its arena bytes are kept, its records are in the columns.
        if cached_at[row] == 0 and keeps:
            place[ARENA_BYTES] += size
            arena_ends[row] = place[ARENA_BYTES]
        place[LOG_BYTES] += batch.size if count else 0
        state[COUNT] += count
        state[NULL_KEYS] += null_keys
        state[NULL_VALUES] += null_values
    place[ROW] = len(table)
    return DONE


@njit(cache=True, nogil=True)
def _fill_one(
    data, batch, row, window, fields, first,
    offsets, timestamps, timestamp_types, batches,
    key_ends, keys, key_valid, value_ends, values, value_valid,
):  # fmt: skip
    """Append the wanted records of one batch. Returns how many records, null keys, null values.

    Returns (`BAD`, 0, 0) if a record is malformed, or has headers that are wanted. `data` is the
    decompressed records of the batch, `first` the number of records in the columns.
    """
    head, limits = batch_head(batch), limits_of(window)
    at, previous = np.int64(0), np.int64(-1)
    n, null_keys, null_values = first, 0, 0
    key_at = np.int64(key_ends[n] if fields & KEYS else 0)
    value_at = np.int64(value_ends[n] if fields & VALUES else 0)
    for _ in range(batch.count):
        record = next_record(data, at, len(data), head, previous)
        if record.problem:
            return np.int64(BAD), 0, 0
        at, previous = record.end, record.offset_delta
        if not lies_in(limits, record):
            continue
        if fields:
            body = record_body(data, record.body, record.end)
            if body.problem or (body.header_count and fields & HEADERS):
                return np.int64(BAD), 0, 0
            if fields & KEYS:
                key_at = put_bytes(keys, key_at, data, body.key_start, body.key_length)
                key_valid[n], key_ends[n + 1] = body.key_length >= 0, key_at
                null_keys += body.key_length < 0
            if fields & VALUES:
                value_at = put_bytes(values, value_at, data, body.value_start, body.value_length)
                value_valid[n], value_ends[n + 1] = body.value_length >= 0, value_at
                null_values += body.value_length < 0
        offsets[n], timestamps[n] = record.offset, record.timestamp
        timestamp_types[n], batches[n] = head.append_time, row
        n += 1
    if at != len(data):
        return np.int64(BAD), 0, 0
    return n - first, null_keys, null_values
