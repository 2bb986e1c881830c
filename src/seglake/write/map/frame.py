"""Read a Spark DataFrame as input. Each partition of the DataFrame is a unit.

Spark guarantees neither an order nor stable partitions. So the order column, which has the caller's
unique integers, orders records with equal event times (`order = "time"`), or all records (`order =
"arrival"`). Then the log depends only on the rows, not on how Spark divides them. If records keep
their offsets, the offsets are the sort key, and the order column only numbers the rejects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from seglake.catalog.quarantine.files import FRAME
from seglake.engine import original_errors, run_task
from seglake.errors import ConfigError, InputError
from seglake.format.partitioner import partition_of
from seglake.format.records import Int32s, Int64s
from seglake.write.map.unit import BlobMaker, MapSettings, SplitCount, Summary, reject_blob
from seglake.write.rows.arrow import ArrowRows, cut_batch
from seglake.write.rows.records import ExtractedChunk, RejectedRows, extract
from seglake.write.rows.rows import MOST_ROWS
from seglake.write.spool.spool import Blob, unpack_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_ROWS_WITH_LISTS = 1024
_DDL = "packed binary"
_NOT_IN_ARROW = re.compile(r"(?:^|[<,:])interval(?! day| hour| min| sec)\b|[<,:]variant(?!:)")


@contextmanager
def short_batches(frame: DataFrame) -> Iterator[None]:
    """Limit Arrow batches to 1,024 rows in the `with` block, if the frame has lists or maps.

    Spark computes the size of a batch after each row, and for that scans back over the null lists
    at the end of a column. So the time for a batch of null lists is quadratic in its length.
    """
    conf = frame.sparkSession.conf
    before = conf.get(_BATCH_ROWS) or "0"
    few = 0 < int(before) <= _ROWS_WITH_LISTS  # 0 sets no limit
    if few or not any("array<" in kind or "map<" in kind for _, kind in frame.dtypes):
        yield
        return
    conf.set(_BATCH_ROWS, str(_ROWS_WITH_LISTS))
    try:
        yield
    finally:
        conf.set(_BATCH_ROWS, before)


def require_arrow_types(frame: DataFrame) -> None:
    """Raise InputError for a column of a type that Arrow does not have."""
    for name, kind in frame.dtypes:
        if _NOT_IN_ARROW.search(kind):
            how = "to_json" if "variant" in kind else "cast to a string"
            raise InputError(
                f"column {name!r} of the DataFrame has type {kind}, which cannot be read. "
                f"Convert it, such as with {how}, or drop it"
            )


class MapFrame(NamedTuple):
    """The map task that writes a DataFrame's rows as blobs, and returns their SPOOLED rows."""

    settings: MapSettings
    order_column: str
    columns: tuple[str, ...] = ()  # columns of the DataFrame, set by `read`
    variants: tuple[bool, ...] = ()  # which of the columns are VARIANT, and are read as JSON

    def read(self, frame: DataFrame) -> pa.Table:
        """Write the blobs of all partitions to the spool, and return their SPOOLED rows.

        Spark may run a task again after a failure. Only rows of the successful try are returned.
        Raises ConfigError if Spark is older than 4.0; see also `require_arrow_types`.
        """
        require_arrow_types(frame)
        variants = tuple(kind == "variant" for _, kind in frame.dtypes)
        task = self._replace(columns=tuple(frame.columns), variants=variants)
        with original_errors(), short_batches(frame):
            # mapInArrow would treat a dot in a column name as the path of a nested field.
            numbered = frame.toDF(*map(str, range(len(task.columns))))
            if True in variants:
                numbers = enumerate(variants)
                texts = (f"to_json(`{at}`) `{at}`" if each else f"`{at}`" for at, each in numbers)
                numbered = numbered.selectExpr(*texts)
            mapped = numbered.mapInArrow(task.__call__, _DDL)
            if not hasattr(mapped, "toArrow"):
                raise ConfigError(
                    "the ingest of a DataFrame needs Spark 4.0 or newer. Use pyspark 4.2, or write "
                    "the rows as Parquet files and ingest these"
                )
            parts: list[Any] = mapped.toArrow()["packed"].to_pylist()
            return unpack_rows(parts)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the blobs of one partition to the spool. Yield a batch with packed SPOOLED rows."""
        from pyspark import TaskContext  # noqa: PLC0415  # the module is imported without Spark

        context = TaskContext.get()
        spool = partial(self.spool, unit=context.partitionId() if context else 0)
        yield pa.record_batch({"packed": [run_task(spool, map(self._named, batches))]})

    def _named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            pa.ExtensionArray.from_storage(pa.json_(column.type), column) if is_variant else column
            for column, is_variant in zip(batch.columns, self.variants, strict=True)
        ]
        return pa.record_batch(columns, names=[*self.columns])

    def spool(self, batches: Iterable[pa.RecordBatch], unit: int = 0) -> bytes:
        """Write the blobs of `batches`, which are one unit, and return packed SPOOLED rows."""
        return self.settings.write_blobs(self.blobs(batches, unit))

    def blobs(self, batches: Iterable[pa.RecordBatch], unit: int = 0) -> Iterator[Blob]:
        """Yield the blobs of one unit: records, rejects and, at the end, a summary."""
        pipeline, limits = self.settings.pipeline, self.settings.limits
        summary = Summary({unit: SplitCount()})
        with BlobMaker(pipeline, self.settings.sizes, unit) as maker:
            for batch in _together(batches, pipeline.task.chunk_bytes):
                chunk = extract(ArrowRows(FRAME, batch), pipeline, limits, FRAME, 0)
                summary.add(Summary.from_chunk(unit, chunk, self.settings.interval))
                yield from self._blobs_of(chunk, _orders(batch, self.order_column), maker, unit)
            yield from maker.rest()
        yield summary.blob(unit)

    def _blobs_of(
        self, chunk: ExtractedChunk, orders: Int64s, maker: BlobMaker, unit: int
    ) -> Iterator[Blob]:
        if len(chunk.records) and chunk.broker_fields is not None:
            fields = chunk.broker_fields
            yield from maker.blobs(chunk.records, chunk.partitions, broker_fields=fields)
        elif len(chunk.records):
            ties = np.delete(orders, chunk.rejects.lines)
            yield from maker.blobs(chunk.records, self._partitions(chunk, ties), ties)
        if len(chunk.rejects):
            lines = orders[chunk.rejects.lines]
            rejects = RejectedRows(lines, chunk.rejects.reasons, chunk.rejects.raw)
            yield reject_blob(unit, 0, rejects, FRAME)

    def _partitions(self, chunk: ExtractedChunk, orders: Int64s) -> Int32s:
        """Return the log partition of each record. If the key is null, `orders` selects it."""
        if chunk.partitions is not None:
            return chunk.partitions
        count, keys = self.settings.pipeline.topic.partitions, chunk.records.keys
        spread = (orders % count).astype(np.int32)
        return np.where(keys.lengths < 0, spread, partition_of(keys, count)).astype(np.int32)


def _together(batches: Iterable[pa.RecordBatch], max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Join small adjacent batches, and cut large batches, so that all have about `max_bytes`."""
    joined: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        joined.append(batch)
        size += batch.nbytes
        rows += batch.num_rows
        if size >= max_bytes // 2 or rows >= MOST_ROWS:
            yield from cut_batch(_joined(joined), max_bytes)
            joined, size, rows = [], 0, 0
    if joined:
        yield from cut_batch(_joined(joined), max_bytes)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.to_batches()[0] if len(table) else batches[0]


def _orders(batch: pa.RecordBatch, name: str) -> Int64s:
    column = batch.column(name)
    if not pa.types.is_integer(column.type) or column.null_count:
        raise InputError(
            f"order column {name!r} must have a unique integer in every row, but has type "
            f"{column.type} and {column.null_count} nulls. Name another input.order_column"
        )
    return column.cast(pa.int64()).to_numpy()
