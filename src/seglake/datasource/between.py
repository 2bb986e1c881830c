"""The events of a window as a DataFrame: the driver reads a short window, tasks read a long one.

Planning a query of a Python source and starting its tasks costs Spark some hundred times what a
short window takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

import pyarrow as pa

from seglake.datasource.source import struct_of
from seglake.datasource.spark_columns import chosen, in_spark, read_schema, spark_schema
from seglake.datasource.tasks import LEAST_BYTES
from seglake.times.instants import Time, format_ms, to_epoch_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from seglake.read.log import Log

_ROWS_BYTES = 2**20  # of a table that Spark is to take apart into rows at once
_SMALL_BYTES = 10 * 2**20  # of a table that fits a join's other side: autoBroadcastJoinThreshold
_THRESHOLD = "spark.sql.execution.arrow.localRelationThreshold"
_CHANGING = Lock()


def events_between(
    spark: SparkSession,
    log: Log,
    start: Time,
    end: Time,
    *,
    columns: Sequence[str] | None = None,
    driver_bytes: int = LEAST_BYTES,
) -> DataFrame:
    """Every event with start <= timestamp < end, and no other, in the version of `log`.

    The columns are those of `spark.read.format("seglake")`, without headers unless `columns` names
    them. A window that takes at most `driver_bytes` of the log, by default what Spark would read in
    one task, is read here and now: the DataFrame holds its events, and joins broadcast up to 10 MiB
    of them. A longer one is read by tasks whenever the DataFrame is used; they find credentials in
    their environment. Raises UsageError, and what a read raises: CorruptData, StoreError.
    """
    names = chosen(columns)
    plan = log.plan_range(start, end, columns=read_schema(names).names)
    if plan.size_bytes <= driver_bytes:
        batches = in_spark(log.read_range(start, end, columns=plan.schema.names), names)
        table = pa.Table.from_batches(list(batches), spark_schema(names))
        return _local_frame(spark, table, names)
    window = {"startTime": format_ms(to_epoch_ms(start)), "endTime": format_ms(to_epoch_ms(end))}
    return by_tasks(spark, log, names).options(**window).load(log.store.uri)


def by_tasks(spark: SparkSession, log: Log, names: Sequence[str]) -> DataFrameReader:
    """A reader of these columns of a log, in its version, that knows all but the root."""
    options = log.store.public_options.items()
    return (
        spark.read.format("seglake")
        .options(**{f"storage.{name}": value for name, value in options})
        .options(subscribe=log.topic, version=log.version, columns=",".join(names))
    )


def _local_frame(spark: SparkSession, table: pa.Table, names: Sequence[str]) -> DataFrame:
    """A DataFrame of the rows of a table, which joins broadcast if it is small.

    Spark sends the rows of a local relation to its tasks one by one, as Java objects. Arrow batches
    go as they are; but Spark does not know their size then, and has to be told what to broadcast.
    """
    if table.nbytes < _ROWS_BYTES:
        return spark.createDataFrame(table, struct_of(names))
    with _batches_as_they_are(spark):
        frame = spark.createDataFrame(table, struct_of(names))
    return frame.hint("broadcast") if table.nbytes <= _SMALL_BYTES else frame


@contextmanager
def _batches_as_they_are(spark: SparkSession) -> Iterator[None]:
    """No table becomes a local relation in here; the session's setting is put back after it."""
    with _CHANGING:  # else a thread could take the other's setting for that of the session
        before = str(spark.conf.get(_THRESHOLD))
        spark.conf.set(_THRESHOLD, "0")
        try:
            yield
        finally:
            spark.conf.set(_THRESHOLD, before)
