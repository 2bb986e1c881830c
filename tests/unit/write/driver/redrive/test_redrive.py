"""Rejects are ingested later, each once, whatever happens between."""

import dataclasses
import gzip
import itertools
import json
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import seglake
from seglake.catalog.commits import CatalogCommits
from seglake.catalog.quarantine.open_rejects import open_attempts, redrive_from_run
from seglake.cli.app import app
from seglake.engine import LocalEngine
from seglake.errors import ConfigError, InputError, QuarantineLimit, StoreError, UsageError
from seglake.maintain.commit import Clock
from seglake.maintain.expiry.retention import expire_rejects
from seglake.maintain.health.verify import verify
from seglake.maintain.topic_settings import alter
from seglake.maintain.undo import replace_files, undo
from seglake.store import local
from seglake.write.driver import redrive as redrive_input
from seglake.write.driver.attempt import DeclaredRun
from tests.harness.engines import ScatteredEngine
from tests.harness.meanwhile import before_first
from tests.makers.catalog_rows import commit_rows
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import T, ingest, read_lake
from tests.makers.redriven import (
    FROM_RAW,
    INPUT,
    Event,
    File,
    open_rejects,
    pipeline_of,
    records,
    redriven,
    write,
)
from tests.makers.strategies import examples

FAR_MS = 2**52  # later than every run
SURE = Event("abc")  # a run of rejects alone would not be committed


class Died(BaseException):
    """As if the process had been killed."""


@contextmanager
def dying(after: int) -> Iterator[None]:
    """Die when storage is written for the `after`-th time."""
    left = itertools.count(after, -1)

    def mortal(write: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if next(left) <= 0:
                raise Died
            return write(*given, **named)

        return call

    with pytest.MonkeyPatch.context() as patched:
        for owner, name in (
            (local._LocalStore, "put"),
            (local._LocalStore, "put_if_absent"),
            (local._LocalWriter, "write"),
        ):
            patched.setattr(owner, name, mortal(getattr(owner, name)))
        yield


# ------------------------------------------------------------------ against a model


class Run(NamedTuple):
    """A run: the times of each of its rows, and which rows are open."""

    files: list[File]
    times: dict[tuple[str, int], str]
    open: set[tuple[str, int]]


class Model:
    """What must be in the lake after some runs and redrives."""

    def __init__(self, folder: Path, form: str) -> None:
        self.folder, self.form, self.root = folder, form, folder / "lake"
        self.runs: list[Run] = []
        self.records: Counter[str] = Counter()

    def ingest(self, contents: list[list[Event]], time: str, **more: Any) -> None:
        """A run over new files, one of which has a row that all settings can read."""
        number = len(self.runs)
        place = self.folder / f"in-{number}"
        files = [
            write(place / f"{number}.{at}{'.gz' * packed}", self.form, events, packed=packed)
            for at, events in enumerate([[SURE], *contents])
            for packed in [bool(at % 2) and self.form != "parquet"]
        ]
        times = {row: had for file in files for row, had in file.rows().items()}
        good = {row for row, had in times.items() if time in had}
        report = ingest(self.settings([place], time, **more), f"run {number}")
        assert (report.records, report.quarantined) == (len(good), len(times) - len(good))
        self._add(good)
        self.runs.append(Run(files, times, times.keys() - good))

    def settings(self, paths: list[Path], time: str, **more: Any) -> Any:
        return pipeline_of(self.root, paths, self.form, time, **more)

    def redrive(self, number: int, time: str, dies: int | None, **more: Any) -> None:
        """A redrive, perhaps after one that died."""
        run, settings = self.runs[number], self.settings([self.folder], time, **more)
        there = {str(file.path) for file in run.files if file.is_there}
        readable = {row for row in run.open if row[0] in there or self.form in FROM_RAW}
        good = {row for row in readable if time in run.times[row]}
        before, after = self.records, self.records + self._names(good)
        if dies is not None:
            with dying(dies), suppress(Died, QuarantineLimit):
                redriven(settings, f"run {number}")
            assert records(self.root) in (before, after)
        was_open = len(run.open)
        self.records = after
        run.open.difference_update(good)
        try:
            report = redriven(settings, f"run {number}", engine=ScatteredEngine(2))
        except QuarantineLimit:
            assert not good
            return
        if report.status == "committed":
            assert good
            assert (report.records, report.input_rows) == (len(good), was_open)
            assert (
                report.quarantined
                == len(run.open)
                == sum([*report.reasons.values(), *report.refused.values()])
            )
            assert sum(report.refused.values()) == was_open - len(readable)
        else:
            assert report.status == "already done"
        assert redriven(settings, f"run {number}").status == "already done"

    def check(self) -> None:
        """The lake has what it must."""
        assert records(self.root) == self.records
        assert open_rejects(self.root) == Counter(row for run in self.runs for row in run.open)

    def _add(self, rows: set[tuple[str, int]]) -> None:
        self.records = self.records + self._names(rows)

    def _names(self, rows: set[tuple[str, int]]) -> Counter[str]:
        return Counter(f"{Path(path).name}:{line}" for path, line in rows)


events = st.builds(
    Event, st.sampled_from(["", "a", "b", "c", "ab", "bc", "abc"]), st.booleans(), st.booleans()
)
contents = st.lists(st.lists(events, max_size=9), min_size=1, max_size=3)
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("redrive"), st.integers(0, 1), st.sampled_from("abc"),
            st.none() | st.integers(0, 40),
        ),
        st.tuples(st.just("lose"), st.integers(0, 7), st.booleans()),
        st.tuples(st.just("find"), st.integers(0, 7)),
        st.tuples(st.just("ingest"), contents, st.sampled_from("abc")),
    ),
    min_size=2, max_size=7,
)  # fmt: skip


@pytest.mark.parametrize("form", INPUT)
@examples(8)
@given(first=contents, steps=steps, order=st.sampled_from(["time", "arrival"]))
def test_every_row_is_a_record_once_or_an_open_reject(
    form: str, first: list[list[Event]], steps: list[tuple[Any, ...]], order: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = Model(Path(folder), form)
        model.ingest(first, "a", order=order)
        for kind, *given_ in steps:
            files = [file for run in model.runs for file in run.files]
            if kind == "redrive":
                number, time, dies = given_
                model.redrive(number % len(model.runs), time, dies, order=order)
            elif kind == "lose":
                files[given_[0] % len(files)].take_away(change=given_[1])
            elif kind == "find":
                files[given_[0] % len(files)].bring_back()
            elif len(model.runs) < 2:
                model.ingest(*given_, order=order)
            model.check()
        assert verify(str(model.root), deep=True).findings == []


# ------------------------------------------------------------------ races


@pytest.fixture
def model(tmp_path: Path) -> Model:
    """A run whose rejects have the time b or c, or none."""
    made = Model(tmp_path, "jsonl")
    rows = [Event(times) for times in ("a", "b", "c", "bc", "")]
    made.ingest([rows * 2, rows], "a")
    return made


@pytest.mark.parametrize("other", ["b", "c", "a"])
def test_of_two_redrives_at_once_the_second_takes_what_is_left(
    model: Model, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    def overtake() -> None:
        with suppress(QuarantineLimit):  # nothing open has the time a
            redriven(model.settings([], other, input=given_), "run 0")

    given_ = {"paths": ["/nowhere"]}
    with monkeypatch.context() as patched:
        before_first(patched, CatalogCommits, "make", overtake)
        report = redriven(model.settings([], "b", input=given_), "run 0")
    names = {"b": ("already done", "run 0 redrive 1"), "c": ("committed", "run 0 redrive 2"),
             "a": ("committed", "run 0 redrive 1")}  # fmt: skip
    assert (report.status, report.run_id) == names[other]
    taken = {row for row, had in model.runs[0].times.items() if {"b", other} & set(had)}
    model._add(taken & model.runs[0].open)
    model.runs[0].open.difference_update(taken)
    model.check()
    assert verify(str(model.root), deep=True).findings == []


def test_the_id_of_a_redrive_is_nobody_elses(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that is there, nor one that comes while it runs; and nobody gets it later."""
    late = write(model.folder / "late" / "x", "jsonl", [Event("abc")])
    settings = model.settings([late.path], "a")

    def overtake() -> None:
        assert ingest(settings, "run 0 redrive 1").records == 1

    before_first(monkeypatch, CatalogCommits, "make", overtake)
    report = redriven(model.settings([model.folder], "b"), "run 0")
    assert report.run_id == "run 0 redrive 2"
    with pytest.raises(ConfigError, match=r"'run 0 redrive 2'.* as a redrive.*another --run-id"):
        ingest(settings, "run 0 redrive 2")
    assert ingest(settings, "run 0 redrive 1").status == "already done"


# ------------------------------------------------------------------ rejects that left meanwhile


def _undo(model: Model, run_id: str = "run 0") -> None:
    undo(str(model.root), "events", run_id)


def _replace(model: Model, time: str) -> None:
    """Ingest the first run's files again, with other settings."""
    settings = model.settings([model.folder / "in-0"], time)
    replace_files(LocalEngine(), settings, DeclaredRun("run 0"))


def _expire(model: Model) -> None:
    root = str(model.root)
    alter(root, "events", {"quarantine.retention.ms": 1})
    catalog = open_catalog(root)
    assert expire_rejects(catalog, "events", Clock(None, FAR_MS), dry_run=False).runs


LOSSES: dict[str, tuple[Callable[[Model], None], str]] = {
    "undone": (_undo, "run 'run 0' of topic 'events' is undone"),
    "expired": (_expire, r"rejects of run 'run 0' have expired \(quarantine.retention.ms\)"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_redrive_whose_rejects_leave_meanwhile_loses(
    model: Model, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    act, sentence = LOSSES[loss]
    with monkeypatch.context() as patched:
        before_first(patched, CatalogCommits, "make", lambda: act(model))
        with pytest.raises(UsageError, match=sentence):
            redriven(model.settings([model.folder], "b"), "run 0")
    if loss == "undone":
        ingest(model.settings([model.folder / "in-0"], "b"), "again")
    assert set(records(model.root).values()) == {1}
    assert verify(str(model.root), deep=True).findings == []


def test_a_redrive_of_a_run_that_is_replaced_meanwhile_takes_the_new_rejects(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that the replacement made records of are no rejects any more."""
    before_first(monkeypatch, CatalogCommits, "make", lambda: _replace(model, "b"))
    report = redriven(model.settings([model.folder], "c"), "run 0")
    assert (report.status, report.run_id) == ("committed", "run 0 redrive 1")
    run = model.runs[0]
    left = {row for row, had in run.times.items() if not {"b", "c"} & set(had)}
    assert records(model.root) == model._names(run.times.keys() - left)
    assert open_rejects(model.root) == Counter(left)
    assert verify(str(model.root), deep=True).findings == []


# ------------------------------------------------------------------ the chain of redrives


def test_a_redrive_of_a_redrive_goes_on_where_it_ended(model: Model) -> None:
    """Under the id of either; and the catalog says what belongs together."""
    first = redriven(model.settings([model.folder], "b"), "run 0")
    second = redriven(model.settings([model.folder], "c"), "run 0 redrive 1")
    assert (first.records, first.quarantined, first.reasons) == (6, 6, {"timestamp missing": 6})
    assert (second.records, second.quarantined, second.input_rows) == (3, 3, 6)
    again = redriven(model.settings([model.folder], "b"), "run 0")
    assert (again.status, again.attempt_id) == ("already done", first.attempt_id)
    runs = seglake.open(str(model.root)).history()
    assert [run.run_id for run in runs] == ["run 0", "run 0 redrive 1", "run 0 redrive 2"]
    links = [redrive_from_run(run) for run in runs]
    assert links[0] is None
    assert links[1:] == [("run 0", runs[0].attempt_id), ("run 0", runs[1].attempt_id)]
    assert open_attempts(runs) == [runs[2].attempt_id]
    assert {run.pipeline for run in runs} == {"test"}
    for run_id in ((), ("--run-id", "run 0"), ("--run-id", "run 0 redrive 1")):
        told = CliRunner().invoke(app, ["quarantine", str(model.root), "events", "--json", *run_id])
        shown = [json.loads(line) for line in told.stdout.splitlines()]
        shown = shown[0] if isinstance(shown[0], list) else shown
        assert [row["run_id"] for row in shown] == ["run 0 redrive 2"] * 3


def test_a_dry_run_says_what_would_be_and_writes_nothing(model: Model) -> None:
    def tree() -> set[str]:
        return {str(path) for path in model.root.rglob("*") if path.is_file()}

    model.runs[0].files[2].take_away(change=False)
    settings, before = model.settings([model.folder], "b", max_quarantine_ratio=0.6), tree()
    told = redriven(settings, "run 0", dry_run=True)
    assert tree() == before
    done = redriven(settings, "run 0")
    assert (told.status, done.status) == ("dry run", "committed")
    for name in ("run_id", "records", "quarantined", "reasons", "refused", "input_rows"):
        assert getattr(told, name) == getattr(done, name)
    strict = model.settings([model.folder], "c", max_quarantine_ratio=0.4)
    for dry_run in (True, False):
        with pytest.raises(QuarantineLimit, match=r"max_quarantine_ratio = 0\.4") as raised:
            redriven(strict, "run 0", dry_run=dry_run)
        assert ("To see some of them: seglake quarantine" in str(raised.value)) != dry_run, (
            "none is kept"
        )


def test_what_gains_nothing_is_not_committed(model: Model) -> None:
    version = seglake.open(str(model.root)).version
    with pytest.raises(QuarantineLimit, match=r"none of the 12 open rejects of run 'run 0'.*12"):
        redriven(model.settings([model.folder], "a"), "run 0")
    assert seglake.open(str(model.root)).version == version


def test_a_run_that_cannot_be_redriven_is_one_sentence(model: Model) -> None:
    settings = model.settings([model.folder], "b")
    with pytest.raises(UsageError, match=r"no committed run 'run 1'. Did you mean 'run 0'"):
        redriven(settings, "run 1")
    bad = write(model.folder / "bad" / "x", "jsonl", [Event("a")])
    with pytest.raises(QuarantineLimit):
        ingest(model.settings([bad.path], "b"), "run 1")
    with pytest.raises(UsageError, match=r"run 'run 1' of topic 'events' failed, .*ingest again"):
        redriven(settings, "run 1")
    frame = {"input": {"format": "dataframe", "order_column": "a", "paths": []}}
    with pytest.raises(ConfigError, match=r"'dataframe' cannot be redriven"):
        redriven(settings.model_copy(update={"input": settings.input.model_copy(
            update=frame["input"])}), "run 0")  # fmt: skip
    catalog = open_catalog(str(model.root))
    (run,) = catalog.rows.runs(catalog.snapshot(), "events")
    of_frame = dataclasses.replace(run, run_id="frame", input_files=0)
    commit_rows(catalog, [of_frame], attempt_id=run.attempt_id)
    with pytest.raises(UsageError, match=r"'frame' ingested a DataFrame.*cannot be read again"):
        redriven(settings, "frame")
    with pytest.raises(UsageError, match="there is no lake"):
        redriven(settings.model_copy(update={"root": str(model.folder / "none")}), "run 0")


def test_a_run_is_found_without_its_pipelines_name_unless_two_have_it(model: Model) -> None:
    settings = model.settings([model.folder], "b", name="corrected")
    assert redriven(settings, "run 0", dry_run=True).pipeline == "test"
    late = write(model.folder / "late" / "x", "jsonl", [Event("a"), Event("b")])
    ingest(model.settings([late.path], "a", name="other"), "run 0")
    with pytest.raises(UsageError, match=r"several pipelines .*'other', 'test'.*Set"):
        redriven(settings, "run 0")
    assert redriven(model.settings([model.folder], "b", name="other"), "run 0").records == 1


# ------------------------------------------------------------------ what is read again


def counts(report: Any) -> tuple[int, dict[str, int], dict[str, int]]:
    return report.records, report.reasons, report.refused


def run_of(tmp_path: Path, files: dict[str, bytes], form: str, **more: Any) -> Callable[..., Any]:
    """Commit a run over such files; returns a function of settings that makes a pipeline."""
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    make = partial(pipeline_of, tmp_path / "lake", [tmp_path / "in"])
    settings = {"max_quarantine_ratio": 0.999, "task": {}}
    ingest(make(form, "a", **{**settings, **more}), "1")
    return lambda form, time, **more: make(form, time, **{**settings, **more})


def test_rows_that_other_settings_find_at_a_line_are_refused(tmp_path: Path) -> None:
    """With another quote the record goes on in a line that is a record already."""
    text = b"n,a,b\nx:1,1,\nx:2,,'1\n',1,\nx:3,2,\nx:4,,3\n"
    make = run_of(tmp_path, {"in/x": text}, "csv")
    report = redriven(make("csv", "b", input={"quote": "'"}), "1")
    assert counts(report) == (1, {}, {redrive_input.OTHER_ROW: 1})
    assert open_rejects(tmp_path / "lake") == {(str(tmp_path / "in" / "x"), 3): 1}
    assert verify(str(tmp_path / "lake"), deep=True).findings == []


def test_files_of_rejects_alone_are_read_anew_in_any_format(tmp_path: Path) -> None:
    """Parquet that was read as JSON lines: its "lines" are rows of nothing."""
    table = pa.table({"n": [f"p:{i}" for i in range(50)], "b": pa.array([T] * 50, pa.int64())})
    pq.write_table(table, sink := pa.BufferOutputStream())
    files = {"in/p": sink.getvalue().to_pybytes(), "in/x": b'{"n":"x:1","a":1}\n'}
    make = run_of(tmp_path, files, "jsonl")
    report = redriven(make("parquet", "b"), "1")
    assert (report.records, report.input_rows, report.quarantined) == (50, 50, 0)
    assert open_rejects(tmp_path / "lake") == Counter()
    assert sum(records(tmp_path / "lake").values()) == 51


def test_a_file_is_read_anew_only_while_none_of_its_rows_is_a_record(tmp_path: Path) -> None:
    """As many rejects as the file had rows, when it was divided otherwise, do not mean that."""
    packed = gzip.compress(b'{"n":"z:1","b":1,"c":1}\n{"n":"z:2","c":1}\n', mtime=0)
    assert b"\n" not in packed  # one row, and a reject, as long as it is not unpacked
    files = {"in/z": packed, "in/x": b'{"n":"x:1","a":1}\n'}
    make = run_of(tmp_path, files, "jsonl", input={"compression": "none"})
    unpack = {"input": {"compression": "auto"}}
    assert counts(redriven(make("jsonl", "b", **unpack), "1")) == (1, {"timestamp missing": 1}, {})
    assert counts(redriven(make("jsonl", "c", **unpack), "1")) == (1, {}, {})
    assert records(tmp_path / "lake") == Counter(["x:1", "z:1", "z:2"])


def test_a_line_that_was_too_long_is_read_with_larger_chunks(tmp_path: Path) -> None:
    """Its raw bytes are cut, so they do not do without the file."""
    long = json.dumps({"n": "x:1", "a": T, "m": "y" * 200_000}).encode()
    files = dict.fromkeys(("in/x", "in/y"), b'{"n":"x:2","a":1}\n' + long + b"\n")
    make = run_of(tmp_path, files, "jsonl", task={"chunk_bytes": 100_000})
    (tmp_path / "in" / "y").unlink()
    report = redriven(make("jsonl", "a"), "1")
    assert counts(report) == (1, {}, {redrive_input.CUT: 1})
    values = [record.value for log in read_lake(tmp_path / "lake").values() for record in log]
    assert values.count(long) == 1


def places(root: Path) -> list[tuple[str, int, str | None, int | None]]:
    """Where the open rejects stand: file, line, member and line in it."""
    told = CliRunner().invoke(app, ["quarantine", str(root), "events", "--json"]).stdout
    names = ("source_file", "line", "member", "member_line")
    return sorted(tuple(row[name] for name in names) for row in json.loads(told))


def test_members_of_an_archive_keep_their_names_and_lines(tmp_path: Path) -> None:
    members = {"one": '{"a":1}\n{"b":1}\n\n', "two": 'no\n{"b":2}\n{"a":2}\n'}
    with tarfile.open(tmp_path / "t", "w:gz") as archive:
        for name, text in members.items():
            (tmp_path / name).write_text(text)
            archive.add(tmp_path / name, name)
    headers = {"headers": {"source": True}}
    make = run_of(tmp_path, {"in/t": (tmp_path / "t").read_bytes()}, "jsonl", **headers)
    archive_path = tmp_path / "in" / "t"
    assert places(tmp_path / "lake") == [
        (str(archive_path), 2, "one", 2), (str(archive_path), 4, "two", 1),
        (str(archive_path), 5, "two", 2),
    ]  # fmt: skip
    table = CliRunner().invoke(app, ["quarantine", str(tmp_path / "lake"), "events"]).stdout
    shown = [line.split()[1:3] for line in table.splitlines()[3:]]
    assert [f"{archive_path}!one", "2"] in shown
    assert [f"{archive_path}!two", "1"] in shown
    assert redriven(make("jsonl", "b", **headers), "1").records == 2
    assert places(tmp_path / "lake") == [(str(archive_path), 4, "two", 1)]
    log = seglake.open(str(tmp_path / "lake")).topic("events").read_range(0, 10).read_all()
    told = {
        (row["value"], *(header["value"] for header in row["headers"])) for row in log.to_pylist()
    }
    path = f"{tmp_path / 'in' / 't'}!".encode()
    assert {(b'{"b":1}', path + b"one", b"2"), (b'{"b":2}', path + b"two", b"2")} < told
    assert set(open_rejects(tmp_path / "lake")) == {(str(tmp_path / "in" / "t"), 4)}


@pytest.mark.parametrize(("form", "why"), [("csv", "csv"), ("parquet", "parquet")])
def test_rows_that_need_their_file_are_refused_without_it(
    tmp_path: Path, form: str, why: str
) -> None:
    model = Model(tmp_path, form)
    model.ingest([[Event("b")] * 3, [Event("b")] * 2], "a")
    model.runs[0].files[1].take_away(change=True)
    report = redriven(model.settings([tmp_path], "b"), "run 0")
    assert counts(report) == (2, {}, {redrive_input.NOT_LINES.format(why): 3})
    version = seglake.open(str(model.root)).version
    assert redriven(model.settings([tmp_path], "b"), "run 0").status == "already done"
    assert seglake.open(str(model.root)).version == version
    model.runs[0].files[1].bring_back()
    assert redriven(model.settings([tmp_path], "b"), "run 0").records == 3


def test_a_file_that_cannot_be_read_is_no_file_that_is_gone(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(store: Any, key: str) -> Any:
        if key == "0.1.gz":
            raise StoreError("no permission")
        return stat(store, key)

    stat = local._LocalStore.stat
    monkeypatch.setattr(local._LocalStore, "stat", refuse)
    with pytest.raises(InputError, match=r"0\.1\.gz cannot be read: no permission"):
        redriven(model.settings([model.folder], "b"), "run 0")


def test_a_file_that_changes_while_it_is_read_ends_the_redrive(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(*given_: Any) -> Any:
        model.runs[0].files[2].path.write_bytes(b'{"n":"z:1","b":1}\n' * 9)
        return group(*given_)

    group: Any = vars(redrive_input)["shared_units"]
    monkeypatch.setattr(redrive_input, "shared_units", change)
    with pytest.raises(InputError, match=r"0\.2 changed while this run read it"):
        redriven(model.settings([model.folder], "b"), "run 0")
    model.check()
