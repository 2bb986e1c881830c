"""Encode records as bodies and batches, and divide batches into segments, in compiled kernels.

`body_sizes` and `fill_bodies` gather key, value and headers of records into bodies, in any order.
Their `firsts` are empty if no record has headers.
`cut_batches` decides where batches end. `fill_records` frames bodies as records. `partition_keys`
is Kafka's partitioner. `append` is Kafka's append path over batch tables.

Varints are Kafka's (`ByteUtils`): zigzag, then groups of seven bits, least significant group first.

Kernels have no annotations, because numba infers types from the arguments.
"""

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from seglake.compile.fallback import plainly
from seglake.compile.jit import njit
from seglake.limits import INT32_MAX

_LOG_APPEND_TIME = 0x08


@njit(cache=True, nogil=True)
def varint_size(value):
    """Return the size of `value` as a varint or varlong, which is 1 to 10 bytes."""
    zigzag = np.uint64((value << 1) ^ (value >> 63))
    size = 1
    while zigzag >= np.uint64(128):
        zigzag >>= np.uint64(7)
        size += 1
    return size


@njit(cache=True, nogil=True)
def put_varint(out, at, value):
    """Write `value` at `at`. Return the position after it."""
    zigzag = np.uint64((value << 1) ^ (value >> 63))
    while zigzag >= np.uint64(128):
        out[at] = np.uint8(zigzag & np.uint64(127)) | np.uint8(128)
        zigzag >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(zigzag)
    return at + 1


def _plain_copy(out, at, data, start, length):
    out[at : at + length] = data[start : start + length]


@plainly(_plain_copy)
@intrinsic
def _copy(typing_context, out, at, data, start, length):
    """Copy between byte arrays with memcpy. A loop over bytes is six times slower for keys."""
    del typing_context, at, start, length  # the types do not depend on them

    def generate(context, builder, signature, arguments):
        target = context.make_array(signature.args[0])(context, builder, arguments[0])
        source = context.make_array(signature.args[2])(context, builder, arguments[2])
        to = builder.gep(target.data, [arguments[1]])
        origin = builder.gep(source.data, [arguments[3]])
        cgutils.raw_memcpy(builder, to, origin, arguments[4], 1)
        return context.get_dummy_value()

    return types.void(out, types.int64, data, types.int64, types.int64), generate


@njit(cache=True, nogil=True, inline="always")
def put_bytes(out, at, data, start, length):
    """Copy `length` bytes, or nothing if `length` is negative. Return the position after them."""
    if length <= 0:
        return at
    _copy(out, at, data, start, length)
    return at + length


@njit(cache=True, nogil=True)
def put_big_endian(out, at, value, width):
    """Write the low `width` bytes of `value`, most significant first."""
    bits = np.uint64(value)
    for i in range(width):
        out[at + width - 1 - i] = np.uint8(bits & np.uint64(255))
        bits >>= np.uint64(8)


@njit(cache=True, nogil=True)
def _put_span(out, at, spans, i):
    """Write the length and the bytes of item `i`. Return the position after them."""
    length = np.int64(spans.lengths[i])
    at = put_varint(out, at, length)
    return put_bytes(out, at, spans.data, spans.starts[i], length)


@njit(cache=True, nogil=True)
def copy_bodies(starts, sizes, data, out):
    """Copy all bodies from `data` to `out`, without gaps."""
    at = 0
    for i in range(len(starts)):
        at = put_bytes(out, at, data, starts[i], sizes[i])


@njit(cache=True, nogil=True)
def body_sizes(key_lengths, value_lengths, firsts, header_keys, header_values, order, sizes):
    """Fill `sizes` with the size of each body, headers included."""
    for i in range(len(order)):
        row = order[i]
        key, value = np.int64(key_lengths[row]), np.int64(value_lengths[row])
        size = varint_size(key) + max(key, 0) + varint_size(value) + max(value, 0)
        first, end = (firsts[row], firsts[row + 1]) if len(firsts) else (0, 0)
        size += varint_size(end - first)
        for h in range(first, end):
            name, content = np.int64(header_keys[h]), np.int64(header_values[h])
            size += varint_size(name) + name + varint_size(content) + max(content, 0)
        sizes[i] = size


@njit(cache=True, nogil=True)
def fill_bodies(keys, values, headers, order, starts, out):
    """Write record order[i] at starts[i] of `out`.

    Keys and values are `Spans`. `headers` are the `Headers` of all records.
    """
    firsts = headers.firsts
    for i in range(len(order)):
        row = order[i]
        at = _put_span(out, starts[i], keys, row)
        at = _put_span(out, at, values, row)
        first, end = (firsts[row], firsts[row + 1]) if len(firsts) else (0, 0)
        at = put_varint(out, at, end - first)
        for h in range(first, end):
            at = _put_span(out, at, headers.keys, h)
            at = _put_span(out, at, headers.values, h)


@njit(cache=True, nogil=True)
def _record_length(timestamp_delta, offset_delta, body):
    return 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + body


@njit(cache=True, nogil=True)
def cut_batches(timestamps, offsets, stamped, sizes, max_bytes, firsts, batch_sizes):
    """Cut records into batches of at most `max_bytes` bytes of records. Return the batch count.

    The records of a batch have one timestamp type. `stamped` marks records with LogAppendTime. A
    batch of such records has only one timestamp. Offsets rise, and differ by less than 2^31 in a
    batch. `firsts` receives the first record of each batch, then the number of records.
    `batch_sizes` receives the bytes of each batch's records.
    """
    batches = 0
    total = np.int64(0)
    first = 0
    for i in range(len(timestamps)):
        since, behind = timestamps[i] - timestamps[first], offsets[i] - offsets[first]
        length = _record_length(since, behind, sizes[i])
        length += varint_size(length)
        if i == first or (
            total + length <= max_bytes and behind <= INT32_MAX
            and stamped[i] == stamped[first] and (since == 0 or not stamped[i])
        ):  # fmt: skip
            total += length
            continue
        firsts[batches], batch_sizes[batches] = first, total
        batches += 1
        first = i
        length = _record_length(0, 0, sizes[i])
        total = length + varint_size(length)
    if len(timestamps):
        firsts[batches], batch_sizes[batches] = first, total
        batches += 1
    firsts[batches] = len(timestamps)
    return batches


@njit(cache=True, nogil=True)
def put_records(framing, batch, out, at):
    """Write the bodies of one batch of a `Framing` as records into `out`, from `at` on."""
    base_timestamp, base_offset = framing.base_timestamps[batch], framing.base_offsets[batch]
    for i in range(framing.firsts[batch], framing.firsts[batch + 1]):
        since, behind = framing.timestamps[i] - base_timestamp, framing.offsets[i] - base_offset
        at = put_varint(out, at, _record_length(since, behind, framing.sizes[i]))
        out[at] = 0  # attributes, unused
        at = put_varint(out, at + 1, since)
        at = put_varint(out, at, behind)
        at = put_bytes(out, at, framing.data, framing.starts[i], framing.sizes[i])


@njit(cache=True, nogil=True)
def fill_records(framing, places, out):
    """Write every body as a record. The records of batch b begin at out[places[b]]."""
    for batch in range(len(places)):
        put_records(framing, batch, out, places[batch])


@njit(cache=True, nogil=True)
def measure_records(framing, batch_sizes):
    """Fill `batch_sizes` with the bytes of each batch's records, before compression."""
    for batch in range(len(batch_sizes)):
        total = np.int64(0)
        base_timestamp, base_offset = framing.base_timestamps[batch], framing.base_offsets[batch]
        for i in range(framing.firsts[batch], framing.firsts[batch + 1]):
            since, behind = framing.timestamps[i] - base_timestamp, framing.offsets[i] - base_offset
            length = _record_length(since, behind, framing.sizes[i])
            total += length + varint_size(length)
        batch_sizes[batch] = total


@njit(cache=True, nogil=True)
def group_batches(table, fit, sizes, max_bytes, firsts):
    """Group adjacent batches that can be joined within `max_bytes`. Return the number of groups.

    `fit` marks the batches that may be in a group with others. `sizes` has the bytes of each
    batch's records. `firsts` receives the first batch of each group, and after these the number of
    batches.
    """
    groups, total = 0, np.int64(0)
    for i in range(len(table)):
        row, first = table[i], table[firsts[groups - 1]] if groups else table[i]
        total += sizes[i]
        if (
            groups == 0 or not fit[i] or not fit[i - 1] or total > max_bytes
            or row.attributes != first.attributes
            or (row.attributes & _LOG_APPEND_TIME and row.max_timestamp != first.max_timestamp)
            or row.last_offset - first.base_offset > INT32_MAX
        ):  # fmt: skip
            firsts[groups] = i
            groups += 1
            total = np.int64(sizes[i])
    firsts[groups] = len(table)
    return groups


@njit(cache=True, nogil=True)
def extremes(timestamps, firsts, lows, highs, at, lateness):
    """Fill `lows` and `highs` with the smallest and largest timestamp of each batch.

    `at` receives the first record with the largest timestamp. `lateness` receives the largest time
    (ms) by which a record is older than an earlier record of its batch. A record without
    a timestamp counts as -1 in `lows`, and has no lateness. An empty batch gets low and high -1,
    `at` from `firsts`, lateness 0.
    """
    for batch in range(len(firsts) - 1):
        low, high, where, late = np.int64(-1), np.int64(-1), firsts[batch], np.int64(0)
        for i in range(firsts[batch], firsts[batch + 1]):
            value = timestamps[i]
            if i == firsts[batch]:
                low, high = value, value
            elif value > high:
                high, where = value, i
            else:
                low = min(low, value)
                if value >= 0:
                    late = max(late, high - value)
        lows[batch], highs[batch], at[batch], lateness[batch] = low, high, where, late


@njit(cache=True, nogil=True)
def _murmur2(data, start, length):
    """Compute Kafka's `Utils.murmur2` with its seed."""
    m = np.uint32(0x5BD1E995)
    h = np.uint32(0x9747B28C) ^ np.uint32(length)
    words = length // 4
    for i in range(words):
        at = start + 4 * i
        k = (
            np.uint32(data[at])
            | (np.uint32(data[at + 1]) << np.uint32(8))
            | (np.uint32(data[at + 2]) << np.uint32(16))
            | (np.uint32(data[at + 3]) << np.uint32(24))
        )
        k = np.uint32(k * m)
        k ^= k >> np.uint32(24)
        k = np.uint32(k * m)
        h = np.uint32(h * m) ^ k
    tail = start + 4 * words
    rest = length - 4 * words
    if rest >= 3:
        h ^= np.uint32(data[tail + 2]) << np.uint32(16)
    if rest >= 2:
        h ^= np.uint32(data[tail + 1]) << np.uint32(8)
    if rest >= 1:
        h ^= np.uint32(data[tail])
        h = np.uint32(h * m)
    h ^= h >> np.uint32(13)
    h = np.uint32(h * m)
    h ^= h >> np.uint32(15)
    return np.int32(h)


@njit(cache=True, nogil=True)
def partition_keys(data, starts, lengths, count, first_null, partitions):
    """Choose the partition of each key. The i-th null key gets (first_null + i) % count."""
    nulls = np.int64(first_null)
    for i in range(len(starts)):
        if lengths[i] < 0:
            partitions[i] = nulls % count
            nulls += 1
        else:
            h = _murmur2(data, starts[i], np.int64(lengths[i]))
            partitions[i] = (np.int64(h) & 0x7FFFFFFF) % count


# The state of the segment that is being filled: its base offset; its bytes; the largest timestamp
# of its first batch; bytes or records since its last index entry; its largest timestamp; the
# interval of the last index entry; the numbers of its offset entries and of its time entries; its
# last time entry. A missing timestamp is -1.
BASE, SIZE, FIRST_MAX, SINCE, HIGHEST, OFFSETS, TIMES, LAST_TIME = range(8)


@njit(cache=True, nogil=True)
def append(state, table, interval, segment_bytes, segment_ms, max_offsets, max_times, indexed):
    """Append batches until one must begin a new segment. Return the number of appended batches.

    `state` is updated, and `indexed` receives whether each appended batch gets an index entry.
    """
    for i in range(len(table)):
        size, high = np.int64(table[i].size), table[i].max_timestamp
        if state[SIZE] > 0:
            waited = high - state[FIRST_MAX] if state[FIRST_MAX] >= 0 else 0
            if (
                state[SIZE] > segment_bytes - size
                or waited > segment_ms
                or state[OFFSETS] >= max_offsets
                or state[TIMES] >= max_times - 1
                or table[i].last_offset - state[BASE] > INT32_MAX
            ):
                return i
        else:
            state[FIRST_MAX] = high
        state[HIGHEST] = max(state[HIGHEST], high)
        due = state[SINCE] > interval
        if due:
            state[OFFSETS] += 1
            state[SINCE] = 0
            if state[HIGHEST] > state[LAST_TIME]:
                state[TIMES] += 1
                state[LAST_TIME] = state[HIGHEST]
        indexed[i] = due
        state[SINCE] += size
        state[SIZE] += size
    return len(table)
