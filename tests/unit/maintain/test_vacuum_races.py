"""A vacuum beside what still runs: whoever decides first, no version names what is deleted."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from seglake.catalog import attempts as claims
from seglake.catalog.commits import CatalogCommits
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.config import Pipeline
from seglake.errors import AttemptAbandoned, CorruptData
from seglake.format.index import IndexPolicy
from seglake.layout import claim_key, new_attempt
from seglake.maintain.erasure.erase import erase
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from seglake.maintain.tagging import tag
from seglake.maintain.undo import undo
from seglake.maintain.vacuum import VacuumResult, _Sweep, vacuum
from seglake.store import open_store
from tests.harness.meanwhile import before_first
from tests.makers.lakes import Event, LakeMaker, open_catalog
from tests.makers.raw_events import Line, T, ingest, pipeline_of, read_lake, write_file

HOUR_NS = 3600 * 10**9
LINES = 30


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A run to come, with rejects; the topic has records."""
    path = write_file(tmp_path / "first.jsonl", [Line(T + n, "k") for n in range(LINES)])
    ingest(pipeline_of(tmp_path / "lake", path), "before")
    made = [Line(T + n, "k", broken=None if n % 10 else "{") for n in range(LINES)]
    return pipeline_of(tmp_path / "lake", write_file(tmp_path / "second.jsonl", made))


def other_run(pipeline: Pipeline) -> None:
    """Another run into the topic, which makes this one move its segments."""
    root = Path(pipeline.root)
    path = write_file(root.parent / "other.jsonl", [Line(T + n, "k") for n in range(7)])
    ingest(pipeline_of(root, path), "other")


def sweep(pipeline: Pipeline) -> VacuumResult:
    """Without any grace."""
    return vacuum(pipeline.root, dry_run=False, grace_hours=0)


def assert_sound(pipeline: Pipeline, records: int) -> None:
    assert sum(map(len, read_lake(pipeline.root).values())) == records
    report = verify(pipeline.root, deep=True)
    assert report.findings == []


def assert_run_again_succeeds(pipeline: Pipeline, before: int = LINES) -> None:
    """Nothing of the run is visible; the same run id brings all of it."""
    assert_sound(pipeline, before)
    report = ingest(pipeline, "1")
    assert (report.status, report.records, report.quarantined) == ("committed", 27, 3)
    assert_sound(pipeline, before + 27)
    sweep(pipeline)
    assert verify(pipeline.root).orphans == []
    assert_sound(pipeline, before + 27)


def test_segments_that_were_moved__are_given_up_too(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They carry an attempt of their own, which had not claimed its fate yet."""
    real, calls = CatalogCommits.make, []

    def commit(commits: CatalogCommits, change: Change, **named: Any) -> int:
        calls.append(named["attempt_id"])
        if len(calls) == 1:
            other_run(pipeline)
        if len(calls) == 3:  # the second one was the other run's
            (moved,) = change.other_attempts
            assert moved != calls[0]
            assert claims.abandon(open_store(pipeline.root), moved) is None
        return real(commits, change, **named)

    monkeypatch.setattr(CatalogCommits, "make", commit)
    with pytest.raises(AttemptAbandoned):
        ingest(pipeline, "1")
    assert len(calls) == 3
    monkeypatch.undo()
    assert_run_again_succeeds(pipeline, LINES + 7)


def test_a_fate__is_decided_once_and_claimed_again(pipeline: Pipeline) -> None:
    store, mine, other = open_store(pipeline.root), new_attempt(), new_attempt()
    for _ in range(2):
        claims.claim(store, mine, "events")
    assert claims.abandon(store, other) is None
    with pytest.raises(AttemptAbandoned):
        claims.claim(store, other, "events")
    for topic in ("events", None):  # until there was a fence
        assert [claims.abandon(store, mine) for _ in range(2)] == [topic, topic]
        assert claims.is_abandoned(store, mine)
        with pytest.raises(AttemptAbandoned):
            claims.claim(store, mine, "events")
        claims.confirm_abandoned(store, mine)
    for content in (b"", b"[]", b"{}", b'{"fate": "committing"}'):
        store.put(claim_key(mine), content)
        with pytest.raises(CorruptData) as caught:
            claims.claim(store, mine, "events")
        assert caught.value.file == claim_key(mine)
        with pytest.raises(CorruptData) as caught:
            claims.abandon(store, mine)
        assert caught.value.file == claim_key(mine)


# ------------------------------------------------------------------ clocks of writers


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    """A lake with two runs."""
    maker = LakeMaker(tmp_path / "lake")
    for _ in range(2):
        maker.run({0: [Event(n, b"k", b"v" * 30) for n in range(60)]})
    return maker


def reindex_at(patch: pytest.MonkeyPatch, maker: LakeMaker, days: int, ago: int = 2) -> None:
    """By a machine whose clock is so many days ahead; some days ago."""
    real = time.time_ns
    with patch.context() as inner:
        inner.setattr(time, "time_ns", lambda: real() + days * 24 * HOUR_NS)
        reindex(str(maker.root), "events", IndexPolicy(0))
    then = time.time() - ago * 86_400
    for path in maker.root.rglob("*"):
        os.utime(path, (then, then))


@pytest.mark.parametrize("days", [0, 40, -40])
def test_versions__expire_by_the_clock_of_storage(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """Not by the times that a commit's writer put into it."""
    root = str(maker.root)
    reindex_at(monkeypatch, maker, days)
    assert vacuum(root, dry_run=False).catalog_files == []
    assert open_catalog(root).snapshot(maker.versions[-1])
    assert vacuum(root, dry_run=False, retention_hours=49).catalog_files == []
    assert vacuum(root, dry_run=False, retention_hours=47).catalog_files != []
    assert verify(root, deep=True).findings == []


def test_the_tables_own_retention__holds(maker: LakeMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    reindex_at(monkeypatch, maker, 0, ago=40)
    table = CatalogTable.open(maker.store)
    log, name, told = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration", []
    for interval in ("interval 35 days", "interval 1000 HOURS"):
        native = table.handle.newest()
        native.alter.set_table_properties({log: interval, name: interval})
        told.append(bool(vacuum(str(maker.root), dry_run=True).catalog_files))
    assert told == [True, False]


# A process pauses before a commit, however long: no commit names what a vacuum deletes.


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Three runs with rejects."""
    for run in range(3):
        made = [Line(T + n, f"k{n % 5}", broken=None if n % 10 else "{") for n in range(LINES)]
        path = write_file(tmp_path / f"{run}.jsonl", made)
        ingest(pipeline_of(tmp_path / "lake", path), str(run))
    return str(tmp_path / "lake")


def sweep_root(root: str) -> None:
    """As after a pause that is longer than all that is spared."""
    vacuum(root, dry_run=False, grace_hours=0, retention_hours=0)


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

    def undo_and_tag() -> None:
        undo(root, "events", "2")
        tag(root, "second")

    before_first(monkeypatch, _Sweep, "_without_new_tags", undo_and_tag)
    sweep_root(root)
    before = QuarantineTable(open_store(root)).all_keys("events")
    assert_rejects_can_be_read(root)
    sweep_root(root)
    assert len(QuarantineTable(open_store(root)).all_keys("events")) < len(before)
    assert_rejects_can_be_read(root)
