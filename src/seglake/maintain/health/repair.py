"""Rebuild lost or damaged index files, and a lost catalog.

Index files are built from the log, and the catalog is built from the manifests of committed
attempts. Damaged index files are kept if older versions name them, and the old catalog is moved to
a backup. Index files that only a tag names are overwritten with the bytes that the tag's checksums
require. If these bytes can no longer be built, the tag gets a new object.
"""

import contextlib
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, compress
from typing import NamedTuple

import crc32c
import numpy as np

from seglake import layout
from seglake.catalog.attempts import (
    Manifest,
    attempts_without_marker,
    begin_rebuild,
    end_rebuild,
    mark_committed,
    replaced_version,
)
from seglake.catalog.published import highest_shown
from seglake.catalog.retention import committed_attempts
from seglake.catalog.schema import Row, SegmentRow, TableRow, TagRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.tags import live_tags
from seglake.catalog.topic_change import Change, check_change
from seglake.catalog.transaction import announce
from seglake.catalog.version.snapshot import EMPTY, Snapshot
from seglake.catalog.version.snapshot_files import damaged_files
from seglake.clock import now
from seglake.engine import Progress, SegmentTasks
from seglake.errors import (
    CorruptData,
    MissingObject,
    SeglakeError,
    StoreError,
    UsageError,
    VersionExpired,
)
from seglake.format.records import Int64s
from seglake.layout import KEY_INDEX, SUFFIXES, Suffix, new_attempt
from seglake.log.files import check_crc, check_size, index_files
from seglake.maintain.commit import (
    MaintenanceReport,
    Status,
    TopicReport,
    commit_change,
    open_catalog,
)
from seglake.maintain.health.reindex import (
    HealthFinding,
    ReindexResult,
    file_finding,
    rebuild_index_files,
    reindex_rows,
    segment_finding,
    write_indexes,
)
from seglake.maintain.health.verify import History, only_tagged
from seglake.maintain.tagging import rewrite_tag
from seglake.store import Store, open_store

_TRIES = 3  # of creating the catalog
_UNTOLD = 100  # upper bound of the commits after the last manifest, such as merges and fences


@dataclass(repr=False)
class RebuildResult(MaintenanceReport):
    """The result of a rebuild of the catalog.

    `untrusted` attempts were left out, because they have a manifest but no success marker, and the
    readable part of the old catalog does not have them. `topics` has the number of segments of each
    topic, and `missing` has the keys of index files to rebuild. The status is "already done" if the
    catalog can be read and was not changed.
    """

    dry_run: bool
    status: Status = "committed"
    backup: str = ""
    version: int = -1
    attempts: list[str] = field(default_factory=list)
    untrusted: list[str] = field(default_factory=list)
    topics: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


@dataclass(repr=False)
class RepairResult(ReindexResult):
    """The result of a repair of a topic's index files, or of its dry run.

    `files` are the keys of the missing or damaged index files. `damaged` are the files that cannot
    be read or rebuilt. Their segments were not changed.
    """

    SAMPLED = ("damaged", "files")
    dry_run: bool = False
    files: list[str] = field(default_factory=list)


class _Damage(NamedTuple):
    """The segments with index files to rebuild, and all findings."""

    segments: list[SegmentRow]
    findings: list[HealthFinding]

    @property
    def unreadable(self) -> list[HealthFinding]:
        """Return the findings about segments that are not repaired."""
        bad = {(row.partition, row.base_offset) for row in self.segments}
        return [
            finding
            for finding in self.findings
            if (finding.partition, finding.base_offset) not in bad
        ]


def repair_indexes(
    root: str,
    *,
    topics: Collection[str] | None = None,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> list[RepairResult]:
    """Rebuild missing or damaged index files.

    Files that only a tag names are written again under the same keys, or the tag gets a new object
    that names new files. A segment with a damaged or unreadable log is reported and not changed. So
    is a segment whose index files storage fails to read, because their bytes may be right.

    Args:
        root: The folder or URI of the lake.
        topics: The topics, by default all.
        dry_run: Build the files, but do not write them.
        storage_options: Options of the store.
        progress: Called with the bytes of log that are done, and the total.

    Returns:
        One report for each topic with findings.

    Raises:
        UnknownTopic: There is no such topic.
        CommitConflict: Concurrent commits won all retries.
        StoreError: Storage failed.

    Example:
        >>> seglake.repair_indexes("lake")
        []
    """
    with open_catalog(root, storage_options, dry_run=dry_run) as table:
        tasks = SegmentTasks.from_session(table.store, None, progress)
        snapshot, reports = table.snapshot(), list[RepairResult]()
        names = [snapshot.topic(name).topic for name in topics or ()]
        for topic in names or [row.topic for row in snapshot.topics()]:
            report = RepairResult(topic, dry_run=dry_run)
            live = _damage(table.segments(snapshot, topic), tasks)
            if some := live.segments:
                reindex_rows(table, report, some, None, tasks, leave_damaged=True, dry_run=dry_run)
            # Tags still name the damaged files of the segments that were just repaired.
            newest = table.snapshot() if some else snapshot
            tagged = _damage(_tagged(table, newest, topic), tasks)
            if tagged.segments:
                _restore(table, report, tagged.segments, tasks)
            report.damaged += live.unreadable + tagged.unreadable
            findings = live.findings + tagged.findings
            files = (finding.file for finding in findings if finding.kind != "unreadable")
            report.files = [*dict.fromkeys(files)]
            if findings:
                reports.append(report)
        # An earlier repair may have died before it wrote its marker.
        if not dry_run:
            table.mark_committed(table.newest_files())
    return reports


def _damage(rows: list[SegmentRow], tasks: SegmentTasks) -> _Damage:
    """Check the index files of the segments `rows`, and return the damage."""
    findings = tasks.map(_index_findings, rows)
    bad = [any(finding.kind != "unreadable" for finding in some) for some in findings]
    return _Damage(list(compress(rows, bad)), list(chain.from_iterable(findings)))


def _tagged(table: CatalogTable, snapshot: Snapshot, topic: str) -> list[SegmentRow]:
    """Return the segments of a topic that a tag names and `snapshot` does not name."""
    return [*chain.from_iterable(chain.from_iterable(only_tagged(table, snapshot, [topic])))]


def _restore(
    table: CatalogTable, report: RepairResult, rows: list[SegmentRow], tasks: SegmentTasks
) -> None:
    """Rebuild the index files that only tags name.

    1. The repair announces itself. A key index contains hashes of keys, so an erasure waits for it.
    2. Files are written under the same keys if their bytes have the checksums that the tags name.
       An erasure that abandoned this attempt may have deleted a file before it was written. Such a
       file is deleted again.
    3. Other files belong to this attempt, and the tags that name the segments get new objects, like
       in an erasure.
    """
    store, attempt_id = table.store, new_attempt()
    with announce(table, attempt_id, report.topic):
        named = set(_tagged(table, table.snapshot(), report.topic))
        live = [row for row in rows if row in named]
        results = tasks.map(partial(_restore_files, attempt_id=attempt_id), live)
        named = set(_tagged(table, table.snapshot(), report.topic))
        gone = [row for row in live if row not in named]
        store.delete([row.key(suffix) for row in gone for suffix in row.suffixes[1:]])
        pairs = zip(live, results, strict=True)
        renewed = {row: new for row, new in pairs if isinstance(new, SegmentRow)}
        if renewed and not report.dry_run:
            _commit_tags(table, renewed, attempt_id)
    damaged = [result for result in results if isinstance(result, HealthFinding)]
    report.damaged += damaged
    report.segments += len(live) - len(damaged) - len(gone)
    report.skipped += len(rows) - len(live) + len(gone)


def _restore_files(
    store: Store, row: SegmentRow, attempt_id: str
) -> HealthFinding | SegmentRow | None:
    """Write a segment's index files again, under the same keys if they match `row`.

    Return a finding if the log is damaged, a new row if the files belong to the attempt, else None.
    """
    try:
        files = index_files(rebuild_index_files(store, row, row.index_policy))
    except (CorruptData, StoreError) as error:
        return segment_finding(row, "log", error)
    try:
        for suffix, data in files.items():
            check_size(row, suffix, len(data))
            check_crc(row, suffix, crc32c.crc32c(data))
    except CorruptData:
        return write_indexes(store, row, policy=None, subjects=None, attempt_id=attempt_id)
    for suffix, data in files.items():
        store.put(row.key(suffix), data)
    return None


def _commit_tags(
    table: CatalogTable, renewed: Mapping[SegmentRow, SegmentRow], attempt_id: str
) -> None:
    """Write a new object with the new rows for each tag that names a segment, in one commit.

    Raises CommitConflict after many lost races, CorruptData, StoreError.
    """
    report, written = TopicReport(layout.WHOLE_LAKE), dict[TagRow, TagRow]()
    topic = next(iter(renewed)).topic

    def plan(base: Snapshot) -> Change | None:
        rows = list[TagRow]()
        for tag in live_tags(table.store, base.files):
            version = table.snapshot_of_tag(tag, [topic])
            lists = table.segment_lists(version, [topic] if version.find_topic(topic) else [])
            mine = {row: renewed[row] for row in chain(*lists) if row in renewed}
            if mine:
                written[tag] = written.get(tag) or rewrite_tag(table, tag, mine)
                rows.append(written[tag])
        attempts = {attempt_id, *(row.attempt_id for row in rows)}
        return Change([*rows, report.row("repair")], files_of=attempts) if rows else None

    commit_change(table, report, plan, dry_run=False)


def _index_findings(store: Store, row: SegmentRow) -> list[HealthFinding]:
    return [finding for s in row.suffixes[1:] if (finding := file_finding(store, row, s))]


def rebuild_catalog(
    root: str,
    *,
    trust: Collection[str] = (),
    force: bool = False,
    dry_run: bool,
    storage_options: Mapping[str, str] | None = None,
) -> RebuildResult:
    """Rebuild the catalog from the manifests of committed attempts.

    The old catalog is copied to `catalog/log.backup-<time>` before it is deleted. The new version
    is higher than all versions in manifests, in files of the catalog and in published tables, so no
    version number is used twice. Included attempts without a success marker get a marker.

    Processes must not write to the lake during the rebuild. Until it ends, the lake cannot be
    opened. A rebuild that was killed must be started again.

    Args:
        root: The folder or URI of the lake.
        trust: Attempts without a success marker that are known to be committed, because they were
            killed between their commit and the marker. Attempts that are in the readable part of
            the old catalog are included without being named.
        force: Rebuild the catalog even if all of it can be read.
        dry_run: Write nothing, and only report what a rebuild would do.
        storage_options: Options of the store.

    Returns:
        The result. The status is "already done" if the catalog can be read.

    Raises:
        UsageError: The catalog has another format, can be read and has no such attempt, or an
            attempt in `trust` has no manifest.
        CorruptData: A manifest cannot be read, a log is missing, or the manifests leave a hole in a
            log partition. Nothing was changed. The message names the attempts to check.
        StoreError: Storage failed.

    Example:
        >>> seglake.rebuild_catalog("lake", dry_run=True).status
        'already done'
    """
    store = open_store(root, storage_options)
    report = RebuildResult(dry_run, "dry run" if dry_run else "committed")
    if _is_readable(store) and not force:
        if lacking := set(trust) - committed_attempts(store):
            raise UsageError(
                f"the catalog can be read, so it was not rebuilt, and it has no attempt "
                f"{', '.join(sorted(lacking))}. To rebuild it with these attempts, add --force"
            )
        report.status = "already done"
        return report
    with _naming_untrusted(report):
        history = History.from_store(store, trust, report.untrusted)
        report.attempts = sorted(history.manifests)
        topics = history.topics()
        _check(store, topics, report)
    report.topics = {
        topic: sum(isinstance(row, SegmentRow) for row in rows)
        for topic, rows in topics.items()
        if topic != layout.WHOLE_LAKE
    }
    if not dry_run:
        for attempt_id in sorted(attempts_without_marker(store).keys() & set(report.attempts)):
            # The old catalog, which is deleted next, may be the only proof of their commits.
            mark_committed(store, attempt_id)
        lake = history.lake()
        if not lake:
            with contextlib.suppress(SeglakeError):  # the old catalog may be unreadable
                lake = CatalogTable(store).lake
        tables = [row for row in chain(*topics.values()) if isinstance(row, TableRow)]
        last_version = max(
            _last_version(store, history.manifests.values()), highest_shown(store, lake, tables)
        )
        begin_rebuild(store, last_version)
        report.backup = _move_aside(store)
        report.version = _recreate(store, topics, last_version + 1, lake)
        end_rebuild(store, report.version)
    return report


def _is_readable(store: Store) -> bool:
    """Return whether the complete catalog can be read. Raises UsageError for another format."""
    try:
        table = CatalogTable.open(store)
        table.check_history()
        table.snapshot()
        return not any(damaged_files(store, table.newest_files()))
    except (CorruptData, StoreError, VersionExpired):
        return False


@contextlib.contextmanager
def _naming_untrusted(report: RebuildResult) -> Iterator[None]:
    """Name the untrusted attempts in errors of the block, because one of them may be the cause."""
    try:
        yield
    except (CorruptData, MissingObject) as error:
        what, file = getattr(error, "what", str(error)), getattr(error, "file", layout.ATTEMPTS)
        hint = f"not trusted: {', '.join(report.untrusted) or 'none'}"
        raise CorruptData(f"{what}; {hint}", file=file) from error


def _check(store: Store, topics: Mapping[str, list[Row]], report: RebuildResult) -> None:
    """Raise CorruptData if the rows of `topics` are inconsistent or a log is missing.

    The keys of missing index files are added to the report.
    """
    segments = [row for row in chain(*topics.values()) if isinstance(row, SegmentRow)]
    listed = (hash(_object(item.key, item.size)) for item in store.list(layout.TOPICS))
    there = np.unique(np.fromiter(listed, np.int64))
    for row in _without(segments, "log", there)[:1]:
        raise CorruptData(f"the log of {row.log_bytes} bytes is missing", file=row.key("log"))
    for suffix in (*SUFFIXES[1:], KEY_INDEX):
        having = [row for row in segments if suffix in row.suffixes]
        report.missing += [row.key(suffix) for row in _without(having, suffix, there)]
    for topic, rows in topics.items():
        try:
            check_change(Change(rows), topic, EMPTY)
        except CorruptData as error:
            raise CorruptData(error.what, file=layout.ATTEMPTS) from error


def _without(segments: list[SegmentRow], suffix: Suffix, there: Int64s) -> list[SegmentRow]:
    """Return the segments for which there is no file with the size that their row states.

    `there` has hashes of (key, size) of the existing objects. A link may have any size.
    """
    size = operator.attrgetter(f"{suffix}_bytes")
    hashes = np.fromiter((hash(_object(row.key(suffix), size(row))) for row in segments), np.int64)
    return list(compress(segments, ~np.isin(hashes, there)))


def _object(key: str, size: int) -> tuple[str, int]:
    return (key, -1) if key.endswith(f".{layout.LINK}") else (key, size)


def _move_aside(store: Store) -> str:
    """Copy the remaining files of the catalog, and delete them. Return the copy's folder, or ""."""
    old = [item.key for item in store.list(layout.LOG_TABLE)]
    backup = f"{layout.LOG_TABLE}.backup-{now():%Y%m%dT%H%M%S.%fZ}"
    for key in old:
        store.put(backup + key.removeprefix(layout.LOG_TABLE), store.read_all(key))
    store.delete(old)
    return backup if old else ""


def _recreate(store: Store, topics: Mapping[str, list[Row]], first_version: int, lake: str) -> int:
    """Create the catalog from the rows of each topic, and return its version.

    A write to the old catalog that reaches storage late, such as the hint for a checkpoint, makes
    the new catalog unreadable. Then the new catalog is deleted and created again.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            return CatalogTable.create_from_rows(store, topics, first_version, lake)
        except StoreError:
            if not tries_left:
                raise
            store.delete([item.key for item in store.list(layout.LOG_TABLE)])
    raise AssertionError


def _last_version(store: Store, manifests: Iterable[Manifest]) -> int:
    """Return the highest version that the lost catalog may have had, or -1 if none is known.

    The version that a killed rebuild recorded also counts, because its files may have lower numbers
    than the lost catalog.
    """
    highest = max(CatalogTable.highest_version(store), replaced_version(store))
    if highest >= 0:
        return highest
    by_manifests = max((manifest.version for manifest in manifests), default=-1)
    return by_manifests + _UNTOLD * (by_manifests >= 0)
