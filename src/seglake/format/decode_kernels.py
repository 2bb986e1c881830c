"""Compiled loops that read: batch headers to batch tables, records to columns.

`find_batches` and `read_headers` walk headers. `parse_records` and `parse_headers` turn a buffer of
records into columns and check that every length fits its space (`DefaultRecord.readFrom`).

Varints are Kafka's (`ByteUtils`), at most 5 bytes for 32-bit and 10 bytes for 64-bit values. A
reader of a value returns the position after the value. It returns `BAD` if the bytes end early, or
if the value is longer than its type allows.
"""

import sys
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import intrinsic

from seglake.format.batch import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_TIMESTAMP_AT,
    COUNT_AT,
    CRC_AT,
    LAST_OFFSET_DELTA_AT,
    LEAST_RECORD_BYTES,
    LENGTH_AT,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    OVERHEAD,
)
from seglake.format.records import Int32s, Int64s
from seglake.interpreted import INTERPRETED, meanwhile, plainly
from seglake.jit import njit
from seglake.limits import INT32_MAX, INT64_MAX

BAD = -1
_LEAST_LENGTH = LEAST_RECORD_BYTES - 1  # a record's length does not count its own byte
_LEAST_OLD_MESSAGE_BYTES = 26  # of magic 0, offset and length included

CUT_SHORT, BAD_MAGIC, OLD_MAGIC, BAD_COUNT = 1, 2, 3, 4
HEADER_PROBLEMS = {
    CUT_SHORT: "the last record batch is cut short: {left} bytes are left",
    BAD_MAGIC: "no record batch of magic 2 begins here",
    OLD_MAGIC: "message format {magic} (before Kafka 0.11) is not supported: "
    "let a Kafka broker rewrite the topic with record batches of magic 2",
    BAD_COUNT: "a record batch has impossible offsets or record count",
}

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
def get_varint(data, at, end, max_bytes):
    """(value, position after it) of the varint at `at`; position `BAD` if it is malformed.

    `max_bytes` is 5 for a 32-bit and 10 for a 64-bit value. The value is reduced to its width.
    """
    zigzag = np.uint64(0)
    shift = np.uint64(0)
    for _ in range(max_bytes):
        if at >= end:
            return np.int64(0), np.int64(BAD)
        byte = data[at]
        at += 1
        zigzag |= np.uint64(byte & np.uint8(127)) << shift
        if byte < 128:
            if max_bytes == 5:
                zigzag &= np.uint64(0xFFFFFFFF)
            return np.int64(zigzag >> np.uint64(1)) ^ -np.int64(zigzag & np.uint64(1)), np.int64(at)
        shift += np.uint64(7)
    return np.int64(0), np.int64(BAD)


@plainly(lambda data, at: np.uint64(int.from_bytes(data[at : at + 8].tobytes(), "little")))
@intrinsic
def _eight_bytes(_typing_context, data, _at):
    """The eight bytes from a position, first byte in the lowest bits. The array must have them."""

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        word = context.get_value_type(types.uint64)
        place = builder.bitcast(builder.gep(array.data, [arguments[1]]), word.as_pointer())
        bits = builder.load(place, align=1)
        return bits if sys.byteorder == "little" else builder.bswap(bits)

    return types.uint64(data, types.int64), generate


@plainly(lambda bits: np.uint64((int(bits) & -int(bits) | 1 << 64).bit_length() - 1))
@intrinsic
def _zeros_below(_typing_context, _bits):
    """The number of zero bits below the lowest set bit of 64."""

    def generate(context, builder, _signature, arguments):
        return builder.cttz(arguments[0], context.get_constant(types.boolean, 0))

    return types.uint64(types.uint64), generate


@njit(cache=True, nogil=True, inline="always")
def _first_varint(word):
    """(value, size in bits) of the varint in the lowest bits of a word; correct up to 32 bits."""
    stops = ~word & np.uint64(0x8080808080808080)
    own = word & (stops ^ (stops - np.uint64(1)))
    zigzag = own & np.uint64(0x7F)
    zigzag |= (own & np.uint64(0x7F00)) >> np.uint64(1)
    zigzag |= (own & np.uint64(0x7F0000)) >> np.uint64(2)
    zigzag |= (own & np.uint64(0x7F000000)) >> np.uint64(3)
    value = np.int64(zigzag >> np.uint64(1)) ^ -np.int64(zigzag & np.uint64(1))
    size = _zeros_below(stops) + np.uint64(1)
    return value, size


@njit(cache=True, nogil=True, inline="always")
def get_big_endian(data, at, width):
    """The signed integer of `width` bytes at `at`, most significant first."""
    bits = np.uint64(0)
    for i in range(width):
        bits = (bits << np.uint64(8)) | np.uint64(data[at + i])
    shift = np.uint64(64 - 8 * width)
    return np.int64(bits << shift) >> np.int64(shift)


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def find_batches(data):
    """Walk batch headers. Returns (batches, position of the end or problem, problem or 0)."""
    at = np.int64(0)
    n = 0
    while at < len(data):
        left = len(data) - at
        if left <= MAGIC_AT:
            return n, at, CUT_SHORT
        size = get_big_endian(data, at + LENGTH_AT, 4) + LOG_OVERHEAD
        magic = data[at + MAGIC_AT]
        if magic < 2:  # an old message, or zeros, which are padding
            return n, at, OLD_MAGIC if size >= _LEAST_OLD_MESSAGE_BYTES else BAD_MAGIC
        if magic > 2 or size < OVERHEAD:
            return n, at, BAD_MAGIC
        if size > left:
            return n, at, CUT_SHORT
        offset = get_big_endian(data, at + BASE_OFFSET_AT, 8)
        delta = get_big_endian(data, at + LAST_OFFSET_DELTA_AT, 4)
        count = get_big_endian(data, at + COUNT_AT, 4)
        if offset < 0 or delta < 0 or count < 0 or count > delta + 1:
            return n, at, BAD_COUNT
        if offset >= INT64_MAX - delta:  # not a sum: the compiler may remove a check for overflow
            return n, at, BAD_COUNT
        n += 1
        at += size
    return n, at, 0


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def read_headers(data, base_position, unknown, table):
    """Fill the batch table of the batches that `find_batches` counted."""
    at = np.int64(0)
    for i in range(len(table)):
        row = table[i]
        size = get_big_endian(data, at + LENGTH_AT, 4) + LOG_OVERHEAD
        row.position, row.size = base_position + at, size
        row.attributes = get_big_endian(data, at + ATTRIBUTES_AT, 2)
        row.base_offset = get_big_endian(data, at + BASE_OFFSET_AT, 8)
        row.last_offset = row.base_offset + get_big_endian(data, at + LAST_OFFSET_DELTA_AT, 4)
        row.base_timestamp = get_big_endian(data, at + BASE_TIMESTAMP_AT, 8)
        row.count = get_big_endian(data, at + COUNT_AT, 4)
        row.max_timestamp = get_big_endian(data, at + MAX_TIMESTAMP_AT, 8)
        row.min_timestamp = row.offset_of_max = row.lateness = unknown
        at += size


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def read_crcs(data, starts, crcs):
    """Read the checksum in the header of each batch."""
    for i in range(len(starts)):
        crcs[i] = get_big_endian(data, starts[i] + CRC_AT, 4)


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def blocks_rise(blocks, end):
    """Whether positions and offsets of a zone map's blocks rise, below `end` and 2^31."""
    position, offset = np.int64(-1), np.int64(-1)
    for i in range(len(blocks)):
        if blocks[i].position <= position or blocks[i].relative_offset <= offset:
            return False
        position, offset = np.int64(blocks[i].position), np.int64(blocks[i].relative_offset)
    return len(blocks) == 0 or (position < end and offset <= INT32_MAX)


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def survey(table, length):
    """(first batch that leaves the first `length` bytes, or -1; bitwise or of all attributes)."""
    bits = np.int64(0)
    for i in range(len(table)):
        start = table[i].position
        if start < 0 or table[i].size < OVERHEAD or start + table[i].size > length:
            return i, bits
        bits |= table[i].attributes
    return -1, bits


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def count_records(table, starts, ends):
    """(number of records, -1), or (_, first batch with fewer bytes than its record count needs)."""
    total = np.int64(0)
    for i in range(len(table)):
        least = np.int64(table[i].count) * LEAST_RECORD_BYTES
        if table[i].count < 0 or least > ends[i] - starts[i]:
            return total, i
        total += table[i].count
    return total, -1


class RecordColumns(NamedTuple):
    """The arrays that `parse_records` fills, with one item for each record."""

    offsets: Int64s
    timestamps: Int64s
    timestamp_types: npt.NDArray[np.int8]
    key_starts: Int64s
    key_lengths: Int32s
    value_starts: Int64s
    value_lengths: Int32s
    header_starts: Int64s
    header_counts: Int32s
    record_ends: Int64s
    batch: Int32s


_COLUMN_TYPES: tuple[Any, ...] = (
    np.int64, np.int64, np.int8, np.int64, np.int32, np.int64, np.int32, np.int64, np.int32,
    np.int64, np.int32,
)  # fmt: skip


def record_columns(count: int) -> RecordColumns:
    """Columns with room for `count` records."""
    return RecordColumns(*[np.empty(count, dtype) for dtype in _COLUMN_TYPES])


@njit(cache=True, nogil=True)
def parse_field(data, at, end):
    """(start, length or -1 for null, position after it or BAD) of a length-prefixed field."""
    length, at = get_varint(data, at, end, 5)
    if at == BAD or length < -1 or max(length, 0) > end - at:
        return np.int64(0), np.int64(0), np.int64(BAD)
    return at, length, at + max(length, 0)


@njit(cache=True, nogil=True, inline="always")
def short_head(data, at, batch_end):
    """(whether it is valid, end of the record, timestamp delta, offset delta, position of the key).

    Nearly always, the fields before the key fit in eight bytes. This function decodes them without
    a branch. If it cannot, it returns that the result is not valid. The array must have the eight
    bytes.
    """
    word = _eight_bytes(data, at)
    length, size = _first_varint(word)
    word = (word >> (size & np.uint64(63))) >> np.uint64(8)  # without the attributes
    timestamp_delta, timestamp_size = _first_varint(word)
    offset_delta, offset_size = _first_varint(word >> (timestamp_size & np.uint64(63)))
    end = at + np.int64(size >> np.uint64(3)) + length
    taken = size + timestamp_size + offset_size + np.uint64(8)
    key = at + np.int64(taken >> np.uint64(3))
    short = (size <= 32) & (timestamp_size <= 32) & (offset_size <= 32) & (taken <= 64)
    valid = short & (length >= _LEAST_LENGTH) & (key <= end) & (end <= batch_end)
    return valid, end, timestamp_delta, offset_delta, key


@njit(cache=True, nogil=True)
def record_head(data, at, batch_end):
    """(end of the record, timestamp delta, offset delta, position of the key or BAD)."""
    length, at = get_varint(data, at, batch_end, 5)
    if at == BAD or length < _LEAST_LENGTH or length > batch_end - at:
        return at, np.int64(0), np.int64(0), np.int64(BAD)
    end = at + length
    timestamp_delta, at = get_varint(data, at + 1, end, 10)
    if at == BAD:
        return end, timestamp_delta, np.int64(0), np.int64(BAD)
    offset_delta, at = get_varint(data, at, end, 5)
    return end, timestamp_delta, offset_delta, at


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def parse_records(
    table, data, starts, ends, windows, window_of,
    offsets, timestamps, timestamp_types, key_starts, key_lengths, value_starts, value_lengths,
    header_starts, header_counts, record_ends, batches,
):  # fmt: skip
    """Parse the records of all batches; output the records that lie in the window of their batch.

    The decompressed records of batch b are data[starts[b] : ends[b]]. The window of batch b is
    windows[window_of[b]]: smallest and largest timestamp, smallest and largest offset, all
    inclusive. The other arrays have room for every record. Returns (number of records in the
    windows, 0, 0), or (_, batch, problem) for the first damaged batch. Of a record outside the
    window, only the timestamp and the offset are decoded.
    """
    n = 0
    for batch in range(len(table)):
        row, window = table[batch], windows[window_of[batch]]
        low_time, high_time, low_offset, high_offset = window[0], window[1], window[2], window[3]
        base_offset, last_delta = row.base_offset, row.last_offset - row.base_offset
        base_timestamp, max_timestamp = row.base_timestamp, row.max_timestamp
        append_time = (row.attributes & LOG_APPEND_TIME) != 0
        at, batch_end = starts[batch], ends[batch]
        previous = np.int64(-1)
        for _ in range(row.count):
            valid = False
            if len(data) - at >= 8:
                valid, end, timestamp_delta, offset_delta, key = short_head(data, at, batch_end)
            if valid:
                at = key
            else:
                end, timestamp_delta, offset_delta, at = record_head(data, at, batch_end)
                if at == BAD:
                    return n, batch, BAD_RECORD
            if offset_delta <= previous or offset_delta > last_delta:
                return n, batch, BAD_OFFSET
            previous = offset_delta
            offset = base_offset + offset_delta
            timestamp = max_timestamp if append_time else base_timestamp + timestamp_delta
            if (timestamp < low_time or timestamp > high_time
                    or offset < low_offset or offset > high_offset):  # fmt: skip
                at = end
                continue
            key_starts[n], key_length, at = parse_field(data, at, end)
            if at == BAD:
                return n, batch, BAD_KEY
            value_starts[n], value_length, at = parse_field(data, at, end)
            if at == BAD:
                return n, batch, BAD_VALUE
            headers, at = get_varint(data, at, end, 5)
            if at == BAD or headers < 0 or headers * 2 > end - at:
                return n, batch, BAD_HEADER
            if headers == 0 and at != end:
                return n, batch, LEFT_OVER
            key_lengths[n], value_lengths[n] = key_length, value_length
            header_starts[n], header_counts[n], record_ends[n] = at, headers, end
            offsets[n], timestamps[n], timestamp_types[n] = offset, timestamp, append_time
            batches[n] = batch
            n += 1
            at = end
        if at != batch_end:
            return n, batch, LEFT_OVER
    return n, 0, 0


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def parse_times(data, base_offset, last_delta, base_timestamp, append_time, times):
    """Fill the rows of `times` from one batch: offsets, timestamps, running maximum of timestamps.

    `data` is the decompressed records of the batch. Timestamps count from `base_timestamp`. If
    `append_time` is not negative, it is the timestamp of every record. Returns 0 or the problem.
    Keys, values and headers are not decoded.
    """
    at, batch_end = np.int64(0), np.int64(len(data))
    previous, top = np.int64(-1), np.int64(-INT64_MAX)
    for n in range(times.shape[1]):
        valid = False
        if batch_end - at >= 8:
            valid, end, timestamp_delta, offset_delta, _ = short_head(data, at, batch_end)
        if not valid:
            end, timestamp_delta, offset_delta, key = record_head(data, at, batch_end)
            if key == BAD:
                return BAD_RECORD
        if offset_delta <= previous or offset_delta > last_delta:
            return BAD_OFFSET
        previous, at = offset_delta, end
        timestamp = base_timestamp + timestamp_delta if append_time < 0 else append_time
        top = max(top, timestamp)
        times[0, n], times[1, n], times[2, n] = base_offset + offset_delta, timestamp, top
    return LEFT_OVER if at != batch_end else 0


@njit(cache=True, nogil=True)
def parse_extremes(table, data, starts, ends, lows, offsets_of_max, lateness):
    """`encode_kernels.extremes` of batches that `parse_records` would take.

    Returns (0, 0), or (batch, problem) for the first damaged batch.
    """
    for batch in range(len(table)):
        row = table[batch]
        last_delta = row.last_offset - row.base_offset
        append_time = (row.attributes & LOG_APPEND_TIME) != 0
        at, batch_end = starts[batch], ends[batch]
        previous = np.int64(-1)
        low, high, top, late = np.int64(-1), np.int64(-1), np.int64(0), np.int64(0)
        for n in range(row.count):
            valid = False
            if len(data) - at >= 8:
                valid, end, timestamp_delta, offset_delta, _ = short_head(data, at, batch_end)
            if not valid:
                end, timestamp_delta, offset_delta, key = record_head(data, at, batch_end)
                if key == BAD:
                    return batch, BAD_RECORD
            if offset_delta <= previous or offset_delta > last_delta:
                return batch, BAD_OFFSET
            previous, at = offset_delta, end
            timestamp = row.max_timestamp if append_time else row.base_timestamp + timestamp_delta
            if n == 0:
                low, high, top = timestamp, timestamp, offset_delta
            elif timestamp > high:
                high, top = timestamp, offset_delta
            else:
                low = min(low, timestamp)
                if timestamp >= 0:
                    late = max(late, high - timestamp)
        if at != batch_end:
            return batch, LEFT_OVER
        lows[batch], offsets_of_max[batch], lateness[batch] = low, row.base_offset + top, late
    return 0, 0


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def parse_headers(data, starts, ends, firsts, key_starts, key_lengths, value_starts, value_lengths):
    """Parse the headers of all records. Returns -1, or the first record with damaged headers."""
    for record in range(len(starts)):
        at, end = starts[record], ends[record]
        for h in range(firsts[record], firsts[record + 1]):
            key_starts[h], length, at = parse_field(data, at, end)
            if at == BAD or length < 0:
                return record
            key_lengths[h] = length
            value_starts[h], length, at = parse_field(data, at, end)
            if at == BAD:
                return record
            value_lengths[h] = length
        if at != end:
            return record
    return -1
