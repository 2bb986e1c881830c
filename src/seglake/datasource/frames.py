"""Return the events of a window, or of many keys, as a DataFrame.

The driver reads a short window itself. To plan a query of a Python source and start its tasks,
Spark takes about a hundred times as long as the driver takes to read the window. Tasks read a long
window, and the events of keys.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from seglake.datasource.source import spark_struct
from seglake.datasource.spark_columns import (
    choose_columns,
    read_schema,
    spark_schema,
    to_spark_batches,
)
from seglake.datasource.tasks import LEAST_BYTES
from seglake.errors import UsageError
from seglake.extras import extra
from seglake.read.window.find import keys_of
from seglake.read.window.plan import open_window
from seglake.times.instants import Time, format_ms, to_epoch_ms

with extra("spark", "the events of windows and keys"):
    from pyspark.sql import DataFrame
    from pyspark.sql.types import BinaryType, StringType

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

    from seglake.read.log import Log

_ROWS_BYTES = 2**20  # up to this size, Spark converts a table to rows
_SMALL_BYTES = 10 * 2**20  # size of a table that Spark broadcasts to a join
_THRESHOLD = "spark.sql.execution.arrow.localRelationThreshold"
_CHANGING = Lock()
_MOST_KEYS = 10_000  # they are an option, which Spark sends to each task


def events_between(
    spark: SparkSession,
    log: Log,
    start: Time,
    end: Time,
    *,
    columns: Sequence[str] | None = None,
    driver_bytes: int = LEAST_BYTES,
) -> DataFrame:
    """Return the events with start <= timestamp < end in the version of `log`.

    The columns are the same as in `spark.read.format("seglake")`, without headers unless `columns`
    names them. A window that takes at most `driver_bytes` of the log, by default the size of one
    task, is read immediately: the DataFrame holds its events, and joins broadcast up to 10 MiB of
    them. Tasks read a longer window whenever the DataFrame is used. They find credentials in their
    environment. Raises UsageError, CorruptData and StoreError.
    """
    names = choose_columns(columns)
    plan = log.plan_range(start, end, columns=read_schema(names).names)
    if plan.size_bytes <= driver_bytes:
        batches = to_spark_batches(log.read_range(start, end, columns=plan.schema.names), names)
        table = pa.Table.from_batches(list(batches), spark_schema(names))
        return _local_frame(spark, table, names)
    window = {"startTime": format_ms(to_epoch_ms(start)), "endTime": format_ms(to_epoch_ms(end))}
    return _by_tasks(spark, log, names).options(**window).load(log.store.uri)


def _by_tasks(spark: SparkSession, log: Log, names: Sequence[str]) -> DataFrameReader:
    """Return a Spark reader of columns of a log, in its version. Its `load` needs only the root."""
    options = log.store.public_options.items()
    return (
        spark.read.format("seglake")
        .options(**{f"storage.{name}": value for name, value in options})
        .options(subscribe=log.topic, version=log.version, columns=",".join(names))
    )


def _local_frame(spark: SparkSession, table: pa.Table, names: Sequence[str]) -> DataFrame:
    """Return a DataFrame of the rows of a table. Joins broadcast it if it is small.

    Spark sends the rows of a local relation to its tasks one by one, as Java objects. It sends
    Arrow batches unchanged, but has no size for them, so a small table needs a broadcast hint.
    """
    if table.nbytes < _ROWS_BYTES:
        return spark.createDataFrame(table, spark_struct(names))
    with _batches_as_they_are(spark):
        frame = spark.createDataFrame(table, spark_struct(names))
    return frame.hint("broadcast") if table.nbytes <= _SMALL_BYTES else frame


@contextmanager
def _batches_as_they_are(spark: SparkSession) -> Iterator[None]:
    """Prevent Spark from making local relations in the block. Afterwards, restore the setting."""
    with _CHANGING:  # otherwise, a thread could restore the "0" of another
        before = str(spark.conf.get(_THRESHOLD))
        spark.conf.set(_THRESHOLD, "0")
        try:
            yield
        finally:
            spark.conf.set(_THRESHOLD, before)


def events_with_keys(
    spark: SparkSession,
    log: Log,
    keys: Sequence[str | bytes] | DataFrame,
    *,
    start: Time | None = None,
    end: Time | None = None,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Return the events that have one of the keys, in the version of `log`.

    `keys` has at most 10,000 different keys: a list of bytes and text, or a DataFrame with one
    column of text or bytes. The DataFrame is collected immediately. Text is encoded as UTF-8. Nulls
    are ignored. `start` and `end` bound the timestamps: start <= timestamp < end. The columns are
    the same as in `spark.read.format("seglake")`, without headers unless `columns` names them.
    Whenever the DataFrame is used, the driver reads key indexes, and tasks read the blocks that may
    have a key. Tasks find credentials in their environment. Raises UsageError, for example for too
    many keys.
    """
    names = choose_columns(columns)
    open_window(start, end)  # raises before any work
    asked = _collected(keys) if isinstance(keys, DataFrame) else _listed(keys)
    if len(asked) > _MOST_KEYS:
        raise UsageError(
            f"there are more than {_MOST_KEYS:,} keys. Split them, or join them with"
            ' spark.read.format("seglake"), which reads everything'
        )
    written = [f"base64:{base64.b64encode(key).decode()}" for key in asked]
    reader = _by_tasks(spark, log, names).options(keys=json.dumps(written))
    times = {"startTime": start, "endTime": end}.items()
    bounds = {name: format_ms(to_epoch_ms(time)) for name, time in times if time is not None}
    return reader.options(**bounds).load(log.store.uri)


def _listed(keys: Any) -> list[bytes]:
    if isinstance(keys, str | bytes):
        raise UsageError("keys must be a list or a DataFrame. Put a single key into a list")
    return keys_of(None, [*keys])


def _collected(frame: DataFrame) -> list[bytes]:
    """Return the distinct keys of a DataFrame, or, if there are too many, one more than allowed."""
    kinds = [field.dataType for field in frame.schema.fields]
    if len(kinds) != 1 or not isinstance(kinds[0], StringType | BinaryType):
        raise UsageError(
            f"keys must be one column of text or binary, not {frame.schema.simpleString()}. "
            f"Select the column, and cast it"
        )
    rows = frame.distinct().limit(_MOST_KEYS + 2).collect()  # one may be null
    keys = [row[0] for row in rows if row[0] is not None]
    return keys_of(None, [key if isinstance(key, str) else bytes(key) for key in keys])
