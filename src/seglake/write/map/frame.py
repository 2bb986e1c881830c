"""Any Spark DataFrame as input: its partitions take the place of units.

Spark promises no order and no stable partitions, so a column of the caller's with unique integers
decides among equal event times (`order = "time"`), or alone (`order = "arrival"`). The log that
comes out is then a function of the rows, whatever Spark does with them on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from seglake.config import Pipeline
from seglake.engine import raising_ours
from seglake.errors import InputError
from seglake.format.murmur2 import partition_of
from seglake.format.records import Int32s, Int64s
from seglake.store import open_store
from seglake.write.map.sort import Cutter
from seglake.write.map.unit import Summary, reject_blob
from seglake.write.rows.parquet import ParquetRows
from seglake.write.rows.records import Extracted, Rejects, extract
from seglake.write.spool.blob import Blob
from seglake.write.spool.spool import STAGED, Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME = "DataFrame"  # where rejected rows come from, instead of a file
_SPARK_TYPES = {pa.int32(): "int", pa.int64(): "bigint", pa.string(): "string"}
_DDL = ", ".join(f"`{field.name}` {_SPARK_TYPES[field.type]}" for field in STAGED)


class ReadFrame(NamedTuple):
    """Rows of a DataFrame → rows of STAGED."""

    pipeline: Pipeline
    order_column: str
    attempt_id: str
    append_time_ms: int

    def read(self, frame: DataFrame) -> pa.Table:
        """Stage the blobs of all partitions; each row is evaluated in one task that counts."""
        with raising_ours():
            return frame.mapInArrow(self.__call__, _DDL).toArrow()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage the blobs of one partition of the DataFrame."""
        store = open_store(self.pipeline.root, self.pipeline.storage)
        with Stage(store, self.attempt_id) as stage:
            for blob in self.blobs(batches):
                stage.add(blob)
        yield from stage.staged().to_batches()

    def blobs(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Blob]:
        """The blobs of one partition of the DataFrame."""
        from pyspark import TaskContext  # noqa: PLC0415  # the module is imported without Spark

        context = TaskContext.get()
        unit = context.partitionId() if context else 0
        cutter = Cutter(self.pipeline, unit, self.append_time_ms, merged=True)
        summary = Summary()
        summary.begin(unit)
        for batch in _gather(batches, self.pipeline.task.chunk_bytes):
            found = extract(ParquetRows(NAME, batch), self.pipeline, NAME, 0)
            summary.add(unit, found)
            yield from self._cut(found, _orders(batch, self.order_column), cutter, unit)
        yield summary.blob(unit)

    def _cut(self, found: Extracted, orders: Int64s, cutter: Cutter, unit: int) -> Iterator[Blob]:
        kept = np.delete(orders, found.rejects.lines)
        if len(kept):
            keys = None if self.pipeline.order == "time" else np.zeros_like(kept)
            yield from cutter.cut(found.records, self._partitions(found, kept), keys, kept)
        if len(found.rejects):
            lines = orders[found.rejects.lines]
            yield reject_blob(unit, 0, Rejects(lines, found.rejects.reasons, found.rejects.raw))

    def _partitions(self, found: Extracted, orders: Int64s) -> Int32s:
        """The log partition of each record; without a key, the order column decides."""
        if found.partitions is not None:
            return found.partitions
        count, keys = self.pipeline.topic.partitions, found.records.keys
        spread = (orders % count).astype(np.int32)
        return np.where(keys.lengths < 0, spread, partition_of(keys, count)).astype(np.int32)


def _gather(batches: Iterable[pa.RecordBatch], max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Spark's batches, small ones together."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        gathered.append(batch)
        size += batch.nbytes
        if size >= max_bytes // 2:
            yield _joined(gathered)
            gathered, size = [], 0
    if gathered:
        yield _joined(gathered)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.to_batches()[0] if len(table) else batches[0]


def _orders(batch: pa.RecordBatch, name: str) -> Int64s:
    column = batch.column(name)
    if not pa.types.is_integer(column.type) or column.null_count:
        raise InputError(
            f"order column {name!r} has type {column.type} and {column.null_count} nulls: it must "
            "hold a unique integer in every row"
        )
    return column.cast(pa.int64()).to_numpy()
