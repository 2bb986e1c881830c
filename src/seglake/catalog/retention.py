"""Find the rows of the retained versions of the catalog, and the files that these versions name.

A file is retained as long as the commit that removed it is younger than the retention. The age of a
commit is the age of its object by the clock of storage. The times inside commits do not matter,
because they come from the machines of writers, whose clocks may be wrong.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import zstandard

from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.delta.data_files import DataFile, read_files, read_parquet
from seglake.catalog.schema import FILE_SCHEMAS, Kind, TagRow
from seglake.catalog.table import CONTRACT, CatalogTable
from seglake.catalog.tags import read_object
from seglake.catalog.version.snapshot_files import attempts, data_files
from seglake.errors import CorruptData, MissingObject, SeglakeError, StoreError, VersionExpired
from seglake.layout import LOG_TABLE, TOMBSTONES
from seglake.limits import HOUR_MS
from seglake.store import Listed, Store


def expired_files(
    table: CatalogTable, never_named: UnreferencedFiles, before_ms: float
) -> list[Listed]:
    """Return the data files in the catalog table's folder that no retained version names.

    An object written after `before_ms` is skipped, because a commit may be about to name it. Raises
    StoreError.
    """
    return [
        item
        for kind in FILE_SCHEMAS
        for item in table.store.list(f"{LOG_TABLE}/kind={kind}")
        if item.modified_ms <= before_ms and not item.key.endswith(".tmp")
        and item.key in never_named
    ]  # fmt: skip


@dataclass(frozen=True)
class UnreferencedFiles(Container[str]):
    """The keys of all data files that no retained version names.

    This includes files that attempts write later, because the rows of such a file do not prove that
    its attempt is committed. `named` has the paths of the files that retained versions name.
    """

    named: Container[str]

    @staticmethod
    def from_table(
        table: CatalogTable, retention_hours: float | None = None, *, now_ms: float
    ) -> UnreferencedFiles:
        """Return the keys of the data files that no currently retained version names.

        Args:
            table: The catalog.
            retention_hours: The retention, by default the table's property. With a shorter
                retention, more versions are expired.
            now_ms: The time by the clock of storage.

        Raises:
            CorruptData: A commit is damaged.
            StoreError: Storage failed.
        """
        own_ms = table.handle.retention_ms()
        retention_ms = own_ms if retention_hours is None else retention_hours * HOUR_MS
        live = {file.path for file in table.newest_files()}
        known = removed_files(table.log).values()
        young = (each.paths for each in known if each.modified_ms > now_ms - retention_ms)
        return UnreferencedFiles(live.union(*young))

    def __contains__(self, key: object) -> bool:
        path = str(key).removeprefix(f"{LOG_TABLE}/")
        return path.startswith("kind=") and path not in self.named


def committed_attempts(store: Store) -> set[str]:
    """Return the attempts named by the commits and the rows of a catalog that may be damaged.

    Parts of the catalog that cannot be read are skipped. The rows are in the data files that the
    commits added, and in the files of the newest version.
    """
    attempt_ids, files = set[str](), set[DataFile]()
    for _, commit in DeltaLog(store, LOG_TABLE, CONTRACT).retained(skip_damaged=True):
        attempt_ids.update(filter(None, [commit.attempt_id]))
        with contextlib.suppress(CorruptData):
            files |= data_files(commit.added)
    with contextlib.suppress(SeglakeError):
        files |= CatalogTable(store).newest_files()
    for file in sorted(files):
        with contextlib.suppress(CorruptData, StoreError):
            attempt_ids |= attempts(store, [file])
    return attempt_ids


class RetainedRows(NamedTuple):
    """The rows of one data file.

    `committed` is whether a commit names the file. `live` is whether the newest version names it.
    """

    topic: str
    rows: pa.Table
    committed: bool
    live: bool = False


def retained_rows(
    table: CatalogTable, kind: Kind, expired: Container[str], never_named: Container[str] = ()
) -> Iterator[RetainedRows]:
    """Yield the rows of one kind that any retained version may have, one item per data file.

    All files of the newest version are included. Any other file is skipped if its key is in
    `expired`, and is not `committed` if its key is in `never_named`. Raises MissingObject at the
    end if a data file of the newest version does not exist.
    """
    needed = {f"{LOG_TABLE}/{file.path}" for file in table.newest_files() if file.kind == kind}
    for item in table.store.list(f"{LOG_TABLE}/kind={kind}"):
        live = item.key in needed
        if item.key.endswith(".parquet") and (live or item.key not in expired):
            topic = item.key.split("/")[3].removeprefix("topic=")
            committed = live or item.key not in never_named
            yield RetainedRows(
                topic, read_parquet(table.store, item.key, FILE_SCHEMAS[kind]), committed, live
            )
            needed.discard(item.key)
    for key in needed:
        raise MissingObject(f"{table.store.uri}/{key} does not exist")


def tagged_rows(table: CatalogTable, tags: Iterable[TagRow]) -> Iterator[RetainedRows]:
    """Yield the segment rows of the versions that tags name, one item per data file.

    A tag that is deleted in the meantime is skipped. Raises CorruptData and StoreError.
    """
    for tag in tags:
        with contextlib.suppress(VersionExpired), table.tags.reading(tag):
            for file in sorted(read_object(table.store, tag).files):
                if file.kind == "segment":
                    (rows,) = read_files(table.store, LOG_TABLE, [file])
                    yield RetainedRows(file.topic, rows, committed=True)


# ---------------- tombstones
# The removed-files list is one object with the files that each commit removed, so that a vacuum
# reads only the commits since the previous vacuum. It is a Zstandard frame with a checksum. Its
# first line has the number of commits. Each further line has a commit's version, its time by
# storage's clock, and the files that it removed. A line counts only for a commit with this version
# and time. A damaged list is ignored, and the next vacuum writes it again.

FORMAT = 1
_FEW = 100  # commits; up to this number of commits, they are read again and not listed
_log = logging.getLogger(__name__)


class RemovedFiles(NamedTuple):
    """The files that a commit removed, as paths below the table's folder.

    `modified_ms` is the time of the commit by storage's clock.
    """

    modified_ms: int
    paths: Collection[str]


def removed_files(log: DeltaLog) -> dict[int, RemovedFiles]:
    """Return the files that each retained commit removed, by version.

    Reads the commits that are not in the removed-files list. Raises CorruptData for a damaged
    commit, and StoreError.
    """
    there = dict(log.commit_times())
    found = _read_removed_files_list(log.store, there) if len(there) > _FEW else {}
    for commit in log.read(sorted(there.keys() - found.keys())):
        found[commit.version] = RemovedFiles(there[commit.version], commit.removed.keys())
    return found


def write_removed_files_list(log: DeltaLog) -> None:
    """Write the removed-files list if more than 100 retained commits are missing from it.

    Raises what `removed_files` raises.
    """
    there = dict(log.commit_times())
    if len(there) > _FEW and len(there) - len(_read_removed_files_list(log.store, there)) > _FEW:
        log.store.put(TOMBSTONES, _encode(removed_files(log)))


def _read_removed_files_list(store: Store, there: Mapping[int, int]) -> dict[int, RemovedFiles]:
    """Return the entries of the removed-files list for the commits `there` (version → ms)."""
    try:
        known = _parse(bytes(store.read_all(TOMBSTONES)))
    except MissingObject:
        return {}
    except (zstandard.ZstdError, ValueError, KeyError, TypeError) as error:
        _log.warning("%s cannot be read, so this vacuum writes it again: %r", TOMBSTONES, error)
        return {}
    return {version: each for version, each in known.items() if there.get(version) == each[0]}


def _encode(known: Mapping[int, RemovedFiles]) -> bytes:
    head = {"format": FORMAT, "commits": len(known)}
    rows = ([version, each.modified_ms, sorted(each.paths)] for version, each in known.items())
    text = "\n".join(map(json.dumps, [head, *rows]))
    return zstandard.ZstdCompressor(write_checksum=True).compress(text.encode())


def _parse(data: bytes) -> dict[int, RemovedFiles]:
    text = zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    head, *rows = map(json.loads, text.splitlines())
    if head != {"format": FORMAT, "commits": len(rows)}:
        raise ValueError(f"the header {head} does not describe {len(rows)} commits")
    pairs: list[Any] = [(version, RemovedFiles(ms, paths)) for version, ms, paths in rows]
    return dict(pairs)
