"""What commits removed is remembered: a vacuum reads each commit once, and knows the same."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog import retention
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.retention import removed_files, write_removed_files_list
from seglake.catalog.table import CONTRACT
from seglake.layout import LOG_TABLE, TOMBSTONES
from seglake.maintain import vacuum as vacuums
from seglake.maintain.health.verify import verify
from seglake.maintain.undo import undo
from seglake.maintain.vacuum import vacuum
from seglake.store import open_store
from tests.harness.counting import CountingStore
from tests.makers.raw_events import Line, T, ingest, pipeline_of, write_file
from tests.makers.strategies import examples

Known = dict[int, tuple[int, set[str]]]


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_FEW", 1)


class Counted(CountingStore):
    """Counts the commits that are read."""

    commits = 0

    def read_all(self, key: str) -> Any:
        """As in `Store`."""
        self.commits += "_delta_log" in key and key.endswith(".json")
        return super().read_all(key)


def log_of(root: Path) -> DeltaLog:
    return DeltaLog(open_store(str(root)), LOG_TABLE, CONTRACT)


def known(log: DeltaLog) -> Known:
    return {version: (ms, {*paths}) for version, (ms, paths) in removed_files(log).items()}


def truth(root: Path) -> Known:
    """What the commits say, by reading all of them."""
    found = Known()
    for path in (root / LOG_TABLE / "_delta_log").glob("*.json"):
        lines = map(json.loads, path.read_text().splitlines())
        removed = {line["remove"]["path"] for line in lines if "remove" in line}
        found[int(path.stem)] = path.stat().st_mtime_ns // 1_000_000, removed
    return found


def a_run(root: Path, number: int) -> None:
    path = write_file(root.parent / f"{number}.jsonl", [Line(T + number, f"k{number}")])
    ingest(pipeline_of(root, path), str(number))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake of which runs were undone, so that commits removed files."""
    root = tmp_path / "lake"
    for number in range(6):
        a_run(root, number)
    for number in range(3):
        undo(str(root), "events", str(number))
    assert any(removed for _, removed in truth(root).values())
    return root


def test_what_is_remembered_is_not_read_again(lake: Path) -> None:
    write_removed_files_list(log_of(lake))
    store = Counted(open_store(str(lake)))
    assert known(DeltaLog(store, LOG_TABLE, CONTRACT)) == truth(lake)
    assert store.commits == 0
    a_run(lake, 7)
    new = truth(lake).keys() - stored(lake).keys()
    assert known(DeltaLog(store, LOG_TABLE, CONTRACT)) == truth(lake)
    assert store.commits == len(new) > 0


def stored(root: Path) -> Known:
    return {version: (ms, {*paths}) for version, (ms, paths) in retention._parse(
        (root / TOMBSTONES).read_bytes()).items()}  # fmt: skip


def test_few_commits_are_not_remembered(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_FEW", len(truth(lake)))
    write_removed_files_list(log_of(lake))
    assert not (lake / TOMBSTONES).exists()


def test_a_vacuum_remembers_and_the_next_one_writes_nothing(lake: Path) -> None:
    assert vacuum(str(lake), dry_run=True).unknown == []
    assert not (lake / TOMBSTONES).exists()
    vacuum(str(lake), dry_run=False)
    before = (lake / TOMBSTONES).stat().st_mtime_ns
    report = vacuum(str(lake), dry_run=False)
    assert (report.unknown, report.deleted, report.young) == ([], [], [])
    assert (lake / TOMBSTONES).stat().st_mtime_ns == before
    assert verify(str(lake)).findings == []


def test_a_vacuum_reads_only_commits_that_are_new(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commits_read() -> int:
        store = Counted(open_store(str(lake)))
        with monkeypatch.context() as patched:
            patched.setattr(vacuums, "open_store", lambda *_: store)
            vacuum(str(lake), dry_run=False)
        return store.commits

    commits_read()
    few = commits_read()
    for number in range(10, 14):
        a_run(lake, number)
    commits_read()
    assert commits_read() == few < len(truth(lake))


_Deed = tuple[str, int]
_DEEDS = st.tuples(
    st.sampled_from(["commit", "commit", "remember", "damage", "cut", "clean", "anew"]),
    st.integers(0, 10**6),
)


@examples(200)
@given(deeds=st.lists(_DEEDS, max_size=20))
def test_whatever_happened_the_same_is_known(
    deeds: list[_Deed], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("lake")
    for deed in [("commit", 1), ("commit", 2), *deeds]:
        _do(root, *deed)
        assert known(log_of(root)) == truth(root)
    write_removed_files_list(log_of(root))
    assert known(log_of(root)) == truth(root)


def _do(root: Path, deed: str, value: int) -> None:
    log, remembered = root / LOG_TABLE / "_delta_log", root / TOMBSTONES
    commits = sorted(log.glob("*.json"))
    if deed == "commit":
        _commit(log, int(commits[-1].stem) + 1 if commits else 0, value)
    elif deed == "remember":
        write_removed_files_list(log_of(root))
    elif deed == "clean":  # as Delta does with old commits
        for path in commits[: value % len(commits)]:
            path.unlink()
    elif deed == "anew":  # a log that somebody deleted begins with the same numbers
        for path in commits:
            path.unlink()
            _commit(log, int(path.stem), value, seconds=1 + value)
    elif remembered.exists() and (data := bytearray(remembered.read_bytes())):
        data[value % len(data)] ^= 1 + value % 255
        remembered.write_bytes(data[: value % len(data)] if deed == "cut" else data)


def _commit(log: Path, version: int, value: int, seconds: float = 0) -> None:
    log.mkdir(parents=True, exist_ok=True)
    actions: list[Any] = [{"commitInfo": {"operation": "WRITE"}}]
    actions += [
        {"remove": {"path": f"kind=run/{version}-{value}-{number}\n.parquet", "dataChange": True}}
        for number in range(value % 3)
    ]
    path = log / f"{version:020}.json"
    path.write_text("\n".join(map(json.dumps, actions)))
    if seconds:
        os.utime(path, (seconds, seconds))
