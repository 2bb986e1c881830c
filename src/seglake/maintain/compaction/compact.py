"""Compact the log partitions that are due, and replace their segments in one commit.

A record must not be removed because of a record that is no longer there:

    1. A compaction reads a log, and finds that record 9 supersedes record 4.
    2. An undo commits, and removes record 9.
    3. The compaction commits segments without record 4. The key has lost its value.

So a compaction works in rounds:

    1. Choose the log partitions that are due (`passes.log_to_clean`).
    2. Announce an attempt, and read the version again. An erasure may have removed records before
       the announcement, and a later erasure waits for the attempt.
    3. Write the segments of each log partition without the records to remove (`passes`).
    4. Commit the log partitions whose segments are all still live. Records that were appended in
       the meantime, or deleted below the log start, do not count as a change.
    5. Begin another round for the other log partitions, after a new choice of their segments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from seglake.catalog.schema import Row, SegmentRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.transaction import announce, write_recent_markers
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import Topic
from seglake.engine import Engine, Progress, engine_of, logged
from seglake.errors import CommitConflict
from seglake.layout import new_attempt
from seglake.limits import INT64_MAX
from seglake.maintain.commit import Clock, TopicReport, are_live, commit_change
from seglake.maintain.compaction.passes import (
    CleanedLog,
    CompactedLog,
    LogToClean,
    Passes,
    compacted_topic,
    log_to_clean,
)
from seglake.store import dry_store, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_ROUNDS = 10  # tries for a log partition whose segments other commits change


@dataclass(repr=False)
class CompactResult(TopicReport):
    """The result of a compaction, or of its dry run. `version` is the version of its last commit.

    `now_ms` is the time (ms) with which lags and delete horizons were compared.
    """

    now_ms: int = 0
    dry_run: bool = False
    partitions: list[CompactedLog] = field(default_factory=list)


def compact(
    root: str,
    topic: str,
    *,
    force: bool = False,
    dry_run: bool = False,
    now_ms: int | None = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> CompactResult:
    """Keep only the latest record of each key, in the log partitions of a topic that are due.

    Args:
        root: The folder or URI of the lake.
        topic: The topic.
        force: Compact all log partitions. `min.compaction.lag.ms` still applies.
        dry_run: Run both passes in this process, and write nothing to the lake.
        now_ms: The time (ms) that counts as the present. By default, it is the earlier time of
            this machine's clock and storage's clock, and new delete horizons count from the later.
        spark: Runs the work on its executors. Without it, threads run the work.
        storage_options: Options of the store.
        progress: Called with the bytes of log that are done, and the total. Each log counts twice,
            because there are two passes.

    Raises:
        UnknownTopic: There is no such topic.
        UsageError: The topic's `cleanup.policy` does not include `compact`.
        CorruptData: A log is damaged.
        CommitConflict: Other commits changed a log partition in each of 10 rounds.
        StoreError: Storage failed.

    Example:
        >>> altered = seglake.alter("lake", "web", {"cleanup.policy": "compact"})
        >>> report = seglake.compact("lake", "web", force=True)
        >>> seglake.open("lake").topic("web").read_range(None, None).read_all().num_rows
        7
    """
    table = CatalogTable.open(open_store(root, storage_options))
    # Executors cannot read the results of the first pass that a dry run keeps on this machine.
    engine = engine_of(None if dry_run else spark)
    return compact_topic(
        table, topic, engine, progress, force=force, dry_run=dry_run, now_ms=now_ms
    )


def compact_topic(
    table: CatalogTable,
    topic: str,
    engine: Engine,
    progress: Progress | None = None,
    *,
    force: bool = False,
    dry_run: bool = False,
    now_ms: int | None = None,
) -> CompactResult:
    """Compact a topic like `compact`, in an open catalog and on an engine."""
    clock = Clock(None if dry_run or now_ms is not None else table.store, now_ms)
    report = CompactResult(topic, now_ms=clock.machine_ms, dry_run=dry_run)
    snapshot = table.snapshot()
    logs, settings = _logs(table, snapshot, report, force=force)
    if any(log.state.due for log in logs):
        report.now_ms = clock.earlier_ms
        logs, settings = _logs(table, snapshot, report, force=force)
    due = [log for log in logs if log.state.due]
    report.partitions = [log.state for log in logs]
    if not due and not dry_run:
        write_recent_markers(table, snapshot.files, topic)
    for _ in range(MAX_ROUNDS):
        if not due:
            return report
        work = replace(report, attempt_id=new_attempt(), version=-1)
        passes = partial(
            Passes,
            engine=engine,
            attempt_id=work.attempt_id,
            settings=settings,
            now_ms=report.now_ms,
            horizon_ms=min(clock.later_ms + settings.delete_retention_ms, INT64_MAX),
            progress=progress or logged("bytes of log"),
        )
        if dry_run:
            with dry_store(table.store) as store:
                _commit(table, work, passes(store).clean(due))
            return work
        with announce(table, work.attempt_id, topic):
            # Read the version again. An erasure may have removed records before the announcement.
            newest = table.snapshot()
            current = [log for log in due if _is_current(newest, log)]
            _commit(table, work, passes(table.store).clean(current))
        report = report if work.version < 0 else work
        left = {log.partition for log in due}
        left -= {each.partition for each in report.partitions if each.cleaned}
        if left:
            logs, settings = _logs(table, table.snapshot(), report, force=force)
        due = [log for log in logs if log.partition in left]
    numbers = ", ".join(str(log.partition) for log in due)
    raise CommitConflict(
        f"other commits changed partitions {numbers} of topic {topic!r} in each of {MAX_ROUNDS} "
        f"rounds. Compact again when those commands have ended"
    )


def _logs(
    table: CatalogTable, snapshot: Snapshot, report: CompactResult, *, force: bool
) -> tuple[list[LogToClean], Topic]:
    """Return the log partitions with cleanable segments, and the settings. Raises UsageError."""
    topic, now_ms = report.topic, report.now_ms
    settings = compacted_topic(snapshot.topic(topic), table.store.uri)
    rows = defaultdict[int, list[SegmentRow]](list)
    for row in table.rows.segments(snapshot, topic):
        rows[row.partition].append(row)
    return [
        log
        for view in snapshot.partitions(topic)
        if (log := log_to_clean(view, rows[view.partition], settings, now_ms, force=force)).rows
    ], settings


def _commit(table: CatalogTable, report: CompactResult, cleaned: Sequence[CleanedLog]) -> None:
    """Replace the segments of the cleaned logs that are still live, in one commit.

    Set these log partitions and the version in the report.
    """
    before = report.partitions

    def plan(base: Snapshot) -> Change | None:
        current = [each for each in cleaned if _is_current(base, each.log)]
        done = {each.log.partition: each.report for each in current}
        report.partitions = [done.get(each.partition, each) for each in before]
        rows, replaced = list[Row](), list[tuple[int, int]]()
        for each in current:
            view = base.partition(report.topic, each.log.partition)
            end = max(view.cleaned_end, each.log.state.first_uncleanable_offset)
            rows.append(view.next_row(view.log_start_offset, cleaned_offset=end))
            for old, new in each.groups:
                if new.end_offset > view.log_start_offset:
                    rows.append(new)
                    stored = (row for row in old if row.end_offset > view.log_start_offset)
                    replaced += [(row.partition, row.base_offset) for row in stored]
        return Change([*rows, report.row("compact")], replaced) if current else None

    commit_change(table, report, plan, dry_run=report.dry_run)


def _is_current(base: Snapshot, log: LogToClean) -> bool:
    """Return whether the cleaned segments at or above the log start are still live."""
    start = base.partition(log.rows[0].topic, log.partition).log_start_offset
    return are_live(base, [row for row in log.rows if row.end_offset > start])
