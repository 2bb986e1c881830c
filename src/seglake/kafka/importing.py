"""`seglake import`: the logs of a broker become topics of a lake, offsets kept.

A first pass looks at headers (`survey`) and refuses what cannot come in, before anything is
written. A second one copies the record batches, a segment for each of the broker's: checksums are
checked, index files made anew. Aborted transactions and markers leave, their offsets stay as gaps;
batches of committed transactions lose what would make a reader wait for a marker. One commit a
topic makes all of it visible. It continues the offsets that the lake has, so each import takes what
is new, exactly once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby, islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.catalog.schema import PartitionRow, Row, SegmentId, SegmentRow, TopicRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.transaction import PATIENCE, announced, mark_recent, transact
from seglake.catalog.version.segments import Segments
from seglake.catalog.version.snapshot import EMPTY, PartitionView, Snapshot
from seglake.clock import now_ms
from seglake.config import Topic
from seglake.errors import CommitConflict, CorruptData, InputError, MissingObject, UsageError
from seglake.format.batch import DELETE_HORIZON
from seglake.format.index import IndexPolicy
from seglake.format.records import read_only
from seglake.kafka.folder import PartitionFolder, smallest_limits
from seglake.kafka.sources import PartTask, find, write_part
from seglake.kafka.survey import Extent, extent_of, headers_of, logs_to_scan, scan_log, stretches
from seglake.layout import check_topic
from seglake.log.encoding import policy_of
from seglake.log.tasks import Progress, SegmentTasks, logged
from seglake.log.writer import NewSegment
from seglake.maintain.commit import MaintenanceReport, TopicReport, store_for
from seglake.maintain.topic_settings import topic_of
from seglake.store import Store
from seglake.terminal.wording import counted

PARTITIONER = "unknown"  # of topics that producers filled: nothing may assume where a key is
TOPIC_ID = "kafka.topic.id"  # Kafka's, among the settings in a topic's row


@dataclass
class ImportedPartition(MaintenanceReport):
    """What came in from a partition folder, or would: offsets `start_offset` to `end_offset`.

    The end is exclusive, and below the end of the broker's log if that is above the high watermark
    or after the begin of an open transaction: then `last_stable_offset` says so. `high_watermark`
    is None where the broker's note of it is missing.
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
class Imported(TopicReport):
    """The result of an import into a topic. `version` is that of its commit, -1 if there was none.

    `log_bytes` of the broker's logs were read, `new_log_bytes` written; `records` came in. `notes`
    say what was left out. Only an attach has `refused`, the reason why nothing of the topic came
    in, and `gone`, the URIs of objects that the lake reads and that are not in the bucket any more.
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
    progress: Progress = logged,
) -> list[Imported]:
    """Import partition folders of a stopped broker, or of a copy, each topic in one commit.

    A source is a folder `topic-partition`, or a log.dir that holds such folders; local, or on
    object storage. `topic` chooses one topic; without it, all topics come in but the broker's own.
    `name` is what the one topic is called in the lake. If a partition has several folders
    (replicas), the longest comes in. Their batches must be the same.

    Raises InputError for what is no log, UsageError for logs that do not continue the topic,
    CorruptData, with file and position, for damage and for message formats before Kafka 0.11,
    StoreError, and CommitConflict; then no topic changed, except those committed before.
    """
    by_topic, notes = _folders_by_topic(sources, topic, storage_options)
    require_one(by_topic, name)
    begun = list[TopicIntake]()
    with store_for(root, storage_options, dry_run=dry_run) as store:
        lake = TargetLake(store, progress)
        for found, folders in sorted(by_topic.items()):
            begun.append(TopicIntake(lake, _IMPORT, name or found, folders, [] if begun else notes))
            begun[-1].survey(lake.newest())
        return [run.tell() if dry_run else run.run() for run in begun]


def _folders_by_topic(
    sources: Sequence[str], topic: str | None, storage_options: Mapping[str, str] | None
) -> tuple[dict[str, list[PartitionFolder]], list[str]]:
    """Return the partition folders of each topic that comes in, and notes about skipped folders.

    Raises InputError for sources without such a topic.
    """
    folders, skipped = find(sources, topic, storage_options)
    topics = defaultdict[str, list[PartitionFolder]](list)
    for folder in folders:
        topics[folder.topic].append(folder)
    if not topics:
        what = "only the broker's own topics" if topic is None else f"no topic {topic}"
        raise InputError(f"{', '.join(sources)} holds {what}: name one that is there by --topic")
    return topics, [
        f"{path} is set aside, or no partition of a topic: left out" for path in skipped
    ]


def require_one(topics: Iterable[str], name: str | None) -> None:
    """Raise UsageError for one name of several topics."""
    if name is not None and len([*topics]) > 1:
        raise UsageError(f"one name for {', '.join(sorted(topics))}: choose one with --topic")


class Way(NamedTuple):
    """How logs come in: the operation's name, how a part becomes a segment, what is refused."""

    operation: str
    write: Callable[[Store, PartTask], SegmentRow]
    check: Callable[[Extent], None] = lambda _extent: None


_IMPORT = Way("import", write_part)


class TargetLake:
    """The lake that topics come into; it is created at the first need."""

    def __init__(self, store: Store, progress: Progress) -> None:
        self.store, self.tasks = store, SegmentTasks(store, None, progress)
        self._table: CatalogTable | None = None

    def newest(self) -> Snapshot:
        """Its newest version; an empty one of a lake that is not there."""
        try:
            return (self._table or CatalogTable.open(self.store)).snapshot()
        except UsageError as error:
            if isinstance(error.__cause__, MissingObject):
                return EMPTY
            raise

    def table(self) -> CatalogTable:
        """Its catalog."""
        self._table = self._table or CatalogTable.create(self.store)
        return self._table


class TopicIntake:
    """What comes into a topic, tried until its commit continues the version that it looked at."""

    def __init__(
        self,
        lake: TargetLake,
        way: Way,
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
        """Find out what comes in, and refuse what cannot. Raises as `import_logs`."""
        self.report = Imported(self._name, notes=[*self._notes])
        self._base, self._topic_row = base, base.find_topic(self._name)
        try:
            _require_imported(self._topic_row, self._folders, self._name)
            by_partition = groupby(self._scanned(), key=lambda extent: extent.folder.partition)
        except UsageError:  # an earlier call may have brought all that, and more came
            self._mark()
            raise
        self._extents = [longest_of(list(extents)) for _, extents in by_partition]
        for extent in self._extents:
            self._way.check(extent)
        self._report()

    def _mark(self) -> None:
        """Mark the topic's last commits: an earlier call may have died before its mark."""
        if self._topic_row is not None:
            mark_recent(self._lake.table(), self._base.files, self._name, "maintenance")

    def tell(self) -> Imported:
        """The report of a dry run, whose store writes nothing."""
        self.report.dry_run = True
        self._write()
        return self.report

    def run(self) -> Imported:
        """Write segments and commit them. Raises as `import_logs`."""
        for _ in range(PATIENCE):
            if not self._brings_anything():
                self._mark()
                return self.report
            count = self._folders[-1].partition + 1
            own = self.report.attempt_id
            with announced(self._lake.table(), own, self._name, partitions=count):
                if self._attempt():
                    return self.report
            self.survey(self._lake.newest())
        raise CommitConflict(
            f"other commits to {self._name} came first, again and again: try later"
        )

    def _brings_anything(self) -> bool:
        """Return whether the folders have records or partitions that are not in the lake."""
        count = 0 if self._topic_row is None else self._topic_row.partitions
        return self._folders[-1].partition >= count or any(
            extent.end > extent.start for extent in self._extents
        )

    # ------------------------------------------------------------------ the first pass

    def _scanned(self) -> list[Extent]:
        """What comes in of each folder."""
        limits = smallest_limits(self._folders)
        views = {
            folder.partition: self._view(self._base, folder.partition) for folder in self._folders
        }
        starts = [_start(views[folder.partition], folder) for folder in self._folders]
        by_folder = [
            logs_to_scan(folder, start, limits.get(folder.partition))
            for folder, start in zip(self._folders, starts, strict=True)
        ]
        logs = [*chain(*by_folder)]
        scans = iter(zip(logs, self._lake.tasks.map(scan_log, logs), strict=True))
        extents = [
            extent_of(folder, start, [*islice(scans, len(its))])
            for folder, start, its in zip(self._folders, starts, by_folder, strict=True)
        ]
        for extent in extents:
            _require_continued(views[extent.folder.partition], extent)
        return extents

    def _view(self, base: Snapshot, partition: int) -> PartitionView:
        """The partition as the lake has it; an empty one if it does not."""
        view = base.find_partition(self._name, partition)
        return PartitionView(self._name, partition, Segments.none()) if view is None else view

    def _report(self) -> None:
        report = self.report
        for extent in self._extents:
            report.partitions.append(_partition_report(extent))
            report.notes += [*extent.notes, *_notes(extent)]
        report.segments = sum(part.segments for part in report.partitions)
        report.log_bytes = sum(part.log_bytes for part in report.partitions)

    # ------------------------------------------------------------------ the second pass

    def _attempt(self) -> bool:
        """Return whether what the first pass found is written and committed."""
        table, report, rows = self._lake.table(), self.report, self._write()
        version = transact(table, self._name, report.attempt_id, partial(self._change, rows))
        report.version = -1 if version is None else version
        return version is not None

    def _write(self) -> list[SegmentRow]:
        """Write the segments; the report counts what they have."""
        rows: list[SegmentRow] = self._lake.tasks.map(self._way.write, [*self._tasks()])
        self.report.records = sum(row.record_count for row in rows)
        self.report.new_log_bytes = sum(row.log_bytes for row in rows)
        return rows

    def _tasks(self) -> Iterator[PartTask]:
        """The segments to write."""
        policy = IndexPolicy() if self._topic_row is None else policy_of(topic_of(self._topic_row))
        attempt_id, now = self.report.attempt_id, now_ms()
        for extent in self._extents:
            for part in extent.parts:
                partition = extent.folder.partition
                new_id = SegmentId(self._name, partition, part.base_offset, attempt_id, attempt_id)
                new = NewSegment(new_id, part.end_offset, policy, now)
                yield PartTask(extent.folder, part, extent.aborted, new)

    def _change(self, segments: Sequence[SegmentRow], base: Snapshot) -> Change | None:
        """The commit; None if the topic is not any more as the first pass found it."""
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
    """Return whether an import or anything else came into the partition before."""
    return view.end_offset > 0 or view.sequence > 0


def _start(view: PartitionView, folder: PartitionFolder) -> int:
    """The first offset that is wanted. Raises UsageError over a gap."""
    if not _has_records(view):
        return folder.log_start_offset
    if folder.log_start_offset > view.end_offset:
        raise UsageError(
            f"{folder.path} begins at offset {folder.log_start_offset}, and partition "
            f"{view.partition} of {view.topic} ends at {view.end_offset}: the offsets between are "
            "gone; import into a topic of another name"
        )
    return view.end_offset


def _require_continued(view: PartitionView, extent: Extent) -> None:
    """Raise UsageError if a log is not the one that the partition came from."""
    if not _has_records(view):
        return
    path, end = extent.folder.path, f"partition {view.partition} of {view.topic} ends"
    if 0 <= extent.log_end < extent.start:
        raise UsageError(
            f"{path} ends at offset {extent.log_end}, below {extent.start}, where {end}: this is "
            "an older copy, or another topic"
        )
    if extent.parts and extent.parts[0].base_offset < extent.start:
        raise UsageError(
            f"{path}: a record batch begins at offset {extent.parts[0].base_offset}, below "
            f"{extent.start}, where {end}: this is another topic"
        )


def _require_imported(row: TopicRow | None, folders: Iterable[PartitionFolder], name: str) -> None:
    """Raise UsageError unless all folders are of one topic of Kafka's, and the lake's is that."""
    ids = {folder.topic_id: folder for folder in folders if folder.topic_id is not None}
    if len(ids) > 1:
        one, other = list(ids.values())[:2]
        raise UsageError(
            f"{one.path} is of topic id {one.topic_id}, {other.path} of {other.topic_id}: a topic "
            "that was deleted and made again is another one; import each under a name of its own"
        )
    if row is None:
        return
    if row.partitioner != PARTITIONER:
        raise UsageError(
            f"topic {name} of the lake was not made by an import, and its offsets are others: "
            "import under another name"
        )
    had = json.loads(row.settings).get(TOPIC_ID)
    for topic_id, folder in ids.items():
        if had is not None and had != topic_id:
            raise UsageError(
                f"{folder.path} is of topic id {topic_id}, and {name} came from {had}: the topic "
                "was deleted and made again; import it under another name"
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
            f"{folder.path}: a transaction is open from offset {extent.last_stable} on, the last "
            "stable offset: the import ends there, and a later one goes on"
        )
    if folder.high_watermark is None:
        yield (
            f"{folder.path}: no replication-offset-checkpoint beside it says where the high "
            "watermark is: the whole log counts"
        )
    elif folder.high_watermark > max(extent.end, extent.log_end) and extent.last_stable is None:
        yield (
            f"{folder.path}: the log ends at offset {extent.end}, below the high watermark "
            f"{folder.high_watermark}: the broker lost what was between"
        )
    if folder.skipped:
        yield f"{folder.path}: {counted(len(folder.skipped), 'file')} of no segment left out"


def _topic_rows(
    topic_row: TopicRow | None,
    name: str,
    folders: Sequence[PartitionFolder],
    segments: Sequence[SegmentRow],
) -> list[TopicRow]:
    """The topic's row, if it is new, has more partitions, or now has Kafka's id."""
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
    return [
        replace(topic_row, sequence=topic_row.sequence + 1, settings=settings, partitions=count)
    ]


def _partition_rows(view: PartitionView, extent: Extent) -> list[PartitionRow]:
    """The partition's row, if its log begins above 0, or its largest leader epoch rises."""
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


# ---------------- replicas
# Two folders of one partition: whether they hold the same record batches.
#
# Replicas roll their segments at other offsets, and a cleaner takes other batches out of each.
# But a batch that both have, with as many records, is the same, byte for byte.

_BATCH = np.dtype(
    [
        ("base_offset", np.int64),
        ("last_offset", np.int64),
        ("count", np.int64),
        ("crc", np.int64),
        ("size", np.int64),
        ("part", np.int64),  # its number in the extent
        ("position", np.int64),
    ]
)

_Batches = npt.NDArray[np.void]


class _Side(NamedTuple):
    """What comes in from a folder, and its batches of the offsets `start` to `end`."""

    extent: Extent
    start: int
    end: int

    def batches(self) -> Iterator[_Batches]:
        """Yield some batches at a time, in order."""
        for number, part in enumerate(self.extent.parts):
            if part.end_offset <= self.start or part.base_offset >= self.end:
                continue
            for stretch in stretches(self.extent.folder.store, part.log):
                if isinstance(stretch, CorruptData):
                    break  # the damage is after the part
                table, places = stretch.table, stretch.table["position"] + stretch.position
                inside = (places >= part.begin) & (places < part.stop)
                inside &= (table["base_offset"] >= self.start) & (table["last_offset"] < self.end)
                table, places = table[inside], places[inside]
                batches = np.empty(len(table), _BATCH)
                for name in ("base_offset", "last_offset", "count", "size"):
                    batches[name] = table[name]
                batches["crc"], batches["part"] = headers_of(stretch.data, table)["crc"], number
                batches["crc"][table["attributes"] & DELETE_HORIZON != 0] = -1
                batches["position"] = places
                if len(batches):
                    yield batches


def longest_of(extents: Sequence[Extent]) -> Extent:
    """The longest of the folders of a partition. Raises InputError if they disagree."""
    longest = max(extents, key=lambda extent: extent.end)
    for extent in extents:
        if extent is not longest:
            require_same(longest, extent)
    return longest


def require_same(one: Extent, other: Extent) -> None:
    """Raise InputError, which names the byte, if two folders of one partition disagree.

    Only offsets that come in from both count.
    """
    start, end = max(one.start, other.start), min(one.end, other.end)
    sides = _Side(one, start, end), _Side(other, start, end)
    for ours, theirs in _aligned(*(side.batches() for side in sides)):
        differ = _first_difference(ours, theirs)
        if differ is not None:
            raise _disagreement(sides, differ)


def _aligned(ours: Iterator[_Batches], theirs: Iterator[_Batches]) -> Iterator[tuple[Any, Any]]:
    """The batches of both over the same offsets, some at a time."""
    ends = [False, False]
    sources, pending = (ours, theirs), [np.empty(0, _BATCH), np.empty(0, _BATCH)]
    while not all(ends):
        for side in (0, 1):
            while not ends[side] and not len(pending[side]):
                pending[side] = next(sources[side], pending[side])
                ends[side] = not len(pending[side])
        lasts = [int(batches["last_offset"][-1]) for batches in pending if len(batches)]
        if not lasts:
            return
        both = min(lasts)
        cut = [int(batches["last_offset"].searchsorted(both, "right")) for batches in pending]
        yield pending[0][: cut[0]], pending[1][: cut[1]]
        pending = [batches[at:] for batches, at in zip(pending, cut, strict=True)]


def _first_difference(ours: _Batches, theirs: _Batches) -> tuple[Any, Any] | None:
    """The first two batches that cannot be of one log, if any."""
    if not len(ours) or not len(theirs):
        return None
    beside = theirs["base_offset"].searchsorted(ours["last_offset"], "right") - 1
    other = theirs[np.maximum(beside, 0)]
    meets = (beside >= 0) & (other["last_offset"] >= ours["base_offset"])
    alike = other["base_offset"] == ours["base_offset"]
    alike &= other["last_offset"] == ours["last_offset"]
    cleaned = (other["count"] != ours["count"]) | (other["crc"] < 0) | (ours["crc"] < 0)
    wrong = np.flatnonzero(meets & ~(alike & (cleaned | (other["crc"] == ours["crc"]))))
    return (ours[wrong[0]], other[wrong[0]]) if len(wrong) else None


def _disagreement(sides: tuple[_Side, _Side], batches: tuple[Any, Any]) -> InputError:
    """The error that names the first byte in which two batches differ."""
    read = []
    for side, batch in zip(sides, batches, strict=True):
        key, folder = side.extent.parts[int(batch["part"])].log.key, side.extent.folder
        position = int(batch["position"])
        data = folder.store.read(key, position, position + int(batch["size"]))
        read.append((folder.place(key), position, read_only(data)))
    (one, at, ours), (other, place, theirs) = read
    both = min(len(ours), len(theirs))
    differ = ours[:both] != theirs[:both]
    byte = int(differ.argmax()) if differ.any() else both
    return InputError(
        f"byte {place + byte} of {other} is not what byte {at + byte} of {one} is, in the record "
        f"batch of offset {batches[0]['base_offset']}: two folders of one partition disagree; "
        "import the right one alone"
    )
