"""Kernels of lookups: find a record in the bytes of an index block in one call.

The outline of a block is one array. It begins with the number of batches, the end of the used part
of the array, and the fields below for each batch. The times follow: for each batch that was
searched, its offsets, its timestamps, and the running maximum of its timestamps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seglake.compile.fallback import INTERPRETED, meanwhile
from seglake.compile.jit import njit
from seglake.format.batch import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_TIMESTAMP_AT,
    CONTROL,
    COUNT_AT,
    CRC_AT,
    CRC_START,
    LAST_OFFSET_DELTA_AT,
    LEAST_RECORD_BYTES,
    LENGTH_AT,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAX_BATCH_BYTES,
    MAX_TIMESTAMP_AT,
    OVERHEAD,
)
from seglake.format.codecs.codec_kernels import CRC32C, checksum, payload_bound, put_payload
from seglake.format.decode_kernels import BatchHead, find_batches, get_big_endian, parse_times
from seglake.format.records import Bytes, Int64s, fixed

BATCHES, USED, FIRST = range(3)  # in the array; the fields of the first batch begin at `FIRST`
FIELDS = 9
(
    POSITION, SIZE, ATTRIBUTES, BASE_OFFSET, LAST_OFFSET, BASE_TIMESTAMP, MAX_TIMESTAMP, RECORDS,
    TIMES,  # where the times of the batch begin in the array; 0: the batch was not searched
) = range(FIELDS)  # fmt: skip
FOUND, NONE, UNREAD, UNKNOWN = range(4)  # kinds of answers, see `first_reaching`


class LookupRoom(NamedTuple):
    """Memory for one lookup at a time."""

    arena: Bytes  # room for the decompressed records of a batch
    records: Bytes  # the same memory, read-only
    sizes: Int64s  # room for two numbers
    outline: Int64s  # the outline of the block

    @staticmethod
    def new(numbers: int = 2**16, arena_bytes: int = 2**20) -> LookupRoom:
        """Reserve memory. A block that needs more is read without the kernel."""
        arena, outline = np.empty(arena_bytes, np.uint8), np.empty(numbers, np.int64)
        return LookupRoom(arena, fixed(arena), np.empty(2, np.int64), outline)


@njit(cache=True, nogil=True)
@meanwhile(lambda *_: False)
def put_outline(data, first_offset, end_offset, addresses, outline):
    """Put the batch headers of a block into `outline`. Return whether the block is valid.

    Returns False if a checksum or a header is wrong, if offsets do not ascend from `first_offset`
    to below `end_offset`, if `outline` is too small, or if no function for checksums is loaded.
    """
    count, _, problem = find_batches(data)
    outline[BATCHES], outline[USED] = count, FIRST + count * FIELDS
    if problem or outline[USED] > len(outline) or addresses[CRC32C] == 0:
        return False
    at, last = np.int64(0), first_offset - 1
    for place in range(FIRST, outline[USED], FIELDS):
        size = get_big_endian(data, at + LENGTH_AT, 4) + LOG_OVERHEAD
        crc = get_big_endian(data, at + CRC_AT, 4) & 0xFFFFFFFF
        base = get_big_endian(data, at + BASE_OFFSET_AT, 8)
        if base <= last or checksum(data, at + CRC_START, at + size, addresses) != crc:
            return False
        last = base + get_big_endian(data, at + LAST_OFFSET_DELTA_AT, 4)
        outline[place + POSITION], outline[place + SIZE] = at, size
        outline[place + ATTRIBUTES] = get_big_endian(data, at + ATTRIBUTES_AT, 2)
        outline[place + BASE_OFFSET], outline[place + LAST_OFFSET] = base, last
        outline[place + BASE_TIMESTAMP] = get_big_endian(data, at + BASE_TIMESTAMP_AT, 8)
        outline[place + MAX_TIMESTAMP] = get_big_endian(data, at + MAX_TIMESTAMP_AT, 8)
        outline[place + RECORDS] = get_big_endian(data, at + COUNT_AT, 4)
        outline[place + TIMES] = 0
        at += size
    return last < end_offset


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def first_reaching(outline, timestamp, from_offset):
    """Find the block's first record at or after `timestamp` with an offset >= `from_offset`.

    Returns (`FOUND`, offset, timestamp) of the record, or (`NONE`, 0, 0) if the block has no such
    record. Returns (`UNREAD`, p, 0) if the times of the batch whose fields begin at outline[p] must
    be added to the outline first.
    """
    for place in range(FIRST, FIRST + outline[BATCHES] * FIELDS, FIELDS):
        if outline[place + MAX_TIMESTAMP] < timestamp:
            continue
        at, records = outline[place + TIMES], outline[place + RECORDS]
        if at == 0:
            return UNREAD, np.int64(place), np.int64(0)
        row = np.int64(0)
        if records and outline[at] >= from_offset:
            row = np.searchsorted(outline[at + 2 * records : at + 3 * records], timestamp)
        for offset in range(at + row, at + records):
            if outline[offset] >= from_offset and outline[offset + records] >= timestamp:
                return FOUND, outline[offset], outline[offset + records]
    return NONE, np.int64(0), np.int64(0)


@njit(cache=True, nogil=True)
@meanwhile(lambda *_: (UNKNOWN, 0, 0, 0))
def read_first_reaching(
    data, before, timestamp, from_offset, first_offset, end_offset, room, addresses
):
    """Find a record like `first_reaching`, in a block with the bytes `data`.

    `before` is the outline of the block from an earlier call, or empty. The block has offsets from
    `first_offset` to `end_offset`, exclusive. The outline is written to `room`. The answer has a
    fourth number: the end of the used part of the outline. The answer is `UNKNOWN` if the block is
    damaged, or if this kernel cannot decode a batch.
    """
    outline, unknown = room.outline, (UNKNOWN, np.int64(0), np.int64(0), np.int64(0))
    # 1. Outline the block, which checks it, unless an earlier call did.
    for number in range(len(before)):  # see `seglake.compile.jit`
        outline[number] = before[number]
    if len(before) == 0 and not put_outline(data, first_offset, end_offset, addresses, outline):
        return unknown
    # 2. Search the outline, and read the times of a batch when the search needs them.
    state, place, record_time = first_reaching(outline, timestamp, from_offset)
    while state == UNREAD:
        if not read_times(data, place, room, addresses):
            return unknown
        state, place, record_time = first_reaching(outline, timestamp, from_offset)
    return state, place, record_time, outline[USED]


@njit(cache=True, nogil=True)
def read_times(data, place, room, addresses):
    """Put the times of a batch into the outline. Return False if it cannot be decoded here."""
    outline = room.outline
    attributes, at = np.int16(outline[place + ATTRIBUTES]), outline[USED]
    outline[place + TIMES] = at
    if attributes & CONTROL:
        outline[place + RECORDS] = 0
        return True
    # 1. Decompress the records, if there is room.
    start = outline[place + POSITION] + OVERHEAD
    end = outline[place + POSITION] + outline[place + SIZE]
    bound = payload_bound(data, start, end, attributes, addresses, MAX_BATCH_BYTES)
    if bound < 0 or bound > len(room.arena):
        return False
    size = put_payload(
        room.arena, np.int64(0), bound, data, start, end, attributes, addresses, room.sizes
    )
    # 2. Reserve space for the times. The count is from the header, so compare it with the bytes.
    count = outline[place + RECORDS]
    outline[USED] = at + 3 * count
    if size < 0 or count * LEAST_RECORD_BYTES > size or outline[USED] > len(outline):
        return False
    # 3. Parse the records.
    base, last = outline[place + BASE_OFFSET], outline[place + LAST_OFFSET]
    append_time = (attributes & LOG_APPEND_TIME) != 0
    batch = BatchHead(
        base, last - base, outline[place + BASE_TIMESTAMP], outline[place + MAX_TIMESTAMP],
        append_time,
    )  # fmt: skip
    times = outline[at : outline[USED]].reshape((3, count))
    return parse_times(room.records[:size], batch, times) == 0
