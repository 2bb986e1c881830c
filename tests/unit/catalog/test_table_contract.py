"""Which definitions of a table Seglake accepts, and what it says of the others."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from seglake.catalog.delta.actions import DeltaCommit
from seglake.catalog.delta.table_contract import Definition, TableContract
from seglake.errors import CorruptData, UsageError

FIELDS: dict[str, Any] = {
    "kind": pa.string(), "size": pa.int64(), "part": pa.int32(), "raw": pa.binary(),
}  # fmt: skip
ROWS = pa.schema(FIELDS)
CONTRACT = TableContract("the catalog", ROWS, ["kind"], "Look after it")
RETENTION = {
    "delta.logRetentionDuration": "interval 30 days",
    "delta.deletedFileRetentionDuration": "interval 1 week",
}
PROPERTIES = {"seglake.format": "6", "seglake.lake": "e3b0c442", **RETENTION}


def _column(name: str, kind: str, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


COLUMNS = {
    "kind": _column("kind", "string"),
    "size": _column("size", "long"),
    "part": _column("part", "integer"),
    "raw": _column("raw", "binary"),
}
EXPECTED = Definition(1, 2, (), "", ["kind"], PROPERTIES)


def _check(
    changed: Definition = EXPECTED, others: Sequence[DeltaCommit] = (), **columns: Any
) -> None:
    found = {**COLUMNS, **columns}
    schema = {"type": "struct", "fields": [column for column in found.values() if column]}
    CONTRACT.check(changed._replace(schema=json.dumps(schema)), lambda: others, "catalog/log")


def test_what_seglake_creates__and_what_changes_nothing_for_it() -> None:
    _check()
    _check(EXPECTED._replace(writer=1))
    _check(note=_column("note", "string"), kind=_column("kind", "string", comment="of the row"))
    _check(EXPECTED._replace(properties={**PROPERTIES, "a": "b", "delta.appendOnly": "false"}))
    for retention in ("interval 1 day", "INTERVAL 36 HOURS", "interval 90000 minutes"):
        _check(_properties(log=retention, files="interval 24 hours"))


def _properties(log: str | None, files: str | None) -> Definition:
    both = {"delta.logRetentionDuration": log, "delta.deletedFileRetentionDuration": files}
    given = {**PROPERTIES, **both}.items()
    return EXPECTED._replace(properties={name: value for name, value in given if value is not None})


PROTOCOLS = [
    (1, 3, (), r"reader 1, writer 3 \(no named features\)"),
    (1, 4, (), r"reader 1, writer 4 \(no named"),
    (2, 5, (), r"reader 2, writer 5 \(no named"),
    (2, 2, (), r"reader 2, writer 2 \(no named"),
    (1, 7, ("rowTracking", "domainMetadata"), r"writer 7 \(domainMetadata, rowTracking\)"),
    (3, 7, ("deletionVectors",), r"reader 3, writer 7 \(deletionVectors\)"),
]


@pytest.mark.parametrize(("reader", "writer", "features", "named"), PROTOCOLS)
def test_a_protocol_beyond_ours__is_named(
    reader: int, writer: int, features: tuple[str, ...], named: str
) -> None:
    with pytest.raises(CorruptData, match=f"the catalog has .*{named}.*\\. Look after it"):
        _check(EXPECTED._replace(reader=reader, writer=writer, features=features))


INVARIANT: dict[str, Any] = {"delta.invariants": "{}"}
COLUMN_CHANGES: dict[str, dict[str, Any]] = {
    "has no column 'size'": {"size": None},
    "a column size of type string instead of long": {"size": _column("size", "string")},
    "NOT NULL on column part": {"part": _column("part", "integer", nullable=False)},
    "NOT NULL on column note": {"note": _column("note", "string", nullable=False)},
    "delta.invariants on column kind": {"kind": _column("kind", "string", **INVARIANT)},
    "an unreadable schema": {"note": {"name": "note"}},
}


@pytest.mark.parametrize("problem", COLUMN_CHANGES)
def test_a_column_that_is_not_as_it_was__is_named(problem: str) -> None:
    with pytest.raises(CorruptData, match=f"the catalog .*{problem}"):
        _check(**COLUMN_CHANGES[problem])


@pytest.mark.parametrize(
    ("log", "files"),
    [
        (None, "interval 1 day"),
        ("interval 30 days", None),
        ("interval 23 hours", "interval 1 hour"),
        ("interval 86399 seconds", "interval 1 hour"),
        ("interval 2 days", "interval 49 hours"),
        ("interval 30 fortnights", "interval 1 day"),
        ("30 days", "interval 1 day"),
        ("interval 1 week 3 days", "interval 1 day"),
    ],
)
def test_a_retention_that_gives_a_number_twice__is_named(
    log: str | None, files: str | None
) -> None:
    with pytest.raises(CorruptData, match=f"delta.logRetentionDuration = {log}, .*set both"):
        _check(_properties(log, files))


def test_other_properties_and_partitions() -> None:
    with pytest.raises(CorruptData, match=r"delta\.appendOnly.*. Set it to false"):
        _check(EXPECTED._replace(properties={**PROPERTIES, "delta.appendOnly": "TRUE"}))
    with pytest.raises(CorruptData, match=r"no property seglake\.format"):
        _check(EXPECTED._replace(properties={}))
    with pytest.raises(CorruptData, match=r"no property seglake\.lake"):
        _check(
            EXPECTED._replace(
                properties={k: v for k, v in PROPERTIES.items() if k != "seglake.lake"}
            )
        )
    with pytest.raises(CorruptData, match="is partitioned by nothing"):
        _check(EXPECTED._replace(partition_by=[]))


@pytest.mark.parametrize("version", ["1", "5", "6.1", "7"])
def test_a_lake_of_another_build_is_refused(version: str) -> None:
    with pytest.raises(UsageError, match=f"format = {version}, .*Ingest the inputs again"):
        _check(EXPECTED._replace(properties={**PROPERTIES, "seglake.format": version}))


def test_the_last_commit_that_redefined_the_table__is_named() -> None:
    def commit(version: int, operation: str, *, redefines: bool) -> DeltaCommit:
        return DeltaCommit(
            version, [], {}, {}, None, None, {"metaData": {}} if redefines else {}, operation,
            "Another/1",
        )  # fmt: skip

    others = [
        commit(9, "OPTIMIZE", redefines=False),
        commit(8, "SET TBLPROPERTIES", redefines=True),
        commit(7, "ADD COLUMNS", redefines=True),
    ]
    _check(others=others)
    with pytest.raises(CorruptData, match="after commit 8, SET TBLPROPERTIES by Another/1: the"):
        _check(EXPECTED._replace(writer=3), others)
