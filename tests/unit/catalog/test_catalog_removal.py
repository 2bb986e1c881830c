"""Commits that remove rows: what is rewritten, what stays, and what an older table becomes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog import topic_change
from seglake.catalog.delta import file_merges
from seglake.catalog.quarantine.files import FILE_SCHEMA, FRAME
from seglake.catalog.quarantine.open_rejects import (
    count_listed,
    has_any_reject,
    is_listed,
    join_lists,
    list_rejects,
)
from seglake.catalog.schema import MaintenanceRow, Row, SegmentRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.transaction import transact
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import UsageError
from seglake.maintain.health.repair import rebuild_catalog
from seglake.store import open_store
from tests.harness.counting import CountingStore
from tests.makers.catalog_rows import commit_rows, new_attempt, run, segment, source, topic
from tests.makers.lakes import create_catalog
from tests.makers.strategies import examples

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from seglake.store import Store

NAMES = ("orders", "clicks")


@pytest.fixture
def catalog(tmp_path: Path) -> CatalogTable:
    return create_catalog(str(tmp_path))


def _upkeep(name: str, attempt: str) -> MaintenanceRow:
    return MaintenanceRow(
        topic=name, operation="merge", attempt_id=attempt, started_at_ms=1, finished_at_ms=2
    )


class Grown:
    """A catalog, and a plain list of the segments that it must have."""

    def __init__(self, catalog: CatalogTable) -> None:
        self.catalog = catalog
        self.live: dict[tuple[str, int], list[SegmentRow]] = {}
        self.clock = 0
        for name in NAMES:
            attempt = new_attempt()
            rows: list[Row] = [topic(name, 3), run("first", attempt, name)]
            commit_rows(catalog, rows, attempt_id=attempt)

    def append(self, name: str, sizes: list[int]) -> None:
        attempt, self.clock = new_attempt(), self.clock + 1
        rows: list[Row] = [run(attempt, attempt, name)]
        for partition, size in enumerate(sizes):
            mine = self.live.setdefault((name, partition), [])
            end = mine[-1].end_offset if mine else 0
            more = {"partition": partition, "attempt_id": attempt, "created_at_ms": self.clock}
            mine.append(segment(end, end + size, topic=name, **more))
            rows.append(mine[-1])
        base = self.catalog.snapshot()
        commit_rows(self.catalog, rows, base=base, attempt_id=attempt)

    def join(
        self, name: str, partition: int, first: int, count: int, base: Snapshot | None = None
    ) -> None:
        """Replace some segments by one that covers their offsets."""
        mine = self.live[name, partition]
        gone = mine[first : first + count]
        attempt = new_attempt()
        more = {"partition": partition, "attempt_id": attempt, "created_at_ms": self.clock}
        new = segment(gone[0].base_offset, gone[-1].end_offset, topic=name, **more)
        places = [(partition, row.base_offset) for row in gone]
        upkeep = _upkeep(name, attempt)
        commit_rows(self.catalog, [new, upkeep], base, attempt_id=attempt, replaced=places)
        mine[first : first + count] = [new]

    def assert_ends(self) -> None:
        """What an append reads has the last segment of each log partition."""
        for name in NAMES:
            ends = self.catalog.newest_ends(name)
            found = [view.segment(0).id for view in ends.partitions(name) if len(view)]
            mine = (rows for (topic, _), rows in sorted(self.live.items()) if topic == name)
            assert found == [rows[-1].id for rows in mine]

    def assert_holds(self, snapshot: Snapshot) -> None:
        for (name, partition), rows in self.live.items():
            view = snapshot.partition(name, partition)
            found = [view.segment(number).id for number in range(len(view))]
            assert found == [row.id for row in rows]
            stored = self.catalog.rows.segments(snapshot, name)
            assert [row for row in stored if row.partition == partition] == rows


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(NAMES), st.lists(st.integers(1, 9), min_size=3, max_size=3)),
        st.tuples(st.sampled_from(NAMES), st.integers(0, 2), st.integers(0, 9), st.integers(1, 4)),
    ),
    min_size=4,
    max_size=25,
)


@pytest.fixture(params=[2, 16], scope="module")
def fan_in(request: pytest.FixtureRequest) -> Iterator[int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_merges, "FAN_IN", request.param)
        patch.setattr(file_merges, "ENOUGH_ROWS", 8)
        yield request.param


@given(steps, st.integers(0, 20))
@examples(12)
def test_any_replacements__leave_what_a_list_says(
    tmp_path_factory: pytest.TempPathFactory, fan_in: int, given_steps: list[Any], pause: int
) -> None:
    """Whether a reader opens the newest version, or follows from some older one."""
    grown = Grown(create_catalog(str(tmp_path_factory.mktemp("lake"))))
    known, old = grown.catalog.snapshot(), grown.catalog.snapshot()
    for number, (name, *step) in enumerate(given_steps):
        if len(step) == 1:
            grown.append(name, *step)
        elif mine := grown.live.get((name, step[0])):
            first = step[1] % len(mine)
            grown.join(name, step[0], first, min(step[2], len(mine) - first))
        known = grown.catalog.refresh(known)
        grown.assert_holds(known)
        grown.assert_ends()
        old = known if number == pause else old
    grown.assert_holds(grown.catalog.refresh(old))
    grown.assert_holds(grown.catalog.snapshot())
    assert fan_in


def _removed(catalog: CatalogTable, version: int) -> list[str]:
    path = f"catalog/log/_delta_log/{version:020}.json"
    lines = map(json.loads, bytes(catalog.store.read_all(path)).splitlines())
    return [line["remove"]["path"] for line in lines if "remove" in line]


class KeysRead(CountingStore):
    """A store; `keys` has the objects that were read."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.keys: set[str] = set()

    def read(self, key: str, start: int, end: int) -> Buffer:
        self.keys.add(key)
        return super().read(key, start, end)

    def read_ranges(self, key: str, starts: Sequence[int], ends: Sequence[int]) -> list[Buffer]:
        self.keys.add(key)
        return super().read_ranges(key, starts, ends)

    def read_all(self, key: str) -> Buffer:
        self.keys.add(key)
        return super().read_all(key)


@pytest.mark.rest
def test_only_files_with_a_row_that_goes__are_read_and_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions grow at different speeds, so base offsets alone would not tell files apart."""
    monkeypatch.setattr(file_merges, "ENOUGH_ROWS", 30)
    grown = Grown(create_catalog(str(tmp_path)))
    for _ in range(200):
        grown.append("orders", [1, 30, 900])
    monkeypatch.setattr(file_merges, "FAN_IN", 1_000)  # merges read small files as well
    store = KeysRead(open_store(str(tmp_path)))
    grown.catalog = CatalogTable.open(store)
    for partition in range(3):
        base = grown.catalog.snapshot()
        files = {file.path for file in base.files if file.kind == "segment"}
        assert len(files) >= 15
        store.keys.clear()
        grown.join("orders", partition, 3, 4, base)
        (removed,) = _removed(grown.catalog, base.version + 1)
        read = {key.removeprefix("catalog/log/") for key in store.keys}
        assert read & files == {removed}
    grown.assert_holds(grown.catalog.snapshot())


# ------------------------------------------------------------------ sources and runs


def test_forgotten_sources__go_and_stay_away_from_a_rebuilt_catalog(tmp_path: Path) -> None:
    catalog = create_catalog(str(tmp_path))
    attempts = [new_attempt() for _ in range(3)]
    for number, attempt in enumerate(attempts):
        rows: list[Row] = [run(str(number), attempt), source("in/a", attempt)]
        rows += [topic()] * (not number)
        commit_rows(catalog, rows, attempt_id=attempt)
    base, undo = catalog.snapshot(), new_attempt()
    undone = run("1", attempts[1], sequence=1, state="undone")
    rows = [undone, _upkeep("orders", undo)]
    commit_rows(catalog, rows, base=base, attempt_id=undo, forgotten=[attempts[1]])
    for _ in range(2):
        newest = catalog.snapshot()
        left: list[Any] = catalog.rows.all(newest, "source", "orders")["attempt_id"].to_pylist()
        assert sorted(left) == sorted([attempts[0], attempts[2]])
        assert sorted(row.run_id for row in catalog.rows.runs(newest, "orders")) == ["0", "2"]
        assert catalog.rows.run(newest, "orders", "daily", "1") is None
        assert len(catalog.rows.run_history(newest, "orders")) == 4
        assert [row.attempt_id for row in catalog.rows.maintenance(newest, "orders")] == [undo]
        rebuild_catalog(str(tmp_path), force=True, dry_run=False)
        catalog = CatalogTable.open(catalog.store)


def test_the_newest_row_of_a_run__holds(catalog: CatalogTable) -> None:
    first, second = new_attempt(), new_attempt()
    rows: list[Row] = [topic(), run("1", first), run("1", first, sequence=1, state="replaced")]
    rows = [*rows, run("1", second, sequence=2)]
    commit_rows(catalog, rows, attempt_id=second)
    assert [r.attempt_id for r in catalog.rows.runs(catalog.snapshot(), "orders")] == [second]


# ------------------------------------------------------------------ transactions


def test_nothing_to_do__is_no_commit(catalog: CatalogTable) -> None:
    Grown(catalog)
    assert transact(catalog, "orders", new_attempt(), lambda _: None) is None
    assert catalog.snapshot().version == 2
    with pytest.raises(UsageError, match="rows of this topic only"):
        transact(catalog, "orders", new_attempt(), lambda _: Change())


PLACES = st.tuples(st.integers(0, 3), st.integers(0, 4).map(lambda n: n * 2**60))


@given(st.sets(PLACES, min_size=1), st.lists(PLACES))
def test_rows_are_those_of_the_pairs_that_are_asked_for(
    asked: set[tuple[int, int]], rows: list[tuple[int, int]]
) -> None:
    partitions, offsets = np.array(sorted(asked), np.int64).T
    table = pa.table(
        {"partition": pa.array([p for p, _ in rows], pa.int32()),
         "base_offset": pa.array([offset for _, offset in rows], pa.int64())}
    )  # fmt: skip
    found = topic_change._rows_at(partitions, offsets)(table)
    assert found.to_pylist() == [row in asked for row in rows]


# The list of an erasure names the rejects that go, and no others.

KEY, OTHER = "catalog/quarantine/topic=t/one.parquet", "catalog/quarantine/topic=t/two.parquet"
files = st.tuples(st.sampled_from("xy"), st.sampled_from(["a", "b", None]), st.integers(1, 6))
frames = st.tuples(st.sampled_from("xy"), st.just(FRAME), st.integers(1, 2))
goes = st.booleans()
rejects = st.tuples(
    st.lists(st.tuples(files, goes), unique_by=lambda each: each[0], max_size=12),
    st.lists(st.tuples(frames, goes), max_size=6),
).flatmap(lambda both: st.permutations([*both[0], *both[1]]))


def table(rows: list[Any]) -> tuple[pa.Table, pa.BooleanArray]:
    made = [
        {"attempt_id": attempt_id, "source_file": path, "line": line}
        for (attempt_id, path, line), _ in rows
    ]
    return pa.Table.from_pylist(made, FILE_SCHEMA), pa.array([go for _, go in rows], pa.bool_())


@given(rejects, st.data())
def test_a_list__names_what_goes(rows: list[Any], data: st.DataObject) -> None:
    made, go = table(rows)
    leaving = join_lists([{}, list_rejects(KEY, made, go)])
    assert is_listed(KEY, made, leaving).to_pylist() == go.to_pylist()
    assert sum(map(count_listed, leaving.values())) == sum(map(bool, go.to_pylist()))
    assert is_listed(KEY, made, {}).to_pylist() == [False] * len(rows)

    moved: list[Any] = data.draw(st.permutations(rows))  # another program rewrote the file
    found = is_listed(OTHER, table(moved)[0], leaving).to_pylist()
    assert found == [go and path != FRAME for (_, path, _), go in moved]


@given(rejects)
def test_some_rejects_of_an_attempt(rows: list[Any]) -> None:
    made, go = table(rows)
    leaving = list_rejects(KEY, made, go)
    for attempt_id in "xy":
        of = [
            (p, line, g) for (a, p, line), g in rows if a == attempt_id and p not in {FRAME, None}
        ]
        lines = {path: np.array([n for p, n, _ in of if p == path], np.int64) for path in "ab"}
        assert has_any_reject(leaving, attempt_id, lines) == any(goes for *_, goes in of)
