"""Provide the public functions that ingest files or a DataFrame, and that redrive a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seglake.clock import now
from seglake.config import Pipeline
from seglake.engine import SparkEngine, ingest_engine
from seglake.errors import ConfigError, UsageError
from seglake.times.instants import Time, is_open, to_epoch_ms
from seglake.write.driver.redrive import RedriveReport, redrive
from seglake.write.driver.report import Progress, Report, silent
from seglake.write.driver.run import DeclaredRun, ingest_files, ingest_rows
from seglake.write.driver.run_input import InputFrame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Interval = tuple[Time | None, Time | None]


def run_pipeline(
    pipeline: Pipeline,
    *,
    run_id: str | None = None,
    interval: Interval = (None, None),
    spark: SparkSession | None = None,
    master: str | None = None,
    local: bool = False,
    progress: Progress = silent,
) -> Report:
    """Ingest the files that a pipeline names, once per run id.

    Args:
        pipeline: The settings.
        run_id: Any text that is the same in a retry, such as an Airflow run id. Without a run id,
            every call is a separate run whose id is the current time. It commits nothing if the
            input has no new file and no interval is declared.
        interval: The time range [start, end) that the run declares to cover.
        spark: The Spark session to use. By default, a session starts on `master` if there is input
            to read.
        master: The Spark master, by default this machine.
        local: Run the tasks in threads of this process, without Spark and Java. The results are
            identical.
        progress: Called with the name of each step.

    Raises:
        UsageError: The run id or interval is invalid.
        SeglakeError: ConfigError, InputError, QuarantineLimit, StoreError or CommitConflict.

    Example:
        >>> from seglake.config import load
        >>> pipeline = load("web.toml", {"input.paths": ["raw/d2.jsonl"]})
        >>> report = seglake.run_pipeline(pipeline, run_id="d3", local=True)
        >>> report.records
        600
    """
    run = declare_run(run_id, interval)
    return ingest_files(ingest_engine(spark, master, local=local), pipeline, run, progress)


def redrive_run(
    pipeline: Pipeline,
    run_id: str,
    *,
    dry_run: bool = False,
    spark: SparkSession | None = None,
    master: str | None = None,
    local: bool = False,
    progress: Progress = silent,
) -> RedriveReport:
    """Ingest the open rejects of a committed run with the settings of a pipeline, exactly once.

    Args:
        pipeline: The settings. They select the topic and the lake; `input.paths` are not read.
        run_id: The id of the run, or of a redrive of it.
        dry_run: Report what would happen, without writing anything.
        spark: See `run_pipeline`.
        master: See `run_pipeline`.
        local: See `run_pipeline`.
        progress: See `run_pipeline`.

    Raises:
        UsageError: The run does not exist, or its rows cannot be read again.
        QuarantineLimit: No reject becomes a record, or too many are rejected again.
        SeglakeError: Any error that `run_pipeline` raises.

    Example:
        >>> from seglake.config import load
        >>> report = seglake.redrive_run(load("web.toml"), "d1", local=True)
        >>> report.records
        0
    """
    engine = ingest_engine(spark, master, local=local)
    return redrive(engine, pipeline, _text(run_id), dry_run=dry_run, progress=progress)


def ingest(
    df: DataFrame,
    settings: Pipeline,
    *,
    run_id: str | None = None,
    interval: Interval = (None, None),
    progress: Progress = silent,
) -> Report:
    """Ingest the rows of a DataFrame, with the settings and guarantees of an ingest of files.

    Args:
        df: The rows.
        settings: A pipeline with `input.format = "dataframe"` and `input.order_column`. Its fields
            are columns of `df`, with dots for fields of structs. The line of a quarantined row is
            its number in the order column.
        run_id: See `run_pipeline`.
        interval: See `run_pipeline`.
        progress: See `run_pipeline`.

    Raises:
        ConfigError: The settings are not for a DataFrame, or the order column does not exist.
        SeglakeError: Any error that `run_pipeline` raises.

    Example:
        >>> report = seglake.ingest(spark.read.json("raw"), pipeline, run_id="d3")  # doctest: +SKIP
    """
    if not isinstance(settings, Pipeline):
        raise ConfigError(
            f"the settings are a {type(settings).__name__}. Pass a pipeline from "
            f"`seglake.config.load` (a file) or `from_tables` (dicts)"
        )
    column = settings.row_number
    if column is None or settings.input.kind.in_files:
        raise ConfigError("seglake.ingest needs a pipeline with input.format = 'dataframe'")
    if column not in df.columns:
        name = "topic.offset_field" if settings.topic.offset_field else "input.order_column"
        columns = ", ".join(df.columns)
        raise ConfigError(f"{name} names {column!r}, but the columns are {columns}. Correct it")
    run = declare_run(run_id, interval)
    rows = InputFrame(df, column)
    return ingest_rows(SparkEngine(df.sparkSession), rows, settings, run, progress)


def declare_run(run_id: str | None, interval: Interval) -> DeclaredRun:
    """Check the run id and interval of a caller. By default, the id is the current time.

    Raises UsageError for an invalid run id or interval.
    """
    text = now().isoformat(timespec="microseconds").replace("+00:00", "Z")
    text = text if run_id is None else _text(run_id)
    return DeclaredRun(text, _interval_ms(*interval), is_named=run_id is not None)


def _text(run_id: str) -> str:
    if not run_id:
        raise UsageError("the run id is empty. Give another one, or leave it out")
    try:
        run_id.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"the run id {run_id!r} cannot be encoded in UTF-8. Give another one"
        ) from None
    return run_id


def _interval_ms(start: Time | None, end: Time | None) -> tuple[int, int] | None:
    """Return the interval [start, end) in ms, or None if neither end is passed.

    Raises UsageError if the interval is open or empty.
    """
    if start is None and end is None:
        return None
    if start is None or end is None:
        raise UsageError("the run's interval has no start or no end. Give both")
    start_ms, end_ms = to_epoch_ms(start), to_epoch_ms(end)
    if is_open(start_ms) or is_open(end_ms):
        raise UsageError("the run's interval is open. Give its start and its end")
    if start_ms >= end_ms:
        raise UsageError(f"the run's interval ends at {end}, which is not after its start, {start}")
    return start_ms, end_ms
