"""Lost or damaged index files and a lost catalog, made again from what is left.

Index files follow from the log. The catalog follows from the manifests of the attempts that are
marked as committed; nothing else is trusted, and nothing is guessed. Both keep what was there:
damaged index files stay where older versions look for them, the old catalog is moved aside.
"""

from __future__ import annotations

import contextlib
import operator
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import chain, compress

import numpy as np

from seglake import layout
from seglake.catalog.change import checked_change
from seglake.catalog.manifest import Manifest, SegmentId, read_manifest
from seglake.catalog.rows import Row, SegmentRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.version.segment_columns import Int64s
from seglake.catalog.version.snapshot import EMPTY
from seglake.errors import CorruptData, StoreError, UsageError, VersionExpired
from seglake.layout import SUFFIXES, Suffix
from seglake.maintain.reindex import reindex_rows
from seglake.maintain.reports import Finding, Progress, Rebuilt, Reindexed, silent
from seglake.maintain.segmentwise import over_segments
from seglake.maintain.verify import first_look
from seglake.store import Store, open_store


def repair_indexes(
    root: str,
    *,
    topics: Collection[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> list[Reindexed]:
    """Make index files anew that are missing or damaged; says what it did for each topic.

    A segment whose log is damaged or unreadable as well is reported and left as it is. So is one
    whose index files storage does not give, which says nothing about their bytes. Raises
    UnknownTopic, StoreError and CommitConflict.
    """
    table, store = CatalogTable.open(root, storage_options), open_store(root, storage_options)
    snapshot = table.snapshot()
    share = partial(over_segments, spark=None, progress=progress)
    reports = []
    names = [snapshot.topic(name).topic for name in topics or ()]
    for topic in names or [row.topic for row in snapshot.topics()]:
        rows = table.segments(snapshot, topic)
        found = share(_index_findings, rows, store)
        bad = [any(finding.kind != "unreadable" for finding in each) for each in found]
        refused = [each for each, is_bad in zip(found, bad, strict=True) if each and not is_bad]
        if any(found):
            some = list(compress(rows, bad))
            report = reindex_rows(table, store, topic, some, None, share, leave_damaged=True)
            report.damaged += chain.from_iterable(refused)
            reports.append(report)
    return reports


def _index_findings(store: Store, row: SegmentRow) -> list[Finding]:
    return [finding for s in SUFFIXES[1:] if (finding := first_look(store, row, s))]


def rebuild_catalog(
    root: str,
    *,
    trust: Collection[str] = (),
    force: bool = False,
    dry_run: bool = True,
    storage_options: Mapping[str, str] | None = None,
) -> Rebuilt:
    """Make the catalog again from the manifests of committed attempts; versions begin anew.

    `trust` names attempts without a mark of success that are known to have been committed: a run
    that was killed between its commit and the mark. The old catalog is copied to
    `catalog/log.backup-<time>` before it goes. Nobody may write to the lake meanwhile.

    Until it is done, the lake can neither be opened nor written to: a rebuild that was killed has
    to be done again. Raises UsageError if all of the catalog can be read, unless `force`, or if it
    has another format; CorruptData if a manifest cannot be read, if a log is gone, or if the
    manifests leave a hole in a log partition: then nothing is changed. The message names the
    attempts to look at.
    """
    store = open_store(root, storage_options)
    if _readable(store, storage_options) and not force:
        raise UsageError(f"the catalog of {root} can be read: it needs no rebuild (or force it)")
    report = Rebuilt(dry_run)
    report.attempts, report.untrusted = _attempts(store, trust)
    topics = _history(read_manifest(store, attempt_id) for attempt_id in report.attempts)
    _check(store, topics, report)
    report.topics = {topic: len(_segments(rows)) for topic, rows in topics.items()}
    if not dry_run:
        store.put(layout.REBUILDING, b"")
        report.backup = _move_aside(store)
        report.version = _write(store, storage_options, topics)
        store.delete([layout.REBUILDING])
    return report


def _readable(store: Store, storage_options: Mapping[str, str] | None) -> bool:
    """Whether the catalog is whole. Raises UsageError for another format, which is not ours."""
    try:
        table = CatalogTable.open(store.uri, storage_options)
        table.snapshot()
        return not any(table.damage())
    except (CorruptData, StoreError, VersionExpired):
        return False


def _attempts(store: Store, trust: Collection[str]) -> tuple[list[str], list[str]]:
    """The attempts whose manifest counts, and those whose manifest does not."""
    files: dict[str, set[str]] = defaultdict(set)
    for found in store.list(layout.ATTEMPTS):
        with contextlib.suppress(CorruptData):  # not one of ours
            attempt_id, name = layout.parse_attempt_key(found.key)
            files[attempt_id].add(name)
    unknown = set(trust) - {name for name, found in files.items() if "manifest.json" in found}
    if unknown:
        raise UsageError(f"there is no manifest of the attempts {', '.join(sorted(unknown))}")
    trusted = {name for name, found in files.items() if "success" in found} | set(trust)
    others = {name for name, found in files.items() if "manifest.json" in found} - trusted
    return sorted(trusted), sorted(others)


def _history(manifests: Iterable[Manifest]) -> dict[str, list[Row]]:
    """The rows of every topic that are live after all these commits, each once."""
    rows: dict[Row, None] = {}
    replaced: set[SegmentId] = set()
    for manifest in manifests:
        rows |= dict.fromkeys(manifest.rows)
        replaced.update(manifest.replaced)
    topics: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if not (isinstance(row, SegmentRow) and SegmentId.of(row) in replaced):
            topics[row.topic].append(row)
    return dict(sorted(topics.items()))


def _segments(rows: Iterable[Row]) -> list[SegmentRow]:
    return [row for row in rows if isinstance(row, SegmentRow)]


def _check(store: Store, topics: Mapping[str, list[Row]], report: Rebuilt) -> None:
    """Raise CorruptData if these rows are no lake; note the index files that have to be made."""
    segments = _segments(chain.from_iterable(topics.values()))
    listed = (hash((each.key, each.size)) for each in store.list(layout.TOPICS))
    there = np.unique(np.fromiter(listed, np.int64))
    for row in _without(segments, "log", there)[:1]:
        raise CorruptData(f"no log of {row.log_bytes} bytes is here", file=row.key("log"))
    for suffix in SUFFIXES[1:]:
        report.missing += [row.key(suffix) for row in _without(segments, suffix, there)]
    for topic, rows in topics.items():
        try:
            checked_change(rows, [], topic, EMPTY)
        except CorruptData as error:
            hint = f"; not trusted: {', '.join(report.untrusted) or 'none'}"
            raise CorruptData(error.what + hint, file=layout.ATTEMPTS) from error


def _without(segments: list[SegmentRow], suffix: Suffix, there: Int64s) -> list[SegmentRow]:
    """The segments without a file of the size that it must have; `there` has (key, size) hashed."""
    size = operator.attrgetter(f"{suffix}_bytes")
    wanted = np.fromiter((hash((row.key(suffix), size(row))) for row in segments), np.int64)
    return list(compress(segments, ~np.isin(wanted, there)))


def _move_aside(store: Store) -> str:
    """Copy what is left of the catalog, then delete it; the folder of the copy, "" if none."""
    old = [found.key for found in store.list(layout.LOG_TABLE)]
    backup = f"{layout.LOG_TABLE}.backup-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    for key in old:
        store.put(backup + key.removeprefix(layout.LOG_TABLE), store.read_all(key))
    store.delete(old)
    return backup if old else ""


def _write(
    store: Store, storage_options: Mapping[str, str] | None, topics: Mapping[str, list[Row]]
) -> int:
    """One commit for each topic; the version after the last."""
    table = CatalogTable.create_anew(store, storage_options)
    for topic, rows in topics.items():
        table.commit(rows, topic=topic, base=table.snapshot(), attempt_id=layout.new_attempt())
    return table.snapshot().version
