"""An attempt that ends without a commit gives itself up, and leaves no files."""

from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.maintain import merge as merge_module
from seglake.maintain.erasure.erase import erase
from seglake.maintain.expiry.retention import delete_records
from seglake.maintain.health import reindex as reindex_module
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from seglake.store import open_store
from tests.harness.meanwhile import before_first
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import Line, T, ingest, pipeline_of, write_file

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
    rows = table.rows.segments(table.snapshot(), "events")
    named = {row.key(suffix) for row in rows for suffix in row.suffixes}
    return {item.key for item in open_store(root).list("topics")} - named


@pytest.mark.parametrize("name", COMMANDS)
def test_an_erasure_is_not_refused_after_a_command_failed(
    root: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    module, call = COMMANDS[name]
    monkeypatch.setattr(module, "commit_change", lambda *_, **__: 1 / 0)
    before = unnamed_logs(root)
    with pytest.raises(ZeroDivisionError):
        call(root)
    monkeypatch.undo()
    assert unnamed_logs(root) == before
    assert erase(root, "events", ["gone"]).exit_code == 0


def test_a_command_without_an_announcement_withdraws_its_claim(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_first(monkeypatch, DeltaLog, "commit", lambda: 1 / 0)
    numbers = seglake.open(root).topic("events").partitions()
    with pytest.raises(ZeroDivisionError):
        delete_records(root, "events", dict.fromkeys(numbers, -1))
    assert erase(root, "events", ["gone"]).exit_code == 0


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
    assert len(open_catalog(root).rows.segments(open_catalog(root).snapshot(), "events")) == 2
    assert verify(root, deep=True).findings == []
