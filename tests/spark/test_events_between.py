"""A window as a DataFrame: read by the driver and by tasks, the same events, and no others."""

from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

import seglake
from seglake.datasource import events_between, frames, register
from seglake.errors import CorruptData, UsageError
from seglake.read.log import Log
from tests.harness.tiers import rest_but
from tests.makers.lakes import Event, LakeMaker, Shape

T = 1795136400000  # 2026-11-20T01:00:00Z
WINDOWS = [(T, T + 1), (T - 5_000, T + 20_000), (T + 33_000, T + 47_000), (0, T + 900_000)]
DRIVER, TASKS = 2**30, 0  # so many bytes are for the driver


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> LakeMaker:
    """Ten events a second for a minute in each partition, up to 3 s out of order."""
    made = LakeMaker(tmp_path_factory.mktemp("between") / "lake", partitions=2)
    times = [T + 100 * i - (i * 7919) % 3000 for i in range(600)]
    rows = [
        Event(time, None if i % 9 == 0 else b"k%d" % i, b"v%d" % i, (("h", b"1"),) * (i % 2))
        for i, time in enumerate(times)
    ]
    made.run({0: rows, 1: rows[:450]}, Shape("zstd", batch_bytes=700, segment_bytes=9_000))
    return made


@pytest.fixture
def log(maker: LakeMaker, spark: SparkSession) -> Log:
    register(spark)
    return seglake.open(str(maker.root)).topic("events")


@pytest.mark.parametrize("columns", [None, ["offset", "partition", "headers", "timestamp"]])
@pytest.mark.parametrize("window", rest_but(WINDOWS, WINDOWS[1]))
def test_the_driver_and_tasks_give_the_same(
    spark: SparkSession,
    log: Log,
    maker: LakeMaker,
    window: tuple[int, int],
    columns: list[str] | None,
) -> None:
    found, by_tasks = (
        events_between(spark, log, *window, columns=columns, driver_bytes=size)
        for size in (DRIVER, TASKS)
    )
    order = ["partition", "offset"]
    assert_df_equality(found.orderBy(order), by_tasks.orderBy(order))
    within = [r for r in maker.records() if window[0] <= r.timestamp < window[1]]
    rows = [(row.partition, row.offset) for row in found.orderBy(order).collect()]
    assert rows == [(record.partition, record.offset) for record in within]


def test_a_short_window_starts_no_task(
    spark: SparkSession, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default is what one task would read, and its DataFrame needs no other Python."""
    frame = events_between(spark, log, T, T + 10_000)
    assert "LocalTableScan" in plan_of(frame)
    assert frame.count() == len(log.read_range(T, T + 10_000).read_all()) > 100
    monkeypatch.setattr(Log, "read_range", None)
    tasks = events_between(spark, log, T, T + 10_000, driver_bytes=TASKS)
    assert "BatchScan" in plan_of(tasks)
    assert tasks.count() == frame.count()


@pytest.mark.parametrize(
    ("value_bytes", "local", "broadcast"),
    [
        (900, False, True),
        pytest.param(100, True, True, marks=pytest.mark.rest),
        pytest.param(9000, False, False, marks=pytest.mark.rest),
    ],
)
def test_many_bytes_stay_arrow_batches(
    spark: SparkSession, tmp_path: Path, value_bytes: int, local: bool, broadcast: bool
) -> None:
    """Their rows are right, joins broadcast what is small, and the session keeps its setting."""
    made = LakeMaker(tmp_path / "lake", partitions=2)
    rows = [Event(T + i, b"%d" % i, b"%d" % i * (value_bytes // 4)) for i in range(1500)]
    made.run({0: rows[::2], 1: rows[1::2]}, Shape("zstd", batch_bytes=16_000))
    log = seglake.open(str(made.root)).topic("events")
    before = spark.conf.get(frames._THRESHOLD)
    frame = events_between(spark, log, T, T + 1500, driver_bytes=DRIVER)
    assert spark.conf.get(frames._THRESHOLD) == before
    assert ("LocalTableScan" in plan_of(frame)) is local
    found = sorted((bytes(row.key), bytes(row.value)) for row in frame.collect())
    assert found == sorted((row.key, row.value) for row in rows)
    keys = spark.range(3).selectExpr("cast(cast(id as string) as binary) as key")
    joined = keys.repartition(2).join(frame.where("partition >= 0"), "key")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", 100_000_000 if local else -1)
    try:
        assert ("BroadcastHashJoin" in plan_of(joined)) is broadcast
        assert joined.count() == 3
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def plan_of(frame: DataFrame) -> str:
    query: Any = frame._jdf.queryExecution()
    return str(query.executedPlan().toString())


@pytest.mark.parametrize("driver_bytes", [DRIVER, TASKS])
def test_the_version_is_that_of_the_log(
    spark: SparkSession, tmp_path: Path, driver_bytes: int
) -> None:
    made = LakeMaker(tmp_path / "lake")
    made.run({0: [Event(T + i, b"k", b"v") for i in range(50)]})
    register(spark)
    before = seglake.open(str(made.root)).topic("events")
    made.run({0: [Event(T + i, b"k", b"v") for i in range(50)]})
    assert events_between(spark, before, 0, T + 99, driver_bytes=driver_bytes).count() == 50
    newest = seglake.open(str(made.root)).topic("events")
    assert events_between(spark, newest, 0, T + 99, driver_bytes=driver_bytes).count() == 100


def test_what_is_wrong_is_said_at_once(spark: SparkSession, tmp_path: Path) -> None:
    made = LakeMaker(tmp_path / "lake")
    made.run({0: [Event(T + i, b"k", b"v") for i in range(50)]})
    log = seglake.open(str(made.root)).topic("events")
    with pytest.raises(UsageError, match=r"unknown column 'offsets'. The columns are key, value"):
        events_between(spark, log, T, T + 9, columns=["offsets"])
    with pytest.raises(UsageError, match="requested twice: key, key"):
        events_between(spark, log, T, T + 9, columns=["key", "key"])
    with pytest.raises(UsageError, match="ends before it starts"):
        events_between(spark, log, T + 9, T)
    (path,) = made.root.rglob("*.log")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(CorruptData, match=path.name):
        events_between(spark, log, 0, T + 99)
