"""Logs that hold one of some keys: found, and written again without the records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import NamedTuple

from seglake.catalog.schema import SegmentRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import CorruptData, MissingObject
from seglake.format.batch import CONTROL
from seglake.format.index import Subjects
from seglake.format.records import Int64s
from seglake.layout import new_attempt, parse_segment_key
from seglake.limits import INT64_MAX
from seglake.log.fetch import LogFetch
from seglake.log.piece import Piece
from seglake.log.rewrite.keep import WithoutKeys, among
from seglake.log.rewrite.segments import AHEAD_BYTES, DECODE_BYTES, RewriteTarget, rewrite
from seglake.log.segment import LogSegment
from seglake.log.tasks import SegmentTasks
from seglake.store import Store

Keys = frozenset[bytes]


class StoredLog(NamedTuple):
    """A log as storage lists it, whether a version names it or not."""

    log_key: str
    log_bytes: int


class Hits(NamedTuple):
    """How many records of a log have one of the keys; the first and the last of their offsets."""

    records: int = 0
    first_offset: int = -1
    last_offset: int = -1

    def then(self, offsets: Int64s) -> Hits:
        """With the records at these offsets, which ascend and come later."""
        if not len(offsets):
            return self
        first = self.first_offset if self.records else int(offsets[0])
        return Hits(self.records + len(offsets), first, int(offsets[-1]))


def hits_in(keys: Keys, store: Store, log: StoredLog) -> Hits:
    """The records of a log with one of the keys. Raises CorruptData and StoreError."""
    name = parse_segment_key(log.log_key)
    segment = LogSegment(
        name.topic, name.partition, log.log_key, "", name.base_offset, INT64_MAX, log.log_bytes, 0
    )
    hits = Hits()
    for chunk in LogFetch(store).chunks([Piece.of(segment, segment.log)], ahead_bytes=AHEAD_BYTES):
        table = chunk.table
        plain = table[(table["count"] > 0) & (table["attributes"] & CONTROL == 0)]
        for _, decoded in chunk.decode_in_parts(plain, DECODE_BYTES):
            hits = hits.then(decoded.offsets[among(decoded.records.keys, keys)])
    return hits


def may_hold(keys: Keys, store: Store, log: StoredLog) -> bool:
    """Whether a log that no version needs has one of the keys, or is too damaged to tell."""
    try:
        return hits_in(keys, store, log).records > 0
    except MissingObject:
        return False
    except CorruptData:
        return True


class LogErasure:
    """The live segments of a topic with some keys, in any version that a commit continues.

    A segment is read once. What was written for a version serves another one, also that of a tag,
    if the segments are the same. `attempts` are those, besides the first, under which segments were
    written: segments of two versions may begin at the same offset.
    """

    def __init__(
        self, table: CatalogTable, topic: str, keys: Keys, attempt_id: str, tasks: SegmentTasks
    ) -> None:
        self._table, self._topic, self._keys, self._tasks = table, topic, keys, tasks
        self._hits: dict[str, Hits] = {}
        self._written: dict[str, SegmentRow] = {}  # by the key of the old log
        self._next_attempt = attempt_id
        self.attempts: set[str] = set()

    def find(self, base: Snapshot) -> list[SegmentRow]:
        """The segments with one of the keys, in the order of the log. Raises CorruptData."""
        if not self._keys:
            return []
        segments, done, total = list[SegmentRow](), 0, self._total_bytes(base)
        for rows in self._table.segment_lists(base, [self._topic]):
            left = [row for row in rows if row.key("log") not in self._hits]
            logs = [StoredLog(row.key("log"), row.log_bytes) for row in left]
            hits = self._tasks.within(done, total).map(partial(hits_in, self._keys), logs)
            self._hits |= {log.log_key: each for log, each in zip(logs, hits, strict=True)}
            segments += [row for row in rows if self.hits(row).records]
            done += sum(row.log_bytes for row in rows)
        return sorted(segments, key=lambda row: (row.partition, row.base_offset))

    def _total_bytes(self, base: Snapshot) -> int:
        logs = (view.segments.details["sizes"][:, 0] for view in base.partitions(self._topic))
        return sum(int(sizes.sum()) for sizes in logs)

    def hits(self, row: SegmentRow) -> Hits:
        """The records that go of a segment that `find` has read."""
        return self._hits[row.key("log")]

    def count(self, rows: Collection[SegmentRow]) -> int:
        """How many records of segments that were found go."""
        return sum(self.hits(row).records for row in rows)

    def written(self, rows: Sequence[SegmentRow], subjects: Subjects) -> list[SegmentRow]:
        """Each segment without these records, under the same offsets.

        It gets a key index of `subjects`.
        """
        left = [row for row in rows if row.key("log") not in self._written]
        if left:
            attempt_id, self._next_attempt = self._next_attempt, new_attempt()
            if self._written:  # the first files are those of the attempt itself
                self.attempts.add(attempt_id)
            target = RewriteTarget(attempt_id, subjects=subjects)
            new = self._tasks.map(partial(_without, self._keys, target), left)
            self._written |= zip((row.key("log") for row in left), new, strict=True)
        return [self._written[row.key("log")] for row in rows]


def _without(keys: Keys, target: RewriteTarget, store: Store, row: SegmentRow) -> SegmentRow:
    return rewrite(store, [row], WithoutKeys(keys), target)
