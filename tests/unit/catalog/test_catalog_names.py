"""Rows of runs and of input files are found by name, and few files are read for it."""

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog import rows as catalog_rows
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
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import CorruptData, UnknownTopic, VersionExpired
from seglake.layout import LOG_TABLE, manifest_key, new_attempt
from seglake.read.lake import Lake
from seglake.store import open_store
from tests.harness.counting import CountingStore
from tests.harness.damaged import flipped
from tests.harness.tiers import rest_but
from tests.makers.catalog_rows import append, commit_rows, drop_first, run, source, topic
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
            commit_rows(catalog, [*rows, *_sources(some)], base=seen, attempt_id=attempt)
            seen = catalog.refresh(seen)
        if data.draw(st.booleans()):
            DeltaTable(f"{root}/catalog/log").create_checkpoint()
            catalog = open_catalog(root)
            seen = catalog.snapshot()
        asked = data.draw(st.lists(names, max_size=4))
        _compare(catalog, seen, asked)


def _compare(catalog: CatalogTable, seen: Snapshot, asked: list[str]) -> None:
    whole = catalog.rows.all(seen, "source", "orders")
    wanted = whole.filter(pc.is_in(whole["path"], pa.array(asked, pa.string())))
    found = catalog.rows.sources_at(seen, "orders", asked)
    assert Counter(found["path"].to_pylist()) == Counter(wanted["path"].to_pylist())
    for name in asked:
        rows = [row for row in catalog.rows.run_history(seen, "orders") if row.run_id == name]
        own = catalog.rows.run_rows(seen, "orders", "daily", name)
        assert sorted(own, key=str) == sorted(rows, key=str)
        newest = max(rows, key=lambda row: row.sequence, default=None)
        assert catalog.rows.run(seen, "orders", "daily", name) == newest
        assert catalog.rows.run(seen, "orders", "hourly", name) is None


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
        commit_rows(catalog, rows, base=seen, attempt_id=attempt)
        seen = catalog.refresh(seen)
    catalog = open_catalog(str(tmp_path))
    seen, new = catalog.snapshot(), order[60:]
    monkeypatch.setattr(catalog_rows, "read_files", noted)
    if kind == "ascending":
        monkeypatch.setattr(catalog_rows, "may_have", noted)
    assert not len(catalog.rows.sources_at(seen, "orders", [f"in/{name:03}" for name in new]))
    assert not any(catalog.rows.run_rows(seen, "orders", "daily", f"{n:03}") for n in new)
    assert not read


def test_a_choice_of_statistics_stays(tmp_path: Path) -> None:
    create_catalog(str(tmp_path))
    key, place = "delta.dataSkippingNumIndexedCols", f"{tmp_path}/{LOG_TABLE}"
    assert DeltaTable(place).metadata().configuration[key] == "-1"
    DeltaTable(place).alter.set_table_properties({key: "32"})
    own = open_catalog(str(tmp_path))
    commit_rows(own, [topic()])
    assert DeltaTable(place).metadata().configuration[key] == "32"  # it was somebody's choice


def test_the_files_of_an_attempt_are_those_of_its_manifest(tmp_path: Path) -> None:
    catalog, attempt = create_catalog(str(tmp_path)), new_attempt()
    rows: list[Row] = [topic(), source("in/a", attempt), source("in/b", attempt), source("in/c")]
    commit_rows(catalog, rows, attempt_id=attempt)
    seen, own = catalog.snapshot(), run("1", attempt)
    assert catalog.rows.source_paths(seen, own) == {"in/a", "in/b"}
    manifest = tmp_path / manifest_key(attempt)
    manifest.write_text("{")
    assert catalog.rows.source_paths(seen, own) == {"in/a", "in/b"}
    manifest.unlink()
    assert catalog.rows.source_paths(seen, own) == {"in/a", "in/b"}


def test_an_attempt_is_found_by_the_time_of_its_row(tmp_path: Path) -> None:
    catalog, seen = create_catalog(str(tmp_path)), Snapshot(-1, frozenset(), {}, {})
    attempts = [new_attempt() for _ in range(4)]
    for number, attempt in enumerate(attempts):
        rows: list[Row] = [] if number else [topic()]
        rows += [run(str(number), attempt, finished_at_ms=10 * number)]
        commit_rows(catalog, rows, attempt_id=attempt)
    seen = open_catalog(str(tmp_path)).snapshot()
    for number, attempt in enumerate(attempts):
        assert catalog.rows.has_commit(seen, "orders", attempt)
        assert catalog.rows.has_commit(seen, "orders", attempt, {10 * number, 7})
        assert not catalog.rows.has_commit(seen, "orders", attempt, {10 * number + 1})
        assert not catalog.rows.has_commit(seen, "orders", new_attempt(), {10 * number})


# Topics of a version are read when they are asked for, and say what they say read at once.

NAMES = ["a", "b", "c", "d", "e"]


def _append(table: CatalogTable, name: str) -> None:
    """Five more records of a topic, which may be new."""
    append(table, table.snapshot(), 5, name)


def _said(snapshot: Snapshot, name: str) -> Any:
    """All that a version says of a topic."""
    row = snapshot.find_topic(name)
    views = [
        (view.log_start_offset, view.end_offset, view.sequence,
         [view.segment(at) for at in range(len(view))])
        for view in snapshot.find_partitions(name)
    ]  # fmt: skip
    return row, views


def _all(snapshot: Snapshot) -> Any:
    return snapshot.version, snapshot.names(), [_said(snapshot, name) for name in NAMES]


def _lake(root: Path, topics: int) -> str:
    table = create_catalog(str(root))
    for number in range(topics):
        _append(table, f"t-{number:03}")
    return str(root)


steps = st.one_of(
    st.tuples(st.sampled_from(["append", "append", "cut", "ask"]), st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(["refresh", "open"]), st.lists(st.sampled_from(NAMES), max_size=2)),
)


@given(st.lists(steps, max_size=14))
@examples(40)
def test_a_version_says_the_same_however_it_is_read(
    tmp_path_factory: pytest.TempPathFactory, done: list[tuple[str, Any]]
) -> None:
    """The judge is a version that is read at once."""
    table = create_catalog(str(tmp_path_factory.mktemp("lake")))
    seen, wanted = table.snapshot(topics=()), table.snapshot()
    for step, what in done:
        if step == "append":
            _append(table, what)
        elif step == "cut":
            base = table.snapshot()
            view = base.find_partition(what, 0)
            if view is not None and len(view):
                drop_first(table, base, what)
        elif step == "ask":
            assert _said(seen, what) == _said(wanted, what)
        else:
            seen = table.refresh(seen) if step == "refresh" else table.snapshot(topics=what)
            wanted = table.snapshot()
            assert seen.names() == [row.topic for row in wanted.topics()]
    assert _all(seen) == _all(wanted)
    assert [row.topic for row in seen.topics()] == seen.names()


def _reads(root: str, names: list[str]) -> int:
    """The requests for data files, of a lake of which some topics are read."""
    store = CountingStore(open_store(root))
    lake = Lake(store)
    before = store.counts.requests
    for name in names:
        assert lake.topic(name).end_offsets() == {0: 5, 1: 0}
    return store.counts.requests - before


@pytest.mark.parametrize("topics", rest_but([8, 40], 8))
def test_one_topic_costs_the_same_in_any_lake(tmp_path: Path, topics: int) -> None:
    root = _lake(tmp_path, topics)
    assert _reads(root, ["t-003"]) == 2  # its settings, and its segments
    assert _reads(root, ["t-003", "t-000", "t-003"]) == 4
    assert _reads(root, [f"t-{number:03}" for number in range(topics)]) == 2 * topics


def test_an_open_reads_no_rows(tmp_path: Path) -> None:
    root = _lake(tmp_path, 3)
    for path in (tmp_path / "catalog/log").glob("kind=*/**/*.parquet"):
        path.write_bytes(b"")
    lake = Lake(open_store(root))
    assert lake.topics() == ["t-000", "t-001", "t-002"]
    with pytest.raises(CorruptData):
        lake.topic("t-000")
    with pytest.raises(UnknownTopic, match="Did you mean 't-001'"):
        lake.topic("t-0001")


def test_a_damaged_topic_leaves_the_others_alone(tmp_path: Path) -> None:
    root = _lake(tmp_path, 4)
    for path in (tmp_path / "catalog/log").glob("kind=segment/topic=t-002/*.parquet"):
        path.write_bytes(b"")
    lake = Lake(open_store(root))
    for name in ("t-000", "t-001", "t-003"):
        assert lake.topic(name).end_offsets() == {0: 5, 1: 0}
    with pytest.raises(CorruptData):
        lake.topic("t-002")
    with pytest.raises(CorruptData):
        open_catalog(root).snapshot()


def test_a_topic_that_a_vacuum_took_is_of_an_expired_version(tmp_path: Path) -> None:
    root = _lake(tmp_path, 2)
    lake = Lake(open_store(root))
    kept = lake.topic("t-000")
    for path in (tmp_path / "catalog/log").glob("kind=*/**/*.parquet"):
        path.unlink()
    assert lake.topic("t-000").end_offsets() == kept.end_offsets() == {0: 5, 1: 0}
    with pytest.raises(VersionExpired, match="deleted files of version 2"):
        lake.topic("t-001")


def test_many_threads_ask_at_once(tmp_path: Path) -> None:
    root, names = _lake(tmp_path, 12), [f"t-{number:03}" for number in range(12)]
    for _ in range(3):
        lake = Lake(open_store(root))
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lake.topic, names * 3))
        assert [log.end_offsets() for log in found] == [{0: 5, 1: 0}] * 36
