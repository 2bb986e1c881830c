"""The events of a window as a DataFrame: the driver reads a short window, tasks read a long one.

Planning a query of a Python source and starting its tasks costs Spark some hundred times what a
short window takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from seglake.datasource.source import struct_of
from seglake.datasource.spark_columns import chosen, in_spark, read_schema, spark_schema
from seglake.datasource.tasks import LEAST_BYTES
from seglake.times.instants import Time, to_epoch_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from seglake.read.log import Log


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
    one task, is read here and now: the DataFrame holds its events. A longer one is read by tasks
    whenever the DataFrame is used; they find credentials in their environment. Raises UsageError,
    and what a read raises: CorruptData, StoreError.
    """
    names = chosen(columns)
    plan = log.plan_range(start, end, columns=read_schema(names).names)
    if plan.size_bytes <= driver_bytes:
        batches = in_spark(log.read_range(start, end, columns=plan.schema.names), names)
        table = pa.Table.from_batches(list(batches), spark_schema(names))
        return spark.createDataFrame(table, struct_of(names))
    store = log.store
    return (
        spark.read.format("seglake")
        .options(**{f"storage.{name}": value for name, value in store.public_options.items()})
        .options(subscribe=log.topic, version=log.version, columns=",".join(names))
        .options(startTime=to_epoch_ms(start), endTime=to_epoch_ms(end))
        .load(store.uri)
    )
