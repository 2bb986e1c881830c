"""What a schedule runs: what the settings ask for, and the rest even if a part fails."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import seglake
from seglake.cli.app import app
from seglake.engine import LocalEngine
from seglake.errors import CommitConflict, UsageError
from seglake.maintain import schedule
from seglake.maintain.expiry.retention import retain_topic
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from seglake.maintain.schedule import MaintainResult
from seglake.maintain.vacuum import vacuum
from seglake.write.driver.redrive import redrive
from tests.makers.lakes import Event, LakeMaker, Shape, open_catalog
from tests.makers.raw_events import Line, T, ingest, pipeline_of, quarantined, write_file


@pytest.fixture
def root(tmp_path: Path) -> str:
    """Three topics of several segments; retention of two keeps less than there is."""
    maker = LakeMaker(tmp_path / "lake")
    for name in ("a", "b", "c"):
        maker.topic = name
        maker.run({0: [Event(i, b"k", b"v" * 30) for i in range(60)]}, Shape(segment_bytes=900))
    for name in ("a", "b"):
        seglake.alter(str(maker.root), name, {"retention.bytes": 2000})
    return str(maker.root)


def starts(root: str) -> dict[str, int]:
    lake = seglake.open(root)
    return {name: lake.topic(name).beginning_offsets()[0] for name in lake.topics()}


def done(report: MaintainResult, operation: str) -> list[str | None]:
    return [each.topic for each in report.parts if each.operation == operation and not each.error]


def test_each_topic_gets_what_its_settings_ask_for(root: str) -> None:
    report = seglake.maintain_lake(root)
    assert done(report, "retain") == ["a", "b"]
    assert done(report, "vacuum") == [None]
    assert report.exit_code == 0
    found = starts(root)
    assert found["a"] == found["b"] > 0 == found["c"]
    assert json.loads(report.as_json())["parts"][0]["report"]["topic"] == "a"


def test_a_compacted_topic_is_compacted_where_it_is_due(root: str) -> None:
    seglake.alter(root, "c", {"cleanup.policy": "compact"})
    planned = seglake.maintain_lake(root, "c", dry_run=True)
    assert done(planned, "compact") == ["c"]
    assert seglake.open(root).topic("c").read(0, 0).num_rows == 60
    report = seglake.maintain_lake(root, "c")
    assert (done(report, "compact"), report.exit_code) == (["c"], 0)
    assert seglake.open(root).topic("c").read(0, 0)["offset"].to_pylist() == [59]


def test_the_records_that_a_compaction_removes_are_told(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path, settings={"cleanup.policy": "compact"})
    maker.run({0: [Event(0, b"k"), Event(1), Event(2), Event(3, b"k")]})
    what = "1 superseded record, 2 keyless records"
    for dry_run, fate in ((["--dry-run"], "would be removed"), ([], "removed")):
        done = CliRunner().invoke(app, ["maintain", str(tmp_path), "events", *dry_run])
        assert f"  {what} {fate}  " in done.stdout


def test_one_topic_alone(root: str) -> None:
    assert done(seglake.maintain_lake(root, "b"), "retain") == ["b"]
    found = starts(root)
    assert found["a"] == found["c"] == 0 < found["b"]


@pytest.mark.parametrize("error", [CommitConflict("lost"), RuntimeError("odd")])
def test_a_part_that_fails_is_told_and_the_rest_is_done(
    root: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    real = retain_topic

    def fail(table: Any, topic: str, *given: Any, **named: Any) -> Any:
        if topic == "a":
            raise error
        return real(table, topic, *given, **named)

    monkeypatch.setattr(schedule, "retain_topic", fail)
    report = seglake.maintain_lake(root)
    (failed,) = [part for part in report.parts if part.error]
    assert (failed.operation, failed.topic) == ("retain", "a")
    assert str(error) in str(failed.error)
    assert report.exit_code == 1
    assert done(report, "retain") == ["b"]
    assert done(report, "vacuum") == [None]
    assert starts(root)["b"] > 0
    ended = CliRunner().invoke(app, ["maintain", root, "--json"])
    assert ended.exit_code == 1
    assert "failed: " in CliRunner().invoke(app, ["maintain", root]).stdout


def test_a_dry_run_shows_what_earlier_parts_leave_to_later_ones(tmp_path: Path) -> None:
    """Retention leaves fewer segments to merge, and compaction smaller ones."""
    maker = LakeMaker(tmp_path / "lake")
    for name in ("retained", "compacted"):
        maker.topic = name
        for number in range(12):
            rows = [Event(T + number * 10 + i, b"k%d" % (i % 4), b"v" * 30) for i in range(10)]
            maker.run({0: rows})
    root = str(maker.root)
    seglake.alter(root, "retained", {"retention.bytes": 1500})
    seglake.alter(root, "compacted", {"cleanup.policy": "compact"})
    before = sorted(maker.root.rglob("*"))
    alone = [merge(root, name, dry_run=True).segments for name in ("compacted", "retained")]
    planned = seglake.maintain_lake(root, dry_run=True)
    assert sorted(maker.root.rglob("*")) == before
    real = seglake.maintain_lake(root)
    names = [(part.operation, part.topic) for part in real.parts]
    assert names == [(part.operation, part.topic) for part in planned.parts]
    merged = list[int]()
    for plan, act in zip(planned.parts, real.parts, strict=True):
        if plan.operation == "vacuum":
            continue
        assert plan.error is act.error is None
        assert plan.report
        assert act.report
        assert {name: value for name, value in plan.report.items() if name not in _OWN} == {
            name: value for name, value in act.report.items() if name not in _OWN
        }
        merged += [act.report["segments"]] if plan.operation == "merge" else []
    assert merged != alone


_OWN = {"dry_run", "version", "attempt_id", "started_at_ms", "now_ms"}


# ------------------------------------------------------------------ rejects


@pytest.fixture
def rejecting(tmp_path: Path) -> Path:
    """A lake with two runs, of which each rejected rows; the second is redriven in part."""
    for name in "ab":
        lines = [Line(T, "k"), Line(T, broken="{"), Line(T, broken='{"n":1}')]
        write_file(tmp_path / name / "1.jsonl", lines)
        ingest(pipeline_of(tmp_path / "lake", tmp_path / name), name)
    return tmp_path


def files(folder: Path) -> list[Path]:
    return sorted((folder / "lake" / "catalog" / "quarantine").rglob("*.parquet"))


def rejects(folder: Path) -> list[Any]:
    shown = CliRunner().invoke(app, ["quarantine", str(folder / "lake"), "events", "--json"])
    rows: list[Any] = json.loads(shown.stdout)
    return rows


def sweep(folder: Path) -> None:
    vacuum(str(folder / "lake"), dry_run=False, grace_hours=0, retention_hours=0)


def test_rejects_are_kept_by_default(rejecting: Path) -> None:
    before = files(rejecting)
    report = seglake.maintain_lake(str(rejecting / "lake"), grace_hours=0)
    assert done(report, "expire-rejects") == []
    assert files(rejecting) == before
    assert len(rejects(rejecting)) == 4


def test_rejects_of_old_runs_expire_and_their_files_go(rejecting: Path) -> None:
    root, records = str(rejecting / "lake"), len(quarantined(rejecting / "lake"))
    seglake.alter(root, "events", {"quarantine.retention.ms": 3_600_000})
    report = seglake.maintain_lake(root, grace_hours=0)
    assert done(report, "expire-rejects") == ["events"]
    assert len(rejects(rejecting)) == records == 4
    seglake.alter(root, "events", {"quarantine.retention.ms": 0})
    (expired,) = [
        part.report
        for part in seglake.maintain_lake(root, dry_run=True).parts
        if part.operation == "expire-rejects"
    ]
    assert expired
    assert (expired["runs"], expired["rejects"]) == (2, 4)
    seglake.maintain_lake(root)
    assert rejects(rejecting) == []
    assert verify(root, deep=True).findings == []  # their files wait for a vacuum
    assert len(files(rejecting)) == 2
    sweep(rejecting)
    assert files(rejecting) == []
    assert verify(root, deep=True).findings == []
    assert quarantined(rejecting / "lake") == []
    version = open_catalog(root).snapshot().version
    again = seglake.maintain_lake(root)
    assert again.exit_code == 0
    assert open_catalog(root).snapshot().version == version


def test_expired_rejects_cannot_be_redriven(rejecting: Path) -> None:
    root = str(rejecting / "lake")
    seglake.alter(root, "events", {"quarantine.retention.ms": 0})
    seglake.maintain_lake(root)
    settings = pipeline_of(root, rejecting / "a", timestamp={"field": "n"})
    with pytest.raises(UsageError, match="the rejects of run 'a' have expired"):
        redrive(LocalEngine(), settings, "a")


def test_rejects_of_later_runs_stay(rejecting: Path) -> None:
    root = str(rejecting / "lake")
    seglake.alter(root, "events", {"quarantine.retention.ms": 0})
    seglake.maintain_lake(root)
    seglake.alter(root, "events", {}, delete=["quarantine.retention.ms"])
    write_file(rejecting / "c" / "1.jsonl", [Line(T, "k"), Line(T, broken="{")])
    ingest(pipeline_of(root, rejecting / "c"), "c")
    sweep(rejecting)
    assert [row["run_id"] for row in rejects(rejecting)] == ["c"]
    assert verify(root, deep=True).findings == []


def test_small_runs_are_merged(tmp_path: Path) -> None:
    """Of a topic as an ingest makes it, with all its settings in the catalog."""
    lake = tmp_path / "lake"
    for number in range(12):
        write_file(tmp_path / f"{number}" / "1.jsonl", [Line(T + number, "k")])
        topic = {"index.interval.bytes": 300, "partitions": 1}
        ingest(pipeline_of(lake, tmp_path / f"{number}", topic=topic), f"{number}")
    before = quarantined(lake)
    planned = seglake.maintain_lake(str(lake), dry_run=True)
    report = seglake.maintain_lake(str(lake))
    assert (done(planned, "merge"), done(report, "merge")) == (["events"], ["events"])
    table = open_catalog(str(lake))
    assert len(table.rows.segments(table.snapshot(), "events")) < 12
    assert seglake.open(str(lake)).topic("events").read(0, 0).num_rows == 12
    assert quarantined(lake) == before
    assert verify(str(lake), deep=True).findings == []
