"""Import the logs of a broker as topics of a lake, with the same offsets.

An import reads the logs twice, and commits once for each topic:

    1. A first pass reads headers (`survey`), and refuses invalid logs before anything is written.
    2. A second pass copies the record batches, one segment for each segment of the broker. It
       checks checksums and creates index files. It removes aborted transactions and markers. Their
       offsets become gaps. From batches of committed transactions, it removes the fields that make
       a reader wait for a marker.
    3. One commit for each topic makes the records visible. It continues at the end offsets in the
       lake, so repeated imports add each record exactly once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby, islice
from typing import NamedTuple

from seglake.catalog.schema import PartitionRow, Row, SegmentId, SegmentRow, TopicRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.transaction import PATIENCE, announce, transact, write_recent_markers
from seglake.catalog.version.segments import Segments
from seglake.catalog.version.snapshot import EMPTY, PartitionView, Snapshot
from seglake.clock import now_ms
from seglake.config import Topic
from seglake.engine import Progress, SegmentTasks
from seglake.errors import CommitConflict, InputError, MissingObject, UsageError
from seglake.format.index import IndexPolicy
from seglake.kafka.folder import PartitionFolder, smallest_limits
from seglake.kafka.sources import PartTask, find_sources, write_part
from seglake.kafka.survey import Extent, combine_scans, logs_to_scan, scan_log
from seglake.layout import check_topic
from seglake.log.writer import NewSegment, policy_of
from seglake.maintain.commit import MaintenanceReport, TopicReport, open_lake_store
from seglake.store import Store
from seglake.terminal.wording import counted
from seglake.write.driver.topics import topic_from_row

PARTITIONER = "unknown"  # producers chose the partitions, so the partition of a key is unknown
TOPIC_ID = "kafka.topic.id"  # Kafka's topic id, a setting in the topic's row


@dataclass
class ImportedPartition(MaintenanceReport):
    """The offsets imported from a partition folder: `start_offset` to `end_offset`, exclusive.

    Records above the high watermark, or after the begin of an open transaction, are not imported.
    `last_stable_offset` is where the first open transaction begins, or None. `high_watermark` is
    None if its checkpoint is missing. In a dry run, the offsets are what an import would add.
    """

    partition: int
    source: str
    start_offset: int
    end_offset: int
    high_watermark: int | None
    last_stable_offset: int | None
    segments: int
    log_bytes: int
    aborted_transactions: int


@dataclass(repr=False)
class ImportResult(TopicReport):
    """The result of an import into a topic. `version` is the commit's, or -1 without a commit.

    `log_bytes` counts bytes read from the broker's logs. `new_log_bytes` and `records` count what
    was written. `notes` describe what was left out. Only an attach sets `refused`, why the topic
    was not attached, and `gone`, the URIs of objects that the lake reads but the bucket lacks.
    """

    SAMPLED = ("notes", "gone")
    dry_run: bool = False
    segments: int = 0
    records: int = 0
    log_bytes: int = 0
    new_log_bytes: int = 0
    partitions: list[ImportedPartition] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: str | None = None
    gone: list[str] = field(default_factory=list)


def import_logs(
    root: str,
    sources: Sequence[str],
    *,
    topic: str | None = None,
    name: str | None = None,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> list[ImportResult]:
    """Import partition folders of a stopped broker, or of a copy, each topic in one commit.

    A source is a folder `topic-partition`, or a log.dir that holds such folders; local, or on
    object storage. `topic` chooses one topic. Without it, all topics except internal ones are
    imported. `name` is the name in the lake, for a single topic. If a partition has several folders
    (replicas), the longest is imported.

    Raises InputError for sources without logs; UsageError for logs that do not continue the topic;
    CorruptData, with file and position, for damage and for message formats before Kafka 0.11;
    StoreError; and CommitConflict. Topics that are committed before an error remain.

    Example:
        >>> exported = seglake.export_logs("lake", "web", "broker-data")
        >>> imported = seglake.import_logs("lake", ["broker-data"], topic="web", name="copy")
        >>> seglake.open("lake").topic("copy").end_offsets()
        {0: 1029, 1: 171}
    """
    by_topic, notes = _folders_by_topic(sources, topic, storage_options)
    require_single_topic(by_topic, name)
    begun = list[TopicIntake]()
    with open_lake_store(root, storage_options, dry_run=dry_run) as store:
        lake = TargetLake(store, progress)
        for found, folders in sorted(by_topic.items()):
            begun.append(TopicIntake(lake, _IMPORT, name or found, folders, [] if begun else notes))
            begun[-1].survey(lake.newest())
        return [run.dry_run_report() if dry_run else run.run() for run in begun]


def _folders_by_topic(
    sources: Sequence[str], topic: str | None, storage_options: Mapping[str, str] | None
) -> tuple[dict[str, list[PartitionFolder]], list[str]]:
    """Return the partition folders of each topic to import, and notes about skipped folders.

    Raises InputError for sources without such a topic.
    """
    folders, skipped = find_sources(sources, topic, storage_options)
    topics = defaultdict[str, list[PartitionFolder]](list)
    for folder in folders:
        topics[folder.topic].append(folder)
    if not topics:
        what = "only internal topics of the broker" if topic is None else f"no topic {topic!r}"
        raise InputError(f"{', '.join(sources)} has {what}. Give another --topic")
    return topics, [
        f"{path} was left out, because its name is not TOPIC-PARTITION. A broker renames folders "
        f"that it deletes or moves"
        for path in skipped
    ]


def require_single_topic(topics: Iterable[str], name: str | None) -> None:
    """Raise UsageError if `name` is set and there are several topics."""
    if name is not None and len([*topics]) > 1:
        raise UsageError(
            f"--name needs a single topic, not several ({', '.join(sorted(topics))}). "
            f"Choose one with --topic"
        )


class ImportMethod(NamedTuple):
    """A way to add logs to a lake: the operation, a check of extents, and a segment writer."""

    operation: str
    write: Callable[[Store, PartTask], SegmentRow]
    check: Callable[[Extent], None] = lambda _extent: None


_IMPORT = ImportMethod("import", write_part)


class TargetLake:
    """The lake to import into. It is created when it is first needed."""

    def __init__(self, store: Store, progress: Progress | None) -> None:
        self.store, self.tasks = store, SegmentTasks.from_session(store, None, progress)
        self._table: CatalogTable | None = None

    def newest(self) -> Snapshot:
        """Return the newest version, or an empty one if the lake does not exist."""
        try:
            return (self._table or CatalogTable.open(self.store)).snapshot()
        except UsageError as error:
            if isinstance(error.__cause__, MissingObject):
                return EMPTY
            raise

    def table(self) -> CatalogTable:
        """Return the catalog. Create the lake if it does not exist."""
        self._table = self._table or CatalogTable.create(self.store)
        return self._table


class TopicIntake:
    """An import into one topic. It is retried if the topic changed after the survey."""

    def __init__(
        self,
        lake: TargetLake,
        way: ImportMethod,
        name: str,
        folders: Sequence[PartitionFolder],
        notes: Sequence[str],
    ) -> None:
        check_topic(name)
        self._way = way
        self._lake, self._name, self._notes = lake, name, notes
        self._folders = sorted(folders, key=lambda folder: folder.partition)
        self._extents: list[Extent] = []

    def survey(self, base: Snapshot) -> None:
        """Scan the logs, and refuse invalid logs. Raises what `import_logs` raises."""
        self.report = ImportResult(self._name, notes=[*self._notes])
        self._base, self._topic_row = base, base.find_topic(self._name)
        try:
            _require_imported(self._topic_row, self._folders, self._name)
            by_partition = groupby(self._scanned(), key=lambda extent: extent.folder.partition)
        except UsageError:  # an earlier call may have imported all, and others appended
            self._write_recent_markers()
            raise
        self._extents = [max(extents, key=lambda extent: extent.end) for _, extents in by_partition]
        for extent in self._extents:
            self._way.check(extent)
            self.report.partitions.append(_partition_report(extent))
            self.report.notes += [*extent.notes, *_notes(extent)]
        self.report.segments = sum(part.segments for part in self.report.partitions)
        self.report.log_bytes = sum(part.log_bytes for part in self.report.partitions)

    def _write_recent_markers(self) -> None:
        """Write missing success markers of earlier calls that may have died before writing them."""
        if self._topic_row is not None:
            write_recent_markers(self._lake.table(), self._base.files, self._name)

    def dry_run_report(self) -> ImportResult:
        """Return the report of a dry run, which uses a store that writes nothing."""
        self.report.dry_run = True
        self._write()
        return self.report

    def run(self) -> ImportResult:
        """Write segments and commit them. Raises what `import_logs` raises."""
        for _ in range(PATIENCE):
            if not self._has_anything_new():
                self._write_recent_markers()
                return self.report
            count = self._folders[-1].partition + 1
            own = self.report.attempt_id
            with announce(table := self._lake.table(), own, self._name, partitions=count):
                change = partial(self._change, self._write())
                version = transact(table, self._name, own, change)
            if version is not None:
                self.report.version = version
                return self.report
            self.survey(self._lake.newest())
        raise CommitConflict(f"concurrent commits to {self._name} won all retries. Try again later")

    def _has_anything_new(self) -> bool:
        """Return whether the folders have records or partitions that are not in the lake."""
        count = 0 if self._topic_row is None else self._topic_row.partitions
        return self._folders[-1].partition >= count or any(
            extent.end > extent.start for extent in self._extents
        )

    # ------------------------------------------------------------------ the first pass

    def _scanned(self) -> list[Extent]:
        """Scan the logs of each folder and return its extent."""
        limits = smallest_limits(self._folders)
        views = [self._view(self._base, folder.partition) for folder in self._folders]
        starts = [*map(_start, views, self._folders)]
        by_folder = [
            logs_to_scan(folder, start, limits.get(folder.partition))
            for folder, start in zip(self._folders, starts, strict=True)
        ]
        logs = [*chain(*by_folder)]
        scans = iter(zip(logs, self._lake.tasks.map(scan_log, logs), strict=True))
        extents = [
            combine_scans(folder, start, [*islice(scans, len(its))])
            for folder, start, its in zip(self._folders, starts, by_folder, strict=True)
        ]
        for view, extent in zip(views, extents, strict=True):
            _require_continued(view, extent)
        return extents

    def _view(self, base: Snapshot, partition: int) -> PartitionView:
        """Return the partition in a version, or an empty one if it does not exist there."""
        view = base.find_partition(self._name, partition)
        return PartitionView(self._name, partition, Segments.empty()) if view is None else view

    # ------------------------------------------------------------------ the second pass

    def _write(self) -> list[SegmentRow]:
        """Write the segments, and count their records and bytes in the report."""
        rows: list[SegmentRow] = self._lake.tasks.map(self._way.write, [*self._tasks()])
        self.report.records = sum(row.record_count for row in rows)
        self.report.new_log_bytes = sum(row.log_bytes for row in rows)
        return rows

    def _tasks(self) -> Iterator[PartTask]:
        """Yield a task for each segment to write."""
        policy = (
            IndexPolicy() if self._topic_row is None else policy_of(topic_from_row(self._topic_row))
        )
        attempt_id, now = self.report.attempt_id, now_ms()
        for extent in self._extents:
            for part in extent.parts:
                partition = extent.folder.partition
                new_id = SegmentId(self._name, partition, part.base_offset, attempt_id, attempt_id)
                new = NewSegment(new_id, part.end_offset, policy, now)
                yield PartTask(extent.folder, part, extent.aborted, new)

    def _change(self, segments: Sequence[SegmentRow], base: Snapshot) -> Change | None:
        """Return the change to commit, or None if the partitions changed since the survey."""
        rows: list[Row] = [*segments]
        for extent in self._extents:
            view = self._view(base, extent.folder.partition)
            had = self._view(self._base, extent.folder.partition)
            if (view.end_offset, view.sequence > 0) != (had.end_offset, had.sequence > 0):
                return None
            rows += _partition_rows(view, extent)
        rows += _topic_rows(base.find_topic(self._name), self._name, self._folders, segments)
        return Change([*rows, self.report.row(self._way.operation)])


def _has_records(view: PartitionView) -> bool:
    """Return whether the partition ever had records, from an import or otherwise."""
    return view.end_offset > 0 or view.sequence > 0


def _start(view: PartitionView, folder: PartitionFolder) -> int:
    """Return the first offset to import. Raises UsageError if offsets before it are missing."""
    if not _has_records(view):
        return folder.log_start_offset
    if folder.log_start_offset > view.end_offset:
        raise UsageError(
            f"{folder.path} begins at offset {folder.log_start_offset}, and partition "
            f"{view.partition} of {view.topic} ends at {view.end_offset}: the offsets between "
            f"them are missing. Import into a topic of another name"
        )
    return view.end_offset


def _require_continued(view: PartitionView, extent: Extent) -> None:
    """Raise UsageError if a log is not a continuation of the partition."""
    if not _has_records(view):
        return
    path, end = extent.folder.path, f"partition {view.partition} of {view.topic} ends"
    if 0 <= extent.log_end < extent.start:
        raise UsageError(
            f"{path} ends at offset {extent.log_end}, below {extent.start}, where {end}. This is "
            f"an older copy, or another topic. Use a newer copy, or another --name"
        )
    if extent.parts and extent.parts[0].base_offset < extent.start:
        raise UsageError(
            f"{path} has a record batch at offset {extent.parts[0].base_offset}, below "
            f"{extent.start}, where {end}. This is another topic. Import it under another name"
        )


def _require_imported(row: TopicRow | None, folders: Iterable[PartitionFolder], name: str) -> None:
    """Raise UsageError unless all folders and the topic in the lake have one topic id."""
    ids = {folder.topic_id: folder for folder in folders if folder.topic_id is not None}
    if len(ids) > 1:
        one, other = list(ids.values())[:2]
        raise UsageError(
            f"{one.path} has the topic id {one.topic_id}, and {other.path} has {other.topic_id}: "
            f"the topic was deleted and created again. Import each under a separate name"
        )
    if row is None:
        return
    if row.partitioner != PARTITIONER:
        raise UsageError(
            f"topic {name!r} of the lake does not come from an import, so its offsets differ. "
            f"Import under another name"
        )
    had = json.loads(row.settings).get(TOPIC_ID)
    for topic_id, folder in ids.items():
        if had is not None and had != topic_id:
            raise UsageError(
                f"{folder.path} has the topic id {topic_id}, but {name} was imported from {had}: "
                f"the topic was deleted and created again. Import it under another name"
            )


def _partition_report(extent: Extent) -> ImportedPartition:
    folder = extent.folder
    return ImportedPartition(
        partition=folder.partition,
        source=folder.path,
        start_offset=extent.start,
        end_offset=extent.end,
        high_watermark=folder.high_watermark,
        last_stable_offset=extent.last_stable,
        segments=len(extent.parts),
        log_bytes=sum(part.log_bytes for part in extent.parts),
        aborted_transactions=len(extent.aborted),
    )


def _notes(extent: Extent) -> Iterator[str]:
    folder = extent.folder
    if extent.last_stable is not None:
        yield (
            f"{folder.path}: a transaction is open at the last stable offset "
            f"{extent.last_stable}. The import ends there, and a later import continues"
        )
    if folder.high_watermark is None:
        yield (
            f"{folder.path}: there is no replication-offset-checkpoint with the high watermark "
            f"next to it, so the whole log is imported"
        )
    elif folder.high_watermark > max(extent.end, extent.log_end) and extent.last_stable is None:
        yield (
            f"{folder.path}: the log ends at offset {extent.end}, below the high watermark "
            f"{folder.high_watermark}: the broker lost the records between them"
        )
    if folder.skipped:
        yield f"{folder.path}: left out {counted(len(folder.skipped), 'unrelated file')}"


def _topic_rows(
    topic_row: TopicRow | None,
    name: str,
    folders: Sequence[PartitionFolder],
    segments: Sequence[SegmentRow],
) -> list[TopicRow]:
    """Return the topic's row if it is new, or if its partitions or topic id changed."""
    count = max(folder.partition for folder in folders) + 1
    ids = [folder.topic_id for folder in folders if folder.topic_id is not None]
    new = {TOPIC_ID: ids[0]} if ids else {}
    if topic_row is None:
        newest = max(segments, key=lambda row: row.max_timestamp, default=None)
        plain = Topic.model_validate({"name": name, "partitions": count})
        settings = json.dumps({**plain.settings, **new})
        return [TopicRow(
            topic=name, sequence=1, partitions=count, partitioner=PARTITIONER,
            timestamp_type=newest.timestamp_type if newest else "CreateTime", settings=settings,
        )]  # fmt: skip
    stored = json.loads(topic_row.settings)
    settings, count = json.dumps({**stored, **new}), max(count, topic_row.partitions)
    if (json.loads(settings), count) == (stored, topic_row.partitions):
        return []
    sequence = topic_row.sequence + 1
    return [replace(topic_row, sequence=sequence, settings=settings, partitions=count)]


def _partition_rows(view: PartitionView, extent: Extent) -> list[PartitionRow]:
    """Return the partition's row if its log start or its largest leader epoch changes."""
    had = -1 if view.leader_epoch is None else view.leader_epoch
    epoch = max(extent.leader_epoch, had)
    start = view.log_start_offset if _has_records(view) else extent.start
    if (start, epoch) == (view.log_start_offset, had):
        return []
    return [PartitionRow(
        topic=view.topic, partition=view.partition, sequence=view.sequence + 1,
        log_start_offset=start, next_offset=extent.end,
        leader_epoch=epoch if epoch >= 0 else None,
    )]  # fmt: skip
