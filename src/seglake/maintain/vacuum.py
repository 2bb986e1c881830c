"""Objects that no retained version of the lake names: found, and deleted when asked to.

The catalog's own retention (30 days, see `catalog.delta`) decides which versions are retained: its
expired data files go first, so that nobody can open such a version any more, then the objects that
only those versions named.

An attempt that may still run is left alone: one whose newest unnamed object is younger than the
grace period. So is a data file of the catalog which a commit may be about to name. What the history
needs is kept for good: frozen input lists, and the manifests of attempts that were committed.

Of the objects that are named, a number each is held, of the others the key.
"""

from __future__ import annotations

import math
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, repeat
from typing import Any, NamedTuple

import pyarrow.compute as pc

from seglake import layout
from seglake.catalog.quarantine.parts import attempt_of
from seglake.catalog.quarantine.table import QuarantineTable
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
    report, oldest_ms = Vacuumed(dry_run), time.time() * 1000 - grace_hours * 3_600_000
    expired = table.expired(retention_hours, before_ms=oldest_ms)
    report.catalog_files = sorted(found.key for found in expired)
    gone = _sort_out(unnamed(table, store, set(report.catalog_files)), oldest_ms, report)
    report.deleted = [found.key for found in gone]
    report.deleted_bytes = sum(found.size for found in chain(expired, gone))
    if not dry_run:
        QuarantineTable(root, storage_options).remove_parts(set(filter(attempt_of, report.deleted)))
        keys = report.catalog_files + report.deleted
        for first in range(0, len(keys), _DELETE_AT_ONCE):
            store.delete(keys[first : first + _DELETE_AT_ONCE])
    return report


class Unnamed:
    """Objects that no retained version names, by attempt; `unknown` are not Seglake's at all.

    What a crash left of a write to the catalog is of no attempt, and stands under its own key.
    """

    def __init__(self, found: Iterable[tuple[str | None, Listed]]) -> None:
        self.objects: dict[str, list[Listed]] = defaultdict(list)
        self.unknown: list[str] = []
        for owner, each in found:
            if owner is None:
                self.unknown.append(each.key)
            else:
                self.objects[owner].append(each)


def unnamed(table: CatalogTable, store: Store, expired: Collection[str] = ()) -> Unnamed:
    """What stands in the lake without a retained version that names it.

    Data files of the catalog that have `expired` name nothing. What is not named before everything
    is listed is looked for again after it: it may have been committed meanwhile.
    """
    places = (layout.TOPICS, layout.ATTEMPTS, layout.CATALOG)
    listed = chain.from_iterable(map(store.list, places))
    others = (each for each in listed if each.key not in expired)
    left = [each for _, each in _unneeded(others, _named(table, expired))]
    marked = {each.key.split("/")[1] for each in left if each.key.endswith("/success")}
    return Unnamed(_unneeded(left, _named(table, expired, marked)) if left else ())


class _Named(NamedTuple):
    """The attempts that were committed, and a hash for each log and each set of index files.

    Two files of one hash would keep what could go, no more.
    """

    attempts: set[str]
    files: set[int]

    def needs(self, file: layout.SegmentFile) -> bool:
        """Whether a segment has this file, or this one's neighbours, as its own."""
        is_log = file.suffix == "log"
        name = (file.topic, file.partition, file.base_offset, file.attempt_id, is_log)
        return hash(name) in self.files


def _named(table: CatalogTable, expired: Collection[str], marked: Iterable[str] = ()) -> _Named:
    """What the runs and the segments of all retained versions name."""
    attempts, files = set(marked), set[int]()
    for _, rows in table.retained("run", expired):
        runs: list[Any] = rows["attempt_id"].to_pylist()
        attempts.update(runs)
    for topic, rows in table.retained("segment", expired):
        indexes = pc.coalesce(rows["index_attempt_id"], rows["attempt_id"])
        for column, is_log in ((rows["attempt_id"], True), (indexes, False)):
            columns = (rows["partition"], rows["base_offset"], column)
            values = (each.to_pylist() for each in columns)
            files.update(map(hash, zip(repeat(topic), *values, repeat(is_log))))
    return _Named(attempts, files)


def _unneeded(objects: Iterable[Listed], named: _Named) -> Iterator[tuple[str | None, Listed]]:
    """The objects that nothing needs, each with its owner; None if it is not one of ours."""
    for each in objects:
        whole = _TEMPORARY.fullmatch(each.key)
        try:
            owner, needed = _place(whole[1] if whole else each.key, named)
        except CorruptData:
            yield None, each
        else:
            if whole or not needed:
                yield owner or each.key, each


def _place(key: str, named: _Named) -> tuple[str, bool]:
    """The attempt of an object ("": none), and whether something needs the object."""
    if key.startswith(f"{layout.CATALOG}/"):
        part_of = attempt_of(key)
        return part_of or "", part_of is None or part_of in named.attempts
    if key.startswith(f"{layout.TOPICS}/"):
        file = layout.parse_segment_key(key)
        return file.attempt_id, named.needs(file)
    attempt_id, name = layout.parse_attempt_key(key)
    kept = name == "inputs.json" or (attempt_id in named.attempts and "/" not in name)
    return attempt_id, kept  # blobs are needed by no one once the attempt has ended


def _sort_out(found: Unnamed, oldest_ms: float, report: Vacuumed) -> list[Listed]:
    """What may go; what must stay is noted in the report."""
    report.unknown = found.unknown
    gone: list[Listed] = []
    for objects in found.objects.values():
        if max(each.modified_ms for each in objects) >= oldest_ms:
            report.young += [each.key for each in objects]
        else:
            gone += objects
    return gone


def orphans(table: CatalogTable, store: Store) -> Iterator[str]:
    """The keys of all objects that no retained version names, whatever their age."""
    expired = {each.key for each in table.expired(before_ms=math.inf)}
    found = unnamed(table, store, expired)
    yield from (each.key for objects in found.objects.values() for each in objects)
    yield from found.unknown
