"""Lost or damaged index files and a lost catalog, rebuilt.

Index files follow from the log. The catalog follows from the manifests of the attempts that are
marked as committed, or that the readable part of the old catalog has; nothing is guessed. Nothing
is overwritten: damaged index files stay where older versions name them, the old catalog is moved
aside.
"""

import contextlib
import operator
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, compress
from typing import NamedTuple

import numpy as np

from seglake import layout
from seglake.catalog.manifest import Manifest, mark_committed, read_manifest, unmarked
from seglake.catalog.retention import committed_attempts
from seglake.catalog.rows import Row, SegmentId, SegmentRow, SourceRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change, checked_change
from seglake.catalog.version.snapshot import EMPTY
from seglake.catalog.version.snapshot_files import damaged_files
from seglake.errors import CorruptData, StoreError, UsageError, VersionExpired
from seglake.format.records import Int64s
from seglake.layout import SUFFIXES, Suffix
from seglake.maintain.health.findings import Finding
from seglake.maintain.health.reindex import Reindexed, reindex_rows
from seglake.maintain.health.segment_files import file_finding
from seglake.maintain.report import Report
from seglake.maintain.segment_tasks import Progress, SegmentTasks, logged
from seglake.store import Store, open_store

_UNTOLD = 100  # commits without a manifest after the last one with: file merges, fences
_VERSION = re.compile(rf"{layout.LOG_TABLE}[^/]*/_delta_log/(\d{{20}})\..+")


@dataclass(repr=False)
class Rebuilt(Report):
    """The result of a rebuild of the catalog.

    `untrusted` attempts have a manifest and no mark of success, and what can be read of the old
    catalog does not have them: they were left out. `topics` has the number of segments of each
    topic, `missing` the keys of index files to rebuild.
    """

    dry_run: bool
    backup: str = ""
    version: int = -1
    attempts: list[str] = field(default_factory=list)
    untrusted: list[str] = field(default_factory=list)
    topics: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


@dataclass
class DamagedIndexes(Report):
    """What `repair_indexes` would do for a topic: rebuild the index files of some segments.

    `files` are missing or damaged; `unreadable` ones would be left as they are.
    """

    topic: str
    dry_run: bool = True
    segments: int = 0
    files: list[str] = field(default_factory=list)
    unreadable: list[Finding] = field(default_factory=list)


class _Damage(NamedTuple):
    """The segments of a topic with index files to rebuild, and everything that was found."""

    topic: str
    segments: list[SegmentRow]
    findings: list[Finding]

    @property
    def unreadable(self) -> list[Finding]:
        """The findings about segments that are left as they are."""
        bad = {(row.partition, row.base_offset) for row in self.segments}
        return [each for each in self.findings if (each.partition, each.base_offset) not in bad]


def damaged_indexes(
    root: str,
    *,
    topics: Collection[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = logged,
) -> list[DamagedIndexes]:
    """What `repair_indexes` would do, for each topic with damage. Nothing is written.

    Raises UnknownTopic and StoreError.
    """
    table = CatalogTable.open(open_store(root, storage_options))
    return [
        DamagedIndexes(
            damage.topic,
            segments=len(damage.segments),
            files=[each.file for each in damage.findings if each.kind != "unreadable"],
            unreadable=damage.unreadable,
        )
        for damage in _damage(table, topics, SegmentTasks(table.store, None, progress))
    ]


def repair_indexes(
    root: str,
    *,
    topics: Collection[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = logged,
) -> list[Reindexed]:
    """Rebuild the index files that are missing or damaged; returns a report for each topic.

    A segment whose log is damaged or unreadable too is reported and left as it is. So is one whose
    index files storage refuses to read, which says nothing about their bytes. Raises UnknownTopic,
    StoreError and CommitConflict.
    """
    table = CatalogTable.open(open_store(root, storage_options))
    tasks = SegmentTasks(table.store, None, progress)
    reports = []
    for damage in _damage(table, topics, tasks):
        some = damage.segments
        report = reindex_rows(table, damage.topic, some, None, tasks, leave_damaged=True)
        report.damaged += damage.unreadable
        reports.append(report)
    return reports


def _damage(
    table: CatalogTable, topics: Collection[str] | None, tasks: SegmentTasks
) -> Iterator[_Damage]:
    """What is wrong with the index files of each topic with damage."""
    snapshot = table.snapshot()
    names = [snapshot.topic(name).topic for name in topics or ()]
    for topic in names or [row.topic for row in snapshot.topics()]:
        rows = table.segments(snapshot, topic)
        found = tasks.map(_index_findings, rows)
        bad = [any(finding.kind != "unreadable" for finding in each) for each in found]
        if any(found):
            yield _Damage(topic, list(compress(rows, bad)), list(chain.from_iterable(found)))


def _index_findings(store: Store, row: SegmentRow) -> list[Finding]:
    return [finding for s in SUFFIXES[1:] if (finding := file_finding(store, row, s))]


def rebuild_catalog(
    root: str,
    *,
    trust: Collection[str] = (),
    force: bool = False,
    dry_run: bool = True,
    storage_options: Mapping[str, str] | None = None,
) -> Rebuilt:
    """Rebuild the catalog from the manifests of committed attempts.

    Its version is higher than all versions in manifests and in files of the catalog, so no version
    number gets a second meaning.

    `trust` names attempts without a mark of success that are known to be committed: runs that were
    killed between their commit and the mark. Those that the readable part of the old catalog has
    need not be named. All of them get their mark. The old catalog is copied to
    `catalog/log.backup-<time>` before it is deleted. Nobody may write to the lake meanwhile.

    Until the rebuild is done, the lake can neither be opened nor written to: a killed rebuild has
    to be started again. Raises UsageError if all of the catalog can be read, unless `force`, or if
    it has another format; CorruptData if a manifest cannot be read, if a log is missing, or if the
    manifests leave a hole in a log partition: then nothing is changed. The message names the
    attempts to look at.
    """
    store = open_store(root, storage_options)
    if _is_readable(store) and not force:
        raise UsageError(f"the catalog of {root} can be read: it needs no rebuild (or force it)")
    report = Rebuilt(dry_run)
    report.attempts, report.untrusted = _attempts(store, trust)
    manifests = [read_manifest(store, attempt_id) for attempt_id in report.attempts]
    topics, last_version = _history(manifests), _last_version(store, manifests)
    _check(store, topics, report)
    report.topics = {
        topic: sum(isinstance(row, SegmentRow) for row in rows) for topic, rows in topics.items()
    }
    if not dry_run:
        for attempt_id in sorted(unmarked(store).keys() & set(report.attempts)):
            mark_committed(store, attempt_id)  # only the old catalog may know of them
        store.put(layout.REBUILDING, b"")
        report.backup = _move_aside(store)
        report.version = CatalogTable.rebuilt(store, topics, last_version + 1)
        store.delete([layout.REBUILDING])
    return report


def _is_readable(store: Store) -> bool:
    """Whether all of the catalog can be read. Raises UsageError for another format."""
    try:
        table = CatalogTable.open(store)
        table.check_history()
        table.snapshot()
        return not any(damaged_files(store, table.newest_files()))
    except (CorruptData, StoreError, VersionExpired):
        return False


def _attempts(store: Store, trust: Collection[str]) -> tuple[list[str], list[str]]:
    """The attempts whose manifest counts, and the attempts whose manifest does not."""
    files: dict[str, set[str]] = defaultdict(set)
    for found in store.list(layout.ATTEMPTS):
        with contextlib.suppress(CorruptData):  # a key that Seglake does not write
            attempt_id, name = layout.parse_attempt_key(found.key)
            files[attempt_id].add(name)
    unknown = set(trust) - {name for name, found in files.items() if "manifest.json" in found}
    if unknown:
        raise UsageError(f"there is no manifest of the attempts {', '.join(sorted(unknown))}")
    trusted = {name for name, found in files.items() if "success" in found} | set(trust)
    if any("manifest.json" in found for name, found in files.items() if name not in trusted):
        known = committed_attempts(store)
        trusted |= {n for n, found in files.items() if "manifest.json" in found and n in known}
    others = {name for name, found in files.items() if "manifest.json" in found} - trusted
    return sorted(trusted), sorted(others)


def _history(manifests: Iterable[Manifest]) -> dict[str, list[Row]]:
    """The live rows of every topic after all these commits, each once."""
    rows: dict[Row, None] = {}
    replaced, forgotten = set[SegmentId](), set[str]()
    for manifest in manifests:
        rows |= dict.fromkeys(manifest.rows)
        replaced.update(manifest.replaced)
        forgotten.update(manifest.forgotten)
    topics: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        gone = isinstance(row, SegmentRow) and row.id in replaced
        gone |= isinstance(row, SourceRow) and row.attempt_id in forgotten
        if not gone:
            topics[row.topic].append(row)
    return dict(sorted(topics.items()))


def _check(store: Store, topics: Mapping[str, list[Row]], report: Rebuilt) -> None:
    """Raise CorruptData if these rows make no lake; report the index files to rebuild."""
    segments = [row for row in chain(*topics.values()) if isinstance(row, SegmentRow)]
    listed = (hash(_object(each.key, each.size)) for each in store.list(layout.TOPICS))
    there = np.unique(np.fromiter(listed, np.int64))
    for row in _without(segments, "log", there)[:1]:
        raise CorruptData(f"no log of {row.log_bytes} bytes is here", file=row.key("log"))
    for suffix in SUFFIXES[1:]:
        report.missing += [row.key(suffix) for row in _without(segments, suffix, there)]
    for topic, rows in topics.items():
        try:
            checked_change(Change(rows), topic, EMPTY)
        except CorruptData as error:
            hint = f"; not trusted: {', '.join(report.untrusted) or 'none'}"
            raise CorruptData(error.what + hint, file=layout.ATTEMPTS) from error


def _without(segments: list[SegmentRow], suffix: Suffix, there: Int64s) -> list[SegmentRow]:
    """The segments whose file is not there in its size; `there` has hashes of (key, size).

    A link has any size.
    """
    size = operator.attrgetter(f"{suffix}_bytes")
    wanted = np.fromiter((hash(_object(row.key(suffix), size(row))) for row in segments), np.int64)
    return list(compress(segments, ~np.isin(wanted, there)))


def _object(key: str, size: int) -> tuple[str, int]:
    return (key, -1) if key.endswith(f".{layout.LINK}") else (key, size)


def _move_aside(store: Store) -> str:
    """Copy the rest of the catalog, then delete it; returns the copy's folder, "" if no rest."""
    old = [found.key for found in store.list(layout.LOG_TABLE)]
    backup = f"{layout.LOG_TABLE}.backup-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    for key in old:
        store.put(backup + key.removeprefix(layout.LOG_TABLE), store.read_all(key))
    store.delete(old)
    return backup if old else ""


def _last_version(store: Store, manifests: Iterable[Manifest]) -> int:
    """A version that the catalog never went beyond, by its files and manifests; or -1."""
    keys = (found.key for found in store.list(layout.CATALOG))  # backups of older rebuilds as well
    numbers = [int(match[1]) for match in map(_VERSION.fullmatch, keys) if match]
    told = max((manifest.version for manifest in manifests), default=-1)
    return max(numbers) if numbers else told + _UNTOLD * (told >= 0)
