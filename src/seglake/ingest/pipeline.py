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
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from seglake.catalog.manifest import mark_committed
from seglake.catalog.quarantine_table import QuarantineTable
from seglake.catalog.rows import RunRow, SegmentRow
from seglake.catalog.table import CatalogTable
from seglake.config import Pipeline
from seglake.errors import ConfigError, InputError, QuarantineLimit
from seglake.ingest import plan
from seglake.ingest.attempt import Attempt, PlanAgain, RunKey, end_offsets
from seglake.ingest.blob import BATCHES, RECORDS, REJECTS, SUMMARY
from seglake.ingest.commit import Commit
from seglake.ingest.engine import Engine, KeptBlobs, SparkEngine
from seglake.ingest.inputs import freeze
from seglake.ingest.listing import list_inputs
from seglake.ingest.quarantine import Quarantine
from seglake.ingest.report import Progress, Report
from seglake.ingest.sources import Counts, Files, Frame, Opener
from seglake.ingest.stages import COUNT_SCHEMA, WRITE_SCHEMA, Count, Write
from seglake.ingest.units import summarised
from seglake.ingest.write import Piece
from seglake.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["RunKey", "ingest_files", "ingest_frame"]

logger = logging.getLogger(__name__)


def ingest_files(
    engine: Engine, pipeline: Pipeline, key: RunKey, progress: Progress = logger.info
) -> Report:
    """Ingest the files that the pipeline names, once.

    The same run key again does nothing and says so; with other settings it is a ConfigError. Raises
    InputError, QuarantineLimit, StoreError or CommitConflict; none of them leaves anything visible.
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
    progress: Progress = logger.info,
) -> Report:
    """Ingest the rows of a DataFrame, once; as `ingest_files`, without files to remember."""
    engine = SparkEngine(frame.sparkSession)
    source = Frame(engine, pipeline, frame, order_column)
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
            progress(f"{reason}: planning again")


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
    store = open_store(pipeline.root, pipeline.storage)
    mark_committed(store, done.attempt_id)  # its committer may have died before
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
        with source.blobs(attempt.append_time_ms) as blobs:
            with attempt.step("read and sort"):
                meta = blobs.meta()
            counts = _count(attempt, meta)
            segments = _write_segments(attempt, blobs, meta)
            _write_quarantine(attempt, blobs, counts)
    commit = Commit(attempt, counts)
    with attempt.step("commit"):
        report.version = commit.run(segments)
    return report


def _count(attempt: Attempt, meta: pa.Table) -> Counts:
    """The counts of every split, once they add up and few enough rows are rejected."""
    report, kinds, records = attempt.report, meta["kind"].to_numpy(), meta["records"].to_numpy()
    summaries = meta.filter(pa.array(kinds == SUMMARY))["counts"]
    counts, report.reasons = summarised(summaries.to_pylist())
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


def _write_segments(attempt: Attempt, blobs: KeptBlobs, meta: pa.Table) -> list[SegmentRow]:
    known = plan.Blobs.of(meta.filter(pa.array(_with_records(meta["kind"].to_numpy()))))
    if not len(known):
        return []
    pipeline = attempt.pipeline
    with attempt.step("plan"):
        cuts = plan.cut_partitions(known, pipeline.task.piece_bytes)
        routes = plan.assign(known, cuts)
        counts = plan.count_pieces(known, routes, _straddling(blobs, known, routes, cuts))
        bases = plan.base_offsets(cuts, counts, end_offsets(attempt.base, attempt.topic))
        bins = plan.TASKS_PER_CORE * attempt.engine.cores
        route = plan.route(known, routes, len(cuts), bins)
    names = (attempt.attempt_id, attempt.started_ms)
    pieces = {
        number: (cut, Piece(attempt.topic, cut.partition, names[0], base, names[1]))
        for number, (cut, base) in enumerate(zip(cuts, bases, strict=True))
    }
    task = Write(pipeline, pieces, attempt.append_time_ms, attempt.source.order_column)
    with attempt.step("write segments"):
        segments = task.rows(blobs.run_routed(task, WRITE_SCHEMA, route))
    written = sum(row.record_count for row in segments)
    if written != attempt.report.records:
        raise InputError(
            f"{attempt.report.records} records were read, but {written} when they were read again "
            "to be written: the input is not stable; run again, or store the DataFrame first"
        )
    return segments


def _straddling(
    blobs: KeptBlobs, known: plan.Blobs, routes: list[tuple[int, int]], cuts: list[plan.Cut]
) -> dict[tuple[int, int], int]:
    """Records of each blob that overlaps a cut in each of its pieces, as {(blob, piece): n}."""
    numbers = plan.straddlers(routes)
    if not numbers:
        return {}
    units = sorted({known.begin[number].unit for number in numbers})
    found = blobs.run(Count.of(known, numbers, cuts), COUNT_SCHEMA, ("unit", units)).to_pydict()
    keys = zip(found["blob"], found["piece"], strict=True)
    return dict(zip(keys, found["records"], strict=True))


def _write_quarantine(attempt: Attempt, blobs: KeptBlobs, counts: Counts) -> None:
    if not attempt.report.quarantined:
        return
    root, storage = attempt.pipeline.root, attempt.pipeline.storage
    places = attempt.source.origins(counts)
    names = (attempt.topic, attempt.attempt_id, attempt.started_ms)
    with attempt.step("write quarantine"):
        parts = Quarantine(root, storage, *names, places).write(blobs)
        QuarantineTable(root, storage).add_parts(parts, attempt.attempt_id)
