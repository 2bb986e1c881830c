"""One stream in the order of time, out of partitions in the order of offsets, in bounded memory.

The window is cut into slices of time that fit into memory; each is collected, sorted and handed on.
Zone maps make a slice cost about what it holds where events are nearly in order. A slice that turns
out too large is cut at the median of what was collected so far, and goes on with less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from seglake.format.records import Int64s
from seglake.read.arrow import SCHEMA
from seglake.read.lookup import PartitionReader
from seglake.read.plan import ReadStats, Window, execute, pieces_in

_OUTPUT_ROWS = 65_536


def merged(
    readers: Sequence[PartitionReader],
    window: Window,
    schema: pa.Schema,
    memory_bytes: int,
    stats: ReadStats,
) -> Iterator[pa.RecordBatch]:
    """The records of `window` by (timestamp, partition, offset), as batches of `schema`."""
    names = [name for name in ("timestamp", "offset") if name not in schema.names]
    inner = pa.schema([*schema, *(SCHEMA.field(name) for name in names)])
    ordered = sorted(readers, key=lambda reader: reader.view.partition)
    start, width = window.start_ms, window.end_ms - window.start_ms
    while start < window.end_ms:
        slice_ = _Slice(start, min(start + width, window.end_ms), inner, memory_bytes, stats)
        yield from _select(slice_.records(ordered), schema)
        start, width = slice_.end_ms, slice_.next_width()


def _select(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(schema.names)


class _Slice:
    """Records with start_ms <= timestamp < end_ms; `end_ms` moves down when there are too many."""

    def __init__(
        self, start_ms: int, end_ms: int, schema: pa.Schema, memory_bytes: int, stats: ReadStats
    ) -> None:
        self.start_ms, self.end_ms = start_ms, end_ms
        self._schema, self._memory_bytes, self._stats = schema, memory_bytes, stats
        self._held: list[pa.RecordBatch] = []
        self._size = 0

    @property
    def _limit(self) -> int:
        return self._memory_bytes // 4  # what is held is copied once, to sort it

    def next_width(self) -> int:
        """How long the next slice may be to fill two thirds of its memory, if it is like this."""
        growth = min(8.0, self._limit * 2 / 3 / max(1, self._size))
        return max(1, int((self.end_ms - self.start_ms) * growth))

    def records(self, readers: Sequence[PartitionReader]) -> Iterator[pa.RecordBatch]:
        """The records in order of time; with it, `end_ms` is final."""
        for reader in readers:
            if not self._collect(reader):
                # one millisecond alone is too much; but then partition and offset are the order
                for each in readers:
                    yield from self._read(each, 0)
                return
        if self._held:
            table = pa.Table.from_batches(self._held)
            self._held = []
            yield from _sorted(table).to_batches(max_chunksize=_OUTPUT_ROWS)

    def _collect(self, reader: PartitionReader) -> bool:
        """Hold a partition's records; False if not even one millisecond of them fits."""
        following = self._hold(reader, 0)
        while following is not None:
            if not self._narrow():
                return False
            following = self._hold(reader, following)
        return True

    def _hold(self, reader: PartitionReader, offset: int) -> int | None:
        """Hold records from `offset` on; the offset to go on from if there are too many."""
        for batch in self._read(reader, offset):
            self._held.append(batch)
            self._size += batch.nbytes
            if self._size > self._limit:
                return int(batch["offset"][-1].as_py()) + 1
        return None

    def _read(self, reader: PartitionReader, offset: int) -> Iterator[pa.RecordBatch]:
        window = Window(self.start_ms, self.end_ms, offset)
        pieces = pieces_in(reader, window)
        memory = self._memory_bytes // 4
        return execute(reader.store, pieces, self._schema, memory_bytes=memory, stats=self._stats)

    def _narrow(self) -> bool:
        """End the slice earlier, so that about half of what is held remains."""
        if self.end_ms - self.start_ms == 1:
            return False
        times = np.concatenate([_times(batch) for batch in self._held])
        middle = int(np.partition(times, len(times) // 2)[len(times) // 2])
        self.end_ms = max(self.start_ms + 1, middle)
        kept = [batch.take(np.flatnonzero(_times(batch) < self.end_ms)) for batch in self._held]
        self._held = [batch for batch in kept if len(batch)]
        self._size = sum(batch.nbytes for batch in self._held)
        return True


def _times(batch: pa.RecordBatch) -> Int64s:
    times: Int64s = batch["timestamp"].cast(pa.int64()).to_numpy()
    return times


def _sorted(table: pa.Table) -> pa.Table:
    # what is held stands by partition and offset already
    times = table["timestamp"].cast(pa.int64()).to_numpy()
    return table.take(np.argsort(times, kind="stable"))
