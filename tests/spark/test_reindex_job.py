"""The job that re-indexes a topic: its output and its exit codes."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from seglake.layout import SUFFIXES
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.spark.jobs import run_job


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    maker = LakeMaker(tmp_path / "lake", partitions=2)
    rows = [Event(i * 7 % 50, b"k", b"v" * 30) for i in range(60)]
    maker.run({0: rows, 1: rows[:20]}, Shape(codec="zstd", segment_bytes=500))
    return maker


def files(maker: LakeMaker) -> list[bytes]:
    rows = maker.catalog.segments(maker.catalog.snapshot(), "events")
    return [(maker.root / row.key(suffix)).read_bytes() for row in rows for suffix in SUFFIXES]


def test_the_job(spark: SparkSession, maker: LakeMaker, capsys: pytest.CaptureFixture[str]) -> None:
    root, before = str(maker.root), files(maker)
    topic = ("--root", root, "--topic", "events")
    assert run_job("reindex", *topic) == 0
    assert json.loads(capsys.readouterr().out)["version"] == maker.versions[-1] + 1
    assert files(maker) == before
    assert run_job("reindex", *topic, "--partition", "1", "--index-interval-bytes", "0") == 0
    rows = maker.catalog.segments(maker.catalog.snapshot(), "events")
    assert {(row.partition, row.index_interval) for row in rows} == {(0, 200), (1, 0)}
    capsys.readouterr()
    assert run_job("reindex", "--root", root, "--topic", "nope") == 2
    assert "nope" in capsys.readouterr().err
    assert run_job("reindex", *topic, "--index-interval-ms", "0") == 2
    assert (
        run_job("reindex", *topic, "--index-interval-ms", "5", "--index-interval-records", "5") == 2
    )
    assert run_job("reindex", "--topic", "events") == 2
    path = maker.files("log")[0]
    path.write_bytes(path.read_bytes()[:-1])
    assert run_job("reindex", *topic) == 1
