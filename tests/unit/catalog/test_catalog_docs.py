"""docs/catalog.md says what the code does: the columns of every kind, and SQL that runs."""

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from seglake.catalog.attempts import Manifest, write_manifest
from seglake.catalog.delta.table_contract import FORMAT
from seglake.catalog.quarantine import files as quarantine_files
from seglake.catalog.schema import FILE_SCHEMAS, TABLE_SCHEMA, Kind, SegmentId
from seglake.config import combined_topic
from seglake.config.topic import DEFAULTS, IDENTITY
from seglake.layout import manifest_key, new_attempt
from seglake.store import open_store
from tests.makers.lakes import Event, LakeMaker, open_catalog
from tests.makers.strategies import topic_of

PAGE = (Path(__file__).parents[3] / "docs/catalog.md").read_text()
QUERIES = re.findall(r"```sql\n(.+?)```", PAGE, re.DOTALL)


def _documented(kind: str) -> list[str]:
    """The names in the first column of the table below **`kind`**."""
    section = PAGE.partition(f"**`{kind}`**")[2]
    table = re.search(r"\|---\|---\|\n((?:\|.*\n)+)", section)
    assert table is not None
    return [name for line in table[1].splitlines() for name in _names(line.split("|")[1])]


def _names(cell: str) -> list[str]:
    return re.findall(r"`([a-z0-9_]+)`", cell)


@pytest.mark.parametrize("kind", FILE_SCHEMAS)
def test_every_column_is_documented_and_exists(kind: Kind) -> None:
    assert sorted(_documented(kind)) == sorted(FILE_SCHEMAS[kind].names)


def _section(title: str) -> list[str]:
    """The names in the first column of the table of a section."""
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return [name for line in section.splitlines() if line.startswith("| `")
            for name in _names(line.split("|")[1])]  # fmt: skip


def test_every_column_of_the_quarantine_is_documented() -> None:
    assert _section("Quarantine") == quarantine_files.SCHEMA.names


def test_every_name_of_a_manifest_is_documented(tmp_path: Path) -> None:
    attempt = new_attempt()
    store = open_store(str(tmp_path))
    replaced = SegmentId("events", 0, 7, attempt, attempt)
    write_manifest(store, Manifest(attempt, [], [replaced]))
    written = json.loads(bytes(store.read_all(manifest_key(attempt))))
    assert _section("Manifests") == list(written)
    (line,) = [line for line in PAGE.splitlines() if line.startswith("| `replaced`")]
    assert _names(line.split("|")[2]) == list(written["replaced"][0])


def test_every_setting_of_a_topic_row_is_documented() -> None:
    told = PAGE.partition("`settings` is one JSON object")[2].partition("\n\n")[0]
    names = {name for name in re.findall(r"`([a-z.]+)`", told) if "." in name}
    identity = {name.replace("_", ".") for name in IDENTITY} | IDENTITY
    assert names == DEFAULTS.keys() - identity
    said = {"cleanup.policy": "compact", "retention.ms": 5}
    stored = combined_topic({}, {"name": "events", **said}).settings
    assert stored == {**topic_of().settings, **said}


def test_types_are_those_that_the_page_names() -> None:
    types = {field.name: str(field.type) for field in TABLE_SCHEMA}
    assert {name for name, found in types.items() if found == "int32"} == {
        "partition",
        "partitions",
    }
    assert set(types.values()) == {"int32", "int64", "string"}
    assert f"`seglake.format` is {FORMAT}." in PAGE


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    maker = LakeMaker(tmp_path_factory.mktemp("lake"), partitions=2)
    maker.run({0: [Event(1500), Event(990)], 1: [Event(5)]})
    maker.run({0: [Event(2500)]})
    files = DeltaTable(str(maker.root / "catalog/log")).file_uris()
    connection = duckdb.connect()
    connection.from_parquet(files, hive_partitioning=True, union_by_name=True).create_view("log")
    assert len(open_catalog(str(maker.root)).snapshot().topics()) == 1
    return connection


EXPECTED = [[("events", 3, 4)], [(0, 0, 2)], [("test", "run 0", 3, 3), ("test", "run 1", 1, 1)]]


def test_there_are_as_many_queries_as_answers() -> None:
    assert len(QUERIES) == len(EXPECTED)


@pytest.mark.parametrize("number", range(len(EXPECTED)))
def test_queries_give_what_they_promise(log: duckdb.DuckDBPyConnection, number: int) -> None:
    expected: Any = EXPECTED[number]
    found = log.execute(QUERIES[number]).fetchall()
    assert [row[: len(expected[0])] for row in found] == expected
    assert all(value is not None for row in found for value in row)
