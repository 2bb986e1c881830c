"""Verify the files and the catalog of a lake.

Files are checked by size and CRC-32C. If a file is wrong, its segment is searched, so that the
finding names the damaged byte. A search (`reindex.check_segment`) checks every batch's checksum,
decodes every record, checks the order of offsets and the number of records, and compares the index
files with index files built from the log. With `deep`, all segments are searched.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from seglake import layout
from seglake.catalog.attempts import (
    Manifest,
    has_failed,
    list_attempts,
    read_archives,
    read_manifests,
)
from seglake.catalog.quarantine.open_rejects import count_by_attempt, expired_attempts, rejects_left
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.retention import committed_attempts
from seglake.catalog.schema import Row, RunRow, SegmentId, SegmentRow, SourceRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.version.snapshot import Snapshot
from seglake.catalog.version.snapshot_files import damaged_files
from seglake.engine import Progress, SegmentTasks
from seglake.errors import CorruptData, StoreError, UsageError, VersionExpired
from seglake.maintain.commit import MaintenanceReport
from seglake.maintain.health.reindex import HealthFinding, catalog_finding, check_segment
from seglake.maintain.vacuum import orphans
from seglake.store import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REQUEST_FAILED = re.compile(r"Generic \w+ error")  # any other error of delta-rs may be damage
_NEEDED = "which a rebuild of the catalog needs"
_IN_A_SNAPSHOT = {"segment", "topic", "partition"}  # the kinds of rows that a snapshot reads


@dataclass(repr=False)
class VerifyResult(MaintenanceReport):
    """The findings in one version of the lake. A sound version has no findings.

    A missing object is also a finding. `orphans` are the keys of objects that no retained version
    names. Failed or running attempts wrote them, and they are harmless.
    """

    version: int = -1
    deep: bool = False
    segments: int = 0
    log_bytes: int = 0
    findings: list[HealthFinding] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """Return 1 if there is any finding, else 0."""
        return 1 if self.findings else 0


def verify(
    root: str,
    *,
    deep: bool = False,
    topics: Collection[str] | None = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> VerifyResult:
    """Check the files of the newest version and of tags, and the catalog.

    Damage is reported as findings, and raises no error. Each file has at most one finding. If the
    catalog is sound, runs are compared with the quarantine, the objects that a rebuild of the
    catalog needs are checked, and orphans are listed.

    Args:
        root: The folder or URI of the lake.
        deep: Also decode every record, and compare index files with the log.
        topics: The topics to check, by default all. Orphans are listed only for all topics.
        spark: Runs the work on its executors. Without it, threads run the work.
        storage_options: Options of the store.
        progress: Called with the bytes of log that are done, and the total.

    Raises:
        UsageError: There is no lake.
        UnknownTopic: There is no such topic.

    Example:
        >>> seglake.verify("lake", deep=True).findings
        []
    """
    report, store = VerifyResult(deep=deep), open_store(root, storage_options)
    opened = _open(store, report)
    if opened is None:
        return report
    table, snapshot = opened
    is_sound = not report.findings
    names = topics or [row.topic for row in snapshot.topics()]
    views = [view for name in names for view in snapshot.partitions(name)]
    report.version, report.segments = snapshot.version, sum(map(len, views))
    report.log_bytes = sum(view.log_bytes for view in views)
    if is_sound:
        for name in names:
            report.findings += _check_runs(table, snapshot, name)
    tasks = SegmentTasks.from_session(store, spark, progress)
    with _reporting(report):
        lists = table.rows.segment_lists(snapshot, names)
        _check_segments(lists, report, tasks, 0, report.log_bytes)
    if is_sound:
        with _reporting(report):
            done = report.log_bytes
            for rows in only_tagged(table, snapshot, names):
                total = done + sum(row.log_bytes for some in rows for row in some)
                _check_segments(rows, report, tasks, done, total)
                done = total
        is_sound = not any(each.file.startswith(layout.TAGS) for each in report.findings)
    if is_sound:
        with _reporting(report):
            others = [layout.WHOLE_LAKE] if topics is None else []
            report.findings += _check_history(table, snapshot, [*names, *others])
    if is_sound and topics is None:
        with _reporting(report):
            report.orphans = sorted(orphans(table))
    return report


def _open(store: Store, report: VerifyResult) -> tuple[CatalogTable, Snapshot] | None:
    """Return the catalog and its newest version, or None if it is unreadable. Report findings."""
    with _reporting(report):
        table = CatalogTable.open(store)
        table.log.check_all()
        damage = list(damaged_files(store, table.newest_files()))
        for file, error in damage:
            key = f"{layout.LOG_TABLE}/{file.path}"
            report.findings.append(catalog_finding(file.topic, key, error))
        if {file.kind for file, _ in damage}.isdisjoint(_IN_A_SNAPSHOT):
            return table, table.snapshot()
    return None


def _check_segments(
    lists: Iterable[list[SegmentRow]],
    report: VerifyResult,
    tasks: SegmentTasks,
    done: int,
    total: int,
) -> None:
    """Check lists of segments, and report findings. Progress begins at `done` of `total` bytes."""
    work = partial(check_segment, deep=report.deep)
    for rows in lists:
        for findings in tasks.within(done, total).map(work, rows):
            report.findings += findings
        done += sum(row.log_bytes for row in rows)


def only_tagged(
    table: CatalogTable, snapshot: Snapshot, topics: Collection[str]
) -> Iterator[list[list[SegmentRow]]]:
    """Yield, for each tag, lists of segments that neither `snapshot` nor an earlier tag names.

    Only segments of `topics` are included.
    """
    tags = table.tags.live()
    lists = table.rows.segment_lists(snapshot, topics) if tags else ()
    hashes = {hash(row.id) for rows in lists for row in rows}
    for tag in tags:
        others = [
            [row for row in rows if hash(row.id) not in hashes]
            for rows in table.rows.segment_lists(table.tags.snapshot(tag), topics)
        ]
        hashes |= {hash(row.id) for rows in others for row in rows}
        yield others


@contextmanager
def _reporting(report: VerifyResult) -> Iterator[None]:
    """Convert an error in the block to a finding about the catalog."""
    try:
        yield
    except (CorruptData, StoreError, VersionExpired) as error:
        file = getattr(error, "file", "") or layout.LOG_TABLE
        unclear = isinstance(error, StoreError) and not _REQUEST_FAILED.search(str(error))
        report.findings.append(catalog_finding("", file, str(error) if unclear else error))


def _check_history(
    table: CatalogTable, snapshot: Snapshot, topics: Collection[str]
) -> Iterator[HealthFinding]:
    """Check the objects that a rebuild of the catalog needs.

    For each attempt that rows name, these objects are its manifest and its success marker, or a
    manifest archive. The attempt id of a rebased segment has no manifest, because the manifest of
    its run names the segment.
    """
    there = {item.key for item in table.store.list(layout.ATTEMPTS)}
    alone, archived = {*markers_without_manifest(table.store)}, read_archives(table.store)
    for topic in topics:
        attempt_ids = {run.attempt_id for run in table.rows.run_history(snapshot, topic)}
        attempt_ids |= {row.attempt_id for row in table.rows.maintenance(snapshot, topic)}
        if topic != layout.WHOLE_LAKE:
            attempt_ids |= snapshot.index_attempts(topic)
        for attempt_id in sorted(attempt_ids - archived.keys()):
            manifest, mark = layout.manifest_key(attempt_id), layout.success_key(attempt_id)
            alone.discard(mark)
            if manifest not in there:
                what = f"the manifest of a committed attempt is missing, {_NEEDED}"
                yield HealthFinding(topic, -1, -1, manifest, 0, what, "missing")
            elif mark not in there:
                what = "the success marker of a committed attempt is missing"
                what += "; `seglake vacuum` writes it"
                yield HealthFinding(topic, -1, -1, mark, 0, what, "missing")
    for mark in sorted(alone):
        what = f"this attempt has a success marker but no manifest, {_NEEDED}"
        yield HealthFinding("", -1, -1, mark, 0, what, "missing")


def _check_runs(table: CatalogTable, snapshot: Snapshot, topic: str) -> Iterator[HealthFinding]:
    """Check that each run was committed only once, and that its counts match its rejects."""
    history = table.rows.run_history(snapshot, topic)
    gone = {run.attempt_id for run in history if run.state != "committed"}
    runs = [run for run in history if run.attempt_id not in gone]
    keys = Counter((run.pipeline, run.run_id, run.sequence) for run in history)
    for (pipeline, run_id, _), count in keys.items():
        if count > 1:
            what = f"run {run_id!r} of pipeline {pipeline!r} was committed {count} times"
            yield catalog_finding(topic, layout.LOG_TABLE, what)
    rejects = Counter[str]()
    try:
        for rows in QuarantineTable(table.store).read(topic, {run.attempt_id for run in runs}):
            rejects.update(count_by_attempt(rows))
    except (CorruptData, StoreError) as error:
        file = getattr(error, "file", "") or layout.QUARANTINE_TABLE
        yield catalog_finding(topic, file, error)
        return
    upkeep = table.rows.maintenance(snapshot, topic)
    expired, left = expired_attempts(upkeep), rejects_left(upkeep)
    for run in runs:
        actual, expected = rejects[run.attempt_id], left.get(run.attempt_id, run.quarantined)
        yield from _check_counts(run, expected, expected if run.attempt_id in expired else actual)


def _check_counts(run: RunRow, expected: int, rejects: int) -> Iterator[HealthFinding]:
    """Check a run's counts, and whether its number of `rejects` in the quarantine is `expected`."""
    name = f"run {run.run_id!r} of pipeline {run.pipeline!r}"
    if run.input_rows != run.records + run.quarantined:
        what = f"{name} read {run.input_rows} rows, but recorded {run.records} records"
        yield catalog_finding(run.topic, layout.LOG_TABLE, f"{what} and {run.quarantined} rejects")
    if expected != rejects:
        what = f"{name} rejected {run.quarantined} rows, but the quarantine has {rejects}"
        if expected != run.quarantined:
            what += f"; after erasures, it should have {expected}. If it has more, erase again"
        yield catalog_finding(run.topic, layout.QUARANTINE_TABLE, what)


# ---------------- history
# The live rows of the catalog are found from the manifests that count.
#
# All archived manifests count. Any other manifest counts if its attempt has a success marker, if
# the readable part of the catalog has the attempt, or if the caller trusts the attempt. It also
# counts if another manifest that counts removes rows that it adds.


class History(NamedTuple):
    """The manifests of committed attempts, by attempt."""

    manifests: dict[str, Manifest]

    @staticmethod
    def from_store(store: Store, trust: Collection[str], untrusted: list[str]) -> History:
        """Return the history of a lake. Set `untrusted` to the attempts that do not count.

        Raises UsageError if an attempt in `trust` has no manifest, and CorruptData if a manifest
        cannot be read, or if a success marker has no manifest, see `markers_without_manifest`.
        """
        written, marked, archived = _attempts(store)
        if unknown := {*trust} - written.keys() - archived.keys():
            names = ", ".join(sorted(unknown))
            raise UsageError(f"trust (--trust) names attempts without a manifest: {names}")
        untrusted[:] = waiting = sorted(written.keys() - marked - {*trust})
        named = {*waiting} & committed_attempts(store) if waiting else set[str]()
        committed = {attempt_id for attempt_id in named if not has_failed(store, attempt_id)}
        first = written.keys() & {*marked, *trust, *committed}
        history = History({**archived, **_read(store, written, first)})
        history.add_prerequisites(_read(store, written, written.keys() - first))
        untrusted[:] = sorted(written.keys() - history.manifests.keys())
        for attempt_id in sorted(marked - written.keys() - archived.keys()):
            where = layout.manifest_key(attempt_id)
            what = "this attempt has a success marker but no manifest, so its changes"
            key = layout.success_key(attempt_id)
            raise CorruptData(f"{what} are unknown. Restore {where}", file=key)
        return history

    def add_prerequisites(self, unknown: Mapping[str, Manifest]) -> None:
        """Add the manifests in `unknown` that manifests of the history need.

        A manifest needs the manifests of attempts that its rows name or whose segments it removes.
        """
        while unknown:
            names, gone = self.named_attempts(), self._replaced()
            needed = {
                name: manifest
                for name, manifest in unknown.items()
                if name in names or any(row.id in gone for row in manifest.segments)
            }
            if not needed:
                return
            self.manifests.update(needed)
            unknown = {name: unknown[name] for name in unknown.keys() - needed.keys()}

    def named_attempts(self) -> set[str]:
        """Return the attempts that are named by the rows that the manifests add or remove."""
        attempt_ids = set[str]()
        for manifest in self.manifests.values():
            attempt_ids.update(manifest.forgotten)
            attempt_ids.update(
                getattr(row, "attempt_id", manifest.attempt_id) for row in manifest.rows
            )
            segments: list[SegmentRow | SegmentId] = [*manifest.segments, *manifest.replaced]
            attempt_ids.update(
                chain.from_iterable((s.attempt_id, s.index_attempt_id) for s in segments)
            )
        return attempt_ids

    def lake(self) -> str:
        """Return the identity of the lake, or "" if there is no manifest."""
        lakes = ((each.version, each.lake) for each in self.manifests.values())
        return max(lakes, default=(-1, ""))[1]

    def topics(self) -> dict[str, list[Row]]:
        """Return the live rows of every topic after all commits of the history, without duplicates.

        The order of the commits does not matter, because a row is live if a manifest adds it and no
        manifest removes it.
        """
        replaced, forgotten = self._replaced(), set[str]()
        rows: dict[Row, None] = {}
        for manifest in self.manifests.values():
            rows |= dict.fromkeys(manifest.rows)
            forgotten.update(manifest.forgotten)
        topics: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            gone = isinstance(row, SegmentRow) and row.id in replaced
            gone |= isinstance(row, SourceRow) and row.attempt_id in forgotten
            if not gone:
                topics[row.topic].append(row)
        return dict(sorted(topics.items()))

    def _replaced(self) -> set[SegmentId]:
        return {segment for manifest in self.manifests.values() for segment in manifest.replaced}


def markers_without_manifest(store: Store) -> list[str]:
    """Return the keys of success markers whose attempt has no manifest."""
    written, marked, archived = _attempts(store)
    return [*map(layout.success_key, sorted(marked - written.keys() - archived.keys()))]


def _read(store: Store, written: Mapping[str, int], some: Collection[str]) -> dict[str, Manifest]:
    """Return the manifests of the attempts `some`, by attempt."""
    return read_manifests(store, {name: written[name] for name in sorted(some)})


def _attempts(store: Store) -> tuple[dict[str, int], set[str], dict[str, Manifest]]:
    """Return each attempt's number of lost races, the marked attempts, and archived manifests.

    Attempts with an archived manifest are not in the first result.
    """
    archived, attempts = read_archives(store), list_attempts(store).items()
    marked = {attempt_id for attempt_id, each in attempts if each.marked}
    races = {name: each.lost_races for name, each in attempts if each.lost_races >= 0}
    return {name: races[name] for name in races.keys() - archived.keys()}, marked, archived
