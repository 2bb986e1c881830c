"""A DataFrame joined with the events around its rows: by tasks, by the job, and by brute force."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.functions import pandas_udf

import seglake
from seglake.datasource import events_around
from seglake.errors import UsageError
from seglake.format.partitioner import partition_of
from seglake.format.records import Spans
from seglake.read.log import Log
from tests.harness.flags import options_of_job
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.spark.jobs import run_job

T = 1795136400000  # 2026-11-20T01:00:00Z
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> LakeMaker:
    """Four events a second for ten minutes, up to 3 s out of order, in two runs."""
    made = LakeMaker(tmp_path_factory.mktemp("around") / "lake", partitions=3)
    late = [(i * 7919) % 3000 for i in range(2_400)]
    rows = [Event(T + 250 * i - late[i], b"u%d" % (i % 11), b"v%d" % i) for i in range(2_400)]
    for some in (rows[:1_500], rows[1_500:]):
        homes = partition_of(Spans.of([row.key for row in some]), 3).tolist()
        pairs = list(zip(some, homes, strict=True))
        by_partition = {p: [row for row, home in pairs if home == p] for p in range(3)}
        made.run(by_partition, Shape("zstd", batch_bytes=700, segment_bytes=20_000))
    return made


@pytest.fixture
def log(maker: LakeMaker) -> Log:
    return seglake.open(str(maker.root)).topic("events")


@pytest.fixture(scope="module")
def alerts(spark: SparkSession) -> DataFrame:
    """In no order: some at the same time, some far outside, some without time or user."""
    seconds = [(i * 101) % 700 - 30 for i in range(20)]
    rows: list[tuple[int, float | None, str | None]] = [
        (i, T / 1000 + at + i % 3 * 0.0004, f"u{i % 4}") for i, at in enumerate(seconds)
    ]
    rows += [(20, None, "u1"), (21, T / 1000 + 300, None), (22, T / 1000 + 101, "u7")]
    frame = spark.createDataFrame(rows, "id int, seconds double, user string")
    return frame.selectExpr("id", "timestamp_seconds(seconds) AS at", "user").repartition(3)


def brute_force(spark: SparkSession, maker: LakeMaker, alerts: DataFrame, rule: str) -> DataFrame:
    """Spark's own join with every event, in the columns of the format."""
    alerts.createOrReplaceTempView("alerts")
    every = spark.read.format("seglake").option("subscribe", "events").load(str(maker.root))
    every.createOrReplaceTempView("events")
    return spark.sql(f"SELECT a.*, e.* FROM alerts a JOIN events e ON {rule}")


def same(one: DataFrame, other: DataFrame) -> None:
    assert_df_equality(one, other, ignore_row_order=True, ignore_nullable=True)


BEFORE = "e.timestamp >= a.at - INTERVAL 20 SECONDS AND e.timestamp < a.at"


def test_the_events_before_each_alert(
    spark: SparkSession, maker: LakeMaker, log: Log, alerts: DataFrame
) -> None:
    found = events_around(alerts, log, "at", before_ms=20_000)
    assert found.columns == [*alerts.columns, *COLUMNS]
    same(found, brute_force(spark, maker, alerts, BEFORE))


def test_of_the_same_user_before_and_after(
    spark: SparkSession, maker: LakeMaker, log: Log, alerts: DataFrame
) -> None:
    columns = ["partition", "offset", "value", "timestamp"]
    found = events_around(
        alerts, log, "at", before_ms=30_000, after_ms=5_000, key="user", columns=columns
    )
    rule = (
        "e.timestamp >= a.at - INTERVAL 30 SECONDS AND e.timestamp < a.at + INTERVAL 5 SECONDS"
        " AND CAST(e.key AS STRING) = a.user"
    )
    expected = brute_force(spark, maker, alerts, rule).select(*alerts.columns, *columns)
    assert expected.count() > 60
    same(found, expected)


def test_tasks_need_no_catalog(
    log: Log, maker: LakeMaker, alerts: DataFrame, tmp_path: Path
) -> None:
    """It is gone when the first task starts; what they have is what the driver opened."""
    expected = events_around(alerts, log, "at", before_ms=20_000).count()
    copy = shutil.copytree(maker.root, tmp_path / "copy")
    found = events_around(alerts, seglake.open(str(copy)).topic("events"), "at", before_ms=20_000)
    shutil.rmtree(copy / "catalog")
    assert found.count() == expected > 0


def test_a_log_in_a_function_of_ones_own(log: Log, alerts: DataFrame) -> None:
    """Any function may hold a log: here the offset of each alert in partition 0, as a column."""

    @pandas_udf("long")  # type: ignore[call-overload, untyped-decorator]
    def offset_of(at: pd.Series) -> pd.Series:
        offsets, _ = log.offsets_for_times_array(0, at.astype("datetime64[ms]").astype("int64"))
        return pd.Series(offsets)

    answered = alerts.where("at IS NOT NULL").withColumn("offset", offset_of("at")).collect()
    for row in answered[::7]:
        found = log.offsets_for_times({0: int(row.at.timestamp() * 1000)})[0]
        assert row.offset == (found.offset if found else -1)


def test_mistakes_are_told_before_a_task_starts(log: Log, alerts: DataFrame) -> None:
    with pytest.raises(UsageError, match="no column 'when'; there are id, at, user"):
        events_around(alerts, log, "when", before_ms=1)
    with pytest.raises(UsageError, match="not string"):
        events_around(alerts, log, "user", before_ms=1)
    with pytest.raises(UsageError, match="both the rows and the records have a column 'key'"):
        events_around(alerts.withColumnRenamed("user", "Key"), log, "at", before_ms=1)
    with pytest.raises(UsageError, match="unknown column 'offsets'"):
        events_around(alerts, log, "at", before_ms=1, columns=["offsets"])


@pytest.mark.rest
@pytest.mark.long
def test_the_job(
    spark: SparkSession,
    maker: LakeMaker,
    alerts: DataFrame,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    alerts.write.format("delta").save(f"{tmp_path}/alerts")
    arguments = (
        "--root", str(maker.root), "--topic", "events", "--rows", f"{tmp_path}/alerts",
        "--at", "at", "--before-ms", "20000", "--output", f"{tmp_path}/found",
    )  # fmt: skip
    assert run_job("around", *arguments) == 0
    written = spark.read.format("delta").load(f"{tmp_path}/found")
    expected = brute_force(spark, maker, alerts, BEFORE)
    same(written, expected)
    report = json.loads(capsys.readouterr().out)
    assert report == {"version": maker.versions[-1], "pairs": expected.count()}


@pytest.mark.rest
@pytest.mark.long
def test_every_option_of_the_job_acts(
    spark: SparkSession,
    maker: LakeMaker,
    alerts: DataFrame,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    alerts.write.format("delta").save(f"{tmp_path}/alerts")
    base = {"root": maker.root, "topic": "events", "rows": tmp_path / "alerts", "at": "at"}
    shown = {"--output", *(f"--{name}" for name in base)}  # by the tests of the job's errors

    def told(**options: object) -> tuple[dict[str, int], list[str]]:
        shown.update(f"--{name.replace('_', '-')}" for name in options)
        output = tmp_path / f"found-{len(list(tmp_path.iterdir()))}"
        given = {**base, **options, "output": output}.items()
        pairs = ((f"--{name.replace('_', '-')}", str(value)) for name, value in given)
        assert run_job("around", *itertools.chain.from_iterable(pairs)) == 0
        columns = spark.read.format("delta").load(str(output)).columns
        return json.loads(capsys.readouterr().out), columns

    before, _ = told(before_ms=20_000)
    after, _ = told(after_ms=10_000)
    keyed, columns = told(before_ms=20_000, key="user", columns="offset,value")
    old, _ = told(before_ms=20_000, version=maker.versions[0])
    assert 0 < keyed["pairs"] < before["pairs"]
    assert 0 < after["pairs"] < before["pairs"]
    assert columns == [*alerts.columns, "offset", "value"]
    assert old["version"] == maker.versions[0] != before["version"]
    assert {f"jobs/around {name}" for name in shown} == options_of_job("around")


def test_the_job_tells_what_is_wrong(
    maker: LakeMaker, alerts: DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alerts.write.format("delta").save(f"{tmp_path}/alerts")
    arguments = ["--root", str(maker.root), "--topic", "events", "--rows", f"{tmp_path}/alerts",
                 "--at", "at", "--output", f"{tmp_path}/found"]  # fmt: skip
    assert run_job("around", *arguments) == 2
    assert "before_ms" in capsys.readouterr().err
    assert run_job("around", *arguments, "--before-ms", "5", "--key", "who") == 2
    assert "no column 'who'" in capsys.readouterr().err
    assert run_job("around", *arguments, "--before-ms", "5", "--at", "when") == 2
    assert "when" in capsys.readouterr().err
    assert not (tmp_path / "found").exists()
