"""The events of many keys as a DataFrame."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seglake.datasource.between import by_tasks
from seglake.datasource.spark_columns import chosen
from seglake.errors import UsageError
from seglake.extras import extra
from seglake.read.window.edges import open_window
from seglake.read.window.find import keys_of
from seglake.times.instants import Time, format_ms, to_epoch_ms

with extra("spark", "the events of keys"):
    from pyspark.sql import DataFrame
    from pyspark.sql.types import BinaryType, StringType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from seglake.read.log import Log

MOST_KEYS = 10_000  # they are an option, which goes to each task


def events_with_keys(
    spark: SparkSession,
    log: Log,
    keys: Sequence[str | bytes] | DataFrame,
    *,
    start: Time | None = None,
    end: Time | None = None,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Every event with one of the keys, and no other, in the version of `log`.

    `keys` are at most 10,000 different ones: a list of text, which means its UTF-8, and bytes; or a
    DataFrame with one column of text or bytes, which is collected here and now. Null is no key.
    `start` and `end` bound the timestamps: start <= timestamp < end. The columns are those of
    `spark.read.format("seglake")`, without headers unless `columns` names them. Whenever the
    DataFrame is used, the driver reads key indexes, and tasks read what may hold a key; they find
    credentials in their environment. Raises UsageError, also for more keys.
    """
    names = chosen(columns)
    open_window(start, end)  # raises here and now
    asked = _collected(keys) if isinstance(keys, DataFrame) else _listed(keys)
    if len(asked) > MOST_KEYS:
        raise UsageError(
            f"there are more than {MOST_KEYS:,} keys: ask for them in parts, or join them with"
            ' spark.read.format("seglake"), which reads everything'
        )
    written = [f"base64:{base64.b64encode(key).decode()}" for key in asked]
    reader = by_tasks(spark, log, names).options(keys=json.dumps(written))
    times = {"startTime": start, "endTime": end}.items()
    bounds = {name: format_ms(to_epoch_ms(time)) for name, time in times if time is not None}
    return reader.options(**bounds).load(log.store.uri)


def _listed(keys: Any) -> list[bytes]:
    if isinstance(keys, str | bytes):
        raise UsageError("keys are a list or a DataFrame: put one key into a list")
    return keys_of(None, [*keys])


def _collected(frame: DataFrame) -> list[bytes]:
    """The distinct keys of a DataFrame, or some of them if there are too many."""
    kinds = [field.dataType for field in frame.schema.fields]
    if len(kinds) != 1 or not isinstance(kinds[0], StringType | BinaryType):
        raise UsageError(
            f"keys are one column of text or binary, and not {frame.schema.simpleString()}: select"
            " the column, and cast it"
        )
    rows = frame.distinct().limit(MOST_KEYS + 2).collect()  # one may be null
    keys = [row[0] for row in rows if row[0] is not None]
    return keys_of(None, [key if isinstance(key, str) else bytes(key) for key in keys])
