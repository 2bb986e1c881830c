"""Hash keys, and keep a table of the last record of each key, in compiled kernels.

The hash is SipHash-2-4 with a 128-bit result (Aumasson and Bernstein). A person who does not know
the key of the hash cannot make two record keys collide. By chance, two of a billion keys collide
with odds of 1 to 10^20.

The table has open addressing. `slots` has the shape (a power of two, 3). A row has the two words of
a hash, and an entry. The low bits of an entry are the flags FRESH and EXPIRED. The bits above them
are the record's offset minus the first offset of the round, plus 1. So an entry of 0 is an empty
slot.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.compile.jit import njit
from seglake.format.key_kernels import word_at
from seglake.format.records import Bytes, Int32s, Int64s

Words = npt.NDArray[np.uint64]

EXPIRED = 1  # a tombstone whose delete horizon has passed
FRESH = 2  # a tombstone that gets its delete horizon now
FLAG_BITS = 2


class KeyedRecords(NamedTuple):
    """Keys and offsets of the records of batches. A tombstone in batch b has the flags flags[b]."""

    data: Bytes  # of the keys
    starts: Int64s
    lengths: Int32s
    value_lengths: Int32s
    offsets: Int64s
    batch: Int32s
    flags: Bytes


# This number of keys is first hashed and then put, so that the cache misses of the keys overlap.
_AT_ONCE = 1024


@njit(cache=True, nogil=True, forceinline=True)
def _turned(word: Any, bits: int) -> Any:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@njit(cache=True, nogil=True, forceinline=True)
def _round(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    v0 += v1
    v1 = _turned(v1, 13) ^ v0
    v0 = _turned(v0, 32)
    v2 += v3
    v3 = _turned(v3, 16) ^ v2
    v0 += v3
    v3 = _turned(v3, 21) ^ v0
    v2 += v1
    v1 = _turned(v1, 17) ^ v2
    return v0, v1, _turned(v2, 32), v3


@njit(cache=True, nogil=True)
def sip_hash_of(data: Bytes, start: int, length: int, low: Any, high: Any) -> Any:
    """Return the two words of the hash of data[start : start + length].

    `low` and `high` are the key of the hash.
    """
    v0 = low ^ np.uint64(0x736F6D6570736575)
    v1 = high ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
    v2 = low ^ np.uint64(0x6C7967656E657261)
    v3 = high ^ np.uint64(0x7465646279746573)
    at, end = start, start + length
    while at + 8 <= end:
        word = word_at(data, at)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
        at += 8
    word, shift = np.uint64(length) << np.uint64(56), np.uint64(0)
    while at < end:
        word |= np.uint64(data[at]) << shift
        shift += np.uint64(8)
        at += 1
    v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= np.uint64(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    first = v0 ^ v1 ^ v2 ^ v3
    v1 ^= np.uint64(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return first, v0 ^ v1 ^ v2 ^ v3


@njit(cache=True, nogil=True, inline="always")
def _put(slots: Words, first: Any, second: Any, entry: Any) -> int:
    """Put the entry of a hash, unless the table has a larger one. Return 1 if the hash is new."""
    mask = np.uint64(len(slots) - 1)
    at = first & mask
    while slots[at, 2]:
        if slots[at, 0] == first and slots[at, 1] == second:
            slots[at, 2] = max(slots[at, 2], entry)
            return 0
        at = (at + np.uint64(1)) & mask
    slots[at, 0], slots[at, 1], slots[at, 2] = first, second, entry
    return 1


@njit(cache=True, nogil=True)
def put_records(
    records: KeyedRecords, first_offset: int, log_start: int, seed: Words, row: int, slots: Words,
    used: int, limit: int,
) -> tuple[int, int, int, int]:  # fmt: skip
    """Put the records from `row` on in the table, until the table has `limit` keys.

    Records below `log_start` and records with a null key are skipped. Return (next, used, records,
    nulls): the first row that was not read, the number of keys in the table, the number of records
    that were read at or above `log_start`, and the number of null keys in these records.
    """
    seen, nulls = 0, 0
    low, high = seed[0], seed[1]
    block = np.empty((_AT_ONCE, 3), np.uint64)
    while row < len(records.offsets) and used < limit:
        end = min(row + min(_AT_ONCE, limit - used), len(records.offsets))
        count = 0
        while row < end:
            if records.offsets[row] >= log_start:
                seen += 1
                if records.lengths[row] < 0:
                    nulls += 1
                else:
                    first, second = sip_hash_of(
                        records.data, records.starts[row], records.lengths[row], low, high
                    )
                    entry = np.uint64(records.offsets[row] - first_offset + 1) << np.uint64(
                        FLAG_BITS
                    )
                    if records.value_lengths[row] < 0:
                        entry |= np.uint64(records.flags[records.batch[row]])
                    block[count, 0], block[count, 1], block[count, 2] = first, second, entry
                    count += 1
            row += 1
        for i in range(count):
            used += _put(slots, block[i, 0], block[i, 1], block[i, 2])
    return row, used, seen, nulls


@njit(cache=True, nogil=True)
def put_entries(rows: Words, slots: Words, used: int) -> int:
    """Put rows of other tables into a table, which must have space. Return its number of keys."""
    for i in range(len(rows)):
        used += _put(slots, rows[i, 0], rows[i, 1], rows[i, 2])
    return used


@njit(cache=True, nogil=True, inline="always")
def _bucket(first: Any, buckets: int) -> int:
    """Return the bucket of a hash, from its high bits, because its low bits choose the slot."""
    return int((first >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32))


@njit(cache=True, nogil=True)
def take_rows(slots: Words, ends: Int64s, rows: Words) -> None:
    """Move the table into `rows`, bucket by bucket. Bucket b ends before row ends[b]."""
    buckets = len(ends)
    ends[:] = 0
    for i in range(len(slots)):
        if slots[i, 2]:
            ends[_bucket(slots[i, 0], buckets)] += 1
    total = 0
    for bucket in range(buckets):
        count = ends[bucket]
        ends[bucket] = total
        total += count
    for i in range(len(slots)):
        if slots[i, 2]:
            bucket = _bucket(slots[i, 0], buckets)
            for word in range(3):
                rows[ends[bucket], word] = slots[i, word]
            ends[bucket] += 1
            slots[i, 2] = 0


@njit(cache=True, nogil=True)
def set_bits(bits: Bytes, numbers: Int64s) -> None:
    """Set the bits with these numbers. Bit 0 is the lowest bit of the first byte."""
    for i in range(len(numbers)):
        number = numbers[i]
        bits[number >> 3] |= np.uint8(1 << (number & 7))
