"""Groups of segments are merged by executors as they are by threads."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from seglake.layout import SUFFIXES
from seglake.maintain.merge import merge
from tests.makers.lakes import Event, LakeMaker, Shape


def made(root: Path) -> LakeMaker:
    maker = LakeMaker(root, partitions=3)
    for run in range(4):
        rows = [Event(100 * run + i * 7 % 50, b"k", b"v" * 30) for i in range(60)]
        maker.run({0: rows, 1: rows[:20], 2: rows[:9]}, Shape(codec="zstd"))
    return maker


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    return made(tmp_path / "lake")


def files(maker: LakeMaker, version: int) -> list[bytes]:
    rows = maker.catalog.segments(maker.catalog.snapshot(version), "events")
    return [(maker.root / row.key(suffix)).read_bytes() for row in rows for suffix in SUFFIXES]


def test_spark_and_threads_write_the_same_bytes(
    spark: SparkSession, maker: LakeMaker, tmp_path: Path
) -> None:
    other = made(tmp_path / "other")
    seen: list[int] = []
    on_spark = merge(
        str(maker.root), "events", everything=True, spark=spark,
        progress=lambda done, total: seen.append(total - done),
    )  # fmt: skip
    on_threads = merge(str(other.root), "events", everything=True)
    assert (on_spark.segments, on_spark.new_segments) == (12, 3)
    assert files(maker, on_spark.version) == files(other, on_threads.version)
    assert seen[-1] == 0


def test_an_executor_names_a_damaged_log(spark: SparkSession, maker: LakeMaker) -> None:
    path = maker.files("log")[1]
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    report = merge(str(maker.root), "events", everything=True, spark=spark)
    (damage,) = report.damaged
    assert damage.file.endswith(path.name)
    assert (report.new_segments, report.exit_code) == (2, 1)
