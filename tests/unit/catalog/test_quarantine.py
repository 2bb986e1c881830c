"""Quarantined rows count only once their run is in."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from seglake.catalog.delta.actions import WrittenFile
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.quarantine.files import FILE_SCHEMA, only_attempt, write_rejects
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.schema import Row
from seglake.catalog.table import CatalogTable
from seglake.errors import UsageError
from seglake.layout import QUARANTINE_TABLE
from seglake.store import Store, open_store
from tests.harness.meanwhile import before_first
from tests.harness.processes import race_of
from tests.makers.catalog_rows import ATTEMPT, new_attempt, run, topic
from tests.makers.lakes import create_catalog


def _rows(attempt: str, lines: list[int]) -> pa.Table:
    rows = [
        {
            "attempt_id": attempt,
            "source_file": "in/a.jsonl",
            "line": line,
            "reason": "no timestamp",
            "raw": b"\xff{",
            "ingested_at_ms": 5,
        }
        for line in lines
    ]
    return pa.Table.from_pylist(rows, FILE_SCHEMA)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def _counted(catalog: CatalogTable, quarantine: QuarantineTable, name: str) -> list[int]:
    attempts = [run.attempt_id for run in catalog.runs(catalog.snapshot(), name)]
    tables = quarantine.read(name, attempts)
    lines: list[Any] = [line for table in tables for line in table["line"].to_pylist()]
    return sorted(lines)


def test_rows__count_once_a_run_names_their_attempt(store: Store) -> None:
    catalog = create_catalog(store.uri)
    quarantine = QuarantineTable(store)
    assert _counted(catalog, quarantine, "orders") == []
    good, failed = new_attempt(), new_attempt()
    parts = [write_rejects(store, "orders", good, _rows(good, lines)) for lines in ([1, 2], [7])]
    quarantine.add_files(parts, good)
    quarantine.add_files([write_rejects(store, "orders", failed, _rows(failed, [3]))], failed)
    assert _counted(catalog, quarantine, "orders") == []
    rows: list[Row] = [topic(), run("r", good, quarantined=3)]
    catalog.commit(rows, topic="orders", base=catalog.snapshot(), attempt_id=good)
    assert _counted(catalog, quarantine, "orders") == [1, 2, 7]
    assert _counted(catalog, quarantine, "other") == []


def test_parts_of_dead_attempts__are_not_read_and_can_be_removed(store: Store) -> None:
    catalog, quarantine = create_catalog(store.uri), QuarantineTable(store)
    quarantine.remove_files({"no table yet"})
    good, dead = new_attempt(), new_attempt()
    parts = [write_rejects(store, "orders", each, _rows(each, [1])) for each in (good, dead)]
    keys = [f"catalog/quarantine/{part.path}" for part in parts]
    assert [only_attempt(key) for key in keys] == [good, dead]
    for part, attempt in zip(parts, (good, dead), strict=True):
        quarantine.add_files([part], attempt)
    rows: list[Row] = [topic(), run("r", good)]
    catalog.commit(rows, topic="orders", base=catalog.snapshot(), attempt_id=good)
    store.put(keys[1], b"damaged")
    assert _counted(catalog, quarantine, "orders") == [1]
    quarantine.remove_files({keys[1], "catalog/quarantine/topic=orders/nothing.parquet"})
    assert DeltaTable(f"{store.uri}/catalog/quarantine").file_uris() == [f"{store.uri}/{keys[0]}"]
    assert _counted(catalog, quarantine, "orders") == [1]
    quarantine.remove_files({keys[1]})  # it is out already
    assert DeltaTable(f"{store.uri}/catalog/quarantine").file_uris() == [f"{store.uri}/{keys[0]}"]


@pytest.mark.parametrize(
    "path", ["topic=orders/part-0.parquet", f"topic=orders/{ATTEMPT}.parquet", f"{ATTEMPT}", ""]
)
def test_attempt_of__another_writers_file(path: str) -> None:
    assert only_attempt(path) is None


def test_parts__are_added_once_however_often_they_are_given(store: Store) -> None:
    catalog = create_catalog(store.uri)
    quarantine = QuarantineTable(store)
    parts = [write_rejects(store, "orders", ATTEMPT, _rows(ATTEMPT, [1, 2]))]
    for _ in range(2):
        quarantine.add_files(parts, ATTEMPT)
    parts.append(write_rejects(store, "orders", ATTEMPT, _rows(ATTEMPT, [3])))
    quarantine.add_files(parts, ATTEMPT)
    rows: list[Row] = [topic(), run("r", ATTEMPT)]
    catalog.commit(rows, topic="orders", base=catalog.snapshot(), attempt_id=ATTEMPT)
    assert _counted(catalog, quarantine, "orders") == [1, 2, 3]


def _quarantine(root: str, attempt: str) -> None:
    store, quarantine = open_store(root), QuarantineTable(open_store(root))
    for line in range(4):
        quarantine.add_files(
            [write_rejects(store, "orders", attempt, _rows(attempt, [line]))], attempt
        )


@pytest.mark.slow
def test_runs_that_add_at_once__all_succeed(store: Store) -> None:
    """The table does not exist before: all of them want to create it, too."""
    catalog, attempts = create_catalog(store.uri), [new_attempt() for _ in range(4)]
    race_of(_quarantine, [(store.uri, attempt) for attempt in attempts])
    rows: list[Row] = [topic(), *(run(attempt, attempt) for attempt in attempts)]
    catalog.commit(rows, topic="orders", base=catalog.snapshot(), attempt_id=attempts[0])
    assert _counted(catalog, QuarantineTable(store), "orders") == sorted([0, 1, 2, 3] * 4)


def test_a_commit_that_comes_first__is_passed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, quarantine = create_catalog(store.uri), QuarantineTable(store)
    first, second = new_attempt(), new_attempt()
    part = write_rejects(store, "orders", first, _rows(first, [1]))
    before_first(monkeypatch, DeltaLog, "commit", partial(quarantine.add_files, [part], first))
    quarantine.add_files([write_rejects(store, "orders", second, _rows(second, [2]))], second)
    rows: list[Row] = [topic(), run("1", first), run("2", second)]
    catalog.commit(rows, topic="orders", base=catalog.snapshot(), attempt_id=first)
    assert _counted(catalog, quarantine, "orders") == [1, 2]


def test_part__says_what_was_written(store: Store) -> None:
    part = write_rejects(store, "orders", ATTEMPT, _rows(ATTEMPT, [1, 2]))
    assert isinstance(part, WrittenFile)
    assert json.loads(part.stats)["numRecords"] == 2
    assert part.path.startswith(f"topic=orders/{ATTEMPT}-")
    assert store.size(f"catalog/quarantine/{part.path}") == part.size_bytes


def test_part__cannot_leave_its_folder(store: Store) -> None:
    with pytest.raises(UsageError):
        write_rejects(store, "../x", ATTEMPT, _rows(ATTEMPT, [1]))
    with pytest.raises(UsageError):
        write_rejects(store, "orders", "../x", _rows(ATTEMPT, [1]))


def test_a_file_that_is_named_just_before_the_fence__goes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence came after the commit that named it, and left it in the table."""
    quarantine, dead = QuarantineTable(store), new_attempt()
    parts = [write_rejects(store, "orders", each, _rows(each, [1])) for each in (ATTEMPT, dead)]
    quarantine.add_files(parts[:1], ATTEMPT)
    late = partial(QuarantineTable(store).add_files, parts[1:], dead)
    before_first(monkeypatch, DeltaLog, "commit", late)
    quarantine.remove_files({f"{QUARANTINE_TABLE}/{parts[1].path}"})
    assert quarantine.all_keys("orders") == [f"{QUARANTINE_TABLE}/{parts[0].path}"]
