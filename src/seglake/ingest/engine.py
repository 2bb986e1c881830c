"""Where the stages of an ingest run: on Spark, or, for little data and without a JVM, right here.

The driver's story (`pipeline`) is the same for both. What one engine must do is small: run a task over
rows, and keep the blobs of the map side until they are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from seglake.ingest.blob import META, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

PLACE = ("piece", "key", "second", "unit", "sequence")  # the order in which a piece is written
NAMES = ["partition", "unit", "sequence"]  # together, the name of a blob
_SPARK_TYPES = {pa.int32(): "int", pa.int64(): "bigint", pa.string(): "string", pa.binary(): "binary"}


class KeptBlobs(Protocol):
    """The blobs of one attempt, readable as often as needed."""

    def meta(self) -> pa.Table:
        """Every row without its data; runs the map side if it did not run yet."""

    def run(self, task: Task, schema: pa.Schema, where: tuple[str, list[int]]) -> pa.Table:
        """The results of `task` over the blobs whose column has one of the values."""

    def run_routed(self, task: Task, schema: pa.Schema, route: pa.Table) -> pa.Table:
        """The results of `task` over the blobs that `route` names, in order of PLACE.

        `route` has NAMES, `piece` and `task`; rows with the same `task` meet in one call.
        """


class Engine(Protocol):
    """Runs tasks."""

    cores: int

    def map(self, task: Task, rows: pa.Table) -> AbstractContextManager[KeptBlobs]:
        """The blobs that `task` makes of `rows`; those with the same number in `task` in one call."""

    def run(self, task: Task, schema: pa.Schema, rows: pa.Table) -> pa.Table:
        """The results of `task` over `rows`, shared out in any way."""


class SparkEngine:
    """Tasks are `mapInArrow` functions; blobs are kept on the executors' disks."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.cores = int(spark.sparkContext.defaultParallelism)

    def map(self, task: Task, rows: pa.Table) -> AbstractContextManager[KeptBlobs]:
        """The blobs that `task` makes of `rows`."""
        tasks = pc.max(rows["task"]).as_py() + 1
        return self.map_frame(task, self._spark.createDataFrame(rows).repartitionById(tasks, "task"))

    @contextmanager
    def map_frame(self, task: Task, frame: DataFrame) -> Iterator[KeptBlobs]:
        """The blobs that `task` makes of each partition of a DataFrame."""
        from pyspark import StorageLevel

        kept = frame.mapInArrow(task, _ddl(SCHEMA)).persist(StorageLevel.DISK_ONLY)
        try:
            yield SparkBlobs(kept)
        finally:
            kept.unpersist()

    def run(self, task: Task, schema: pa.Schema, rows: pa.Table) -> pa.Table:
        """The results of `task` over `rows`, a few per core."""
        frame = self._spark.createDataFrame(rows).repartition(min(len(rows), 4 * self.cores))
        return frame.mapInArrow(task, _ddl(schema)).toArrow()


class SparkBlobs:
    """Blobs as a persisted DataFrame."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    def meta(self) -> pa.Table:
        """Every row without its data."""
        return self._frame.select(*META).toArrow()

    def run(self, task: Task, schema: pa.Schema, where: tuple[str, list[int]]) -> pa.Table:
        """The results of `task` over the chosen blobs."""
        column, values = where
        chosen = self._frame.where(self._frame[column].isin(values))
        return chosen.mapInArrow(task, _ddl(schema)).toArrow()

    def run_routed(self, task: Task, schema: pa.Schema, route: pa.Table) -> pa.Table:
        """One shuffle: every blob goes to its task, sorted there by place."""
        from pyspark.sql import functions

        tasks = pc.max(route["task"]).as_py() + 1
        routes = functions.broadcast(self._frame.sparkSession.createDataFrame(route))
        placed = self._frame.join(routes, NAMES).repartitionById(tasks, "task")
        return placed.sortWithinPartitions(*PLACE).mapInArrow(task, _ddl(schema)).toArrow()


class LocalEngine:
    """Tasks run one after another in this process and blobs stay in memory: for little data."""

    cores = 1

    @contextmanager
    def map(self, task: Task, rows: pa.Table) -> Iterator[KeptBlobs]:
        """The blobs that `task` makes of `rows`."""
        yield LocalBlobs(_run(task, SCHEMA, rows))

    def run(self, task: Task, schema: pa.Schema, rows: pa.Table) -> pa.Table:
        """The results of `task` over `rows`."""
        return _run(task, schema, rows)


class LocalBlobs:
    """Blobs as a table."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def meta(self) -> pa.Table:
        """Every row without its data."""
        return self._table.select(META)

    def run(self, task: Task, schema: pa.Schema, where: tuple[str, list[int]]) -> pa.Table:
        """The results of `task` over the chosen blobs."""
        column, values = where
        chosen = pc.is_in(self._table[column], pa.array(values, self._table[column].type))
        return _run(task, schema, self._table.filter(chosen))

    def run_routed(self, task: Task, schema: pa.Schema, route: pa.Table) -> pa.Table:
        """The results of `task` over the routed blobs, all in one call."""
        numbers = {name: number for number, name in enumerate(_names(self._table))}
        chosen = self._table.take(pa.array([numbers[name] for name in _names(route)], pa.int64()))
        placed = chosen.append_column("piece", route["piece"])
        return _run(task, schema, placed.sort_by([(name, "ascending") for name in PLACE]))


def _names(rows: pa.Table) -> Iterator[tuple[int, ...]]:
    return zip(*(rows[name].to_pylist() for name in NAMES), strict=True)


def _run(task: Task, schema: pa.Schema, rows: pa.Table) -> pa.Table:
    batches = list(task(rows.combine_chunks().to_batches()))
    return pa.Table.from_batches(batches, schema)


def _ddl(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in schema)
