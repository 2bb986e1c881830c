"""Between the passes: the records that stay, found bucket by bucket, kept as offsets by segment.

A record stays if it is the last one of its key, unless it is a tombstone whose delete horizon has
passed (`Cleaner.shouldRetainRecord`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import lz4.block
import numpy as np
import pyarrow as pa

from seglake.engine import Amounts
from seglake.format.records import Bytes, Int64s, fixed
from seglake.maintain.compaction import latest_kernels
from seglake.maintain.compaction.keys import KeyTable
from seglake.maintain.compaction.latest_kernels import EXPIRED, FLAG_BITS, FRESH, Words
from seglake.store import Store
from seglake.write.spool.scratch import Scratch
from seglake.write.spool.spool import Blob, SpoolWriter, packed_rows, read_blobs, unpacked_rows

# Kinds of blobs: all offsets that stay; the fresh tombstones among them.
SURVIVORS, TOMBSTONES = 0, 1


class BlobBucket(NamedTuple):
    """The blobs of one bucket of a log partition.

    Segment i of the round covers offsets edges[i] to edges[i + 1], exclusive.
    """

    partition: int
    edges: Int64s
    packed: bytes  # rows of SPOOLED
    rows: int  # of its blobs

    @staticmethod
    def of(partition: int, edges: Int64s, spooled: pa.Table) -> BlobBucket:
        """Pack the rows of its blobs."""
        rows = int(spooled["records"].to_numpy().sum())
        return BlobBucket(partition, edges, packed_rows(spooled), rows)


class Survivors(NamedTuple):
    """The blobs of the offsets that stay, by partition and segment (`unit`), of both kinds.

    By partition: `keys` has the number of keys, `expired` that of the tombstones that go.
    """

    packed: bytes  # rows of SPOOLED
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
            for partition, own in groupby(buckets, lambda bucket: bucket.partition):
                with Scratch() as survivors, Scratch() as tombstones:
                    for bucket in own:
                        edges, entries = bucket.edges, self._entries(bucket)
                        gone = (entries & np.uint64(EXPIRED)) != 0
                        fresh = (entries & np.uint64(FRESH)) != 0
                        survivors.add(_by_segment(edges, entries[~gone]))
                        tombstones.add(_by_segment(edges, entries[fresh]))
                        keys[partition] += len(entries)
                        expired[partition] += int(gone.sum())
                    for kind, found in ((SURVIVORS, survivors), (TOMBSTONES, tombstones)):
                        _write(found, kind, partition, len(edges) - 1, spool)
        return Survivors(packed_rows(spool.rows()), keys, expired)

    def amounts(self, items: Sequence[Sequence[BlobBucket]]) -> Amounts:
        """The keys in the blobs of each item, also those that several blobs have."""
        return Amounts("keys in this wave", [sum(each.rows for each in some) for some in items])

    def _entries(self, bucket: BlobBucket) -> Words:
        """The entries of all keys, in the order of offsets."""
        table = KeyTable(bucket.rows)
        for blob in read_blobs(self.store, unpacked_rows([bucket.packed])):
            table.put_rows(blob.data)
        (rows,) = table.take(1)
        entries: Words = np.sort(rows[:, 2])
        return entries


def _by_segment(edges: Int64s, entries: Words) -> list[memoryview]:
    """The offsets of the entries in each segment, relative to its base offset."""
    offsets = (entries >> np.uint64(FLAG_BITS)).astype(np.int64) - 1 + edges[0]
    cuts = np.searchsorted(offsets, edges)
    bases = np.repeat(edges[:-1], np.diff(cuts))
    return [part.data for part in np.split(offsets - bases, cuts[1:-1])]


def _write(found: Scratch, kind: int, partition: int, segments: int, spool: SpoolWriter) -> None:
    """Write the offsets of each segment that has some as a blob."""
    for segment in range(segments):
        if data := b"".join(part for _, part in found.of(segment)):
            offsets = np.sort(np.frombuffer(data, np.int64))
            spool.add(Blob(kind, segment, _pack(offsets), partition, records=len(offsets)))


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
