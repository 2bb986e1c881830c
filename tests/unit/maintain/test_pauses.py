"""A process pauses before a commit, however long: no commit names what a vacuum deletes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seglake.catalog.delta import file_merges
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.maintain.erasure.erase import erase
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from seglake.maintain.tagging import tag
from seglake.maintain.undo import undo
from seglake.maintain.vacuum import _Sweep, vacuum
from seglake.store import open_store
from tests.makers.raw_events import Line, T, ingest, pipeline_of, read_lake, write_file

LINES = 30


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Three runs with rejects."""
    for run in range(3):
        made = [Line(T + n, f"k{n % 5}", broken=None if n % 10 else "{") for n in range(LINES)]
        path = write_file(tmp_path / f"{run}.jsonl", made)
        ingest(pipeline_of(tmp_path / "lake", path), str(run))
    return str(tmp_path / "lake")


def sweep(root: str) -> None:
    """As after a pause that is longer than all that is spared."""
    vacuum(root, dry_run=False, grace_hours=0, retention_hours=0)


def paused(patch: pytest.MonkeyPatch, folder: str, number: int, act: Callable[[], Any]) -> None:
    """`act` happens before one of the commits to a table, counted from 0."""
    real, left = DeltaLog.commit, [act]
    seen: list[DeltaLog] = []

    def commit(log: DeltaLog, *given: Any, **named: Any) -> Any:
        if log.folder == folder:
            seen.append(log)
            if left and len(seen) > number:
                left.pop()()
        return real(log, *given, **named)

    patch.setattr(DeltaLog, "commit", commit)


def records(root: str) -> int:
    return sum(map(len, read_lake(root).values()))


def test_a_merge_of_catalog_files_that_pauses__loses(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = records(root)
    with monkeypatch.context() as patch:
        patch.setattr(file_merges, "FAN_IN", 2)
        paused(patch, "catalog/log", 1, partial(sweep, root))
        path = write_file(tmp_path / "more.jsonl", [Line(T, "k")])
        ingest(pipeline_of(root, path), "more")
    assert records(root) == before + 1
    assert verify(root, deep=True).findings == []


def assert_rejects_can_be_read(root: str) -> None:
    store = open_store(root)
    for key in QuarantineTable(store).all_keys("events"):
        store.size(key)
    assert erase(root, "events", ["nobody"], raw_containing="nothing", grace_hours=0).version == -1


def test_rejects_that_go_while_a_vacuum_deletes__stay_until_the_next(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tag lets it look again; the run that was undone by then had rejects in the table."""
    tag(root, "first")
    tag(root, "first", delete=True)
    merge(root, "events", everything=True)
    real = _Sweep._spared_by_new_tags

    def spared(work: _Sweep, garbage: Any) -> Any:
        undo(root, "events", "2")
        tag(root, "second")
        return real(work, garbage)

    with monkeypatch.context() as patch:
        patch.setattr(_Sweep, "_spared_by_new_tags", spared)
        sweep(root)
    before = QuarantineTable(open_store(root)).all_keys("events")
    assert_rejects_can_be_read(root)
    sweep(root)
    assert len(QuarantineTable(open_store(root)).all_keys("events")) < len(before)
    assert_rejects_can_be_read(root)
