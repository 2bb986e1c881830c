"""The commits of a Delta table, written and read by their numbers.

A commit is `_delta_log/<version, 20 digits>.json`, and whoever creates that object has made the
version: Delta asks no more of a writer of protocol 2. What is known of a version goes on with the
objects behind it, so nothing here lists the folder, which gets longer with every commit.

What came in between is looked at action by action: a commit passes it, unless it carries the same
application, removes a file that this one removes too, or changes what the table is.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from seglake.catalog.delta.data_files import read_at_once
from seglake.errors import CommitConflict, CorruptData, MissingObject
from seglake.limits import REQUESTS
from seglake.store import Store

Action = dict[str, Any]

CHECKPOINT_INTERVAL = 25
_ACTIONS_A_COMMIT = 250  # that a checkpoint may have to write for each commit since the last one
_A_DAY_MS = 86_400_000  # much less than commits are kept for
_VERSION = re.compile(r".*/(\d{20})\.(?:json|checkpoint\.parquet)")
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)


class Added(NamedTuple):
    """A file that is part of the table now; unless it `changes` something, its rows were before."""

    path: str
    size_bytes: int
    partition: dict[str, str]
    rows: int
    changes: bool


class Entry(NamedTuple):
    """A commit: the files that it adds, and the paths that it removes: if that changes rows."""

    version: int
    added: list[Added]
    removed: dict[str, bool]
    applications: set[str]
    token: str | None  # of its writer
    redefines: bool  # the schema, the properties or the protocol

    def is_in_the_way_of(self, other: Entry) -> bool:
        """Whether `other` cannot follow, if it does not know of this one."""
        shared = self.removed.keys() & other.removed.keys()
        return self.redefines or bool(self.applications & other.applications or shared)


class DeltaLog:
    """The log of the table in a folder of a store; the table must exist."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store, self._folder = store, f"{folder}/_delta_log"
        self.table_uri = f"{store.uri}/{folder}"

    def commit(
        self,
        base: int,
        actions: Iterable[Action],
        *,
        application: str | None = None,
        info: Mapping[str, str] | None = None,
    ) -> list[Entry]:
        """Append a commit that continues the version `base`, with `info` in its description.

        Returns the commits after `base`, this one last. Raises CommitConflict if one of the others
        is in the way, and StoreError; after either this one may be in, and its files must stay.
        """
        self._require_recent(base)
        token = str(uuid.uuid4())
        lines = [_info(token, info or {}), *_transaction(application, base + 1), *actions]
        data = "\n".join(map(json.dumps, lines)).encode()
        mine, between = _parsed(base, lines), list[Entry]()
        while not self._store.put_if_absent(self._key(base + 1 + len(between)), data):
            news = self.since(base + len(between))
            if news and news[0].token == token:  # the reply was lost
                return [*between, news[0]]
            if not news or any(entry.is_in_the_way_of(mine) for entry in news):
                raise CommitConflict(f"{self.table_uri} changed after version {base}")
            between += news
        return [*between, mine._replace(version=base + 1 + len(between))]

    def since(self, version: int, most: int = 2**63) -> list[Entry]:
        """The commits after a version, the first `most` of them at least; none if it is the newest.

        None also if they are gone with the version itself, see `has`. Raises CorruptData, and
        StoreError.
        """
        found: list[Entry] = []
        ahead = 1
        while len(found) < most:
            first = version + 1 + len(found)
            some = read_at_once(self._store, self._read, range(first, first + ahead))
            there = list(_without_gap(some))
            found += there
            if len(there) < ahead:
                break
            ahead = min(2 * ahead, REQUESTS)
        return found

    def has(self, version: int) -> bool:
        """Whether the commit that made a version is still there."""
        return self._age_ms(version) is not None

    def asks_for_checkpoint(self, version: int) -> bool:
        """Whether whoever made a version has to write a checkpoint.

        A checkpoint lists the files that were removed within the retention, too, so it grows with
        the commits of that time. It is written the more rarely: a commit's share stays the same.
        """
        if version % CHECKPOINT_INTERVAL:
            return False
        key = f"{self._folder}/_last_checkpoint"
        try:
            last = json.loads(bytes(self._store.read_all(key)))
            return bool(version - last["version"] >= last["size"] / _ACTIONS_A_COMMIT)
        except MissingObject:
            return True
        except _DAMAGE as error:
            raise CorruptData(f"this is not Delta's: {error!r}", file=key) from error

    def _require_recent(self, base: int) -> None:
        """CommitConflict if what follows `base` may be gone: its number must not be given again."""
        if self._is_recent(base):
            return
        found = (_VERSION.fullmatch(item.key) for item in self._store.list(self._folder))
        newest = max(int(match[1]) for match in found if match)
        if base != newest and not self._is_recent(base + 1):
            raise CommitConflict(f"{self.table_uri}: version {base} is too old to continue")

    def _is_recent(self, version: int) -> bool:
        age_ms = self._age_ms(version)
        return age_ms is not None and age_ms <= _A_DAY_MS

    def _age_ms(self, version: int) -> int | None:
        try:
            return _now_ms() - self._store.stat(self._key(version)).modified_ms
        except MissingObject:
            return None

    def _read(self, version: int) -> Entry | None:
        key = self._key(version)
        try:
            lines = bytes(self._store.read_all(key)).splitlines()
        except MissingObject:
            return None
        try:
            return _parsed(version, list(map(json.loads, lines)))
        except _DAMAGE as error:
            raise CorruptData(f"this is not a commit of Delta: {error!r}", file=key) from error

    def _key(self, version: int) -> str:
        return f"{self._folder}/{version:020}.json"


def _without_gap(some: Iterable[Entry | None]) -> Iterator[Entry]:
    """Those before the first that is missing: one behind it came since that was looked for."""
    for entry in some:
        if entry is None:
            return
        yield entry


def add(
    path: str, size: int, partition: Mapping[str, str], stats: str, *, changes: bool = True
) -> Action:
    """The action that makes a file part of the table; without `changes` it moves rows only."""
    file = {"path": path, "partitionValues": partition, "size": size}
    more = {"modificationTime": _now_ms(), "dataChange": changes, "stats": stats}
    return {"add": {**file, **more}}


def remove(path: str, size: int, partition: Mapping[str, str], *, changes: bool) -> Action:
    """The action that takes a file out of the table."""
    file = {"path": path, "partitionValues": partition, "size": size}
    more = {"deletionTimestamp": _now_ms(), "dataChange": changes, "extendedFileMetadata": True}
    return {"remove": {**file, **more}}


def _info(token: str, info: Mapping[str, str]) -> Action:
    kind = {"operation": "WRITE", "operationParameters": {"mode": "Append"}}
    who = {"engineInfo": "Seglake", "txnId": token}
    return {"commitInfo": {"timestamp": _now_ms(), **kind, **who, **info}}


def _transaction(application: str | None, version: int) -> list[Action]:
    if application is None:
        return []
    return [{"txn": {"appId": application, "version": version, "lastUpdated": _now_ms()}}]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _parsed(version: int, lines: Sequence[Action]) -> Entry:
    actions = [(kind, action) for line in lines for kind, action in line.items()]
    added, removed, transactions, infos = (
        [action for kind, action in actions if kind == wanted]
        for wanted in ("add", "remove", "txn", "commitInfo")
    )
    return Entry(
        version,
        list(map(_added, added)),
        {str(action["path"]): bool(action["dataChange"]) for action in removed},
        {str(action["appId"]) for action in transactions},
        infos[0].get("txnId") if infos else None,
        any(kind in ("metaData", "protocol") for kind, _ in actions),
    )


def _added(action: Action) -> Added:
    path, size, changes = str(action["path"]), int(action["size"]), bool(action["dataChange"])
    rows = json.loads(action.get("stats") or "{}").get("numRecords", 0)
    partition = dict(action["partitionValues"])
    if not all(value is None or isinstance(value, str) for value in partition.values()):
        raise TypeError(f"a value in {partition} is no text")
    return Added(path, size, partition, int(rows), changes)
