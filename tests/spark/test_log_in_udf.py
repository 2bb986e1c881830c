"""A log inside a function that Spark's tasks run."""

import shutil
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import pandas_udf

import seglake
from tests.makers.lakes import Event, LakeMaker

T = 1795136400000  # 2026-11-20T01:00:00Z


def test_tasks_look_up_times_without_the_catalog(spark: SparkSession, tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path / "lake")
    maker.run({0: [Event(T + 250 * i - (i * 7919) % 3000) for i in range(2_400)]})
    log = seglake.open(str(maker.root)).topic("events")
    times = [T + 31_007 * i for i in range(25)]
    expected = {time: log.offsets_for_times({0: time})[0] for time in times}

    @pandas_udf("long")  # type: ignore[call-overload, untyped-decorator]
    def offset_of(at: pd.Series) -> pd.Series:
        offsets, _ = log.offsets_for_times_array(0, at)
        return pd.Series(offsets)

    shutil.rmtree(maker.root / "catalog")  # a task has what the driver opened
    moments = spark.createDataFrame([(time,) for time in times], "at long")
    rows = moments.withColumn("offset", offset_of("at")).collect()
    assert {row.at: row.offset for row in rows} == {
        time: found.offset if found else -1 for time, found in expected.items()
    }
    assert {found is None for found in expected.values()} == {True, False}
