"""Index files of existing segments rebuilt, by the same policy or another one.

Logs are read and never copied. The new index files get an attempt of their own, and one
commit makes the segments' rows name them. Readers of older versions still have the old index files.
The attempt's manifest names the segments that it replaces.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from seglake.catalog.schema import SegmentRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.transaction import announced
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import CorruptData, StoreError
from seglake.format.index import IndexPolicy, Subjects
from seglake.log.files import put_indexes
from seglake.log.tasks import Progress, SegmentTasks, logged
from seglake.maintain.commit import carry_out
from seglake.maintain.health.findings import Finding, finding_of, rebuild_index_files
from seglake.maintain.report import TopicReport
from seglake.store import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(repr=False)
class Reindexed(TopicReport):
    """The result of a re-index. `version` is that of its commit, -1 if there was none.

    `skipped` segments changed meanwhile; `damaged` are the files that are damaged, missing or
    unreadable, so that their segments could not be indexed.
    """

    SAMPLED: ClassVar[tuple[str, ...]] = ("damaged",)
    segments: int = 0
    skipped: int = 0
    index_bytes_before: int = 0
    index_bytes: int = 0
    damaged: list[Finding] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 if every segment could be indexed, else 1."""
        return 1 if self.damaged else 0


def reindex(
    root: str,
    topic: str,
    policy: IndexPolicy | None = None,
    *,
    spark: SparkSession | None = None,
    partitions: Collection[int] | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = logged,
) -> Reindexed:
    """Rebuild the index files of a topic, or of some of its partitions, in one commit.

    Without a policy each segment keeps its own, and the new files equal the old ones byte for byte.
    The topic's settings `index.…` say what the segments have key indexes of then.
    The segments go to threads, or with `spark` to its executors. A segment that another commit
    changed meanwhile is left as it is, and counted. Raises CorruptData, before anything is
    committed, if a log is damaged; UnknownTopic, StoreError and CommitConflict.
    """
    table = CatalogTable.open(open_store(root, storage_options))
    snapshot = table.snapshot()
    chosen = {snapshot.partition(topic, number).partition for number in partitions or ()}
    rows = [
        row
        for row in table.segments(snapshot, snapshot.topic(topic).topic)
        if partitions is None or row.partition in chosen
    ]
    tasks = SegmentTasks(table.store, spark, progress)
    report = Reindexed(topic)
    subjects = snapshot.topic(topic).index_subjects
    reindex_rows(table, report, rows, policy, tasks, subjects=subjects)
    for finding in report.damaged[:1]:
        if finding.kind != "damaged":
            raise StoreError(finding.problem)
        raise CorruptData(finding.problem, file=finding.file, position=finding.position)
    return report


def reindex_rows(
    table: CatalogTable,
    report: Reindexed,
    rows: Sequence[SegmentRow],
    policy: IndexPolicy | None,
    tasks: SegmentTasks,
    *,
    subjects: Subjects | None = None,
    leave_damaged: bool = False,
    dry_run: bool = False,
) -> None:
    """Rebuild the index files of some segments, and commit them; fills in the report.

    They have key indexes of `subjects` then; None leaves that to each of them.
    If a log is damaged, nothing is committed; with `leave_damaged` every other segment is.
    """
    work = partial(write_indexes, policy=policy, subjects=subjects, attempt_id=report.attempt_id)
    asked = len(rows)
    with announced(table, report.attempt_id, report.topic):
        live = set(table.segments(table.snapshot(), report.topic))
        rows = [row for row in rows if row in live]
        results = tasks.map(work, rows)
        report.damaged = [result for result in results if isinstance(result, Finding)]
        if report.damaged and not leave_damaged:
            return
        renewed = {
            row: result
            for row, result in zip(rows, results, strict=True)
            if isinstance(result, SegmentRow)
        }
        _commit(table, renewed, report, dry_run=dry_run)
    report.skipped += asked - len(rows)


def write_indexes(
    store: Store,
    row: SegmentRow,
    *,
    policy: IndexPolicy | None,
    subjects: Subjects | None,
    attempt_id: str,
) -> SegmentRow | Finding:
    """Write one segment's index files under an attempt: returns its new row, or the damage."""
    own = row.index_policy
    policy = replace(policy or own, subjects=own.subjects if subjects is None else subjects)
    try:
        sealed = rebuild_index_files(store, row, policy)
    except (CorruptData, StoreError) as error:
        return finding_of(row, "log", error)
    renewed = replace(
        row,
        index_attempt_id=attempt_id,
        index_interval_kind=policy.by,
        index_interval=policy.interval,
        keyindex_bytes=None,
        keyindex_crc32c=None,
        keyindex_of=None,
    )
    return replace(renewed, **put_indexes(store, renewed.id, sealed))


def _commit(
    table: CatalogTable, renewed: Mapping[SegmentRow, SegmentRow], work: Reindexed, *, dry_run: bool
) -> None:
    """Replace each old row that is still live by its new row, in one commit.

    Fills in the report, whose version stays -1 if no old row is live. Raises CommitConflict after
    many lost races, and StoreError.
    """

    def plan(base: Snapshot) -> Change | None:
        live = set(table.segments(base, work.topic))
        done = [old for old in renewed if old in live]
        work.segments, work.skipped = len(done), len(renewed) - len(done)
        work.index_bytes_before = sum(map(_index_bytes, done))
        work.index_bytes = sum(_index_bytes(renewed[old]) for old in done)
        replaced = [(old.partition, old.base_offset) for old in done]
        rows = [renewed[old] for old in done]
        return Change([*rows, work.row("reindex")], replaced) if done else None

    carry_out(table, work, plan, dry_run=dry_run)


def _index_bytes(row: SegmentRow) -> int:
    return row.index_bytes + row.timeindex_bytes + row.zonemap_bytes + (row.keyindex_bytes or 0)
