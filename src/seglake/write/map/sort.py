"""The map side: chunks of records become blobs, sorted and encoded once.

A unit is what one numbered piece of the input holds: a split, or several small files. Its records
are grouped by log partition, put in the run's order, and encoded as bodies in one pass over the
chunk; what leaves is a slice of that. Which blobs come out depends on the unit and the settings
alone, never on how units are packed into tasks, so a retried task on another machine makes the same
ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from seglake.config import Pipeline
from seglake.format.batch import Encoding, encode_batches, encode_bodies
from seglake.format.compression import IDS, compressor
from seglake.format.murmur2 import partition_of
from seglake.format.records import Int32s, Int64s, Records
from seglake.write.map.lateness import Arrivals
from seglake.write.spool.blob import BATCHES, RECORDS, Blob, Run, pack_batches, pack_run


def encoding_of(pipeline: Pipeline, append_time_ms: int) -> Encoding:
    """How the topic's records become batches; the append time counts for LogAppendTime topics."""
    topic = pipeline.topic
    levels = {"zstd": topic.compression_zstd_level, "gzip": topic.compression_gzip_level}
    stamped = topic.message_timestamp_type == "LogAppendTime"
    return Encoding(
        compressor(topic.compression_type, levels.get(topic.compression_type)),
        IDS[topic.compression_type],
        topic.batch_size,
        append_time_ms if stamped else None,
    )


class Cutter:
    """Turns the chunks of one unit into blobs; makes finished batches where nothing is to merge."""

    def __init__(self, pipeline: Pipeline, unit: int, append_time_ms: int, *, merged: bool) -> None:
        self._partitions = pipeline.topic.partitions
        self._blob_bytes = pipeline.task.blob_bytes
        self._unit = unit
        self._sequence = 0
        self._nulls = unit  # units begin their null keys at different partitions
        self.arrivals = Arrivals(pipeline.topic.partitions)
        self._encoding = None if merged else encoding_of(pipeline, append_time_ms)

    def cut(
        self,
        records: Records,
        partitions: Int32s | None,
        keys: Int64s | None = None,
        seconds: Int64s | None = None,
    ) -> Iterator[Blob]:
        """The blobs of the next chunk.

        `keys` and `seconds` are the columns that order the run; without them, the timestamps do,
        and then the order in which the records stand.
        """
        if partitions is None:
            partitions = partition_of(records.keys, self._partitions, first_null=self._nulls)
            self._nulls += int(np.count_nonzero(records.keys.lengths < 0))
        self.arrivals.add(records.timestamps, partitions)
        keys = records.timestamps if keys is None else keys
        order, ends = _grouped(partitions, self._partitions)
        if self._encoding is None:
            _sort_groups(order, ends, keys, seconds)
        bodies = encode_bodies(records, order)
        timestamps = records.timestamps[order]
        ordered = timestamps if keys is records.timestamps else keys[order]
        run = Run(ordered, None if seconds is None else seconds[order], timestamps, bodies)
        yield from self._blobs(run, ends)

    def _blobs(self, run: Run, ends: Int64s) -> Iterator[Blob]:
        start = 0
        for partition, end in enumerate(ends.tolist()):
            if start < end:
                group = run.part(start, end)
                pieces = [group] if self._encoding else _pieces(group, self._blob_bytes)
                yield from (self._blob(partition, piece) for piece in pieces)
            start = end

    def _blob(self, partition: int, run: Run) -> Blob:
        self._sequence += 1
        name = Blob(
            RECORDS, self._unit, partition=partition, sequence=self._sequence, records=len(run)
        )
        if self._encoding is not None:
            batches = encode_batches(run.timestamps, run.bodies, self._encoding)
            size = len(batches.data)
            return name._replace(kind=BATCHES, size_bytes=size, data=pack_batches(batches))
        seconds = run.seconds if run.seconds is not None else np.zeros(len(run), np.int64)
        return name._replace(
            data=pack_run(run),
            size_bytes=int(run.bodies.sizes.sum()),
            key=int(run.keys[0]),
            second=int(seconds[0]),
            last_key=int(run.keys[-1]),
            last_second=int(seconds[-1]),
        )


def _grouped(partitions: Int32s, count: int) -> tuple[Int64s, Int64s]:
    """Positions ordered by partition, else as they stood, and where each partition's end."""
    narrow = partitions.astype(np.uint16) if count <= 2**16 else partitions
    order = np.argsort(narrow, kind="stable")  # a radix sort for 16-bit integers
    return order, np.cumsum(np.bincount(partitions, minlength=count))


def _sort_groups(order: Int64s, ends: Int64s, keys: Int64s, seconds: Int64s | None) -> None:
    """Sort each partition's positions by key, then second, then as they stood; in place."""
    start = 0
    for end in ends.tolist():
        group = order[start:end]
        if seconds is not None:
            group[:] = group[np.lexsort((seconds[group], keys[group]))]
        else:
            group[:] = group[np.argsort(keys[group], kind="stable")]
        start = end


def _pieces(run: Run, max_bytes: int) -> Iterator[Run]:
    """A run in pieces of about `max_bytes` of bodies."""
    begins = run.bodies.starts - run.bodies.starts[0]
    count = int(begins[-1]) // max_bytes + 1
    cuts = np.unique(np.searchsorted(begins, np.arange(count) * max_bytes)).tolist()
    for start, end in zip(cuts, [*cuts[1:], len(run)], strict=True):
        yield run.part(start, end)
