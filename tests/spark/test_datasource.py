"""`spark.read.format("seglake")` against the log that was written."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from chispa import assert_df_equality
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import seglake
from tests.makers.lakes import Event, LakeMaker, Shape, T


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> LakeMaker:
    """3 partitions, one of them empty; late records, headers, nulls, several segments."""
    maker = LakeMaker(tmp_path_factory.mktemp("datasource") / "lake", partitions=3)
    rows = [
        Event(T + i - 40 * (i % 7 == 0), None if i % 5 == 0 else b"%d" % i,
              None if i % 11 == 0 else b"v" * 30, (("h", b"\x00"), ("h", None)) if i % 3 else ())
        for i in range(2000)
    ]  # fmt: skip
    maker.run({0: rows, 2: rows[:500]}, Shape("zstd", 400, 9000))
    maker.run({0: [Event(-1), Event(T + 5000)]}, Shape("lz4"))
    return maker


def load(spark: SparkSession, maker: LakeMaker, **options: str) -> DataFrame:
    reader = spark.read.format("seglake").option("subscribe", "events").options(**options)
    return reader.load(str(maker.root))


def in_order(frame: DataFrame) -> pa.Table:
    return frame.orderBy("topic", "partition", "offset").toArrow()


def as_read(maker: LakeMaker, start: int | None = None, end: int | None = None) -> pa.Table:
    """What the library reads, in the data source's types."""
    log = seglake.open(str(maker.root)).topic("events")
    if start is None or end is None:
        table = log.plan_offsets(dict.fromkeys(log.partitions(), (0, 2**62))).execute().read_all()
    else:
        table = log.read_range(start, end).read_all()
    table = table.rename_columns({"timestamp_type": "timestampType"})
    micros = table["timestamp"].cast(pa.timestamp("us", "UTC"))
    table = table.set_column(3, "timestamp", micros)
    return table.select(["key", "value", "topic", "partition", "offset", "timestamp",
                         "timestampType", "headers"])  # fmt: skip


def test_everything(spark: SparkSession, maker: LakeMaker) -> None:
    found = in_order(load(spark, maker, includeHeaders="true", maxRecordsPerPartition="700"))
    expected = as_read(maker)
    assert found.drop_columns("headers").equals(expected.drop_columns("headers"))
    with_null = [headers or None for headers in expected["headers"].to_pylist()]
    assert found["headers"].to_pylist() == with_null
    assert with_null.count(None) > 500


def test_an_exact_window(spark: SparkSession, maker: LakeMaker) -> None:
    start, end = datetime.fromtimestamp(T / 1000 + 0.1, UTC), T + 300
    frame = load(spark, maker, startTime=start.isoformat(), endTime=str(end))
    assert in_order(frame).equals(as_read(maker, T + 100, end).drop_columns("headers"))
    every = load(spark, maker)
    within = every.where((every.timestamp >= start) & (f.unix_millis("timestamp") < end))
    assert_df_equality(frame, within, ignore_row_order=True)


def test_columns_and_tasks(spark: SparkSession, maker: LakeMaker) -> None:
    frame = load(spark, maker, columns="timestamp,offset", minPartitions="4")
    assert frame.columns == ["timestamp", "offset"]
    assert frame.count() == 2502
    assert 4 <= frame.rdd.getNumPartitions() <= 10
    assert load(spark, maker).rdd.getNumPartitions() == 1  # small segments share a task


def test_a_load_is_frozen_and_a_version_can_be_named(spark: SparkSession, tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path / "lake")
    first = maker.run({0: [Event(T)] * 3})
    frame = load(spark, maker)
    assert frame.count() == 3
    maker.run({0: [Event(T)] * 4})
    assert frame.count() == (3 if pyspark.__version__ >= "4.1" else 7)  # 4.0 plans each use anew
    assert load(spark, maker).count() == 7
    assert load(spark, maker, version=str(first)).count() == 3


def test_a_view_in_sql(spark: SparkSession, maker: LakeMaker) -> None:
    options = f"path '{maker.root}', subscribe 'events', columns 'partition'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW events USING seglake OPTIONS ({options})")
    counted = spark.sql("SELECT partition, count(*) FROM events GROUP BY 1 ORDER BY 1").collect()
    assert [tuple(row) for row in counted] == [(0, 2002), (2, 500)]


def last_line(error: BaseException) -> str:
    """What is left of a Python traceback in Spark's message."""
    return next(line for line in str(error).splitlines() if line.startswith("seglake.errors."))


def test_errors_are_one_sentence(spark: SparkSession, maker: LakeMaker) -> None:
    with pytest.raises(AnalysisException) as caught:
        load(spark, maker, startingOffset="earliest")
    assert last_line(caught.value) == (
        "seglake.errors.UsageError: unknown option 'startingoffset'. Did you mean startingOffsets?"
    )
    with pytest.raises(AnalysisException) as caught:
        load(spark, maker, startingOffsets="latest").count()
    assert "startingOffsets cannot be latest" in last_line(caught.value)
    with pytest.raises(AnalysisException) as caught:
        spark.read.format("seglake").schema("key binary").load(
            str(maker.root), subscribe="e"
        ).count()
    assert "fixed schema" in last_line(caught.value)
    with pytest.raises(AnalysisException) as caught:
        spark.sql(f"CREATE TABLE t USING seglake OPTIONS (path '{maker.root}', subscribe 'events')")
    assert "use CREATE TEMPORARY VIEW" in last_line(caught.value)


@pytest.mark.rest
def test_an_error_in_a_task_is_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path / "lake")
    maker.run({0: [Event(T, None, b"value")] * 3})
    (log,) = maker.files("log")
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    with pytest.raises(PythonException) as caught:
        load(spark, maker).count()
    assert f"{log.name} at byte " in last_line(caught.value)
    assert "fetch.py" not in str(caught.value)  # where it was noticed


def test_finding_it_imports_nothing_heavy() -> None:
    program = (
        "import sys, pyspark.sql.datasource, pyspark.sql.types; before = set(sys.modules);"
        "import pyspark_seglake;"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert {"numba", "numpy", "pyarrow", "deltalake", "obstore"}.isdisjoint(
        done.stdout.decode().split()
    )


def test_fields_are_columns_of_their_type(spark: SparkSession, tmp_path: Path) -> None:
    lines = ['{"user": {"name": "é%d"}, "n": %d, "ok": %s, "at": "2026-01-01T00:00:%02dZ"}']
    values = [lines[0] % (n, n * 100, "true" if n % 2 else '"false"', n) for n in range(40)]
    values += ["broken", '{"n": "7", "user": {"name": null}}']
    LakeMaker(tmp_path / "lake").run(
        {0: [Event(T + n, b"k", v.encode()) for n, v in enumerate(values)]}
    )
    fields = {"user.name": "string", "n": "int16", "ok": "bool", "at": "timestamp", "m": "float64"}
    reader = spark.read.format("seglake").option("subscribe", "events").option("columns", "offset")
    frame = reader.option("fields", ",".join(map(":".join, fields.items()))).load(
        str(tmp_path / "lake")
    )
    assert [each.simpleString() for each in frame.schema.fields][1:] == [
        "user.name:string", "n:smallint", "ok:boolean", "at:timestamp", "m:double",
    ]  # fmt: skip
    log = seglake.open(str(tmp_path / "lake")).topic("events")
    wanted = log.read_range(T, T + 99, columns=["offset"], fields=fields).read_all()
    at = wanted.schema.get_field_index("at")
    wanted = wanted.set_column(at, "at", wanted["at"].cast(pa.timestamp("us", "UTC")))
    assert frame.orderBy("offset").toArrow().equals(wanted)
    assert wanted["n"].null_count == 1
    assert frame.where("n = 300").count() == 1
