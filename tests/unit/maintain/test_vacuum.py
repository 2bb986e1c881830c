"""Only what no retained version names goes, and nothing that may still be written."""

import os
import time
from pathlib import Path

import pytest

import seglake
from seglake.catalog.table import CatalogTable
from seglake.errors import CorruptData, SeglakeError, UsageError, VersionExpired
from seglake.format.index import IndexPolicy
from seglake.layout import inputs_key, manifest_key, new_attempt, success_key
from seglake.maintain.reindex import reindex
from seglake.maintain.vacuum import vacuum
from seglake.maintain.verify import verify
from tests.lakes import Event, LakeMaker, Shape

DAY = 86_400


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    """A lake two days old, of several segments, re-indexed once."""
    maker = LakeMaker(tmp_path)
    for _ in range(2):
        rows = [Event(i, b"k", b"v" * 30) for i in range(60)]
        maker.run({0: rows}, Shape(segment_bytes=1500))
    reindex(str(tmp_path), "events", IndexPolicy("bytes", 0))
    for path in tmp_path.rglob("*"):
        age(path, 2 * DAY)
    return maker


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def put(maker: LakeMaker, key: str, seconds: float = 2 * DAY) -> str:
    maker.store.put(key, b"x")
    age(maker.root / key, seconds)
    return key


def objects(maker: LakeMaker) -> set[str]:
    return {found.key for top in ("topics", "attempts") for found in maker.store.list(top)}


def contents(maker: LakeMaker) -> list[int]:
    log = seglake.open(str(maker.root)).topic("events")
    return [row["offset"] for batch in log.read_range(0, 10**6) for row in batch.to_pylist()]


def test_retained_versions__keep_all_their_files(maker: LakeMaker) -> None:
    before = objects(maker)
    report = vacuum(str(maker.root), dry_run=False)
    assert (report.deleted, report.catalog_files, report.young, report.unknown) == ([], [], [], [])
    assert objects(maker) == before
    assert CatalogTable.open(str(maker.root)).snapshot(maker.versions[0])


def test_expired_versions__lose_their_files_and_cannot_be_opened(maker: LakeMaker) -> None:
    before, rows = objects(maker), contents(maker)
    planned = vacuum(str(maker.root), retention_hours=0)
    assert objects(maker) == before
    live = maker.catalog.segments(maker.catalog.snapshot(), "events")
    old = {
        f"{row.key('log').removesuffix('.log')}.{suffix}"
        for row in live
        for suffix in ("index", "timeindex", "zonemap")
    }
    assert set(planned.deleted) == old
    assert planned.deleted_bytes > 0
    done = vacuum(str(maker.root), retention_hours=0, dry_run=False)
    assert (done.deleted, done.catalog_files) == (planned.deleted, planned.catalog_files)
    assert objects(maker) == before - old
    assert contents(maker) == rows
    report = verify(str(maker.root), deep=True)
    assert (report.findings, report.orphans) == ([], [])
    with pytest.raises(VersionExpired):
        CatalogTable.open(str(maker.root)).snapshot(maker.versions[0])
    assert vacuum(str(maker.root), retention_hours=0).deleted == []


def test_failed_attempts__go_with_everything_that_they_wrote(maker: LakeMaker) -> None:
    before, attempt = objects(maker), new_attempt()
    log = f"topics/events-0/{attempt}/{7:020d}.log"
    added = {
        put(maker, log),
        put(maker, f"topics/gone-3/{attempt}/{7:020d}.index"),
        put(maker, f"{log}.{'0' * 32}.tmp"),
        put(maker, manifest_key(attempt)),
    }
    assert set(vacuum(str(maker.root), dry_run=False).deleted) == added
    assert objects(maker) == before


def test_an_attempt_that_may_still_run__keeps_its_oldest_file(maker: LakeMaker) -> None:
    attempt = new_attempt()
    old = put(maker, f"topics/events-0/{attempt}/{0:020d}.log", 9 * DAY)
    new = put(maker, f"topics/events-1/{attempt}/{0:020d}.log", 60)
    report = vacuum(str(maker.root), dry_run=False)
    assert (report.deleted, set(report.young)) == ([], {old, new})
    assert set(vacuum(str(maker.root), grace_hours=0.01).deleted) == {old, new}
    age(maker.root / new, 2 * DAY)
    assert set(vacuum(str(maker.root)).deleted) == {old, new}


def test_the_history__is_kept(maker: LakeMaker) -> None:
    put(maker, inputs_key("events", "daily", "2026-11-20"))
    committed = new_attempt()
    put(maker, manifest_key(committed))
    put(maker, success_key(committed))
    (marked, *_) = (
        row.attempt_id for row in maker.catalog.runs(maker.catalog.snapshot(), "events")
    )
    (maker.root / success_key(marked)).unlink()  # killed between the commit and the mark
    before = objects(maker)
    assert vacuum(str(maker.root), dry_run=False).deleted == []
    assert objects(maker) == before


def test_what_is_not_ours__is_reported_and_left(maker: LakeMaker) -> None:
    strange = [put(maker, key, 99 * DAY) for key in ("attempts/x/y", "topics/events-0/note.txt")]
    report = vacuum(str(maker.root), dry_run=False)
    assert (report.deleted, sorted(report.unknown)) == ([], strange)
    assert set(strange) <= objects(maker)


def test_a_catalog_that_cannot_be_read__protects_everything(maker: LakeMaker) -> None:
    put(maker, f"topics/events-0/{new_attempt()}/{0:020d}.log")
    path = max((maker.root / "catalog/log/kind=segment").rglob("*.parquet"))
    path.write_bytes(b"")
    before = objects(maker)
    with pytest.raises(CorruptData):
        vacuum(str(maker.root), dry_run=False)
    log = max((maker.root / "catalog/log/_delta_log").glob("*.json"))
    log.write_bytes(b"{")
    with pytest.raises(SeglakeError):
        vacuum(str(maker.root), dry_run=False)
    assert objects(maker) == before
    with pytest.raises(UsageError):
        vacuum(str(maker.root / "none"), dry_run=False)
