"""Checking on Spark finds what it finds on threads, and the job's exit code says so."""

import json
import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from seglake.engine import SparkEngine
from seglake.maintain.health.verify import verify
from seglake.terminal.progress import line_every
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.spark.jobs import run_job


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
        assert run_job("verify", "--root", str(tmp_path), "--deep") == 0
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
    assert run_job("verify", "--root", str(tmp_path)) == 1
    assert len(json.loads(capsys.readouterr().out)["findings"]) == 3
    assert run_job("verify", "--root", str(tmp_path / "none")) == 2
    assert run_job("verify", "--root", str(tmp_path), "--topic", "nope") == 2
