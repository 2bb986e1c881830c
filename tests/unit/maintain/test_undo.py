"""Runs undone and replaced, against plain lists of what each run brought in."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.catalog.commits import CatalogCommits
from seglake.catalog.schema import PartitionRow
from seglake.config import Pipeline
from seglake.engine import LocalEngine
from seglake.errors import InputError, OffsetNotFound, UsageError
from seglake.layout import success_key
from seglake.maintain.undo import UndoResult, replace_files, undo
from seglake.write.driver.attempt import DeclaredRun
from seglake.write.driver.redrive import redrive
from seglake.write.driver.report import Report
from tests.harness.meanwhile import before_first
from tests.makers.catalog_rows import commit_rows
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import (
    Line,
    Stored,
    T,
    ingest,
    pipeline_of,
    quarantined,
    read_lake,
    write_file,
)

HOUR = 3_600_000


class Lake:
    """A lake, and what each of its runs brought in."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder, self.root, self.settings = folder, folder / "lake", settings
        self.runs: dict[str, set[Stored]] = {}
        self.ends: dict[int, int] = {}

    def write(self, run_id: str, lines: Sequence[Line]) -> Path:
        return write_file(self.folder / run_id / "in.jsonl", lines)

    def pipeline(self, run_id: str) -> Pipeline:
        return pipeline_of(self.root, [self.folder / run_id], **self.settings)

    def ingest(self, run_id: str, interval: tuple[int, int] | None = None) -> Report:
        return self._took(run_id, ingest(self.pipeline(run_id), run_id, interval))

    def replace(
        self,
        run_id: str,
        interval: tuple[int, int] | None = None,
        *,
        whole: bool = False,
        with_nothing: bool = False,
    ) -> Report:
        what = (LocalEngine(), self.pipeline(run_id), DeclaredRun(run_id, interval))
        report = replace_files(*what, whole_interval=whole, with_nothing=with_nothing)
        if report.status == "committed":
            for gone in report.replaced_runs:
                self.runs.pop(gone)
        return self._took(run_id, report)

    def undo(self, run_id: str, **options: Any) -> UndoResult:
        report = undo(str(self.root), "events", run_id, **options)
        assert report.records == len(self.runs.pop(run_id))
        return report

    def _took(self, run_id: str, report: Report) -> Report:
        if report.status == "committed":
            self.runs[run_id] = {
                record
                for partition, log in read_lake(self.root).items()
                for record in log
                if record.offset >= self.ends.get(partition, 0)
            }
            self.ends = seglake.open(str(self.root)).topic("events").end_offsets()
        return report

    def assert_holds(self) -> None:
        found = read_lake(self.root)
        wanted = set[Stored]().union(*self.runs.values())
        assert {record for log in found.values() for record in log} == wanted
        for records in found.values():
            offsets = [record.offset for record in records]
            assert offsets == sorted(set(offsets))
        log = seglake.open(str(self.root)).topic("events")
        assert log.end_offsets() == self.ends
        assert log.beginning_offsets() == dict.fromkeys(self.ends, 0)


def lines(count: int, start: int = T) -> list[Line]:
    return [Line(start + 10 * n, f"k{n % 4}") for n in range(count)]


# ------------------------------------------------------------------ undo


def test_an_undone_run__leaves_a_gap_and_can_come_again(tmp_path: Path) -> None:
    lake = Lake(tmp_path, topic={"partitions": 1})
    for run_id in ("a", "b", "c"):
        lake.write(run_id, lines(5))
        lake.ingest(run_id, (T, T + HOUR) if run_id == "b" else None)
    before = seglake.open(str(lake.root))
    assert before.topic("events").closed(T, T + 1)
    report = lake.undo("b")
    lake.assert_holds()
    assert (report.runs, report.offsets, report.records, report.files) == (
        ["b"], {0: [(5, 10)]}, 5, 1,
    )  # fmt: skip
    log = seglake.open(str(lake.root)).topic("events")
    assert not log.closed(T, T + 1)
    with pytest.raises(OffsetNotFound):
        log.record_at(0, 7)
    assert log.read(0, 5, max_records=1).to_pylist()[0]["offset"] == 10
    assert len(before.topic("events").read_range(T, T + HOUR).read_all()) == 15  # pinned
    states = [(run.run_id, run.state) for run in seglake.open(str(lake.root)).history("events")]
    assert states == [("a", "committed"), ("b", "committed"), ("c", "committed"), ("b", "undone")]
    (row,) = seglake.open(str(lake.root)).maintenance("events")
    assert (row.operation, row.attempt_id) == ("undo", report.attempt_id)
    again = lake.ingest("b")
    assert (again.status, again.records, again.skipped_files) == ("committed", 5, [])
    lake.assert_holds()
    assert lake.ingest("b").status == "already done"


def test_rejects_and_redrives_go_with_their_run(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    bad = [Line(0, broken='{"time": 1700000000000, "p": 0}')] * 3
    lake.write("a", [*lines(4), *bad])
    lake.ingest("a")
    other = pipeline_of(lake.root, [lake.folder / "a"], timestamp={"field": "time"})
    assert redrive(LocalEngine(), other, "a").records == 3
    report = undo(str(lake.root), "events", "a")
    assert (report.runs, report.records) == (["a", "a redrive 1"], 7)
    assert not any(read_lake(lake.root).values())
    assert quarantined(lake.root) == []
    with pytest.raises(UsageError, match="run 'a' of topic 'events' is undone"):
        redrive(LocalEngine(), other, "a")
    lake.runs.clear()
    lake.ends = seglake.open(str(lake.root)).topic("events").end_offsets()
    assert lake.ingest("a").quarantined == 3


def test_a_redrive_alone__can_be_undone(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.write("a", [*lines(4), Line(0, broken='{"time": 1700000000000, "p": 0}')])
    lake.ingest("a")
    other = pipeline_of(lake.root, [lake.folder / "a"], timestamp={"field": "time"})
    assert redrive(LocalEngine(), other, "a").records == 1
    assert undo(str(lake.root), "events", "a redrive 1").records == 1
    assert len(quarantined(lake.root)) == 1
    assert redrive(LocalEngine(), other, "a").records == 1


def test_a_run_that_is_not_there__is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.write("a", lines(4))
    lake.ingest("a")
    version = seglake.open(str(lake.root)).version
    with pytest.raises(UsageError, match=r"no run 'never'. `seglake history .*"):
        undo(str(lake.root), "events", "never")
    lake.write("hour-7", lines(4, 1))
    lake.ingest("hour-7")
    with pytest.raises(UsageError, match=r"no run 'huor-7'. Did you mean 'hour-7'"):
        undo(str(lake.root), "events", "huor-7")
    version += 1
    assert seglake.open(str(lake.root)).version == version


def test_a_run_that_is_undone__can_be_undone_again(tmp_path: Path) -> None:
    """It says what the deed did, and writes the mark that a killed one did not."""
    lake = Lake(tmp_path)
    for run_id in ("a", "b"):
        lake.write(run_id, lines(4))
        lake.ingest(run_id)
        lake.undo(run_id)
    lake.write("a", lines(5))
    lake.ingest("a")
    done = lake.undo("a")
    (lake.root / success_key(done.attempt_id)).unlink()
    version, told = seglake.open(str(lake.root)).version, undo(str(lake.root), "events", "a")
    assert seglake.open(str(lake.root)).version == version
    assert (told.status, told.version) == ("already done", -1)
    for name in ("attempt_id", "runs", "offsets", "segments", "records", "files", "pipeline"):
        assert getattr(told, name) == getattr(done, name)
    assert (lake.root / success_key(done.attempt_id)).exists()
    assert undo(str(lake.root), "events", "a", dry_run=True).status == "already done"


def test_a_run_that_was_replaced__is_undone_by_the_id_of_the_other(tmp_path: Path) -> None:
    """Its own records are gone, but others have their place, so it is no run that is undone."""
    lake = Lake(tmp_path)
    for run_id in ("hour", "day"):
        lake.write(run_id, lines(4))
    lake.ingest("hour", (T, T + HOUR))
    lake.replace("day", (T, T + 2 * HOUR), whole=True)
    with pytest.raises(UsageError, match=r"'hour' .*was replaced, .*seglake history"):
        undo(str(lake.root), "events", "hour")


def test_pipelines_that_share_a_run_id__are_told_apart(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.write("a", lines(4))
    lake.ingest("a")
    write_file(tmp_path / "b" / "in.jsonl", lines(6))
    ingest(pipeline_of(lake.root, [tmp_path / "b"], name="other"), "a")
    with pytest.raises(UsageError, match=r"several pipelines have a run 'a' .other, test."):
        undo(str(lake.root), "events", "a")
    assert undo(str(lake.root), "events", "a", pipeline="other").records == 6


def test_a_run_below_the_log_start__needs_no_new_segment(tmp_path: Path) -> None:
    lake = Lake(tmp_path, topic={"partitions": 1})
    for run_id in ("a", "b"):
        lake.write(run_id, lines(5))
        lake.ingest(run_id)
    catalog = open_catalog(str(lake.root))
    row = PartitionRow(topic="events", partition=0, sequence=1, log_start_offset=5, next_offset=10)
    commit_rows(catalog, [row], replaced=[(0, 0)])
    report = undo(str(lake.root), "events", "a")
    assert (report.segments, report.records, report.offsets, report.files) == (0, 0, {}, 1)


# ------------------------------------------------------------------ replace


def test_a_corrected_day__takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    lake = Lake(tmp_path, topic={"partitions": 1})
    for run_id in ("mon", "tue"):
        lake.write(run_id, lines(5))
        lake.ingest(run_id)
    pinned = seglake.open(str(lake.root)).topic("events")
    lake.write("mon", lines(3, T + 7))
    with pytest.raises(InputError, match="changed after it was ingested"):
        ingest(lake.pipeline("mon"), "another id")
    report = lake.replace("mon")
    assert (report.records, report.replaced_runs) == (3, ["mon"])
    lake.assert_holds()
    log = seglake.open(str(lake.root)).topic("events")
    assert [each["offset"] for each in log.read_range(0, T * 2).read_all().to_pylist()] == [
        5, 6, 7, 8, 9, 10, 11, 12,
    ]  # fmt: skip
    assert len(pinned.read_range(0, T * 2).read_all()) == 10
    version = seglake.open(str(lake.root)).version
    assert lake.replace("mon").status == "already done"
    assert lake.ingest("mon").status == "already done"
    assert seglake.open(str(lake.root)).version == version


def test_a_path_that_is_written_otherwise_is_another_setting(tmp_path: Path) -> None:
    """So its files are ingested again, at the end of the log."""
    lake = Lake(tmp_path, topic={"partitions": 1})
    path = lake.write("a", lines(5))
    lake.ingest("a")
    globbed = pipeline_of(lake.root, [f"{path.parent}/*.jsonl"], **lake.settings)
    for status, gone in (("committed", ["a"]), ("already done", [])):
        report = replace_files(LocalEngine(), globbed, DeclaredRun("a"))
        assert (report.status, report.replaced_runs) == (status, gone)
    log = seglake.open(str(lake.root)).topic("events")
    assert (log.end_offsets(), len(log.read_range(0, T * 2).read_all())) == ({0: 10}, 5)


def test_a_replacement_keeps_the_interval_that_the_run_declared(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.write("a", lines(5))
    lake.ingest("a", (T, T + HOUR))
    lake.write("a", lines(7))
    assert lake.replace("a").replaced_runs == ["a"]
    topic = seglake.open(str(lake.root)).topic("events")
    assert topic.closed(T, T + HOUR - 1)
    assert lake.replace("a").status == "already done"
    assert lake.replace("a", (T, T + 2 * HOUR)).replaced_runs == ["a"]
    assert seglake.open(str(lake.root)).topic("events").closed(T, T + 2 * HOUR - 1)


def test_the_runs_of_an_interval__are_replaced_together(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for hour in range(4):
        lake.write(str(hour), lines(5, T + hour * HOUR))
        lake.ingest(str(hour), (T + hour * HOUR, T + (hour + 1) * HOUR))
    lake.write("day", lines(6, T + HOUR))
    report = lake.replace("day", (T + HOUR, T + 3 * HOUR), whole=True)
    assert sorted(report.replaced_runs) == ["1", "2"]
    lake.assert_holds()
    assert seglake.open(str(lake.root)).topic("events").closed(T, T + 4 * HOUR - 1)
    assert lake.replace("day", (T + HOUR, T + 3 * HOUR), whole=True).status == "already done"
    with pytest.raises(UsageError, match=r"run 'day' covers .* overlaps the interval only partly"):
        lake.replace("0", (T, T + 2 * HOUR), whole=True)


def test_a_replacement_that_is_rejected__leaves_the_old_run(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.write("a", lines(5))
    lake.ingest("a")
    lake.write("a", [Line(0, broken="{")] * 4)
    with pytest.raises(seglake.errors.QuarantineLimit):
        lake.replace("a")
    lake.assert_holds()


def _empty(lake: Lake, run_id: str) -> None:
    shutil.rmtree(lake.folder / run_id)
    (lake.folder / run_id).mkdir()


def _of_another(lake: Lake, run_id: str) -> None:
    """The run's folder has nothing but a file that another run ingested."""
    _empty(lake, run_id)
    other = write_file(lake.folder / run_id / "other.jsonl", lines(3))
    ingest(pipeline_of(lake.root, [other]), "other")
    lake._took("other", Report("events", "test", "other"))


def _without_rows(lake: Lake, run_id: str) -> None:
    lake.write(run_id, [])


NOTHING = {
    "an empty folder": (_empty, "the input is empty"),
    "files of another run": (_of_another, "the topic already has 1 file"),
    "files without a row": (_without_rows, "0 records"),
}


@pytest.mark.parametrize("what", NOTHING)
@pytest.mark.parametrize("whole", [False, True])
def test_a_replacement_by_nothing__is_asked_for_by_name(
    tmp_path: Path, what: str, whole: bool
) -> None:
    lake = Lake(tmp_path, input={"on_empty": "ok"})
    for hour in range(2):
        lake.write(str(hour), [*lines(4 + hour), Line(0, broken="{")])
        lake.ingest(str(hour), (T + hour * HOUR, T + (hour + 1) * HOUR))
    takes_away, why = NOTHING[what]
    run_id, interval = ("day", (T, T + 2 * HOUR)) if whole else ("0", (T, T + HOUR))
    lake.write(run_id, lines(1))
    takes_away(lake, run_id)
    sentence = rf"{why}.*so run '0'.*--replace-with-nothing"
    with pytest.raises(UsageError, match=sentence):
        lake.replace(run_id, interval, whole=whole)
    lake.assert_holds()
    report = lake.replace(run_id, interval, whole=whole, with_nothing=True)
    lake.assert_holds()
    runs, records = (["0", "1"], 9) if whole else (["0"], 4)
    assert sorted(report.replaced_runs) == runs
    assert (report.replaced_records, report.replaced_files) == (records, len(runs))
    left = f"{records} records of {len(runs)} file"
    assert left in report.summary
    assert all(run in report.summary for run in runs)
    (row,) = [run for run in seglake.open(str(lake.root)).history() if run.run_id == run_id
              and run.state == "committed"][-1:]  # fmt: skip
    assert json.loads(row.report)["replaced_records"] == records


def test_a_run_that_brought_nothing__may_be_replaced_by_nothing(tmp_path: Path) -> None:
    """Nothing leaves: an hour without files, under other settings."""
    lake = Lake(tmp_path, input={"on_empty": "ok"})
    (tmp_path / "a").mkdir()
    lake.ingest("a")
    lake.settings["key"] = {"fields": ["n"]}
    assert lake.replace("a").status == "committed"


@pytest.mark.parametrize("run_id", ["hour-21", "zzz"])
def test_a_mistyped_id__replaces_and_commits_nothing(tmp_path: Path, run_id: str) -> None:
    lake = Lake(tmp_path)
    lake.write("hour-1", lines(5))
    lake.ingest("hour-1")
    pipeline, run = lake.pipeline("hour-1"), DeclaredRun(run_id)
    lists = "`seglake history .*lake --topic events`"
    wanted = f"no run '{run_id}' to replace.*all its files, such as 'hour-1'.*{lists}"
    with pytest.raises(UsageError, match=wanted):
        replace_files(LocalEngine(), pipeline, run)
    assert [each.run_id for each in seglake.open(str(lake.root)).history()] == ["hour-1"]
    lake.assert_holds()
    write_file(tmp_path / "hour-1" / "more.jsonl", lines(2, T + 9))
    assert replace_files(LocalEngine(), pipeline, run).records == 2


@pytest.mark.parametrize("changed", [False, True])
def test_a_run_of_another_pipeline__is_named_with_it(tmp_path: Path, changed: bool) -> None:
    """As where the name is that of the settings file, and these were copied."""
    lake = Lake(tmp_path)
    lake.write("a", lines(5))
    lake.ingest("a")
    first = lake.pipeline("a")
    copy = first.model_copy(update={"name": "copy"})
    if changed:
        lake.write("a", lines(3, T + 7))
    wanted = (
        rf"with pipeline.name = '{first.name}' and --run-id a" if changed
        else rf"pipeline 'copy' has no run 'a' .*Pipeline '{first.name}' ingested these files, but "
    )  # fmt: skip
    with pytest.raises((UsageError, InputError), match=wanted):
        replace_files(LocalEngine(), copy, DeclaredRun("a"))
    if changed:
        assert replace_files(LocalEngine(), first, DeclaredRun("a")).records == 3


def test_an_interval_whose_files_others_have__is_an_empty_run(tmp_path: Path) -> None:
    """A schedule replaces whatever it finds: that is no mistyped id."""
    lake = Lake(tmp_path)
    lake.write("a", lines(5))
    lake.ingest("a")
    run = DeclaredRun("b", (T, T + HOUR))
    report = replace_files(LocalEngine(), lake.pipeline("a"), run)
    assert report.status == "committed"
    assert "such as 'a'" in report.summary


def test_a_replacement_by_something__says_what_left(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.write("a", lines(5))
    lake.ingest("a")
    lake.write("a", lines(3, T + 7))
    summary = lake.replace("a").summary
    assert summary == "3 records, 0 rejected. Replaced run a: removed 5 records of 1 file"


def test_two_replacements_at_once__end_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    lake.write("a", lines(5))
    lake.ingest("a")
    lake.write("a", lines(8, T + 3))
    before_first(monkeypatch, CatalogCommits, "make", lambda: lake.replace("a"))
    assert lake.replace("a").status == "already done"
    lake.assert_holds()
