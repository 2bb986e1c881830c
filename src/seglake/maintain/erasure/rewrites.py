"""Find the segments, tags, rejects and samples with content to erase, and rewrite them."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from seglake.catalog.failed_run import FailedRun, all_failed_runs
from seglake.catalog.quarantine.files import (
    RejectsFile,
    is_merged,
    read_all_rejects,
    read_for_merge,
    write_merged,
    write_rejects,
)
from seglake.catalog.quarantine.open_rejects import (
    PendingRemovals,
    count_by_attempt,
    count_listed,
    is_listed,
    join_lists,
    list_rejects,
)
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.schema import SegmentRow, TagRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.tags import ErasedRecords
from seglake.catalog.version.snapshot import Snapshot
from seglake.clock import now_ms
from seglake.engine import Engine, SegmentTasks
from seglake.errors import CommitConflict, CorruptData, MissingObject, UsageError
from seglake.format.batch import CONTROL
from seglake.format.index import Subjects
from seglake.format.records import Int64s
from seglake.layout import parse_segment_key
from seglake.limits import INT64_MAX
from seglake.log.fetch import LogFetch
from seglake.log.rewrite.keep import ExcludeKeys, among
from seglake.log.rewrite.segments import AHEAD_BYTES, DECODE_BYTES
from seglake.log.segment import LogSegment
from seglake.maintain.commit import Rewrites, SegmentGroup, retry
from seglake.maintain.erasure.criteria import ErasureCriteria
from seglake.maintain.tagging import rewrite_tag
from seglake.store import Store
from seglake.terminal.wording import counted

Keys = frozenset[bytes]


class StoredLog(NamedTuple):
    """A log in a listing of storage, which a version may or may not name."""

    log_key: str
    log_bytes: int


class Hits(NamedTuple):
    """The records to erase in a log: their number, and the first and the last offset."""

    records: int = 0
    first_offset: int = -1
    last_offset: int = -1

    def add(self, offsets: Int64s) -> Hits:
        """Return these hits plus records at ascending `offsets`, all larger than `last_offset`."""
        if not len(offsets):
            return self
        first = self.first_offset if self.records else int(offsets[0])
        return Hits(self.records + len(offsets), first, int(offsets[-1]))


def count_hits(keys: Keys, store: Store, log: StoredLog) -> Hits:
    """Count the records of a log with one of the keys. Raises CorruptData and StoreError."""
    name = parse_segment_key(log.log_key)
    segment = LogSegment(
        name.topic, name.partition, log.log_key, "", name.base_offset, INT64_MAX, log.log_bytes, 0
    )
    hits = Hits()
    for chunk in LogFetch(store).chunks([segment.whole()], ahead_bytes=AHEAD_BYTES):
        table = chunk.table
        plain = table[(table["count"] > 0) & (table["attributes"] & CONTROL == 0)]
        for _, decoded in chunk.decode_in_parts(plain, DECODE_BYTES):
            hits = hits.add(decoded.offsets[among(decoded.records.keys, keys)])
    return hits


def may_have_hits(keys: Keys, store: Store, log: StoredLog) -> bool:
    """Return whether a log has records to erase, or is damaged. A deleted log has no records."""
    try:
        return count_hits(keys, store, log).records > 0
    except MissingObject:
        return False
    except CorruptData:
        return True


class LogErasure:
    """Erases keys from the segments of a topic, in any version of the catalog or of a tag.

    Each segment is read only once. A rewritten segment is used for every version that names the old
    segment. For `attempts`, see `Rewrites`.
    """

    def __init__(
        self, table: CatalogTable, topic: str, keys: Keys, attempt_id: str, tasks: SegmentTasks
    ) -> None:
        self._table, self._topic, self._keys, self._tasks = table, topic, keys, tasks
        self._hits: dict[str, Hits] = {}
        self._rewrites = Rewrites(attempt_id, tasks)
        self.attempts = self._rewrites.attempts

    def find(self, base: Snapshot) -> list[SegmentRow]:
        """Return the segments with records to erase, in log order. Raises CorruptData."""
        if not self._keys:
            return []
        segments, done = list[SegmentRow](), 0
        total = sum(view.log_bytes for view in base.partitions(self._topic))
        for rows in self._table.rows.segment_lists(base, [self._topic]):
            left = [row for row in rows if row.key("log") not in self._hits]
            logs = [StoredLog(row.key("log"), row.log_bytes) for row in left]
            hits = self._tasks.within(done, total).map(partial(count_hits, self._keys), logs)
            self._hits |= {log.log_key: each for log, each in zip(logs, hits, strict=True)}
            segments += [row for row in rows if self.hits(row).records]
            done += sum(row.log_bytes for row in rows)
        return sorted(segments, key=lambda row: (row.partition, row.base_offset))

    def hits(self, row: SegmentRow) -> Hits:
        """Return the hits in a segment that `find` has read."""
        return self._hits[row.key("log")]

    def count(self, rows: Collection[SegmentRow]) -> int:
        """Return the number of records to erase in segments that `find` has read."""
        return sum(self.hits(row).records for row in rows)

    def written(self, rows: Sequence[SegmentRow], subjects: Subjects) -> list[SegmentRow]:
        """Write each segment without the erased records. Return the new rows.

        The segments cover the same offsets, and get key indexes of `subjects`.
        """
        keep = ExcludeKeys(self._keys)
        return self._rewrites.rows([SegmentGroup((row,), keep) for row in rows], subjects)


# ---------------- tags
# A tag whose version has one of the keys gets a new row, which names a new object of the same
# version. The object names the rewritten segments and lists the erased offsets. The row is part of
# the erasure's commit, so records disappear from the newest version and from tags at the same time.


def require_own(snapshot: Snapshot, topic: str) -> None:
    """Raise UsageError if logs of the topic are outside the lake, because they cannot be erased."""
    views = snapshot.partitions(topic)
    count = sum(int(view.segments.details["external"].sum()) for view in views)
    if count:
        raise UsageError(
            f"{counted(count, 'segment')} of {topic} {'is' if count == 1 else 'are'} attached, "
            f"and Seglake never changes objects outside the lake. Import the topic under another "
            f"name, erase there, and delete the attached objects from their bucket"
        )


class TagErasure:
    """Erases keys from the tags of any version of the catalog.

    The row of a tag is searched and rewritten only once. If the commit is retried on a later
    version that still has the row, the result is used again.
    """

    def __init__(self, table: CatalogTable, topic: str, logs: LogErasure) -> None:
        self._table, self._topic, self._logs = table, topic, logs
        self._segments: dict[TagRow, list[SegmentRow]] = {}  # segments that lose records
        self._holders: list[TagRow] = []  # tags that lose records, in the last version
        self._written: dict[TagRow, TagRow] = {}

    def find(self, base: Snapshot) -> dict[str, int]:
        """Return the number of records that each tag loses, by the tag's name.

        `base` is the version of the catalog with the tags. Raises UsageError if a tag names logs
        outside the lake, VersionExpired if a tag is deleted in the meantime, CorruptData and
        StoreError.
        """
        tags = self._table.tags.in_snapshot(base)
        self._segments |= {tag: self._found(tag) for tag in tags if tag not in self._segments}
        self._holders = [tag for tag in tags if self._segments[tag]]
        return {tag.name: self._logs.count(self._segments[tag]) for tag in self._holders}

    def _found(self, tag: TagRow) -> list[SegmentRow]:
        version = self._table.tags.snapshot(tag, [self._topic])
        if version.find_topic(self._topic) is None:
            return []
        require_own(version, self._topic)
        return self._logs.find(version)

    def rows(self, subjects: Subjects) -> list[TagRow]:
        """Write new segments and objects for the tags of the last `find`. Return the new tag rows.

        The segments get key indexes of `subjects`. Raises CorruptData and StoreError.
        """
        for tag in self._holders:
            if tag not in self._written:
                segments = self._segments[tag]
                new = self._logs.written(segments, subjects)
                replaced = dict(zip(segments, new, strict=True))
                self._written[tag] = rewrite_tag(
                    self._table, tag, replaced, map(self._erased, segments)
                )
                self._logs.attempts.add(self._written[tag].attempt_id)
        return [self._written[tag] for tag in self._holders]

    def _erased(self, row: SegmentRow) -> ErasedRecords:
        hits = self._logs.hits(row)
        return ErasedRecords(
            now_ms(), row.topic, row.partition, hits.first_offset, hits.last_offset, hits.records
        )


# ---------------- rejects
# Rejected rows are removed from the quarantine and from the samples of failed runs.


class _FileRejects(NamedTuple):
    """The rejects to erase in a quarantine file, and the number of all its rejects by attempt."""

    go: PendingRemovals
    all: Mapping[str, int]


class RejectMatcher(NamedTuple):
    """Selects rejects that meet the criteria, or are in a list of an unfinished erasure."""

    criteria: ErasureCriteria
    earlier: PendingRemovals

    def __call__(self, key: str, rows: pa.Table) -> pa.BooleanArray:
        """Return, for each row, whether it is erased. `rows` are all rows of the file `key`."""
        return pc.or_(self.criteria.rejects(rows["raw"]), is_listed(key, rows, self.earlier))


class RejectErasure:
    """Erases rejects of a topic. Each quarantine file is read only once.

    `leaving` is the list of the rejects that the last `find` found.
    """

    def __init__(self, store: Store, topic: str, criteria: ErasureCriteria, engine: Engine) -> None:
        self._store, self._topic, self._engine = store, topic, engine
        self._table, self._goes = QuarantineTable(store), RejectMatcher(criteria, {})
        self._by_file: dict[str, _FileRejects] = {}
        self._counted = set[str]()  # the attempts that had rejects when `find` was called last
        self.leaving: PendingRemovals = {}

    def find(self, earlier: PendingRemovals) -> tuple[int, dict[str, int]]:
        """Return the number of rejects to erase, and how many remain for each attempt.

        Only attempts that lose a reject are included. Rejects that unfinished erasures have listed
        (`earlier`) are also erased.
        """
        if earlier != self._goes.earlier:
            self._goes, self._by_file = self._goes._replace(earlier=earlier), {}
        live, all_of = self._live().values(), Counter[str]()
        for file in live:
            all_of.update(file.all)
        self._counted, self.leaving = {*all_of}, join_lists(file.go for file in live)
        go = {attempt_id: count_listed(files) for attempt_id, files in sorted(self.leaving.items())}
        return sum(go.values()), {
            attempt: all_of[attempt] - number for attempt, number in go.items()
        }

    def files(self) -> list[str]:
        """Return the keys of the present quarantine files that have rejects to erase.

        Rejects of attempts that were added after `find` are kept, because no count includes them.
        """
        return [key for key, file in self._live().items() if not self._counted.isdisjoint(file.go)]

    def erase(self, attempt_id: str, dead: Collection[str] = ()) -> None:
        """Remove the rejects of the last `find`. Raises StoreError and CommitConflict.

        If a file that is not merged is rewritten, rejects of the attempts `dead` are also removed
        from it. These rejects never count, and a new object would make the attempts look alive.
        """

        def replace() -> None:
            base, keys = self._table.version(), self.files()
            if keys:
                counted = frozenset(self._counted)
                keep = _WriteRest(
                    self._store, self._topic, attempt_id, self._goes, counted, frozenset(dead)
                )
                parts = self._engine.map(keep, keys)
                self._table.replace_files(base, keys, [*chain.from_iterable(parts)], attempt_id)

        retry(replace, CommitConflict)

    def _live(self) -> dict[str, _FileRejects]:
        """Return the rejects in each file that the quarantine names now, by key."""
        keys = self._table.all_keys(self._topic)
        left = [key for key in keys if key not in self._by_file]
        results = self._engine.map(partial(_find_rejects, self._store, self._goes), left)
        self._by_file |= zip(left, results, strict=True)
        return {key: self._by_file[key] for key in keys}


def _find_rejects(store: Store, goes: RejectMatcher, key: str) -> _FileRejects:
    """Find the rejects to erase in the quarantine file with this key."""
    rows = read_all_rejects(store, key)
    return _FileRejects(list_rejects(key, rows, goes(key, rows)), count_by_attempt(rows))


class _WriteRest(NamedTuple):
    """The task that writes the kept rejects of a quarantine file to new files, from its key.

    A merged file becomes one merged file of the attempt `erasure`. Any other file becomes one file
    for each attempt in it.
    """

    store: Store
    topic: str
    erasure: str
    goes: RejectMatcher
    counted: Collection[str]
    dead: Collection[str]

    def __call__(self, key: str) -> list[RejectsFile]:
        store, topic, merged = self.store, self.topic, is_merged(key)
        rows = read_for_merge(store, key) if merged else read_all_rejects(store, key)
        is_counted = pc.is_in(rows["attempt_id"], pa.array(sorted(self.counted), pa.string()))
        stay = rows.filter(pc.invert(pc.and_(is_counted, self.goes(key, rows))))
        if merged:
            return [write_merged(store, topic, self.erasure, stay)] if len(stay) else []
        attempts: list[Any] = pc.unique(stay["attempt_id"]).to_pylist()
        return [
            write_rejects(
                store, topic, of_attempt, stay.filter(pc.equal(stay["attempt_id"], of_attempt))
            )
            for of_attempt in attempts
            if of_attempt not in self.dead
        ]


def samples_to_erase(
    store: Store, topic: str, criteria: ErasureCriteria
) -> Iterator[tuple[FailedRun, int]]:
    """Yield (failed attempt without the sample rows to erase, number of rows to erase).

    The rows that meet `criteria` are erased. Attempts without such a row are skipped. Raises
    CorruptData and StoreError.
    """
    for failed in all_failed_runs(store, topic):
        stored = [row["raw"] for row in failed.rejects]  # text, or an object with base64
        raw = pa.array(
            [r.encode() if isinstance(r, str) else base64.b64decode(r["base64"]) for r in stored],
            pa.binary(),
        )
        go: list[Any] = criteria.rejects(raw).to_pylist()
        if any(go):
            stay = [row for row, goes in zip(failed.rejects, go, strict=True) if not goes]
            yield failed.model_copy(update={"rejects": stay}), sum(go)
