"""Quarantined rows count only once their run is in."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog import attempts as claims
from seglake.catalog.attempts import mark_committed
from seglake.catalog.delta.actions import WrittenFile
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.quarantine import table as quarantines
from seglake.catalog.quarantine.files import (
    FILE_SCHEMA,
    FRAME,
    attempts_in,
    is_merged,
    only_attempt,
    read_all_rejects,
    write_merged,
    write_rejects,
)
from seglake.catalog.quarantine.open_rejects import is_listed, join_lists, list_rejects
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.schema import Row
from seglake.catalog.table import CatalogTable
from seglake.errors import AttemptAbandoned, CommitConflict, CorruptData, UsageError
from seglake.layout import QUARANTINE_TABLE, announcement_key, success_key
from seglake.store import Store, open_store
from tests.harness.meanwhile import before_first
from tests.harness.processes import race_of
from tests.makers.catalog_rows import ATTEMPT, commit_rows, new_attempt, run, topic
from tests.makers.lakes import create_catalog


def _rows(attempt: str, lines: list[int]) -> pa.Table:
    return pa.Table.from_pylist([_row(attempt, "in/a.jsonl", n) for n in lines], FILE_SCHEMA)


def _row(attempt_id: str, path: str, line: int, raw: bytes = b"\xff{") -> dict[str, Any]:
    return {
        "attempt_id": attempt_id, "source_file": path, "line": line, "reason": "no timestamp",
        "raw": raw, "ingested_at_ms": 5,
    }  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def _counted(catalog: CatalogTable, quarantine: QuarantineTable, name: str) -> list[int]:
    attempts = [run.attempt_id for run in catalog.rows.runs(catalog.snapshot(), name)]
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
    commit_rows(catalog, rows, attempt_id=good)
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
    commit_rows(catalog, rows, attempt_id=good)
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
    commit_rows(catalog, rows, attempt_id=ATTEMPT)
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
    commit_rows(catalog, rows, attempt_id=attempts[0])
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
    commit_rows(catalog, rows, attempt_id=first)
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


# Small files of the quarantine are merged, and every reject stays what it is.

TOPIC = "orders"
FILES = ("in/a.jsonl", FRAME)


def rejects_of(attempt_id: str, path: str, raw: Sequence[str]) -> pa.Table:
    """Rows of a file have a line each, those of a DataFrame share one."""
    rows = [
        _row(attempt_id, path, 1 if path == FRAME else line, text.encode())
        for line, text in enumerate(raw, 1)
    ]
    return pa.Table.from_pylist(rows, FILE_SCHEMA)


class Quarantine:
    """A quarantine with runs; each may commit or not."""

    def __init__(self, store: Store) -> None:
        self.store, self.table = store, QuarantineTable(store)

    def run(self, raw: Sequence[str], path: str = FILES[0], *, commits: bool = True) -> str:
        attempt_id = new_attempt()
        self.store.put(announcement_key(attempt_id), b"{}")
        part = write_rejects(self.store, TOPIC, attempt_id, rejects_of(attempt_id, path, raw))
        self.table.add_files([part], attempt_id)
        if commits:
            mark_committed(self.store, attempt_id)
            self.store.delete([announcement_key(attempt_id)])
        return attempt_id

    def files(self) -> list[str]:
        return self.table.all_keys(TOPIC)

    def raw(self, *attempts: str) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for rows in self.table.read(TOPIC, attempts):
            columns: list[Any] = [rows[name].to_pylist() for name in ("attempt_id", "raw")]
            found.update((each, raw.decode()) for each, raw in zip(*columns, strict=True))
        return found

    def objects(self) -> set[str]:
        return {each.key for each in self.store.list(f"{QUARANTINE_TABLE}/topic={TOPIC}")}


@pytest.fixture
def quarantine(tmp_path: Path) -> Quarantine:
    return Quarantine(open_store(str(tmp_path)))


@pytest.mark.rest
def test_many_runs__leave_few_files(
    quarantine: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, merged = list[int](), list[int]()
    real = quarantines.merge_files

    def counted(*given: Any) -> Any:
        merged.append(len(given[-1]))
        return real(*given)

    monkeypatch.setattr(quarantines, "merge_files", counted)
    attempts = []
    for number in range(200):
        raw = [f"{number} {at}" for at in range(number % 4 + 1)]
        attempts.append(quarantine.run(raw, FILES[number % 2]))
        counts.append(len(quarantine.files()))
    assert max(counts) <= quarantines.FAN_IN  # with that of the run, which is not committed yet
    assert sum(merged) <= 2 * 200  # a file is read less than twice by a merge
    assert quarantine.raw(*attempts).total() == 500
    table = DeltaTable(f"{quarantine.store.uri}/{QUARANTINE_TABLE}").to_pyarrow_table()
    assert (table.num_rows, table.column_names[1:]) == (500, FILE_SCHEMA.names)


runs = st.lists(
    st.tuples(st.lists(st.sampled_from("abc"), min_size=1, max_size=3), st.sampled_from(FILES),
              st.booleans()),
    max_size=14,
)  # fmt: skip


@given(runs, st.integers(2, 5))
def test_merges__change_no_reject(
    tmp_path_factory: pytest.TempPathFactory, given_runs: list[Any], fan_in: int
) -> None:
    made = Quarantine(open_store(str(tmp_path_factory.mktemp("lake"))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quarantines, "FAN_IN", fan_in)
        wanted = {
            made.run(raw, path, commits=commits): (raw, commits)
            for raw, path, commits in given_runs
        }
    for attempt_id, (raw, _) in wanted.items():
        assert made.raw(attempt_id) == Counter((attempt_id, text) for text in raw)
    for key in made.files():
        rows = read_all_rejects(made.store, key)
        ids = {*map(str, rows["attempt_id"].to_pylist())}
        if is_merged(key):
            assert attempts_in(made.store, key, made.store.size(key)) == ids
            assert all(wanted[each][1] for each in ids)
        else:
            assert ids == {only_attempt(key)}
    mergeable = [key for key in made.files() if is_merged(key) or wanted[str(only_attempt(key))][1]]
    assert len(mergeable) <= max(fan_in, 3)  # three files may have three sizes


@given(runs, st.data())
def test_rows_of_dataframes__are_known_wherever_they_move(
    tmp_path_factory: pytest.TempPathFactory, given_runs: list[Any], data: st.DataObject
) -> None:
    """A list of an erasure that died names them by the file in which they were, and their place."""
    made = Quarantine(open_store(str(tmp_path_factory.mktemp("lake"))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quarantines, "FAN_IN", 2)
        attempts = [made.run(raw, path) for raw, path, _ in given_runs[:7]]
        goes = data.draw(st.sampled_from("abc")).encode()

        def flags(rows: pa.Table) -> Any:
            flags: Any = pc.equal(rows["raw"], pa.scalar(goes, pa.binary()))
            return flags.combine_chunks()

        tables = {key: read_all_rejects(made.store, key) for key in made.files()}
        leaving = join_lists(list_rejects(key, rows, flags(rows)) for key, rows in tables.items())
        old = [made.run(raw, path) for raw, path, _ in given_runs[7:]]
        gone = data.draw(st.sets(st.sampled_from(attempts))) if attempts else set()
        made.table.drop_rejects(TOPIC, gone, new_attempt())
    for key in made.files():
        rows = read_all_rejects(made.store, key)
        known = [
            go and each not in old
            for go, each in zip(
                flags(rows).to_pylist(), rows["attempt_id"].to_pylist(), strict=True
            )
        ]
        assert is_listed(key, rows, leaving).to_pylist() == known
    assert {each for each, _ in made.raw(*attempts, *old)} >= {*attempts, *old} - gone


def test_rejects_that_are_dropped__are_no_longer_there(quarantine: Quarantine) -> None:
    attempts = [quarantine.run([f"{number}"]) for number in range(8)]
    quarantine.run(["another"])
    merged = [key for key in quarantine.files() if is_merged(key)]
    assert quarantine.table.merged_with(attempts[:2]) == {TOPIC: merged}
    assert quarantine.table.drop_rejects(TOPIC, attempts[:2], new_attempt()) == merged
    assert quarantine.table.merged_with(attempts[:2]) == {}
    assert {each for each, _ in quarantine.raw(*attempts)} == {*attempts[2:]}
    quarantine.table.drop_rejects(TOPIC, attempts, new_attempt())
    assert not any(map(is_merged, quarantine.files()))


def test_rejects_of_runs_that_a_chronicle_tells__are_merged(quarantine: Quarantine) -> None:
    """Their marks are gone. Of one that was given up a fate may be left, too."""
    attempts = [quarantine.run(["x"]) for _ in range(8)]
    quarantine.store.delete(list(map(success_key, attempts)))
    claims.claim(quarantine.store, attempts[0], TOPIC)
    claims.abandon(quarantine.store, attempts[1])
    claims.confirm_abandoned(quarantine.store, attempts[1])
    quarantine.run(["y"])
    quarantine.run(["z"])
    left = [only_attempt(key) for key in quarantine.files() if not is_merged(key)]
    assert {*attempts}.intersection(map(str, left)) == {attempts[1]}


def test_a_file_that_another_program_wrote__is_left_alone(quarantine: Quarantine) -> None:
    attempts = [quarantine.run(["x"]) for _ in range(6)]
    table = DeltaTable(f"{quarantine.store.uri}/{QUARANTINE_TABLE}")
    table.optimize.compact()
    (other,) = quarantine.files()
    attempts += [quarantine.run(["y"]) for _ in range(30)]
    assert other in quarantine.files()
    assert quarantine.raw(*attempts).total() == 36


def _before_the_merge(monkeypatch: pytest.MonkeyPatch, call: Any) -> None:
    """Once `call` comes between what a merge writes and its commit."""

    def merges(*_: Any, operation: str, **__: Any) -> bool:
        return operation == "OPTIMIZE"

    before_first(monkeypatch, DeltaLog, "commit", call, merges)


def _taken(quarantine: Quarantine) -> None:
    """Another process writes one of the files anew that are merged."""
    store, table = quarantine.store, QuarantineTable(quarantine.store)
    key = next(
        key for key in quarantine.files() if quarantines.is_committed(store, str(only_attempt(key)))
    )
    rows, attempt_id = read_all_rejects(quarantine.store, key), str(only_attempt(key))
    part = write_rejects(quarantine.store, TOPIC, attempt_id, rows)
    table.replace_files(table.version(), [key], [part], new_attempt())


def _fenced(quarantine: Quarantine) -> None:
    QuarantineTable(quarantine.store).remove_files((), {"a file that is deleted"})


@pytest.mark.parametrize("meanwhile", [_taken, _fenced])
def test_a_merge_that_loses_a_race__leaves_nothing(
    quarantine: Quarantine, monkeypatch: pytest.MonkeyPatch, meanwhile: Any
) -> None:
    attempts = [quarantine.run([f"{number}"]) for number in range(8)]
    _before_the_merge(monkeypatch, lambda: meanwhile(quarantine))
    attempts.append(quarantine.run(["last"]))
    assert not any(map(is_merged, quarantine.objects()))
    attempts.append(quarantine.run(["later"]))
    assert any(map(is_merged, quarantine.files()))
    assert quarantine.raw(*attempts).total() == 10


def test_a_merge_that_loses_a_race__leaves_what_others_wrote(
    quarantine: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An erasure writes the rejects of the same attempt anew, and is about to name them."""
    attempts = [quarantine.run([f"{number}"]) for number in range(8)]

    def meanwhile() -> None:
        (own,) = (key for key in quarantine.files() if only_attempt(key) not in attempts)
        running = str(only_attempt(own))
        written = rejects_of(running, FILES[0], ["anew"])
        table, part = quarantine.table, write_rejects(quarantine.store, TOPIC, running, written)
        base = table.version()
        _taken(quarantine)
        later.append(lambda: table.replace_files(base, [own], [part], new_attempt()))

    later: list[Any] = []
    _before_the_merge(monkeypatch, meanwhile)
    attempts.append(quarantine.run(["last"]))
    for names in later:
        names()
    assert quarantine.raw(attempts[-1]) == {(attempts[-1], "anew"): 1}


def test_files_that_take_the_place_of_none__are_deleted(quarantine: Quarantine) -> None:
    attempt_id, table = quarantine.run(["x"]), quarantine.table
    (key,) = quarantine.files()
    rows = read_all_rejects(quarantine.store, key)
    part = write_rejects(quarantine.store, TOPIC, attempt_id, rows)
    with pytest.raises(CommitConflict):
        table.replace_files(table.version(), [key, f"{key}-gone"], [part], new_attempt())
    assert quarantine.objects() == {key}


def test_a_drop_that_is_given_up__leaves_nothing(
    quarantine: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = [quarantine.run([f"{number}"]) for number in range(9)]
    before = quarantine.objects()

    def given_up(store: Store, topic: str, attempt_id: str, rows: pa.Table) -> Any:
        claims.abandon(store, attempt_id)
        return write_merged(store, topic, attempt_id, rows)

    monkeypatch.setattr(quarantines, "write_merged", given_up)
    with pytest.raises(AttemptAbandoned):
        quarantine.table.drop_rejects(TOPIC, attempts[:1], new_attempt())
    assert quarantine.objects() == before


def test_a_commit_that_comes_first__is_passed_by_a_merge(
    quarantine: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = [quarantine.run([f"{number}"]) for number in range(8)]
    other = Quarantine(quarantine.store)
    _before_the_merge(monkeypatch, lambda: attempts.append(other.run(["beside"])))
    attempts.append(quarantine.run(["last"]))
    assert sum(map(is_merged, quarantine.files())) == 1
    assert quarantine.raw(*attempts).total() == 10


def test_an_attempt_that_is_given_up__merges_nothing(
    quarantine: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        quarantine.run([f"{number}"])
    real = quarantines.merge_files

    def given_up(store: Store, topic: str, attempt_id: str, keys: Any) -> Any:
        claims.abandon(store, attempt_id)
        return real(store, topic, attempt_id, keys)

    monkeypatch.setattr(quarantines, "merge_files", given_up)
    with pytest.raises(AttemptAbandoned):
        quarantine.run(["last"], commits=False)
    assert not any(map(is_merged, quarantine.objects()))


def test_a_merge_that_fails__fails_no_run(
    quarantine: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = [quarantine.run([f"{number}"]) for number in range(8)]
    for key in quarantine.files()[:1]:
        quarantine.store.put(key, b"damaged")
    attempts.append(quarantine.run(["last"]))
    with pytest.raises(CorruptData):
        quarantine.raw(*attempts)
    assert quarantine.raw(attempts[-1]).total() == 1


def test_files_that_are_no_longer_named__are_known_for_a_while(quarantine: Quarantine) -> None:
    assert quarantine.table.retained_keys(0) is None
    for number in range(12):
        quarantine.run([f"{number}"])
    assert quarantine.table.retained_keys(0) == quarantine.objects()
    assert quarantine.table.retained_keys(math.inf) == {*quarantine.files()}
    assert len(quarantine.objects()) > len(quarantine.files())


def _flipped(data: bytes) -> Iterator[bytes]:
    for at in range(len(data)):
        yield data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_a_list_of_attempts_that_is_damaged__is_not_believed(quarantine: Quarantine) -> None:
    for number in range(9):
        quarantine.run([f"{number}"])
    (key,) = filter(is_merged, quarantine.files())
    data = bytes(quarantine.store.read_all(key))
    ids = attempts_in(quarantine.store, key, len(data))
    for damaged in _flipped(data):
        quarantine.store.put(key, damaged)
        try:
            assert attempts_in(quarantine.store, key, len(data)) == ids
        except CorruptData:
            continue
