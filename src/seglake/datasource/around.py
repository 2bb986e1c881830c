"""A DataFrame, or a Delta table, joined with the events around its rows.

Tasks read the lake directly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from seglake.datasource.plain_errors import plain
from seglake.datasource.source import struct_of
from seglake.datasource.spark_columns import chosen, in_spark, read_schema
from seglake.errors import SeglakeError, UsageError
from seglake.extras import extra
from seglake.log.execute import MEMORY_BYTES
from seglake.read.window.around import Around
from seglake.session import spark_session

with extra("spark", "the events around rows"):
    import pyspark
    from pyspark.errors import AnalysisException
    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from seglake.read.log import Log

# an older Spark has no other
_UTC: dict[str, Any] = {"timezone": "UTC"} if pyspark.__version__ >= "4.2" else {}


def events_around(
    rows: DataFrame,
    log: Log,
    at: str,
    *,
    before_ms: int = 0,
    after_ms: int = 0,
    key: str | None = None,
    columns: Sequence[str] | None = None,
    memory_bytes: int = MEMORY_BYTES,
) -> DataFrame:
    """Each row with each event of the time around it: one row for each such pair.

    As `Log.read_around`: events with at - before_ms <= timestamp < at + after_ms, and if `key`
    names a column of `rows`, only those with that key. The columns of events are those of
    `spark.read.format("seglake")`, without headers unless `columns` names them. The version is that
    of `log`. Its list of segments is sent to the tasks, which need neither the catalog nor a JVM.
    Each task has in memory a batch of rows (spark.sql.execution.arrow.maxRecordsPerBatch) and about
    `memory_bytes` of events.

    Rows of a task with overlapping windows share a read: sort a large table by time first, with
    `rows.repartitionByRange(n, at).sortWithinPartitions(at)`. Raises UsageError at once where
    columns do not fit.
    """
    names = chosen(columns)
    around = Around(log, at, before_ms, after_ms, key, read_schema(names))
    around.check(to_arrow_schema(rows.schema, **_UTC), names)
    task = _AroundTask(around, len(rows.columns), names, memory_bytes)
    return rows.mapInArrow(task, StructType([*rows.schema.fields, *struct_of(names).fields]))


def make_table(rows: str, output: str, log: Log, at: str, **around: Any) -> int:
    """Write `events_around` of the Delta table `rows` to `output`. Returns the number of pairs.

    Raises UsageError for a table or a column that there is not, or an output that there is, and
    what `events_around` and `spark_session` raise.
    """
    counted = Observation()
    try:
        read = spark_session("seglake around").read.format("delta").load(rows)
        read = read.repartitionByRange(at)  # what lies near in time shares what it reads
        pairs = events_around(read, log, at, **around)
        pairs = pairs.observe(counted, count(lit(1)).alias("pairs"))
        pairs.write.format("delta").save(output)
    except AnalysisException as error:
        raise UsageError(str(error)) from error
    return int(counted.get["pairs"])


@dataclass(frozen=True)
class _AroundTask:
    """Batches of rows → batches of rows with events, in the types of Spark."""

    around: Around
    own_columns: int
    columns: tuple[str, ...]
    memory_bytes: int

    def __call__(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of one task with their events."""
        try:
            batches = self.around(rows, self.memory_bytes)
            yield from in_spark(batches, self.columns, self.own_columns)
        except SeglakeError as error:
            raise plain(error) from None
