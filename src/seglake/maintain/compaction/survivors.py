"""Between the passes: the records that stay, found bucket by bucket, kept as offsets by segment.

A record stays if it is the last one of its key, unless it is a tombstone whose delete horizon has
passed (`Cleaner.shouldRetainRecord`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import lz4.block
import numpy as np
import pyarrow as pa

from seglake.format.records import Bytes, Int64s, fixed
from seglake.maintain.compaction import latest_kernels
from seglake.maintain.compaction.keys import KeyTable
from seglake.maintain.compaction.latest_kernels import EXPIRED, FLAG_BITS, FRESH, Words
from seglake.store import Store
from seglake.write.spool.spool import Blob, SpoolWriter, read_blobs

# Kinds of blobs: all offsets that stay; the fresh tombstones among them.
SURVIVORS, TOMBSTONES = 0, 1


class BlobBucket(NamedTuple):
    """The blobs of one bucket of a log partition.

    Segment i of the round covers offsets edges[i] to edges[i + 1], exclusive.
    """

    partition: int
    edges: Int64s
    spooled: pa.Table

    @property
    def rows(self) -> int:
        """The rows of its blobs."""
        return int(self.spooled["records"].to_numpy().sum())


class Survivors(NamedTuple):
    """The blobs of the offsets that stay, by partition and segment (`unit`), of both kinds.

    By partition: `keys` has the number of keys, `expired` that of the tombstones that go.
    """

    spooled: pa.Table
    keys: Counter[int]
    expired: Counter[int]


class FindSurvivors(NamedTuple):
    """The task: buckets → the offsets that stay."""

    store: Store
    attempt_id: str

    def __call__(self, buckets: Sequence[BlobBucket]) -> Survivors:
        """Read the blobs of some buckets, one bucket after another."""
        keys, expired = Counter[int](), Counter[int]()
        with SpoolWriter(self.store, self.attempt_id) as spool:
            for bucket in buckets:
                entries = self._entries(bucket)
                gone = (entries & np.uint64(EXPIRED)) != 0
                keys[bucket.partition] += len(entries)
                expired[bucket.partition] += int(gone.sum())
                _spread(bucket, SURVIVORS, entries[~gone], spool)
                fresh = (entries & np.uint64(FRESH)) != 0
                _spread(bucket, TOMBSTONES, entries[fresh], spool)
        return Survivors(spool.rows(), keys, expired)

    def _entries(self, bucket: BlobBucket) -> Words:
        """The entries of all keys, in the order of offsets."""
        table = KeyTable(bucket.rows)
        for blob in read_blobs(self.store, bucket.spooled):
            table.put_rows(blob.data)
        (rows,) = table.take(1)
        entries: Words = np.sort(rows[:, 2])
        return entries


def _spread(bucket: BlobBucket, kind: int, entries: Words, spool: SpoolWriter) -> None:
    """Write the offsets of each segment as a blob."""
    edges = bucket.edges
    offsets = (entries >> np.uint64(FLAG_BITS)).astype(np.int64) - 1 + edges[0]
    cuts = np.searchsorted(offsets, edges)
    for segment in np.flatnonzero(np.diff(cuts)).tolist():
        part = offsets[cuts[segment] : cuts[segment + 1]] - edges[segment]
        blob = Blob(kind, segment, _pack(part), bucket.partition, records=len(part))
        spool.add(blob)


def bitmap(store: Store, spooled: pa.Table, first: int, edges: Int64s) -> Bytes:
    """The blobs of some segments of the round as a bitmap: bit n is offset edges[0] + n.

    Segment `first` + i covers offsets edges[i] to edges[i + 1]. Parts of a bitmap that have no bit
    take no memory.
    """
    bits = np.zeros((int(edges[-1] - edges[0]) + 7) // 8, np.uint8)
    for blob in read_blobs(store, spooled):
        base = edges[blob.row["unit"] - first] - edges[0]
        latest_kernels.set_bits(bits, fixed(_unpack(blob.data) + base))
    return bits


def _pack(ascending: Int64s) -> bytes:
    """Relative offsets: differences, byte plane by byte plane, compressed."""
    steps = np.diff(ascending, prepend=0).astype("<u4")  # a segment covers at most 2^31 offsets
    packed: bytes = lz4.block.compress(steps.view(np.uint8).reshape(-1, 4).T.tobytes())
    return packed


def _unpack(data: Any) -> Int64s:
    planes = np.frombuffer(lz4.block.decompress(data), np.uint8).reshape(4, -1)
    steps = np.ascontiguousarray(planes.T).view("<u4").reshape(-1)
    return np.cumsum(steps, dtype=np.int64)
