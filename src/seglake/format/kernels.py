"""The loops over records: everything in the format that touches one record at a time, compiled.

Encoding: `body_sizes` and `fill_bodies` gather key, value and headers of records in any order into
bodies; `cut_batches` decides where batches end; `fill_records` frames bodies as records.
Decoding: `find_batches` walks headers, `parse_records` and `parse_headers` turn a buffer of records
into columns, checking every length against the space it has (`DefaultRecord.readFrom`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from seglake.format.records import Int32s, Int64s
from seglake.format.wire import (
    BAD,
    get_big_endian,
    get_varint,
    put_big_endian,
    put_bytes,
    put_varint,
    varint_size,
)

CUT_SHORT, BAD_MAGIC, OLD_MAGIC, BAD_COUNT = 1, 2, 3, 4

BAD_RECORD, BAD_KEY, BAD_VALUE, BAD_HEADER, LEFT_OVER, BAD_OFFSET = 1, 2, 3, 4, 5, 6
PROBLEMS = {
    BAD_RECORD: "a record's length or deltas leave its batch",
    BAD_KEY: "a record's key leaves the record",
    BAD_VALUE: "a record's value leaves the record",
    BAD_HEADER: "a record's headers leave the record, or a header key is null",
    LEFT_OVER: "bytes are left after the last record or inside a record",
    BAD_OFFSET: "a record's offset lies outside its batch or out of order",
}


@njit(cache=True, nogil=True)
def body_sizes(key_lengths, value_lengths, order, sizes):  # type: ignore[no-untyped-def]  # kernel
    """Bytes of each body without headers."""
    for i in range(len(order)):
        key, value = np.int64(key_lengths[order[i]]), np.int64(value_lengths[order[i]])
        size = varint_size(key) + max(key, 0) + varint_size(value) + max(value, 0) + 1
        sizes[i] = size


@njit(cache=True, nogil=True)
def fill_bodies(  # type: ignore[no-untyped-def]  # kernel
    key_data, key_starts, key_lengths, value_data, value_starts, value_lengths, order, starts, out
):
    """Write the bodies whose places `starts` gives."""
    for i in range(len(order)):
        row = order[i]
        at = starts[i]
        key, value = np.int64(key_lengths[row]), np.int64(value_lengths[row])
        at = put_varint(out, at, key)
        at = put_bytes(out, at, key_data, key_starts[row], key)
        at = put_varint(out, at, value)
        at = put_bytes(out, at, value_data, value_starts[row], value)
        out[at] = 0  # no headers


@njit(cache=True, nogil=True)
def body_sizes_with_headers(  # type: ignore[no-untyped-def]  # kernel
    key_lengths, value_lengths, header_firsts, header_keys, header_values, order, sizes
):
    """Bytes of each body with its headers."""
    for i in range(len(order)):
        row = order[i]
        key, value = np.int64(key_lengths[row]), np.int64(value_lengths[row])
        size = varint_size(key) + max(key, 0) + varint_size(value) + max(value, 0)
        size += varint_size(header_firsts[row + 1] - header_firsts[row])
        for h in range(header_firsts[row], header_firsts[row + 1]):
            name, content = np.int64(header_keys[h]), np.int64(header_values[h])
            size += varint_size(name) + name + varint_size(content) + max(content, 0)
        sizes[i] = size


@njit(cache=True, nogil=True)
def fill_bodies_with_headers(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # kernel: one argument per buffer
    key_data, key_starts, key_lengths, value_data, value_starts, value_lengths,
    header_firsts, name_data, name_starts, name_lengths, content_data, content_starts,
    content_lengths, order, starts, out,
):  # fmt: skip
    """Write the bodies whose places `starts` gives, headers included."""
    for i in range(len(order)):
        row = order[i]
        at = starts[i]
        key, value = np.int64(key_lengths[row]), np.int64(value_lengths[row])
        at = put_varint(out, at, key)
        at = put_bytes(out, at, key_data, key_starts[row], key)
        at = put_varint(out, at, value)
        at = put_bytes(out, at, value_data, value_starts[row], value)
        at = put_varint(out, at, header_firsts[row + 1] - header_firsts[row])
        for h in range(header_firsts[row], header_firsts[row + 1]):
            name, content = np.int64(name_lengths[h]), np.int64(content_lengths[h])
            at = put_varint(out, at, name)
            at = put_bytes(out, at, name_data, name_starts[h], name)
            at = put_varint(out, at, content)
            at = put_bytes(out, at, content_data, content_starts[h], content)


@njit(cache=True, nogil=True, inline="always")
def _record_length(timestamp_delta, offset_delta, body):  # type: ignore[no-untyped-def]  # kernel
    return 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + body


@njit(cache=True, nogil=True)
def cut_batches(timestamps, sizes, max_bytes, firsts, ends):  # type: ignore[no-untyped-def]  # kernel
    """Cut records into batches of at most `max_bytes` of records each; returns how many.

    `firsts` receives the first record of each batch and the record count, `ends` the bytes of all
    records up to each batch's end.
    """
    batches = 0
    total = np.int64(0)
    size = np.int64(0)
    first = 0
    for i in range(len(timestamps)):
        body = sizes[i]
        length = _record_length(timestamps[i] - timestamps[first], i - first, body)
        length += varint_size(length)
        if i == first or size + length <= max_bytes:
            size += length
            continue
        firsts[batches] = first
        total += size
        ends[batches] = total
        batches += 1
        first = i
        length = _record_length(0, 0, body)
        size = length + varint_size(length)
    if len(timestamps):
        firsts[batches] = first
        ends[batches] = total + size
        batches += 1
    firsts[batches] = len(timestamps)
    return batches


@njit(cache=True, nogil=True)
def fill_records(timestamps, starts, sizes, bodies, firsts, out):  # type: ignore[no-untyped-def]  # kernel
    """Frame every body as a record of its batch, one after another into `out`."""
    at = np.int64(0)
    for batch in range(len(firsts) - 1):
        first = firsts[batch]
        for i in range(first, firsts[batch + 1]):
            timestamp_delta = timestamps[i] - timestamps[first]
            at = put_varint(out, at, _record_length(timestamp_delta, i - first, sizes[i]))
            out[at] = 0  # attributes, unused
            at = put_varint(out, at + 1, timestamp_delta)
            at = put_varint(out, at, i - first)
            at = put_bytes(out, at, bodies, starts[i], sizes[i])


@njit(cache=True, nogil=True)
def extremes(timestamps, firsts, lows, highs, at, lateness):  # type: ignore[no-untyped-def]  # kernel
    """Of each run of records: smallest and largest timestamp, the first record with the largest, and
    the most by which one lies behind an earlier one. A run without records has -1, -1, its first, 0."""
    for run in range(len(firsts) - 1):
        low, high, where, late = np.int64(-1), np.int64(-1), firsts[run], np.int64(0)
        for i in range(firsts[run], firsts[run + 1]):
            value = timestamps[i]
            if i == firsts[run]:
                low, high = value, value
            elif value > high:
                high, where = value, i
            else:
                low = min(low, value)
                late = max(late, high - value)
        lows[run], highs[run], at[run], lateness[run] = low, high, where, late


@njit(cache=True, nogil=True)
def put_base_offsets(data, starts, offsets):  # type: ignore[no-untyped-def]  # kernel
    """Overwrite the base offset of the batch at each start."""
    for i in range(len(starts)):
        put_big_endian(data, starts[i], offsets[i], 8)


@njit(cache=True, nogil=True)
def find_batches(data, starts):  # type: ignore[no-untyped-def]  # kernel
    """Walk batch headers; returns (batches found, position of the end or the problem, problem or 0)."""
    at = np.int64(0)
    n = 0
    while at < len(data):
        left = len(data) - at
        if left >= 17 and data[at + 16] < 2:
            return n, at, OLD_MAGIC
        if left < 61:
            return n, at, CUT_SHORT
        if data[at + 16] != 2:
            return n, at, BAD_MAGIC
        size = get_big_endian(data, at + 8, 4) + 12
        if size < 61:
            return n, at, BAD_MAGIC
        if size > left:
            return n, at, CUT_SHORT
        offset = get_big_endian(data, at, 8)
        delta = get_big_endian(data, at + 23, 4)
        count = get_big_endian(data, at + 57, 4)
        if offset < 0 or delta < 0 or offset > offset + delta or count < 0 or count > delta + 1:
            return n, at, BAD_COUNT
        starts[n] = at
        n += 1
        at += size
    return n, at, 0


class RecordArrays(NamedTuple):
    """What `parse_records` fills: one item per record in each array."""

    offsets: Int64s
    timestamps: Int64s
    key_starts: Int64s
    key_lengths: Int32s
    value_starts: Int64s
    value_lengths: Int32s
    header_starts: Int64s
    header_counts: Int32s
    record_ends: Int64s
    batch: Int32s


RECORD_ARRAY_TYPES = (
    np.int64, np.int64, np.int64, np.int32, np.int64, np.int32, np.int64, np.int32, np.int64, np.int32,
)  # fmt: skip


@njit(cache=True, nogil=True)
def _parse_field(data, at, end):  # type: ignore[no-untyped-def]  # kernel
    """(start, length or -1 for null, position after it or BAD) of a length-prefixed field."""
    length, at = get_varint(data, at, end, 5)
    if at == BAD or length < -1 or max(length, 0) > end - at:
        return np.int64(0), np.int64(0), np.int64(BAD)
    return at, length, at + max(length, 0)


@njit(cache=True, nogil=True)
def parse_records(  # type: ignore[no-untyped-def]  # kernel
    data, starts, ends, base_offsets, counts, base_timestamps, max_timestamps, log_append, out
):
    """Parse every record of every batch into `out`; returns (0, 0) or (batch, problem)."""
    n = 0
    for batch in range(len(starts)):
        at, batch_end = starts[batch], ends[batch]
        previous = np.int64(-1)
        for _ in range(counts[batch]):
            length, at = get_varint(data, at, batch_end, 5)
            if at == BAD or length < 4 or length > batch_end - at:
                return batch, BAD_RECORD
            end = at + length
            timestamp_delta, at = get_varint(data, at + 1, end, 10)
            if at == BAD:
                return batch, BAD_RECORD
            offset_delta, at = get_varint(data, at, end, 5)
            if at == BAD:
                return batch, BAD_RECORD
            if offset_delta <= previous:
                return batch, BAD_OFFSET
            previous = offset_delta
            out.key_starts[n], key_length, at = _parse_field(data, at, end)
            if at == BAD:
                return batch, BAD_KEY
            out.value_starts[n], value_length, at = _parse_field(data, at, end)
            if at == BAD:
                return batch, BAD_VALUE
            headers, at = get_varint(data, at, end, 5)
            if at == BAD or headers < 0 or headers * 2 > end - at:
                return batch, BAD_HEADER
            if headers == 0 and at != end:
                return batch, LEFT_OVER
            out.key_lengths[n], out.value_lengths[n] = key_length, value_length
            out.header_starts[n], out.header_counts[n], out.record_ends[n] = at, headers, end
            out.offsets[n] = base_offsets[batch] + offset_delta
            if log_append[batch]:
                out.timestamps[n] = max_timestamps[batch]
            else:
                out.timestamps[n] = base_timestamps[batch] + timestamp_delta
            out.batch[n] = batch
            n += 1
            at = end
        if at != batch_end:
            return batch, LEFT_OVER
    return 0, 0


@njit(cache=True, nogil=True)
def parse_headers(  # type: ignore[no-untyped-def]  # kernel
    data, starts, ends, firsts, key_starts, key_lengths, value_starts, value_lengths
):
    """Parse the headers of every record; returns -1, or the first record whose headers are damaged."""
    for record in range(len(starts)):
        at, end = starts[record], ends[record]
        for h in range(firsts[record], firsts[record + 1]):
            key_starts[h], length, at = _parse_field(data, at, end)
            if at == BAD or length < 0:
                return record
            key_lengths[h] = length
            value_starts[h], length, at = _parse_field(data, at, end)
            if at == BAD:
                return record
            value_lengths[h] = length
        if at != end:
            return record
    return -1
