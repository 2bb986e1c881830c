"""Retention: the oldest segments of a log partition go, by Kafka's rules.

The rules are those of Kafka's `UnifiedLog.deleteOldSegments`: what lies below the log start goes
(here it goes in the commit that moves the log start), then what is more than `retention.bytes`,
then what is older than `retention.ms`. Each rule begins with the oldest segment and ends at the
first that it does not cover. A segment is as old as its largest timestamp; without one, as old as
the catalog says that it was made, where Kafka takes the time of the file. At least
`retention.bytes` of logs remain, and offsets never restart. If `cleanup.policy` lacks `delete`,
nothing goes.

One timestamp in the future, or of late data, keeps every segment after it. The report says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from shlex import quote

import numpy as np
import numpy.typing as npt

from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.version.snapshot import PartitionView, Snapshot
from seglake.config import Topic
from seglake.format.records import Int64s
from seglake.maintain.clock import CarefulClock
from seglake.maintain.commit import carry_out
from seglake.maintain.expiry.log_start import Moved, change_of, moved
from seglake.maintain.report import MaintenanceReport, TopicReport
from seglake.maintain.topic_settings import topic_of
from seglake.store import open_store
from seglake.times.instants import format_ms


@dataclass
class Blocked(MaintenanceReport):
    """A segment that keeps `segments` old segments after it, whose logs have `log_bytes`.

    `offset` and `timestamp` are those of its record with the largest timestamp; -1 as offset if no
    record has one, and then the timestamp is the time at which the segment was made.
    """

    partition: int
    offset: int
    timestamp: int
    segments: int
    log_bytes: int
    help: str


@dataclass(repr=False)
class Retained(TopicReport):
    """What retention removed of a topic, or would remove; `now_ms` is the time that it went by.

    `segments`, `records` and `log_bytes` count what went, in all partitions that `moved` names.
    """

    dry_run: bool = False
    now_ms: int = -1
    segments: int = 0
    records: int = 0
    log_bytes: int = 0
    moved: list[Moved] = field(default_factory=list)
    blocked: list[Blocked] = field(default_factory=list)


def retain(
    root: str,
    topic: str | None = None,
    *,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> list[Retained]:
    """Remove what a topic's retention does not keep, or that of every topic; a report for each.

    Each topic is one commit; a topic with nothing to remove has none. The files go by a vacuum,
    once no retained version names them. With `dry_run` nothing is written. Raises UnknownTopic,
    ConfigError, StoreError and CommitConflict.
    """
    table = CatalogTable.open(open_store(root, storage_options))
    snapshot = table.snapshot()
    rows = snapshot.topics() if topic is None else [snapshot.topic(topic)]
    clock = CarefulClock(table.store, dry_run=dry_run)
    do = partial(
        retain_topic, now_ms=clock.machine_ms, careful_ms=clock.earlier_ms, dry_run=dry_run
    )
    return [do(table, row.topic, base=snapshot) for row in rows]


def retain_topic(
    table: CatalogTable,
    topic: str,
    now_ms: int,
    *,
    dry_run: bool,
    base: Snapshot | None = None,
    careful_ms: Callable[[], int] | None = None,
) -> Retained:
    """Apply the retention of one topic, as of the time `now_ms`, on top of the version `base`.

    `careful_ms` gives an earlier time, by which it goes then; it is asked if something would go.
    """
    report = Retained(topic, dry_run=dry_run, now_ms=now_ms)

    def plan(base: Snapshot) -> Change | None:
        settings = topic_of(base.topic(topic))
        of = partial(_RetainedPartition, table.store.uri, settings)
        dated = _dated(table, base, topic, settings)
        partitions = [of(report.now_ms, view, times) for view, times in dated]
        if careful_ms is not None and any(partition.count for partition in partitions):
            report.now_ms = careful_ms()
            partitions = [of(report.now_ms, view, times) for view, times in dated]
        report.moved = [
            moved(partition.view, partition.log_start)
            for partition in partitions
            if partition.count
        ]
        report.blocked = [
            partition.blocked() for partition in partitions if partition.shielded.any()
        ]
        for name in ("segments", "records", "log_bytes"):
            setattr(report, name, sum(getattr(partition, name) for partition in report.moved))
        return change_of(base, report, "retain", report.moved) if report.moved else None

    carry_out(table, report, plan, dry_run=dry_run, base=base)
    return report


class _RetainedPartition:
    """A log partition under its topic's retention; `count` of its segments go, the oldest.

    `times` say in ms how old each segment is.
    """

    def __init__(
        self, root: str, settings: Topic, now_ms: int, view: PartitionView, times: Int64s
    ) -> None:
        self.view, self._root, self._times = view, root, times
        self._sizes: Int64s = view.segments.details["sizes"][:, 0].astype(np.int64)
        old = np.zeros(len(view), np.bool_)
        deletes = "delete" in settings.cleanup_policy
        if _expires(settings):
            old = now_ms - times > settings.retention_ms
        surplus = _surplus(self._sizes, settings.retention_bytes) if deletes else 0
        self.count = _leading(old, surplus)
        self.shielded = old.copy()
        self.shielded[: self.count] = False

    @property
    def log_start(self) -> int:
        """Where the log begins once they are gone."""
        return int(self.view.segments.end_offsets[self.count - 1])

    def blocked(self) -> Blocked:
        """The first segment that stays, though there are old segments after it."""
        first = self.view.segment(self.count)
        place, time = f"{first.topic}-{first.partition}", int(self._times[self.count])
        what = f"the segment at offset {first.base_offset}, made at {format_ms(time)}"
        other = "the setting message.timestamp.after.max.ms keeps such records out"
        if first.max_timestamp >= 0:
            what = f"the record at offset {first.offset_of_max_timestamp}, of {format_ms(time)}"
        elif not first.record_count:
            what = f"the empty segment at offset {first.base_offset}, made at {format_ms(time)}"
            other = "else retention removes it in its time; an undo leaves such segments"
        return Blocked(
            first.partition,
            first.offset_of_max_timestamp,
            time,
            int(self.shielded.sum()),
            int(self._sizes[self.shielded].sum()),
            f"{place}: {what}, keeps old segments behind it; if that is wrong, `seglake "
            f"delete-records {quote(self._root)} {first.topic} --partition {first.partition} "
            f"--before-offset {first.end_offset}` deletes its segment with all before it, "
            f"{'and ' if first.record_count else ''}{other}",
        )


def _surplus(sizes: Int64s, retention_bytes: int) -> int:
    """How many of the first segments may go so that `retention_bytes` remain; with -1 none may."""
    if retention_bytes < 0:
        return 0
    ends = np.cumsum(sizes)
    return int(np.searchsorted(ends, sizes.sum() - retention_bytes, "right"))


def _leading(old: npt.NDArray[np.bool_], gone: int) -> int:
    """How many segments go, once all that are old follow the first `gone`."""
    young = np.flatnonzero(~old[gone:])
    return gone + int(young[0]) if len(young) else len(old)


def _expires(settings: Topic) -> bool:
    """Whether segments go by their age."""
    return "delete" in settings.cleanup_policy and settings.retention_ms >= 0


def _dated(
    table: CatalogTable, base: Snapshot, topic: str, settings: Topic
) -> list[tuple[PartitionView, Int64s]]:
    """The log partitions, with the largest timestamp of each segment.

    Where no record has one it is when the segment was made, if that counts: an undo may leave such
    segments in every log partition, whose rows are looked for together.
    """
    dated = [(view, view.segments.max_timestamps.copy()) for view in base.partitions(topic)]
    places = [
        (view.partition, offset)
        for view, times in dated
        for offset in view.segments.base_offsets[times < 0].tolist()
    ]
    if places and _expires(settings):
        made = np.array([row.created_at_ms for row in table.segments_at(base, topic, places)])
        ends = np.cumsum([int((times < 0).sum()) for _, times in dated])
        for (_, times), some in zip(dated, np.split(made, ends[:-1]), strict=True):
            times[times < 0] = some
    return dated
