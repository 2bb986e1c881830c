"""Deletion of the objects that no retained version of the lake names.

The catalog's own retention (30 days, see `catalog.delta.delta_rs`) decides which versions are
retained. Its expired data files are deleted first, so that an expired version cannot be opened any
more, then the objects that only expired versions named.

An attempt that may still run is left alone: one whose newest unnamed object is younger than the
grace period. So is a young data file of the catalog, which a commit may be about to name. The
manifests of committed attempts are never deleted: the history needs them.
Memory holds a hash of each named object, and the keys of the others.
"""

import math
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any, NamedTuple

import pyarrow.compute as pc

from seglake import layout
from seglake.catalog.quarantine.files import attempt_of
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.retention import expired_files, retained_rows
from seglake.catalog.table import CatalogTable
from seglake.errors import CorruptData
from seglake.maintain.findings import Report
from seglake.store import Listed, open_store

Unnamed = dict[str | None, list[Listed]]

GRACE_HOURS = 24.0
_DELETE_AT_ONCE = 1000
_TEMPORARY = re.compile(r"(.+)\.[0-9a-f]{32}\.tmp")  # what a crash leaves of a local write


@dataclass
class Vacuumed(Report):
    """The objects that a vacuum deleted, or would delete.

    `catalog_files` are data files of the catalog, `deleted` all other objects, `deleted_bytes` the
    size of both. `young` objects belong to attempts that may still run, `unknown` ones are not
    Seglake's; both were left alone.
    """

    dry_run: bool
    deleted: list[str] = field(default_factory=list)
    deleted_bytes: int = 0
    catalog_files: list[str] = field(default_factory=list)
    young: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def vacuum(
    root: str,
    *,
    dry_run: bool = True,
    grace_hours: float = GRACE_HOURS,
    retention_hours: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Vacuumed:
    """Delete the objects that no retained version names; with `dry_run`, only report them.

    `retention_hours` is how long versions are retained after they were replaced; without it the
    catalog's own setting holds. A shorter one expires versions that somebody may still read. Raises
    StoreError, and CorruptData if the catalog cannot be read: then nothing is deleted.
    """
    table = CatalogTable.open(open_store(root, storage_options))
    report, oldest_ms = Vacuumed(dry_run), time.time() * 1000 - grace_hours * 3_600_000
    expired = expired_files(table, retention_hours, before_ms=oldest_ms)
    report.catalog_files = sorted(found.key for found in expired)
    chosen = _choose(find_unnamed(table, set(report.catalog_files)), oldest_ms, report)
    report.deleted = [found.key for found in chosen]
    report.deleted_bytes = sum(found.size for found in chain(expired, chosen))
    if not dry_run:
        QuarantineTable(table.store).remove_files(set(filter(attempt_of, report.deleted)))
        keys = report.catalog_files + report.deleted
        for first in range(0, len(keys), _DELETE_AT_ONCE):
            table.store.delete(keys[first : first + _DELETE_AT_ONCE])
    return report


def _choose(found: Unnamed, oldest_ms: float, report: Vacuumed) -> list[Listed]:
    """The objects to delete; the report names the others."""
    report.unknown = [each.key for each in found.pop(None, ())]
    chosen: list[Listed] = []
    for objects in found.values():
        if max(each.modified_ms for each in objects) >= oldest_ms:
            report.young += [each.key for each in objects]
        else:
            chosen += objects
    return chosen


def find_unnamed(table: CatalogTable, expired: Collection[str]) -> Unnamed:
    """The objects of the lake that no retained version names, by attempt.

    An object that Seglake does not write is under None. What a crash leaves of a write to the
    catalog has no attempt, and is under its own key. The data files of the catalog with a key in
    `expired` name nothing. The names are read before everything is listed and, if an object has
    none, again after it: another process may have committed the object meanwhile.
    """
    places = (layout.TOPICS, layout.ATTEMPTS, layout.CATALOG)
    listed = chain.from_iterable(map(table.store.list, places))
    others = (each for each in listed if each.key not in expired)
    left = [each for _, each in _unneeded(others, _named(table, expired))]
    marked = {each.key.split("/")[1] for each in left if each.key.endswith("/success")}
    found: Unnamed = defaultdict(list)
    for owner, each in _unneeded(left, _named(table, expired, marked)) if left else ():
        found[owner].append(each)
    return found


def orphans(table: CatalogTable) -> Iterator[str]:
    """The keys of all objects that no retained version names, whatever their age."""
    expired = {each.key for each in expired_files(table, before_ms=math.inf)}
    found = find_unnamed(table, expired).values()
    yield from (each.key for objects in found for each in objects)


class _Named(NamedTuple):
    """The committed attempts, and a hash for each log and each set of index files."""

    attempts: set[str]
    files: set[int]

    def needs(self, file: layout.SegmentFile) -> bool:
        """Whether a segment row names this log, or the index files that this one belongs to."""
        is_log = file.suffix == "log"
        name = (file.topic, file.partition, file.base_offset, file.attempt_id, is_log)
        return hash(name) in self.files  # a collision only spares an object


def _named(table: CatalogTable, expired: Collection[str], marked: Iterable[str] = ()) -> _Named:
    """The names in the runs and segments of all retained versions."""
    attempts, files = set(marked), set[int]()
    for _, rows in retained_rows(table, "run", expired):
        runs: list[Any] = rows["attempt_id"].to_pylist()
        attempts.update(runs)
    for topic, rows in retained_rows(table, "segment", expired):
        indexes = pc.coalesce(rows["index_attempt_id"], rows["attempt_id"])
        for column, is_log in ((rows["attempt_id"], True), (indexes, False)):
            columns = (rows["partition"], rows["base_offset"], column)
            values = (each.to_pylist() for each in columns)
            files.update(map(hash, zip(repeat(topic), *values, repeat(is_log))))
    return _Named(attempts, files)


def _unneeded(objects: Iterable[Listed], named: _Named) -> Iterator[tuple[str | None, Listed]]:
    """The objects that nothing needs, each with its owner; None if it is not Seglake's."""
    for each in objects:
        partial = _TEMPORARY.fullmatch(each.key)
        try:
            owner, needed = _place(partial[1] if partial else each.key, named)
        except CorruptData:
            yield None, each
        else:
            if partial or not needed:
                yield owner or each.key, each


def _place(key: str, named: _Named) -> tuple[str, bool]:
    """The attempt of an object ("" if it has none), and whether something needs the object."""
    if key.startswith(f"{layout.CATALOG}/"):
        attempt = attempt_of(key)
        return attempt or "", attempt is None or attempt in named.attempts
    if key.startswith(f"{layout.TOPICS}/"):
        file = layout.parse_segment_key(key)
        return file.attempt_id, named.needs(file)
    attempt_id, name = layout.parse_attempt_key(key)
    # nothing needs blobs, nor what is known of a failure, once the attempt has ended
    return attempt_id, attempt_id in named.attempts and "/" not in name
