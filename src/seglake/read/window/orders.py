"""Read the records of a window in offset order or in time order, in bounded memory.

In time order, the partitions become one stream. The window is cut into slices of time that fit into
memory, and the records of a slice are collected and sorted. Where events are nearly in order, zone
maps let a slice fetch little more than its records. A slice with too many records is cut to end at
the median time of its records so far.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from seglake.errors import UsageError
from seglake.format.records import Int64s
from seglake.log.columns import SCHEMA
from seglake.log.execute import MEMORY_BYTES, ReadStats, execute
from seglake.log.piece import Window
from seglake.log.segment_lookup import PartitionReader
from seglake.read.window.plan import pieces_of

_OUTPUT_ROWS = 65_536
_MOST_BYTES = 2**30  # Arrow's offsets have 32 bits, also while a slice is sorted
_ORDER = ("timestamp", "partition", "offset")


def in_offset_order(
    readers: Sequence[PartitionReader],
    window: Window,
    schema: pa.Schema,
    memory_bytes: int,
    stats: ReadStats,
) -> Iterator[pa.RecordBatch]:
    """Return the records of `window`, partition after partition, each in offset order."""
    if not readers:
        return iter(())
    # Iterate over pieces: a Plan would keep all of them in memory.
    pieces = pieces_of([(reader, window) for reader in readers])
    return execute(readers[0].cached_fetch, pieces, schema, memory_bytes=memory_bytes, stats=stats)


def in_time_order(
    readers: Sequence[PartitionReader],
    window: Window,
    schema: pa.Schema,
    memory_bytes: int,
    stats: ReadStats,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of `window` by (timestamp, partition, offset), as batches of `schema`."""
    names = [name for name in _ORDER if name not in schema.names]
    inner = pa.schema([*schema, *(SCHEMA.field(name) for name in names)])
    ordered = sorted(readers, key=lambda reader: reader.view.partition)
    start, width = window.start_ms, window.end_ms - window.start_ms
    while ordered and start < window.end_ms:
        slice_ = _Slice(start, min(start + width, window.end_ms), inner, memory_bytes, stats)
        for batch in slice_.records(ordered):
            yield batch.select(schema.names)
        start, width = slice_.end_ms, slice_.next_width()


class _Slice:
    """Records with start_ms <= timestamp < end_ms. With too many records, `end_ms` is lowered."""

    def __init__(
        self, start_ms: int, end_ms: int, schema: pa.Schema, memory_bytes: int, stats: ReadStats
    ) -> None:
        self.start_ms, self.end_ms = start_ms, end_ms
        self._schema, self._memory_bytes, self._stats = schema, memory_bytes, stats
        self._batches: list[pa.RecordBatch] = []
        self._size = 0

    @property
    def _limit(self) -> int:
        return min(self._memory_bytes // 4, _MOST_BYTES)  # sorting makes a copy

    def next_width(self) -> int:
        """Return the width (ms) at which a slice of this density fills two thirds of its memory."""
        growth = min(8.0, self._limit * 2 / 3 / max(1, self._size))
        return max(1, int((self.end_ms - self.start_ms) * growth))

    def records(self, readers: Sequence[PartitionReader]) -> Iterator[pa.RecordBatch]:
        """Yield the records in time order. `end_ms` is final after the last record."""
        if not self._collect(readers):
            # A single millisecond has too many records. Their order is partition and offset.
            self._drop(self._batches)
            self._batches = []
            yield from self._read(readers, 0)
        elif self._batches:
            batch, self._batches = _sorted(self._batches), []
            for first in range(0, len(batch), _OUTPUT_ROWS):
                yield batch.slice(first, _OUTPUT_ROWS)

    def _collect(self, readers: Sequence[PartitionReader]) -> bool:
        """Collect all records of the slice. Return False if one millisecond has too many."""
        following = self._collect_from(readers, 0)
        while following is not None:
            if not self._narrow():
                return False
            partition, offset = following
            left = [reader for reader in readers if reader.view.partition >= partition]
            following = self._collect_from(left, offset)
        return True

    def _collect_from(
        self, readers: Sequence[PartitionReader], offset: int
    ) -> tuple[int, int] | None:
        """Collect the records of the first partition from `offset` on, and of all other partitions.

        If there are too many, return the partition and the offset at which to continue.
        """
        for batch in self._read(readers, offset):
            self._batches.append(batch)
            self._size += batch.nbytes
            if self._size > self._limit:
                return batch["partition"][-1].as_py(), batch["offset"][-1].as_py() + 1
        return None

    def _read(self, readers: Sequence[PartitionReader], offset: int) -> Iterator[pa.RecordBatch]:
        window = Window(self.start_ms, self.end_ms)
        windows = [window._replace(start_offset=offset), *[window] * (len(readers) - 1)]
        pieces = pieces_of(list(zip(readers, windows, strict=True)))
        return execute(
            readers[0].cached_fetch, pieces, self._schema,
            memory_bytes=self._memory_bytes // 4, stats=self._stats,
        )  # fmt: skip

    def _narrow(self) -> bool:
        """End the slice earlier, so that about half of its records so far remain."""
        if self.end_ms - self.start_ms == 1:
            return False
        times = np.concatenate([_times(batch) for batch in self._batches])
        middle = int(np.partition(times, len(times) // 2)[len(times) // 2])
        self.end_ms = max(self.start_ms + 1, middle)
        left = [batch.take(np.flatnonzero(_times(batch) < self.end_ms)) for batch in self._batches]
        self._stats.records += sum(map(len, left))
        self._drop(self._batches)
        self._batches = [batch for batch in left if len(batch)]
        self._size = sum(batch.nbytes for batch in self._batches)
        return True

    def _drop(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Subtract records that will be read again from the counts: each record counts once."""
        self._stats.records -= sum(map(len, batches))


def _times(batch: pa.RecordBatch) -> Int64s:
    times: Int64s = batch["timestamp"].cast(pa.int64()).to_numpy()
    return times


def _sorted(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    # The batches are sorted by partition and offset, so a stable sort by time is enough.
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch.take(np.argsort(_times(batch), kind="stable"))


def records_from(
    reader: PartitionReader, offset: int, max_records: int, schema: pa.Schema
) -> pa.Table:
    """Return the records at or above `offset`, at most `max_records`.

    Raises OffsetOutOfRange if `offset` is below the log start or above the end, UsageError for a
    negative count, CorruptData and StoreError.
    """
    if max_records < 0:
        raise UsageError(f"max_records must be 0 or more, not {max_records}")
    reader.require(offset, reader.view.end_offset)
    pieces = pieces_of([(reader, Window(start_offset=offset))])
    memory_bytes = min(MEMORY_BYTES, 8 * reader.bytes_of(max_records))
    batches = execute(reader.fetch, pieces, schema, memory_bytes=memory_bytes)
    return pa.Table.from_batches(_first(batches, max_records), schema)


def _first(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if count <= 0:
            return
        yield batch.slice(0, count)
        count -= len(batch)
