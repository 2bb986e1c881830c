"""Merge small neighbouring segments into segments of up to `segment.bytes`.

A merge must not restore records that were removed after it read them:

    1. A merge copies segment S.
    2. An erasure commits S without some of its records.
    3. The merge commits its copy of S. The erased records are back.

So a merge works in this order:

    1. Plan the groups of neighbours to join, by the newest version.
    2. Announce an attempt, and read the version again. An erasure may have removed records before
       the announcement, and a later erasure waits for the attempt. Skip groups that have changed.
    3. Write each group as one segment. Report a group with a damaged file, and skip it.
    4. Commit the groups whose segments are all still live. Skip the others.

Offsets do not change, and record batches are copied byte for byte. With `rebatch`, small batches
are also joined. Index files are built again by the topic's policy. Older versions use the old files
until they expire.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from seglake.catalog.schema import SegmentRow, rows_of
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.transaction import announce
from seglake.catalog.version.snapshot import PartitionView, Snapshot
from seglake.config import Topic
from seglake.engine import Progress, SegmentTasks
from seglake.errors import CorruptData, MissingObject
from seglake.format.batch import OVERHEAD
from seglake.format.index import TIME_ENTRY, IndexPolicy
from seglake.format.segment import SegmentLimits
from seglake.limits import INT32_MAX
from seglake.log.rewrite.segments import RewriteTarget
from seglake.log.writer import limits_of, policy_of
from seglake.maintain.commit import (
    MaintenanceReport,
    SegmentGroup,
    TopicReport,
    are_live,
    commit_change,
    open_catalog,
    rewrite_group,
)
from seglake.maintain.health.reindex import HealthFinding, segment_finding
from seglake.store import Store
from seglake.write.driver.topics import topic_from_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class MergedGroup(MaintenanceReport):
    """Segments of a log partition that become one segment, from `base_offset` to `end_offset`.

    `end_offset` is exclusive. `log_bytes` is the total size of the logs of these segments.
    """

    partition: int
    base_offset: int
    end_offset: int
    segments: int
    log_bytes: int


@dataclass(repr=False)
class MergeResult(TopicReport):
    """The result of a merge. `version` is the version of its commit, or -1 without a commit.

    `segments` old segments with `log_bytes` of logs became `new_segments` with `new_log_bytes`.
    `skipped` groups were not merged, because other commits changed them in the meantime. `plan` has
    the groups that were due. `apart` counts pairs of neighbours that are not joined, by the setting
    that forbids it. The key "gain" counts pairs that are not yet worth copying.
    """

    SAMPLED = ("damaged", "plan")
    dry_run: bool = False
    segments: int = 0
    new_segments: int = 0
    log_bytes: int = 0
    new_log_bytes: int = 0
    skipped: int = 0
    damaged: list[HealthFinding] = field(default_factory=list)
    plan: list[MergedGroup] = field(default_factory=list)
    apart: dict[str, int] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """Return 0 if every group could be merged, else 1."""
        return 1 if self.damaged else 0


def merge(
    root: str,
    topic: str,
    *,
    partitions: Collection[int] | None = None,
    everything: bool = False,
    rebatch: bool = False,
    dry_run: bool = False,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> MergeResult:
    """Merge small neighbouring segments of a topic, or of some of its partitions, in one commit.

    A group is skipped if another commit changes one of its segments. Skipped groups are counted.
    A group with a damaged file is reported.

    Args:
        root: The folder or URI of the lake.
        topic: The topic.
        partitions: The partitions to merge, by default all.
        everything: Merge all neighbours that can be one segment, not only the groups that are due.
        rebatch: Also join record batches up to `batch.size`.
        dry_run: Write nothing to the lake.
        spark: Runs the work on its executors. Without it, threads run the work.
        storage_options: Options of the store.
        progress: Called with the bytes of log that are done, and the total.

    Raises:
        UnknownTopic: The topic, or one of the partitions, does not exist.
        CommitConflict: Concurrent commits won all retries.
        StoreError: Storage failed.

    Example:
        >>> merged = seglake.merge("lake", "web", everything=True)
        >>> len(seglake.open("lake").topic("web").segments())
        2
    """
    with open_catalog(root, storage_options, dry_run=dry_run) as table:
        return merge_in(
            table,
            topic,
            SegmentTasks.from_session(table.store, spark, progress),
            partitions=partitions,
            everything=everything,
            rebatch=rebatch,
            dry_run=dry_run,
        )


def merge_in(
    table: CatalogTable,
    topic: str,
    tasks: SegmentTasks,
    *,
    partitions: Collection[int] | None = None,
    everything: bool = False,
    rebatch: bool = False,
    dry_run: bool,
) -> MergeResult:
    """Merge like `merge`, in an open catalog. In a dry run, the catalog must use a `DryStore`."""
    report, snapshot = MergeResult(topic, dry_run=dry_run), table.snapshot()
    settings = topic_from_row(snapshot.topic(topic))
    views = {view.partition: view for view in snapshot.partitions(topic)}
    if partitions is not None:
        views = {number: snapshot.partition(topic, number) for number in partitions}
    rows = table.rows.all(snapshot, "segment", topic)
    groups, apart = plan_merges(rows, views, settings, everything=everything)
    report.apart = dict(apart)
    for group in groups:
        first, end = group.rows[0], group.rows[-1].end_offset
        report.plan.append(
            MergedGroup(first.partition, first.base_offset, end, len(group.rows), group.log_bytes)
        )
    if not groups:
        # Write the marker of an earlier merge that died before it wrote its marker.
        _commit(table, {}, report)
        return report
    size = settings.batch_size if rebatch else None
    target = RewriteTarget(report.attempt_id, policy_of(settings), size)
    with announce(table, report.attempt_id, report.topic):
        # Read the version again, because an erasure may have removed records before the
        # announcement.
        newest = table.refresh(snapshot)
        current = [group for group in groups if are_live(newest, group.rows)]
        results = tasks.map(partial(_merge_group, target=target), current)
        report.damaged = [result for result in results if isinstance(result, HealthFinding)]
        merged = {
            group: result
            for group, result in zip(current, results, strict=True)
            if isinstance(result, SegmentRow)
        }
        _commit(table, merged, report)
    return report


def plan_merges(
    rows: pa.Table, views: Mapping[int, PartitionView], settings: Topic, *, everything: bool = False
) -> MergePlan:
    """Return the groups to merge among the segment rows of a topic, in the partitions `views`.

    Segments below the log start and logs outside the lake are not merged, and their neighbours are
    not joined across them. Segments that compaction has cleaned are not joined with other segments,
    because the new segment would count as dirty.
    """
    limits = limits_of(settings)

    def part(row: SegmentRow) -> tuple[int, bool]:
        return row.partition, row.end_offset > views[row.partition].cleaned_end

    fits = pc.field("log_bytes") <= limits.segment_bytes - OVERHEAD
    small = rows.filter(fits & pc.field("external").is_null()).sort_by(
        [("partition", "ascending"), ("base_offset", "ascending")]
    )
    live = (
        row
        for row in rows_of(SegmentRow, settings.name, small)
        if row.partition in views and row.end_offset > views[row.partition].log_start_offset
    )
    policy, plan = policy_of(settings), MergePlan([], Counter())
    for _, some in groupby(live, key=part):
        found = groups_to_merge(some, limits, policy, everything=everything)
        plan.groups.extend(found.groups)
        plan.apart.update(found.apart)
    return plan


def _merge_group(
    store: Store, group: SegmentGroup, *, target: RewriteTarget
) -> SegmentRow | HealthFinding:
    """Write a group as one segment. Return its row, or a finding for a damaged or missing file."""
    try:
        return rewrite_group(store, group, target=target)
    except (CorruptData, MissingObject) as error:
        return segment_finding(group.rows[0], "log", error)


def _commit(
    table: CatalogTable, merged: Mapping[SegmentGroup, SegmentRow], report: MergeResult
) -> None:
    """Replace each group whose segments are still live by its new segment, in one commit."""

    def plan(base: Snapshot) -> Change | None:
        done = [group for group in merged if are_live(base, group.rows)]
        rows = [merged[group] for group in done]
        report.segments, report.new_segments = sum(len(group.rows) for group in done), len(rows)
        report.log_bytes = sum(group.log_bytes for group in done)
        report.new_log_bytes = sum(row.log_bytes for row in rows)
        report.skipped = len(report.plan) - len(report.damaged) - len(done)
        replaced = [(row.partition, row.base_offset) for group in done for row in group.rows]
        return Change([*rows, report.row("merge")], replaced) if done else None

    commit_change(table, report, plan, dry_run=report.dry_run)


# ---------------- merge groups
# Two rules decide which neighbouring segments can be one, and when it is worth copying them:
#
#   1. Neighbours may be one segment if they have the same timestamp type and codec, and the new
#      segment is within the limits by which an ingest rolls segments.
#   2. A group is due when the new segment has at least GROWTH times the bytes of the largest old
#      one, as in a log-structured merge tree. So a record is copied only once each time its segment
#      grows by this factor.

GROWTH = 8
LAST_GROWTH = 2  # for groups that no further neighbour can join


class MergePlan(NamedTuple):
    """The groups to merge now, each with at least two segments.

    `apart` counts the pairs of neighbours that are not joined, see `MergeResult`.
    """

    groups: list[SegmentGroup]
    apart: Counter[str]


def groups_to_merge(
    rows: Iterable[SegmentRow],
    limits: SegmentLimits,
    policy: IndexPolicy,
    *,
    everything: bool = False,
) -> MergePlan:
    """Return the groups to merge now, by the topic's limits and index policy.

    `rows` must be in the order of the log. With `everything`, all groups that can be one segment
    are returned. Otherwise, a group must have `LAST_GROWTH` times the bytes of its largest segment.
    The last group must have `GROWTH` times these bytes, because new segments may still join it.
    """
    plan, group = MergePlan([], Counter()), None
    for row in rows:
        if group is not None and not (limit := group.limit(row)):
            group.take(row)
            continue
        if group is not None:
            if group.is_next(row):
                plan.apart[limit] += 1
            _add_due(plan, group.rows, 1 if everything else LAST_GROWTH)
        group = _Growing(row, limits, policy)
    if group is not None:
        _add_due(plan, group.rows, 1 if everything else GROWTH)
    return plan


def _add_due(plan: MergePlan, rows: Sequence[SegmentRow], growth: int) -> None:
    """Add `rows` to the plan as a group if they have `growth` times the bytes of the largest row.

    Otherwise, divide them at the largest row, and decide about both parts.
    """
    if len(rows) < 2:
        return
    sizes = [row.log_bytes for row in rows]
    largest = max(sizes)
    if sum(sizes) >= growth * largest:
        plan.groups.append(SegmentGroup(tuple(rows)))
        return
    middle = sizes.index(largest)
    plan.apart["gain"] += (middle > 0) + (middle + 1 < len(rows))
    _add_due(plan, rows[:middle], growth)
    _add_due(plan, rows[middle + 1 :], growth)


class _Growing:
    """A growing list of consecutive segments that can be one segment."""

    def __init__(self, first: SegmentRow, limits: SegmentLimits, policy: IndexPolicy) -> None:
        self._limits, self._policy, self.rows = limits, policy, [first]
        self._bytes, self._entries = first.log_bytes, _entries(first, policy)
        self._first_max = first.max_timestamp

    def take(self, row: SegmentRow) -> None:
        """Add the next segment to the list."""
        self.rows.append(row)
        self._bytes += row.log_bytes
        self._entries += _entries(row, self._policy)
        if self._first_max < 0:
            self._first_max = row.max_timestamp

    def is_next(self, row: SegmentRow) -> bool:
        """Return whether the row follows the last segment without another segment in between."""
        last = self.rows[-1]
        return (last.partition, last.end_offset) == (row.partition, row.base_offset)

    def limit(self, row: SegmentRow) -> str:
        """Return the name of the first limit that forbids adding `row`, or "" if none does."""
        last, limits = self.rows[-1], self._limits
        entries = self._entries + _entries(row, self._policy)
        waited = row.max_timestamp - self._first_max if self._first_max >= 0 else 0
        checks = {
            "offsets": self.is_next(row)
            and row.end_offset - 1 - self.rows[0].base_offset <= INT32_MAX,
            "message.timestamp.type": row.timestamp_type == last.timestamp_type,
            "compression.type": row.codec == last.codec,
            "segment.bytes": self._bytes + row.log_bytes <= limits.segment_bytes,
            "segment.index.bytes": entries * TIME_ENTRY.itemsize <= limits.index_bytes,
            "segment.ms": waited <= limits.segment_ms,
        }
        return next((name for name, passes in checks.items() if not passes), "")


def _entries(row: SegmentRow, policy: IndexPolicy) -> int:
    """Return an upper bound of the index entries that a segment adds to a merged segment."""
    return min(row.record_count, row.log_bytes // max(1, policy.interval)) + 1
