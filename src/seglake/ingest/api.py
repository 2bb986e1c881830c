"""Ingest as callers see it: from a pipeline file, from a job, from a DataFrame."""

from __future__ import annotations

import datetime
import logging
from typing import TYPE_CHECKING

from seglake.config import Pipeline
from seglake.errors import UsageError
from seglake.ingest.pipeline import RunKey, ingest_files
from seglake.ingest.report import Progress, Report
from seglake.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    without one, every call is a run of its own, named by the clock. `interval` is what the run declares
    to cover, [start_ms, end_ms). `spark` is used as it is; without it a local session is started.
    Raises ConfigError, InputError, QuarantineLimit, StoreError or CommitConflict.
    """
    if interval is not None and interval[0] >= interval[1]:
        raise UsageError(f"the run's interval ends at {interval[1]}, before it begins: {interval[0]}")
    session = spark or spark_session("seglake ingest", delta=False)
    key = RunKey(run_id or _clock_id(), interval)
    return ingest_files(session, pipeline, key, progress or logger.info)


def _clock_id() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
