"""Only what no retained version names goes, and nothing that may still be written."""

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import seglake
import seglake.maintain.vacuum as vacuum_module
from seglake.catalog.quarantine.files import FILE_SCHEMA, write_rejects
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.retention import expired_files
from seglake.catalog.table import CatalogTable
from seglake.errors import CorruptData, MissingObject, SeglakeError, UsageError, VersionExpired
from seglake.format.index import IndexPolicy
from seglake.layout import claim_key, failed_key, manifest_key, new_attempt, report_key, success_key
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.verify import verify
from seglake.maintain.vacuum import vacuum
from seglake.store import Listed, open_store
from tests.harness.counting import CountingStore
from tests.makers.lakes import Event, LakeMaker, Shape, open_catalog

DAY = 86_400


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    """A lake two days old, of several segments, re-indexed once."""
    maker = LakeMaker(tmp_path)
    for _ in range(2):
        rows = [Event(i, b"k", b"v" * 30) for i in range(60)]
        maker.run({0: rows}, Shape(segment_bytes=1500))
    reindex(str(tmp_path), "events", IndexPolicy(0))
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


def reject(maker: LakeMaker, attempt: str, seconds: float, *, added: bool) -> str:
    """A quarantined row of an attempt, in the quarantine table or not; its key."""
    row = {"attempt_id": attempt, "source_file": "in/a", "line": 1, "reason": "no time"}
    rows = pa.Table.from_pylist([{**row, "raw": b"{", "ingested_at_ms": 1}], FILE_SCHEMA)
    part = write_rejects(maker.store, "events", attempt, rows)
    if added:
        QuarantineTable(maker.store).add_files([part], attempt)
    age(maker.root / f"catalog/quarantine/{part.path}", seconds)
    return f"catalog/quarantine/{part.path}"


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
    assert open_catalog(str(maker.root)).snapshot(maker.versions[0])


def test_expired_versions__lose_their_files_and_cannot_be_opened(maker: LakeMaker) -> None:
    before, rows = objects(maker), contents(maker)
    planned = vacuum(str(maker.root), retention_hours=0, dry_run=True)
    assert objects(maker) == before
    live = maker.catalog.rows.segments(maker.catalog.snapshot(), "events")
    old = {
        f"{row.key('log').removesuffix('.log')}.{suffix}"
        for row in live
        for suffix in ("index", "timeindex", "zonemap")
    }
    assert set(planned.deleted) == old
    assert planned.deleted_bytes > 0
    steps = list[str]()
    done = vacuum(str(maker.root), retention_hours=0, dry_run=False, progress=steps.append)
    assert (done.deleted, done.catalog_files) == (planned.deleted, planned.catalog_files)
    assert steps[0] == "searching objects that no version names"
    assert steps[-1] == f"deleting objects, 0 of {len(old)}"
    assert objects(maker) == before - old
    assert contents(maker) == rows
    report = verify(str(maker.root), deep=True)
    assert (report.findings, report.orphans) == ([], [])
    with pytest.raises(VersionExpired):
        open_catalog(str(maker.root)).snapshot(maker.versions[0])
    assert vacuum(str(maker.root), retention_hours=0, dry_run=True).deleted == []


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
    assert objects(maker) == before | {claim_key(attempt)}
    age(maker.root / claim_key(attempt), 29 * DAY)
    assert vacuum(str(maker.root), dry_run=True).deleted == verify(str(maker.root)).orphans == []
    age(maker.root / claim_key(attempt), 32 * DAY)
    assert vacuum(str(maker.root), dry_run=False).deleted == [claim_key(attempt)]
    assert objects(maker) == before


def test_an_attempt_that_may_still_run__keeps_its_oldest_file(maker: LakeMaker) -> None:
    attempt = new_attempt()
    old = put(maker, f"topics/events-0/{attempt}/{0:020d}.log", 9 * DAY)
    new = put(maker, f"topics/events-1/{attempt}/{0:020d}.log", 60)
    report = vacuum(str(maker.root), dry_run=False)
    assert (report.deleted, set(report.young)) == ([], {old, new})
    assert set(vacuum(str(maker.root), grace_hours=0.01, dry_run=True).deleted) == {old, new}
    age(maker.root / new, 2 * DAY)
    assert set(vacuum(str(maker.root), dry_run=True).deleted) == {old, new}


def test_rejected_rows_of_dead_attempts__go_and_the_others_stay(maker: LakeMaker) -> None:
    (run, *_) = maker.catalog.rows.runs(maker.catalog.snapshot(), "events")
    attempts = [run.attempt_id, new_attempt(), new_attempt(), new_attempt(), new_attempt()]
    ages = [400 * DAY, 400 * DAY, 400 * DAY, 60, 60]
    committed, added, loose, *young = (
        reject(maker, attempt, seconds, added=number % 2 == (number > 1))
        for number, (attempt, seconds) in enumerate(zip(attempts, ages, strict=True))
    )
    adding = reject(maker, attempts[1], 400 * DAY, added=True)
    assert set(verify(str(maker.root)).orphans) == {added, adding, loose, *young}
    planned = vacuum(str(maker.root), dry_run=True)
    assert set(planned.deleted) == {added, adding, loose}
    assert set(planned.young) == set(young)
    assert vacuum(str(maker.root), dry_run=False).deleted == planned.deleted
    left = {found.key for found in maker.store.list("catalog/quarantine/topic=events")}
    assert left == {committed, *young}
    named = {Path(uri) for uri in DeltaTable(str(maker.root / "catalog/quarantine")).file_uris()}
    assert maker.root / committed in named
    assert all(path.exists() for path in named)
    assert vacuum(str(maker.root), dry_run=True).deleted == []


class _Reads(CountingStore):
    """Remembers what is read whole."""

    keys: ClassVar[list[str]] = []

    def read_all(self, key: str) -> Any:
        self.keys.append(key)
        return super().read_all(key)


def test_rows_of_runs__are_read_file_by_file_and_once_a_look(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum_module, "open_store", lambda *at: _Reads(open_store(*at)))
    monkeypatch.setattr(_Reads, "keys", [])
    put(maker, "topics/events-0/junk/never.log")
    vacuum(str(maker.root), dry_run=True)
    runs = Counter(key for key in _Reads.keys if "/kind=run/" in key)
    assert {*runs.values()} == {2}  # the names are read again if an object has none
    assert len(runs) == sum(file.kind == "run" for file in maker.catalog.newest_files())


def test_what_crashes_left_of_writes_to_the_catalog__goes_once_it_is_old(maker: LakeMaker) -> None:
    folders = ("catalog/log/_delta_log/1.json", "catalog/log/kind=run/topic=events/x.parquet",
               "catalog/quarantine/_delta_log/0.json")  # fmt: skip
    old = {put(maker, f"{key}.{'1' * 32}.tmp") for key in folders}
    young = {put(maker, f"{key}.{'2' * 32}.tmp", 60) for key in folders}
    before = {found.key for found in maker.store.list("catalog")}
    report = vacuum(str(maker.root), dry_run=False)
    assert (set(report.deleted), set(report.young)) == (old, young)
    assert {found.key for found in maker.store.list("catalog")} == before - old
    report = vacuum(str(maker.root), retention_hours=0, grace_hours=0, dry_run=True)
    keys = report.deleted + report.catalog_files
    assert young <= set(keys)
    assert len(keys) == len(set(keys))


def test_a_data_file_that_a_commit_names_meanwhile__is_read_and_stays(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was written when the expired files were looked for, and not named yet."""
    real = expired_files

    def early(table: CatalogTable, *given: Any, **named: Any) -> list[Listed]:
        found = real(table, *given, **named)
        named_now = {f"catalog/log/{file.path}" for file in table.newest_files()}
        return [*found, *(e for e in table.store.list("catalog/log") if e.key in named_now)]

    monkeypatch.setattr("seglake.maintain.vacuum.expired_files", early)
    report = verify(str(maker.root))
    assert (report.findings, report.orphans) == ([], [])
    assert vacuum(str(maker.root), dry_run=False, grace_hours=0).catalog_files == []
    assert verify(str(maker.root)).findings == []


def test_the_history__is_kept(maker: LakeMaker) -> None:
    committed = new_attempt()
    put(maker, manifest_key(committed))
    put(maker, success_key(committed))
    (marked, *_) = (
        row.attempt_id for row in maker.catalog.rows.runs(maker.catalog.snapshot(), "events")
    )
    (maker.root / success_key(marked)).unlink()  # killed between the commit and the mark
    before = objects(maker)
    planned = vacuum(str(maker.root), dry_run=True)
    assert (planned.deleted, planned.marked) == ([], [marked])
    assert objects(maker) == before
    done = vacuum(str(maker.root), dry_run=False)
    assert (done.deleted, done.marked) == ([], [marked])
    assert objects(maker) == before | {success_key(marked)}


def test_what_is_known_of_failures__goes_with_their_attempts(maker: LakeMaker) -> None:
    old = [report_key(new_attempt()), failed_key("events", "daily", "1")]
    young = report_key(new_attempt())
    for key in old:
        put(maker, key, 2 * DAY)
    put(maker, young, 0)
    report = vacuum(str(maker.root), dry_run=False)
    assert (sorted(report.deleted), report.young) == (sorted(old), [young])
    assert verify(str(maker.root)).findings == []


def test_what_is_not_ours__is_reported_and_left(maker: LakeMaker) -> None:
    strange = [put(maker, key, 99 * DAY) for key in ("attempts/x/y", "topics/events-0/note.txt")]
    report = vacuum(str(maker.root), dry_run=False)
    assert (report.deleted, sorted(report.unknown)) == ([], strange)
    assert set(strange) <= objects(maker)


def test_a_catalog_that_cannot_be_read__protects_everything(maker: LakeMaker) -> None:
    put(maker, f"topics/events-0/{new_attempt()}/{0:020d}.log")
    before, files = objects(maker), maker.catalog.snapshot().files
    for kind in ("segment", "run"):
        (file, *_) = (file for file in files if file.kind == kind)
        path = maker.root / "catalog/log" / file.path
        data = path.read_bytes()
        path.write_bytes(b"")
        with pytest.raises(CorruptData):
            vacuum(str(maker.root), dry_run=False)
        path.unlink()
        with pytest.raises(MissingObject):
            vacuum(str(maker.root), dry_run=False)
        path.write_bytes(data)
    log = max((maker.root / "catalog/log/_delta_log").glob("*.json"))
    log.write_bytes(b"{")
    with pytest.raises(SeglakeError):
        vacuum(str(maker.root), dry_run=False)
    assert objects(maker) == before
    with pytest.raises(UsageError):
        vacuum(str(maker.root / "none"), dry_run=False)
