"""One ingest run, from raw files to one catalog commit: the story, told by the driver.

    already committed? → freeze the input → leave out what the topic has → map → count → cut and
    place → write segments → write quarantine → commit; after a lost race: reload, then re-base or
    plan again

Nothing is visible before the commit, and a run that dies anywhere is simply run again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.rows import RunRow, SegmentRow
from seglake.catalog.table import CatalogTable
from seglake.config import Pipeline
from seglake.engine import Engine, SparkEngine
from seglake.errors import ConfigError, QuarantineLimit, StoreError
from seglake.store import open_store
from seglake.write.driver import plan
from seglake.write.driver.attempt import Attempt, PlanAgain, RunKey, end_offsets
from seglake.write.driver.commit import Commit, mark
from seglake.write.driver.inputs import freeze
from seglake.write.driver.report import Progress, Report, silent
from seglake.write.driver.sources import Counts, Files, Frame, Opener
from seglake.write.input.listing import list_inputs
from seglake.write.map.unit import summarised
from seglake.write.quarantine import Quarantine
from seglake.write.reduce.segment_writer import Piece
from seglake.write.reduce.tasks import Count, Share, Straddling, Write
from seglake.write.spool.blob import BATCHES, RECORDS, REJECTS, SUMMARY
from seglake.write.spool.spool import clear

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["RunKey", "ingest_files", "ingest_frame"]

logger = logging.getLogger(__name__)


def ingest_files(
    engine: Engine, pipeline: Pipeline, key: RunKey, progress: Progress = silent
) -> Report:
    """Ingest the files that the pipeline names, once.

    The same run key again does nothing and says so; with other settings it is a ConfigError. Raises
    InputError, QuarantineLimit, StoreError or CommitConflict. None leaves part of a run visible; a
    StoreError at the commit may leave all of it, which the same run key again finds.
    """

    def opener(report: Report) -> Opener:
        with report.step("list input", progress):
            store = open_store(pipeline.root, pipeline.storage)
            frozen = freeze(store, pipeline, key.run_id, lambda: list_inputs(pipeline))
        return partial(Files, engine, pipeline, frozen)

    return _ingest(engine, pipeline, key, progress, opener)


def ingest_frame(
    frame: DataFrame,
    order_column: str,
    pipeline: Pipeline,
    key: RunKey,
    progress: Progress = silent,
) -> Report:
    """Ingest the rows of a DataFrame, once; as `ingest_files`, without files to remember."""
    engine = SparkEngine(frame.sparkSession)
    source = Frame(pipeline, frame, order_column)
    return _ingest(engine, pipeline, key, progress, lambda _: lambda _: source)


def _ingest(
    engine: Engine,
    pipeline: Pipeline,
    key: RunKey,
    progress: Progress,
    opener: Callable[[Report], Opener],
) -> Report:
    table = CatalogTable.create(pipeline.root, pipeline.storage)
    begun = Report(pipeline.topic.name, pipeline.name, key.run_id)
    opened: Opener | None = None
    while True:
        base, report = table.snapshot(), begun.copy()
        done = table.run(base, report.topic, report.pipeline, report.run_id)
        if done is not None:
            return _already_done(report, done, pipeline, key)
        opened = opened or opener(report)
        source = opened(table.sources(base, report.topic))
        attempt = Attempt(engine, pipeline, key, table, base, source, report, progress)
        try:
            return _run(attempt)
        except PlanAgain as reason:
            report.log(f"{reason}: planning again")


def _already_done(report: Report, done: RunRow, pipeline: Pipeline, key: RunKey) -> Report:
    if done.fingerprint != pipeline.fingerprint():
        raise ConfigError(
            f"run {key.run_id!r} of pipeline {pipeline.name!r} is committed with other settings: "
            "give this run another --run-id, or restore the settings"
        )
    interval = (done.interval_start_ms, done.interval_end_ms)
    if interval != (key.interval or (None, None)):
        raise ConfigError(
            f"run {key.run_id!r} of pipeline {pipeline.name!r} is committed with the interval "
            f"{interval}: give this run another --run-id, or the same interval"
        )
    mark(open_store(pipeline.root, pipeline.storage), done.attempt_id)  # its committer may be dead
    report.log("was committed before")
    report.status, report.attempt_id = "already done", done.attempt_id
    report.records, report.quarantined = done.records, done.quarantined
    report.input_rows = done.input_rows
    return report


def _run(attempt: Attempt) -> Report:
    """Write everything and commit it."""
    report, source = attempt.report, attempt.source
    report.attempt_id = attempt.attempt_id
    report.take_inputs(source.inputs)
    counts: Counts = {}
    segments: list[SegmentRow] = []
    if not source.is_empty():
        try:
            with attempt.step("read and sort"):
                staged = source.stage(attempt.attempt_id, attempt.append_time_ms)
            counts = _count(attempt, staged)
            segments = _write_segments(attempt, staged)
            _write_quarantine(attempt, staged, counts)
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
        logger.warning("blobs of this run stay behind until `seglake vacuum`: %s", error)


def _count(attempt: Attempt, staged: pa.Table) -> Counts:
    """The counts of every split, once they add up and few enough rows are rejected."""
    report = attempt.report
    kinds, records = staged["kind"].to_numpy(), staged["records"].to_numpy()
    summaries = staged.filter(pa.array(kinds == SUMMARY))["counts"]
    counts, report.reasons, report.max_lateness_ms = summarised(summaries.to_pylist())
    report.input_rows = sum(split.rows for split in counts.values())
    report.records = int(records[_with_records(kinds)].sum())
    report.quarantined = int(records[kinds == REJECTS].sum())
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


def _with_records(kinds: np.ndarray) -> np.ndarray:
    chosen: np.ndarray = (kinds == RECORDS) | (kinds == BATCHES)
    return chosen


def _write_segments(attempt: Attempt, staged: pa.Table) -> list[SegmentRow]:
    staged = staged.filter(pa.array(_with_records(staged["kind"].to_numpy())))
    if not len(staged):
        return []
    with attempt.step("plan"):
        tasks = _plan(attempt, staged)
    write = Write(attempt.pipeline, attempt.append_time_ms, attempt.source.order_column)
    with attempt.step("write segments"):
        segments = list(chain.from_iterable(attempt.engine.map(write, tasks)))
    written = sum(row.record_count for row in segments)
    if written != attempt.report.records:
        raise AssertionError(f"{attempt.report.records} records were read, and {written} written")
    return sorted(segments, key=lambda row: (row.partition, row.base_offset))


def _plan(attempt: Attempt, staged: pa.Table) -> list[list[Share]]:
    """What each task of the reduce side writes, and at which offsets."""
    known = plan.Blobs.of(staged)
    cuts = plan.cut_partitions(known, attempt.pipeline.task.piece_bytes)
    routes = plan.assign(known, cuts)
    counts = plan.count_pieces(known, routes, _straddling(attempt, staged, routes, cuts))
    bases = plan.base_offsets(cuts, counts, end_offsets(attempt.base, attempt.topic))
    bins = plan.TASKS_PER_CORE * attempt.engine.cores

    def share(number: int, blobs: list[int]) -> Share:
        name = (attempt.topic, cuts[number].partition, attempt.attempt_id)
        piece = Piece(*name, bases[number], attempt.started_ms)
        return Share(piece, cuts[number], staged.take(pa.array(blobs)))

    tasks = plan.share_out(known, routes, len(cuts), bins)
    return [[share(number, blobs) for number, blobs in task] for task in tasks]


def _straddling(
    attempt: Attempt, staged: pa.Table, routes: list[tuple[int, int]], cuts: list[plan.Cut]
) -> dict[tuple[int, int], int]:
    """Records of each blob that overlaps a cut in each of its pieces, as {(blob, piece): n}."""
    found = [
        Straddling(blob, {piece: cuts[piece] for piece in pieces}, staged.slice(blob, 1))
        for blob, pieces in plan.straddlers(routes).items()
    ]
    tasks = min(len(found), plan.TASKS_PER_CORE * attempt.engine.cores)
    shares = [found[first::tasks] for first in range(tasks)]
    counted = attempt.engine.map(Count(attempt.pipeline), shares)
    return {place: count for counts in counted for place, count in counts.items()}


def _write_quarantine(attempt: Attempt, staged: pa.Table, counts: Counts) -> None:
    if not attempt.report.quarantined:
        return
    root, storage = attempt.pipeline.root, attempt.pipeline.storage
    places = attempt.source.origins(counts)
    names = (attempt.topic, attempt.attempt_id, attempt.started_ms)
    with attempt.step("write quarantine"):
        parts = Quarantine(root, storage, *names, places).write(attempt.engine, staged)
        QuarantineTable(root, storage).add_parts(parts, attempt.attempt_id)
