"""Publish a topic as a Delta table, whose files equal the segments of one version of the lake.

A publish stores no state besides the table and the lake. It works in these steps:

    1. The first publish commits a row of the table to the catalog, so that erasures know the table.
    2. Read the newest version of the table, then the newest version of the lake. The order
       matters, see `catalog.published`. End if the table has exactly one file for each segment.
    3. Announce the attempt. It copies records, so an erasure waits for it or abandons it.
    4. Read the lake again. After a lost try, first read the table again. Decode each segment that
       has no file yet, and remember the new file.
    5. Stop if an erasure or a vacuum has abandoned the attempt.
    6. Commit to the table. The commit adds the new files, removes all files that have no segment,
       and sets the version of the lake. After a lost race or a failure of storage, continue with
       step 4. If a commit succeeded and its reply was lost, its files are then in the table.
    7. Delete the files that no commit names, and the announcement.

An erasure fences the tables of its topic after its commit. So a publisher that read the lake before
that commit loses, even if it pauses for long, and then finds that it was abandoned. `clear_tables`
deletes files that a publisher may be about to commit, so it works in this order:

    1. List the files, then read the lake. If the lake does not have the segment of a listed file,
       no later version has it.
    2. Publish, or commit a fence. A publisher that commits later has read the lake after step 1, so
       it does not add these files.
    3. Delete these files. Repeat from step 1 until no such file remains.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from dataclasses import replace as replace_fields
from functools import partial
from typing import TYPE_CHECKING, Any

from seglake.catalog.attempts import require_not_abandoned
from seglake.catalog.published import (
    NewFile,
    PublishedSegment,
    PublishedTable,
    TableVersion,
    known_tables,
    locate,
)
from seglake.catalog.schema import TableRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.transaction import (
    FAILURE_COST,
    PATIENCE,
    PAUSE_S,
    RACE_COST,
    announce_copies,
    transact_upkeep,
)
from seglake.catalog.version.snapshot import Snapshot
from seglake.engine import Progress, SegmentTasks
from seglake.errors import CommitConflict, SeglakeError, StoreError, UsageError, VersionExpired
from seglake.log.reads import SharedReads
from seglake.log.segment import LogSegment
from seglake.maintain.commit import MaintenanceReport, Status, TopicReport
from seglake.maintain.publish.columns import TableColumns, TableFields
from seglake.maintain.publish.encode import MEMORY_BYTES, FileWriter, SegmentToPublish
from seglake.read.tables import visible_segments
from seglake.store import open_store
from seglake.terminal.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLEARINGS = 10  # tries to delete the files that other programs and abandoned publishers add


@dataclass(repr=False)
class PublishResult(MaintenanceReport):
    """The result of a publish.

    `version` is the table's version, which has the records of version `lake_version` of the lake.
    `added` is the number of new files, which have `rows` rows, and `removed` is the number of
    removed files. If `data_change` is false, the new files have the same rows as the removed files.
    `misfits` has, by column, the number of values that became null because they do not fit its
    type. `mended` has the changes of other programs that this publish corrected. `forgotten` is
    whether the lake has forgotten the table.
    """

    topic: str
    table: str
    status: Status = "committed"
    version: int = -1
    lake_version: int = -1
    added: int = 0
    removed: int = 0
    rows: int = 0
    data_change: bool = False
    forgotten: bool = False
    misfits: dict[str, int] = field(default_factory=dict)
    mended: list[str] = field(default_factory=list)


def publish(  # noqa: PLR0913  # each is an option of the command
    root: str,
    topic: str,
    table: str | None = None,
    *,
    fields: TableFields | None = None,
    value: bool = False,
    key: str = "binary",
    timestamp_ms: bool = False,
    strict: bool = False,
    replace: bool = False,
    forget: bool = False,
    dry_run: bool = False,
    memory_bytes: int = MEMORY_BYTES,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> PublishResult:
    """Publish a topic as a Delta table whose rows are the records of one version of the lake.

    Only segments that are not in the table yet are decoded. The lake stores the columns. A later
    call without an argument for columns keeps them. A call with such an argument replaces all of
    them.

    Args:
        root: The folder or URI of the lake.
        topic: The topic.
        table: The path or URI of the table, by default `tables/<topic>` in the lake.
        fields: Column → type, or (field, type), for columns with fields of the values. The types
            are the types of `read_range(fields=…)`. A list of names gives columns of text.
        value: Whether to add a column with the whole value.
        key: The type of the key's column, "binary" or "string".
        timestamp_ms: Whether to add a column with the timestamp in milliseconds.
        strict: Whether a value that does not fit is an error. Otherwise, it is null and counted.
        replace: Publish again from the beginning, even over a table of another lake or topic, or
            over a table with a higher version than the lake has.
        forget: Keep the table, but forget it, so that the lake no longer publishes to it or erases
            records in it.
        dry_run: Write nothing, and only report what a publish would do.
        memory_bytes: The memory for each task in bytes.
        spark: Runs the work on its executors. Without it, this process runs the work.
        storage_options: Options of the stores.
        progress: Called with the bytes of log that are done, and the total.

    Returns:
        The result. The status is "already done" if the table already equals the log.

    Raises:
        UnknownTopic: There is no such topic.
        UsageError: A column is invalid, a value does not fit and `strict` is set, or the table has
            another lake or topic, or a higher version than the lake.
        CorruptData: A log is damaged, or the table needs features that Seglake does not support.
        AttemptAbandoned: An erasure abandoned the attempt.
        CommitConflict: Concurrent commits won all retries.
        StoreError: Storage failed.

    Example:
        >>> published = seglake.publish("lake", "web", fields={"status": "int32"})
        >>> published.rows
        1200
    """
    catalog = CatalogTable.open(open_store(root, storage_options))
    snapshot = catalog.snapshot(topics=[topic])
    path = locate(catalog.store, snapshot.topic(topic).topic, table)
    before = _row_at(catalog, snapshot, topic, path)
    columns = TableColumns.from_fields(
        fields or {}, value=value, key=key, timestamp_ms=timestamp_ms, strict=strict
    )
    keeps = before is not None and fields is None and columns == TableColumns({})
    row = TableRow(
        topic=topic, path=path, sequence=before.sequence + 1 if before else 0,
        state="forgotten" if forget else "published",
        settings=before.settings if before and keeps else columns.dump(),
    )  # fmt: skip
    if forget and (before is None or before.state == "forgotten"):
        raise UsageError(f"the lake lists no table {path} of topic {topic!r}")
    there = PublishedTable(catalog.store, catalog.lake, row)
    if not forget and before is None:
        # Refuse a table of another lake before the lake knows it.
        there.read(replace=replace)
    if not dry_run and (before is None or not _is_same(before, row)):
        _register(catalog, row)
    if forget:
        return PublishResult(topic, there.uri, forgotten=True)
    tasks = SegmentTasks.from_session(catalog.store, spark, progress)
    made = Publisher(catalog, row, tasks, replace, memory_bytes, is_new=before is None)
    return made.publish(dry_run=dry_run)


def _row_at(table: CatalogTable, snapshot: Snapshot, topic: str, path: str) -> TableRow | None:
    return next((r for r in known_tables(table, snapshot, topic) if r.path == path), None)


def _register(table: CatalogTable, row: TableRow) -> None:
    """Commit the row of a table to the catalog, unless the catalog already has it."""
    report = TopicReport(row.topic)

    def plan(base: Snapshot) -> Change | None:
        before = _row_at(table, base, row.topic, row.path)
        if before and _is_same(before, row):
            return None
        sequence = before.sequence + 1 if before else 0
        return Change([replace_fields(row, sequence=sequence), report.row("publish")])

    transact_upkeep(table, row.topic, report.attempt_id, plan)


def _is_same(before: TableRow, row: TableRow) -> bool:
    return (before.state, before.settings) == (row.state, row.settings)


class _Plan:
    """The changes that make a table equal to the log in one version of the lake.

    `wanted` has the segments that the table must have. `usable` has the paths of the files that may
    be kept. `kept` and `removed` are paths of files, and `missing` are segments.
    """

    def __init__(
        self, base: TableVersion | None, snapshot: Snapshot,
        wanted: Mapping[PublishedSegment, LogSegment], usable: Collection[str],
    ) -> None:  # fmt: skip
        self.base, self.snapshot, self.wanted = base, snapshot, wanted
        segments = base.segments() if base else {}
        there = {each: path for path, each in segments.items() if path in usable}
        self.kept = {path for each, path in there.items() if each in wanted}
        self.missing = [each for each in wanted if each not in there]
        self.removed = {*base.files} - self.kept if base else set[str]()
        self.is_due = bool(base is None or self.missing or self.removed)

    def is_rearranged(self, added: Mapping[PublishedSegment, NewFile]) -> bool:
        """Return whether the new files have exactly the rows of the removed files.

        A record keeps its offset, and offsets without a record never get one. So the rows are equal
        if their number is equal and the new offsets are in the range of the removed files.
        """
        gone = {path: PublishedSegment.parse(path) for path in self.removed}
        if self.base is None or self.base.foreign or None in gone.values() or not added:
            return False
        files = self.base.files
        old = _extents(
            (each, each.first_offset, each.end_offset - 1, files[path].rows)
            for path, each in gone.items() if each
        )  # fmt: skip
        new = _extents((each, *file.offsets, file.rows) for each, file in added.items())
        return old.keys() == new.keys() and all(
            first <= new[key][0] and new[key][1] <= last and new[key][2] == rows
            for key, (first, last, rows) in old.items()
        )


def _extents(
    some: Iterable[tuple[PublishedSegment, int, int, int]],
) -> dict[Any, tuple[int, int, int]]:
    """Combine (segment, first offset, last offset, rows) by partition and column digest."""
    found = dict[Any, tuple[int, int, int]]()
    for each, first, last, rows in some:
        key = each.partition, each.columns
        least, most, count = found.get(key, (first, last, 0))
        found[key] = min(first, least), max(last, most), count + rows
    return found


@dataclass
class Publisher:
    """One publish of a table that has a row in the catalog.

    With `replace`, all files are written again, see `publish`. With `force`, a commit is made even
    if the table already equals the log. `is_new` is true at the first publish.
    """

    _catalog: CatalogTable
    _row: TableRow
    _tasks: SegmentTasks
    _replace: bool = False
    _memory_bytes: int = MEMORY_BYTES
    _: KW_ONLY
    force: bool = False
    is_new: bool = False

    def __post_init__(self) -> None:
        self._table = PublishedTable(self._catalog.store, self._catalog.lake, self._row)
        self._reads, self._patience = SharedReads(self._catalog.store), PATIENCE
        self._written = dict[PublishedSegment, NewFile]()
        self._report = PublishResult(self._row.topic, self._table.uri)

    def publish(self, *, dry_run: bool = False) -> PublishResult:
        """Publish the table, and return the result. Raises what `publish` raises."""
        plan, report = self._plan(), self._report
        if dry_run or not (plan.is_due or self.force or self._replace):
            report.status = "dry run" if dry_run else "already done"
            return report
        store, progress = self._catalog.store, self._tasks.progress
        with announce_copies(store, report.topic, progress) as (attempt_id, told):
            self._tasks = self._tasks._replace(progress=told)
            try:
                self._carry_out(attempt_id, plan.base)
            except BaseException:
                self._give_up(attempt_id)
                raise
        if plan.base is None and not self.is_new:
            report.mended.append(f"{report.table} no longer existed")
        return report

    def _plan(self, base: TableVersion | None = None) -> _Plan:
        """Read the table, or use `base`, then read the lake. Return the changes to make.

        Raises what `publish` raises.
        """
        base = base or self._table.read(replace=self._replace)
        snapshot = self._catalog.snapshot(topics=[self._row.topic])
        # Another publisher may have given the table other columns, or forgotten it.
        row = _row_at(self._catalog, snapshot, self._row.topic, self._row.path)
        if row is not None and row.sequence >= self._row.sequence:
            self._row = row
        if self._row.state == "forgotten":
            raise UsageError(f"the lake no longer lists the table {self._row.path}. Publish again")
        shows = base.shows if base and not self._replace else None
        if shows is not None and shows > snapshot.version:
            raise UsageError(
                f"{self._table.uri} shows version {shows} of the lake, but the lake has only "
                f"{snapshot.version}, as if a copy was restored. Publish with --replace"
            )
        report, wanted = self._report, visible_segments(self._reads, snapshot, self._row)
        own = {file.path for file in self._written.values()}
        plan = _Plan(base, snapshot, wanted, base.files if base and not self._replace else own)
        report.version, report.lake_version = (base.version if base else -1), snapshot.version
        report.added, report.removed = len(plan.missing), len(plan.removed)
        unknown = [path for path in plan.removed if not PublishedSegment.parse(path)]
        report.mended = [] if not base else [*base.foreign, *sorted(unknown)]
        return plan

    def _carry_out(self, attempt_id: str, base: TableVersion | None) -> None:
        """Write and commit until the table equals the log. Raises what `publish` raises.

        `base` is a version of the table that was already read, for the first try.
        """
        while True:
            try:
                plan, base = self._plan(base), None
                if self._try(plan, attempt_id):
                    break
            except (CommitConflict, StoreError, VersionExpired) as problem:
                raced = not isinstance(problem, StoreError)
                self._patience -= RACE_COST if raced else FAILURE_COST
                if self._patience <= 0:
                    raise
                if not raced:
                    time.sleep(PAUSE_S)
        # Lost tries may have written files of segments that were removed since.
        if len(self._written) > self._report.added:
            self._table.delete(self._table.files_of(attempt_id))

    def _try(self, plan: _Plan, attempt_id: str) -> bool:
        """Carry out a plan. Return whether the table equals the log now."""
        report, columns = self._report, TableColumns.load(self._row.settings)
        if plan.base is None:
            self._table.create(columns.schema)
            return False
        if not (plan.is_due or self.force or self._replace):
            report.status = "already done"
            return True
        self._write(plan, columns, attempt_id)
        added = {each: self._written[each] for each in plan.missing}
        report.data_change = not plan.is_rearranged(added)
        require_not_abandoned(self._catalog.store, attempt_id)
        report.version = self._table.commit(
            plan.base, columns.schema, plan.snapshot.version, added.values(), plan.removed,
            changes=report.data_change,
        )  # fmt: skip
        report.rows = sum(file.rows for file in added.values())
        report.misfits = dict(sum((file.misfits for file in added.values()), Counter[str]()))
        return True

    def _write(self, plan: _Plan, columns: TableColumns, attempt_id: str) -> None:
        """Write the missing files of a plan that this publish has not written yet."""
        left = [each for each in plan.missing if each not in self._written]
        if not left:
            return
        value_format = plan.snapshot.topic(self._row.topic).value_format
        writer = FileWriter(
            columns, value_format, self._table.store, self._table.folder, attempt_id,
            self._memory_bytes,
        )  # fmt: skip
        work = [SegmentToPublish(plan.wanted[each], each) for each in left]
        self._written |= zip(left, self._tasks.map(writer, work), strict=True)

    def _give_up(self, attempt_id: str) -> None:
        """Delete the files of this publish that no commit names, after a fence. Ignore errors."""
        with suppress(SeglakeError):
            if files := self._table.files_of(attempt_id):
                # An earlier commit may still arrive. A fence makes it lose.
                self._table.fence()
                self._table.delete(files)


def clear_tables(
    catalog: CatalogTable, rows: Iterable[TableRow], tasks: SegmentTasks, *, vacuum: bool
) -> dict[str, str]:
    """Fence tables, so that no publisher adds erased records to them.

    With `vacuum`, the tables are also published, and files with erased records are deleted. Call
    this after the commit that removes the records. Return, by path, the reason why a table may
    still have such records. Other tables are omitted.
    """
    left = {}
    for row in rows:
        table = PublishedTable(catalog.store, catalog.lake, row)
        newest = partial(catalog.snapshot, topics=[row.topic])
        try:
            old = table.old_files(newest)
            if not vacuum:
                table.fence()
            for _ in range(_CLEARINGS * vacuum):
                if table.exists():
                    Publisher(catalog, row, tasks, force=True).publish()
                    table.keep_newest()
                if not old:
                    break
                table.delete(old)
                old = table.old_files(newest)
            if old:
                left[table.uri] = f"{counted(len(old), 'file')} of removed segments"
        except SeglakeError as error:
            left[table.uri] = str(error)
    return left
