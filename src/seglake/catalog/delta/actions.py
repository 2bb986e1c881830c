"""The actions of a Delta commit: spelled as JSON, and read back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Action = dict[str, Any]


class WrittenFile(NamedTuple):
    """A written data file, not yet committed; `path` is relative to the table's folder.

    `partition` has the value of each partition column, `stats` is Delta's JSON of statistics.
    """

    path: str
    size_bytes: int
    partition: dict[str, str]
    stats: str


class AddedFile(NamedTuple):
    """A data file that a commit adds; without `changes` the table had its rows before."""

    path: str
    size_bytes: int
    partition: dict[str, str]
    rows: int
    changes: bool


class DeltaCommit(NamedTuple):
    """One commit. `removed` maps the path of each removed file to whether that changes rows."""

    version: int
    added: list[AddedFile]
    removed: dict[str, bool]
    applications: set[str]
    token: str | None  # identifies the writer's call
    attempt_id: str | None  # of Seglake, whose commit it is
    redefines: bool  # changes the schema, the properties or the protocol

    def is_in_the_way_of(self, other: DeltaCommit) -> bool:
        """Whether `other` cannot follow if its writer has not seen this commit."""
        shared = self.removed.keys() & other.removed.keys()
        return self.redefines or bool(self.applications & other.applications or shared)


def now_ms() -> int:
    """The clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def add(file: WrittenFile, *, changes: bool = True) -> Action:
    """The action that adds a file; without `changes` it only moves rows that the table has."""
    where = {"path": file.path, "partitionValues": file.partition, "size": file.size_bytes}
    more = {"modificationTime": now_ms(), "dataChange": changes, "stats": file.stats}
    return {"add": {**where, **more}}


def remove(path: str, size: int, partition: Mapping[str, str], *, changes: bool = True) -> Action:
    """The action that removes a file; without `changes` other files have its rows."""
    where = {"path": path, "partitionValues": partition, "size": size}
    more = {"deletionTimestamp": now_ms(), "dataChange": changes, "extendedFileMetadata": True}
    return {"remove": {**where, **more}}


def header(
    token: str, info: Mapping[str, str], application: str | None, version: int
) -> list[Action]:
    """The first actions of a commit: its description, and its application's transaction."""
    kind = {"operation": "WRITE", "operationParameters": {"mode": "Append"}}
    who = {"engineInfo": "Seglake", "txnId": token}
    description = {"commitInfo": {"timestamp": now_ms(), **kind, **who, **info}}
    transaction = {"txn": {"appId": application, "version": version, "lastUpdated": now_ms()}}
    return [description] if application is None else [description, transaction]


def parsed(version: int, lines: Iterable[Action]) -> DeltaCommit:
    """The commit with these lines. Damaged lines raise Python's errors, such as KeyError."""
    actions = [(kind, action) for line in lines for kind, action in line.items()]
    added, removed, transactions, infos = (
        [action for kind, action in actions if kind == wanted]
        for wanted in ("add", "remove", "txn", "commitInfo")
    )
    return DeltaCommit(
        version,
        list(map(_added, added)),
        {str(action["path"]): bool(action["dataChange"]) for action in removed},
        {str(action["appId"]) for action in transactions},
        infos[0].get("txnId") if infos else None,
        infos[0].get("seglake.attempt") if infos else None,
        any(kind in ("metaData", "protocol") for kind, _ in actions),
    )


def _added(action: Action) -> AddedFile:
    path, size, changes = str(action["path"]), int(action["size"]), bool(action["dataChange"])
    rows = json.loads(action.get("stats") or "{}").get("numRecords", 0)
    partition = dict(action["partitionValues"])
    if not all(value is None or isinstance(value, str) for value in partition.values()):
        raise TypeError(f"a value in {partition} is no text")
    return AddedFile(path, size, partition, int(rows), changes)
