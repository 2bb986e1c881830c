"""Which neighbouring segments become one, and when that is worth copying them.

Two questions. *What may be one segment*: neighbours of one timestamp type and codec, as long as the
limits of the topic hold, by which ingest rolls segments too. *What is due*: as in a log-structured
merge tree, segments wait until the new one is GROWTH times as large as the largest of them. So a
record is copied once each time that its segment grows by this factor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from seglake.catalog.schema import SegmentRow
from seglake.format.index import TIME_ENTRY, IndexPolicy
from seglake.format.segment import SegmentLimits
from seglake.limits import INT32_MAX

GROWTH = 8  # the new segment has so many times the bytes of the largest old one
LAST_GROWTH = 2  # the same where no further neighbour will ever join


class SegmentGroup(NamedTuple):
    """Consecutive segments of a log partition that are to become one."""

    rows: tuple[SegmentRow, ...]

    @property
    def log_bytes(self) -> int:
        """Bytes of their logs."""
        return sum(row.log_bytes for row in self.rows)


class Rules(NamedTuple):
    """What one segment may be: the limits of the topic, and the policy of its index."""

    limits: SegmentLimits
    policy: IndexPolicy


def due(
    rows: Iterable[SegmentRow], rules: Rules, *, everything: bool = False
) -> list[SegmentGroup]:
    """The groups to merge now, of segments in the order of the log; none has a single segment.

    With `everything` whatever may be one segment is due.
    """
    groups: list[SegmentGroup] = []
    for group, growth in _joinable(rows, rules):
        groups += _worthwhile(group, 1 if everything else growth)
    return groups


def _worthwhile(rows: Sequence[SegmentRow], growth: int) -> Iterator[SegmentGroup]:
    """One group of all rows, if it grows enough; else those on both sides of the largest row."""
    if len(rows) < 2:
        return
    sizes = [row.log_bytes for row in rows]
    largest = max(sizes)
    if sum(sizes) >= growth * largest:
        yield SegmentGroup(tuple(rows))
        return
    middle = sizes.index(largest)
    yield from _worthwhile(rows[:middle], growth)
    yield from _worthwhile(rows[middle + 1 :], growth)


def _joinable(
    rows: Iterable[SegmentRow], rules: Rules
) -> Iterator[tuple[Sequence[SegmentRow], int]]:
    """The longest groups that may be one segment, from the first on, and the growth that they need.

    The last group may grow further, as the log does.
    """
    open_group: _Growing | None = None
    for row in rows:
        if open_group is None or not open_group.take(row):
            if open_group is not None:
                yield open_group.rows, LAST_GROWTH
            open_group = _Growing(row, rules)
    if open_group is not None:
        yield open_group.rows, GROWTH


class _Growing:
    """Segments from `first` on that may be one segment."""

    def __init__(self, first: SegmentRow, rules: Rules) -> None:
        self._rules, self.rows = rules, [first]
        self._bytes, self._entries = first.log_bytes, _entries(first, rules.policy)
        self._first_max = first.max_timestamp

    def take(self, row: SegmentRow) -> bool:
        """Add the next segment, unless a rule forbids it."""
        entries = self._entries + _entries(row, self._rules.policy)
        if not (self._follows(row) and self._fits(row, entries)):
            return False
        self.rows.append(row)
        self._bytes, self._entries = self._bytes + row.log_bytes, entries
        if self._first_max < 0:
            self._first_max = row.max_timestamp
        return True

    def _follows(self, row: SegmentRow) -> bool:
        last = self.rows[-1]
        alike = (last.partition, last.timestamp_type, last.codec, last.end_offset)
        return alike == (row.partition, row.timestamp_type, row.codec, row.base_offset)

    def _fits(self, row: SegmentRow, entries: int) -> bool:
        limits = self._rules.limits
        waited = row.max_timestamp - self._first_max if self._first_max >= 0 else 0
        return (
            self._bytes + row.log_bytes <= limits.segment_bytes
            and waited <= limits.segment_ms
            and entries * TIME_ENTRY.itemsize <= limits.index_bytes
            and row.end_offset - 1 - self.rows[0].base_offset <= INT32_MAX
        )


def _entries(row: SegmentRow, policy: IndexPolicy) -> int:
    """An upper bound of the segment's index entries by a policy, as a part of a larger segment."""
    bounds = {
        "bytes": row.log_bytes // max(1, policy.interval),
        "records": row.record_count // max(1, policy.interval),
        "ms": (row.max_timestamp - row.min_timestamp) // max(1, policy.interval),
    }
    return min(row.record_count, bounds[policy.by] if policy.interval else row.record_count) + 1
