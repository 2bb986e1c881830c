"""Kernels that choose the wanted record batches, and fill Arrow columns from them.

`fill` decompresses and parses record batches, one by one, and copies the wanted fields of the
wanted records while they are in the processor's cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.compile.fallback import INTERPRETED, meanwhile
from seglake.compile.jit import njit
from seglake.format.batch import (
    CODEC_MASK,
    CONTROL,
    LEAST_RECORD_BYTES,
    MAX_BATCH_BYTES,
    BatchTable,
)
from seglake.format.codecs.codec_kernels import payload_bound, put_payload
from seglake.format.decode_kernels import (
    LEFT_OVER,
    TOO_FEW_BYTES,
    batch_head,
    lies_in,
    limits_of,
    next_record,
    record_body,
    uncounted,
)
from seglake.format.encode_kernels import put_bytes
from seglake.format.records import Bytes, Int32s, Int64s, fixed
from seglake.format.sought_kernels import is_sought

STATES = 4
COUNT, NULL_KEYS, NULL_VALUES, ALL_HEADERS = range(STATES)  # counts of what is in the columns
KEYS, VALUES, HEADERS = 1, 2, 4  # the wanted fields of a record, in addition to its numbers
FULL, ALONE = -1, -2  # why `fill` stopped; other reasons are problems of `decode_kernels`
_ARENA_BYTES = 2**20  # batches with more records are decompressed in their own memory


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def wanted_batches(
    table: BatchTable, owner_of: Int32s, limits: npt.NDArray[Any], rows: Int64s
) -> int:
    """Fill `rows` with the numbers of the batches that may have a record in their piece's window.

    Piece p has the window limits[p]: smallest and largest timestamp, smallest and largest offset,
    all inclusive. Returns how many numbers were filled in.
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


class Buffers(NamedTuple):
    """Buffers of columns, most of them in Arrow's layout.

    `key_ends` and `value_ends` begin with 0. `key_valid` and `value_valid` are 0 for a null, else
    1. Buffers of fields that are not wanted are empty.
    """

    fields: int  # a sum of `KEYS`, `VALUES` and `HEADERS`; other fields are not copied
    state: Int64s  # counts, see `STATES`
    offsets: Int64s
    timestamps: Int64s
    timestamp_types: npt.NDArray[np.int8]
    batches: Int32s  # for each record, the number of its batch
    header_counts: Int32s
    header_starts: Int64s  # where the headers of each record begin in the payload
    header_ends: Int64s
    key_ends: Int32s
    keys: Bytes
    key_valid: Bytes
    value_ends: Int32s
    values: Bytes
    value_valid: Bytes

    @staticmethod
    def allocate(fields: int, records: int, size_bytes: int) -> Buffers:
        """Return buffers for `records` records, with `size_bytes` of keys and of values."""
        offsets, timestamps = np.empty((2, records), np.int64)
        types, batches = np.empty(records, np.int8), np.empty(records, np.int32)
        headers = records if fields & HEADERS else 0
        starts, ends = np.empty((2, headers), np.int64)
        keys, values = records if fields & KEYS else 0, records if fields & VALUES else 0
        return Buffers(
            fields, np.zeros(STATES, np.int64), offsets, timestamps, types, batches,
            np.empty(headers, np.int32), starts, ends,
            np.zeros(1 + keys, np.int32), np.empty(size_bytes if keys else 0, np.uint8),
            np.empty(keys, np.uint8),
            np.zeros(1 + values, np.int32), np.empty(size_bytes if values else 0, np.uint8),
            np.empty(values, np.uint8),
        )  # fmt: skip


class DecodeRoom(NamedTuple):
    """Memory of one thread for decompressed records."""

    arena: Bytes
    records: Bytes  # the same memory, read-only
    sizes: Int64s  # space for two numbers

    @staticmethod
    def new() -> DecodeRoom:
        """Return a room with memory for one thread."""
        arena = np.empty(_ARENA_BYTES, np.uint8)
        return DecodeRoom(arena, fixed(arena), np.empty(2, np.int64))


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def fill(
    table, payload, as_stored, first, windows, window_of, keys, columns, limit_bytes, room,
    addresses,
):  # fmt: skip
    """Append the wanted records of batches to columns.

    `payload` has the records of batches `first`, `first` + 1, ... of the batch table. If
    `as_stored`, they may be compressed. The wanted records of batch b are in windows[window_of[b]]:
    the smallest and largest timestamp and the smallest and largest offset, all inclusive. With
    `keys` (`SoughtKeys`), only records with one of the keys are wanted. `columns` (`Buffers`) take
    at most `limit_bytes` of keys and values. A batch is appended as a whole, and only if all its
    records fit. `room` is a `DecodeRoom`. `addresses` are from `native.addresses`.

    Returns (n, size_bytes, reason): the first n batches of `payload` are done, and those with a
    wanted record take `size_bytes` of the log. The reason is 0, or why batch n is not done: `FULL`
    if it needs more space in the columns, `ALONE` if it must be decompressed without this kernel,
    or the problem of its records. If headers are wanted, the call may end early with reason 0, so
    all headers of a call are in one buffer: `payload.data` if batch `first` is not compressed, else
    the room.
    """
    state, log_bytes, at = columns.state, np.int64(0), np.int64(0)
    mask, first_codec = np.int16(CODEC_MASK if as_stored else 0), np.int16(0)
    for number in range(len(payload.ends)):
        row = first + number
        batch, data = table[row], payload.data
        start, end = payload.starts[number], payload.ends[number]
        codec = np.int16(batch.attributes & mask)
        if number == 0:
            first_codec = codec
        if columns.fields & HEADERS and (codec == 0) != (first_codec == 0):
            return number, log_bytes, 0
        if codec:
            bound = payload_bound(data, start, end, codec, addresses, MAX_BATCH_BYTES)
            if at and at + bound > len(room.arena):
                return number, log_bytes, 0
            if bound < 0 or bound > len(room.arena):
                return number, log_bytes, ALONE
            size = put_payload(
                room.arena, at, bound, data, start, end, codec, addresses, room.sizes
            )
            if size < 0:
                return number, log_bytes, ALONE
            data, start, end = room.records, at, at + size
        # Compare the record count of the header with the bytes before it is used to reserve space.
        if batch.count < 0 or np.int64(batch.count) * LEAST_RECORD_BYTES > end - start:
            return number, log_bytes, TOO_FEW_BYTES
        if state[COUNT] + batch.count > len(columns.offsets):
            return number, log_bytes, FULL
        if _used(columns) + end - start > limit_bytes:
            return number, log_bytes, FULL
        limits = limits_of(windows[window_of[row]])
        # A malformed record ends the call before `state` counts any record of its batch.
        count, null_keys, null_values, headers, problem = _append(
            data, start, end, batch, row, limits, columns, keys
        )
        if problem:
            return number, log_bytes, problem
        log_bytes += batch.size if count else 0
        state[COUNT] += count
        state[NULL_KEYS] += null_keys
        state[NULL_VALUES] += null_values
        state[ALL_HEADERS] += headers
        at = end if headers and codec else at  # headers are copied after the call
    return len(payload.ends), log_bytes, 0


@njit(cache=True, nogil=True, inline="always")
def _used(columns):
    """Return the bytes of keys and values in the columns."""
    used, count = np.int64(0), columns.state[COUNT]
    if columns.fields & KEYS:
        used += columns.key_ends[count]
    if columns.fields & VALUES:
        used += columns.value_ends[count]
    return used


@njit(cache=True, nogil=True)
def _append(data, start, end, batch, row, limits, columns, keys):
    """Append the wanted records of one batch, which are among data[start:end].

    `batch` is the header of the batch, `row` its number. Returns how many records, null keys, null
    values and headers were appended, and the problem of the first malformed record or 0.
    """
    data, columns, keys = uncounted(data), uncounted(columns), uncounted(keys)
    head, fields, first = batch_head(batch), columns.fields, columns.state[COUNT]
    at, previous = start, np.int64(-1)
    n, null_keys, null_values, headers = first, 0, 0, 0
    key_at = np.int64(columns.key_ends[n] if fields & KEYS else 0)
    value_at = np.int64(columns.value_ends[n] if fields & VALUES else 0)
    for _ in range(batch.count):
        record = next_record(data, at, end, head, previous)
        if record.problem:
            return 0, 0, 0, 0, record.problem
        at, previous = record.end, record.offset_delta
        if not lies_in(limits, record):
            continue
        if fields or len(keys.starts):
            body = record_body(data, record.body, record.end)
            if body.problem:
                return 0, 0, 0, 0, body.problem
            if len(keys.starts) and not is_sought(keys, data, body.key_start, body.key_length):
                continue
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
            if fields & HEADERS:
                columns.header_counts[n], columns.header_ends[n] = body.header_count, record.end
                columns.header_starts[n] = body.header_start
                headers += body.header_count
        columns.offsets[n], columns.timestamps[n] = record.offset, record.timestamp
        columns.timestamp_types[n], columns.batches[n] = head.append_time, row
        n += 1
    return n - first, null_keys, null_values, headers, 0 if at == end else LEFT_OVER
