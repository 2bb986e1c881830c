"""What commands say to people: whole commands, whole paths, what is visible, and what to do."""

import base64
import json
import logging
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seglake.cli.app import app
from seglake.cli.terminal.frame import log_remedy
from seglake.errors import ConfigError, CorruptData, MissingObject, StoreError, UsageError
from seglake.replay.target import Target
from seglake.terminal.wording import duration
from tests.harness.ports import free_ports

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
    for each in ("erase 1 record in 1 segment", "1 record, 110 bytes", "1 log partition of 1."):
        assert each in text


def test_bytes_of_a_reject_that_are_no_text_can_be_read(folder: Path) -> None:
    """JSON has all bytes."""
    Path("in.jsonl").write_bytes(f'{{"ts":{T}}}\n'.encode() + b"caf\xe9 \x00 \xc3\xa9\n")
    told("ingest", "--conf-file", "web.toml", "--local", "--run-id", "1")
    assert "  caf\\xe9 \\x00 é\n" in told("quarantine", "lake", "events")
    raw = json.loads(told("quarantine", "lake", "events", "--json"))[0]["raw"]
    assert base64.b64decode(raw["base64"]) == b"caf\xe9 \x00 \xc3\xa9"


def test_settings_in_utf_16_are_told_how_to_be_saved(folder: Path) -> None:
    Path("web.toml").write_text(PIPELINE, "utf-16")
    with pytest.raises(ConfigError, match="is not UTF-8, which TOML requires"):
        told("check", "--conf-file", "web.toml")


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 ms"), (999, "999 ms"), (999_000, "16 min 39 s"), (2_416_980_000, "27 d 23 h")],
)
def test_durations_are_for_people(ms: int, text: str) -> None:
    assert duration(ms) == text


def test_a_broker_that_is_not_there_is_told_with_a_remedy(caplog: pytest.LogCaptureFixture) -> None:
    at = f"127.0.0.1:{free_ports(1)[0]}"
    with (
        caplog.at_level(logging.INFO, "seglake.replay"),
        pytest.raises(StoreError, match=f"{at}: .*. Check host and port, that the broker runs"),
    ):
        Target(at, "events", {}, 0.5).prepare(1)
    assert f"connecting to {at}, for up to 0.5 s" in caplog.text


def test_a_damaged_or_lost_log_is_told_with_what_helps() -> None:
    log = "topics/events-0/0/00000000000000000000.log"
    for error in (CorruptData("no", file=log), MissingObject(f"s3://b/lake/{log} does not exist")):
        assert "Restore that log from a copy, or `seglake undo` its run" in log_remedy(error)
    for other in (CorruptData("no", file="catalog/x.parquet"), UsageError(log)):
        assert log_remedy(other) == ""
