"""jobs/ingest.py as schedulers run it: spark-submit, its exit codes, and a real cluster."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from seglake.config import load
from seglake.engine import SparkEngine
from seglake.maintain.health.verify import verify
from seglake.terminal.progress import line_every
from tests.harness import installed
from tests.harness.cluster import standalone_cluster
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.raw_events import (
    Line,
    T,
    assert_holds,
    quarantined,
    read_lake,
    write_files,
    write_settings,
)
from tests.spark.jobs import run_job

PROJECT = Path(__file__).parents[2]
JOB = PROJECT / "jobs" / "ingest.py"


class Ended(NamedTuple):
    """How a job ended."""

    code: int
    report: dict[str, Any]
    told: str


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_settings(
        tmp_path / "web.toml", tmp_path / "lake", tmp_path / "in",
        pipeline={"max_quarantine_ratio": 0.1}, key={"fields": ["k"]}, topic={"partitions": 3},
    )  # fmt: skip
    lines = [Line(T + at, "abc"[at % 3], broken="{" if at == 5 else None) for at in range(100)]
    write_files(tmp_path / "in", [(lines, ""), (lines, ".gz")])
    return tmp_path


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """An environment for executors; `make test-archive` gives the one that users make."""
    if made := os.environ.get("SEGLAKE_ARCHIVE"):
        return Path(made)
    installed.install(installed.build_wheel(tmp_path), tmp_path / "packed")
    installed.pack(tmp_path / "packed", tmp_path / "packed.tar.gz")
    return tmp_path / "packed.tar.gz"


def submit(
    folder: Path, *arguments: str, master: str = "local[2]", packed: Path | None = None
) -> Ended:
    """The exit code of the job, the report if it was done, and everything that it wrote.

    spark-submit joins both streams of a Python program into its own standard output. The report
    is the last line of that, with nothing else on it.
    """
    paths = f"{PROJECT / 'src'}"
    settings = {
        "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
    }  # fmt: skip
    if packed is not None:
        settings["spark.archives"] = f"{packed}#env"
    python = sys.executable if packed is None else "./env/bin/python"
    conf = [f"--conf={name}={value}" for name, value in settings.items()]
    done = subprocess.run(
        [Path(sys.executable).parent / "spark-submit", "--master", master, *conf,
         JOB, "--conf-file", folder / "web.toml", *arguments],
        capture_output=True, text=True, check=False, cwd=folder,
        env=os.environ | {"PYTHONPATH": paths, "PYSPARK_PYTHON": python,
                          "PYSPARK_DRIVER_PYTHON": sys.executable},
    )  # fmt: skip
    told = done.stdout + done.stderr
    *before, last, end = ["", *done.stdout.split("\n")]
    assert (end, any('{"' in line for line in before)) == ("", False), told
    assert last.startswith("{") == (done.returncode == 0), told
    return Ended(done.returncode, json.loads(last) if done.returncode == 0 else {}, told)


@pytest.mark.rest
@pytest.mark.long
def test_a_run_on_a_cluster_and_again_without_one(folder: Path, packed: Path) -> None:
    """The cluster's machines have no Seglake but the one that the job brings."""
    arguments = ("--run-id", "2026-11-20T01", "--interval-start", str(T), "--interval-end",
                 str(T + 100))  # fmt: skip
    with standalone_cluster(folder, environment=installed.lonely()) as master:
        ended = submit(folder, *arguments, master=master, packed=packed)
    assert ended.code == 0, ended.told
    report = ended.report
    assert (report["records"], report["quarantined"], report["pipeline"]) == (198, 2, "web")
    assert len(list(folder.glob("worker-*/app-*/*/env/bin/python"))) == 2  # on each worker
    assert "kernels are compiled" not in "".join(
        log.read_text() for log in folder.glob("worker-*/app-*/*/stderr")
    )
    paths = sorted((folder / "in").iterdir())
    settings = load(folder / "web.toml")
    assert_holds(read_lake(folder / "lake"), settings, [paths])
    assert len(quarantined(folder / "lake")) == 2
    again = submit(folder, *arguments)
    assert (again.code, again.report["status"]) == (0, "already done"), again.told


@pytest.fixture
def job(spark: SparkSession) -> Callable[[list[str]], int]:
    """The job's `main` in this process, where a session runs already."""
    main: Callable[[list[str]], int] = run_path(str(JOB))["main"]
    return main


def test_a_damaged_file_is_found_by_a_task_and_told_by_the_driver(
    folder: Path, job: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = folder / "in" / "001.jsonl.gz"
    damaged.write_bytes(damaged.read_bytes()[:-10])
    assert job(["--conf-file", str(folder / "web.toml")]) == 2
    output, log = capsys.readouterr()
    assert (output, "Traceback" in log) == ("", False)
    assert "001.jsonl.gz" in log


# Checking on Spark finds what it finds on threads, and the job's exit code says so.


def test_findings_are_those_of_threads(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    maker = LakeMaker(tmp_path, partitions=2)
    rows = [Event(i * 7 % 50, b"k", b"v" * 30) for i in range(60)]
    maker.run({0: rows, 1: rows[:20]}, Shape(codec="zstd", segment_bytes=500))
    with caplog.at_level(logging.INFO, "seglake"), line_every(0):
        assert run_job("verify", str(tmp_path), "--deep") == 0
    assert [message for message in caplog.messages if "B of log done" in message][1:]
    report = json.loads(capsys.readouterr().out)
    assert (report["findings"], report["segments"]) == ([], len(maker.files("log")))
    for suffix in ("log", "zonemap"):
        path = maker.files(suffix)[1]
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    maker.files("index")[0].unlink()
    for deep in (False, True):
        found = verify(str(tmp_path), deep=deep, spark=spark)
        assert found == verify(str(tmp_path), deep=deep)
        assert len(found.findings) == 3
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(SparkEngine, "cores", 1)
    found = verify(str(tmp_path), spark=spark, progress=lambda *step: told.append(step))
    assert len(found.findings) == 3
    assert told == sorted(set(told))
    assert told[-1] == (found.log_bytes, found.log_bytes)
    assert len(told) == 1 + 4  # a step for each task of a core
    assert run_job("verify", str(tmp_path)) == 1
    assert len(json.loads(capsys.readouterr().out)["findings"]) == 3
    assert run_job("verify", str(tmp_path / "none")) == 2
    assert run_job("verify", str(tmp_path), "--topic", "nope") == 2
