"""A process pauses before a commit, however long: no commit names what a vacuum deletes."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seglake.catalog import manifest
from seglake.catalog import table as catalog_table
from seglake.catalog.delta import data_files, file_merges
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.quarantine.files import read_all_rejects, write_rejects
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.errors import AttemptAbandoned
from seglake.layout import LOG_TABLE, QUARANTINE_TABLE, new_attempt
from seglake.maintain.erasure.erase import erase
from seglake.maintain.expiry.retention import delete_records, retain
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from seglake.maintain.tagging import tag
from seglake.maintain.topic_settings import alter
from seglake.maintain.undo import undo
from seglake.maintain.vacuum import _Sweep, vacuum
from seglake.store import open_store
from tests.harness.tiers import rest_but_today
from tests.makers.raw_events import Line, T, ingest, pipeline_of, read_lake, write_file

LINES = 30
VERBS: dict[str, Callable[[str], Any]] = {
    "alter": lambda root: alter(root, "events", {"segment.bytes": 2_000_000}),
    "delete-records": lambda root: delete_records(root, "events", before_offsets={0: 3}),
    "erase": lambda root: erase(root, "events", ["k1"], grace_hours=0),
    "merge": lambda root: merge(root, "events", everything=True),
    "reindex": lambda root: reindex(root, "events"),
    "retain": lambda root: retain(root, "events"),
    "undo": lambda root: undo(root, "events", "2"),
}


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


def paused_before_its_manifest(patch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """`act` happens when the data files of a commit are written, and nothing else."""
    real, left = manifest.write_manifest, [act]

    def write(*given: Any) -> None:
        if left:
            left.pop()()
        real(*given)

    patch.setattr(catalog_table, "write_manifest", write)


def records(root: str) -> int:
    return sum(map(len, read_lake(root).values()))


@pytest.mark.parametrize("place", ["manifest", "commit"])
@pytest.mark.parametrize("verb", rest_but_today(VERBS))
def test_a_command_that_pauses_before_its_commit__leaves_a_lake_that_opens(
    root: str, monkeypatch: pytest.MonkeyPatch, verb: str, place: str
) -> None:
    if verb == "retain":
        alter(root, "events", {"retention.ms": 1})
    with monkeypatch.context() as patch:
        if place == "commit":
            paused(patch, "catalog/log", 0, partial(sweep, root))
        else:
            paused_before_its_manifest(patch, partial(sweep, root))
        try:
            VERBS[verb](root)
        except AttemptAbandoned:  # its segments are gone
            VERBS[verb](root)
    assert verify(root, deep=True).findings == []
    sweep(root)
    assert verify(root, deep=True).findings == []


@pytest.mark.parametrize("verb", ["erase", "merge", "reindex"])
def test_a_command_that_pauses_between_its_rows__leaves_a_lake_that_opens(
    root: str, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Its first data file is older than all that is spared, the manifest and the last are young."""
    real, written = data_files.write_file, list[Any]()

    def write(*given: Any) -> Any:
        written.append(real(*given))
        if len(written) == 1:
            for path in Path(root).rglob("*.*"):
                os.utime(path, (time.time() - 2 * 86_400,) * 2)
        return written[-1]

    with monkeypatch.context() as patch:
        patch.setattr(catalog_table, "write_file", write)
        paused(patch, "catalog/log", 0, lambda: vacuum(root, dry_run=False))
        with contextlib.suppress(AttemptAbandoned):
            VERBS[verb](root)
    VERBS[verb](root)
    assert verify(root, deep=True).findings == []


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


def test_rejects_that_are_committed_too_late__have_no_file_in_the_table(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_file(tmp_path / "more.jsonl", [Line(T, "k"), Line(T, broken="{")])
    with monkeypatch.context() as patch:
        paused(patch, "catalog/quarantine", 0, partial(sweep, root))
        with pytest.raises(AttemptAbandoned):
            ingest(pipeline_of(root, path), "more")
    assert_rejects_can_be_read(root)
    assert ingest(pipeline_of(root, path), "more").quarantined == 1
    assert_rejects_can_be_read(root)


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


def test_a_file_that_the_quarantine_lost__leaves_its_table(root: str) -> None:
    """As earlier versions left it; the attempt did not commit."""
    store, dead = open_store(root), new_attempt()
    table = QuarantineTable(store)
    (known, *_) = table.all_keys("events")
    written = write_rejects(store, "events", dead, read_all_rejects(store, known))
    table.add_files([written], dead)
    lost = f"{QUARANTINE_TABLE}/{written.path}"
    store.delete([lost])
    vacuum(root, dry_run=False)
    assert lost not in table.all_keys("events")
    assert_rejects_can_be_read(root)


def test_an_ingest_that_was_given_up__copies_nothing_behind_those_that_came(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The erasure that gave it up has looked for its files, and would not see the copies."""
    left: set[Path] = set()

    def act() -> None:
        other = write_file(tmp_path / "other.jsonl", [Line(T + n, "k2") for n in range(LINES)])
        ingest(pipeline_of(root, other), "other")
        erase(root, "events", ["k1"], grace_hours=0, vacuum=True)
        left.update(Path(root).rglob("*.log"))

    late = write_file(tmp_path / "late.jsonl", [Line(T + n, "k1") for n in range(LINES)])
    with monkeypatch.context() as patch:
        paused(patch, LOG_TABLE, 0, act)
        with pytest.raises(AttemptAbandoned):
            ingest(pipeline_of(root, late), "late")
    assert {*Path(root).rglob("*.log")} <= left
