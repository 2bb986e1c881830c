"""The actions of a Delta commit: spelled as JSON, and read back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from seglake.clock import now_ms

Action = dict[str, Any]
Bounds = Mapping[str, tuple[int, int]]  # the smallest and largest value of integer columns
Names = Mapping[str, tuple[str, str]]  # the first and last value of columns of text
Operation = Literal["WRITE", "REPLACE", "DELETE", "OPTIMIZE", "CREATE TABLE"]  # Delta's names
BEGINS = "seglake.begins"  # in the description of the first commit of a table that is created anew
FENCE = "seglake.fence"  # in the description of a commit that no commit under way may follow
_ENGINE = "Seglake"
# The columns whose statistics are kept in memory: files are chosen by them. There may be 100,000.
USED_STATISTICS = frozenset(
    {
        "partition", "base_offset", "end_offset", "min_timestamp", "max_timestamp", "record_count",
        "finished_at_ms", "run_id", "path",
    }
)  # fmt: skip

_Value = TypeVar("_Value", int, str)


class WrittenFile(NamedTuple):
    """A written data file, not yet committed; `path` is relative to the table's folder.

    `partition` has the value of each partition column, `stats` is Delta's JSON of statistics.
    """

    path: str
    size_bytes: int
    partition: dict[str, str]
    stats: str


class AddedFile(NamedTuple):
    """A data file that a commit adds; without `changes` the table had exactly its rows before.

    `bounds` and `names` have the columns with statistics.
    """

    path: str
    size_bytes: int
    partition: dict[str, str]
    rows: int
    changes: bool
    bounds: Bounds
    names: Names


class DeltaCommit(NamedTuple):
    """One commit. `removed` maps the path of each removed file to whether that changes rows.

    `operation` and `engine` are what its writer says of it. `fences` is true of a commit whose
    writer is about to delete files that a commit under way may name; `begins` of the first commit
    of a table that was created anew, which follows no other, whatever its number.
    """

    version: int
    added: list[AddedFile]
    removed: dict[str, bool]
    applications: set[str]
    token: str | None  # identifies the writer's call
    attempt_id: str | None  # of Seglake, whose commit it is
    redefines: bool  # changes the schema, the properties or the protocol
    operation: str
    engine: str
    fences: bool = False
    begins: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether Seglake made the commit."""
        return self.engine == _ENGINE and self.token is not None

    @property
    def changes_rows(self) -> bool:
        """Whether the table has other rows after the commit than before."""
        return any(file.changes for file in self.added) or any(self.removed.values())

    @property
    def title(self) -> str:
        """The commit's number, operation and writer."""
        return f"commit {self.version}, {self.operation} by {self.engine}"

    def is_in_the_way_of(self, other: DeltaCommit) -> bool:
        """Whether `other` cannot follow if its writer has not seen this commit."""
        shared = self.removed.keys() & other.removed.keys()
        stops_all = self.redefines or self.fences
        return stops_all or bool(self.applications & other.applications or shared)


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
    operation: Operation,
    token: str,
    info: Mapping[str, str],
    applications: Iterable[str],
    version: int,
) -> list[Action]:
    """The first actions of a commit: its description, and its applications' transactions."""
    parameters = {"mode": "Append"} if operation == "WRITE" else {}
    kind = {"operation": operation, "operationParameters": parameters}
    who = {"engineInfo": _ENGINE, "txnId": token}
    description = {"commitInfo": {"timestamp": now_ms(), **kind, **who, **info}}
    last: Action = {"version": version, "lastUpdated": now_ms()}
    return [description, *({"txn": {"appId": each, **last}} for each in applications)]


def parsed(version: int, lines: Iterable[Action]) -> DeltaCommit:
    """The commit with these lines. Damaged lines raise Python's errors, such as KeyError."""
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
        {str(action["appId"]) for action in transactions},
        info.get("txnId"),
        None if attempt is None else str(attempt),
        any(kind in ("metaData", "protocol") for kind, _ in actions),
        str(info.get("operation", "an unnamed operation")),
        str(info.get("engineInfo", "an unnamed program")),
        FENCE in info,
        BEGINS in info,
    )


def beginning(content: bytes) -> bytes:
    """The same commit, which says that it begins a table."""
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
    rows, bounds, names = (
        int(stats.get("numRecords", 0)),
        _extents(stats, int),
        _extents(stats, str),
    )
    return AddedFile(path, size, partition, rows, changes, bounds, names)


def _extents(stats: Mapping[str, Any], kind: type[_Value]) -> dict[str, tuple[_Value, _Value]]:
    """The statistics of the columns with values of a kind, those that are used."""
    lows, highs = stats.get("minValues", {}), stats.get("maxValues", {})
    return {
        name: (low, highs[name])
        for name, low in lows.items()
        if name in USED_STATISTICS and isinstance(low, kind) and isinstance(highs.get(name), kind)
    }


def redefinition(
    table_id: str,
    schema: str,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    created_ms: int,
) -> Action:
    """The action that gives a table this schema, Delta's JSON, and these properties."""
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
