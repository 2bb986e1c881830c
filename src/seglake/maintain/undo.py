"""Remove committed runs from a topic, to undo a run, or to replace it by ingesting files again.

The records of a run must not be removed without the records of its redrives:

    1. An undo chooses run A.
    2. A redrive of run A commits records that were rejects of A.
    3. The undo commits. The records of the redrive remain, and their run is gone.

So an undo works in these steps, and begins again at step 2 if another commit came first:

    1. Announce an attempt, because it copies records, and an erasure must wait for it.
    2. Choose the run and its redrives, and find the segments that have their offsets. Refuse if
       compaction has cleaned such an offset: it may have removed older records of other runs.
    3. Write these segments without the records of the runs. Segments that an earlier try wrote are
       used again if they replace the same segments.
    4. Commit. The offsets become a gap. The input files of the runs are forgotten and can be
       ingested again, their rejects no longer count, and their run ids can be used again.
    5. If the run was already undone, report the earlier undo. It may have died after its commit, so
       write its success marker.

A replacement is an ingest whose commit also has the change of steps 2 to 4. A segment that has only
records of the runs becomes an empty segment.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seglake.catalog.quarantine.open_rejects import redrive_chain
from seglake.catalog.schema import RunRow, RunState
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.transaction import announce, write_marker
from seglake.catalog.version.snapshot import PartitionView, Snapshot
from seglake.clock import now_ms
from seglake.config import Pipeline
from seglake.engine import Engine, SegmentTasks, ingest_engine, logged
from seglake.errors import UsageError
from seglake.limits import INT32_MAX
from seglake.log.rewrite.keep import ExcludeOffsets
from seglake.maintain.commit import (
    Rewrites,
    SegmentGroup,
    Status,
    TopicReport,
    commit_change,
    open_catalog,
)
from seglake.terminal.wording import history_command, suggest
from seglake.times.instants import format_ms
from seglake.write.api import Interval, declare_run
from seglake.write.driver.attempt import DeclaredRun
from seglake.write.driver.report import Progress, Report, silent
from seglake.write.driver.run import ingest_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Ranges = list[tuple[int, int]]  # of offsets, ends exclusive

_OPERATION = "undo"
_OF_THE_DEED = (
    "attempt_id", "started_at_ms", "runs", "offsets", "segments", "records", "files",
)  # fmt: skip


@dataclass(repr=False)
class UndoResult(TopicReport):
    """The result of an undo, or of its dry run.

    `runs` are the ids of the run and its redrives. `offsets` has, for each partition, the ranges
    (ends exclusive) without records after the undo. `segments` is the number of segments that were
    replaced, `records` the number of records that were removed, and `files` the number of input
    files that can be ingested again. If the run was undone before, the status is "already done",
    the version is -1, and the other fields are copied from the earlier undo.
    """

    pipeline: str = ""
    run_id: str = ""
    status: Status = "committed"
    dry_run: bool = False
    runs: list[str] = field(default_factory=list)
    offsets: dict[int, Ranges] = field(default_factory=dict)
    segments: int = 0
    records: int = 0
    files: int = 0


def undo(
    root: str,
    topic: str,
    run_id: str,
    *,
    pipeline: str | None = None,
    force: bool = False,
    dry_run: bool = False,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> UndoResult:
    """Remove a committed run, and its redrives, from a topic in one commit.

    If the run is already undone, nothing changes, and the status is "already done".

    Args:
        root: The folder or URI of the lake.
        topic: The topic.
        run_id: The id of the run.
        pipeline: The pipeline of the run. Required if several pipelines have a run with this id.
        force: Undo the run even if compaction has cleaned some of its offsets.
        dry_run: Write nothing, and only report what an undo would do.
        spark: Runs the work on its executors. Without it, this process runs the work.
        storage_options: Options of the store.

    Raises:
        UnknownTopic: There is no such topic.
        UsageError: There is no such run, another run replaced it, several pipelines have it, or,
            without `force`, compaction may have dropped older values that the run superseded.
        CorruptData: A log is damaged.
        CommitConflict: Concurrent commits won all retries.
        StoreError: Storage failed.

    Example:
        >>> undone = seglake.undo("lake", "web", "d2")
        >>> undone.records
        600
    """
    report = UndoResult(topic, run_id=run_id, dry_run=dry_run)
    with open_catalog(root, storage_options, dry_run=dry_run) as table:

        def choose(base: Snapshot) -> list[RunRow]:
            run = run_with_id(table, base, topic, run_id, pipeline)
            report.pipeline = run.pipeline
            return [run] if run.state == "committed" else []

        def plan(base: Snapshot) -> Change | None:
            change, place = removal.change(base), removal.place
            if not place.runs:
                report.runs, report.status = [], "already done"
                return None
            report.runs = [run.run_id for run in place.runs]
            report.offsets = dict(place.ranges)
            report.segments = sum(len(group.rows) for group in place.groups)
            sources = table.rows.all(base, "source", topic)["attempt_id"].to_pylist()
            attempts = {run.attempt_id for run in place.runs}
            report.files = sum(attempt_id in attempts for attempt_id in sources)
            report.records = removal.records
            return change._replace(rows=[*change.rows, report.row(_OPERATION)])

        tasks = SegmentTasks.from_session(table.store, spark, None)
        removal = RunRemoval(table, topic, report.attempt_id, choose, tasks, force)
        report.status = "dry run" if report.dry_run else "committed"
        with announce(table, report.attempt_id, topic, removal.attempts):
            commit_change(table, report, plan, dry_run=report.dry_run)
        return report if report.runs else _as_done(report, table)


def _as_done(report: UndoResult, table: CatalogTable) -> UndoResult:
    """Return the report of the earlier undo of the run, or `report` if no undo is recorded."""
    upkeep = table.rows.maintenance(table.snapshot(), report.topic)
    deed: dict[str, Any] = {}
    for row in sorted(upkeep, key=lambda row: row.finished_at_ms):
        if row.operation == _OPERATION:
            found = {**json.loads(row.report), "attempt_id": row.attempt_id}
            if found["pipeline"] == report.pipeline and report.run_id in found["runs"]:
                deed = found
    if not deed:
        return report
    if not report.dry_run:
        # The earlier undo may have died before it wrote its marker.
        write_marker(table.store, deed["attempt_id"])
    deed["offsets"] = {
        int(number): [tuple(ends) for ends in ranges] for number, ranges in deed["offsets"].items()
    }
    return dataclasses.replace(report, **{name: deed[name] for name in _OF_THE_DEED})


def run_with_id(
    table: CatalogTable, base: Snapshot, topic: str, run_id: str, pipeline: str | None
) -> RunRow:
    """Return the run with an id, which may be committed or undone.

    Raises UnknownTopic. Raises UsageError if there is no such run, if several pipelines have such a
    run, or if another run replaced it.
    """
    history = table.rows.run_history(base, base.topic(topic).topic)
    rows = [run for run in history if run.run_id == run_id and pipeline in (None, run.pipeline)]
    if not rows:
        lists = history_command(table.store.uri, topic)
        known = suggest(run_id, {run.run_id for run in history}, lists)
        raise UsageError(f"topic {topic!r} has no run {run_id!r}. {known}")
    names = sorted({run.pipeline for run in rows})
    if len(names) > 1:
        raise UsageError(
            f"several pipelines have a run {run_id!r} ({', '.join(names)}). Choose "
            f"one with --pipeline"
        )
    last = max(rows, key=lambda run: run.sequence)
    if last.state == "replaced":
        raise UsageError(
            f"run {run_id!r} of pipeline {last.pipeline!r} was replaced, so it has no records. "
            f"Undo the run that replaced it: {history_command(table.store.uri, topic)}"
        )
    return last


class RunPlace(NamedTuple):
    """Runs to remove, the ranges of their offsets by partition, and segments with these offsets."""

    runs: list[RunRow]
    ranges: dict[int, Ranges]
    groups: list[SegmentGroup]


@dataclass
class RunRemoval:
    """Removes runs from a topic, for an undo or for the commit of an attempt that replaces them.

    `choose` returns the runs to remove in a version. Their redrives are also removed. Segments that
    were written for one version are used for a later version if they replace the same segments.
    `attempts` are the further attempt ids under which segments were written, see `Rewrites`.
    `place` and `records` belong to the last change: what it removes, and the number of records.
    """

    table: CatalogTable
    topic: str
    attempt_id: str
    choose: Callable[[Snapshot], Sequence[RunRow]]
    tasks: SegmentTasks
    force: bool
    with_nothing: bool = False
    state: RunState = "undone"
    records: int = 0

    def __post_init__(self) -> None:
        self._rewrites = Rewrites(self.attempt_id, self.tasks)
        self.attempts, self.place = self._rewrites.attempts, RunPlace([], {}, [])

    def runs(self, base: Snapshot) -> list[RunRow]:
        """Return the runs to remove and their redrives."""
        committed = self.table.rows.runs(base, self.topic) if base.find_topic(self.topic) else []
        by_attempt: dict[str, RunRow] = {}
        for run in self.choose(base):
            whole = redrive_chain(run, committed)
            of_run = [whole.first, *whole.redrives]
            for row in of_run[of_run.index(run) :]:
                by_attempt[row.attempt_id] = row
        return list(by_attempt.values())

    def _place(self, base: Snapshot) -> RunPlace:
        """Return the runs to remove, with their offsets and segments.

        Raises UsageError if compaction has cleaned some of these offsets, unless `force`.
        """
        runs, ranges, places = self.runs(base), dict[int, Ranges](), list[list[tuple[int, int]]]()
        for partition, offsets in _offset_ranges(runs).items():
            view = base.partition(self.topic, partition)
            if not self.force:
                _require_not_cleaned(view, offsets)
            if left := _within(offsets, view):
                ranges[partition] = left
                places += _groups(view, left)
        rows = self.table.rows.segments_at(base, self.topic, sorted(chain.from_iterable(places)))
        by_place = {(row.partition, row.base_offset): row for row in rows}
        keep = {number: ExcludeOffsets.from_ranges(some) for number, some in ranges.items()}
        groups = [
            SegmentGroup(tuple(by_place[place] for place in group), keep[group[0][0]])
            for group in places
        ]
        return RunPlace(runs, ranges, groups)

    def change(self, base: Snapshot) -> Change:
        """Write the new segments, and return the change that removes the runs from a version."""
        self.place, topic = self._place(base), base.find_topic(self.topic)
        runs, _, groups = self.place
        new = self._rewrites.rows(groups, topic.index_subjects if topic else ())
        old = [row for group in groups for row in group.rows]
        self.records = sum(row.record_count for row in old) - sum(row.record_count for row in new)
        states = [
            dataclasses.replace(
                run, sequence=run.sequence + 1, state=self.state, finished_at_ms=now_ms()
            )
            for run in runs
        ]
        return Change(
            rows=[*states, *new],
            replaced=[(row.partition, row.base_offset) for row in old],
            forgotten={run.attempt_id for run in runs},
            other_attempts=self.attempts,
        )


def _offset_ranges(runs: Iterable[RunRow]) -> dict[int, Ranges]:
    """Return the ranges of the runs' offsets by partition, in ascending order."""
    by_partition: dict[int, Ranges] = {}
    for run in runs:
        for partition, pairs in json.loads(run.offset_ranges).items():
            by_partition.setdefault(int(partition), []).extend(map(tuple, pairs))
    return {partition: sorted(ranges) for partition, ranges in sorted(by_partition.items())}


def _require_not_cleaned(view: PartitionView, ranges: Ranges) -> None:
    cleaned = view.cleaned_end
    for start, end in ranges:
        if max(start, view.log_start_offset) < min(end, cleaned):
            raise UsageError(
                f"compaction has cleaned offsets {start} to {min(end, cleaned)} of "
                f"{view.topic}-{view.partition}: it may have removed older records of other runs "
                f"in favour of this run's, and an undo cannot restore them. To undo the run "
                f"anyway, add --force"
            )


def _within(ranges: Ranges, view: PartitionView) -> Ranges:
    """Return the parts of ascending ranges at or above the log start. Join adjacent ranges."""
    joined: Ranges = []
    for start, end in ranges:
        low = max(start, view.log_start_offset)
        if joined and joined[-1][1] >= low:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        elif low < end:
            joined.append((low, end))
    return joined


def _groups(view: PartitionView, ranges: Ranges) -> list[list[tuple[int, int]]]:
    """Group the segments that have offsets in the ranges. Return (partition, base offset) of each.

    Neighbours that lose all records are in one group if one segment can cover their offsets. Any
    other segment is in its own group.
    """
    groups: list[list[tuple[int, int]]] = []
    bases, ends = view.segments.base_offsets, view.segments.end_offsets
    before = first = -1  # the end of the last group if it lost everything, and its first offset
    for start, end in ranges:
        low = int(np.searchsorted(ends, start, "right"))
        high = int(np.searchsorted(bases, end, "left"))
        for base, stop in zip(bases[low:high].tolist(), ends[low:high].tolist(), strict=True):
            place, whole = (view.partition, base), start <= base and stop <= end
            if whole and before == base and stop - 1 - first <= INT32_MAX:
                groups[-1].append(place)
            elif groups and groups[-1][-1] == place:  # another range in the same segment
                continue
            else:
                groups.append([place])
                first = base
            before = stop if whole else -1
    return groups


# ---------------- replace
# Files are ingested again, and one commit replaces the old records by the corrected records.
#
# This is like Airflow's *clear* of a run id. With `whole_interval`, all of the pipeline's runs
# inside the declared interval are replaced together. So one run can correct a day of hourly runs.


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
    """Ingest the files of a pipeline, and remove the records of earlier runs in the same commit.

    The committed run with this id is replaced together with its redrives. If there is no run to
    replace, this is an ordinary ingest. If the replacement would ingest the same files with the
    same settings, the status is "already done".

    Args:
        pipeline: The pipeline, which names the files.
        run_id: The id of the new run, and of the run to replace.
        interval: The declared interval of the new run.
        whole_interval: Also replace all runs of the pipeline that are completely in the interval.
        with_nothing: Replace the runs even if the new run has no records.
        force: Replace runs even if compaction may have dropped older values that they superseded.
        spark: The Spark session that runs the work.
        master: The Spark master to use if there is no session.
        local: Run the work on threads of this process, without Spark.
        progress: Called with the name of each step.

    Raises:
        UsageError: A run is partly inside the interval, the new run has no records (unless
            `with_nothing`), or other runs have all the files and there is neither a run with this
            id nor an interval. This function also raises what `ingest` and `undo` raise.

    Example:
        >>> from seglake.config import load
        >>> report = seglake.replace(load("web.toml"), run_id="d1", local=True)
        >>> report.records
        600
    """
    run = declare_run(run_id, interval)
    if whole_interval and run.interval is None:
        raise UsageError("there is no interval to replace. Give its start and its end")
    return replace_files(
        ingest_engine(spark, master, local=local),
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
    """Replace runs like `replace`, on an engine."""

    def removal(table: CatalogTable, attempt_id: str) -> RunRemoval:
        topic = pipeline.topic.name

        def choose(base: Snapshot) -> list[RunRow]:
            """Return the run with the new run's id, and the runs inside the interval."""
            committed = table.rows.runs(base, topic)
            runs = [other for other in committed if other.pipeline == pipeline.name]
            same = [other for other in runs if other.run_id == run.run_id]
            inside = _inside(runs, *run.interval) if whole_interval and run.interval else []
            return list({other.run_id: other for other in [*same, *inside]}.values())

        tasks = SegmentTasks(table.store, engine, logged("bytes of log"))
        return RunRemoval(
            table, topic, attempt_id, choose, tasks, force, with_nothing, state="replaced"
        )

    return ingest_files(engine, pipeline, run, progress, removal)


def _inside(runs: Iterable[RunRow], start_ms: int, end_ms: int) -> list[RunRow]:
    """Return the runs whose interval is inside [start_ms, end_ms).

    Raises UsageError if a run is partly inside.
    """
    inside = []
    for run in runs:
        if run.interval_start_ms is None or run.interval_end_ms is None:
            continue
        if run.interval_start_ms >= end_ms or run.interval_end_ms <= start_ms:
            continue
        if run.interval_start_ms < start_ms or run.interval_end_ms > end_ms:
            raise UsageError(
                f"run {run.run_id!r} covers {format_ms(run.interval_start_ms)} to "
                f"{format_ms(run.interval_end_ms)}, which overlaps the interval only partly. "
                f"Widen the interval, or replace that run by its run id"
            )
        inside.append(run)
    return inside
