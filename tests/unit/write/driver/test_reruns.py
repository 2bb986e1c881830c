"""The same run again, other runs after it, and what must not be ingested twice."""

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.advice.finding import Finding
from seglake.catalog import transaction
from seglake.catalog.commits import CatalogCommits
from seglake.catalog.table import CatalogTable
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import Pipeline
from seglake.engine import LocalEngine
from seglake.errors import (
    ChangedFiles,
    CommitConflict,
    ConfigError,
    InputError,
    StoreError,
    UsageError,
)
from seglake.layout import success_key
from seglake.store import local, open_store
from seglake.write.api import run_pipeline
from seglake.write.driver.run import DeclaredRun, ingest_files
from seglake.write.input.files import Split
from seglake.write.input.listing import BY_LINK, BY_NAME
from seglake.write.map import unit as units
from seglake.write.rows.records import ExtractedChunk, read_split
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import (
    Line,
    T,
    assert_holds,
    ingest,
    pipeline_of,
    read_lake,
    read_raw,
    write_file,
)


class Died(BaseException):
    """As if the process had been killed."""


class Dying(LocalEngine):
    """Dies once the input is listed."""

    def map(self, task: Any, rows: Any) -> Any:
        raise Died


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    write_file(tmp_path / "in" / "a.jsonl", [Line(T + at, "abc"[at % 3]) for at in range(9)])
    return tmp_path / "in"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def values(lake: Path) -> list[bytes]:
    return sorted(r.value or b"" for log in read_lake(lake).values() for r in log)


# ------------------------------------------------------------------ the same run again


def test_the_same_run_is_a_no_op_that_says_what_changed(inbox: Path, lake: Path) -> None:
    write_file(inbox / "b.jsonl", [Line(T)])
    settings = pipeline_of(lake, inbox)
    first, before = ingest(settings), values(lake)
    version = open_catalog(str(lake)).snapshot().version
    same = ingest(settings)
    assert same.summary == "already committed, so nothing was ingested"
    new = write_file(inbox / "c.jsonl", [Line(T)])
    changed = write_file(inbox / "a.jsonl", [Line(T)])
    (inbox / "b.jsonl").unlink()
    with pytest.raises(ChangedFiles) as raised:
        ingest(settings)
    assert (raised.value.paths, raised.value.exit_code) == ([str(changed)], 6)
    again = ingest(pipeline_of(lake, inbox, on_changed_source="skip"))
    assert (again.status, again.attempt_id, again.records) == ("already done", first.attempt_id, 10)
    assert (again.input_rows, again.exit_code) == (10, 0)
    assert (again.new_files, again.changed_files) == ([str(new)], [str(changed)])
    assert again.gone_files == [str(inbox / "b.jsonl")]
    told = rf"1 file new \({new}\), 1 file changed \({changed}\), 1 file gone \(.*another run id"
    assert re.search(told, again.summary)
    assert again.as_dict()["summary"] == again.summary
    assert values(lake) == before
    assert open_catalog(str(lake)).snapshot().version == version


def test_what_other_runs_ingested_since_is_not_new(inbox: Path, lake: Path) -> None:
    ingest(pipeline_of(lake, inbox), "1")
    write_file(inbox / "b.jsonl", [Line(T)])
    ingest(pipeline_of(lake, inbox), "2")
    (inbox / "b.jsonl").unlink()
    assert ingest(pipeline_of(lake, inbox), "1").summary.endswith("nothing was ingested")
    assert ingest(pipeline_of(lake, inbox), "2").gone_files == [str(inbox / "b.jsonl")]


def test_a_run_that_finds_nothing_new_says_so(inbox: Path, lake: Path) -> None:
    assert ingest(pipeline_of(lake, inbox), "1").summary == "9 records, 0 rejected"
    nothing = ingest(pipeline_of(lake, inbox), "2")
    assert nothing.summary.endswith("the --run-id of the run that ingested them, such as '1'")
    assert nothing.findings == []
    (found,) = ingest(pipeline_of(lake, inbox, name="other"), "1").findings
    assert found == Finding("other-pipeline", "test", {"own": "other"})
    write_file(inbox / "more.jsonl", [Line(T)])
    ingest(pipeline_of(lake, inbox), "2026-11-26T01")
    mistyped = ingest(pipeline_of(lake, inbox), "2026-11-26T1", (T, T + 1000))
    assert "such as '2026-11-26T01'" in mistyped.summary
    (inbox / "more.jsonl").unlink()
    empty = pipeline_of(lake, inbox / "*.none", input={"on_empty": "ok"})
    assert ingest(empty, "3").summary == "nothing new: the input is empty"
    write_file(inbox / "a.jsonl", [Line(T)])
    skipping = ingest(pipeline_of(lake, inbox, on_changed_source="skip"), "4")
    assert "already has 1 file, 1 of them changed" in skipping.summary


def test_a_file_is_ingested_once_whatever_it_is_called(inbox: Path, lake: Path) -> None:
    folder = inbox.parent / "pods"
    first, real = folder / "a.jsonl", folder / "z/real.jsonl"
    write_file(real, [Line(T), Line(T + 1)])
    first.symlink_to(real)
    (folder / "_part.jsonl").write_text("x")
    alone = ingest(pipeline_of(lake, first), "1")
    assert (alone.records, alone.left_out) == (2, {})
    settings = pipeline_of(lake, folder)
    both = ingest(settings, "2")
    assert (both.records, both.input_files, [*both.skipped_files]) == (0, 0, [str(first)])
    assert both.left_out == {BY_NAME: 1, BY_LINK: 1}
    assert json.loads(seglake.open(str(lake)).history()[-1].report)["left_out"] == both.left_out
    again = ingest(settings, "2")
    assert (again.status, again.new_files) == ("already done", [])
    other = ingest(pipeline_of(inbox.parent / "other", folder), "1")
    assert (other.records, other.input_files, other.left_out) == (2, 1, both.left_out)


def test_a_missing_folder_is_an_empty_hour_that_names_it(inbox: Path, lake: Path) -> None:
    ingest(pipeline_of(lake, inbox), "0")
    hour = inbox.parent / "hour"
    settings = pipeline_of(lake, hour, input={"on_empty": "ok"})
    done = ingest(settings, "1")
    assert (done.status, done.missing_paths) == ("committed", [str(hour)])
    assert done.summary == f"nothing new: the input is empty. {hour} is missing"
    (run,) = [each for each in seglake.open(str(lake)).history() if each.run_id == "1"]
    assert json.loads(run.report)["missing_paths"] == [str(hour)]
    late = write_file(hour / "late.jsonl", [Line(T)])
    again = ingest(settings, "1")
    assert (again.status, again.new_files) == ("already done", [str(late)])
    assert f"Since then: 1 file new ({late}). To replace" in again.summary
    assert "missing_paths" not in json.loads(
        next(each.report for each in seglake.open(str(lake)).history() if each.run_id == "0")
    )


def test_files_are_not_ingested_by_the_pipeline_of_a_dataframe(lake: Path) -> None:
    tables = pipeline_of(lake, "in").model_dump(mode="json", by_alias=True, exclude_unset=True)
    frame = {"format": "dataframe", "order_column": "n"}
    settings = Pipeline.model_validate({**tables, "input": frame})
    with pytest.raises(ConfigError, match=r"'dataframe' has no files.*seglake.ingest"):
        run_pipeline(settings, run_id="1")
    assert not lake.exists()


def test_the_same_run_with_other_settings_or_interval_is_an_error(inbox: Path, lake: Path) -> None:
    ingest(pipeline_of(lake, inbox), "r", (T, T + 5))
    with pytest.raises(ConfigError, match=r"'r'.*other settings or paths, by attempt .*--run-id"):
        ingest(pipeline_of(lake, inbox, order="arrival"), "r", (T, T + 5))
    with pytest.raises(ConfigError, match=r"'r'.* the interval 2\d{3}-.*Z to 2\d{3}-.*Z, by"):
        ingest(pipeline_of(lake, inbox), "r")
    ingest(pipeline_of(lake, inbox, name="none"), "r")
    with pytest.raises(ConfigError, match=r"with no interval, by .* or leave out the interval"):
        ingest(pipeline_of(lake, inbox, name="none"), "r", (T, T + 5))
    assert ingest(pipeline_of(lake, inbox), "r", (T, T + 5)).status == "already done"
    other_name = pipeline_of(lake, inbox, name="other", order="arrival")
    assert ingest(other_name, "r").status == "committed"  # a run of another pipeline


def test_an_interval_has_two_ends_in_order(inbox: Path, lake: Path) -> None:
    for interval, problem in (
        ((T, T), "not after its start"),
        (("2026-01-02T00:00Z", "2026-01-01T00:00Z"), "not after its start"),
        ((T, None), "has no start or no end"),
        ((T, 2**63 - 1), "the run's interval is open"),
        ((1 - 2**63, T), "the run's interval is open"),
        ((T * 1000, T * 1000 + 1), "looks like microseconds. Give milliseconds"),
        ((None, T), "has no start or no end"),
        ((T, "2026-01-01"), "no time zone"),
    ):
        with pytest.raises(UsageError, match=problem):
            run_pipeline(pipeline_of(lake, inbox), interval=interval)


# ------------------------------------------------------------------ only a commit binds


def die(settings: Pipeline, run_id: str = "1") -> None:
    """An attempt that lists its input and is killed."""
    with pytest.raises(Died):
        ingest_files(Dying(), settings, DeclaredRun(run_id))


def test_an_attempt_that_died_binds_neither_paths_nor_settings(inbox: Path, lake: Path) -> None:
    die(pipeline_of(lake, inbox, order="arrival", timestamp={"field": "n"}))
    mended = pipeline_of(lake, inbox / "a.jsonl")
    assert ingest(mended, "1").records == 9
    assert_holds(read_lake(lake), mended, [[inbox / "a.jsonl"]])


def test_a_file_that_changed_or_went_between_attempts_is_read_as_it_is(
    inbox: Path, lake: Path
) -> None:
    settings = pipeline_of(lake, inbox)
    write_file(inbox / "b.jsonl", [Line(T)])
    die(settings)
    write_file(inbox / "a.jsonl", [Line(T + 1 + at, "abc"[at % 3]) for at in range(7)])
    (inbox / "b.jsonl").unlink()
    assert ingest(settings, "1").records == 7
    assert_holds(read_lake(lake), settings, [[inbox / "a.jsonl"]])


def test_planning_again_keeps_the_list(inbox: Path, lake: Path) -> None:
    """What comes while a run goes on is left to the next run."""

    class Overtaken(LocalEngine):
        def map(self, task: Any, rows: Any) -> Any:
            if not list(inbox.glob("late*")):
                write_file(inbox / "late.jsonl", [Line(T)])
                ingest(pipeline_of(lake, inbox / "a.jsonl", name="other"), "0")
            return super().map(task, rows)

    write_file(inbox / "b.jsonl", [Line(T)])
    report = ingest_files(Overtaken(), pipeline_of(lake, inbox), DeclaredRun("1"))
    assert (report.records, report.skipped_files) == (1, [str(inbox / "a.jsonl")])
    assert ingest(pipeline_of(lake, inbox), "2").records == 1


@pytest.mark.parametrize("change", [{"order": "arrival"}, {}])
def test_of_twins_one_commits_and_the_other_says_so(
    inbox: Path, lake: Path, change: dict[str, Any]
) -> None:
    class Overtaken(LocalEngine):
        def map(self, task: Any, rows: Any) -> Any:
            if not winner:
                winner.append(None)
                winner.append(ingest(pipeline_of(lake, inbox), "1").attempt_id)
            return super().map(task, rows)

    winner: list[Any] = []
    loser = pipeline_of(lake, inbox, **change)
    if change:
        with pytest.raises(ConfigError) as raised:
            ingest_files(Overtaken(), loser, DeclaredRun("1"))
        assert raised.value.exit_code == 2
        told = f"committed with other settings or paths, by attempt {winner[1]}, which ended at 20"
        assert told in str(raised.value)
        assert "Nothing was ingested. For other files (--source" in str(raised.value)
    else:
        report = ingest_files(Overtaken(), loser, DeclaredRun("1"))
        assert (report.status, report.attempt_id) == ("already done", winner[1])
    assert_holds(read_lake(lake), pipeline_of(lake, inbox), [[inbox / "a.jsonl"]])


@pytest.mark.parametrize("becomes", ["another file", "no file"])
def test_a_file_that_changes_while_it_is_read_is_an_error(
    inbox: Path, lake: Path, monkeypatch: pytest.MonkeyPatch, becomes: str
) -> None:
    """Else what is ingested would be some of the old file and some of the new one."""

    def rewriting(split: Split, *others: Any) -> Iterator[ExtractedChunk]:
        for number, chunk in enumerate(read_split(split, *others)):
            yield chunk
            if number == 1:
                data = path.read_bytes().replace(b'"a', b'"z') if becomes == "another file" else b""
                path.write_bytes(data)

    path, settings = inbox / "a.jsonl", pipeline_of(lake, inbox, task={"chunk_bytes": 80})
    with monkeypatch.context() as patched:
        patched.setattr(units, "read_split", rewriting)
        with pytest.raises(InputError, match=r"a\.jsonl changed while this run read it"):
            ingest(settings, "1")
    assert open_catalog(str(lake)).snapshot().topics() == []
    assert path.stat().st_size == 0 or ingest(settings, "2").records == 9


# ------------------------------------------------------------------ files that were there before


def test_a_file_is_ingested_into_a_topic_once(inbox: Path, lake: Path) -> None:
    settings = pipeline_of(lake, inbox)
    ingest(settings, "1")
    again = ingest(pipeline_of(lake, inbox, name="another"), "2")
    assert (again.records, again.skipped_files) == (0, [str(inbox / "a.jsonl")])
    assert len(values(lake)) == 9
    other = pipeline_of(lake, inbox, topic={"name": "other"})
    assert ingest(other, "1").records == 9
    assert len(seglake.open(str(lake)).topics()) == 2


def test_the_row_of_a_run_does_not_grow_with_the_files_that_changed(
    inbox: Path, lake: Path
) -> None:
    """Every later ingest reads it: it has their count and a few of them; the report has all."""
    paths = [write_file(inbox / f"many-{n:02}.jsonl", [Line(T)]) for n in range(40)]
    ingest(pipeline_of(lake, inbox), "1")
    for path in paths:
        os.utime(path, ns=(1, 1))
    report = ingest(pipeline_of(lake, inbox, on_changed_source="skip"), "2")
    assert report.changed_files == list(map(str, paths))
    table = open_catalog(str(lake))
    row = table.rows.run(table.snapshot(), "events", report.pipeline, "2")
    assert row is not None
    told = json.loads(row.report)
    assert told["changed_files"] == report.changed_files[:10]
    assert told["changed_files_more"] == 30


@pytest.mark.parametrize("change", ["grown", "same size", "touched"])
def test_a_changed_file_is_met_by_the_policy(inbox: Path, lake: Path, change: str) -> None:
    path = inbox / "a.jsonl"
    ingest(pipeline_of(lake, inbox), "1")
    old = path.stat()
    if change == "grown":
        path.write_bytes(path.read_bytes() + b'{"ts":5,"n":"new","p":0}\n')
    elif change == "same size":
        path.write_bytes(path.read_bytes().replace(b":0", b":9"))
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns + 10**9))
    for run_id in "1", "2":  # the committed run, and a new one
        with pytest.raises(ChangedFiles, match=r"a\.jsonl changed .*`--replace` with --run-id 1"):
            ingest(pipeline_of(lake, inbox), run_id)
    skipping = ingest(pipeline_of(lake, inbox, on_changed_source="skip"), "3")
    assert (skipping.records, skipping.changed_files) == (0, [str(path)])
    anew = pipeline_of(lake, inbox, on_changed_source="ingest-as-new")
    assert ingest(anew, "1").changed_files == [str(path)]
    report = ingest(anew, "4")
    assert (report.records, report.changed_files) == (9 + (change == "grown"), [str(path)])
    assert len(values(lake)) == 18 + (change == "grown")
    assert ingest(anew, "5").records == 0  # both versions are known now
    os.utime(path, ns=(0, 0))
    with pytest.raises(InputError):
        ingest(pipeline_of(lake, inbox), "6")


def test_a_file_is_known_by_its_path_as_it_is_given(inbox: Path, lake: Path) -> None:
    """Names of the same file that the listing does not have are not looked for."""
    ingest(pipeline_of(lake, inbox), "1")
    (inbox.parent / "link").symlink_to(inbox)
    os.link(inbox / "a.jsonl", inbox / "b.jsonl")
    assert ingest(pipeline_of(lake, inbox), "2").skipped_files == [str(inbox / "a.jsonl")]
    assert ingest(pipeline_of(lake, inbox.parent / "link"), "3").records == 9
    assert len(values(lake)) == 2 * 9


# ------------------------------------------------------------------ offsets and topics


def test_a_topic_may_grow(inbox: Path, lake: Path) -> None:
    ingest(pipeline_of(lake, inbox, topic={"partitions": 1}), "1")
    before = read_lake(lake)
    write_file(inbox / "b.jsonl", [Line(T, key) for key in "abcdefgh"])
    ingest(pipeline_of(lake, inbox, topic={"partitions": 4}), "2")
    after = read_lake(lake)
    assert len(after) == 4
    assert after[0][:9] == before[0]
    assert sum(map(len, after.values())) == 17
    assert after == read_raw(lake)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"partitions": 2}, "3 partitions, which cannot be lowered to 2"),
        ({"partition_field": "p"}, "partitioner = 'murmur2'.*'field:p'"),
        ({"message.timestamp.type": "LogAppendTime"}, "message.timestamp.type = 'CreateTime'"),
    ],
)
def test_a_run_that_contradicts_its_topic_is_an_error(
    inbox: Path, lake: Path, change: dict[str, Any], told: str
) -> None:
    ingest(pipeline_of(lake, inbox), "1")
    with pytest.raises(ConfigError, match=told):
        ingest(pipeline_of(lake, inbox, topic=change), "2")
    assert ingest(pipeline_of(lake, inbox, topic={"segment.bytes": 5000}), "3").version > 0


def test_append_time_never_goes_back(
    inbox: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamped = {"topic": {"message.timestamp.type": "LogAppendTime", "partitions": 2}}
    now = time.time_ns()
    for run, step_s in enumerate((0, -3600, -10, 5, -7200)):
        monkeypatch.setattr(time, "time_ns", lambda step_s=step_s: now + step_s * 10**9)
        write_file(inbox / f"{run}.jsonl", [Line(T, key) for key in "abcdef"])
        ingest(pipeline_of(lake, inbox, **stamped), str(run))
    times = [[record.timestamp for record in log] for log in read_lake(lake).values()]
    assert all(each == sorted(each) for each in times)
    assert {time for each in times for time in each} == {
        now // 10**6, now // 10**6 + 5000,
    }  # fmt: skip


# ------------------------------------------------------------------ commits that fail


def interfere(
    monkeypatch: pytest.MonkeyPatch, times: int, act: Callable[[Callable[[], int]], int]
) -> list[str]:
    """Do `act` instead of the first so many commits; returns the list of all attempts at one."""
    real, calls = CatalogCommits.make, []

    def instead(commits: CatalogCommits, change: Any, **named: Any) -> int:
        calls.append(named["attempt_id"])
        go_on = partial(real, commits, change, **named)
        return act(go_on) if len(calls) <= times else go_on()

    monkeypatch.setattr(transaction, "PAUSE_S", 0.0)
    monkeypatch.setattr(CatalogCommits, "make", instead)
    return calls


@pytest.mark.parametrize("error", [StoreError, CommitConflict])
def test_a_lost_reply_is_not_a_lost_race(
    inbox: Path, lake: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def lose(real: Any) -> int:
        real()
        store.delete([success_key(path.name) for path in (lake / "attempts").iterdir()])
        raise error("the reply was lost")

    store = open_store(str(lake))
    calls = interfere(monkeypatch, 1, lose)
    settings = pipeline_of(lake, inbox)
    report = ingest(settings)
    assert (len(calls), report.rebased, report.status) == (1, 0, "committed")
    assert store.size(success_key(report.attempt_id)) == 0  # the mark is made good
    assert_holds(read_lake(lake), settings, [[inbox / "a.jsonl"]])


@pytest.mark.parametrize("replied", [True, False])
def test_a_run_is_committed_even_if_its_mark_cannot_be_written(
    inbox: Path,
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    replied: bool,
) -> None:
    def refuse(store: Any, key: str, data: Any) -> None:
        if key.endswith("/success"):
            raise StoreError(f"{key}: no permission")
        put(store, key, data)

    def lose(real: Any) -> int:
        real()
        raise StoreError("the reply was lost")

    put, settings = local._LocalStore.put, pipeline_of(lake, inbox)
    with monkeypatch.context() as patched:
        patched.setattr(local._LocalStore, "put", refuse)
        calls = interfere(patched, 0 if replied else 1, lose)
        report = ingest(settings)
        assert (report.status, report.version, len(calls)) == ("committed", 1, 1)
        assert ingest(settings).status == "already done"
    assert caplog.text.count("no permission") == 2
    with pytest.raises(StoreError):
        open_store(str(lake)).size(success_key(report.attempt_id))
    ingest(settings)  # makes it good
    assert open_store(str(lake)).size(success_key(report.attempt_id)) == 0
    assert_holds(read_lake(lake), settings, [[inbox / "a.jsonl"]])


@pytest.mark.parametrize("unseen", [0, 2])
def test_a_short_failure_of_storage_is_borne(
    inbox: Path, lake: Path, monkeypatch: pytest.MonkeyPatch, unseen: int
) -> None:
    """Of commits, and of looking at what became of one."""

    def fail(_: Any) -> int:
        raise StoreError("503")

    def refresh(table: CatalogTable, base: Snapshot) -> Snapshot:
        if failures:
            raise StoreError(failures.pop())
        return real(table, base)

    real, failures = CatalogTable.refresh, ["503"] * unseen
    monkeypatch.setattr(CatalogTable, "refresh", refresh)
    calls = interfere(monkeypatch, 3 - unseen, fail)
    settings = pipeline_of(lake, inbox)
    assert ingest(settings).status == "committed"
    assert len(calls) == 4 - unseen
    assert_holds(read_lake(lake), settings, [[inbox / "a.jsonl"]])


def test_a_long_failure_of_storage_is_raised_and_the_run_can_be_repeated(
    inbox: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Any) -> int:
        raise StoreError("no permission")

    settings = pipeline_of(lake, inbox)
    with monkeypatch.context() as patched:
        calls = interfere(patched, 10**6, fail)
        with pytest.raises(StoreError, match="no permission"):
            ingest(settings)
        assert 2 <= len(calls) <= 10
    assert ingest(settings).status == "committed"
    assert_holds(read_lake(lake), settings, [[inbox / "a.jsonl"]])
