"""Kafka's key hash: 32-bit murmur2 with seed 0x9747b28c (`Utils.murmur2`), and its partitioner."""

from __future__ import annotations

import numpy as np
from numba import njit

from seglake.format.records import Int32s, Spans

SEED = 0x9747B28C


@njit(cache=True, nogil=True)
def _murmur2(data, start, length):  # type: ignore[no-untyped-def]  # kernel
    m = np.uint32(0x5BD1E995)
    h = np.uint32(SEED) ^ np.uint32(length)
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
def _hash_all(data, starts, lengths, hashes):  # type: ignore[no-untyped-def]  # kernel
    for i in range(len(starts)):
        hashes[i] = _murmur2(data, starts[i], max(np.int64(lengths[i]), 0))


@njit(cache=True, nogil=True)
def _partition_all(data, starts, lengths, count, first_null, partitions):  # type: ignore[no-untyped-def]  # kernel
    nulls = np.int64(first_null)
    for i in range(len(starts)):
        if lengths[i] < 0:
            partitions[i] = nulls % count
            nulls += 1
        else:
            h = _murmur2(data, starts[i], np.int64(lengths[i]))
            partitions[i] = (np.int64(h) & 0x7FFFFFFF) % count


def murmur2(keys: Spans) -> Int32s:
    """The signed 32-bit hash of each key; a null hashes as the empty string."""
    hashes = np.empty(len(keys), np.int32)
    _hash_all(keys.data, keys.starts, keys.lengths, hashes)
    return hashes


def partition_of(keys: Spans, partition_count: int, *, first_null: int = 0) -> Int32s:
    """The partition of each key, as Kafka's producer chooses it: (hash & 0x7fffffff) % count.

    Kafka places null keys at random; here the i-th null key of the call goes to partition
    (first_null + i) % count, so that a repeated task places them as before.
    """
    partitions = np.empty(len(keys), np.int32)
    _partition_all(keys.data, keys.starts, keys.lengths, partition_count, first_null, partitions)
    return partitions
