"""Spark decodes the segments of a published table, and reads the rows that other readers read."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import seglake
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.published import log_rows, require_equal
from tests.spark.jobs import run_job


def test_spark_publishes_and_reads_the_rows_of_the_log(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(tmp_path / "lake")
    maker = LakeMaker(tmp_path / "lake", partitions=2)
    events = [
        Event(n - 1, b"k%d" % (n % 3), b'{"n": %d, "user": "u%d"}' % (n, n % 5)) for n in range(90)
    ]
    maker.run({0: events, 1: events[:30]}, Shape("zstd", segment_bytes=900))
    fields = "n:int64,of=user:string"
    assert run_job("publish", root, "events", "--fields", fields) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["rows"], report["added"]) == (120, len(maker.files("log")))
    require_equal(root, "events")
    maker.delete_records(0, 5)
    assert seglake.publish(root, "events", spark=spark).added == 1
    require_equal(root, "events")
    table = spark.read.format("delta").load(f"{root}/tables/events")
    found = {
        (row["partition"], row["offset"], row["key"] and bytes(row["key"]), row["n"], row["of"])
        for row in table.collect()
    }
    rows = log_rows(root, "events")
    assert found == {(p, offset, key, n, of) for p, offset, _, key, _, n, of in rows}
    assert table.filter("n >= 80").count() == sum(row[5] >= 80 for row in rows)
    assert table.filter("timestamp IS NULL").count() == sum(row[2] is None for row in rows)
    spark.sql(f"OPTIMIZE delta.`{root}/tables/events`")
    assert any("OPTIMIZE" in each for each in seglake.publish(root, "events").mended)
    require_equal(root, "events")
    spark.sql(f"DELETE FROM delta.`{root}/tables/events` WHERE n = 50")
    assert any("DELETE" in each for each in seglake.publish(root, "events").mended)
    require_equal(root, "events")
