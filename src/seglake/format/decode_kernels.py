"""Parse batch headers into batch tables, and records into columns, in compiled kernels.

`find_batches` and `read_headers` parse headers. `parse_records` and `parse_headers` turn a buffer
of records into columns and check that every length fits its space (`DefaultRecord.readFrom`). Every
loop over records takes a record from `next_record`, and its fields from `record_body`.

Varints are Kafka's (`ByteUtils`), at most 5 bytes for 32-bit and 10 bytes for 64-bit values. A
function that reads a value also returns the position after the value. This position is `BAD` if the
bytes end early, or if the value is longer than its type allows.
"""

import sys
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import intrinsic

from seglake.compile.fallback import INTERPRETED, meanwhile, plainly
from seglake.compile.jit import njit
from seglake.format.batch import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_TIMESTAMP_AT,
    COUNT_AT,
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
from seglake.limits import INT64_MAX

BAD = -1
_LEAST_LENGTH = LEAST_RECORD_BYTES - 1  # a record's length does not count its own byte
_LEAST_OLD_MESSAGE_BYTES = 26  # a message of magic 0, including offset and length

CUT_SHORT, BAD_MAGIC, OLD_MAGIC, BAD_COUNT = 1, 2, 3, 4
HEADER_PROBLEMS = {
    CUT_SHORT: "the last record batch is cut short: {left} bytes are left",
    BAD_MAGIC: "no record batch of magic 2 begins here",
    OLD_MAGIC: "message format {magic} (before Kafka 0.11) is not supported. "
    "Let a Kafka broker rewrite the topic with record batches of magic 2",
    BAD_COUNT: "a record batch has impossible offsets or record count",
}

BAD_RECORD, BAD_KEY, BAD_VALUE, BAD_HEADER, LEFT_OVER, BAD_OFFSET, TOO_FEW_BYTES = range(1, 8)
PROBLEMS = {
    BAD_RECORD: "a record's length or deltas leave its batch",
    BAD_KEY: "a record's key leaves the record",
    BAD_VALUE: "a record's value leaves the record",
    BAD_HEADER: "a record's headers leave the record, or a header key is null",
    LEFT_OVER: "bytes are left after the last record or inside a record",
    BAD_OFFSET: "a record's offset lies outside its batch or out of order",
    TOO_FEW_BYTES: "{size} bytes cannot hold {count} records",
}


@njit(cache=True, nogil=True)
def get_varint(data, at, end, max_bytes):
    """Return (value, next position) of the varint at `at`. If it is malformed, position is `BAD`.

    `max_bytes` is 5 for a 32-bit and 10 for a 64-bit value. Higher bits are dropped.
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
    """Return data[at : at + 8] as a little-endian integer.

    The array must have all eight bytes.
    """

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        word = context.get_value_type(types.uint64)
        place = builder.bitcast(builder.gep(array.data, [arguments[1]]), word.as_pointer())
        bits = builder.load(place, align=1)
        return bits if sys.byteorder == "little" else builder.bswap(bits)

    return types.uint64(data, types.int64), generate


@plainly(lambda value: value)
@intrinsic
def _uncounted(_typing_context, argument):
    """Return an array, or a tuple of arrays, whose references numba does not count.

    numba would count references for each record of a loop. The arrays outlive the kernel, because
    its caller also has them.
    """

    def generate(context, builder, signature, arguments):
        kind, (value,) = signature.args[0], arguments
        if isinstance(kind, types.Array):
            return _without_owner(context, builder, kind, value)
        for number, item in enumerate(kind.types):
            if isinstance(item, types.Array):
                array = builder.extract_value(value, number)
                array = _without_owner(context, builder, item, array)
                value = builder.insert_value(value, array, number)
        return value

    return argument(argument), generate


def _without_owner(context, builder, kind, value):
    array = context.make_array(kind)(context, builder, value)
    array.meminfo = array.meminfo.type(None)
    return array._getvalue()  # noqa: SLF001  # the public method would count references


uncounted: Any = _uncounted  # numba adds the first argument


@plainly(lambda bits: np.uint64((int(bits) & -int(bits) | 1 << 64).bit_length() - 1))
@intrinsic
def _zeros_below(_typing_context, _bits):
    """Count the zero bits below the lowest set bit. Return 64 if no bit is set."""

    def generate(context, builder, _signature, arguments):
        return builder.cttz(arguments[0], context.get_constant(types.boolean, 0))

    return types.uint64(types.uint64), generate


@njit(cache=True, nogil=True, forceinline=True)
def _first_varint(word):
    """Return (value, size in bits) of the varint in a word's low bits, if it has up to 32 bits."""
    stops = ~word & np.uint64(0x8080808080808080)
    own = word & (stops ^ (stops - np.uint64(1)))
    zigzag = own & np.uint64(0x7F)
    zigzag |= (own & np.uint64(0x7F00)) >> np.uint64(1)
    zigzag |= (own & np.uint64(0x7F0000)) >> np.uint64(2)
    zigzag |= (own & np.uint64(0x7F000000)) >> np.uint64(3)
    value = np.int64(zigzag >> np.uint64(1)) ^ -np.int64(zigzag & np.uint64(1))
    size = _zeros_below(stops) + np.uint64(1)
    return value, size


@njit(cache=True, nogil=True)
def get_big_endian(data, at, width):
    """Return the signed integer of `width` bytes at `at`, most significant byte first."""
    bits = np.uint64(0)
    for i in range(width):
        bits = (bits << np.uint64(8)) | np.uint64(data[at + i])
    shift = np.uint64(64 - 8 * width)
    return np.int64(bits << shift) >> np.int64(shift)


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def find_batches(data):
    """Check batch headers. Return (batch count, position after these batches, problem or 0)."""
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
    """Fill `table`, a batch table with one row for each batch that `find_batches` counted."""
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
def check_positions(table, length):
    """Return (first batch outside of `length` bytes or -1, bitwise or of all attributes)."""
    bits = np.int64(0)
    for i in range(len(table)):
        start = table[i].position
        if start < 0 or table[i].size < OVERHEAD or start + table[i].size > length:
            return i, bits
        bits |= table[i].attributes
    return -1, bits


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
    """Return columns with space for `count` records."""
    return RecordColumns(*[np.empty(count, dtype) for dtype in _COLUMN_TYPES])


class WindowLimits(NamedTuple):
    """The smallest and largest timestamp and offset of a window, all inclusive."""

    low_time: int
    high_time: int
    low_offset: int
    high_offset: int


class BatchHead(NamedTuple):
    """The values of a batch header from which offsets and timestamps of records are computed."""

    base_offset: int
    last_delta: int  # offset delta of the last record
    base_timestamp: int
    max_timestamp: int
    append_time: bool  # whether `max_timestamp` is the timestamp of every record


class RecordHead(NamedTuple):
    """The fields of a record before its key. If it is malformed, only `problem` is valid."""

    problem: int  # 0, `BAD_RECORD` or `BAD_OFFSET`
    end: int  # of the record
    offset_delta: int
    offset: int
    timestamp: int
    body: int  # position of the key


class RecordBody(NamedTuple):
    """The positions and lengths of a record's key, value and headers. A length of -1 is null."""

    problem: int  # 0 or a key of `PROBLEMS`
    key_start: int
    key_length: int
    value_start: int
    value_length: int
    header_count: int
    header_start: int


@njit(cache=True, nogil=True, inline="always")
def limits_of(window):
    """Return the `WindowLimits` from an array of four items."""
    return WindowLimits(window[0], window[1], window[2], window[3])


@njit(cache=True, nogil=True, forceinline=True)
def batch_head(row):
    """Return the `BatchHead` of a row of a batch table."""
    append_time = (row.attributes & LOG_APPEND_TIME) != 0
    last_delta = row.last_offset - row.base_offset
    return BatchHead(
        row.base_offset, last_delta, row.base_timestamp, row.max_timestamp, append_time
    )


@njit(cache=True, nogil=True, inline="always")
def lies_in(limits, record):
    """Return whether a record is in the window, from its `RecordHead`."""
    in_time = record.timestamp >= limits.low_time and record.timestamp <= limits.high_time
    return in_time and record.offset >= limits.low_offset and record.offset <= limits.high_offset


@njit(cache=True, nogil=True, forceinline=True)
def next_record(data, at, batch_end, batch, previous):
    """Return the `RecordHead` of the record at `at`, in a batch whose records end at `batch_end`.

    `previous` is the offset delta of the preceding record, or -1.
    """
    valid, problem = False, 0
    if len(data) - at >= 8:
        valid, end, timestamp_delta, offset_delta, body = _short_head(data, at, batch_end)
    if not valid:
        end, timestamp_delta, offset_delta, body = _long_head(data, at, batch_end)
        if body == BAD:
            problem = BAD_RECORD
    if problem == 0 and (offset_delta <= previous or offset_delta > batch.last_delta):
        problem = BAD_OFFSET
    timestamp = batch.max_timestamp if batch.append_time else batch.base_timestamp + timestamp_delta
    offset = batch.base_offset + offset_delta
    return RecordHead(problem, end, offset_delta, offset, timestamp, body)


@njit(cache=True, nogil=True, forceinline=True)
def _short_head(data, at, batch_end):
    """Return (is valid, end of the record, timestamp delta, offset delta, position of the key).

    Nearly always, the fields before the key fit in eight bytes, and are decoded without a branch.
    Otherwise, `is valid` is False. `data` must have eight bytes from `at` on.
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
def _long_head(data, at, batch_end):
    """Return (end of the record, timestamp delta, offset delta, position of the key or BAD)."""
    length, at = get_varint(data, at, batch_end, 5)
    if at == BAD or length < _LEAST_LENGTH or length > batch_end - at:
        return at, np.int64(0), np.int64(0), np.int64(BAD)
    end = at + length
    timestamp_delta, at = get_varint(data, at + 1, end, 10)
    if at == BAD:
        return end, timestamp_delta, np.int64(0), np.int64(BAD)
    offset_delta, at = get_varint(data, at, end, 5)
    return end, timestamp_delta, offset_delta, at


@njit(cache=True, nogil=True, forceinline=True)
def record_body(data, at, end):
    """Return the `RecordBody` of the record whose key is at `at` and that ends at `end`."""
    key, key_length, at = _field(data, at, end)
    if at == BAD:
        return RecordBody(BAD_KEY, key, key_length, key, key_length, key, at)
    value, value_length, at = _field(data, at, end)
    if at == BAD:
        return RecordBody(BAD_VALUE, key, key_length, value, value_length, value, at)
    headers, at = get_varint(data, at, end, 5)
    problem = 0
    if at == BAD or headers < 0 or headers * 2 > end - at:
        problem = BAD_HEADER
    elif headers == 0 and at != end:
        problem = LEFT_OVER
    return RecordBody(problem, key, key_length, value, value_length, headers, at)


@njit(cache=True, nogil=True)
def _field(data, at, end):
    """Return (start, length or -1 for null, next position or BAD) of a length-prefixed field."""
    length, at = get_varint(data, at, end, 5)
    if at == BAD or length < -1 or max(length, 0) > end - at:
        return np.int64(0), np.int64(0), np.int64(BAD)
    return at, length, at + max(length, 0)


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def parse_records(table, data, starts, ends, columns):
    """Parse the records of all batches.

    The decompressed records of batch b are data[starts[b] : ends[b]]. `columns` are `RecordColumns`
    with space for every record. Returns (0, 0), or (batch, problem) for the first damaged batch.
    """
    data, columns, n = uncounted(data), uncounted(columns), 0
    for b in range(len(table)):
        batch = batch_head(table[b])
        at, end, previous = starts[b], ends[b], np.int64(-1)
        for _ in range(table[b].count):
            record = next_record(data, at, end, batch, previous)
            if record.problem:
                return b, record.problem
            at, previous = record.end, record.offset_delta
            body = record_body(data, record.body, record.end)
            if body.problem:
                return b, body.problem
            columns.offsets[n], columns.timestamps[n] = record.offset, record.timestamp
            columns.timestamp_types[n] = batch.append_time
            columns.key_starts[n], columns.key_lengths[n] = body.key_start, body.key_length
            columns.value_starts[n], columns.value_lengths[n] = body.value_start, body.value_length
            columns.header_starts[n] = body.header_start
            columns.header_counts[n] = body.header_count
            columns.record_ends[n], columns.batch[n] = record.end, b
            n += 1
        if at != end:
            return b, LEFT_OVER
    return 0, 0


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def parse_times(data, batch, times):
    """Fill the rows of `times` with the offsets, timestamps and running maxima of one batch.

    `times` has one column for each record. `data` has the decompressed records, and `batch` is the
    `BatchHead`. Keys, values and headers are not decoded. Returns 0 or the problem.
    """
    data = uncounted(data)
    at, previous, top = np.int64(0), np.int64(-1), np.int64(-INT64_MAX)
    for n in range(times.shape[1]):
        record = next_record(data, at, len(data), batch, previous)
        if record.problem:
            return record.problem
        at, previous, top = record.end, record.offset_delta, max(top, record.timestamp)
        times[0, n], times[1, n], times[2, n] = record.offset, record.timestamp, top
    return LEFT_OVER if at != len(data) else 0


@njit(cache=True, nogil=True)
def parse_extremes(table, data, starts, ends, lows, offsets_of_max, lateness):
    """Fill three arrays like `encode_kernels.extremes`, from the encoded records of batches.

    Returns (0, 0), or (batch, problem) for the first damaged batch.
    """
    for b in range(len(table)):
        times = np.empty((3, table[b].count), np.int64)
        problem = parse_times(data[starts[b] : ends[b]], batch_head(table[b]), times)
        if problem:
            return b, problem
        low, high, top, late = np.int64(-1), np.int64(-1), table[b].base_offset, np.int64(0)
        for n in range(times.shape[1]):
            offset, timestamp = times[0, n], times[1, n]
            if n == 0:
                low, high, top = timestamp, timestamp, offset
            elif timestamp > high:
                high, top = timestamp, offset
            else:
                low = min(low, timestamp)
                if timestamp >= 0:
                    late = max(late, high - timestamp)
        lows[b], offsets_of_max[b], lateness[b] = low, top, late
    return 0, 0


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def parse_headers(data, starts, ends, firsts, key_starts, key_lengths, value_starts, value_lengths):
    """Parse the headers of all records. Return -1, or the first record with damaged headers."""
    for record in range(len(starts)):
        at, end = starts[record], ends[record]
        for h in range(firsts[record], firsts[record + 1]):
            key_starts[h], length, at = _field(data, at, end)
            if at == BAD or length < 0:
                return record
            key_lengths[h] = length
            value_starts[h], length, at = _field(data, at, end)
            if at == BAD:
                return record
            value_lengths[h] = length
        if at != end:
            return record
    return -1
