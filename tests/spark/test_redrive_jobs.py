"""`seglake redrive` and jobs/redrive.py, which start Spark; and the SQL of docs/operations.md."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from seglake.cli.app import app
from seglake.config import load
from seglake.errors import QuarantineLimit, UsageError
from seglake.maintain.health.verify import verify
from tests.makers.raw_events import ingest, write_settings
from tests.makers.redriven import Event, open_rejects, records, write
from tests.spark.jobs import run_job

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with 2 files of 60 rows: a third has the time a, a third b, a third is broken."""
    for time in "ab":
        write_settings(
            tmp_path / f"{time}.toml", tmp_path / "lake", tmp_path / "in",
            pipeline={"name": "web", "max_quarantine_ratio": 0.9}, timestamp={"field": time},
        )  # fmt: skip
    rows = [Event("a"), Event("b"), Event("", broken=True)] * 20
    for name in ("x", "y"):
        write(tmp_path / "in" / name, "jsonl", rows)
    assert ingest(load(tmp_path / "a.toml"), "R").records == 40
    (tmp_path / "in" / "y").unlink()
    return tmp_path


def command(folder: Path, *arguments: object, conf: str = "b", topic: str = "events") -> Any:
    given = ("redrive", folder / "lake", topic, "--conf-file", folder / f"{conf}.toml", *arguments)
    return CliRunner().invoke(app, [str(each) for each in given])


def test_the_command_redrives_once(spark: SparkSession, folder: Path) -> None:
    before = records(folder / "lake")
    told = json.loads(command(folder, "--run-id", "R", "--dry-run", "--json").stdout)
    assert (told["status"], told["records"]) == ("dry run", 40)
    assert records(folder / "lake") == before
    told = json.loads(command(folder, "--run-id", "R", "--json").stdout)
    assert (told["status"], told["records"], told["quarantined"]) == ("committed", 40, 40)
    assert told["reasons"] == {"not parseable": 40}
    again = command(folder, "--run-id", "R")
    assert (again.exit_code, "already done" in again.stdout) == (0, True)
    assert set(records(folder / "lake").values()) == {1}
    assert sum(records(folder / "lake").values()) == 80
    assert verify(str(folder / "lake"), deep=True).findings == []
    assert isinstance(command(folder, "--run-id", "R", conf="a").exception, QuarantineLimit)
    assert isinstance(command(folder, "--run-id", "none").exception, UsageError)
    other = command(folder, "--run-id", "R", topic="other").exception
    assert (
        str(other)
        == f"{folder}/b.toml has topic.name = 'events', but the command names 'other'. Correct one"
    )


@pytest.mark.rest
@pytest.mark.long
def test_the_sql_of_the_page_finds_the_open_rejects(spark: SparkSession, folder: Path) -> None:
    page = (PROJECT / "docs" / "operations.md").read_text()
    (query,) = re.findall(r"```sql\n(.+?)```", page, re.DOTALL)
    command(folder, "--run-id", "R")
    for name in ("log", "quarantine"):
        table = spark.read.format("delta").load(f"{folder}/lake/catalog/{name}")
        table.createOrReplaceTempView(name)
    found = spark.sql(query).select("source_file", "line").collect()
    assert sorted(map(tuple, found)) == sorted(open_rejects(folder / "lake"))
    assert len(found) == 40


def test_the_job_prints_its_report(
    spark: SparkSession, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_job("redrive", "--conf-file", str(folder / "b.toml"), "--run-id", "R") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["run_id"], report["records"]) == ("R redrive 1", 40)
    assert run_job("redrive", "--conf-file", str(folder / "a.toml"), "--run-id", "R") == 3
    output, log = capsys.readouterr()
    assert (output, "none of the 40 open rejects" in log) == ("", True)
