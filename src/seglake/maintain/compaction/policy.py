"""What is to be cleaned, and when: the rules of Kafka's `LogCleanerManager`.

A log partition has a clean part, which an earlier round went through, and a dirty part behind it.
It is due when the dirty part is large enough, or too old. A broker never cleans the segment that it
appends to; here no segment grows any more, so the whole log can be cleaned, except for what
`min.compaction.lag.ms` holds back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, NamedTuple

from seglake.catalog.schema import SegmentRow, TopicRow
from seglake.errors import UsageError
from seglake.format.index import Subjects, subjects_of
from seglake.limits import INT64_MAX


class Policy(NamedTuple):
    """A topic's settings of compaction; names without a value have Kafka's default."""

    delete_retention_ms: int = 24 * 3_600_000
    min_lag_ms: int = 0
    max_lag_ms: int = INT64_MAX
    min_dirty_ratio: float = 0.5
    segment_bytes: int = 2**30
    index_bytes: int = 10 * 2**20
    subjects: Subjects = ()  # of key indexes

    @staticmethod
    def of(topic: TopicRow, root: str) -> Policy:
        """The policy of a topic of the lake at `root`.

        Raises UsageError if its `cleanup.policy` lacks `compact`.
        """
        settings: Mapping[str, Any] = json.loads(topic.settings)
        policy = str(settings.get("cleanup.policy", "delete"))
        if "compact" not in (word.strip() for word in policy.split(",")):
            raise UsageError(
                f"topic {topic.topic!r} has cleanup.policy = {policy!r}, which does not compact: "
                f"`seglake alter {quote(root)} {topic.topic} cleanup.policy=compact` changes that"
            )
        values = {field: settings.get(name) for field, name in _NAMES.items()}
        said = {field: value for field, value in values.items() if value is not None}
        return Policy(**said, subjects=subjects_of(settings))


_NAMES = {
    "delete_retention_ms": "delete.retention.ms",
    "min_lag_ms": "min.compaction.lag.ms",
    "max_lag_ms": "max.compaction.lag.ms",
    "min_dirty_ratio": "min.cleanable.dirty.ratio",
    "segment_bytes": "segment.bytes",
    "index_bytes": "segment.index.bytes",
}


class DirtyBounds(NamedTuple):
    """What the catalog says of a log partition: its offsets, and where its dirty part began."""

    partition: int
    log_start_offset: int
    end_offset: int
    cleaned_end: int


@dataclass(frozen=True)
class LogToClean:
    """A log partition before a round; Kafka's class of this name.

    `rows` are its segments that can be cleaned: all up to `first_uncleanable_offset`. `clean_bytes`
    and `dirty_bytes` are the sizes of their logs. A segment that is dirty in part counts as dirty.
    """

    partition: int
    log_start_offset: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    rows: tuple[SegmentRow, ...]
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """The dirty share of what can be cleaned; 0 of an empty log."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, policy: Policy) -> bool:
        """Whether a round is due (`LogCleanerManager.grabFilthiestCompactedLog`)."""
        late = self.overdue and self.dirty_bytes > 0
        return late or self.dirty_ratio > policy.min_dirty_ratio


def log_to_clean(
    bounds: DirtyBounds, rows: Sequence[SegmentRow], policy: Policy, now_ms: int
) -> LogToClean:
    """What a round at `now_ms` would clean; `rows` are the segments in the order of the log.

    As `LogCleanerManager.cleanableOffsets` and `maxCompactionDelay`, but a segment's age is that of
    its oldest record, not of its first batch: so no record waits longer than the lag.
    """
    first_dirty = max(bounds.cleaned_end, bounds.log_start_offset)
    dirty = [row for row in rows if row.end_offset > first_dirty]
    waiting = [row.base_offset for row in dirty if _is_too_young(row, policy, now_ms)]
    end = min(waiting, default=bounds.end_offset)
    cleanable = tuple(row for row in rows if row.end_offset <= end)
    dirty_bytes = sum(row.log_bytes for row in cleanable if row.end_offset > first_dirty)
    oldest = min((row.min_timestamp for row in dirty if row.min_timestamp > 0), default=INT64_MAX)
    return LogToClean(
        bounds.partition,
        bounds.log_start_offset,
        first_dirty,
        max(first_dirty, end),
        cleanable,
        sum(row.log_bytes for row in cleanable) - dirty_bytes,
        dirty_bytes,
        overdue=oldest < now_ms - max(policy.max_lag_ms, 0),
    )


def _is_too_young(row: SegmentRow, policy: Policy, now_ms: int) -> bool:
    """Whether a segment is too young; without timestamps its age is that of its file."""
    newest = row.max_timestamp if row.max_timestamp >= 0 else row.created_at_ms
    return policy.min_lag_ms > 0 and newest > now_ms - policy.min_lag_ms
