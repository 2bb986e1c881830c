"""Ingest as callers see it: from a pipeline file, from a job, from a DataFrame."""

from __future__ import annotations

import datetime as dt
import logging
from typing import TYPE_CHECKING

from seglake.config import Pipeline
from seglake.errors import ConfigError, UsageError
from seglake.ingest.engine import SparkEngine
from seglake.ingest.pipeline import RunKey, ingest_files, ingest_frame
from seglake.ingest.report import Progress, Report
from seglake.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)


def run_pipeline(
    pipeline: Pipeline,
    *,
    run_id: str | None = None,
    interval: tuple[int, int] | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> Report:
    """Ingest the files that a pipeline names, once per run id.

    `run_id` is any text that makes this run the same run again: an Airflow run id, a data interval;
    without one, every call is a run of its own, named by the clock. `interval` is what the run
    declares to cover, [start_ms, end_ms). `spark` is used as it is; without it a local session is
    started. Raises ConfigError, InputError, QuarantineLimit, StoreError or CommitConflict.
    """
    key = _key(run_id, interval)
    session = spark or spark_session("seglake ingest", delta=False)
    return ingest_files(SparkEngine(session), pipeline, key, progress or logger.info)


def ingest(
    df: DataFrame,
    settings: Pipeline,
    *,
    order_column: str,
    run_id: str | None = None,
    interval: tuple[int, int] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Ingest the rows of a DataFrame: the same path, settings and guarantees as for files.

    `settings` is a pipeline with `input.format = "dataframe"`; its fields are columns of `df`,
    dotted for fields of structs. `order_column` holds a unique integer in every row and decides
    among equal event times. Rejected rows are quarantined under this number.
    """
    if settings.input.format != "dataframe":
        raise ConfigError("seglake.ingest takes a pipeline with input.format = 'dataframe'")
    if order_column not in df.columns:
        raise ConfigError(f"order column {order_column!r} is none of {', '.join(df.columns)}")
    key = _key(run_id, interval)
    return ingest_frame(df, order_column, settings, key, progress or logger.info)


def _key(run_id: str | None, interval: tuple[int, int] | None) -> RunKey:
    if interval is not None and interval[0] >= interval[1]:
        raise UsageError(
            f"the run's interval ends at {interval[1]}, before it begins: {interval[0]}"
        )
    return RunKey(run_id or _clock_id(), interval)


def _clock_id() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="microseconds")
