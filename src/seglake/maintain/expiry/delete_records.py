"""delete-records: the log start of partitions moves up, inside of a segment too.

As Kafka's `DeleteRecords` (KIP-107). Readers of the new version do not see what lies below. The
segments that lie wholly below go with the same commit, and their files by a vacuum. The files of
the segment in which the log now begins stay whole, deleted records included.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from shlex import quote

from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.version.snapshot import PartitionView, Snapshot
from seglake.errors import OffsetOutOfRange, PolicyViolation, UsageError
from seglake.maintain.clock import CarefulClock
from seglake.maintain.commit import carry_out
from seglake.maintain.expiry.log_start import Moved, change_of, moved
from seglake.maintain.report import TopicReport
from seglake.maintain.topic_settings import topic_of
from seglake.read.log import Log
from seglake.read.origin import Origin
from seglake.store import open_store
from seglake.times.instants import Time, to_past_ms

_BY_OFFSET = (
    "to delete up to a time that is still to come, give offsets (--before-offset): `seglake "
    "offsets` finds that of a time, and -1 empties a log partition"
)
END = -1  # Kafka's DeleteRecordsRequest.HIGH_WATERMARK


@dataclass(repr=False)
class Deleted(TopicReport):
    """The log starts that moved, or would move; a partition that is not named keeps its own."""

    dry_run: bool = False
    moved: list[Moved] = field(default_factory=list)


def delete_records(
    root: str,
    topic: str,
    before_offsets: Mapping[int, int] | None = None,
    *,
    before_time: Time | None = None,
    partitions: Collection[int] | None = None,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> Deleted:
    """Delete the records below an offset of each partition, or those before a time, in one commit.

    `before_offsets` is {partition: offset}; -1 is the end of the log. With `before_time` the log of
    each partition, or of `partitions`, then begins at the first record, in offset order, at that
    time or later, or is empty if there is none: no record of that time or later is deleted. A time
    that is still to come is refused. An offset at or below the log start changes nothing.

    Raises OffsetOutOfRange for an offset above the end or below -1, PolicyViolation if the topic's
    `cleanup.policy` lacks `delete`, UnknownTopic, UsageError, StoreError and CommitConflict; then
    nothing changed.
    """
    if (before_offsets is None) == (before_time is None):
        raise UsageError("give one of the two: offsets or a time to delete before")
    if before_offsets is not None and partitions is not None:
        raise UsageError("partitions are named with their offsets; leave the other list out")
    table = CatalogTable.open(open_store(root, storage_options))
    report = Deleted(topic, dry_run=dry_run)
    clock = CarefulClock(table.store, dry_run=dry_run)
    before_ms = None
    if before_time is not None:
        before_ms = to_past_ms(before_time, clock.machine_ms, _BY_OFFSET)

    def plan(base: Snapshot) -> Change | None:
        _require_policy(base, topic, table.store.uri)
        if before_ms is None:
            asked = before_offsets or {}
        else:
            asked = _at(table, base, topic, before_ms, partitions)
        starts = {number: _start(base.partition(topic, number), n) for number, n in asked.items()}
        views = {number: base.partition(topic, number) for number in sorted(starts)}
        report.moved = [
            moved(view, starts[number])
            for number, view in views.items()
            if starts[number] > view.log_start_offset
        ]
        if not report.moved:
            return None
        if before_time is not None:
            to_past_ms(before_time, clock.now.earlier_ms, _BY_OFFSET)
        return change_of(base, report, "delete-records", report.moved)

    carry_out(table, report, plan, dry_run=dry_run)
    return report


def _require_policy(base: Snapshot, topic: str, root: str) -> None:
    policy = topic_of(base.topic(topic)).cleanup_policy
    if "delete" not in policy:
        raise PolicyViolation(
            f"records of {topic} are not deleted, since its cleanup.policy is {policy} "
            f"(POLICY_VIOLATION): `seglake alter {quote(root)} {topic} "
            "cleanup.policy=compact,delete` allows it"
        )


def _at(
    table: CatalogTable,
    base: Snapshot,
    topic: str,
    time_ms: int,
    partitions: Collection[int] | None,
) -> dict[int, int]:
    """The offset of the first record at a time or later, in each partition; else END."""
    log = Log(base, topic, Origin(table.store))
    chosen = log.partitions() if partitions is None else sorted({*partitions})
    places = {number: log.reader(number).offset_for_time(time_ms) for number in chosen}
    return {number: END if place is None else place.offset for number, place in places.items()}


def _start(view: PartitionView, offset: int) -> int:
    """The log start that is asked for. Raises OffsetOutOfRange."""
    end = view.end_offset
    if not END <= offset <= end:
        raise OffsetOutOfRange(
            f"{view.topic}-{view.partition}: offset {offset} is not in the log, which ends at "
            f"{end}: give an offset from {view.log_start_offset} to {end}, or -1 for the end "
            "(OFFSET_OUT_OF_RANGE)"
        )
    return end if offset == END else offset
