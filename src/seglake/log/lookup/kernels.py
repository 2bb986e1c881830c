"""The compiled loop of lookups: from the bytes of an index block to a record in one call.

What is known of a block is one array: how many batches it has, where the array ends, and for each
batch the fields below. Behind them come the times of the batches that were searched: offsets,
timestamps, running maximum of the timestamps.
"""

import numpy as np

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
    MAX_TIMESTAMP_AT,
    OVERHEAD,
)
from seglake.format.codecs.kernels import CRC32C, checksum, payload_bound, put_payload
from seglake.format.decode_kernels import find_batches, get_big_endian, parse_times
from seglake.jit import njit

BATCHES, USED, FIRST = range(3)  # of the array; the fields of the first batch begin at `FIRST`
FIELDS = 9
(
    POSITION, SIZE, ATTRIBUTES, BASE_OFFSET, LAST_OFFSET, BASE_TIMESTAMP, MAX_TIMESTAMP, RECORDS,
    TIMES,  # where its times begin; 0: it was not searched
) = range(FIELDS)  # fmt: skip
FOUND, NONE, UNREAD, UNKNOWN = range(4)  # what `first_reaching` knows


@njit(cache=True, nogil=True)
def survey(data, first_offset, end_offset, addresses, known):
    """Put the batches of a block into `known`, and return whether all is as it must be.

    It is not if a checksum or a header is wrong, if offsets do not ascend from `first_offset` to
    below `end_offset`, or if there is no room or no function for checksums.
    """
    count, _, problem = find_batches(data)
    known[BATCHES], known[USED] = count, FIRST + count * FIELDS
    if problem or known[USED] > len(known) or addresses[CRC32C] == 0:
        return False
    at, last = np.int64(0), first_offset - 1
    for place in range(FIRST, known[USED], FIELDS):
        size = get_big_endian(data, at + LENGTH_AT, 4) + LOG_OVERHEAD
        crc = get_big_endian(data, at + CRC_AT, 4) & 0xFFFFFFFF
        base = get_big_endian(data, at + BASE_OFFSET_AT, 8)
        if base <= last or checksum(data, at + CRC_START, at + size, addresses) != crc:
            return False
        last = base + get_big_endian(data, at + LAST_OFFSET_DELTA_AT, 4)
        known[place + POSITION], known[place + SIZE] = at, size
        known[place + ATTRIBUTES] = get_big_endian(data, at + ATTRIBUTES_AT, 2)
        known[place + BASE_OFFSET], known[place + LAST_OFFSET] = base, last
        known[place + BASE_TIMESTAMP] = get_big_endian(data, at + BASE_TIMESTAMP_AT, 8)
        known[place + MAX_TIMESTAMP] = get_big_endian(data, at + MAX_TIMESTAMP_AT, 8)
        known[place + RECORDS] = get_big_endian(data, at + COUNT_AT, 4)
        known[place + TIMES] = 0
        at += size
    return last < end_offset


@njit(cache=True, nogil=True)
def first_reaching(known, timestamp, from_offset):
    """The block's first record at `timestamp` or later with an offset >= `from_offset`.

    (`FOUND`, its offset, its timestamp), or (`NONE`, 0, 0). (`UNREAD`, p, 0) if the batch whose
    fields begin at known[p] has to be searched first.
    """
    for place in range(FIRST, FIRST + known[BATCHES] * FIELDS, FIELDS):
        if known[place + MAX_TIMESTAMP] < timestamp:
            continue
        at, records = known[place + TIMES], known[place + RECORDS]
        if at == 0:
            return UNREAD, np.int64(place), np.int64(0)
        row = np.int64(0)
        if records and known[at] >= from_offset:
            row = np.searchsorted(known[at + 2 * records : at + 3 * records], timestamp)
        for offset in range(at + row, at + records):
            if known[offset] >= from_offset and known[offset + records] >= timestamp:
                return FOUND, known[offset], known[offset + records]
    return NONE, np.int64(0), np.int64(0)


@njit(cache=True, nogil=True)
def read_first_reaching(
    data, before, timestamp, from_offset, first_offset, end_offset,
    addresses, max_bytes, arena, sizes, known,
):  # fmt: skip
    """`first_reaching` in a block with the bytes `data`; `before` is what was known of it, if any.

    The answer has a fourth number: up to where `known` is filled. `UNKNOWN` if something is
    damaged, or not for this kernel.
    """
    known[: len(before)] = before
    if len(before) == 0 and not survey(data, first_offset, end_offset, addresses, known):
        return UNKNOWN, np.int64(0), np.int64(0), np.int64(0)
    state, place, found = first_reaching(known, timestamp, from_offset)
    while state == UNREAD:
        if not _read_times(data, known, place, addresses, max_bytes, arena, sizes):
            return UNKNOWN, np.int64(0), np.int64(0), np.int64(0)
        state, place, found = first_reaching(known, timestamp, from_offset)
    return state, place, found, known[USED]


@njit(cache=True, nogil=True)
def _read_times(data, known, place, addresses, max_bytes, arena, sizes):
    """Put the times of a batch into `known`; returns whether they are there."""
    attributes, at = known[place + ATTRIBUTES], known[USED]
    known[place + TIMES] = at
    if attributes & CONTROL:
        known[place + RECORDS] = 0
        return True
    start, end = known[place + POSITION] + OVERHEAD, known[place + POSITION] + known[place + SIZE]
    bound = payload_bound(data, start, end, attributes, addresses, max_bytes)
    if bound < 0 or bound > len(arena):
        return False
    size = put_payload(arena, 0, bound, data, start, end, attributes, addresses, sizes)
    count = known[place + RECORDS]
    known[USED] = at + 3 * count
    if size < 0 or count * LEAST_RECORD_BYTES > size or known[USED] > len(known):
        return False
    append_time = known[place + MAX_TIMESTAMP] if attributes & LOG_APPEND_TIME else np.int64(-1)
    base, last = known[place + BASE_OFFSET], known[place + LAST_OFFSET]
    times = known[at : known[USED]].reshape((3, count))
    problem = parse_times(
        arena[:size], base, last - base, known[place + BASE_TIMESTAMP], append_time, times
    )
    return problem == 0
