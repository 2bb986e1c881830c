"""The chunks of a unit become blobs: grouped by log partition, sorted, encoded once.

Bodies are encoded in one pass over a chunk, in total order; a blob is a slice of them. In a large
run the chunks are gathered first. The blobs are a function of the unit and the settings, never of
the task or machine that makes them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from seglake.config import Pipeline
from seglake.format.encode import Encoding, encode_batches, encode_bodies
from seglake.format.partitioner import partition_of
from seglake.format.records import Int32s, Int64s, Records
from seglake.write.map.gather import Gather, Grouped, Sizes
from seglake.write.map.lateness import Arrivals
from seglake.write.rows.records import BrokerFields, RejectedRows
from seglake.write.spool.merge_order import sort_order
from seglake.write.spool.packing import pack_batches, pack_rejects
from seglake.write.spool.sorted_records import SortedRecords
from seglake.write.spool.spool import BATCHES, RECORDS, REJECTS, Blob


class BlobMaker:
    """Makes the blobs of one unit; a context manager that frees what it gathered.

    With an `encoding` (arrival order) records stay as they stand, and blobs are finished record
    batches. Without one, blobs are sorted records.
    """

    def __init__(
        self, pipeline: Pipeline, sizes: Sizes, unit: int, encoding: Encoding | None = None
    ) -> None:
        self._partitions, self._sizes = pipeline.topic.partitions, sizes
        self._gather = Gather(self._partitions, sizes.gather_bytes)
        self._by_time = pipeline.order == "time"
        self._unit, self._encoding = unit, encoding
        self._number = 0
        self._first_null = unit  # null keys of different units begin at different partitions
        self.arrivals = Arrivals(pipeline.topic.partitions)

    def blobs(
        self,
        records: Records,
        partitions: Int32s | None,
        tie_breakers: Int64s | None = None,
        broker_fields: BrokerFields | None = None,
    ) -> Iterator[Blob]:
        """The blobs that the next chunk completes.

        Without `partitions` the record keys choose the log partitions. Without `tie_breakers`
        records with equal sort keys stay in the order of the chunk. `broker_fields` have the
        offsets that the records keep, which then are the sort keys.
        """
        if partitions is None:
            partitions = partition_of(records.keys, self._partitions, first_null=self._first_null)
            self._first_null += int(np.count_nonzero(records.keys.lengths < 0))
        self.arrivals.add(records.timestamps, partitions)
        order, ends = _grouped(partitions, self._partitions)
        sort_keys = records.timestamps
        if broker_fields is not None:
            sort_keys, tie_breakers = broker_fields.offsets, broker_fields.stamped.astype(np.int64)
        elif tie_breakers is not None and not self._by_time:
            sort_keys = np.zeros_like(tie_breakers)
        gathers = bool(self._sizes.gather_bytes)
        if self._encoding is None and not gathers:
            _sort_groups(order, ends, sort_keys, tie_breakers)
        bodies = encode_bodies(records, order)
        timestamps = records.timestamps[order]
        ordered = timestamps if sort_keys is records.timestamps else sort_keys[order]
        ties = None if tie_breakers is None else tie_breakers[order]
        chunk = Grouped(SortedRecords(ordered, ties, timestamps, bodies), ends)
        if not gathers:
            yield from self._divided(chunk)
            return
        self._gather.add(chunk)
        if self._gather.size_bytes >= self._sizes.gather_bytes:
            yield from self.rest()

    def rest(self) -> Iterator[Blob]:
        """The blobs of what is gathered: all that the unit's chunks left."""
        for records, partitions in self._gather.take():
            yield from self._divided(self._regrouped(records, partitions))

    def _regrouped(self, records: SortedRecords, partitions: Int32s) -> Grouped:
        """Records of several chunks as one chunk."""
        order, ends = _grouped(partitions, self._partitions)
        if self._encoding is None:
            _sort_groups(order, ends, records.sort_keys, records.tie_breakers)
        return Grouped(records.taken(order).detached(), ends)

    def _divided(self, chunk: Grouped) -> Iterator[Blob]:
        start = 0
        for partition, end in enumerate(chunk.ends.tolist()):
            if start < end:
                group = chunk.records.part(start, end)
                parts = [group] if self._encoding else _parts(group, self._sizes.blob_bytes)
                yield from (self._blob(partition, part) for part in parts)
            start = end

    def __enter__(self) -> BlobMaker:
        return self

    def __exit__(self, *error: object) -> None:
        self._gather.__exit__(*error)

    def _blob(self, partition: int, records: SortedRecords) -> Blob:
        self._number += 1
        blob = Blob(
            RECORDS, self._unit, partition=partition, number=self._number, records=len(records)
        )
        if self._encoding is not None:
            batches = encode_batches(records.timestamps, records.bodies, self._encoding)
            size = len(batches.data)
            return blob._replace(kind=BATCHES, size_bytes=size, data=pack_batches(batches))
        ties = records.tie_breakers
        return blob._replace(
            data=records,
            size_bytes=int(records.bodies.sizes.sum()),
            sort_key=int(records.sort_keys[0]),
            tie_breaker=0 if ties is None else int(ties[0]),
            last_sort_key=int(records.sort_keys[-1]),
            last_tie_breaker=0 if ties is None else int(ties[-1]),
        )


def reject_blob(unit: int, split: int, rejects: RejectedRows, file: str) -> Blob:
    """The rejects of one split of the file at the path `file`."""
    name = rejects.path.removeprefix(f"{file}!")
    member = None if name == rejects.path else (name, rejects.path_line)
    data = pack_rejects(split, rejects.lines, rejects.reasons, rejects.raw, member)
    size = int(np.maximum(rejects.raw.lengths, 0).sum(dtype=np.int64))
    return Blob(REJECTS, unit, data, records=len(rejects), size_bytes=size)


def _grouped(partitions: Int32s, count: int) -> tuple[Int64s, Int64s]:
    """Positions sorted by partition (stable), and where the positions of each partition end."""
    narrow = partitions.astype(np.uint16) if count <= 2**16 else partitions
    order = np.argsort(narrow, kind="stable")  # a radix sort for 16-bit integers
    return order, np.cumsum(np.bincount(partitions, minlength=count))


def _sort_groups(order: Int64s, ends: Int64s, sort_keys: Int64s, ties: Int64s | None) -> None:
    """Sort the positions of each partition in place."""
    start = 0
    for end in ends.tolist():
        group = order[start:end]
        group[:] = group[sort_order(sort_keys[group], None if ties is None else ties[group])]
        start = end


def _parts(records: SortedRecords, max_bytes: int) -> Iterator[SortedRecords]:
    """The records in parts of about `max_bytes` of bodies."""
    begins = records.bodies.starts - records.bodies.starts[0]
    count = int(begins[-1]) // max_bytes + 1
    edges = np.unique(np.searchsorted(begins, np.arange(count) * max_bytes)).tolist()
    for start, end in zip(edges, [*edges[1:], len(records)], strict=True):
        yield records.part(start, end)
