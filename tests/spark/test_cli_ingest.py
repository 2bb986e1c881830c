"""`seglake demo` and `seglake ingest`, the commands that start Spark."""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

import seglake
from seglake.cli.app import app
from seglake.errors import InputError, QuarantineLimit, SeglakeError
from tests.makers.raw_events import write_settings

PROJECT = Path(__file__).parents[2]
MORE: dict[str, dict[str, Any]] = {
    "pipeline": {"max_quarantine_ratio": 0.5},
    "timestamp": {"allow_1970": True},
}


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_demo_answers_its_questions_and_ingests_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "lake"
    arguments = ("demo", root, "--events", tmp_path / "events", "--count", "5000")
    first = command(*arguments)
    assert first.exit_code == 0, first.output
    assert "Made 5,000 web events" in first.output
    for question in ("has offset", "of each partition", "in the 10 seconds"):
        assert question in first.output
    lake = seglake.open(str(root))
    assert sum(lake.topic("web").end_offsets().values()) == 5000
    (run,) = lake.history("web")
    assert run.input_rows == run.records + run.quarantined
    again = command(*arguments)
    assert "Run 'demo' is already committed. Nothing was ingested again." in again.output
    assert seglake.open(str(root)).version == lake.version


def test_ingest_takes_root_and_sources_from_its_options(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "lake"
    conf = write_settings(tmp_path / "web.toml", "nowhere", "nothing", **MORE)
    for name, lines in {"a": '{"ts":1}\n', "b": '{"ts":2}\nno\n', "bad": "no\nno\n"}.items():
        (tmp_path / f"{name}.jsonl").write_text(lines)
    ingest = ("ingest", "--conf-file", conf, "--root", root)
    told = command(*ingest, "--run-id", "1", "--source", tmp_path / "[ab].jsonl", "--json")
    report = json.loads(told.stdout)
    assert (told.exit_code, report["status"]) == (0, "committed")
    assert (report["input_rows"], report["records"], report["quarantined"]) == (3, 2, 1)
    assert report["reasons"] == {"not parseable": 1}
    again = command(*ingest, "--run-id", "1", "--source", tmp_path / "[ab].jsonl")
    assert (again.exit_code, "already done" in again.stdout) == (0, True)
    assert error_of(*ingest, "--source", tmp_path / "*.csv") is InputError
    assert error_of(*ingest, "--source", tmp_path / "bad.jsonl") is QuarantineLimit
    assert len(seglake.open(str(root)).history()) == 1


@pytest.mark.rest
def test_a_damaged_file_is_one_sentence_whatever_spark_has_to_say(tmp_path: Path) -> None:
    damaged = tmp_path / "events.gz"
    conf = write_settings(tmp_path / "web.toml", "nowhere", "nothing", **MORE)
    damaged.write_bytes(gzip.compress(b'{"ts":1}\n' * 1000)[:-4])
    done = subprocess.run(
        [sys.executable, "-c", "from seglake.cli import main; main()", "ingest",
         "--conf-file", conf, "--root", tmp_path / "lake", "--source", damaged],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(PROJECT / "src")},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    told_steps = r"Spark (starts(, \d+ s)?|runs)|topic \w+: reading 1 file, .*"
    steps = re.compile(rf"WARNING: Using|[0-9-]{{10}} [0-9:,]{{12}} ({told_steps})$")
    told = [line for line in done.stderr.splitlines() if not steps.match(line)]
    assert len(told) == 1, done.stderr
    assert told[0].startswith(f"seglake: {damaged} has damaged or incomplete gzip data")


def error_of(*arguments: object) -> type[SeglakeError]:
    """What `main` would turn into one line and an exit code."""
    with pytest.raises(SeglakeError) as caught:
        CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    return type(caught.value)
