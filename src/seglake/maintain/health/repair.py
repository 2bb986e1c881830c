"""Rebuild lost or damaged index files, and a lost catalog.

Index files are built from the log (see `reindex`), and the catalog is built from the manifests of
committed attempts. Damaged index files are kept if older versions name them, and the old catalog is
moved to a backup.
"""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, compress

import numpy as np

from seglake import layout
from seglake.catalog.attempts import (
    Manifest,
    attempts_without_marker,
    begin_rebuild,
    end_rebuild,
    last_known_version,
    mark_committed,
)
from seglake.catalog.published import highest_shown
from seglake.catalog.retention import committed_attempts
from seglake.catalog.schema import Row, SegmentRow, TableRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change, check_change
from seglake.catalog.version.snapshot import EMPTY
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
from seglake.layout import ALL_SUFFIXES, Suffix
from seglake.maintain.commit import MaintenanceReport, Status, open_catalog
from seglake.maintain.health.reindex import HealthFinding, ReindexResult, file_finding, reindex_rows
from seglake.maintain.health.verify import History, only_tagged
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


def repair_indexes(
    root: str,
    *,
    topics: Collection[str] | None = None,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> list[RepairResult]:
    """Rebuild missing or damaged index files.

    Each tag that names such a file gets a new object, which names the new file. A segment with a
    damaged or unreadable log is reported and not changed. So is a segment whose index files storage
    fails to read, because their bytes may be right.

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
            tagged = chain.from_iterable(only_tagged(table, snapshot, [topic]))
            rows = [*table.rows.segments(snapshot, topic), *chain.from_iterable(tagged)]
            found = tasks.map(_index_findings, rows)
            is_bad = [any(each.kind != "unreadable" for each in some) for some in found]
            if bad := [*compress(rows, is_bad)]:
                reindex_rows(table, report, bad, None, tasks, repairs=True, dry_run=dry_run)
            for findings, is_repaired in zip(found, is_bad, strict=True):
                report.damaged += [] if is_repaired else findings
            findings = list(chain.from_iterable(found))
            report.files = [each.file for each in findings if each.kind != "unreadable"]
            if findings:
                reports.append(report)
        # An earlier repair may have died before it wrote its marker.
        if not dry_run:
            table.commits.write_missing_markers(table.newest_files())
    return reports


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

    A version number must not be used twice:

        1. A rebuild deletes the old catalog, whose last version was 90, and is killed.
        2. Another rebuild finds only manifests, the last of version 80, and creates version 81.
        3. A reader that has version 85 open continues with version 86 of the new catalog.

    So a rebuild works in this order:

        1. Find the manifests that count (`History`), and check that their rows fit together and
           their logs exist. Otherwise, change nothing.
        2. Write the missing success markers of these attempts. The old catalog, which is deleted
           later, may be the only proof of their commits.
        3. Record that a rebuild has begun, and the highest version of the old catalog, of manifests
           and of published tables. From now on, the lake cannot be opened.
        4. Copy the old catalog to `catalog/log.backup-<time>`, and delete it.
        5. Create the new catalog with a version above the recorded one.
        6. Record that the rebuild has ended.

    Processes must not write to the lake during the rebuild. A rebuild that was killed must be
    started again.

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
        table.log.check_all()
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
    for suffix in ALL_SUFFIXES[1:]:
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
    objects = (_object(row.key(suffix), row.size(suffix)) for row in segments)
    hashes = np.fromiter(map(hash, objects), np.int64)
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
    """Return the highest version that the lost catalog may have had, or -1 if none is known."""
    highest = last_known_version(store)
    if highest >= 0:
        return highest
    by_manifests = max((manifest.version for manifest in manifests), default=-1)
    return by_manifests + _UNTOLD * (by_manifests >= 0)
