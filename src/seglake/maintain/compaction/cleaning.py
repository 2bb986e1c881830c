"""The second pass: segments without the records that go.

Segments are grouped as Kafka's cleaner groups them; a group becomes one segment. A group that loses
nothing stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from seglake.catalog.schema import SegmentRow
from seglake.engine import Amounts
from seglake.format.batch import BatchTable
from seglake.format.decode import Decoded
from seglake.format.filter import NO_HORIZON
from seglake.format.index import Subjects
from seglake.format.records import Int64s
from seglake.limits import INT32_MAX
from seglake.log.rewrite.keep import GOES, STAYS, UNDECIDED, Fates, Flags, Keep, OnlyOffsets
from seglake.log.rewrite.segments import RewriteTarget, rewrite
from seglake.log.tasks import WAVE
from seglake.maintain.compaction.policy import Policy
from seglake.maintain.compaction.survivors import SURVIVORS, TOMBSTONES, bitmap
from seglake.store import Store
from seglake.write.spool.spool import of_kinds, unpacked_rows


def groups_of(rows: Sequence[SegmentRow], policy: Policy) -> Iterator[range]:
    """The numbers of the segments of each group (`Cleaner.groupSegmentsBySize`).

    A group's logs have at most `segment.bytes` together, each kind of its indexes at most
    `segment.index.bytes`, and it covers at most 2^31 offsets; or it is one segment.
    """
    first, sizes = 0, np.zeros(3, np.int64)
    limits = np.array([policy.segment_bytes, policy.index_bytes, policy.index_bytes])
    for number, row in enumerate(rows):
        own = np.array([row.log_bytes, row.index_bytes, row.timeindex_bytes])
        fits = bool((sizes + own <= limits).all())
        fits &= row.end_offset - 1 - rows[first].base_offset <= INT32_MAX
        if number > first and not fits:
            yield range(first, number)
            first, sizes = number, np.zeros(3, np.int64)
        sizes += own
    if rows:
        yield range(first, len(rows))


class CleanGroup(NamedTuple):
    """Segments that become one; `first` is the number of the first one in the round.

    `packed` are the rows of the blobs of their survivors.
    """

    first: int
    rows: Sequence[SegmentRow]
    packed: bytes

    @property
    def log_bytes(self) -> int:
        """Bytes of log of the segments."""
        return sum(row.log_bytes for row in self.rows)


def edges_of(rows: Sequence[SegmentRow]) -> Int64s:
    """The base offsets of consecutive segments, and the end of the last one."""
    return np.array([*(row.base_offset for row in rows), rows[-1].end_offset], np.int64)


class CleanGroups(NamedTuple):
    """The task: groups → their segments. Fresh tombstones get the delete horizon `horizon_ms`."""

    store: Store
    attempt_id: str
    horizon_ms: int
    subjects: Subjects  # of key indexes

    def __call__(self, groups: Iterable[CleanGroup]) -> list[SegmentRow]:
        """Write the segments; returns their rows."""
        return [self._cleaned(group) for group in groups]

    def amounts(self, items: Sequence[Sequence[CleanGroup]]) -> Amounts:
        """The bytes of log that each item's groups have now."""
        return Amounts(WAVE, [sum(group.log_bytes for group in groups) for groups in items])

    def _cleaned(self, group: CleanGroup) -> SegmentRow:
        newest, fresh = (self._offsets(group, kind) for kind in (SURVIVORS, TOMBSTONES))
        keep = Latest(newest, fresh, self.horizon_ms)
        target = RewriteTarget(self.attempt_id, subjects=self.subjects)
        return rewrite(self.store, group.rows, keep, target)

    def _offsets(self, group: CleanGroup, kind: int) -> OnlyOffsets:
        edges, blobs = edges_of(group.rows), of_kinds(unpacked_rows([group.packed]), kind)
        bits = bitmap(self.store, blobs, group.first, edges)
        return OnlyOffsets(edges[:1], np.zeros(1, np.int64), np.array([len(bits)]), bits)


@dataclass(frozen=True)
class Latest(Keep):
    """The offsets `newest` stay; a batch with one of `fresh` gets a delete horizon.

    `fresh` are the tombstones among `newest` whose batch has none yet (`MemoryRecords.filterTo`).
    """

    newest: OnlyOffsets
    fresh: OnlyOffsets
    horizon_ms: int

    def fates(self, table: BatchTable) -> Fates:
        """As `Keep.fates`."""
        fates = self.newest.fates(table)
        fates[(fates == STAYS) & self._has_fresh(table)] = UNDECIDED
        return fates

    def records(self, table: BatchTable, decoded: Decoded) -> Flags:
        """As `Keep.records`."""
        return self.newest.records(table, decoded)

    def horizons(self, table: BatchTable, decoded: Decoded, stays: Flags) -> Int64s:
        """As `Keep.horizons`."""
        del decoded, stays
        return np.where(self._has_fresh(table), self.horizon_ms, NO_HORIZON).astype(np.int64)

    def _has_fresh(self, table: BatchTable) -> Flags:
        flags: Flags = self.fresh.fates(table) != GOES
        return flags
