"""What is sound is found sound, and whatever byte is wrong is found and named."""

import dataclasses
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog.schema import FILE_SCHEMAS, MaintenanceRow, Row, SegmentRow
from seglake.layout import REBUILDING, SUFFIXES, new_attempt
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.verify import verify
from seglake.maintain.publish.publish import publish
from seglake.maintain.tagging import tag
from tests.harness.tiers import rest_but
from tests.makers.catalog_rows import commit_rows, run, source
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.strategies import event_lists, examples
from tests.unit.maintain.refused import refuse


def make(root: Path) -> LakeMaker:
    maker = LakeMaker(root, partitions=2)
    rows = [Event(i * 7 % 50, b"key", b"v" * (i % 30), (("h", b"x"),)) for i in range(80)]
    maker.run({0: rows, 1: rows[:9]}, Shape(codec="zstd", segment_bytes=700))
    maker.run({0: rows[:30]}, Shape(codec="none", segment_bytes=700))
    return maker


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> LakeMaker:
    """Changed by tests that put it right again."""
    return make(tmp_path_factory.mktemp("lake"))


@given(event_lists(max_size=80), st.booleans(), st.sampled_from(["none", "lz4", "zstd"]))
@examples(15)
def test_sound_lakes__have_no_finding(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event], deep: bool, codec: str
) -> None:
    maker = LakeMaker(tmp_path_factory.mktemp("lake"))
    events = [event._replace(gap=0) for event in events]
    maker.run({0: events}, Shape(codec=codec, segment_bytes=400_000))
    maker.run({0: [event._replace(gap=3) for event in events[:3]]})
    report = verify(str(maker.root), deep=deep)
    assert (report.findings, report.orphans, report.exit_code) == ([], [], 0)
    assert report.segments == len(maker.files("log"))
    assert report.log_bytes == sum(path.stat().st_size for path in maker.files("log"))


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_missing_file__is_reported_as_missing(
    lake: LakeMaker, tmp_path: Path, suffix: str, deep: bool
) -> None:
    path = lake.files(suffix)[0]
    path.rename(tmp_path / "kept")
    try:
        report = verify(str(lake.root), deep=deep)
    finally:
        (tmp_path / "kept").rename(path)
    (finding,) = report.findings
    assert (lake.root / finding.file, finding.kind) == (path, "missing")
    assert report.exit_code == 1


def test_an_unreadable_file__does_not_stop_the_check(tmp_path: Path) -> None:
    maker = make(tmp_path)
    first, second = maker.files("zonemap")[:2]
    first.unlink()
    first.mkdir()
    second.unlink()
    found = verify(str(tmp_path)).findings
    assert {tmp_path / finding.file for finding in found} == {first, second}
    assert [finding.kind for finding in found] == ["missing", "missing"]  # a folder is no object


def test_a_file_that_storage_refuses__is_unreadable(
    lake: LakeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, gone = (path.relative_to(lake.root).as_posix() for path in lake.files("index")[:2])
    refuse(monkeypatch, lake, refused)
    ((lake.root / gone).rename(lake.root / "kept"))
    try:
        found = verify(str(lake.root)).findings
    finally:
        (lake.root / "kept").rename(lake.root / gone)
    assert {(finding.file, finding.kind) for finding in found} == {
        (refused, "unreadable"),
        (gone, "missing"),
    }


def test_objects_that_nothing_names__are_orphans(tmp_path: Path) -> None:
    maker = make(tmp_path)
    key = f"topics/events-0/{new_attempt()}/{7:020d}.log"
    for name in (key, "topics/readme", f"attempts/{new_attempt()}/manifest.json"):
        maker.store.put(name, b"x")
    report = verify(str(tmp_path), deep=True)
    assert report.findings == []
    assert len(report.orphans) == 3
    assert {key, "topics/readme"} < set(report.orphans)


def _swap(maker: LakeMaker, **changes: object) -> None:
    """Commit a row that says something else of the first segment."""
    base = maker.catalog.snapshot()
    row: SegmentRow = maker.catalog.rows.segments(base, "events")[0]
    changed = dataclasses.replace(row, **changes)  # type: ignore[arg-type]
    commit_rows(maker.catalog, [changed], base=base, replaced=[(row.partition, row.base_offset)])


@pytest.mark.parametrize(
    "change",
    [
        {"record_count": 1},
        {"min_timestamp": 1},
        {"max_timestamp": 99},
        {"offset_of_max_timestamp": 2},
        {"max_lateness_ms": 0},
    ],
)
def test_a_row_that_contradicts_its_log__is_found_by_looking_deep(
    tmp_path: Path, change: dict[str, int]
) -> None:
    maker = make(tmp_path)
    _swap(maker, **change)
    (finding,) = verify(str(tmp_path), deep=True).findings
    assert next(iter(change)) in finding.problem
    assert finding.file.endswith(".log")


def test_index_files_of_another_policy__are_found_by_looking_deep(tmp_path: Path) -> None:
    maker = make(tmp_path)
    _swap(maker, index_interval=0)
    assert verify(str(tmp_path)).findings == []
    files = {
        finding.file.rpartition(".")[2] for finding in verify(str(tmp_path), deep=True).findings
    }
    assert files <= {"index", "timeindex", "zonemap"}
    assert "index" in files


def test_runs__that_do_not_add_up_or_repeat_are_found(tmp_path: Path) -> None:
    maker = make(tmp_path)
    (first, *_) = maker.catalog.rows.run_history(maker.catalog.snapshot(), "events")
    run = dataclasses.replace(
        first, attempt_id=new_attempt(), input_rows=5, records=3, quarantined=1
    )
    base = maker.catalog.snapshot()
    commit_rows(maker.catalog, [run], base=base, attempt_id=run.attempt_id)
    problems = [finding.problem for finding in verify(str(tmp_path)).findings]
    assert [problem for problem in problems if "committed 2 times" in problem]
    assert [problem for problem in problems if "read 5 rows" in problem]
    assert [problem for problem in problems if "the quarantine has 0" in problem]
    assert len(problems) == 3


def whole_catalog(root: Path) -> LakeMaker:
    """A lake whose catalog has rows of every kind."""
    maker = make(root)
    (segment, *_) = maker.catalog.rows.segments(maker.catalog.snapshot(), "events")
    maker.delete_records(0, segment.end_offset)
    attempt = new_attempt()
    upkeep = MaintenanceRow(
        topic="events", operation="verify", attempt_id=attempt, started_at_ms=1, finished_at_ms=2
    )
    rows: list[Row] = [source("in/a", attempt, "events"), run("r", attempt, "events"), upkeep]
    commit_rows(maker.catalog, rows, attempt_id=attempt)
    tag(str(root), "q3")
    publish(str(root), "events")
    return maker


@pytest.mark.parametrize("kind", FILE_SCHEMAS)
@pytest.mark.parametrize("damage", rest_but(["flip", "cut", "gone"], "flip", "gone"))
def test_damage_to_any_file_of_the_catalog__is_a_finding(
    tmp_path: Path, kind: str, damage: str
) -> None:
    """That of runs and sources does not keep the segments from being checked."""
    maker = whole_catalog(tmp_path)
    (segment, *_) = maker.catalog.rows.segments(maker.catalog.snapshot(), "events")
    (tmp_path / segment.key("index")).unlink()
    named = {file.path: file for file in maker.catalog.snapshot().files if file.kind == kind}
    path = tmp_path / "catalog/log" / min(named)
    data = path.read_bytes()
    path.write_bytes(
        data[:20] + bytes([data[20] ^ 1]) + data[21:] if damage == "flip" else data[:9]
    )
    if damage == "gone":
        path.unlink()
    report = verify(str(tmp_path))
    assert [report.findings[0].kind, report.findings[0].topic] == [
        "catalog",
        named[min(named)].topic,
    ]
    assert tmp_path / report.findings[0].file == path
    others = [finding.file for finding in report.findings[1:]]
    apart = ("run", "source", "maintenance", "tag", "table")
    assert others == ([segment.key("index")] if kind in apart else [])
    assert report.orphans == []
    assert report.exit_code == 1


def test_all_damaged_files_of_the_catalog__are_named(tmp_path: Path) -> None:
    maker = whole_catalog(tmp_path)
    files = [f"catalog/log/{file.path}" for file in maker.catalog.snapshot().files]
    for file in files:
        (tmp_path / file).write_bytes(b"PAR1")
    assert sorted(finding.file for finding in verify(str(tmp_path)).findings) == sorted(files)


def test_a_catalog_that_is_gone_or_half_made__is_a_finding(tmp_path: Path) -> None:
    maker = make(tmp_path)
    maker.store.put(REBUILDING, b"")
    (finding,) = verify(str(tmp_path)).findings
    assert (finding.kind, finding.file) == ("catalog", REBUILDING)
    shutil.rmtree(tmp_path / "catalog/log")
    (finding,) = verify(str(tmp_path)).findings
    assert (finding.kind, finding.file) == ("catalog", REBUILDING)
    maker.store.delete([REBUILDING])
    (finding,) = verify(str(tmp_path)).findings
    assert (finding.kind, finding.file) == ("catalog", "catalog/log")


def test_an_expired_version_whose_rows_are_damaged__leaves_orphans_unknown(tmp_path: Path) -> None:
    maker = make(tmp_path)
    (old,) = (f.path for f in maker.catalog.snapshot(1).files if f.kind == "segment")
    reindex(str(tmp_path), "events")
    (tmp_path / "catalog/log" / old).write_bytes(b"PAR1")
    (finding,) = verify(str(tmp_path)).findings
    assert (finding.kind, finding.file) == ("catalog", f"catalog/log/{old}")


def test_a_damaged_commit_of_the_catalog__is_a_finding(tmp_path: Path) -> None:
    make(tmp_path)
    path = sorted((tmp_path / "catalog/log/_delta_log").glob("*.json"))[1]
    path.write_bytes(path.read_bytes()[:-20])
    (finding,) = verify(str(tmp_path)).findings
    assert (finding.kind, finding.partition) == ("catalog", -1)
    assert "catalog/log" in finding.file + finding.problem


@pytest.mark.parametrize("at_once", [1, 3, 10_000])
def test_progress__ends_at_the_total(
    lake: LakeMaker, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("seglake.catalog.rows._LISTED_ROWS", at_once)
    told: list[tuple[int, int]] = []
    report = verify(str(lake.root), progress=lambda *step: told.append(step))
    assert told[0] == (0, report.log_bytes)
    assert told[-1] == (report.log_bytes, report.log_bytes)
    assert told == sorted(told)
    assert len(set(told)) == report.segments + 1
    assert report.as_dict()["segments"] == report.segments
    assert '"findings": []' in report.as_json()


def test_progress__goes_on_with_what_tags_alone_name(tmp_path: Path) -> None:
    maker = make(tmp_path)
    tag(str(tmp_path), "q3")
    maker.delete_records(0, 80)
    told: list[tuple[int, int]] = []
    report = verify(str(tmp_path), progress=lambda *step: told.append(step))
    assert told == sorted(told)
    assert report.log_bytes < told[-1][0] == told[-1][1]
