"""Rows of runs and of input files are found by name, and few files are read for it."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog.delta import data_files
from seglake.catalog.delta.data_files import (
    DataFile,
    filter_size,
    has_any,
    hashes,
    load_filter,
    may_have,
    name_filter,
    read_files,
    write_file,
)
from seglake.catalog.schema import Row, file_table
from seglake.catalog.table import CatalogTable
from seglake.catalog.version import snapshot_files
from seglake.catalog.version.snapshot import Snapshot
from seglake.layout import LOG_TABLE, manifest_key
from seglake.store import open_store
from tests.harness.damaged import flipped
from tests.makers.catalog_rows import new_attempt, run, source, topic
from tests.makers.lakes import create_catalog, open_catalog
from tests.makers.strategies import examples

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=4) | st.sampled_from(
    ["in/a", "in/b", "in/ä", "in/\U0010ffff", "x" * 1024, "x" * 1025]
)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files have filters, too, and these are asked."""
    monkeypatch.setattr(data_files, "_FEW", 1)
    monkeypatch.setattr(data_files, "_SMALL", 0)


def _sources(paths: list[str]) -> list[Row]:
    return [source(path) for path in paths]


@given(st.lists(names, min_size=1, max_size=20), st.lists(names, min_size=1, max_size=6))
@examples(200)
def test_no_name_that_is_there_is_missed(there: list[str], asked: list[str]) -> None:
    known = load_filter(name_filter(hashes(there)), len(there))
    assert known is not None
    assert has_any(known, hashes(asked)) == (not set(asked).isdisjoint(there))


def test_a_changed_bit_or_another_length_is_no_filter() -> None:
    good = name_filter(hashes(["a", "b", "b"]))
    assert len(good) == filter_size(3)
    assert load_filter(good, 3) is not None
    for bit in range(8):
        for bad in flipped(good, range(len(good)), [bit]):
            assert load_filter(bad, 3) is None
    for rows in (0, 2, 4):
        assert load_filter(good, rows) is None
        assert load_filter(good[: filter_size(rows)], rows) is None


@given(st.lists(st.lists(names, min_size=1, max_size=5), min_size=1, max_size=8), st.data())
@examples(40)
def test_rows_are_found_by_name_as_among_all(
    tmp_path_factory: pytest.TempPathFactory, commits: list[list[str]], data: st.DataObject
) -> None:
    """The judge reads all rows; the catalog is refreshed, or opened again with a checkpoint."""
    root = str(tmp_path_factory.mktemp("lake"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(data_files, "_FEW", data.draw(st.sampled_from([1, 4])))
        patched.setattr(data_files, "_SMALL", 0)
        patched.setattr("seglake.catalog.delta.file_merges.FAN_IN", 2)
        patched.setattr("seglake.catalog.delta.file_merges.ENOUGH_ROWS", 4)
        catalog = create_catalog(root)
        seen = catalog.snapshot()
        for number, some in enumerate(commits):
            rows: list[Row] = [] if number else [topic()]
            rows += [run(name, new_attempt(), sequence=number) for name in set(some)]
            attempt = new_attempt()
            catalog.commit([*rows, *_sources(some)], topic="orders", base=seen, attempt_id=attempt)
            seen = catalog.refresh(seen)
        if data.draw(st.booleans()):
            DeltaTable(f"{root}/catalog/log").create_checkpoint()
            catalog = open_catalog(root)
            seen = catalog.snapshot()
        asked = data.draw(st.lists(names, max_size=4))
        _compare(catalog, seen, asked)


def _compare(catalog: CatalogTable, seen: Snapshot, asked: list[str]) -> None:
    whole = catalog.sources(seen, "orders")
    wanted = whole.filter(pc.is_in(whole["path"], pa.array(asked, pa.string())))
    found = catalog.sources_at(seen, "orders", asked)
    assert Counter(found["path"].to_pylist()) == Counter(wanted["path"].to_pylist())
    for name in asked:
        rows = [row for row in catalog.run_history(seen, "orders") if row.run_id == name]
        after = max((row.sequence + 1 for row in rows), default=0)
        assert catalog.next_sequence(seen, "orders", "daily", name) == after
        newest = max(rows, key=lambda row: row.sequence, default=None)
        assert catalog.run(seen, "orders", "daily", name) == newest
        assert catalog.run(seen, "orders", "hourly", name) is None


@pytest.mark.usefixtures("always")
def test_a_file_with_a_filter_is_read_by_everyone(tmp_path: Path) -> None:
    store, rows = open_store(str(tmp_path)), file_table(_sources(["b", "a", "c"]))
    written = write_file(store, "log", "source", "orders", rows)
    path = tmp_path / "log" / written.path
    assert path.read_bytes()[4:12] == b"SEGNAMES"
    file = DataFile(written.path, "source", "orders", written.size_bytes, 3)
    assert read_files(store, "log", [file]) == [rows]
    found = duckdb.connect().execute(f"SELECT path FROM read_parquet('{path}')").fetchall()
    assert found == [("b",), ("a",), ("c",)]


@pytest.mark.usefixtures("always")
def test_a_damaged_filter_is_not_asked(tmp_path: Path) -> None:
    """And the file, which is read instead, is known to be damaged."""
    store, rows = open_store(str(tmp_path)), file_table(_sources(["a", "c"]))
    written = write_file(store, "log", "source", "orders", rows)
    file = DataFile(
        written.path, "source", "orders", written.size_bytes, 2, names={"path": ("a", "c")}
    )
    asked = hashes(["b"])
    assert not may_have(store, "log", file, "path", asked)
    path = tmp_path / "log" / file.path
    good = path.read_bytes()
    for bad in flipped(good, range(4, 4 + filter_size(2)), [0]):
        path.write_bytes(bad)
        assert may_have(store, "log", file, "path", asked)


def test_only_statistics_of_our_own_files_are_trusted() -> None:
    told = {"path": ("b", "d")}
    for path, known in (("x-0123abcd.parquet", True), ("part-0.snappy.parquet", False)):
        file = DataFile(path, "source", "orders", 1, 1, names=told)
        assert file.may_name("path", ["a", "c"])
        assert file.may_name("path", ["b"])
        assert file.may_name("path", ["d"])
        assert file.may_name("path", ["a", "e"]) != known
        assert not file.may_name("path", [])
        assert file.may_name("run_id", ["z"])  # it has no statistics of that


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("kind", ["ascending", "random"])
def test_what_a_new_name_costs(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing if it comes after all others; else a filter of each file, and no row."""
    read = list[Any]()

    def noted(_store: Any, _folder: str, files: list[DataFile]) -> Iterator[pa.Table]:
        read.extend(files)
        raise AssertionError(f"rows of {files} are read")

    catalog = create_catalog(str(tmp_path))
    seen = catalog.snapshot()
    order = list(range(64))
    if kind == "random":
        random.Random(1).shuffle(order)
    for number, name in enumerate(order[:60]):
        rows: list[Row] = [] if number else [topic()]
        rows += [source(f"in/{name:03}"), run(f"{name:03}", attempt := new_attempt())]
        catalog.commit(rows, topic="orders", base=seen, attempt_id=attempt)
        seen = catalog.refresh(seen)
    catalog = open_catalog(str(tmp_path))
    seen, new = catalog.snapshot(), order[60:]
    monkeypatch.setattr(snapshot_files, "read_files", noted)
    if kind == "ascending":
        monkeypatch.setattr(snapshot_files, "may_have", noted)
    assert not len(catalog.sources_at(seen, "orders", [f"in/{name:03}" for name in new]))
    assert not any(catalog.next_sequence(seen, "orders", "daily", f"{n:03}") for n in new)
    assert not read


def test_a_choice_of_statistics_stays(tmp_path: Path) -> None:
    create_catalog(str(tmp_path))
    key, place = "delta.dataSkippingNumIndexedCols", f"{tmp_path}/{LOG_TABLE}"
    assert DeltaTable(place).metadata().configuration[key] == "-1"
    DeltaTable(place).alter.set_table_properties({key: "32"})
    own = open_catalog(str(tmp_path))
    own.commit([topic()], topic="orders", base=own.snapshot(), attempt_id=new_attempt())
    assert DeltaTable(place).metadata().configuration[key] == "32"  # it was somebody's choice


def test_the_files_of_an_attempt_are_those_of_its_manifest(tmp_path: Path) -> None:
    catalog, attempt = create_catalog(str(tmp_path)), new_attempt()
    rows: list[Row] = [topic(), source("in/a", attempt), source("in/b", attempt), source("in/c")]
    catalog.commit(rows, topic="orders", base=catalog.snapshot(), attempt_id=attempt)
    seen, own = catalog.snapshot(), run("1", attempt)
    assert catalog.source_paths(seen, own) == {"in/a", "in/b"}
    manifest = tmp_path / manifest_key(attempt)
    manifest.write_text("{")
    assert catalog.source_paths(seen, own) == {"in/a", "in/b"}
    manifest.unlink()
    assert catalog.source_paths(seen, own) == {"in/a", "in/b"}


def test_an_attempt_is_found_by_the_time_of_its_row(tmp_path: Path) -> None:
    catalog, seen = create_catalog(str(tmp_path)), Snapshot(-1, frozenset(), {}, {})
    attempts = [new_attempt() for _ in range(4)]
    for number, attempt in enumerate(attempts):
        rows: list[Row] = [] if number else [topic()]
        rows += [run(str(number), attempt, finished_at_ms=10 * number)]
        catalog.commit(rows, topic="orders", base=catalog.snapshot(), attempt_id=attempt)
    seen = open_catalog(str(tmp_path)).snapshot()
    for number, attempt in enumerate(attempts):
        assert catalog.has_commit(seen, "orders", attempt)
        assert catalog.has_commit(seen, "orders", attempt, {10 * number, 7})
        assert not catalog.has_commit(seen, "orders", attempt, {10 * number + 1})
        assert not catalog.has_commit(seen, "orders", new_attempt(), {10 * number})
