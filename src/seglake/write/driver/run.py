"""Run one ingest, from raw files to one catalog commit, in several steps.

    already committed? → list the input → select the files → map → count → plan → write segments →
    write quarantine → commit; after a lost race: reload, then rebase or plan again

No change is visible before the commit. If a run failed or died before its commit, it can be run
again, even with another input or other settings.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from shlex import quote
from typing import Any

import pyarrow as pa

from seglake.advice.conclude import Observations, conclude, merge_times
from seglake.advice.finding import Finding
from seglake.catalog.attempts import is_abandoned
from seglake.catalog.quarantine.open_rejects import redrive_from_run
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.schema import RunRow, SegmentRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.transaction import announce, write_marker
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import Pipeline
from seglake.engine import Engine
from seglake.errors import ChangedFiles, ConfigError, CorruptData, MissingObject, StoreError
from seglake.layout import new_attempt
from seglake.store import open_store
from seglake.terminal.wording import counted
from seglake.times.instants import format_ms
from seglake.write.driver.attempt import (
    Attempt,
    DeclaredRun,
    Replacement,
    ReplanRequired,
    remaining_sources,
)
from seglake.write.driver.commit import Commit
from seglake.write.driver.plan import plan_tasks
from seglake.write.driver.report import Progress, Report, silent, store_failure
from seglake.write.driver.run_input import (
    InputFrame,
    InputOf,
    SplitCounts,
    changes_since,
    new_files,
)
from seglake.write.driver.topics import partition_growth_finding, value_settings_finding
from seglake.write.input.content import InputStore
from seglake.write.input.listing import require_apart
from seglake.write.map.unit import IntervalTimes, combine_summaries
from seglake.write.quarantine import Quarantine
from seglake.write.reduce.tasks import WritePieces
from seglake.write.spool.spool import (
    REJECTS,
    SPOOLED,
    SUMMARY,
    WITH_RECORDS,
    combine_chunks,
    delete_blobs,
    filter_kinds,
)

__all__ = ["DeclaredRun", "ingest_files", "ingest_rows"]

Replacing = Callable[[CatalogTable, str], Replacement]

logger = logging.getLogger(__name__)


def ingest_files(
    engine: Engine,
    pipeline: Pipeline,
    run: DeclaredRun,
    progress: Progress = silent,
    replacing: Replacing | None = None,
) -> Report:
    """Ingest the files that the pipeline names, once per run id.

    `replacing` returns, from the catalog and an attempt's id, the replacement that the attempt
    commits. With it, a committed run is ingested again, unless that would change nothing.
    Otherwise a committed run is not ingested again: the report's status is "already done", and the
    report has the changes of the input since the commit. After an error, no part of the run is
    visible. But after a StoreError at the commit, the whole run may be visible. To find out, call
    again with the same run id.

    Raises:
        ConfigError: The run is committed with other settings, or the pipeline is for a DataFrame.
        ChangedFiles: A file changed after it was ingested, and the pipeline forbids that.
        SeglakeError: InputError, QuarantineLimit, StoreError, AttemptAbandoned or CommitConflict.
    """
    if not pipeline.input.kind.in_files:
        raise ConfigError(
            f"input.format = {pipeline.input.format!r} has no files. Pass the DataFrame to "
            f"seglake.ingest, or set input.format and input.paths"
        )
    require_apart(pipeline.input, InputStore(pipeline.storage), pipeline.root)
    return _ingest(engine, pipeline, run, progress, new_files(engine, pipeline), replacing)


def ingest_rows(
    engine: Engine,
    rows: InputFrame,
    pipeline: Pipeline,
    run: DeclaredRun,
    progress: Progress = silent,
) -> Report:
    """Ingest rows of a DataFrame or of record batches, once per run id, like `ingest_files`.

    No source rows are committed.
    """
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
            "runs of a topic with topic.offset_field cannot be replaced, because the new records "
            "would have offsets below the end of the log. Ingest the input into another topic"
        )
    store = open_store(pipeline.root, pipeline.storage)
    table = CatalogTable.create(store)
    begun = Report(pipeline.topic.name, pipeline.name, run.run_id)
    while True:
        base = table.snapshot(topics=[begun.topic]) if replacing else table.newest_ends(begun.topic)
        run = _as_declared(table, base, begun, run) if replacing else run
        report, attempt_id = replace(begun, findings=[]), new_attempt()
        replacement = replacing(table, attempt_id) if replacing else None
        if _already_committed(table, base, pipeline, run, replacement, report):
            return report
        moved = set[str]()
        others = [moved, replacement.attempts] if replacement else [moved]
        count = pipeline.topic.partitions
        announcement = announce(table, attempt_id, report.topic, *others, partitions=count)
        with announcement, store_failure(store, report) as sample:
            try:
                # A replacement copies records of the version `base`.
                if replacement:
                    _require_newest(table, base)
                naming = _naming_the_run(table, base, report)
                with report.step("list input", progress, "listing the input"), naming:
                    left = input_of(
                        partial(remaining_sources, table, base, report.topic, replacement)
                    )
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
                return execute_attempt(attempt, sample)
            except ReplanRequired as reason:
                report.log(f"{reason}: planning again")


def _as_declared(
    table: CatalogTable, base: Snapshot, report: Report, run: DeclaredRun
) -> DeclaredRun:
    """Return `run`. If it has no interval, add the interval of the run that it replaces."""
    before = table.rows.run(base, report.topic, report.pipeline, report.run_id)
    if run.interval is not None or before is None:
        return run
    start_ms, end_ms = before.interval_start_ms, before.interval_end_ms
    return run if start_ms is None or end_ms is None else run._replace(interval=(start_ms, end_ms))


@contextmanager
def _naming_the_run(table: CatalogTable, base: Snapshot, report: Report) -> Iterator[None]:
    """Add the id of the run that ingested the changed file to ChangedFiles errors of the block.

    If several runs ingested it, this is the newest run of this pipeline, or else of any pipeline.
    """
    try:
        yield
    except ChangedFiles as changed:
        sources = table.rows.sources_at(base, report.topic, changed.paths[:1])
        attempts = sources["attempt_id"].to_pylist()
        runs = [run for run in table.rows.runs(base, report.topic) if run.attempt_id in attempts]
        mine = [run for run in runs if run.pipeline == report.pipeline]
        if not runs:
            raise
        under = "" if mine else f"pipeline.name = {runs[-1].pipeline!r} and "
        run = f"{under}--run-id {quote((mine or runs)[-1].run_id)}"
        raise ChangedFiles(changed.paths, run) from None


def _require_newest(table: CatalogTable, base: Snapshot) -> None:
    """Raise ReplanRequired if `base` is no longer the newest version. Raises StoreError."""
    if table.refresh(base) is not base:
        raise ReplanRequired("a commit came before the announcement")


def _already_committed(
    table: CatalogTable,
    base: Snapshot,
    pipeline: Pipeline,
    run: DeclaredRun,
    replacement: Replacement | None,
    report: Report,
) -> bool:
    """Return whether the run is already committed, and fill in `report` if so.

    A run with a replacement counts as committed only if the committed run has the same files,
    settings and interval, and if the replacement would remove no other run. Raises ConfigError if
    the run is committed with other settings or another interval. Raises ChangedFiles if a file
    changed since the commit and the pipeline forbids that.
    """
    done = table.rows.run(base, report.topic, report.pipeline, report.run_id)
    if done is None:
        return False
    differences = changes_since(
        pipeline,
        partial(table.rows.sources_at, base, report.topic),
        partial(table.rows.source_paths, base, done),
    )
    if replacement:
        is_same = (
            done.fingerprint == pipeline.fingerprint()
            and (done.interval_start_ms, done.interval_end_ms) == (run.interval or (None, None))
            and not any(differences)
        )
        others = (other for other in replacement.runs(base) if not redrive_from_run(other))
        if not is_same or any(other != done for other in others):
            return False
    _require_same(done, pipeline, run.interval)
    report.describe_done(done, differences)
    report.log(report.summary)
    # The attempt may have died before it wrote its marker.
    write_marker(table.store, done.attempt_id)
    if differences.changed and pipeline.on_changed_source == "fail":
        with _naming_the_run(table, base, report):
            raise ChangedFiles(differences.changed)
    return True


def _require_same(done: RunRow, pipeline: Pipeline, declared: tuple[int, int] | None) -> None:
    """Raise ConfigError if a run is committed with other settings or another interval."""
    committed = f"run {done.run_id!r} of pipeline {pipeline.name!r} is committed"
    winner = f"attempt {done.attempt_id}, which ended at {format_ms(done.finished_at_ms)}"
    if redrive_from_run(done):
        raise ConfigError(f"{committed} as a redrive. Give this run another --run-id")
    if done.fingerprint != pipeline.fingerprint():
        raise ConfigError(
            f"{committed} with other settings or paths, by {winner}. Nothing was ingested. For "
            f"other files (--source or input.paths), use another --run-id. To ingest the same "
            f"files again with these settings, add --replace, which replaces all records of the "
            f"run. To only remove the run, use `seglake undo`"
        )
    start_ms, end_ms = done.interval_start_ms, done.interval_end_ms
    if (start_ms, end_ms) != (declared or (None, None)):
        interval, same = "no interval", "leave out the interval"
        if start_ms is not None and end_ms is not None:
            interval = f"the interval {format_ms(start_ms)} to {format_ms(end_ms)}"
            same = "the same interval"
        raise ConfigError(
            f"{committed} with {interval}, by {winner}. Give this run another --run-id, or {same}"
        )


def execute_attempt(
    attempt: Attempt, sample: list[dict[str, Any]], before_commit: Callable[[], None] = lambda: None
) -> Report:
    """Write the segments and the quarantine, call `before_commit`, and commit. Return the report.

    If the attempt fails, a sample of its rejects is added to `sample`.
    """
    report, store = attempt.report, attempt.store
    report.attempt_id = attempt.attempt_id
    report.describe_input(attempt.input.selection)
    report.findings += partition_growth_finding(attempt.base, attempt.settings.topic)
    counts: SplitCounts = {}
    segments: list[SegmentRow] = []
    if not attempt.input.is_empty():
        try:
            attempt.engine.start(attempt.step)
            with attempt.step("read and sort", f"reading {report.input_size}"):
                spooled = attempt.input.spool(attempt.map_settings)
            counts = count_splits(attempt, spooled)
            quarantine = Quarantine(
                store,
                attempt.topic,
                attempt.attempt_id,
                attempt.started_ms,
                attempt.input.origins(counts),
            )
            rejects = filter_kinds(spooled, REJECTS).cast(SPOOLED)
            spooled = combine_chunks(filter_kinds(spooled, *WITH_RECORDS))
            try:
                report.check_rejects(attempt.pipeline, store.uri)
                report.check_times(attempt.pipeline)
                segments = _write_segments(attempt, spooled)
                if report.quarantined:
                    with attempt.step("write quarantine"):
                        files = quarantine.run(attempt.engine, rejects)
                        QuarantineTable(store).add_files(files, attempt.attempt_id)
                before_commit()
            except Exception as error:
                _delete_own_rejects(attempt, error)
                with suppress(StoreError, CorruptData):  # the first error is more informative
                    sample += quarantine.sample(rejects)
                raise
        finally:
            try:
                delete_blobs(store, attempt.attempt_id)
            except StoreError as error:
                logger.warning(
                    "cannot delete blobs of this run; `seglake vacuum` deletes them later: %s",
                    error,
                )
    commit = Commit(attempt, counts, segments)
    # A named run is committed without input, to show that it ran, or covers its interval.
    if attempt.input.is_empty() and not (attempt.run.is_named or attempt.run.interval):
        commit.describe_input()
        report.status, report.attempt_id = "already done", ""
        report.log(report.summary)
        return report
    with attempt.step("commit"):
        report.version = commit.run()
    report.log(
        f"version {report.version} has {counted(report.records, 'record')}, "
        f"{report.quarantined} rejected"
    )
    return report


def _delete_own_rejects(attempt: Attempt, failure: Exception) -> None:
    """Delete the quarantine files of a failed attempt if it was abandoned; see `announce`.

    An erasure that abandoned the attempt may have deleted its blobs, so the attempt may fail with
    MissingObject. After any other StoreError the files are kept, because the request that commits
    them may still take effect.
    """
    if isinstance(failure, StoreError) and not isinstance(failure, MissingObject):
        return
    store = attempt.store
    try:
        if is_abandoned(store, attempt.attempt_id):
            files = QuarantineTable(store).unreferenced_keys(attempt.topic, attempt.attempt_id)
            store.delete(files)
    except (StoreError, CorruptData) as error:
        logger.warning(
            "cannot delete files of this run; `seglake vacuum` deletes them later: %s", error
        )


def count_splits(attempt: Attempt, spooled: pa.Table) -> SplitCounts:
    """Return split number → counts from the summaries in `spooled`, and fill in the report."""
    report = attempt.report
    summaries: list[Any] = filter_kinds(spooled, SUMMARY)["text"].to_pylist()
    totals, report.max_lateness_ms = combine_summaries(summaries)
    report.reasons = dict(sorted(totals.reasons.items()))
    report.skipped_records, report.interval_records = totals.skipped, totals.times.inside
    report.comment_lines = totals.comment_lines
    report.input_rows = sum(split.rows for split in totals.splits.values()) - totals.skipped
    report.records = _records(spooled, *WITH_RECORDS)
    origins = attempt.input.origins(totals.splits)
    files = merge_times((origins[n].path, each.times) for n, each in sorted(totals.splits.items()))
    records = report.records + report.skipped_records
    observed = Observations(totals.findings, records, totals.absent, files)
    report.findings += conclude(attempt.settings, observed)
    report.findings += value_settings_finding(attempt.settings.topic, attempt.seed())
    report.findings += _outside_interval(attempt, totals.times)
    report.quarantined = _records(spooled, REJECTS)
    if report.input_rows != report.records + report.quarantined:
        raise AssertionError(f"rows do not add up: {report}")
    return totals.splits


def _outside_interval(attempt: Attempt, times: IntervalTimes) -> list[Finding]:
    """Return a finding if all records of the run are outside of its declared interval.

    Then the input may be for another interval. Some late events outside of it are normal.
    """
    records, interval = attempt.report.records, attempt.run.interval
    if interval is None or times.inside != 0 or not records:
        return []
    bounds = zip(("start", "end", "low", "high"), (*interval, *times[1:]), strict=True)
    facts = {name: format_ms(ms) for name, ms in bounds}
    return [Finding("outside-interval", facts=facts, count=records)]


def _records(spooled: pa.Table, *kinds: int) -> int:
    return int(
        filter_kinds(spooled.select(["kind", "records"]), *kinds)["records"].to_numpy().sum()
    )


def _write_segments(attempt: Attempt, spooled: pa.Table) -> list[SegmentRow]:
    if not len(spooled) and attempt.settings.topic.offset_field is None:
        return []
    with attempt.step("plan"):
        tasks = plan_tasks(attempt, spooled)
    if not tasks:
        return []
    write = WritePieces(
        store=attempt.store,
        topic=attempt.settings.topic,
        attempt_id=attempt.attempt_id,
        created_at_ms=attempt.started_ms,
        append_time_ms=attempt.append_time_ms,
        merge_bytes=attempt.settings.task.merge_bytes,
        order_column=attempt.input.order_column,
    )
    with attempt.step("write segments", f"writing {counted(attempt.report.records, 'record')}"):
        segments = list(chain.from_iterable(attempt.engine.map(write, tasks)))
    written = sum(row.record_count for row in segments)
    if written != attempt.report.records:
        raise AssertionError(f"{attempt.report.records} records were read, and {written} written")
    return sorted(segments, key=lambda row: (row.partition, row.base_offset))
