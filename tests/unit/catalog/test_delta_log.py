"""Commits by number: who may follow whom, and what a reader finds."""

import json
import os
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog.delta import delta_rs
from seglake.catalog.delta.actions import WrittenFile, add_action, remove_action
from seglake.catalog.delta.commit_log import CHECKPOINT_INTERVAL, DeltaLog
from seglake.catalog.delta.data_files import DataFile, read_files, write_file
from seglake.catalog.delta.table_contract import TableContract
from seglake.catalog.schema import Row, file_table
from seglake.catalog.version.snapshot_files import last_finished_files
from seglake.errors import CommitConflict, CorruptData
from seglake.store import Store, open_store
from seglake.store.interface import Listed
from tests.harness.damaged import flipped
from tests.harness.processes import race_of
from tests.harness.tiers import rest_but_today
from tests.makers.catalog_rows import run, segment, source, topic
from tests.makers.strategies import examples

STATS = '{"numRecords": 1}'
FIELDS: dict[str, Any] = {"x": pa.int64(), "kind": pa.string()}
SCHEMA = pa.schema(FIELDS)
CONTRACT = TableContract("the table", SCHEMA, ["kind"], "Look after it")


def _log(folder: Path) -> DeltaLog:
    store = open_store(str(folder))
    delta_rs.create_table(store, "table", SCHEMA, ["kind"])
    return DeltaLog(store, "table", CONTRACT)


def _add(name: str) -> dict[str, Any]:
    return add_action(WrittenFile(name, 1, {"kind": "a"}, STATS))


def _remove(name: str) -> dict[str, Any]:
    return remove_action(name, 1, {"kind": "a"})


def _entry_path(folder: Path, version: int) -> Path:
    return folder / f"table/_delta_log/{version:020}.json"


def test_create_table__a_table_is_created_once(tmp_path: Path) -> None:
    """Whoever is late must not define it again: that would be in the way of every first commit."""
    together = Barrier(4)

    def create(number: int) -> None:
        together.wait()
        _log(tmp_path / str(number // 4))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(create, range(80)))
    made = [path.name for path in tmp_path.glob("*/table/_delta_log/*.json")]
    assert made == [f"{0:020}.json"] * 20


class Try(NamedTuple):
    """A commit that somebody tries, so many versions after the one that he has seen."""

    behind: int
    application: str | None
    removes: list[int]  # of the files that there are in the version that he has seen


TRIES = st.lists(
    st.builds(
        Try,
        st.integers(0, 4),
        st.sampled_from([None, None, "a", "b"]),
        st.lists(st.integers(0, 5), max_size=2),
    ),
    max_size=12,
)


@given(TRIES)
@examples(40)
def test_commits__pass_exactly_those_that_are_not_in_their_way(
    tmp_path_factory: pytest.TempPathFactory, tries: list[Try]
) -> None:
    folder = tmp_path_factory.mktemp("lake")
    log = _log(folder)
    files: list[set[str]] = [set()]  # of each version
    made: list[tuple[str | None, set[str]]] = [(None, set())]
    for number, tried in enumerate(tries):
        base = max(0, len(files) - 1 - tried.behind)
        seen = sorted(files[base])
        gone = {seen[place] for place in tried.removes if place < len(seen)}
        later = made[base + 1 :]
        free = not any((tried.application and a == tried.application) or g & gone for a, g in later)
        actions = [_add(f"f{number:02}"), *map(_remove, sorted(gone))]
        try:
            entries = log.commit(base, actions, application=tried.application)
        except CommitConflict:
            assert not free
            continue
        assert free
        made.append((tried.application, gone))
        files.append((files[-1] - gone) | {f"f{number:02}"})
        assert [entry.version for entry in entries] == list(range(base + 1, len(files)))
        assert [set(entry.removed) for entry in entries] == [gone for _, gone in made[base + 1 :]]
    _assert_reads(folder, log, files)


def _assert_reads(folder: Path, log: DeltaLog, files: list[set[str]]) -> None:
    for version, expected in enumerate(files):
        found = DeltaTable(f"{folder}/table", version=version).get_add_actions()
        assert set(found["path"].to_pylist()) == expected
        state = set(expected)
        for entry in log.since(version):
            state -= entry.removed.keys()
            state |= {new.path for new in entry.added}
        assert state == files[-1]


@given(st.integers(0, 40), st.integers(0, 45), st.integers(1, 50))
@examples(20)
def test_since__gives_what_follows(many: DeltaLog, base: int, extra: int, most: int) -> None:
    assert [entry.version for entry in many.since(base)] == list(range(base + 1, 41))
    some = many.since(base, most)
    assert some == many.since(base)[: len(some)]
    assert len(some) >= min(most, 40 - base)
    assert many.has(base + extra) == (base + extra <= 40)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> DeltaLog:
    log = _log(tmp_path_factory.mktemp("many"))
    for number in range(40):
        log.commit(number, [_add(f"f{number}")])
    return log


def test_a_reply_that_says_it_exists__may_mean_our_own(tmp_path: Path) -> None:
    """As an object store does whose first answer was lost on the way."""
    log = _log(tmp_path)
    log.commit(0, [_add("other")])
    real = log.store.put_if_absent

    def twice(key: str, data: Any) -> bool:
        real(key, data)
        return False

    log.store.put_if_absent = twice  # type: ignore[method-assign]
    entries = log.commit(0, [_add("mine")], application="a")
    assert [entry.version for entry in entries] == [1, 2]
    assert entries[-1].added[0].path == "mine"
    assert len(log.since(0)) == 2


def test_a_store_that_says_it_exists_when_it_does_not__is_a_conflict(tmp_path: Path) -> None:
    log = _log(tmp_path)
    log.store.put_if_absent = lambda key, data: False  # type: ignore[method-assign]
    with pytest.raises(CommitConflict):
        log.commit(0, [_add("mine")])


def test_a_change_of_the_table__is_in_everybodys_way(tmp_path: Path) -> None:
    log = _log(tmp_path)
    table = DeltaTable(f"{tmp_path}/table")
    table.alter.set_table_properties({"seglake.format": "3"}, raise_if_not_exists=False)
    assert log.since(0)[0].definition
    with pytest.raises(CommitConflict):
        log.commit(0, [_add("mine")])


def _age(folder: Path, version: int) -> None:
    long_ago = time.time() - 40 * 86_400
    os.utime(_entry_path(folder, version), (long_ago, long_ago))


def test_a_number_is_never_given_again__after_a_clean_up(tmp_path: Path) -> None:
    log = _log(tmp_path)
    for number in range(CHECKPOINT_INTERVAL + 3):
        log.commit(number, [_add(f"f{number}")])
        _age(tmp_path, number)
    delta_rs.checkpoint_if_due(log, [CHECKPOINT_INTERVAL])
    newest = CHECKPOINT_INTERVAL + 3
    assert not log.has(3)
    assert log.has(newest)
    for gone in (0, 3):
        assert log.since(gone) == []
        with pytest.raises(CommitConflict, match="too old"):
            log.commit(gone, [_add("mine")])
    _age(tmp_path, newest)
    assert log.commit(newest, [_add("mine")])[-1].version == newest + 1  # as old, but the newest


def test_a_version_that_is_not_there_yet__hides_those_behind_it(tmp_path: Path) -> None:
    """Readers look for several at once, and two may come while they do."""
    log = _log(tmp_path)
    for number in range(5):
        log.commit(number, [_add(f"f{number}")], application="seglake/web")
    late = _entry_path(tmp_path, 4)
    commit = late.read_bytes()
    late.unlink()
    assert [entry.version for entry in log.since(0)] == [1, 2, 3]
    late.write_bytes(commit)
    assert [entry.version for entry in log.since(0)] == [1, 2, 3, 4, 5]


def test_an_old_version_is_continued__when_another_has_just_done_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, mine = _log(tmp_path), _log(tmp_path)
    _age(tmp_path, 0)
    looked = mine.store.list

    def raced(prefix: str = "") -> Iterator[Listed]:
        log.commit(0, [_add("theirs")])
        return looked(prefix)

    monkeypatch.setattr(mine.store, "list", raced)
    assert mine.commit(0, [_add("mine")])[-1].version == 2


class _NoListing:
    """A store that counts its requests, and lists nothing."""

    def __init__(self, store: Store) -> None:
        self._store, self.uri, self.requests = store, store.uri, 0

    def __getattr__(self, name: str) -> Any:
        self.requests += 1
        return getattr(self._store, name)

    def list(self, prefix: str = "", after: str = "") -> Iterator[Listed]:
        raise AssertionError(f"{prefix} is listed")


def test_a_commit_and_a_look__cost_as_little_however_long_the_log_is(tmp_path: Path) -> None:
    log = _log(tmp_path)
    store = _NoListing(open_store(str(tmp_path)))
    counted = DeltaLog(store, "table", CONTRACT)
    for number in range(60):
        store.requests = 0
        counted.commit(number, [_add(f"f{number}")])
        assert store.requests == 3 - (number == 0)  # one asks whether the table is the same
        store.requests = 0
        assert counted.since(number + 1) == []
        assert counted.has(number + 1)
        assert store.requests == 2
    assert len(log.since(0)) == 60


def test_what_a_crash_leaves__is_no_commit(tmp_path: Path) -> None:
    """A local write that was cut off, beside its target."""
    log = _log(tmp_path)
    log.commit(0, [_add("f")])
    path = _entry_path(tmp_path, 2)
    path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp").write_bytes(b'{"add"')
    assert [entry.version for entry in log.since(0)] == [1]
    assert DeltaTable(f"{tmp_path}/table").version() == 1
    assert log.commit(1, [_add("g")])[-1].version == 2
    delta_rs.checkpoint_if_due(log, [25])
    assert len(DeltaTable(f"{tmp_path}/table").file_uris()) == 2


@pytest.mark.parametrize("damage", [b"{", b"[1]", b'{"add": 3}', b'{"add": {}}\n{"txn": {}}'])
def test_what_is_no_commit__is_named(tmp_path: Path, damage: bytes) -> None:
    log = _log(tmp_path)
    log.commit(0, [_add("f")])
    _entry_path(tmp_path, 1).write_bytes(damage)
    with pytest.raises(CorruptData) as raised:
        DeltaLog(open_store(str(tmp_path)), "table", CONTRACT).since(0)
    assert raised.value.file.endswith("00000000000000000001.json")


@pytest.mark.parametrize(
    ("last", "version", "asked"),
    [
        (None, 25, True),
        (None, 26, False),
        ((25, 100), 50, True),
        ((25, 6_250), 50, True),
        ((25, 6_251), 50, False),
        ((25, 12_500), 75, True),
    ],
)
def test_checkpoints__get_rarer_as_they_grow(
    tmp_path: Path, last: tuple[int, int] | None, version: int, asked: bool
) -> None:
    log = _log(tmp_path)
    if last is not None:
        hint = json.dumps({"version": last[0], "size": last[1]})
        (tmp_path / "table/_delta_log/_last_checkpoint").write_text(hint)
    assert log.needs_checkpoint(version) == asked


def test_a_checkpoint_that_fails__is_only_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = _log(tmp_path)

    def fail(_: DeltaTable) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(DeltaTable, "create_checkpoint", fail)
    delta_rs.checkpoint_if_due(log, [24])
    assert not caplog.messages
    delta_rs.checkpoint_if_due(log, [25])
    assert "no space left" in caplog.text


@pytest.mark.parametrize("hours", [0, 0.5, 24 * 40, -24 * 40])
def test_expired_commits__go_only_by_a_right_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, hours: float
) -> None:
    """delta-rs cleans up by the clock of its machine: forty days ahead, it would leave nothing."""
    log, long_ago, real = _log(tmp_path), time.time() - 40 * 86_400, time.time_ns
    for number in range(3):
        log.commit(number, [_add(f"{number}")])
    delta_rs.checkpoint_if_due(log, [25])
    for path in (tmp_path / "table/_delta_log").iterdir():
        os.utime(path, (long_ago, long_ago))
    log.commit(3, [_add("3")])
    monkeypatch.setattr(time, "time_ns", lambda: real() + int(hours * 3600 * 10**9))
    delta_rs.checkpoint_if_due(log, [25])
    is_right = abs(hours) < 1
    assert _entry_path(tmp_path, 0).exists() != is_right
    assert ("from the clock of storage" in caplog.text) != is_right


def _append(folder: str, name: str, commits: int) -> None:
    log = DeltaLog(open_store(folder), "table", CONTRACT)
    for number in range(commits):
        log.commit(0, [_add(f"{name}{number}")], application=f"{name}{number}")


@pytest.mark.slow
def test_racing_processes__lose_no_commit(tmp_path: Path) -> None:
    log = _log(tmp_path)
    race_of(_append, [(str(tmp_path), name, 10) for name in "abc"])
    added = [entry.added[0].path for entry in log.since(0)]
    assert sorted(added) == sorted(f"{name}{number}" for name in "abc" for number in range(10))
    assert set(DeltaTable(f"{tmp_path}/table").get_add_actions()["path"].to_pylist()) == set(added)


# A data file of the catalog is read as it was written, or not at all.

ROWS: list[Row] = [segment(0, 5), run("r", "a"), source("in/a"), topic()]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


@pytest.mark.parametrize("row", rest_but_today(ROWS, 2), ids=lambda row: row.KIND)
def test_every_changed_byte_and_every_length_is_found(store: Store, row: Any) -> None:
    """Also in the schema and in the headers of pages, which no checksum of Parquet covers."""
    written = write_file(store, "log", row.KIND, row.topic, file_table([row]))
    file = DataFile(written.path, row.KIND, row.topic, written.size_bytes, 1)
    path = Path(store.uri, "log", file.path)
    good = path.read_bytes()
    changes = [*flipped(good, range(len(good)), [0]), *(good[:n] for n in range(0, len(good), 9))]
    for bad in changes:
        path.write_bytes(bad)
        with pytest.raises(CorruptData) as caught:
            read_files(store, "log", [file])
        assert caught.value.file == f"log/{file.path}"
    path.write_bytes(good)
    assert read_files(store, "log", [file]) == [file_table([row])]


def test_another_writers_file_must_have_the_values_that_every_row_has(store: Store) -> None:
    table, folder = file_table([source("in/a")]), Path(store.uri, "log")
    folder.mkdir()
    column = table.schema.get_field_index("path")
    for found, fails in (
        (table, False),
        (table.drop_columns(["path"]), True),
        (table.set_column(column, "path", pa.nulls(1, pa.string())), True),
        (table.drop_columns(["etag"]), False),
    ):
        pq.write_table(found, folder / "part-0.parquet")
        file = DataFile("part-0.parquet", "source", "orders", 1, 1)
        if fails:
            with pytest.raises(CorruptData, match="path is null in a source row"):
                read_files(store, "log", [file])
        else:
            (rows,) = read_files(store, "log", [file])
            assert rows.column_names == table.column_names


files_of_times = st.lists(
    st.tuples(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.booleans()), max_size=8
)


@given(files_of_times, st.integers(1, 20))
def test_the_rows_that_finished_last_are_in_the_files_that_are_read(
    written: list[tuple[list[int], bool]], count: int
) -> None:
    """A file without statistics, which another writer's may be, is read in any case."""
    files = [
        DataFile(f"{n}", "run", "orders", 1, len(times),
                 {"finished_at_ms": (min(times), max(times))} if told else {})
        for n, (times, told) in enumerate(written)
    ]  # fmt: skip
    read = last_finished_files(files, count)
    inside = sorted(t for file in read for t in written[int(file.path)][0])
    assert inside[-count:] == sorted(t for times, _ in written for t in times)[-count:]


def test_no_more_files_are_read_than_have_the_rows_that_finished_last() -> None:
    files = [DataFile(f"{n}", "run", "orders", 1, 10, {"finished_at_ms": (10 * n, 10 * n + 9)})
             for n in range(50)]  # fmt: skip
    assert last_finished_files(files, 25) == files[-3:]
