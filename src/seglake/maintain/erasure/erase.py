"""Erasure: every record with some keys leaves a topic, and every reject that has one of them.

The records go first, in one commit to the catalog; then the rejects, in one commit to the
quarantine; then rows of samples; and old objects last. The catalog's commit says how many rejects
the second commit leaves, so that `verify` finds an erasure that was killed in between; erasing
again ends it. No report has a key, since the history would keep it.

An ingest that runs meanwhile could bring a key back unseen, so an erasure is refused while an
attempt may still run. An attempt that has ended is given up: it cannot commit later. If an attempt
commits after the erasure looked, the erasure's commit is planned again on top of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from seglake.catalog.quarantine.erased import ERASE
from seglake.catalog.rows import SegmentRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.transaction import transact
from seglake.catalog.version.snapshot import Snapshot
from seglake.engine import Engine, LocalEngine, SparkEngine
from seglake.errors import UsageError
from seglake.layout import SUFFIXES
from seglake.maintain.erasure.attempts import Attempts, Grace, look
from seglake.maintain.erasure.logs import LogErasure
from seglake.maintain.erasure.objects import OldObjects
from seglake.maintain.erasure.rejects import RejectErasure, SampleErasure
from seglake.maintain.erasure.wanted import Wanted
from seglake.maintain.report import TopicReport
from seglake.maintain.segment_tasks import Progress, SegmentTasks, logged
from seglake.maintain.vacuum import GRACE_HOURS, delete
from seglake.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(repr=False)
class Erased(TopicReport):
    """The result of an erasure, without the keys: only their number.

    `segments` were written again without `records`. `rejects` left the quarantine; `rejects_left`
    counts what stays there of each attempt that lost some. `samples` are rows that left the samples
    of failed runs. `deleted` are the old objects that went. A dry run says what would be done.
    `running` are attempts that began meanwhile: once they have ended, the erasure is to be done
    again.
    """

    dry_run: bool = False
    keys: int = 0
    segments: int = 0
    records: int = 0
    rejects: int = 0
    rejects_left: dict[str, int] = field(default_factory=dict)
    samples: int = 0
    running: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    deleted_bytes: int = 0

    @property
    def exit_code(self) -> int:
        """0 if nothing is left to do, else 1."""
        return 1 if self.running else 0


def erase(  # noqa: PLR0913  # each is an option of the command
    root: str,
    topic: str,
    keys: Iterable[str | bytes] = (),
    *,
    raw_containing: str | bytes | None = None,
    vacuum: bool = False,
    dry_run: bool = False,
    grace_hours: float = GRACE_HOURS,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = logged,
) -> Erased:
    """Take records with these keys out of a topic, and rejects with a key or `raw_containing`.

    With `vacuum`, old objects that held them are deleted, too: older versions that need them cannot
    be read any more. Raises UsageError if nothing is named, if logs of the topic lie outside the
    lake, or if an attempt may still run, since its newest object is younger than `grace_hours`;
    UnknownTopic; CorruptData if a log is damaged;
    StoreError and CommitConflict. After one of the last two, erase again.
    """
    wanted = Wanted.of(keys, raw_containing)
    table = CatalogTable.open(open_store(root, storage_options))
    _require_own(table.snapshot(), topic)
    engine = LocalEngine() if spark is None else SparkEngine(spark)
    work = _Erasure(
        table, Erased(topic, dry_run=dry_run, keys=len(wanted.keys)), wanted,
        SegmentTasks(table.store, spark, progress), engine, Grace(grace_hours, dry_run),
    )  # fmt: skip
    if dry_run:
        work.show(vacuum=vacuum)
    else:
        work.carry_out(vacuum=vacuum)
    return work.report


def _require_own(snapshot: Snapshot, topic: str) -> None:
    """Raise UsageError if logs lie outside the lake: an erasure would leave the records there."""
    views = snapshot.partitions(topic)
    count = sum(int(view.segments.details["external"].sum()) for view in views)
    if count:
        raise UsageError(
            f"{count} segments of {topic} are attached, and Seglake never changes what lies "
            "outside the lake: import the topic under another name, erase there, and delete the "
            "objects where they are"
        )


class _Erasure:
    """One erasure; its report fills while it goes on."""

    def __init__(
        self,
        table: CatalogTable,
        report: Erased,
        wanted: Wanted,
        tasks: SegmentTasks,
        engine: Engine,
        grace: Grace,
    ) -> None:
        self._table, self.report, self._wanted = table, report, wanted
        self._tasks, self._engine, self._grace = tasks, engine, grace
        topic, store = report.topic, table.store
        self._logs = LogErasure(table, topic, wanted.keys, report.attempt_id, tasks)
        self._rejects = RejectErasure(store, topic, wanted, engine)
        self._samples = SampleErasure(store, topic, wanted)
        self._known: set[str] = set()  # attempts whose runs the commit has seen

    def show(self, *, vacuum: bool) -> None:
        """Fill in what would be done."""
        attempts = self._look()
        rows = self._find(self._table.snapshot())
        self.report.running = attempts.running
        if vacuum:
            files = {row.key(suffix) for row in rows for suffix in SUFFIXES}
            self._find_old(attempts, {*files, *self._rejects.files()})

    def carry_out(self, *, vacuum: bool) -> None:
        """Erase. Raises as `erase`."""
        report = self.report
        if running := self._look().running:
            raise UsageError(
                f"attempt {running[0]} may still run, and bring a key back: erase when it has "
                "ended, or give a shorter --grace-hours if it is dead"
            )
        version = transact(self._table, report.topic, report.attempt_id, self._plan)
        report.version = -1 if version is None else version
        self._rejects.erase(report.attempt_id)
        self._samples.erase()
        attempts = self._look()
        report.running = sorted({*attempts.running, *self._arrived()})
        if vacuum:
            self._find_old(attempts)
            delete(self._table.store, report.deleted)

    def _look(self) -> Attempts:
        own = {self.report.attempt_id, *self._logs.attempts}
        return look(self._table, self.report.topic, self._grace, own)

    def _find(self, base: Snapshot) -> list[SegmentRow]:
        """The segments of a version that lose records; the report says what goes."""
        report, rows = self.report, self._logs.find(base)
        report.segments, report.records = len(rows), self._logs.count(rows)
        report.rejects, report.rejects_left = self._rejects.find()
        report.samples = self._samples.find()
        return rows

    def _plan(self, base: Snapshot) -> Change | None:
        self._known, rows, report = self._runs(base), self._find(base), self.report
        if not (rows or report.rejects or report.samples):
            return None
        return Change(
            rows=[*self._logs.written(rows), report.row(ERASE)],
            replaced=[(row.partition, row.base_offset) for row in rows],
            files_of=self._logs.attempts,
        )

    def _runs(self, base: Snapshot) -> set[str]:
        return {run.attempt_id for run in self._table.run_history(base, self.report.topic)}

    def _arrived(self) -> set[str]:
        """The attempts that committed a run after the erasure."""
        return self._runs(self._table.snapshot()) - self._known

    def _find_old(self, attempts: Attempts, gone: Collection[str] = ()) -> None:
        """Fill in the old objects; `gone` are files that are about to be replaced."""
        objects = OldObjects(self._table, self.report.topic, self._wanted, attempts)
        found = objects.find(self._tasks, self._engine, gone)
        self.report.deleted = [each.key for each in found]
        self.report.deleted_bytes = sum(each.size for each in found)
