"""Remove the oldest segments of log partitions by Kafka's rules of retention.

The rules are the rules of Kafka's `UnifiedLog.deleteOldSegments`. Segments below the log start are
removed (here in the commit that moves the log start), then the segments beyond `retention.bytes`,
then the segments older than `retention.ms`. Each rule begins with the oldest segment and ends at
the first segment that it does not cover. The age of a segment counts from its largest timestamp. If
no record has a timestamp, the age counts from the segment's creation in the catalog, where Kafka
uses the time of the file. At least `retention.bytes` of logs remain, and offsets never restart. If
`cleanup.policy` does not include `delete`, nothing is removed.

If a record has a timestamp in the future, its segment and all later segments are kept. The report
names the segment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from shlex import quote

import numpy as np

from seglake.catalog.quarantine.open_rejects import EXPIRE, expired_attempts
from seglake.catalog.schema import Row
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.version.snapshot import PartitionView, Snapshot
from seglake.clock import now_ms
from seglake.config import Topic
from seglake.errors import OffsetOutOfRange, PolicyViolation, UsageError
from seglake.format.records import Int64s
from seglake.maintain.commit import Clock, MaintenanceReport, TopicReport, commit_change
from seglake.read.log import Log
from seglake.read.origin import Origin
from seglake.store import open_store
from seglake.times.instants import Time, format_ms, to_past_ms
from seglake.write.driver.topics import topic_from_row

# ---------------- log start
# Move the log start of a log partition, and remove the segments below it.
#
# Kafka's log has an active segment, which is never removed. Every segment of a lake is closed, as
# if an empty active segment followed it. So the last segment may be removed, too. The partition row
# keeps the end offset, so that offsets never restart.


@dataclass
class LogStartChange(MaintenanceReport):
    """A log start that moved from `before` to `after`, and the segments that were removed with it.

    `records` and `log_bytes` count only these segments. Deleted records in the next segment are not
    counted, because its files are not changed.
    """

    partition: int
    before: int
    after: int
    segments: int
    records: int
    log_bytes: int


def log_start_change(view: PartitionView, offset: int) -> LogStartChange:
    """Return the effect of moving the log start to `offset`, which is at most the log end."""
    segments = view.segments
    below = int(np.searchsorted(segments.end_offsets, offset, "right"))
    gone = segments.details[:below]
    return LogStartChange(
        view.partition,
        view.log_start_offset,
        offset,
        len(gone),
        int(gone["record_count"].sum(dtype=np.int64)),
        int(gone["sizes"][:, 0].sum(dtype=np.int64)),
    )


def move_log_starts(
    base: Snapshot, report: TopicReport, operation: str, moves: Sequence[LogStartChange]
) -> Change:
    """Return the change that moves the log starts of a topic and adds the operation's report."""
    rows, replaced = list[Row](), list[tuple[int, int]]()
    for move in moves:
        view = base.partition(report.topic, move.partition)
        rows.append(view.next_row(move.after))
        gone = view.segments.base_offsets[: move.segments].tolist()
        replaced += [(move.partition, base_offset) for base_offset in gone]
    return Change([*rows, report.row(operation)], replaced)


# ---------------- delete records
# delete-records moves the log start of partitions up, even to an offset inside a segment.
#
# It works like Kafka's `DeleteRecords` (KIP-107). Readers of the new version do not get the records
# below the log start. The same commit removes the segments that are completely below it, and a
# vacuum deletes their files. The files of the segment that contains the log start do not change.

_BY_OFFSET = (
    "give an earlier time, or offsets (--before-offset); -1 deletes all records of a log partition"
)
END = -1  # Kafka's DeleteRecordsRequest.HIGH_WATERMARK


@dataclass(repr=False)
class DeleteRecordsResult(TopicReport):
    """The log starts that moved or, in a dry run, would move. Other partitions are omitted."""

    dry_run: bool = False
    moved: list[LogStartChange] = field(default_factory=list)


def delete_records(
    root: str,
    topic: str,
    before_offsets: Mapping[int, int] | None = None,
    *,
    before_time: Time | None = None,
    partitions: Collection[int] | None = None,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> DeleteRecordsResult:
    """Delete the records of partitions below an offset, or before a time, in one commit.

    After a StoreError, the commit may have been made. After any other error, nothing has changed.

    Args:
        root: The folder or URI of the lake.
        topic: The topic.
        before_offsets: Partition number → offset of the first record to keep, or -1 for the end of
            the log. An offset at or below the log start changes nothing.
        before_time: A time in the past. The log then begins at the first record, in offset order,
            at or after this time, or is empty if there is no such record. So no record at or after
            the time is deleted.
        partitions: The partitions that `before_time` applies to, by default all.
        dry_run: Write nothing, and only report the log starts that would move.
        storage_options: Options of the store.

    Raises:
        OffsetOutOfRange: An offset is above the end of the log, or below -1.
        PolicyViolation: The topic's `cleanup.policy` does not include `delete`.
        UnknownTopic: The topic, or one of the partitions, does not exist.
        UsageError: There are both offsets and a time, or neither, or offsets and `partitions`, or
            the time is in the future.
        CommitConflict: Concurrent commits won all retries.
        StoreError: Storage failed.

    Example:
        >>> deleted = seglake.delete_records("lake", "web", {0: 10})
        >>> seglake.open("lake").topic("web").beginning_offsets()
        {0: 10, 1: 0}
    """
    if (before_offsets is None) == (before_time is None):
        raise UsageError("give either offsets or a time to delete before")
    if before_offsets is not None and partitions is not None:
        raise UsageError("offsets already name the partitions. Leave out `partitions`")
    table = CatalogTable.open(open_store(root, storage_options))
    report = DeleteRecordsResult(topic, dry_run=dry_run)
    clock = Clock(None if dry_run else table.store)
    before_ms = None
    if before_time is not None:
        before_ms = to_past_ms(before_time, clock.machine_ms, _BY_OFFSET)

    def plan(base: Snapshot) -> Change | None:
        _require_policy(base, topic, table.store.uri)
        if before_ms is None:
            asked = before_offsets or {}
        else:
            asked = _at(table, base, topic, before_ms, partitions)
        views = [(base.partition(topic, number), asked[number]) for number in sorted(asked)]
        starts = [(view, _start(view, offset)) for view, offset in views]
        report.moved = [
            log_start_change(view, start) for view, start in starts if start > view.log_start_offset
        ]
        if not report.moved:
            return None
        if before_time is not None:
            to_past_ms(before_time, clock.earlier_ms, _BY_OFFSET)
        return move_log_starts(base, report, "delete-records", report.moved)

    commit_change(table, report, plan, dry_run=dry_run)
    return report


def _require_policy(base: Snapshot, topic: str, root: str) -> None:
    policy = topic_from_row(base.topic(topic)).cleanup_policy
    if "delete" not in policy:
        raise PolicyViolation(
            f"records of {topic} cannot be deleted, because its cleanup.policy is {policy} "
            f"(POLICY_VIOLATION). To allow it: `seglake alter {quote(root)} {topic} "
            f"cleanup.policy=compact,delete`"
        )


def _at(
    table: CatalogTable,
    base: Snapshot,
    topic: str,
    time_ms: int,
    partitions: Collection[int] | None,
) -> dict[int, int]:
    """Return the offset of the first record at or after a time, or END, for each partition."""
    log = Log(base, topic, Origin(table.store))
    chosen = log.partitions() if partitions is None else sorted({*partitions})
    places = {number: log.reader(number).offset_for_time(time_ms) for number in chosen}
    return {number: END if place is None else place.offset for number, place in places.items()}


def _start(view: PartitionView, offset: int) -> int:
    """Return the log start for a requested offset, which may be END. Raises OffsetOutOfRange."""
    end = view.end_offset
    if not END <= offset <= end:
        raise OffsetOutOfRange(
            f"{view.topic}-{view.partition}: offset {offset} is not in the log, which ends at "
            f"{end}. Give an offset from {view.log_start_offset} to {end}, or -1 for the end "
            "(OFFSET_OUT_OF_RANGE)"
        )
    return end if offset == END else offset


# ---------------- rejects
# The rejects of a run expire `quarantine.retention.ms` after the run has ended.
#
# One commit lists the attempts whose rejects no longer count. A vacuum reads this commit and
# deletes the files, so a process may be killed at any time. The rows of the runs, and their counts,
# are not changed.


@dataclass(repr=False)
class ExpireRejectsResult(TopicReport):
    """The attempts whose rejects expired, or would expire, and the numbers of runs and rejects.

    `now_ms` is the time (ms) that counted as the present for the age of the rejects.
    """

    dry_run: bool = False
    now_ms: int = -1
    runs: int = 0
    rejects: int = 0
    attempts: list[str] = field(default_factory=list)


def expire_rejects(
    table: CatalogTable, topic: str, clock: Clock, *, dry_run: bool
) -> ExpireRejectsResult:
    """Commit a list of the attempts whose rejects have expired by the clock's earlier time.

    Raises what `retain` raises.
    """
    report = ExpireRejectsResult(topic, dry_run=dry_run, now_ms=clock.machine_ms)

    def plan(base: Snapshot) -> Change | None:
        retention_ms = topic_from_row(base.topic(topic)).quarantine_retention_ms
        if retention_ms < 0:
            return None
        before = expired_attempts(table.rows.maintenance(base, topic))
        old = [
            run
            for run in table.rows.runs(base, topic)
            if run.quarantined and clock.machine_ms - run.finished_at_ms > retention_ms
            and run.attempt_id not in before
        ]  # fmt: skip
        if old:
            report.now_ms = clock.earlier_ms
            old = [run for run in old if report.now_ms - run.finished_at_ms > retention_ms]
        report.runs, report.rejects = len(old), sum(run.quarantined for run in old)
        report.attempts = sorted(run.attempt_id for run in old)
        return Change([report.row(EXPIRE)]) if old else None

    commit_change(table, report, plan, dry_run=dry_run)
    return report


@dataclass
class RetentionBlocker(MaintenanceReport):
    """A segment that prevents the removal of `segments` old segments after it.

    The logs of these segments have `log_bytes`. `offset` and `timestamp` belong to the record with
    the largest timestamp in the blocking segment. If no record has a timestamp, `offset` is -1 and
    `timestamp` is the time when the segment was made.
    """

    partition: int
    offset: int
    timestamp: int
    segments: int
    log_bytes: int
    help: str


@dataclass(repr=False)
class RetainResult(TopicReport):
    """The result of the retention of a topic at the time `now_ms`, or of its dry run.

    `segments`, `records` and `log_bytes` are the totals over all partitions of `moved`. `unlimited`
    is whether the policy includes `delete`, but the topic has no limit by time or size.
    """

    dry_run: bool = False
    now_ms: int = -1
    segments: int = 0
    records: int = 0
    log_bytes: int = 0
    moved: list[LogStartChange] = field(default_factory=list)
    blocked: list[RetentionBlocker] = field(default_factory=list)
    unlimited: bool = False


def retain(
    root: str,
    topic: str | None = None,
    *,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> list[RetainResult]:
    """Remove the oldest segments of one topic, or of all topics, by their retention settings.

    Each topic with something to remove gets one commit. A vacuum deletes the files as soon as no
    retained version names them.

    Args:
        root: The folder or URI of the lake.
        topic: The topic, by default every topic.
        dry_run: Write nothing, and only report the segments that would be removed.
        storage_options: Options of the store.

    Returns:
        One report per topic.

    Raises:
        UnknownTopic: There is no such topic.
        ConfigError: The settings of a topic are invalid.
        CommitConflict: Concurrent commits won all retries.
        StoreError: Storage failed.

    Example:
        >>> (report,) = seglake.retain("lake", "web", dry_run=True)
        >>> report.segments
        0
    """
    table = CatalogTable.open(open_store(root, storage_options))
    snapshot = table.snapshot()
    rows = snapshot.topics() if topic is None else [snapshot.topic(topic)]
    clock = Clock(None if dry_run else table.store)
    return [retain_topic(table, row.topic, clock, dry_run=dry_run, base=snapshot) for row in rows]


def retain_topic(
    table: CatalogTable, topic: str, clock: Clock, *, dry_run: bool, base: Snapshot | None = None
) -> RetainResult:
    """Apply the retention of one topic by the clock's earlier time.

    `base` is the version to continue, by default the newest version. Raises what `retain` raises.
    """
    report = RetainResult(topic, dry_run=dry_run, now_ms=clock.machine_ms)

    def plan(base: Snapshot) -> Change | None:
        settings = topic_from_row(base.topic(topic))
        no_limit = settings.retention_ms == settings.retention_bytes == -1
        report.unlimited = no_limit and "delete" in settings.cleanup_policy
        of = partial(_RetainedPartition, table.store.uri, settings)
        dated = _dated(table, base, topic, settings)
        partitions = [of(report.now_ms, view, times) for view, times in dated]
        if any(partition.count for partition in partitions):
            report.now_ms = clock.earlier_ms
            partitions = [of(report.now_ms, view, times) for view, times in dated]
        report.moved = [partition.change() for partition in partitions if partition.count]
        report.blocked = [
            partition.blocker() for partition in partitions if partition.shielded.any()
        ]
        for name in ("segments", "records", "log_bytes"):
            setattr(report, name, sum(getattr(partition, name) for partition in report.moved))
        return move_log_starts(base, report, "retain", report.moved) if report.moved else None

    commit_change(table, report, plan, dry_run=dry_run, base=base)
    return report


def expired(
    table: CatalogTable, base: Snapshot, topic: str, settings: Topic
) -> list[LogStartChange]:
    """Return the changes that retention would make now if the topic had these settings."""
    dated = _dated(table, base, topic, settings)
    partitions = [_RetainedPartition("", settings, now_ms(), *each) for each in dated]
    return [partition.change() for partition in partitions if partition.count]


class _RetainedPartition:
    """A log partition and the effect of its topic's retention, which removes `count` segments.

    `times` has the time (ms) from which the age of each segment counts. `shielded` marks the old
    segments that are kept because of a younger segment before them.
    """

    def __init__(
        self, root: str, settings: Topic, now_ms: int, view: PartitionView, times: Int64s
    ) -> None:
        self.view, self._root, self._times = view, root, times
        self._sizes: Int64s = view.segments.details["sizes"][:, 0].astype(np.int64)
        old = np.zeros(len(view), np.bool_)
        if _expires(settings):
            old = now_ms - times > settings.retention_ms
        count = 0
        if "delete" in settings.cleanup_policy and settings.retention_bytes >= 0:
            # The oldest segments go as long as `retention.bytes` or more remain.
            surplus = self._sizes.sum() - settings.retention_bytes
            count = int(np.searchsorted(np.cumsum(self._sizes), surplus, "right"))
        # After the surplus, the segments up to the first young one are removed.
        young = np.flatnonzero(~old[count:])
        self.count = count + int(young[0]) if len(young) else len(old)
        self.shielded = old.copy()
        self.shielded[: self.count] = False

    def change(self) -> LogStartChange:
        """Return the change of the log start. `count` must be at least 1."""
        return log_start_change(self.view, int(self.view.segments.end_offsets[self.count - 1]))

    def blocker(self) -> RetentionBlocker:
        """Describe the first kept segment, which prevents the removal of old segments after it."""
        first, time = self.view.segment(self.count), int(self._times[self.count])
        return RetentionBlocker(
            first.partition,
            first.offset_of_max_timestamp,
            time,
            int(self.shielded.sum()),
            int(self._sizes[self.shielded].sum()),
            f"{first.topic}-{first.partition}: the segment at offset {first.base_offset}, whose "
            f"age counts from {format_ms(time)}, prevents the removal of the old segments after "
            f"it. If this time is wrong, `seglake delete-records {quote(self._root)} {first.topic} "
            f"--partition {first.partition} --before-offset {first.end_offset}` deletes the "
            "segment and all segments before it",
        )


def _expires(settings: Topic) -> bool:
    """Return whether segments are removed by their age."""
    return "delete" in settings.cleanup_policy and settings.retention_ms >= 0


def _dated(
    table: CatalogTable, base: Snapshot, topic: str, settings: Topic
) -> list[tuple[PartitionView, Int64s]]:
    """Return the log partitions, and for each segment the time (ms) from which its age counts.

    It counts from the largest timestamp. If segments are removed by age, a segment without one has
    its creation time instead. An undo may leave such segments in every log partition, so all their
    rows are read in one step.
    """
    dated = [(view, view.segments.max_timestamps.copy()) for view in base.partitions(topic)]
    places = [
        (view.partition, offset)
        for view, times in dated
        for offset in view.segments.base_offsets[times < 0].tolist()
    ]
    if places and _expires(settings):
        made = np.array([row.created_at_ms for row in table.rows.segments_at(base, topic, places)])
        ends = np.cumsum([int((times < 0).sum()) for _, times in dated])
        for (_, times), some in zip(dated, np.split(made, ends[:-1]), strict=True):
            times[times < 0] = some
    return dated
