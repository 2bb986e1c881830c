"""Runs that fail: what stops them, what is kept of them, and how it is found."""

import json
import logging
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seglake.catalog.failed_run import FailedRun, failed_runs
from seglake.cli.app import app
from seglake.engine import LocalEngine
from seglake.errors import ConfigError, CorruptData, InputError, QuarantineLimit, StoreError
from seglake.layout import failed_folder, report_key
from seglake.maintain.vacuum import vacuum
from seglake.store import local, open_store
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import Line, T, ingest, pipeline_of, read_lake, write_file

BAD = Line(0, broken='{"n":1}')


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def known(lake: Path, run_id: str = "1") -> FailedRun:
    (failed,) = failed_runs(open_store(str(lake)), "events", run_id)
    return failed


def seglake(*arguments: Any) -> tuple[int, Any]:
    """The exit code of a command, and its JSON."""
    done = CliRunner().invoke(app, [str(each) for each in (*arguments, "--json")])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout)


def shown(*arguments: Any) -> str:
    return CliRunner().invoke(app, [str(each) for each in arguments]).stdout


# ------------------------------------------------------------------ how many rejects are too many


@pytest.mark.parametrize(
    ("good", "bad", "ratio", "passes"),
    [
        (95, 5, None, True),
        (94, 6, None, False),
        (2, 1, None, True),  # one reject tells nothing about the settings
        (2, 2, None, False),
        (0, 1, None, False),
        (0, 30, 1.0, False),  # all of them would count as ingested
        (1, 30, 1.0, True),
        (99, 1, 0.0, False),
        (9, 1, 0.001, True),
        (100, 0, 0.0, True),
        (0, 0, 0.0, True),
    ],
)
def test_rejects_stop_a_run(
    tmp_path: Path, lake: Path, good: int, bad: int, ratio: float | None, passes: bool
) -> None:
    path = write_file(tmp_path / "a.jsonl", [*[Line(T)] * good, *[BAD] * bad])
    settings = pipeline_of(lake, path)
    tables = settings.model_dump(mode="json", by_alias=True, exclude_unset=True)
    del tables["max_quarantine_ratio"]
    given = {} if ratio is None else {"max_quarantine_ratio": ratio}
    settings = type(settings).model_validate({**tables, **given})
    if passes:
        assert ingest(settings).records == good
        return
    with pytest.raises(QuarantineLimit, match=rf"{bad} of {good + bad} rows? .* rejected \("):
        ingest(settings)
    table = open_catalog(str(lake))
    assert table.snapshot().topics() == []
    write_file(path, [Line(T)])
    assert ingest(settings).records == 1  # the same run id, once the file is mended


@pytest.mark.parametrize(
    "run_id", ["2026-01-31T10", "2026-01-31T10:00:00Z redrive 1", "it's $HOME"]
)
def test_the_advised_command_can_be_pasted(run_id: str, tmp_path: Path, lake: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"ts":{T}}}\n' + "broken\n" * 3)
    with pytest.raises(QuarantineLimit, match=r" pipeline\.max_quarantine_ratio = 0\.5 ") as it:
        ingest(pipeline_of(lake, path, max_quarantine_ratio=0.5), run_id)
    command = shlex.split(str(it.value).partition("To see some of them: ")[2])
    assert command == ["seglake", "quarantine", str(lake), "events", "--run-id", run_id]


def test_wrong_settings_lose_nothing(tmp_path: Path, lake: Path) -> None:
    path = write_file(tmp_path / "a.jsonl", [Line(T + at, "k") for at in range(30)])
    wrong = pipeline_of(lake, path, timestamp={"field": "tss"})
    with pytest.raises(QuarantineLimit, match="a run without a record is not committed") as raised:
        ingest(wrong, "1")
    assert "timestamp.field 'tss' is not a field of any row. Did you mean 'ts'?" in str(
        raised.value
    )
    (found, *_) = known(lake).report["findings"]
    assert (found["code"], found["facts"]["near"]) == ("absent-field", ["ts"])
    assert ingest(pipeline_of(lake, path), "1").records == 30
    assert sum(map(len, read_lake(lake).values())) == 30


# ------------------------------------------------------------------ fields that no row has


def test_a_field_that_no_row_has_is_told_even_if_nothing_is_rejected(
    tmp_path: Path, lake: Path
) -> None:
    rows = [{"ts": T, "User": None, "at": {"zone": "x", "place": 1}}, {"ts": T, "Path": "/"}]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows) + "broken\n")
    headers = {"fields": ["at.plaec", "Path", "at.zone"]}
    settings = pipeline_of(lake, path, key={"fields": ["user", "User"]}, headers=headers)
    report = ingest(settings)
    assert report.records == 2
    assert [(each.subject, each.facts["name"], each.facts["near"]) for each in report.findings] == [
        ("key.fields", "user", ["User"]),
        ("headers.fields", "at.plaec", ["at.place"]),
    ]
    path.write_text('{"ts":1,"User":"u","at":{"zone":1}}\n' * 90)
    strange = pipeline_of(lake, path, key={"fields": ["qqqqq"]}, on_changed_source="ingest-as-new")
    (found, *_) = ingest(strange, "2").findings
    assert (found.facts["near"], found.facts["has"]) == ([], ["ts", "User", "at", "at.zone"])


def test_a_field_that_one_row_of_many_has_is_not_absent(tmp_path: Path, lake: Path) -> None:
    """Wherever it stands: in another chunk, split or file."""
    for number, late in enumerate((None, 300)):
        lines = [Line(T, "k" if at == late else None) for at in range(400)]
        write_file(tmp_path / "in" / f"{number}.jsonl", lines)
    cut = {"split_bytes": 4000, "chunk_bytes": 1000}
    assert ingest(pipeline_of(lake, tmp_path / "in", task=cut)).findings == []
    alone = pipeline_of(lake, tmp_path / "in/0.jsonl", task=cut, topic={"name": "alone"})
    assert [each.code for each in ingest(alone).findings] == ["absent-field"]


# ------------------------------------------------------------------ what is kept


def test_a_failed_run_is_found_by_its_id(tmp_path: Path, lake: Path) -> None:
    bad = [Line(0, broken=each) for each in ('{"n":1}', "{", '{"ts":"soon"}')] * 40
    path = write_file(tmp_path / "a.jsonl", [*bad, Line(T)])
    settings = pipeline_of(lake, path, max_quarantine_ratio=0.5)
    with pytest.raises(QuarantineLimit, match="120 of 121") as raised:
        ingest(settings, "r:1+2")
    failed = known(lake, "r:1+2")
    assert (failed.topic, failed.pipeline, failed.run_id) == ("events", "test", "r:1+2")
    assert (failed.error, failed.exit_code) == (str(raised.value), 3)
    assert (failed.report["input_rows"], failed.report["quarantined"]) == (121, 120)
    assert failed.report["status"] == "failed"
    reasons = [row["reason"] for row in failed.rejects]
    assert {reasons.count(reason) for reason in set(reasons)} == {5}
    assert failed.rejects[0] == {
        "source_file": str(path), "line": 1, "reason": "timestamp missing", "raw": '{"n":1}',
    }  # fmt: skip
    assert not list(lake.glob(f"attempts/{failed.attempt_id}/blobs/*"))


def test_a_sample_is_bounded(tmp_path: Path, lake: Path) -> None:
    """However many rows are rejected, and however long they are."""
    bad = [Line(0, broken="é" * 30_000), Line(0, broken="x")] * 30
    for number in range(12):
        write_file(tmp_path / "in" / f"{number:02}.jsonl", bad)
    (tmp_path / "in" / "13.jsonl").write_bytes(b"\xff" * 9000)
    with pytest.raises(QuarantineLimit):
        ingest(pipeline_of(lake, tmp_path / "in", task={"chunk_bytes": 100_000}))
    failed = known(lake)
    assert 8 <= len(failed.rejects) <= 8 * 9 * 5
    assert {Path(row["source_file"]).name for row in failed.rejects} >= {"00.jsonl", "13.jsonl"}
    texts = [row["raw"] for row in failed.rejects if isinstance(row["raw"], str)]
    assert max(map(len, texts)) == 2048
    (other,) = [row["raw"] for row in failed.rejects if not isinstance(row["raw"], str)]
    assert other["base64"].startswith("////")
    assert open_store(str(lake)).size(report_key(failed.attempt_id)) < 2**20


def test_the_last_failure_of_each_pipeline_is_kept(tmp_path: Path, lake: Path) -> None:
    path = write_file(tmp_path / "a.jsonl", [BAD])
    for name in ("web", "app"):
        with pytest.raises(QuarantineLimit):
            ingest(pipeline_of(lake, path, name=name))
    with pytest.raises(InputError, match=r"b\.jsonl does not exist"):
        ingest(pipeline_of(lake, tmp_path / "b.jsonl", name="web"))
    app_run, web_run = failed_runs(open_store(str(lake)), "events", "1")
    assert (app_run.pipeline, app_run.exit_code) == ("app", 3)
    assert (web_run.pipeline, web_run.exit_code) == ("web", 2)
    assert failed_runs(open_store(str(lake)), "events", "2") == []


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (StoreError("x: no space"), "x: no space"),
        (ConfigError("a \udcff name"), r"a \udcff name"),
        (RuntimeError("the key is sesame"), "RuntimeError: the log of the driver has the details"),
    ],
)
def test_other_failures_are_kept_and_raised(
    tmp_path: Path, lake: Path, error: Exception, told: str
) -> None:
    class Failing(LocalEngine):
        def map(self, task: Any, rows: Any) -> Any:
            if type(task).__name__ == "WritePieces":
                raise error
            return super().map(task, rows)

    path = write_file(tmp_path / "a.jsonl", [*[Line(T)] * 30, BAD])
    with pytest.raises(type(error)) as raised:
        ingest_files(Failing(), pipeline_of(lake, path), DeclaredRun("1"))
    assert raised.value is error
    failed = known(lake)
    assert (failed.error, failed.exit_code) == (told, getattr(error, "exit_code", 1))
    assert [row["raw"] for row in failed.rejects] == ['{"n":1}']


def test_a_failure_that_cannot_be_kept_is_raised_all_the_same(
    tmp_path: Path, lake: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(store: Any, key: str, data: Any) -> None:
        if key.endswith("/report.json"):
            raise StoreError(f"{key}: no permission")
        put(store, key, data)

    put = local._LocalStore.put
    monkeypatch.setattr(local._LocalStore, "put", refuse)
    path = write_file(tmp_path / "a.jsonl", [BAD])
    with caplog.at_level(logging.WARNING), pytest.raises(QuarantineLimit):
        ingest(pipeline_of(lake, path))
    assert "report.json: no permission" in caplog.text
    assert failed_runs(open_store(str(lake)), "events", "1") == []


def test_damage_to_what_is_kept_is_named(tmp_path: Path, lake: Path) -> None:
    path = write_file(tmp_path / "a.jsonl", [BAD])
    with pytest.raises(QuarantineLimit):
        ingest(pipeline_of(lake, path))
    store = open_store(str(lake))
    (name,) = store.list(failed_folder("events", "1"))
    report = report_key(known(lake).attempt_id)
    for key in (name.key, report):
        sound = bytes(store.read_all(key))
        for bad in (b"", sound[:-1], b"[]", b"{}", sound.replace(b'"format":1', b'"format":2')):
            store.put(key, bad)
            with pytest.raises(CorruptData, match="is not the report of a failed run"):
                failed_runs(store, "events", "1")
        store.put(key, sound)
    store.put(name.key, b'{"format":1,"attempt_id":"../x"}')
    with pytest.raises(CorruptData, match="valid UUID"):
        failed_runs(store, "events", "1")


def test_vacuum_removes_what_is_kept_with_the_attempt(tmp_path: Path, lake: Path) -> None:
    path = write_file(tmp_path / "a.jsonl", [Line(T)])
    ingest(pipeline_of(lake, path), "0")
    with pytest.raises(InputError):
        ingest(pipeline_of(lake, tmp_path / "b.jsonl"), "1")
    assert vacuum(str(lake), dry_run=False).deleted == []  # it is young
    assert len(vacuum(str(lake), dry_run=False, grace_hours=0).deleted) == 2
    assert failed_runs(open_store(str(lake)), "events", "1") == []


# ------------------------------------------------------------------ the commands


def test_run_status_tells_what_became_of_a_run(tmp_path: Path, lake: Path) -> None:
    path = write_file(tmp_path / "a.jsonl", [BAD, BAD])
    with pytest.raises(QuarantineLimit):
        ingest(pipeline_of(lake, path), "1")
    code, status = seglake("run-status", lake, "events", "--run-id", "1")
    assert (code, status["status"], status["exit_code"]) == (3, "rejected too much", 3)
    assert status["report"]["reasons"] == {"timestamp missing": 2}
    assert "2 of 2 rows were rejected" in status["error"]
    assert "timestamp missing: 2" in shown("run-status", lake, "events", "--run-id", "1")
    with pytest.raises(InputError):
        ingest(pipeline_of(lake, tmp_path / "none.jsonl"), "1")
    code, status = seglake("run-status", lake, "events", "--run-id", "1")
    assert (code, status["status"], status["exit_code"]) == (1, "failed", 2)
    assert re.search(r"exit code\W+2\b", shown("run-status", lake, "events", "--run-id", "1"))
    assert "none.jsonl does not exist" in status["error"]
    write_file(path, [Line(T), BAD])
    ingest(pipeline_of(lake, path), "1")
    code, status = seglake("run-status", lake, "events", "--run-id", "1")
    assert (code, status["status"], status["records"]) == (0, "committed", 1)
    assert status["report"]["reasons"] == {"timestamp missing": 1}
    code, status = seglake("run-status", lake, "events", "--run-id", "2")
    assert (code, status["status"], status["exit_code"]) == (1, "not there", None)
    assert seglake("run-status", lake, "other", "--run-id", "1")[0] == 1


def test_run_status_asks_for_the_pipeline_if_several_have_the_run_id(
    tmp_path: Path, lake: Path
) -> None:
    ingest(pipeline_of(lake, write_file(tmp_path / "a.jsonl", [Line(T)]), name="web"), "1")
    with pytest.raises(InputError):
        ingest(pipeline_of(lake, tmp_path / "none", name="app"), "1")
    status = ["run-status", str(lake), "events", "--run-id", "1"]
    asked = str(CliRunner().invoke(app, status).exception)
    assert "several pipelines have a run '1' (app, web)" in asked
    for name, code in (("web", 0), ("app", 1), ("other", 1)):
        assert seglake(*status, "--pipeline", name)[0] == code


def test_quarantine_shows_rejects(tmp_path: Path, lake: Path) -> None:
    for run_id in ("1", "2"):
        bad = [Line(0, broken=f'{{"run":{run_id}}}')] * 30
        path = write_file(tmp_path / f"{run_id}.jsonl", [Line(T), *bad])
        ingest(pipeline_of(lake, path), run_id)
    with pytest.raises(QuarantineLimit):
        ingest(pipeline_of(lake, write_file(tmp_path / "3.jsonl", [BAD] * 30)), "3")
    code, rows = seglake("quarantine", lake, "events", "--limit", "100")
    assert (code, len(rows)) == (0, 60)
    assert {(row["run_id"], row["raw"]) for row in rows} == {("1", '{"run":1}'), ("2", '{"run":2}')}
    rows = seglake("quarantine", lake, "events", "--run-id", "2")[1]
    assert [row["line"] for row in rows] == list(range(2, 32))
    assert rows[0]["committed"]
    failed = seglake("quarantine", lake, "events", "--run-id", "3")[1]
    assert {(row["raw"], row["committed"]) for row in failed} == {('{"n":1}', False)}
    text = shown("quarantine", lake, "events", "--run-id", "3")
    assert "timestamp missing" in text
    assert str(tmp_path / "3.jsonl") in text
    unknown = CliRunner().invoke(app, ["quarantine", str(lake), "events", "--run-id", "4"])
    assert "no run '4'" in str(unknown.exception)


def test_a_sample_of_rejects_has_every_reason_and_says_what_it_leaves_out(
    tmp_path: Path, lake: Path
) -> None:
    no_json = Line(0, broken="{")
    for name, bad in (("a", [BAD] * 400), ("b", [BAD] * 60), ("c", [BAD] * 39 + [no_json])):
        write_file(tmp_path / "in" / f"{name}.jsonl", [Line(T), *bad])
    ingest(pipeline_of(lake, tmp_path / "in", max_quarantine_ratio=1.0), "1")
    text = shown("quarantine", lake, "events")
    rows = [line for line in text.splitlines() if ".jsonl" in line]
    assert len(rows) == 20
    assert sum("timestamp missing" in row for row in rows) == 19  # of the other there is one
    assert "Shown: 20 of 500 rejected rows (timestamp missing: 499, " in text
    assert "). To see all: --limit 500" in text
    assert "Shown:" not in shown("quarantine", lake, "events", "--limit", 500)
    code, found = seglake("quarantine", lake, "events")
    assert (code, len(found)) == (0, 500)
    limited = CliRunner().invoke(app, ["quarantine", str(lake), "events", "--json", "--limit", "2"])
    assert {row["reason"] for row in json.loads(limited.stdout)} == {row["reason"] for row in found}
    assert "Shown: 2 of 500 rejected rows" in limited.stderr
