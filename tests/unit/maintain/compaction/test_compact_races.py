"""Compaction beside other writers, and what is refused."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.catalog.attempts import read_manifest
from seglake.catalog.schema import MaintenanceRow, SegmentRow
from seglake.engine import Engine, LocalEngine
from seglake.errors import CommitConflict
from seglake.layout import blobs_folder
from seglake.maintain.compaction import compact as module
from seglake.maintain.compaction import passes
from seglake.maintain.compaction.compact import CompactResult, compact, compact_topic
from seglake.maintain.compaction.passes import CleanedLog, LogToClean, Passes
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.verify import verify
from tests.harness.engines import ScatteredEngine
from tests.judges.latest import live_rows
from tests.makers.lakes import Event, LakeMaker, Shape, open_catalog
from tests.makers.strategies import T

NOW = T + 10**6
COMPACT = {"cleanup.policy": "compact,delete", "delete.retention.ms": 1000}
SMALL = Shape("zstd", segment_bytes=300)


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    """Two partitions of several segments; ten keys, each fifteen times."""
    maker = LakeMaker(tmp_path / "lake", partitions=2, settings=COMPACT)
    for run in range(3):
        rows = [Event(T + i, b"%d" % (i % 10), b"%d.%d" % (run, i)) for i in range(50)]
        maker.run({0: rows, 1: rows}, SMALL)
    return maker


def offsets(maker: LakeMaker, partition: int) -> list[int]:
    log = seglake.open(str(maker.root)).topic("events")
    start = maker.catalog.snapshot().partition("events", partition).log_start_offset
    found: Any = log.read(partition, start, max_records=1000)["offset"].to_pylist()
    return list(found)


def disturbed(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch, *others: Callable[[], object]
) -> CompactResult:
    """A compaction; before each of its commits another writer acts."""
    real, turn = Passes.clean, iter(others)

    def clean(self: Passes, logs: list[LogToClean]) -> list[CleanedLog]:
        cleaned = real(self, logs)
        next(turn, lambda: None)()
        return cleaned

    monkeypatch.setattr(Passes, "clean", clean)
    report = compact(str(maker.root), "events", now_ms=NOW)
    assert verify(str(maker.root), deep=True).findings == []
    return report


@pytest.mark.parametrize("log_start", [1, 30, 149, 150])
def test_what_is_deleted_meanwhile_stays_deleted(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch, log_start: int
) -> None:
    report = disturbed(maker, monkeypatch, lambda: maker.delete_records(0, log_start))
    assert all(each.cleaned for each in report.partitions)
    assert offsets(maker, 0) == [at for at in range(140, 150) if at >= log_start]
    view = maker.catalog.snapshot().partition("events", 0)
    assert (view.log_start_offset, view.end_offset, view.cleaned_offset) == (log_start, 150, 150)


def test_compaction_that_loses_every_race_is_an_error(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ROUNDS", 3)

    def change() -> None:
        reindex(str(maker.root), "events")

    with pytest.raises(CommitConflict, match="partitions 0, 1 of topic 'events'"):
        disturbed(maker, monkeypatch, *[change] * 5)
    assert offsets(maker, 0) == [*range(150)]


def test_a_round_is_a_function_of_the_log_and_the_time(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever engine and buckets: the same bytes, and no blob is left."""
    engines: tuple[Engine, ...] = LocalEngine(), LocalEngine(2), ScatteredEngine(5)
    seen = set[tuple[object, ...]]()
    for number, (engine, rows) in enumerate(product(engines, (1, 7, 10**6))):
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(tmp_path / "lake", copy)
        table = open_catalog(str(copy))
        monkeypatch.setattr(passes, "BUCKET_ROWS", rows)
        compact_topic(table, "events", engine, force=True, now_ms=NOW)
        found = table.rows.segments(table.snapshot(), "events")
        (attempt,) = {row.attempt_id for row in found}
        assert not list((copy / blobs_folder(attempt)).glob("*"))
        plain = [replace(row, attempt_id="", index_attempt_id="-") for row in found]
        seen.add((*plain, *((copy / row.key("log")).read_bytes() for row in found)))
    ((one, _, *logs),) = seen
    assert isinstance(one, SegmentRow)
    assert (one.base_offset, one.end_offset, one.record_count) == (0, 150, 10)
    assert logs[0] == logs[1]


def test_a_log_that_loses_nothing_keeps_its_files(maker: LakeMaker) -> None:
    compact(str(maker.root), "events", now_ms=NOW)
    before = live_rows(maker)
    report = compact(str(maker.root), "events", now_ms=NOW, force=True)
    assert live_rows(maker) == before
    assert report.version == maker.catalog.snapshot().version
    manifest = read_manifest(maker.store, report.attempt_id)
    assert [row.KIND for row in manifest.rows].count("partition") == 2
    assert not manifest.replaced


def test_the_catalog_says_what_was_done(maker: LakeMaker) -> None:
    report = compact(str(maker.root), "events", now_ms=NOW)
    assert [each.due for each in report.partitions] == [True, True]
    (row,) = (
        row
        for row in read_manifest(maker.store, report.attempt_id).rows
        if isinstance(row, MaintenanceRow)
    )
    assert (row.operation, row.attempt_id) == ("compact", report.attempt_id)
    assert json.loads(row.report)["partitions"] == [asdict(each) for each in report.partitions]
    (first, _) = report.partitions
    assert (first.records, first.superseded, first.null_keys) == (150, 140, 0)
    assert first.segments > first.segments_after == 1
    assert first.bytes_after == live_rows(maker, 0)[0].log_bytes
    again = compact(str(maker.root), "events", now_ms=NOW)
    assert (again.version, [each.due for each in again.partitions]) == (-1, [False, False])
