"""Runs that are ingested again: the corrected records take the place of the old ones in one commit.

Airflow's *clear* does so with a run id. With a declared interval the pipeline's runs that lie in it
are replaced together, as when a day of hourly runs is corrected by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from seglake.catalog.schema import RunRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import Pipeline
from seglake.engine import Engine, engine_of
from seglake.errors import UsageError
from seglake.maintain.undo import RunRemoval
from seglake.times.instants import format_ms
from seglake.write.api import Interval, declared
from seglake.write.driver.attempt import DeclaredRun
from seglake.write.driver.report import Progress, Report, silent
from seglake.write.driver.run import ingest_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def replace(  # noqa: PLR0913  # each is an option of the command
    pipeline: Pipeline,
    *,
    run_id: str,
    interval: Interval = (None, None),
    whole_interval: bool = False,
    with_nothing: bool = False,
    force: bool = False,
    spark: SparkSession | None = None,
    master: str | None = None,
    local: bool = False,
    progress: Progress = silent,
) -> Report:
    """Ingest the files that a pipeline names in the place of what a run brought in before.

    The committed run of this id goes, with its redrives; with `whole_interval` also the pipeline's
    runs that lie wholly inside the declared interval. If there is none, this is an ingest. If it
    would ingest the same files with the same settings, the status is "already done". If there is
    no record to take the place of what goes, nothing is replaced, unless `with_nothing`. `force`
    goes on even if compaction may have dropped values of other runs in favour of a run that goes.
    Raises UsageError for a run that lies partly inside the interval, for a replacement by nothing,
    and for a run id without a run and an interval if other runs have all the files; and what
    `ingest` and `undo` raise.
    """
    run = declared(run_id, interval)
    if whole_interval and run.interval is None:
        raise UsageError("no interval is declared, so none can be replaced: give both its ends")
    return replace_files(
        engine_of(spark, master, local=local),
        pipeline,
        run,
        progress,
        whole_interval=whole_interval,
        with_nothing=with_nothing,
        force=force,
    )


def replace_files(
    engine: Engine,
    pipeline: Pipeline,
    run: DeclaredRun,
    progress: Progress = silent,
    *,
    whole_interval: bool = False,
    with_nothing: bool = False,
    force: bool = False,
) -> Report:
    """As `replace`, on an engine."""

    def removal(table: CatalogTable, attempt_id: str) -> RunRemoval:
        choose = partial(_runs, table, pipeline, run, whole_interval=whole_interval)
        return RunRemoval(
            table,
            pipeline.topic.name,
            attempt_id,
            choose,
            engine,
            force=force,
            with_nothing=with_nothing,
            state="replaced",
        )

    return ingest_files(engine, pipeline, run, progress, removal)


def _runs(
    table: CatalogTable,
    pipeline: Pipeline,
    run: DeclaredRun,
    base: Snapshot,
    *,
    whole_interval: bool,
) -> list[RunRow]:
    """The runs to replace: that of the run id, and those inside the interval."""
    of_topic = table.runs(base, pipeline.topic.name)
    runs = [other for other in of_topic if other.pipeline == pipeline.name]
    same = [other for other in runs if other.run_id == run.run_id]
    inside = _inside(runs, *run.interval) if whole_interval and run.interval else []
    return list({other.run_id: other for other in [*same, *inside]}.values())


def _inside(runs: Iterable[RunRow], start_ms: int, end_ms: int) -> list[RunRow]:
    """The runs whose interval lies in [start_ms, end_ms). Raises UsageError for a partial one."""
    inside = []
    for run in runs:
        if run.interval_start_ms is None or run.interval_end_ms is None:
            continue
        if run.interval_start_ms >= end_ms or run.interval_end_ms <= start_ms:
            continue
        if run.interval_start_ms < start_ms or run.interval_end_ms > end_ms:
            raise UsageError(
                f"run {run.run_id!r} covers {format_ms(run.interval_start_ms)} to "
                f"{format_ms(run.interval_end_ms)}, which lies partly inside the interval: widen "
                "the interval, or replace that run by its id"
            )
        inside.append(run)
    return inside
