"""Append files or rows to a topic. Settings are inferred instead of read from a pipeline file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from seglake.catalog.table import CatalogTable
from seglake.engine import ingest_engine
from seglake.errors import InputError, UsageError
from seglake.infer.pipeline import InferredPipeline, infer_settings
from seglake.infer.recognise import Sample, read_sample, sample_tables
from seglake.store import open_store
from seglake.write.api import Interval, declare_run
from seglake.write.driver.report import Progress, Report, silent
from seglake.write.driver.run import ingest_files, ingest_rows
from seglake.write.driver.run_input import InputBatches, InputFrame
from seglake.write.map.frame import require_arrow_types

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SAMPLED_ROWS = 1000
_ROW = "seglake_row"  # the order column, which numbers the rows of a table
_ARGUMENTS = {
    "timestamp.field": "time (--time)",
    "timestamp.zone": "zone (--zone), such as UTC",
    "key.fields": "key (--key), or () for no key",
}
_DOUBTS = {  # findings after which an inferred setting is uncertain
    "timestamp.field": ("no-time", "other-times", "doubtful-number"),
    "timestamp.zone": ("no-zone", "zone-name"),
    "timestamp.year": ("no-year",),
    "timestamp.format": ("mixed-formats", "date-order"),
    "key.fields": ("other-keys",),
    "input.records": ("events-in-array",),
    "input.encoding": ("encoding", "other-encoding"),
    "input.include": ("other-files",),
    "input.exclude": ("file-left-out",),
}


def append(  # noqa: PLR0913  # these are the settings that most topics need
    data: Any,
    lake: str | PathLike[str],
    topic: str,
    *,
    time: str | Sequence[str] | None = None,
    key: str | Sequence[str] | None = None,
    zone: str | None = None,
    run_id: str | None = None,
    interval: Interval = (None, None),
    settings: Mapping[str, Any] | None = None,
    spark: SparkSession | None = None,
    progress: Progress = silent,
) -> Report:
    """Append files or rows to a topic. Settings that are not passed are inferred from a sample.

    Files that the topic already has are not ingested again. If no file is new, nothing is
    committed. For rows, a run id is required, and
    rows with a committed run id are not ingested again.

    Args:
        data: Files or rows. Files are a path, a glob, or a list of these. Rows are an Arrow table,
            a pandas, polars or Spark DataFrame, or record batches. An iterator of batches is read
            once.
        lake: The root of the lake, a folder or URI. It is created if it does not exist.
        topic: The name of the topic. It is created if it does not exist.
        time: The field with the event time, or two fields with the date and the time of day.
            Default: the field with times, if there is only one.
        key: The field or fields of the key. () sets no key. Default: the only field that looks like
            a key, or no key without such a field.
        zone: The IANA zone of times without a zone, such as "UTC" or "Europe/Berlin".
        run_id: See `run_pipeline`. Required for rows.
        interval: See `run_pipeline`.
        settings: Other settings of a pipeline, such as {"topic.partitions": 4}.
        spark: A Spark session that runs the tasks. By default, tasks run in threads of this
            process, or in the session of a Spark DataFrame.
        progress: See `run_pipeline`.

    Returns:
        The report of the run. Its `pipeline` is the text of the inferred pipeline file. If you need
        a setting that `append` cannot infer, save and correct this text, and use `run_pipeline`.

    Raises:
        UsageError: A setting is uncertain or a field is unknown. The message names the argument.
        InputError: The input has no rows.
        SeglakeError: Any error that `run_pipeline` raises.

    Example:
        >>> report = seglake.append("raw/d1.jsonl", "lake", "requests", time="ts", key="user")
        >>> report.records
        600
        >>> seglake.append("raw/d1.jsonl", "lake", "requests", time="ts", key="user").records
        0
    """
    root, settings, paths = fspath(lake), settings or {}, _paths(data)
    if run_id is None and paths is None:
        raise UsageError("run_id is missing. Rows need one, because no file identifies them")
    storage = {name[8:]: text for name, text in settings.items() if name.startswith("storage.")}
    run = declare_run(run_id, interval)
    own = {**_partitions(root, storage, topic), **settings}
    if zone is not None:
        own["timestamp.zone"] = zone
    if paths is not None:
        sample, rows = read_sample(paths, storage, root, None), None
    else:
        sample, rows, columns = _rows(data)
        own.setdefault("value.columns", columns)
    times, keys = _names(time), _names(key)
    made = infer_settings(sample, root, topic, own, time=times or (), key=keys)
    _require_certain(made, own.keys() | ({"timestamp.field"} if times else set()))
    spark = getattr(data, "sparkSession", spark)
    engine, pipeline = ingest_engine(spark, None, local=spark is None), made.pipeline(topic)
    if rows is None:
        report = ingest_files(engine, pipeline, run, progress)
    else:
        report = ingest_rows(engine, rows, pipeline, run, progress)
    return replace(report, pipeline=made.toml)


def _paths(data: Any) -> list[str] | None:
    """Return `data` as a list of paths, or None if it has rows."""
    items = [data] if isinstance(data, str | PathLike) else data
    is_files = isinstance(items, Sequence) and all(isinstance(x, str | PathLike) for x in items)
    return [*map(fspath, items)] if is_files else None


def _rows(data: Any) -> tuple[Sample, InputFrame, list[str]]:
    """Return (sample of the rows, all rows as input with an order column, column names).

    Raises InputError for data without rows.
    """
    rows: InputFrame
    if hasattr(data, "sparkSession"):
        from pyspark.sql.functions import monotonically_increasing_id  # noqa: PLC0415  # an extra

        require_arrow_types(data)
        table = data.limit(_SAMPLED_ROWS).toArrow()
        rows = InputFrame(data.withColumn(_ROW, monotonically_increasing_id()), _ROW)
    else:
        batches, head, count = _batches(data), list[pa.RecordBatch](), 0
        while count < _SAMPLED_ROWS and (batch := next(batches, None)) is not None:
            head.append(batch)
            count += batch.num_rows
        table = pa.Table.from_batches(head).slice(0, _SAMPLED_ROWS) if head else pa.table({})
        rows = InputBatches(chain(head, batches), _ROW)
    if not len(table):
        raise InputError("data has no rows, so no settings can be inferred. Pass at least one row")
    settings = {"format": "dataframe", "order_column": _ROW}
    reason = "rows; order_column must name a column that numbers them"
    sample = sample_tables(settings, [table], reason)
    return sample._replace(size_bytes=int(getattr(data, "nbytes", 0))), rows, table.column_names


def _batches(data: Any) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of an Arrow stream, an iterable of batches, or a single batch.

    Raises UsageError for other data, and for batches with different columns.
    """
    if hasattr(data, "__arrow_c_stream__"):
        data = pa.RecordBatchReader.from_stream(data)
    is_one = isinstance(data, pa.RecordBatch) or not isinstance(data, Iterable)
    schema = None
    for batch in [data] if is_one else data:
        if not isinstance(batch, pa.RecordBatch) or batch.schema != (schema or batch.schema):
            raise UsageError(
                f"data contains a {type(batch).__name__}, which cannot be ingested. Give paths, an "
                "Arrow table, a DataFrame, or Arrow record batches with the same columns"
            )
        schema = batch.schema
        yield batch


def _names(given: str | Sequence[str] | None) -> list[str] | None:
    if isinstance(given, str):
        return [given] if given else []
    return None if given is None else [*given]


def _partitions(root: str, storage: Mapping[str, str], topic: str) -> dict[str, Any]:
    """Return {"topic.partitions": number} for an existing topic, or {} for a new one."""
    try:
        table = CatalogTable.open(open_store(root, storage))
    except UsageError:  # no lake yet
        return {}
    row = table.newest_ends(topic).find_topic(topic)
    return {} if row is None else {"topic.partitions": row.partitions}


def _require_certain(made: InferredPipeline, decided: Set[str]) -> None:
    """Raise UsageError if an inferred setting is uncertain and the caller did not pass it.

    `decided` has the settings that the caller passed.
    """
    doubts = {code: setting for setting, codes in _DOUBTS.items() for code in codes}
    for finding in made.findings:
        setting = doubts.get(finding.code)
        if setting is not None and setting not in decided:
            argument = _ARGUMENTS.get(setting, f'settings={{"{setting}": …}}')
            is_timeless = finding.code == "no-time"
            why = "No field has a time in nearly all rows." if is_timeless else finding
            raise UsageError(
                f"{setting} is uncertain. {why} Give {argument}, or write a pipeline with "
                "`seglake init`"
            )
