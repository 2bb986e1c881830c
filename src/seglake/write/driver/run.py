"""One ingest run, from raw files to one catalog commit, step by step.

    already committed? → freeze the input → select the files → map → count → plan → write segments →
    write quarantine → commit; after a lost race: reload, then re-base or plan again

Nothing is visible before the commit. A run that dies at any step is run again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.rows import RunRow, SegmentRow
from seglake.catalog.table import CatalogTable
from seglake.config import Pipeline
from seglake.engine import TASKS_PER_CORE, Engine, SparkEngine
from seglake.errors import ConfigError, QuarantineLimit, StoreError
from seglake.store import Store, open_store
from seglake.write.driver import plan
from seglake.write.driver.attempt import Attempt, DeclaredRun, PlanAgain, end_offsets
from seglake.write.driver.commit import Commit, mark
from seglake.write.driver.frozen import freeze
from seglake.write.driver.report import Progress, Report, silent
from seglake.write.driver.run_input import InputFiles, InputFrame, InputMaker, SplitCounts
from seglake.write.input.content import InputStore
from seglake.write.input.listing import list_inputs
from seglake.write.map.summary import add_up
from seglake.write.quarantine import Quarantine
from seglake.write.reduce.piece import Bounds, Piece, PieceInput, StraddlingBlob
from seglake.write.reduce.tasks import CountStraddling, WritePieces
from seglake.write.spool.spool import REJECTS, SUMMARY, WITH_RECORDS, clear, of_kinds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DeclaredRun", "ingest_files", "ingest_frame"]

logger = logging.getLogger(__name__)


def ingest_files(
    engine: Engine, pipeline: Pipeline, run: DeclaredRun, progress: Progress = silent
) -> Report:
    """Ingest the files that the pipeline names, once.

    A run id that is committed already does nothing: the report's status is "already done". Raises
    ConfigError if it is committed with other settings, InputError, QuarantineLimit, StoreError,
    AttemptAbandoned or CommitConflict. After an error nothing of the run is visible, except that
    after a StoreError at the commit all of it may be; the same run id again finds out.
    """

    def make(store: Store, report: Report) -> InputMaker:
        with report.step("list input", progress):
            files = InputStore(pipeline.storage)
            paths, on_empty = pipeline.input.paths, pipeline.input.on_empty
            listed = freeze(
                store, pipeline, run.run_id, lambda: list_inputs(paths, files, on_empty)
            )
        return partial(InputFiles, engine, pipeline, listed)

    return _ingest(engine, pipeline, run, progress, make)


def ingest_frame(
    frame: DataFrame,
    order_column: str,
    pipeline: Pipeline,
    run: DeclaredRun,
    progress: Progress = silent,
) -> Report:
    """Ingest the rows of a DataFrame, once, as `ingest_files` does; it has no source rows."""
    engine = SparkEngine(frame.sparkSession)
    rows = InputFrame(pipeline, frame, order_column)
    return _ingest(engine, pipeline, run, progress, lambda *_: lambda _: rows)


def _ingest(
    engine: Engine,
    pipeline: Pipeline,
    run: DeclaredRun,
    progress: Progress,
    make: Callable[[Store, Report], InputMaker],
) -> Report:
    store = open_store(pipeline.root, pipeline.storage)
    table = CatalogTable.create(store)
    begun = Report(pipeline.topic.name, pipeline.name, run.run_id)
    input_of: InputMaker | None = None
    while True:
        base, report = table.snapshot(), begun.copy()
        done = table.run(base, report.topic, report.pipeline, report.run_id)
        if done is not None:
            report = _already_done(report, done, pipeline, run)
            mark(store, done.attempt_id)  # the attempt may have died before it wrote the mark
            return report
        input_of = input_of or make(store, report)
        remaining = input_of(table.sources(base, report.topic))
        attempt = Attempt(engine, pipeline, run, store, table, base, remaining, report, progress)
        try:
            return _attempt(attempt)
        except PlanAgain as reason:
            report.log(f"{reason}: planning again")


def _already_done(report: Report, done: RunRow, pipeline: Pipeline, run: DeclaredRun) -> Report:
    if done.fingerprint != pipeline.fingerprint():
        raise ConfigError(
            f"run {run.run_id!r} of pipeline {pipeline.name!r} is committed with other settings: "
            "give this run another --run-id, or restore the settings"
        )
    interval = (done.interval_start_ms, done.interval_end_ms)
    if interval != (run.interval or (None, None)):
        raise ConfigError(
            f"run {run.run_id!r} of pipeline {pipeline.name!r} is committed with the interval "
            f"{interval}: give this run another --run-id, or the same interval"
        )
    report.log("is already committed")
    report.status, report.attempt_id = "already done", done.attempt_id
    report.records, report.quarantined = done.records, done.quarantined
    report.input_rows = done.input_rows
    return report


def _attempt(attempt: Attempt) -> Report:
    """Write everything and commit it."""
    report = attempt.report
    report.attempt_id = attempt.attempt_id
    report.describe_input(attempt.input.selection)
    counts: SplitCounts = {}
    segments: list[SegmentRow] = []
    if not attempt.input.is_empty():
        try:
            with attempt.step("read and sort"):
                spooled = attempt.input.spool(
                    attempt.store, attempt.attempt_id, attempt.append_time_ms
                )
            counts = _count(attempt, spooled)
            segments = _write_segments(attempt, spooled)
            _write_quarantine(attempt, spooled, counts)
        finally:
            _clear(attempt)
    commit = Commit(attempt, counts)
    with attempt.step("commit"):
        report.version = commit.run(segments)
    report.log(
        f"version {report.version} has {report.records} records, {report.quarantined} rejected"
    )
    return report


def _clear(attempt: Attempt) -> None:
    try:
        clear(attempt.store, attempt.attempt_id)
    except StoreError as error:
        logger.warning("blobs of this run are left for `seglake vacuum` to delete: %s", error)


def _count(attempt: Attempt, spooled: pa.Table) -> SplitCounts:
    """The counts of every split; QuarantineLimit if too many rows are rejected."""
    report = attempt.report
    summaries: list[Any] = of_kinds(spooled, SUMMARY)["text"].to_pylist()
    counts, report.reasons, report.max_lateness_ms = add_up(summaries)
    report.input_rows = sum(split.rows for split in counts.values())
    report.records = _records(of_kinds(spooled, *WITH_RECORDS))
    report.quarantined = _records(of_kinds(spooled, REJECTS))
    if report.input_rows != report.records + report.quarantined:
        raise AssertionError(f"rows do not add up: {report}")
    limit = attempt.pipeline.max_quarantine_ratio
    if report.quarantined > limit * report.input_rows:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in report.reasons.items())
        raise QuarantineLimit(
            f"{report.quarantined} of {report.input_rows} rows were rejected ({reasons}), more "
            f"than max_quarantine_ratio = {limit} allows; nothing was committed"
        )
    return counts


def _records(spooled: pa.Table) -> int:
    return int(spooled["records"].to_numpy().sum())


def _write_segments(attempt: Attempt, spooled: pa.Table) -> list[SegmentRow]:
    spooled = of_kinds(spooled, *WITH_RECORDS)
    if not len(spooled):
        return []
    with attempt.step("plan"):
        tasks = _plan(attempt, spooled)
    pipeline, order_column = attempt.pipeline, attempt.input.order_column
    merge_bytes, append_time_ms = pipeline.task.merge_bytes, attempt.append_time_ms
    write = WritePieces(attempt.store, pipeline.topic, append_time_ms, merge_bytes, order_column)
    with attempt.step("write segments"):
        segments = list(chain.from_iterable(attempt.engine.map(write, tasks)))
    written = sum(row.record_count for row in segments)
    if written != attempt.report.records:
        raise AssertionError(f"{attempt.report.records} records were read, and {written} written")
    return sorted(segments, key=lambda row: (row.partition, row.base_offset))


def _plan(attempt: Attempt, spooled: pa.Table) -> list[list[PieceInput]]:
    """The pieces that each reduce task writes, with their blobs and base offsets."""
    blobs = plan.Blobs.of(spooled)
    pieces = plan.cut_partitions(blobs, attempt.pipeline.task.piece_bytes)
    assignments = plan.assign(blobs, pieces)
    straddling = _count_straddling(attempt, spooled, assignments, pieces)
    counts = plan.count_records(blobs, assignments, straddling)
    bases = plan.base_offsets(pieces, counts, end_offsets(attempt.base, attempt.topic))

    def piece_input(number: int, members: list[int]) -> PieceInput:
        name = (attempt.topic, pieces[number].partition, attempt.attempt_id)
        piece = Piece(*name, bases[number], attempt.started_ms)
        return PieceInput(piece, pieces[number], spooled.take(pa.array(members)))

    most = TASKS_PER_CORE * attempt.engine.cores
    tasks = plan.share_pieces(blobs, assignments, len(pieces), most)
    return [[piece_input(number, members) for number, members in task] for task in tasks]


def _count_straddling(
    attempt: Attempt, spooled: pa.Table, assignments: list[tuple[int, int]], pieces: list[Bounds]
) -> dict[tuple[int, int], int]:
    """The records of each straddling blob in each of its pieces, as {(blob, piece): count}."""
    straddling = [
        StraddlingBlob(blob, {number: pieces[number] for number in members}, spooled.slice(blob, 1))
        for blob, members in plan.straddlers(assignments).items()
    ]
    tasks = min(len(straddling), TASKS_PER_CORE * attempt.engine.cores)
    shares = [straddling[first::tasks] for first in range(tasks)]
    by_task = attempt.engine.map(CountStraddling(attempt.store), shares)
    return dict(chain.from_iterable(counts.items() for counts in by_task))


def _write_quarantine(attempt: Attempt, spooled: pa.Table, counts: SplitCounts) -> None:
    if not attempt.report.quarantined:
        return
    origins = attempt.input.origins(counts)
    names = (attempt.topic, attempt.attempt_id, attempt.started_ms)
    with attempt.step("write quarantine"):
        write = Quarantine(attempt.store, *names, origins)
        files = write.run(attempt.engine, of_kinds(spooled, REJECTS))
        QuarantineTable(attempt.store).add_files(files, attempt.attempt_id)
