"""The compiled loops of decoding: which record batches are wanted, and how they fill Arrow columns.

`fill` goes from fetched bytes to columns in one call. It decompresses a batch, parses the records,
and copies the wanted fields of the records in the window. `fill` stops at a batch that it cannot
decode. Slower code parses such a batch, and `append_items` copies the records to the columns.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import carray  # type: ignore[attr-defined]  # it is documented

from seglake.compile.fallback import INTERPRETED, meanwhile
from seglake.compile.jit import njit
from seglake.format.batch import CODEC_MASK, CONTROL, LEAST_RECORD_BYTES, OVERHEAD, BatchTable
from seglake.format.codecs.codec_kernels import payload_bound, pointer, put_payload
from seglake.format.decode_kernels import (
    BAD,
    batch_head,
    lies_in,
    limits_of,
    next_record,
    record_body,
    uncounted,
)
from seglake.format.encode_kernels import put_bytes
from seglake.format.records import Bytes, Int32s, Int64s
from seglake.format.sought_kernels import is_sought

STATES = 3
COUNT, NULL_KEYS, NULL_VALUES = range(STATES)  # state of columns: records, null keys, null values
ROW, ARENA_BYTES, LOG_BYTES = range(STATES)  # progress in batches: see `fill`
KEYS, VALUES, HEADERS = 1, 2, 4  # the wanted fields of a record, beside its numbers
DONE, FULL, UNKNOWN = 0, 1, 2  # why `fill` stopped


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
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
@meanwhile(INTERPRETED)
def bytes_of_batches(table: BatchTable, batches: Int32s) -> int:
    """Bytes of the batches in `batches`, which ascend. A repeated batch counts once."""
    total, last = 0, -1
    for batch in batches:
        if batch != last:
            total += table[batch].size
            last = batch
    return total


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
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


class FetchedBatches(NamedTuple):
    """Record batches to decode."""

    log: Bytes  # the fetched bytes
    table: BatchTable  # the headers of the batches; their positions are positions in `log`
    window_of: Int32s  # for each batch, the number of its window
    windows: npt.NDArray[np.int64]  # windows, each in the order of `Limits`
    cached_at: Int64s  # for each batch, the address of its cached records; 0: not cached
    cached_bytes: Int64s  # for each batch, the size of its cached records


class Arena(NamedTuple):
    """Room for decompressed records, and what decompresses them."""

    addresses: Int64s  # the functions of the codecs' libraries, see `native`
    max_bytes: int  # a batch that may decompress to more bytes is `UNKNOWN`
    data: Bytes  # the room
    keeps: bool  # whether the records of all batches stay, or only those of the last one
    ends: Int64s  # output, if `keeps`: where the records of each batch end
    sizes: Int64s  # room for two numbers


class Buffers(NamedTuple):
    """Buffers of columns, most of them Arrow's, with room for more records."""

    fields: int  # a sum of `KEYS`, `VALUES` and `HEADERS`; other fields are not copied
    limit_bytes: int  # the most bytes of keys and values in the columns
    state: Int64s  # from call to call: records in the columns, null keys, null values
    offsets: Int64s
    timestamps: Int64s
    timestamp_types: npt.NDArray[np.int8]
    batches: Int32s  # for each record, the number of its batch
    key_ends: Int32s
    keys: Bytes
    key_valid: Bytes
    value_ends: Int32s
    values: Bytes
    value_valid: Bytes


@njit(cache=True, nogil=True)
@meanwhile(lambda *_: UNKNOWN)
def fill(batches, arena, place, columns, keys):
    """Append the wanted records of batches to columns, from batch place[ROW] on.

    A record is wanted if it lies in the window of its batch, and has one of the keys if there are
    any. The arguments are `FetchedBatches`, an `Arena`, `Buffers` and `SoughtKeys`. `place` goes
    from call to call: the next batch, the used bytes of the arena, and the bytes of the batches
    with a wanted record.

    Returns `DONE` after the last batch. Returns `FULL` if the columns lack room for the next batch,
    or would hold more than `limit_bytes`. Returns `UNKNOWN` if the next batch is damaged, has a
    codec without an address, or has headers that are wanted. No record of the next batch is then
    in the columns.
    """
    state = columns.state
    for row in range(place[ROW], len(batches.table)):
        place[ROW] = row
        batch = batches.table[row]
        # 1. Find the decompressed records: in the cache, in the log if the batch is not compressed,
        # else in the arena. Only the arena outlives the call, so `keeps` needs a copy there.
        address, size = batches.cached_at[row], batches.cached_bytes[row]
        if address == 0 and batch.attributes & CODEC_MASK == 0 and not arena.keeps:
            address = batches.log.ctypes.data + batch.position + OVERHEAD
            size = batch.size - OVERHEAD
        elif address == 0:
            size = _decompress(batches.log, batch, arena, place[ARENA_BYTES])
            if size < 0:
                return UNKNOWN
            address = arena.data.ctypes.data + place[ARENA_BYTES]
        # 2. Check the room before any record is copied, so that a batch is appended as a whole. The
        # record count comes from the header: it must fit the bytes, or it would reserve any room.
        if batch.count < 0 or np.int64(batch.count) * LEAST_RECORD_BYTES > size:
            return UNKNOWN
        if state[COUNT] + batch.count > len(columns.offsets):
            return FULL
        if _used(columns) + size > columns.limit_bytes:
            return FULL
        # 3. Parse the records and copy those in the window. A malformed record ends the call before
        # `state` counts any record of the batch.
        records = carray(pointer(address), (size,), np.uint8)
        limits = limits_of(batches.windows[batches.window_of[row]])
        count, null_keys, null_values = _append(records, batch, row, limits, columns, keys)
        if count < 0:
            return UNKNOWN
        # 4. Count the batch: its arena bytes are kept, its records are in the columns.
        if batches.cached_at[row] == 0 and arena.keeps:
            place[ARENA_BYTES] += size
            arena.ends[row] = place[ARENA_BYTES]
        place[LOG_BYTES] += batch.size if count else 0
        state[COUNT] += count
        state[NULL_KEYS] += null_keys
        state[NULL_VALUES] += null_values
    place[ROW] = len(batches.table)
    return DONE


@njit(cache=True, nogil=True)
def _decompress(log, batch, arena, at):
    """Decompress the records of a batch into the arena. Returns their bytes, or `BAD`."""
    start, end = batch.position + OVERHEAD, batch.position + batch.size
    bound = payload_bound(log, start, end, batch.attributes, arena.addresses, arena.max_bytes)
    if bound < 0 or bound > len(arena.data) - at:
        return np.int64(BAD)
    return put_payload(
        arena.data, at, bound, log, start, end, batch.attributes, arena.addresses, arena.sizes
    )


@njit(cache=True, nogil=True, inline="always")
def _used(columns):
    """The bytes of keys and values in the columns."""
    used, count = np.int64(0), columns.state[COUNT]
    if columns.fields & KEYS:
        used += columns.key_ends[count]
    if columns.fields & VALUES:
        used += columns.value_ends[count]
    return used


@njit(cache=True, nogil=True)
def _append(data, batch, row, limits, columns, keys):
    """Append the wanted records of one batch. Returns how many records, null keys, null values.

    `data` is the decompressed records of the batch, `batch` its header, `row` its number. Returns
    (`BAD`, 0, 0) if a record is malformed, or has headers that are wanted.
    """
    columns, keys = uncounted(columns), uncounted(keys)
    head, fields, first = batch_head(batch), columns.fields, columns.state[COUNT]
    at, previous = np.int64(0), np.int64(-1)
    n, null_keys, null_values = first, 0, 0
    key_at = np.int64(columns.key_ends[n] if fields & KEYS else 0)
    value_at = np.int64(columns.value_ends[n] if fields & VALUES else 0)
    for _ in range(batch.count):
        record = next_record(data, at, len(data), head, previous)
        if record.problem:
            return np.int64(BAD), 0, 0
        at, previous = record.end, record.offset_delta
        if not lies_in(limits, record):
            continue
        if fields or len(keys.starts):
            body = record_body(data, record.body, record.end)
            if body.problem:
                return np.int64(BAD), 0, 0
            if len(keys.starts) and not is_sought(keys, data, body.key_start, body.key_length):
                continue
            if body.header_count and fields & HEADERS:
                return np.int64(BAD), 0, 0
            if fields & KEYS:
                key_at = put_bytes(columns.keys, key_at, data, body.key_start, body.key_length)
                columns.key_valid[n], columns.key_ends[n + 1] = body.key_length >= 0, key_at
                null_keys += body.key_length < 0
            if fields & VALUES:
                value_at = put_bytes(
                    columns.values, value_at, data, body.value_start, body.value_length
                )
                columns.value_valid[n], columns.value_ends[n + 1] = body.value_length >= 0, value_at
                null_values += body.value_length < 0
        columns.offsets[n], columns.timestamps[n] = record.offset, record.timestamp
        columns.timestamp_types[n], columns.batches[n] = head.append_time, row
        n += 1
    if at != len(data):
        return np.int64(BAD), 0, 0
    return n - first, null_keys, null_values
