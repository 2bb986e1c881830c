"""Objects that no retained version of the lake names: found, and deleted when asked to.

The catalog's own retention (30 days, see `catalog.delta`) decides which versions are retained: its
expired data files go first, so that nobody can open such a version any more, then the objects that
only those versions named.

An attempt that may still run is left alone: one whose newest object is younger than the grace
period. What the history needs is kept for good: frozen input lists, and the manifests of attempts
that were committed.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping

from seglake import layout
from seglake.catalog.table import CatalogTable
from seglake.errors import CorruptData
from seglake.maintain.reports import Vacuumed
from seglake.store import Listed, Store, open_store

GRACE_HOURS = 24.0
_DELETE_AT_ONCE = 1000
_TEMPORARY = re.compile(r"(.+)\.[0-9a-f]{32}\.tmp")  # what a crash leaves of a local write


def vacuum(
    root: str,
    *,
    dry_run: bool = True,
    grace_hours: float = GRACE_HOURS,
    retention_hours: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Vacuumed:
    """Delete what no retained version names; with `dry_run`, only say what that is.

    `retention_hours` is how long versions are retained after they were replaced; without it the
    catalog's own setting holds. A shorter one expires versions that somebody may still read. Raises
    StoreError, and CorruptData if the catalog cannot be read: then nothing is deleted.
    """
    table, store = CatalogTable.open(root, storage_options), open_store(root, storage_options)
    report = Vacuumed(dry_run)
    report.catalog_files = sorted(table.vacuum(retention_hours, dry_run=True))
    gone = _sort_out(unnamed(table, store, retention_hours), grace_hours, report)
    report.deleted, report.deleted_bytes = [f.key for f in gone], sum(f.size for f in gone)
    if not dry_run:
        table.vacuum(retention_hours)
        for first in range(0, len(gone), _DELETE_AT_ONCE):
            store.delete(report.deleted[first : first + _DELETE_AT_ONCE])
    return report


class Unnamed:
    """Objects that no retained version names, by attempt; `unknown` are not Seglake's at all."""

    def __init__(self) -> None:
        self.objects: dict[str, list[Listed]] = defaultdict(list)
        self.newest_ms: dict[str, int] = defaultdict(int)  # of each attempt's objects, named or not
        self.unknown: list[str] = []

    def add(self, attempt_id: str, found: Listed, *, named: bool) -> None:
        """Take note of an attempt's object."""
        self.newest_ms[attempt_id] = max(self.newest_ms[attempt_id], found.modified_ms)
        if not named:
            self.objects[attempt_id].append(found)


def unnamed(table: CatalogTable, store: Store, retention_hours: int | None = None) -> Unnamed:
    """What stands under topics/ and attempts/ without a retained version that names it."""
    result = Unnamed()
    listed = [*store.list(layout.TOPICS), *store.list(layout.ATTEMPTS)]  # before what names them
    committed = {key.split("/")[1] for key, *_ in listed if key.endswith("/success")}
    committed |= _attempts_of_runs(table)
    named = _named_files(table, retention_hours)
    for found in listed:
        whole = _TEMPORARY.fullmatch(found.key)
        key = whole[1] if whole else found.key
        try:
            attempt_id, kept = _place(key, named, committed)
        except CorruptData:
            result.unknown.append(found.key)
        else:
            result.add(attempt_id, found, named=kept and not whole)
    return result


def _place(key: str, named: set[layout.SegmentFile], committed: set[str]) -> tuple[str, bool]:
    """The attempt of an object, and whether something needs the object."""
    if key.startswith(f"{layout.TOPICS}/"):
        file = layout.parse_segment_key(key)
        beside = file._replace(suffix="log" if file.suffix == "log" else "index")
        return file.attempt_id, beside in named
    attempt_id, name = layout.parse_attempt_key(key)
    kept = name == "inputs.json" or (attempt_id in committed and "/" not in name)
    return attempt_id, kept  # blobs are needed by no one once the attempt has ended


def _named_files(table: CatalogTable, retention_hours: int | None) -> set[layout.SegmentFile]:
    """The logs, and the offset indexes for all files beside them, of all retained versions."""
    columns = ("partition", "base_offset", "attempt_id", "index_attempt_id")
    named: set[layout.SegmentFile] = set()
    for topic, rows in table.retained("segment", retention_hours):
        values = [rows[name].to_pylist() for name in columns]
        for partition, base_offset, log, beside in zip(*values, strict=True):
            named.add(layout.SegmentFile(topic, partition, log, base_offset, "log"))
            named.add(layout.SegmentFile(topic, partition, beside or log, base_offset, "index"))
    return named


def _attempts_of_runs(table: CatalogTable) -> set[str]:
    snapshot = table.snapshot()
    return {run.attempt_id for row in snapshot.topics() for run in table.runs(snapshot, row.topic)}


def _sort_out(found: Unnamed, grace_hours: float, report: Vacuumed) -> list[Listed]:
    """What may go; what must stay is noted in the report."""
    oldest_ms = time.time() * 1000 - grace_hours * 3_600_000
    report.unknown = found.unknown
    gone: list[Listed] = []
    for attempt_id, objects in found.objects.items():
        if found.newest_ms[attempt_id] > oldest_ms:
            report.young += [each.key for each in objects]
        else:
            gone += objects
    return gone


def orphans(table: CatalogTable, store: Store) -> Iterator[str]:
    """The keys of all objects that no retained version names, whatever their age."""
    found = unnamed(table, store)
    yield from (each.key for objects in found.objects.values() for each in objects)
    yield from found.unknown
