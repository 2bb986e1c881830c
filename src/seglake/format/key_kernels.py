"""Hash keys and numbers, and find the blocks that may have a hash, in compiled kernels.

The hash is MurmurHash64A (Appleby) with the seed 0. Keys that are made to collide make a search
slower, but never wrong.
"""

from typing import Any

import numpy as np

from seglake.compile.jit import njit
from seglake.format.batch import CONTROL
from seglake.format.decode_kernels import (
    batch_head,
    get_varint,
    next_record,
    record_body,
    uncounted,
)
from seglake.format.encode_kernels import put_bytes
from seglake.format.records import Bytes, Int64s

REST_BITS = 4  # bits of a hash that are stored with each pair
_PLUS, _MINUS, _POINT, _ZERO, _E = b"+-.0e"
_DIGITS, _DIGIT_BITS = 4, 14  # digits of the sort, which cover the 56 bits of a hash in a pair
PAIRS, POSITION, FIRST_BLOCK = range(3)  # columns of a row of `pages`


@njit(cache=True, nogil=True, forceinline=True)
def word_at(data: Any, at: int) -> Any:
    """Return the eight bytes from `at` on, little-endian."""
    return (
        np.uint64(data[at])
        | np.uint64(data[at + 1]) << np.uint64(8)
        | np.uint64(data[at + 2]) << np.uint64(16)
        | np.uint64(data[at + 3]) << np.uint64(24)
        | np.uint64(data[at + 4]) << np.uint64(32)
        | np.uint64(data[at + 5]) << np.uint64(40)
        | np.uint64(data[at + 6]) << np.uint64(48)
        | np.uint64(data[at + 7]) << np.uint64(56)
    )


@njit(cache=True, nogil=True)
def hash_of(data: Bytes, start: int, length: int) -> Any:
    """Return the hash of data[start : start + length]."""
    factor = np.uint64(0xC6A4A7935BD1E995)
    value = np.uint64(length) * factor
    at, end = start, start + length
    while at + 8 <= end:
        word = word_at(data, at)
        word *= factor
        word ^= word >> np.uint64(47)
        value = (value ^ word * factor) * factor
        at += 8
    if at < end:
        shift = np.uint64(0)
        while at < end:
            value ^= np.uint64(data[at]) << shift
            shift += np.uint64(8)
            at += 1
        value *= factor
    value ^= value >> np.uint64(47)
    value *= factor
    return value ^ (value >> np.uint64(47))


@njit(cache=True, nogil=True)
def hash_spans(data: Bytes, starts: Int64s, lengths: Int64s, hashes: Any) -> None:
    """Fill `hashes` with the hash of each span. Spans are not null."""
    for i in range(len(starts)):
        hashes[i] = hash_of(data, starts[i], lengths[i])


@njit(cache=True, nogil=True)
def hash_numbers(
    data: Bytes, starts: Int64s, lengths: Int64s, room: Any, written: Bytes, hashes: Any
) -> None:
    """Fill `hashes` with the hashes of JSON numbers. Equal numbers (200, 2e2) have equal hashes.

    The hash is of the sign, the digits without the zeros at both ends, and the power of ten of the
    last digit. `room` is a buffer with 9 bytes more than the longest number. `written` is the same
    memory, read-only, so that numba compiles `hash_of` only once.
    """
    for i in range(len(starts)):
        at, end = starts[i], starts[i] + lengths[i]
        minus = data[at] == _MINUS
        at += minus
        count, after_point, power = 1, 0, np.int64(0)
        while at < end and data[at] | 0x20 != _E:
            if data[at] == _POINT:
                after_point = 1
            else:
                power -= after_point
                if count > 1 or data[at] != _ZERO:
                    room[count] = data[at]
                    count += 1
            at += 1
        power += _exponent(data, at + 1, end)
        while count > 1 and room[count - 1] == _ZERO:
            count -= 1
            power += 1
        room[0] = minus and count > 1
        if count == 1:
            power = np.int64(0)
        for k in range(8):
            room[count + k] = (power >> (8 * k)) & 0xFF
        hashes[i] = hash_of(written, 0, count + 8)


@njit(cache=True, nogil=True)
def _exponent(data: Bytes, at: int, end: int) -> Any:
    """Parse an integer with an optional sign. Empty text is 0. The result is limited to 10^18."""
    if at >= end:
        return np.int64(0)
    minus, value = data[at] == _MINUS, np.int64(0)
    at += minus or data[at] == _PLUS
    while at < end:
        value = value * 10 + (data[at] - _ZERO) if value < 10**17 else np.int64(10**18)
        at += 1
    return -value if minus else value


@njit(cache=True, nogil=True)
def hash_bodies(
    starts: Int64s, sizes: Int64s, data: Bytes, room: Any, copied: Bytes, hashes: Any, has_key: Any
) -> None:
    """Hash the key of each body that has a key.

    Bodies may be in other buffers than `data`, so each body is copied to `room` first, a buffer for
    the largest body. `copied` is the same memory, read-only.
    """
    for i in range(len(starts)):
        end = put_bytes(room, 0, data, starts[i], min(sizes[i], len(room)))
        length, at = get_varint(copied, 0, end, 5)
        if length >= 0:
            hashes[i], has_key[i] = hash_of(copied, at, length), True


@njit(cache=True, nogil=True)
def hash_keys(
    table: Any, data: Bytes, starts: Int64s, ends: Int64s, hashes: Any, batches: Any
) -> tuple[int, int, int]:
    """Hash the keys of all records, without null keys and without the records of control batches.

    The decompressed records of batch b are data[starts[b] : ends[b]]. batches[i] receives the batch
    of hashes[i]. Returns (number of hashes, 0, 0), or (_, batch, problem) for the first damaged
    batch.
    """
    data, n = uncounted(data), 0
    for b in range(len(table)):
        if table[b].attributes & CONTROL:
            continue
        batch, at, end, previous = batch_head(table[b]), starts[b], ends[b], np.int64(-1)
        for _ in range(table[b].count):
            record = next_record(data, at, end, batch, previous)
            if record.problem:
                return n, b, record.problem
            at, previous = record.end, record.offset_delta
            body = record_body(data, record.body, record.end)
            if body.problem:
                return n, b, body.problem
            if body.key_length >= 0:
                hashes[n] = hash_of(data, body.key_start, body.key_length)
                batches[n] = b
                n += 1
    return n, 0, 0


@njit(cache=True, nogil=True)
def sort_pairs(pairs: Any, room: Any) -> int:
    """Sort pairs of a hash and a block, drop duplicates, and return how many remain.

    The last byte of a pair is its block. Blocks ascend, so a stable sort by the digits of the hash
    keeps them in order. `room` has as many items as `pairs`.
    """
    mask = np.uint64((1 << _DIGIT_BITS) - 1)
    places = np.zeros((_DIGITS, 1 << _DIGIT_BITS), np.int64)
    for i in range(len(pairs)):
        rest = pairs[i] >> np.uint64(8)
        for k in range(_DIGITS):
            places[k, rest & mask] += 1
            rest >>= np.uint64(_DIGIT_BITS)
    for k in range(_DIGITS):
        before = np.int64(0)
        for digit in range(1 << _DIGIT_BITS):
            here = places[k, digit]
            places[k, digit] = before
            before += here
        shift = np.uint64(8 + k * _DIGIT_BITS)
        source, target = (pairs, room) if k % 2 == 0 else (room, pairs)
        for i in range(len(source)):
            place = np.int64(source[i] >> shift & mask)
            target[places[k, place]] = source[i]
            places[k, place] += 1
    count = 0
    for i in range(len(pairs)):
        if count == 0 or pairs[i] != pairs[count - 1]:
            pairs[count] = pairs[i]
            count += 1
    return count


@njit(cache=True, nogil=True, forceinline=True)
def _ones(word: Any) -> Any:
    """Count the set bits of a 64-bit word."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + (
        (word >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(cache=True, nogil=True)
def mark_blocks(data: Bytes, words: Any, pages: Int64s, hashes: Any, marks: Any) -> None:
    """Set marks[b] for each block b of the pages that may hold a key with one of the hashes.

    `hashes` ascend. `data` is the file, and `words` the file as 64-bit words. A row of `pages` has
    a page's number of pairs, its position in the file, and its first block.
    """
    for p in range(len(pages)):
        pairs, position, first = pages[p, PAIRS], pages[p, POSITION], pages[p, FIRST_BLOCK]
        bits = 2 * pairs
        start = position >> 3
        blocks_at = position + 8 * ((bits + 63) >> 6)
        rests_at = blocks_at + pairs
        last, word, zeros = (bits - 1) >> 6, np.int64(0), np.int64(0)  # zeros before `word`
        for i in range(len(hashes) if pairs else 0):
            scaled = (hashes[i] >> np.uint64(32)) * np.uint64(pairs << REST_BITS) >> np.uint64(32)
            bucket, rest = np.int64(scaled >> np.uint64(REST_BITS)), np.int64(scaled) & 15
            more = 64 - _ones(words[start + word])
            while zeros + more < bucket and word < last:
                zeros, word = zeros + more, word + 1
                more = 64 - _ones(words[start + word])
            bit, left, bucket_word = np.int64(0), bucket - zeros, words[start + word]
            while left > 0 and bit < 64:
                left -= 1 - np.int64((bucket_word >> np.uint64(bit)) & np.uint64(1))
                bit += 1
            bit += word << 6
            while bit < bits and (words[start + (bit >> 6)] >> np.uint64(bit & 63)) & np.uint64(1):
                entry = bit - bucket
                half = np.int64(data[rests_at + (entry >> 1)]) >> (4 * (entry & 1))
                if (half & 15) == rest:
                    marks[first + np.int64(data[blocks_at + entry])] = True
                bit += 1
