"""What commands say to people: whole commands, whole paths, what is visible, and what to do."""

from __future__ import annotations

import base64
import json
import logging
import re
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import seglake
from seglake.cli.app import app
from seglake.cli.terminal.errors import remedy
from seglake.cli.terminal.progress import awaited, counted
from seglake.errors import (
    ConfigError,
    CorruptData,
    MissingObject,
    StoreError,
    UnknownTopic,
    UsageError,
)
from seglake.replay.target import Target
from seglake.serve import settings
from seglake.terminal.progress import line_every
from seglake.terminal.wording import duration
from seglake.write.driver.run_input import InputFiles
from tests.harness.ports import free_ports
from tests.makers.lakes import Event, LakeMaker

T = 1_700_000_000_000
PIPELINE = """
pipeline.root = "lake"
pipeline.max_quarantine_ratio = 0.5
input.paths = ["in.jsonl"]
input.format = "jsonl"
timestamp.field = "ts"
timestamp.format = "epoch_ms"
topic.name = "events"
"""


def told(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a pipeline."""
    monkeypatch.chdir(tmp_path)
    Path("web.toml").write_text(PIPELINE)
    Path("in.jsonl").write_text(f'{{"ts":{T}}}\n{{"ts":{T}}}\n{{"at":{T}}}\n')
    return tmp_path


def test_an_ingest_names_the_lake_by_its_whole_path_and_says_if_it_is_new(folder: Path) -> None:
    ingest = "ingest", "--conf-file", "web.toml", "--local", "--run-id"
    assert f"{folder}/lake, a new lake\n" in re.sub(" +\n", "\n", told(*ingest, "1"))
    for run_id in ("1", "2"):
        assert "a new lake" not in told(*ingest, run_id)


def test_an_ingest_that_takes_a_while_says_what_it_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a terminal, long before its first line about progress; a short one says nothing."""
    ingest = "ingest", "--conf-file", "web.toml", "--local", "--run-id"
    assert "topic events: " not in told(*ingest, "1")
    read = InputFiles.spool

    def slow(self: InputFiles, *arguments: Any) -> Any:
        time.sleep(0.3)
        return read(self, *arguments)

    monkeypatch.setattr(InputFiles, "spool", slow)
    monkeypatch.setattr("seglake.terminal.progress.SOON_S", 0.1)
    Path("new.jsonl").write_text(f'{{"ts":{T}}}\n')
    assert " topic events: reading 1 file, 21 B\n" in told(*ingest, "2", "--source", "new.jsonl")


def test_a_redrive_of_a_run_without_rejects_says_so(folder: Path) -> None:
    Path("in.jsonl").write_text(f'{{"ts":{T}}}\n')
    told("ingest", "--conf-file", "web.toml", "--local", "--run-id", "1")
    said = told("redrive", "--conf-file", "web.toml", "--local", "--run-id", "1").splitlines()
    assert said[0] == "nothing to redrive: run '1' has no open rejects"
    assert said[1].strip() == "redrive"


def test_a_run_that_was_redriven_tells_what_is_still_open(folder: Path) -> None:
    told("ingest", "--conf-file", "web.toml", "--local", "--run-id", "1")
    status = "run-status", "lake", "events", "--run-id", "1"
    found = json.loads(told(*status, "--json"))
    assert (found["quarantined"], found["redrives"], found["open_rejects"]) == (1, [], 1)
    assert "redrives" not in told(*status)
    Path("web.toml").write_text(PIPELINE.replace('"ts"', '"at"'))
    told("redrive", "--conf-file", "web.toml", "--local", "--run-id", "1")
    found = json.loads(told(*status, "--json"))
    assert (found["redrives"], found["open_rejects"]) == (["1 redrive 1"], 0)
    assert re.search(r"redrives +1 redrive 1\s+open rejects +0\s", told(*status))


def test_a_reject_of_spaces_can_be_seen(folder: Path) -> None:
    Path("in.jsonl").write_text(f'{{"ts":{T}}}\n   \n')
    told("ingest", "--conf-file", "web.toml", "--local", "--run-id", "1")
    assert "'   '" in told("quarantine", "lake", "events")
    assert "'   '" in told("check", "--conf-file", "web.toml", code=3)


def test_one_thing_is_no_plural(folder: Path) -> None:
    """Commands about a lake with one record, one reject, one segment and one of all else."""
    Path("in.jsonl").write_text(f'{{"ts":{T},"user":"ann"}}\n{{\n')
    Path("web.toml").write_text(f'{PIPELINE}key.fields = ["user"]\n')
    told("ingest", "--conf-file", "web.toml", "--local", "--run-id", "1")
    here, key = ("lake", "events"), ("--key", "ann")
    alter = "alter", *here, "cleanup.policy=compact,delete", "retention.ms=100000d"
    said = [
        told(*command)
        for command in (
            ("init", "in.jsonl", "-o", "new.toml"), ("read", *here, "--explain"),
            ("read", *here, "--fields", "user:int32"), ("find", *here, *key, "--explain"),
            ("verify", "lake"), ("tag", "lake", "q3"), alter, ("compact", *here, "--force"),
            ("merge", *here, "--all", "--dry-run"), ("erase", *here, *key, "--dry-run"),
            ("export", *here, "out"), ("import", "out/events-0", "--root", "new"),
            ("erase", *here, *key), ("undo", *here, "--run-id", "1", "--force"),
            ("vacuum", "lake", "--grace-hours", 0),
        )
    ]  # fmt: skip
    text = "\n".join(said)
    assert re.findall(r"(?<![.,\d])1 (?!has|was)(?:[a-z]+ )?[a-z]{2,}s\b", text) == []
    for each in ("erase 1 record in 1 segment", "1 record, 110 bytes", "1 log partition of 1 was"):
        assert each in text


def test_bytes_of_a_reject_that_are_no_text_can_be_read(folder: Path) -> None:
    """JSON has all bytes."""
    Path("in.jsonl").write_bytes(f'{{"ts":{T}}}\n'.encode() + b"caf\xe9 \x00 \xc3\xa9\n")
    told("ingest", "--conf-file", "web.toml", "--local", "--run-id", "1")
    assert "  caf\\xe9 \\x00 é\n" in told("quarantine", "lake", "events")
    raw = json.loads(told("quarantine", "lake", "events", "--json"))[0]["raw"]
    assert base64.b64decode(raw["base64"]) == b"caf\xe9 \x00 \xc3\xa9"


def test_what_is_not_shown_is_not_called_none(folder: Path) -> None:
    told("ingest", "--conf-file", "web.toml", "--local", "--run-id", "1")
    said = told("quarantine", "lake", "events", "--limit", 0)
    assert said.startswith("0 of 1 rejected rows are shown")
    assert told("repair", "lake").startswith(
        "No index file is missing or damaged. (`seglake verify`"
    )


def test_check_shows_a_terminal_a_part_of_a_long_row_and_a_pipe_all_of_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("in.jsonl").write_text(f'{{"ts":{T}}}\n' + "x" * 5000 + "\n")
    check = "check", "--conf-file", "web.toml"
    for whole in (told(*check, code=3), told(*check, "--json", code=3)):
        assert "x" * 5000 in whole
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "500")
    with pytest.raises(SystemExit):
        app(check)
    assert re.findall("x{9,}.?", capsys.readouterr().out) == ["x" * 200 + "…"]


def test_a_report_counts_the_bytes_of_its_file(tmp_path: Path) -> None:
    root, page = tmp_path / "lake", tmp_path / "page.html"
    LakeMaker(root).run({0: [Event(T)]})
    assert f"{page.name}: " in (said := told("report", root, "-o", page))
    assert f", {page.stat().st_size:,} bytes" in said
    assert len(page.read_text()) < page.stat().st_size


def test_times_of_records_are_shown_to_the_millisecond(tmp_path: Path) -> None:
    """`--end` with the second would miss the record."""
    LakeMaker(tmp_path).run({0: [Event(T + 850)]})
    for command in (("topics", tmp_path), ("segments", tmp_path, "events")):
        assert "2023-11-14T22:13:20.850Z" in told(*command)


def test_headers_that_no_record_has_take_no_room(tmp_path: Path) -> None:
    """As nothing is shown for them, the column leaves where there is no room for all."""
    LakeMaker(tmp_path).run({0: [Event(T, b"k", b"v")]})
    row = told("read", tmp_path, "events", "--format", "table").splitlines()[-1]
    assert row.split()[-1] == "-"


def test_a_header_that_no_record_has_is_told(tmp_path: Path) -> None:
    LakeMaker(tmp_path / "none").run({0: [Event(T, b"k", b"v")]})
    LakeMaker(tmp_path / "some").run({0: [Event(T, b"k", b"v", (("trace", b"1"),))]})
    find = "events", "--header", "Trce=1"
    assert "no record of a sample has a header" in told("find", tmp_path / "none", *find)
    said = told("find", tmp_path / "some", *find)
    assert "has the header 'Trce'; did you mean 'trace'?" in said
    assert "has the header" not in told("find", tmp_path / "some", "events", "--header", "trace=2")


def test_names_are_near_whatever_their_case(tmp_path: Path) -> None:
    LakeMaker(tmp_path).run({0: [Event(T)]})
    with pytest.raises(UnknownTopic, match="did you mean 'events'"):
        seglake.open(str(tmp_path)).topic("EVENTS")
    with pytest.raises(ConfigError, match="needs two: s3://"):
        seglake.open("s3:/bucket/x")


def test_a_lake_that_is_a_file_is_named(folder: Path) -> None:
    with pytest.raises(StoreError) as error:
        told("ingest", "--conf-file", "web.toml", "--local", "--root", folder / "in.jsonl")
    said = f"{folder}/in.jsonl; a file stands where a folder is needed: name another folder"
    assert str(error.value) == said


def test_settings_in_utf_16_are_told_how_to_be_saved(folder: Path) -> None:
    Path("web.toml").write_text(PIPELINE, "utf-16")
    with pytest.raises(ConfigError, match="is not UTF-8, as TOML has to be: save it as UTF-8"):
        told("check", "--conf-file", "web.toml")


def test_a_port_that_is_too_large_is_told_as_that() -> None:
    with pytest.raises(ConfigError, match=r"'127\.0\.0\.1:99999' has a port above 65535"):
        settings.load(None, {"server.listen": "127.0.0.1:99999"})


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 ms"), (999, "999 ms"), (999_000, "16 min 39 s"), (2_416_980_000, "27 d 23 h")],
)
def test_durations_are_for_people(ms: int, text: str) -> None:
    assert duration(ms) == text


def test_what_is_counted_without_a_terminal_has_lines_now_and_then(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with line_every(0), counted("compiling kernels") as progress:
        for done in range(4):
            progress(done, 3)
    said = [f"compiling kernels: {done} of 3" for done in range(3)]
    lines = ["compiling kernels …", *said, "compiling kernels: 3 are ready"]
    assert capsys.readouterr().err.splitlines() == lines


def test_a_broker_that_is_not_there_is_told_with_a_remedy(caplog: pytest.LogCaptureFixture) -> None:
    at = f"127.0.0.1:{free_ports(1)[0]}"
    with (
        caplog.at_level(logging.INFO, "seglake.replay"),
        pytest.raises(StoreError, match=f"{at}: .*; check host and port, that the broker runs"),
    ):
        Target(at, "events", {}, 0.5).prepared(1)
    assert f"connecting to {at}, for up to 0.5 s" in caplog.text


def test_a_damaged_or_lost_log_is_told_with_what_helps() -> None:
    log = "topics/events-0/0/00000000000000000000.log"
    for error in (CorruptData("no", file=log), MissingObject(f"s3://b/lake/{log}: no such object")):
        assert "restore that log from a copy, or `seglake undo` its run" in remedy(error)
    for other in (CorruptData("no", file="catalog/x.parquet"), UsageError(log)):
        assert remedy(other) == ""


def test_what_is_awaited_comes_whole() -> None:
    for count in range(3):
        assert [*awaited(iter(range(count)), "searching")] == [*range(count)]
