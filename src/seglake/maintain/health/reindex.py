"""Check a segment's files, and rebuild its index files by its own policy or by another one.

A log is read once, a few MiB at a time, and never copied. Only one table row for each batch is kept
in memory. New index files must not outlive an erasure of their log:

    1. A re-index reads a log, and hashes a key for its key index.
    2. An erasure rewrites the log without the key, and deletes the old files.
    3. The re-index writes its key index, which still has the hash of the erased key.

So index files are rebuilt in this order:

    1. Announce an attempt, so that an erasure waits for it, and read the version again.
    2. Write the new files of the segments that are still live, under the attempt's id. A repair
       also writes new files of segments that only a tag names.
    3. Commit the next rows of the segments that are still live, which name the new files. A repair
       also commits a new object for each tag that names one of the segments.

Readers of older versions still use the old index files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import crc32c
import numpy as np

from seglake.catalog.schema import SegmentRow, TagRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.transaction import announce
from seglake.catalog.version.snapshot import Snapshot
from seglake.engine import Progress, SegmentTasks
from seglake.errors import CorruptData, MissingObject, StoreError
from seglake.format.batch import TABLE, BatchTable
from seglake.format.codecs.payload import Payload
from seglake.format.decode import decode, with_extremes
from seglake.format.index import IndexPolicy, Subjects
from seglake.format.records import end_to_end, join_tables
from seglake.format.segment import rebuild
from seglake.layout import WHOLE_LAKE, Suffix
from seglake.log.fetch import LogFetch
from seglake.log.files import LogCheck, check_crc, check_size, put_indexes
from seglake.log.key_indexes import KeyIndexBuilder
from seglake.log.links import LakeLogs
from seglake.log.segment import LogSegment
from seglake.maintain.commit import MaintenanceReport, TopicReport, are_live, commit_change
from seglake.maintain.tagging import rewrite_tag
from seglake.store import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class HealthFinding(MaintenanceReport):
    """A problem in a file or in the catalog. `position` is the damaged byte of `file`, or 0.

    `kind` is "missing" (the object does not exist), "unreadable" (storage failed), "damaged" (the
    bytes are wrong), or "catalog" (rows contradict each other). `partition` and `base_offset` are
    -1 if the problem is not in a segment.
    """

    topic: str
    partition: int
    base_offset: int
    file: str
    position: int
    problem: str
    kind: Literal["missing", "unreadable", "damaged", "catalog"] = "damaged"


def segment_finding(
    row: SegmentRow, suffix: Suffix, error: CorruptData | StoreError
) -> HealthFinding:
    """Return the finding for an error about one of a segment's files."""
    finding = partial(HealthFinding, row.topic, row.partition, row.base_offset)
    if isinstance(error, CorruptData):
        file, what = error.file or row.key(suffix), error.what
        if row.external is not None and file == row.key("log") and row.external not in what:
            what = f"{what}; stored outside the lake: {row.external}"
        return finding(file, error.position, what)
    kind: Any = "missing" if isinstance(error, MissingObject) else "unreadable"
    return finding(row.key(suffix), 0, str(error), kind)


def catalog_finding(topic: str, file: str, problem: str | Exception) -> HealthFinding:
    """Return a finding about a catalog file. Its kind is "unreadable" if storage failed."""
    failed = isinstance(problem, StoreError) and not isinstance(problem, MissingObject)
    what = problem.what if isinstance(problem, CorruptData) else str(problem)
    return HealthFinding(topic, -1, -1, file, 0, what, "unreadable" if failed else "catalog")


# ---------------- segment files

READ_BYTES = 8 * 2**20
DECODE_BYTES = 16 * 2**20  # of decompressed records at once
_LOG_COLUMNS = (  # columns that are computed from the log
    "end_offset", "record_count", "min_timestamp", "max_timestamp", "offset_of_max_timestamp",
    "max_lateness_ms",
)  # fmt: skip


def check_segment(store: Store, row: SegmentRow, *, deep: bool) -> list[HealthFinding]:
    """Return the findings about a segment's files.

    Unless `deep`, the log is only decoded if the size or the checksum of a file is wrong. Then the
    finding names the damaged byte.
    """
    if not deep and not any(file_finding(store, row, suffix) for suffix in row.suffixes):
        return []
    files: dict[str, bytes] = {}
    findings: list[HealthFinding | None] = []
    try:
        files = rebuild_index_files(store, row, row.index_policy)
    except (CorruptData, StoreError) as error:
        findings.append(segment_finding(row, "log", error))
    findings += [file_finding(store, row, suffix, files.get(suffix)) for suffix in row.suffixes[1:]]
    return [finding for finding in findings if finding is not None]


def file_finding(
    store: Store, row: SegmentRow, suffix: Suffix, expected: bytes | None = None
) -> HealthFinding | None:
    """Check the size and checksum of a file. Return a finding, or None if the file is intact.

    If `expected` is passed, the file must have these bytes.
    """
    files = LakeLogs(store)
    try:
        size = files.size(row.key(suffix))
        if expected is not None:
            _check_bytes(row, suffix, memoryview(files.read_all(row.key(suffix))), expected)
        check_size(row, suffix, size)
        check_crc(row, suffix, _checksum(files, row.key(suffix), size))
    except (CorruptData, StoreError) as error:
        return segment_finding(row, suffix, error)
    return None


def _checksum(store: LakeLogs, key: str, size: int) -> int:
    crc = 0
    for start in range(0, size, READ_BYTES):
        crc = crc32c.crc32c(store.read(key, start, min(start + READ_BYTES, size)), crc)
    return crc


def _check_bytes(row: SegmentRow, suffix: Suffix, data: memoryview, expected: bytes) -> None:
    """Raise CorruptData at the first byte that differs from the expected file."""
    if data == expected:
        return
    both = min(len(data), len(expected))
    differ = np.frombuffer(data, np.uint8, both) != np.frombuffer(expected, np.uint8, both)
    position = int(np.argmax(differ)) if differ.any() else both
    what = f"differs from a rebuilt file: {len(data)} bytes instead of {len(expected)}"
    if differ.any():
        what = f"differs from a rebuilt file: byte {data[position]} instead of {expected[position]}"
    raise CorruptData(what, file=row.key(suffix), position=position)


def rebuild_index_files(store: Store, row: SegmentRow, policy: IndexPolicy) -> dict[str, bytes]:
    """Build the index files of a log by `policy`. Return them by suffix.

    Raises CorruptData, with file and position, if the log is damaged or does not match `row`, and
    StoreError.
    """
    keys = KeyIndexBuilder(row.base_offset, policy)
    sealed = rebuild(row.base_offset, _checked_batches(store, row, keys), policy)
    for name in _LOG_COLUMNS:
        value, expected = getattr(sealed, name), getattr(row, name)
        if value != expected:
            what = f"{name} is {value}, but the catalog has {expected}"
            raise CorruptData(what, file=row.key("log"))
    return sealed.files | keys.finish(row.log_bytes)


def _checked_batches(store: Store, row: SegmentRow, keys: KeyIndexBuilder) -> BatchTable:
    """Check every record of a log, add its batches to `keys`, and return its batch table.

    Raises what `rebuild_index_files` raises.
    """
    check_size(row, "log", LakeLogs(store).size(row.key("log")))
    log = LogSegment.from_row(row)
    tables, check = [np.empty(0, TABLE)], LogCheck(row)
    for chunk in LogFetch(store).chunks([log.whole()]):
        whole = int(chunk.table["size"].sum(dtype=np.int64))
        check.add(memoryview(chunk.data)[:whole], chunk.table)
        tables += chunk.in_parts(chunk.table, DECODE_BYTES, partial(_complete, keys))
    check.check()
    return end_to_end(join_tables(tables))


def _complete(keys: KeyIndexBuilder, table: BatchTable, payload: Payload) -> BatchTable:
    """Check every record of the batches, and return their table without `UNKNOWN`."""
    complete = with_extremes(table, decode(table, payload))
    keys.add_payload(table, payload)
    return complete


# ---------------- reindex


@dataclass(repr=False)
class ReindexResult(TopicReport):
    """The result of a re-index. `version` is the version of its commit, or -1 without a commit.

    `segments` is the number of indexed segments. `skipped` is the number of segments that other
    commits changed in the meantime. `damaged` has the files that are damaged, missing or
    unreadable. Their segments were not indexed.
    """

    SAMPLED: ClassVar[tuple[str, ...]] = ("damaged",)
    segments: int = 0
    skipped: int = 0
    index_bytes_before: int = 0
    index_bytes: int = 0
    damaged: list[HealthFinding] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """Return 0 if every segment could be indexed, else 1."""
        return 1 if self.damaged else 0


def reindex(
    root: str,
    topic: str,
    policy: IndexPolicy | None = None,
    *,
    spark: SparkSession | None = None,
    partitions: Collection[int] | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> ReindexResult:
    """Rebuild the index files of a topic, or of some of its partitions, in one commit.

    The topic's `index.*` settings decide the subjects of the key indexes. A segment is skipped if
    another commit changes it in the meantime. Skipped segments are counted.

    Args:
        root: The folder or URI of the lake.
        topic: The topic.
        policy: The policy of the new index files. By default, each segment keeps its own policy,
            and its new files equal the old files byte for byte, except for the key index.
        spark: Runs the work on its executors. Without it, threads run the work.
        partitions: The partitions to index, by default all.
        storage_options: Options of the store.
        progress: Called with the bytes of log that are done, and the total.

    Raises:
        UnknownTopic: The topic, or one of the partitions, does not exist.
        CorruptData: A log is damaged. Nothing was committed.
        CommitConflict: Concurrent commits won all retries.
        StoreError: Storage failed.

    Example:
        >>> seglake.reindex("lake", "web").segments
        4
    """
    table = CatalogTable.open(open_store(root, storage_options))
    snapshot = table.snapshot()
    chosen = {snapshot.partition(topic, number).partition for number in partitions or ()}
    rows = [
        row
        for row in table.rows.segments(snapshot, snapshot.topic(topic).topic)
        if partitions is None or row.partition in chosen
    ]
    tasks = SegmentTasks.from_session(table.store, spark, progress)
    report = ReindexResult(topic)
    subjects = snapshot.topic(topic).index_subjects
    reindex_rows(table, report, rows, policy, tasks, subjects=subjects)
    for finding in report.damaged[:1]:
        if finding.kind != "damaged":
            raise StoreError(finding.problem)
        raise CorruptData(finding.problem, file=finding.file, position=finding.position)
    return report


def reindex_rows(
    table: CatalogTable,
    report: ReindexResult,
    rows: Sequence[SegmentRow],
    policy: IndexPolicy | None,
    tasks: SegmentTasks,
    *,
    subjects: Subjects | None = None,
    repairs: bool = False,
    dry_run: bool = False,
) -> None:
    """Rebuild the index files of the segments `rows`, commit them, and fill in the report.

    The segments get key indexes of `subjects`. If it is None, each segment keeps its own subjects.
    If a log is damaged, nothing is committed. With `repairs`, the other segments are committed, and
    so is a new object for each tag that names one of them. Segments that other commits changed in
    the meantime are skipped. The report's version remains -1 if there is nothing to commit.
    """
    work = partial(write_indexes, policy=policy, subjects=subjects, attempt_id=report.attempt_id)
    written, attempts, asked = dict[TagRow, TagRow](), set[str](), len(rows)

    def named(base: Snapshot) -> tuple[list[SegmentRow], dict[TagRow, list[SegmentRow]]]:
        """Return the `rows` that a version names, and those that each of its tags names."""
        live = [row for row in rows if are_live(base, [row])]
        return live, _named_by_tags(table, base, rows) if repairs else {}

    with announce(table, report.attempt_id, report.topic, attempts):
        live, tags = named(table.snapshot())
        rows = list(dict.fromkeys(chain(live, *tags.values())))
        results = tasks.map(work, rows)
        report.damaged = [result for result in results if isinstance(result, HealthFinding)]
        if report.damaged and not repairs:
            return
        renewed = {
            row: result
            for row, result in zip(rows, results, strict=True)
            if isinstance(result, SegmentRow)
        }
        rows = list(renewed)

        def plan(base: Snapshot) -> Change | None:
            live, tags = named(base)
            done = {*live, *chain(*tags.values())}
            report.segments, report.skipped = len(done), len(renewed) - len(done)
            report.index_bytes_before = sum(row.index_files_bytes for row in done)
            report.index_bytes = sum(renewed[old].index_files_bytes for old in done)
            for tag in tags.keys() - written.keys():
                mine = {old: renewed[old] for old in tags[tag]}
                written[tag] = rewrite_tag(table, tag, mine)
                attempts.add(written[tag].attempt_id)
            change = Change(
                rows=[*(renewed[old] for old in live), report.row("reindex")],
                replaced=[(old.partition, old.base_offset) for old in live],
                other_attempts=attempts,
                unchanged_topics=[WHOLE_LAKE] if tags else [],
                tags=[written[tag] for tag in tags],
            )
            return change if done else None

        commit_change(table, report, plan, dry_run=dry_run)
    report.skipped += asked - len(results)


def _named_by_tags(
    table: CatalogTable, base: Snapshot, rows: Collection[SegmentRow]
) -> dict[TagRow, list[SegmentRow]]:
    """Return the segments among `rows`, of one topic, that each tag names. Omit other tags."""
    wanted, named = {*rows}, dict[TagRow, list[SegmentRow]]()
    topics = list({row.topic for row in rows})
    for tag in table.tags.in_snapshot(base) if rows else ():
        lists = table.rows.segment_lists(table.tags.snapshot(tag, topics), topics)
        if mine := [row for row in chain.from_iterable(lists) if row in wanted]:
            named[tag] = mine
    return named


def write_indexes(
    store: Store,
    row: SegmentRow,
    *,
    policy: IndexPolicy | None,
    subjects: Subjects | None,
    attempt_id: str,
) -> SegmentRow | HealthFinding:
    """Write new index files of a segment under an attempt. Return its new row, or a finding."""
    own = row.index_policy
    policy = replace(policy or own, subjects=own.subjects if subjects is None else subjects)
    try:
        files = rebuild_index_files(store, row, policy)
    except (CorruptData, StoreError) as error:
        return segment_finding(row, "log", error)
    renewed = replace(row, index_attempt_id=attempt_id, index_interval=policy.interval)
    return replace(renewed, **put_indexes(store, renewed.id, files))
