"""One ingest run, from raw files to one catalog commit, step by step.

    already committed? → list the input → select the files → map → count → plan → write segments →
    write quarantine → commit; after a lost race: reload, then re-base or plan again

Nothing is visible before the commit, and only a commit binds: a run that failed or died at any step
is run again, with the input and the settings of that moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from seglake.advice.conclude import Observed, conclude, merge_files
from seglake.advice.finding import Finding
from seglake.catalog.attempts import is_abandoned
from seglake.catalog.quarantine.open_rejects import redrive_of
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.schema import RunRow, SegmentRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.transaction import announced, mark
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import Pipeline
from seglake.engine import TASKS_PER_CORE, Engine, SparkEngine
from seglake.errors import ConfigError, CorruptData, MissingObject, StoreError
from seglake.format.records import Int64s
from seglake.layout import new_attempt
from seglake.store import open_store
from seglake.terminal.wording import counted
from seglake.times.instants import format_ms
from seglake.write.driver import plan
from seglake.write.driver.attempt import (
    Attempt,
    DeclaredRun,
    PlanAgain,
    Replacement,
    end_offsets,
    sources_left,
)
from seglake.write.driver.commit import Commit
from seglake.write.driver.report import Failure, Progress, Report, require_same, silent
from seglake.write.driver.run_input import (
    ChangedFiles,
    Differences,
    InputFrame,
    InputOf,
    SplitCounts,
    changes_since,
    files_of,
)
from seglake.write.driver.topics import growth, other_values
from seglake.write.input.content import InputStore
from seglake.write.input.listing import require_apart
from seglake.write.map.unit import IntervalTimes, add_up
from seglake.write.quarantine import Quarantine
from seglake.write.reduce.tasks import (
    CountStraddling,
    PieceBounds,
    PieceInput,
    ReducePiece,
    StraddlingBlob,
    WritePieces,
)
from seglake.write.spool.sorted_records import FIRST, LAST
from seglake.write.spool.spool import (
    REJECTS,
    SPOOLED,
    SUMMARY,
    WITH_RECORDS,
    clear,
    in_one,
    of_kinds,
    rows_at,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DeclaredRun", "ingest_files", "ingest_frame"]

Replacing = Callable[[CatalogTable, str], Replacement]

logger = logging.getLogger(__name__)


def ingest_files(
    engine: Engine,
    pipeline: Pipeline,
    run: DeclaredRun,
    progress: Progress = silent,
    replacing: Replacing | None = None,
) -> Report:
    """Ingest the files that the pipeline names, once.

    `replacing` makes the replacement that an attempt commits, from the catalog and the attempt's
    id. With it a committed run is ingested again, unless that would change nothing.

    If the run id is committed already, nothing is ingested: the report's status is "already done",
    and the report says what changed since. Raises ConfigError if the run is committed with other
    settings or the pipeline is that of a DataFrame, InputError, QuarantineLimit, StoreError,
    AttemptAbandoned or CommitConflict. After an error nothing of the run is visible. After a
    StoreError at the commit all of it may be: run again with the same run id to find out.
    """
    if not pipeline.input.kind.in_files:
        raise ConfigError(
            f"input.format = {pipeline.input.format!r} names no files: give the DataFrame to "
            "seglake.ingest, or set input.format and input.paths"
        )
    require_apart(pipeline.input, InputStore(pipeline.storage), pipeline.root)
    return _ingest(engine, pipeline, run, progress, files_of(engine, pipeline), replacing)


def ingest_frame(
    frame: DataFrame,
    order_column: str,
    pipeline: Pipeline,
    run: DeclaredRun,
    progress: Progress = silent,
    check: Callable[[], None] = lambda: None,
) -> Report:
    """Ingest the rows of a DataFrame, once, as `ingest_files` does; it has no source rows.

    `check` is called after each reading of the rows, and may raise.
    """
    engine = SparkEngine(frame.sparkSession)
    rows = InputFrame(frame, order_column, check)
    return _ingest(engine, pipeline, run, progress, lambda _sources: rows)


def _ingest(
    engine: Engine,
    pipeline: Pipeline,
    run: DeclaredRun,
    progress: Progress,
    input_of: InputOf,
    replacing: Replacing | None = None,
) -> Report:
    if replacing is not None and pipeline.topic.offset_field is not None:
        raise ConfigError(
            "topic.offset_field contradicts a replacement: its records would keep offsets that lie "
            "below the end of the log; ingest them into another topic"
        )
    store = open_store(pipeline.root, pipeline.storage)
    table = CatalogTable.create(store)
    begun = Report(pipeline.topic.name, pipeline.name, run.run_id)
    while True:
        base = table.snapshot(topics=[begun.topic]) if replacing else table.ends(begun.topic)
        run = _as_declared(table, base, begun, run) if replacing else run
        report, attempt_id = begun.copy(), new_attempt()
        replacement = replacing(table, attempt_id) if replacing else None
        if _is_done(table, base, pipeline, run, replacement, report):
            return report
        moved = set[str]()
        others = [moved, replacement.attempts] if replacement else [moved]
        count = pipeline.topic.partitions
        announcement = announced(table, attempt_id, report.topic, *others, partitions=count)
        with announcement, Failure(store, report) as failure:
            try:
                if replacement:  # it copies records of the version
                    _require_newest(table, base)
                naming = _naming_the_run(table, base, report)
                with report.step("list input", progress, "listing the input"), naming:
                    left = input_of(partial(sources_left, table, base, report.topic, replacement))
                attempt = Attempt(
                    engine=engine,
                    pipeline=pipeline,
                    run=run,
                    store=store,
                    table=table,
                    base=base,
                    input=left,
                    report=report,
                    progress=progress,
                    replacement=replacement,
                    attempt_id=attempt_id,
                    moved=moved,
                )
                return carry_out(attempt, failure)
            except PlanAgain as reason:
                report.log(f"{reason}: planning again")


def _as_declared(
    table: CatalogTable, base: Snapshot, report: Report, run: DeclaredRun
) -> DeclaredRun:
    """The run that replaces one of its id; without an interval of its own it keeps that one's."""
    before = table.run(base, report.topic, report.pipeline, report.run_id)
    if run.interval is not None or before is None:
        return run
    start_ms, end_ms = before.interval_start_ms, before.interval_end_ms
    if start_ms is None or end_ms is None:
        return run
    return run._replace(interval=(start_ms, end_ms))


@contextmanager
def _naming_the_run(table: CatalogTable, base: Snapshot, report: Report) -> Iterator[None]:
    """In the block, an error about a file that changed names the run that has it.

    It is the newest one, of this pipeline if it has such a run.
    """
    try:
        yield
    except ChangedFiles as changed:
        sources = table.sources_at(base, report.topic, changed.paths[:1])
        attempts = sources["attempt_id"].to_pylist()
        runs = [run for run in table.runs(base, report.topic) if run.attempt_id in attempts]
        mine = [run for run in runs if run.pipeline == report.pipeline]
        if not runs:
            raise
        run_id, pipeline = (mine or runs)[-1].run_id, "" if mine else runs[-1].pipeline
        raise ChangedFiles(changed.paths, run_id, pipeline) from None


def _require_newest(table: CatalogTable, base: Snapshot) -> None:
    """Raise PlanAgain if a version is not the newest any more. Raises StoreError."""
    if table.refresh(base) is not base:
        raise PlanAgain("a commit came before the announcement")


def _is_done(
    table: CatalogTable,
    base: Snapshot,
    pipeline: Pipeline,
    run: DeclaredRun,
    replacement: Replacement | None,
    report: Report,
) -> bool:
    """Whether the run, or what would replace it, is committed already. Then fills in `report`."""
    done = table.run(base, report.topic, report.pipeline, report.run_id)
    if done is None:
        return False
    differences = changes_since(
        pipeline,
        partial(table.sources_at, base, report.topic),
        partial(table.source_paths, base, done),
    )
    if replacement and not _is_same(done, pipeline, run, replacement.runs(base), differences):
        return False
    require_same(done, pipeline, run.interval)
    report.describe_done(done, differences)
    report.log(report.summary)
    mark(table.store, done.attempt_id)  # the attempt may have died before it wrote the mark
    return True


def _is_same(
    done: RunRow,
    pipeline: Pipeline,
    run: DeclaredRun,
    replaced: list[RunRow],
    differences: Differences,
) -> bool:
    """Whether a replacement would ingest what is committed: same settings, interval and files."""
    interval = (done.interval_start_ms, done.interval_end_ms)
    others = [other for other in replaced if redrive_of(other) is None and other != done]
    return (
        done.fingerprint == pipeline.fingerprint()
        and interval == (run.interval or (None, None))
        and not any(differences)
        and not others
    )


def carry_out(
    attempt: Attempt, failure: Failure, before_commit: Callable[[Attempt], None] = lambda _: None
) -> Report:
    """Write everything, call `before_commit`, and commit.

    If that fails, `failure` gets a sample of the rejects.
    """
    report = attempt.report
    report.attempt_id = attempt.attempt_id
    report.describe_input(attempt.input.selection)
    report.findings += growth(attempt.base, attempt.settings.topic)
    counts: SplitCounts = {}
    segments: list[SegmentRow] = []
    if not attempt.input.is_empty():
        try:
            attempt.engine.start(attempt.step)
            with attempt.step("read and sort", f"reading {report.input_size}"):
                spooled = attempt.input.spool(attempt.map_settings)
            counts = count(attempt, spooled)
            quarantine = _quarantine(attempt, counts)
            rejects = of_kinds(spooled, REJECTS).cast(SPOOLED)
            spooled = in_one(of_kinds(spooled, *WITH_RECORDS))
            try:
                check_input(attempt)
                segments = _write_segments(attempt, spooled)
                _write_quarantine(attempt, rejects, quarantine)
                before_commit(attempt)
            except Exception as error:
                _take_back_rejects(attempt, error)
                with suppress(StoreError, CorruptData):  # the first error tells more
                    failure.rejects = quarantine.sample(rejects)
                raise
        finally:
            _clear(attempt)
    commit = Commit(attempt, counts, segments)
    with attempt.step("commit"):
        report.version = commit.run()
    report.log_commit()
    return report


def check_input(attempt: Attempt) -> None:
    """Raise an error if the rejects or the times of the input forbid a commit."""
    root = attempt.store.uri if attempt.input.keeps_rejects else None
    attempt.report.check_rejects(attempt.pipeline, root)
    attempt.report.check_times(attempt.pipeline)


def _take_back_rejects(attempt: Attempt, failure: Exception) -> None:
    """Delete the quarantine's files of an attempt that was given up meanwhile, see `announced`.

    An erasure that gave it up may have deleted its blobs, so it may fail as if objects were lost.
    After another failure of storage they stay: a commit of them may come late.
    """
    if isinstance(failure, StoreError) and not isinstance(failure, MissingObject):
        return
    store = attempt.store
    try:
        if is_abandoned(store, attempt.attempt_id):
            files = QuarantineTable(store).unnamed_keys(attempt.topic, attempt.attempt_id)
            store.delete(files)
    except (StoreError, CorruptData) as error:
        logger.warning("files of this run are left for `seglake vacuum` to delete: %s", error)


def _clear(attempt: Attempt) -> None:
    try:
        clear(attempt.store, attempt.attempt_id)
    except StoreError as error:
        logger.warning("blobs of this run are left for `seglake vacuum` to delete: %s", error)


def count(attempt: Attempt, spooled: pa.Table) -> SplitCounts:
    """The counts of every split; fills in the report."""
    report = attempt.report
    summaries: list[Any] = of_kinds(spooled, SUMMARY)["text"].to_pylist()
    totals = add_up(summaries)
    report.reasons, report.max_lateness_ms = totals.reasons, totals.max_lateness_ms
    report.skipped_records, report.interval_records = totals.skipped, totals.times.inside
    report.input_rows = sum(split.rows for split in totals.splits.values()) - totals.skipped
    report.records = _records(spooled, *WITH_RECORDS)
    origins = attempt.input.origins(totals.splits)
    files = merge_files((origins[n].path, each.times) for n, each in sorted(totals.splits.items()))
    records = report.records + report.skipped_records
    observed = Observed(totals.findings, records, totals.absent, files)
    report.findings += conclude(attempt.settings, observed)
    report.findings += other_values(attempt.settings.topic, attempt.seed())
    report.findings += _outside_interval(attempt, totals.times)
    report.quarantined = _records(spooled, REJECTS)
    if report.input_rows != report.records + report.quarantined:
        raise AssertionError(f"rows do not add up: {report}")
    return totals.splits


def _outside_interval(attempt: Attempt, times: IntervalTimes) -> list[Finding]:
    """Return a finding if the run has records, and none in the interval that it declares.

    The input may be that of another interval. Some records outside are not odd: events come late.
    """
    records, interval = attempt.report.records, attempt.run.interval
    if interval is None or times.inside != 0 or not records:
        return []
    bounds = zip(("start", "end", "low", "high"), (*interval, *times[1:]), strict=True)
    facts = {name: format_ms(ms) for name, ms in bounds}
    return [Finding("outside-interval", facts=facts, count=records)]


def _records(spooled: pa.Table, *kinds: int) -> int:
    return int(of_kinds(spooled.select(["kind", "records"]), *kinds)["records"].to_numpy().sum())


def _write_segments(attempt: Attempt, spooled: pa.Table) -> list[SegmentRow]:
    keeps_offsets = attempt.settings.topic.offset_field is not None
    if not len(spooled) and not keeps_offsets:
        return []
    with attempt.step("plan"):
        tasks = _plan_at_offsets(attempt, spooled) if keeps_offsets else _plan(attempt, spooled)
    if not tasks:
        return []
    settings, order_column = attempt.settings, attempt.input.order_column
    merge_bytes, append_time_ms = settings.task.merge_bytes, attempt.append_time_ms
    write = WritePieces(attempt.store, settings.topic, append_time_ms, merge_bytes, order_column)
    with attempt.step("write segments", f"writing {counted(attempt.report.records, 'record')}"):
        segments = list(chain.from_iterable(attempt.engine.map(write, tasks)))
    written = sum(row.record_count for row in segments)
    if written != attempt.report.records:
        raise AssertionError(f"{attempt.report.records} records were read, and {written} written")
    return sorted(segments, key=lambda row: (row.partition, row.base_offset))


def _plan(attempt: Attempt, spooled: pa.Table) -> list[list[PieceInput]]:
    """The pieces that each reduce task writes, with their blobs and base offsets."""
    blobs = plan.Blobs.of(spooled)
    pieces = plan.cut_partitions(blobs, attempt.pipeline.task.piece_bytes)
    routes = plan.assign(blobs, pieces)
    straddling = _count_straddling(attempt, spooled, routes, pieces)
    counts = plan.count_records(blobs, routes, straddling)
    bases = plan.base_offsets(pieces, counts, end_offsets(attempt.base, attempt.topic))
    offsets = [(base, None) for base in bases]
    return _tasks(attempt, spooled, blobs, routes, pieces, offsets, counts)


def _plan_at_offsets(attempt: Attempt, spooled: pa.Table) -> list[list[PieceInput]]:
    """The pieces of a run whose records keep their offsets.

    A log partition without a record has a piece, too, if the run declares to cover offsets of it.
    """
    blobs = plan.Blobs.of(spooled)
    pieces = plan.cut_partitions(blobs, attempt.pipeline.task.piece_bytes)
    full = {piece.partition for piece in pieces}
    ends = {partition: end for partition, (_, end) in attempt.run.offsets.items()}
    pieces += [
        PieceBounds(partition, FIRST, LAST)
        for partition, end in ends.items()
        if partition not in full and end > attempt.first_offset(partition)
    ]
    offsets = [
        (attempt.first_offset(piece.partition) if start is None else start, end)
        for piece, (start, end) in zip(pieces, plan.fixed_ends(pieces, ends), strict=True)
    ]
    return _tasks(attempt, spooled, blobs, plan.assign(blobs, pieces), pieces, offsets)


def _tasks(
    attempt: Attempt,
    spooled: pa.Table,
    blobs: plan.Blobs,
    routes: plan.Routes,
    pieces: list[PieceBounds],
    offsets: Sequence[tuple[int, int | None]],
    counts: Sequence[int] = (),
) -> list[list[PieceInput]]:
    """The pieces of each task; `offsets` has (first offset, end offset) of each piece.

    `counts` has the records of each, if they were counted.
    """

    def piece_input(number: int, members: Int64s) -> PieceInput:
        base_offset, end_offset = offsets[number]
        piece = ReducePiece(
            topic=attempt.topic,
            partition=pieces[number].partition,
            attempt_id=attempt.attempt_id,
            base_offset=base_offset,
            created_at_ms=attempt.started_ms,
            end_offset=end_offset,
        )
        made = PieceInput.of(piece, pieces[number], rows_at(spooled, members))
        return made._replace(records=counts[number]) if counts else made

    most = TASKS_PER_CORE * attempt.engine.cores_for(int(blobs.size_bytes.sum()))
    tasks = plan.share_pieces(blobs, routes, len(pieces), most)
    return [[piece_input(number, members) for number, members in task] for task in tasks]


def _count_straddling(
    attempt: Attempt, spooled: pa.Table, routes: plan.Routes, pieces: list[PieceBounds]
) -> dict[tuple[int, int], int]:
    """The records of each straddling blob in each of its pieces, as {(blob, piece): count}."""
    pieces_of = plan.straddlers(routes)
    rows = rows_at(spooled, np.fromiter(pieces_of, np.int64))
    straddling = [
        StraddlingBlob(blob, {piece: pieces[piece] for piece in members}, rows.take([at]))
        for at, (blob, members) in enumerate(pieces_of.items())
    ]
    cores = attempt.engine.cores_for(int(rows["size_bytes"].to_numpy().sum()))
    tasks = min(len(straddling), TASKS_PER_CORE * cores)
    shares = [straddling[first::tasks] for first in range(tasks)]
    by_task = attempt.engine.map(CountStraddling(attempt.store), shares)
    return dict(chain.from_iterable(counts.items() for counts in by_task))


def _quarantine(attempt: Attempt, counts: SplitCounts) -> Quarantine:
    origins = attempt.input.origins(counts)
    return Quarantine(attempt.store, attempt.topic, attempt.attempt_id, attempt.started_ms, origins)


def _write_quarantine(attempt: Attempt, rejects: pa.Table, quarantine: Quarantine) -> None:
    if not attempt.report.quarantined:
        return
    with attempt.step("write quarantine"):
        files = quarantine.run(attempt.engine, rejects)
        QuarantineTable(attempt.store).add_files(files, attempt.attempt_id)
