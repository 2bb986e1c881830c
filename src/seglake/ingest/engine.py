"""Where the stages of an ingest run: on Spark, or, for little data and without a JVM, right here.

The driver's story (`pipeline`) is the same for both. What one engine must do is small: run a task
over rows, and keep the blobs of the map side until they are committed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from seglake import errors
from seglake.errors import CorruptData, SeglakeError
from seglake.ingest.blob import META, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Task(Protocol):
    """What is pickled to where it runs, and turns batches into batches there."""

    def __call__(self, batches: Iterable[pa.RecordBatch], /) -> Iterator[pa.RecordBatch]:
        """The results; columns must stand as in the schema that the caller promised."""


PLACE = ("piece", "key", "second", "unit", "sequence")  # the order in which a piece is written
NAMES = ["partition", "unit", "sequence"]  # together, the name of a blob
_SPARK_TYPES: dict[pa.DataType, str] = {
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.string(): "string",
    pa.binary(): "binary",
}
_OURS = re.compile(r"^seglake\.errors\.(\w+): (.*)", re.MULTILINE | re.DOTALL)


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
        """The blobs that `task` makes of `rows`; rows with the same `task` meet in one call."""

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
        frame = self._spark.createDataFrame(rows).repartitionById(tasks, "task")
        return self.map_frame(task, frame)

    @contextmanager
    def map_frame(self, task: Task, frame: DataFrame) -> Iterator[KeptBlobs]:
        """The blobs that `task` makes of each partition of a DataFrame."""
        from pyspark import StorageLevel  # noqa: PLC0415  # LocalEngine needs no Spark

        kept = frame.mapInArrow(task, _ddl(SCHEMA)).persist(StorageLevel.DISK_ONLY)
        try:
            yield SparkBlobs(kept)
        finally:
            kept.unpersist()

    def run(self, task: Task, schema: pa.Schema, rows: pa.Table) -> pa.Table:
        """The results of `task` over `rows`, a few per core."""
        frame = self._spark.createDataFrame(rows).repartition(min(len(rows), 4 * self.cores))
        return _collected(frame.mapInArrow(task, _ddl(schema)))


class SparkBlobs:
    """Blobs as a persisted DataFrame."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    def meta(self) -> pa.Table:
        """Every row without its data."""
        return _collected(self._frame.select(*META))

    def run(self, task: Task, schema: pa.Schema, where: tuple[str, list[int]]) -> pa.Table:
        """The results of `task` over the chosen blobs."""
        column, values = where
        chosen = self._frame.where(self._frame[column].isin(values))
        return _collected(chosen.mapInArrow(task, _ddl(schema)))

    def run_routed(self, task: Task, schema: pa.Schema, route: pa.Table) -> pa.Table:
        """One shuffle: every blob goes to its task, sorted there by place."""
        from pyspark.sql import functions  # noqa: PLC0415  # LocalEngine needs no Spark

        tasks = pc.max(route["task"]).as_py() + 1
        routes = functions.broadcast(self._frame.sparkSession.createDataFrame(route))
        placed = self._frame.join(routes, NAMES).repartitionById(tasks, "task")
        return _collected(placed.sortWithinPartitions(*PLACE).mapInArrow(task, _ddl(schema)))


def _collected(frame: DataFrame) -> pa.Table:
    """The rows of a DataFrame; an error of ours that a task raised is raised here again."""
    from pyspark.errors import PythonException  # noqa: PLC0415  # LocalEngine needs no Spark

    try:
        return frame.toArrow()
    except PythonException as error:
        ours = _OURS.search(str(error))
        if ours is None:
            raise
        raise _error_of(*ours.groups()) from error


def _error_of(name: str, message: str) -> SeglakeError:
    kind = getattr(errors, name, SeglakeError)
    message = message.strip()
    return SeglakeError(message) if kind is CorruptData else kind(message)


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
