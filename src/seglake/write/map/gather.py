"""What a unit of a large run gathers before it makes blobs, so that blobs are few and large.

A chunk of an input with thousands of log partitions has a few KB for each, and the driver plans
with a row for each blob. So a large run has large units (`sizes_of`), whose chunks are put aside
until the unit ends, compressed, by ranges of log partitions. Then each range makes blobs of all its
records.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from seglake.config import Pipeline
from seglake.format.records import Int32s, Int64s
from seglake.write.spool.packing import expand_records, squeeze_records
from seglake.write.spool.scratch import Scratch
from seglake.write.spool.sorted_records import SortedRecords, joined

_FEW_BLOBS = 100_000  # of a run that gathers nothing
_SHARE_BYTES = 2 * 2**20  # of a unit's input for each log partition: some 700 KB in the spool
_UNIT_BYTES = 256 * 2**20  # some seconds of a core
_CORES, _MANY_CORES = 64, 1024  # that get a unit; many if a unit has `_UNIT_BYTES` then
_MOST_BLOBS = 3_000_000  # of a run: planning takes half a KB for each in the driver
_RANGE_BYTES = 16 * 2**20  # of records that become blobs together; half if input was not packed


class Sizes(NamedTuple):
    """How the map side divides a run: a function of its input and settings, never of the cluster.

    `unit_bytes` is the input of a unit, as stored, and `blob_bytes` the records of a blob.
    `gather_bytes` are the records that a unit gathers before it makes blobs; with 0 each chunk
    makes its own.
    """

    unit_bytes: int
    blob_bytes: int
    gather_bytes: int = 0


def sizes_of(input_bytes: int, pipeline: Pipeline) -> Sizes:
    """The sizes of a run with so much input, as stored; those of a small run for 0."""
    partitions, task = pipeline.topic.partitions, pipeline.task
    least = input_bytes // _MOST_BLOBS
    blob_bytes = max(task.blob_bytes, 2 * least)  # so most shares are one blob
    if input_bytes // task.split_bytes * partitions < _FEW_BLOBS:
        return Sizes(task.split_bytes, blob_bytes)
    spread = max(min(_UNIT_BYTES, input_bytes // _CORES), input_bytes // _MANY_CORES)
    unit_bytes = max(min(partitions * _SHARE_BYTES, spread), partitions * least, task.split_bytes)
    return Sizes(unit_bytes, blob_bytes, 2 * unit_bytes)  # of input that is compressed


def sizes_of_frame(pipeline: Pipeline) -> Sizes:
    """The sizes of a run of a DataFrame, each of whose partitions is a unit.

    Nobody knows how large it is before it is read. So a unit gathers all it can if its chunks have
    less than a blob for each log partition.
    """
    sizes = sizes_of(0, pipeline)
    is_spread = pipeline.task.chunk_bytes < pipeline.topic.partitions * sizes.blob_bytes
    return sizes._replace(gather_bytes=2 * _UNIT_BYTES) if is_spread else sizes


class Grouped(NamedTuple):
    """Records by log partition: those of partition p end at position ends[p]."""

    records: SortedRecords
    ends: Int64s


class Gather:
    """The chunks of one unit, put aside; a context manager that frees what they take."""

    def __init__(self, partitions: int, gather_bytes: int) -> None:
        ranges = max(min(partitions, -(-gather_bytes // _RANGE_BYTES)), 1)
        self._edges = (np.arange(ranges + 1) * partitions // ranges).tolist()
        self._scratch = Scratch()
        self._counts: list[Int32s] = []  # of each chunk's records by log partition
        self.size_bytes = 0  # of the records' bodies

    def add(self, chunk: Grouped) -> None:
        """Put a chunk aside. Raises StoreError if the machine's disk does not take it."""
        bounds = pairwise(np.append(0, chunk.ends)[self._edges].tolist())
        parts = (chunk.records.part(*each) for each in bounds)
        self._scratch.add([squeeze_records(part) if len(part) else b"" for part in parts])
        self._counts.append(np.diff(chunk.ends, prepend=0).astype(np.int32))
        self.size_bytes += int(chunk.records.bodies.sizes.sum())

    def take(self) -> Iterator[tuple[SortedRecords, Int32s]]:
        """Records and the log partition of each, in the order of the chunks; all are gone then.

        A log partition comes in one part, or in several if it is large.
        """
        for number in range(len(self._edges) - 1):
            yield from self._range(number)
        self._scratch.clear()
        self._counts, self.size_bytes = [], 0

    def _range(self, number: int) -> Iterator[tuple[SortedRecords, Int32s]]:
        parts, partitions, size = list[SortedRecords](), list[Int32s](), 0
        first, end = self._edges[number], self._edges[number + 1]
        names = np.arange(first, end, dtype=np.int32)
        for chunk, data in self._scratch.of(number):
            parts.append(expand_records(data))
            partitions.append(np.repeat(names, self._counts[chunk][first:end]))
            size += parts[-1].size_bytes
            if size >= 3 * _RANGE_BYTES // 2:  # some log partitions have much more than others
                yield joined(parts), np.concatenate(partitions)
                parts, partitions, size = [], [], 0
        if parts:
            yield joined(parts), np.concatenate(partitions)

    def __enter__(self) -> Gather:
        return self

    def __exit__(self, *error: object) -> None:
        self._scratch.__exit__(*error)
