"""An attempt that ends without a commit gives itself up, and leaves no files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.catalog import attempts as claims
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.table import CatalogTable
from seglake.layout import parse_segment_key
from seglake.maintain import merge as merge_module
from seglake.maintain.erasure.erase import erase
from seglake.maintain.expiry.retention import delete_records
from seglake.maintain.health import reindex as reindex_module
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from seglake.store import open_store
from seglake.store.local import _LocalStore
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import Line, T, ingest, pipeline_of, read_lake, write_file

COMMANDS: dict[str, Any] = {
    "merge": (merge_module, lambda root: merge(root, "events", everything=True)),
    "reindex": (reindex_module, lambda root: reindex(root, "events")),
}


@pytest.fixture
def root(tmp_path: Path) -> str:
    for number in range(2):
        lines = [Line(T + number, "gone"), Line(T + number, "kept")]
        path = write_file(tmp_path / f"{number}.jsonl", lines)
        ingest(pipeline_of(tmp_path / "lake", path), str(number))
    return str(tmp_path / "lake")


def unnamed_logs(root: str) -> set[str]:
    table = open_catalog(root)
    rows = table.segments(table.snapshot(), "events")
    named = {row.key(suffix) for row in rows for suffix in row.suffixes}
    return {item.key for item in open_store(root).list("topics")} - named


@pytest.mark.parametrize("name", COMMANDS)
def test_an_erasure_is_not_refused_after_a_command_lost_its_race(
    root: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    _, call = COMMANDS[name]
    commit, files = CatalogTable.commit, set[str]()

    def commit_after_another(table: CatalogTable, *given: Any, **named: Any) -> int:
        monkeypatch.setattr(CatalogTable, "commit", commit)
        files.update(unnamed_logs(root))
        call(root)
        files.difference_update(unnamed_logs(root))
        return commit(table, *given, **named)

    before = unnamed_logs(root)
    monkeypatch.setattr(CatalogTable, "commit", commit_after_another)
    call(root)
    owners = {parse_segment_key(key).attempt_id for key in unnamed_logs(root) - before}
    store = open_store(root)
    assert not any(claims.is_abandoned(store, owner) for owner in owners)  # only replaced files
    assert erase(root, "events", ["gone"], vacuum=True).exit_code == 0
    assert verify(root, deep=True).findings == []


@pytest.mark.parametrize("name", COMMANDS)
def test_an_erasure_is_not_refused_after_a_command_failed(
    root: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    module, call = COMMANDS[name]
    monkeypatch.setattr(module, "carry_out", lambda *_, **__: 1 / 0)
    before = unnamed_logs(root)
    with pytest.raises(ZeroDivisionError):
        call(root)
    monkeypatch.undo()
    assert unnamed_logs(root) == before
    assert erase(root, "events", ["gone"]).exit_code == 0


def test_a_command_without_an_announcement_withdraws_its_claim(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = DeltaLog.commit

    def fail_once(*_: Any, **__: Any) -> None:
        monkeypatch.setattr(DeltaLog, "commit", commit)
        raise ZeroDivisionError

    monkeypatch.setattr(DeltaLog, "commit", fail_once)
    numbers = seglake.open(root).topic("events").partitions()
    with pytest.raises(ZeroDivisionError):
        delete_records(root, "events", dict.fromkeys(numbers, -1))
    assert erase(root, "events", ["gone"]).exit_code == 0


def test_a_late_commit_does_not_name_deleted_files(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. The put of a merge's commit fails. 2. The merge ends. 3. The put arrives."""
    put, late = _LocalStore.put_if_absent, list[tuple[_LocalStore, str, bytes]]()

    def lose(store: _LocalStore, key: str, data: bytes) -> bool:
        if "_delta_log/" in key and not late:
            late.append((store, key, data))
            raise KeyboardInterrupt
        return put(store, key, data)

    monkeypatch.setattr(_LocalStore, "put_if_absent", lose)
    before = read_lake(Path(root))
    with pytest.raises(KeyboardInterrupt):
        merge(root, "events", everything=True)
    assert not put(*late[0])
    assert read_lake(Path(root)) == before
    assert erase(root, "events", ["gone"]).exit_code == 0
    assert verify(root, deep=True).findings == []


def test_a_commit_that_was_made_is_kept_by_a_command_that_lost_the_reply(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = DeltaLog.commit

    def lose_reply(log: DeltaLog, *given: Any, **named: Any) -> Any:
        commit(log, *given, **named)
        monkeypatch.setattr(DeltaLog, "commit", commit)
        raise KeyboardInterrupt

    monkeypatch.setattr(DeltaLog, "commit", lose_reply)
    with pytest.raises(KeyboardInterrupt):
        merge(root, "events", everything=True)
    assert len(open_catalog(root).segments(open_catalog(root).snapshot(), "events")) == 2
    assert verify(root, deep=True).findings == []
