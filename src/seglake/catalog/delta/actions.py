"""Make the actions of a Delta commit, and parse commits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from seglake.clock import now_ms

Action = dict[str, Any]
Bounds = Mapping[str, tuple[int, int]]  # integer column → smallest and largest value
Names = Mapping[str, tuple[str, str]]  # text column → first and last value
Operation = Literal["WRITE", "REPLACE", "DELETE", "OPTIMIZE", "CREATE TABLE"]  # Delta's names
BEGINS = "seglake.begins"  # in the description of the first commit of a rebuilt table
FENCE = "seglake.fence"  # in the description of a fence that makes every earlier commit lose
_ENGINE = "Seglake"
# Files are chosen by the statistics of these columns. Only these are kept in memory, because there
# may be 100,000 files.
USED_STATISTICS = frozenset(
    {
        "partition", "base_offset", "end_offset", "min_timestamp", "max_timestamp", "record_count",
        "finished_at_ms", "run_id", "path",
    }
)  # fmt: skip

_Value = TypeVar("_Value", int, str)


class WrittenFile(NamedTuple):
    """A data file that is written and not yet committed.

    `path` is relative to the table's folder. `partition` has the value of each partition column.
    `stats` are Delta's statistics as JSON.
    """

    path: str
    size_bytes: int
    partition: dict[str, str]
    stats: str


class AddedFile(NamedTuple):
    """A data file that a commit adds.

    If `changes` is false, its rows were already in other files of the table. `bounds` and `names`
    have the smallest and largest values of the columns with statistics.
    """

    path: str
    size_bytes: int
    partition: dict[str, str]
    rows: int
    changes: bool
    bounds: Bounds
    names: Names


class DeltaCommit(NamedTuple):
    """A commit of a Delta table.

    `applications` has the version of each app transaction. `definition` has the protocol and the
    metadata that it sets. `removed` maps the path of each removed file to whether its removal
    changes rows. `operation` and `engine` are from its description. `fences` is true for a
    fence: its writer is about to delete files that a commit in progress may name. `begins` is true
    for the first commit of a rebuilt table, which follows no commit although its number is not 0.
    """

    version: int
    added: list[AddedFile]
    removed: dict[str, bool]
    applications: Mapping[str, int]
    token: str | None  # identifies the call that wrote the commit
    attempt_id: str | None  # the attempt that committed, if it was Seglake's
    definition: Mapping[str, Action]
    operation: str
    engine: str
    fences: bool = False
    begins: bool = False

    @property
    def is_ours(self) -> bool:
        """Return whether Seglake made the commit."""
        return self.engine == _ENGINE and self.token is not None

    @property
    def changes_rows(self) -> bool:
        """Return whether the commit changes the rows of the table."""
        return any(file.changes for file in self.added) or any(self.removed.values())

    @property
    def title(self) -> str:
        """Return the commit's number, operation and writer, for a message."""
        return f"commit {self.version}, {self.operation} by {self.engine}"

    def conflicts_with(self, other: DeltaCommit) -> bool:
        """Return whether `other` must fail because its writer did not read this commit."""
        shared = self.removed.keys() & other.removed.keys()
        stops_all = bool(self.definition) or self.fences
        return stops_all or bool(self.applications.keys() & other.applications.keys() or shared)


def add_action(file: WrittenFile, *, changes: bool = True) -> Action:
    """Return the action that adds a file. `changes` is false if its rows are not new."""
    where = {"path": file.path, "partitionValues": file.partition, "size": file.size_bytes}
    more = {"modificationTime": now_ms(), "dataChange": changes, "stats": file.stats}
    return {"add": {**where, **more}}


def remove_action(
    path: str, size: int, partition: Mapping[str, str], *, changes: bool = True
) -> Action:
    """Return the action that removes a file. `changes` is false if other files have its rows."""
    where = {"path": path, "partitionValues": partition, "size": size}
    more = {"deletionTimestamp": now_ms(), "dataChange": changes, "extendedFileMetadata": True}
    return {"remove": {**where, **more}}


def header_actions(
    operation: Operation,
    token: str,
    info: Mapping[str, str],
    applications: Iterable[str],
    version: int,
) -> list[Action]:
    """Return the first actions of a commit: its description and its app transactions.

    Args:
        operation: Delta's name of the operation.
        token: An id of the call that writes the commit.
        info: Further fields of the description.
        applications: The ids of the app transactions.
        version: The version of the app transactions.
    """
    parameters = {"mode": "Append"} if operation == "WRITE" else {}
    kind = {"operation": operation, "operationParameters": parameters}
    who = {"engineInfo": _ENGINE, "txnId": token}
    description = {"commitInfo": {"timestamp": now_ms(), **kind, **who, **info}}
    last: Action = {"version": version, "lastUpdated": now_ms()}
    return [description, *({"txn": {"appId": each, **last}} for each in applications)]


def parse_commit(version: int, lines: Iterable[Action]) -> DeltaCommit:
    """Parse the lines of a commit. Damaged lines raise Python's errors, such as KeyError."""
    actions = [(kind, action) for line in lines for kind, action in line.items()]
    added, removed, transactions, infos = (
        [action for kind, action in actions if kind == name]
        for name in ("add", "remove", "txn", "commitInfo")
    )
    info = infos[0] if infos else {}
    attempt = info.get("seglake.attempt")
    return DeltaCommit(
        version,
        list(map(_added, added)),
        {str(action["path"]): bool(action["dataChange"]) for action in removed},
        {str(action["appId"]): int(action["version"]) for action in transactions},
        info.get("txnId"),
        None if attempt is None else str(attempt),
        {kind: action for kind, action in actions if kind in ("metaData", "protocol")},
        str(info.get("operation", "an unnamed operation")),
        str(info.get("engineInfo", "an unnamed program")),
        FENCE in info,
        BEGINS in info,
    )


def checkpoint_actions(data: bytes) -> list[Action]:
    """Return the actions in a file of a checkpoint that `parse_commit` uses."""
    kinds = ("protocol", "metaData", "txn", "add")
    used = ["path", "size", "partitionValues", "dataChange", "stats"]
    columns = [*kinds[:3], *(f"add.{name}" for name in used)]
    table = pq.ParquetFile(pa.BufferReader(data)).read(columns)
    found = ((kind, table[kind].drop_null().to_pylist()) for kind in kinds)
    return [{kind: action} for kind, actions in found for action in actions]


def mark_first_commit(content: bytes) -> bytes:
    """Return the bytes of a commit with a mark that it is the first commit of a rebuilt table."""
    lines = list(map(json.loads, content.splitlines()))
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"][BEGINS] = "true"
    return "\n".join(map(json.dumps, lines)).encode()


def _added(action: Action) -> AddedFile:
    path, size = str(action["path"]), int(action["size"])
    changes = bool(action["dataChange"] or action.get("deletionVector"))
    stats = json.loads(action.get("stats") or "{}")
    partition = dict(action["partitionValues"])
    if not all(value is None or isinstance(value, str) for value in partition.values()):
        raise TypeError(f"a value in {partition} is not text")
    bounds, names = extents(stats, int), extents(stats, str)
    rows = int(stats.get("numRecords", 0))
    return AddedFile(path, size, partition, rows, changes, bounds, names)


def extents(stats: Mapping[str, Any], kind: type[_Value]) -> dict[str, tuple[_Value, _Value]]:
    """Return (smallest, largest) of each column of `USED_STATISTICS` with values of type `kind`."""
    lows, highs = stats.get("minValues", {}), stats.get("maxValues", {})
    return {
        name: (low, highs[name])
        for name, low in lows.items()
        if name in USED_STATISTICS and isinstance(low, kind) and isinstance(highs.get(name), kind)
    }


def definition_action(
    table_id: str,
    schema: str,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    created_ms: int,
) -> Action:
    """Return the action that sets the schema (Delta's JSON) and the properties of a table."""
    return {
        "metaData": {
            "id": table_id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": list(partition_by),
            "configuration": dict(properties),
            "createdTime": created_ms,
        }
    }
