"""The same events written by others: Spark to Delta, DuckDB to Parquet."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIELDS = "ts BIGINT, user STRING"
ALL_FIELDS = "ts BIGINT, user STRING, id STRING, msg STRING"


def spark_lines(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """key, value, time, where the value is the raw line: Spark's text source and `from_json`.

    Spark's JSON source does not hand out the line that it parsed, so the line is read as text.
    """
    lines = spark.read.text([str(path) for path in files])
    parsed = lines.select(f.col("value"), f.from_json("value", FIELDS).alias("fields"))
    return parsed.select(
        f.col("fields.user").alias("key"), "value", f.col("fields.ts").alias("time")
    )


def spark_fields(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """key, value, time, where the value is one field only: Spark's JSON source with a schema."""
    events = spark.read.schema(ALL_FIELDS).json([str(path) for path in files])
    return events.select(
        f.col("user").alias("key"), f.col("msg").alias("value"), f.col("ts").alias("time")
    )


def spark_delta_line(
    spark: SparkSession, files: Sequence[Path], path: Path, partitions: int
) -> None:
    """Raw lines to Delta."""
    _delta(spark_lines(spark, files), path, partitions)


def spark_delta_by_time(
    spark: SparkSession, files: Sequence[Path], path: Path, ranges: int
) -> None:
    """Raw lines to Delta, each file a range of time and sorted by it."""
    frame = spark_lines(spark, files).repartitionByRange(ranges, "time")
    ordered = frame.sortWithinPartitions("time")
    ordered.write.format("delta").option("compression", "zstd").save(str(path))


def spark_delta_fields(
    spark: SparkSession, files: Sequence[Path], path: Path, partitions: int
) -> None:
    """One field to Delta."""
    _delta(spark_fields(spark, files), path, partitions)


def _delta(frame: DataFrame, path: Path, partitions: int) -> None:
    ordered = frame.repartition(partitions, "key").sortWithinPartitions("time")
    ordered.write.format("delta").option("compression", "zstd").save(str(path))


def duckdb_parquet(files: Sequence[Path], path: Path, *, row_group_size: int = 122_880) -> None:
    """key, value, time to one Parquet file sorted by time; the value is the raw line."""
    lines = "SELECT json->>'$.user' AS key, json::VARCHAR AS value, (json->>'$.ts')::BIGINT AS time"
    source = "read_json_objects(?, format = 'newline_delimited')"
    _parquet(f"{lines} FROM {source}", files, path, row_group_size)


def duckdb_parquet_fields(files: Sequence[Path], path: Path) -> None:
    """The same with one field as the value: `read_json` with its columns given."""
    columns = "{ts: 'BIGINT', user: 'VARCHAR', msg: 'VARCHAR'}"
    source = f"read_json(?, format = 'newline_delimited', columns = {columns})"
    _parquet(f"SELECT user AS key, msg AS value, ts AS time FROM {source}", files, path, 122_880)


def duckdb_csv(files: Sequence[Path], path: Path) -> None:
    """CSV with the columns of the events: key, one field as the value, time."""
    columns = "{ts: 'BIGINT', user: 'VARCHAR', id: 'VARCHAR', msg: 'VARCHAR'}"
    source = f"read_csv(?, header = true, columns = {columns})"
    _parquet(f"SELECT user AS key, msg AS value, ts AS time FROM {source}", files, path, 122_880)


def duckdb_text(files: Sequence[Path], path: Path, *, pattern: str) -> None:
    """Lines of text: key and time by a regular expression, the line as the value."""
    one_column = "header = false, delim = '\x01', quote = '', columns = {'line': 'VARCHAR'}"
    groups = f"regexp_extract(line, '{pattern}', ['ts', 'user'])".replace("?P", "")
    groups = groups.replace("(<ts>", "(").replace("(<user>", "(")
    inner = f"SELECT line, {groups} AS found FROM read_csv(?, {one_column})"
    select = "SELECT found.user AS key, line AS value, found.ts::BIGINT AS time"
    _parquet(f"{select} FROM ({inner})", files, path, 122_880)


def _parquet(select: str, files: Sequence[Path], path: Path, row_group_size: int) -> None:
    options = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {row_group_size}"
    with duckdb.connect() as connection:
        query = f"COPY ({select} ORDER BY time) TO '{path}' ({options})"
        connection.execute(query, [[str(file) for file in files]])


_CLICKHOUSE = """
import json, sys, time
from chdb import session
path, *files = sys.argv[1:]
engine = session.Session(path)
engine.query("CREATE DATABASE bench")
engine.query("CREATE TABLE bench.events (key String, value String CODEC(ZSTD), time Int64)"
             " ENGINE = MergeTree ORDER BY time")
lines = "SELECT JSONExtractString(line, 'user'), line, JSONExtractInt(line, 'ts') FROM file('"
begun = time.perf_counter()
lines += path + "/input/*', 'LineAsString', 'line String')"
engine.query("INSERT INTO bench.events " + lines)
seconds = time.perf_counter() - begun
count = engine.query("SELECT count() FROM bench.events", "CSV")
print(json.dumps([seconds, int(str(count))]), flush=True)
"""


def has_clickhouse() -> bool:
    """Whether chdb is installed."""
    return find_spec("chdb") is not None


def clickhouse(files: Sequence[Path], path: Path) -> tuple[float, int]:
    """key, value, time into a table of ClickHouse below `path`: its own seconds, and the rows."""
    (path / "input").mkdir(parents=True, exist_ok=True)
    for file in files:
        link = path / "input" / file.name
        if not link.exists():
            os.link(file, link)
    done = subprocess.run(
        [sys.executable, "-c", _CLICKHOUSE, str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise AssertionError(f"ClickHouse: {done.stderr[-2000:]}")
    seconds, rows = json.loads(done.stdout.splitlines()[-1])
    shutil.rmtree(path / "input")
    return float(seconds), int(rows)


def size_of(path: Path) -> int:
    """Bytes of the data files that were written."""
    return sum(file.stat().st_size for file in [path, *path.rglob("*.parquet")] if file.is_file())


def rows_in(path: Path) -> int:
    """How many rows the Parquet files hold."""
    pattern = str(path / "*.parquet") if path.is_dir() else str(path)
    with duckdb.connect() as connection:
        found = connection.execute("SELECT count(*) FROM read_parquet(?)", [pattern]).fetchall()
    return int(found[0][0])
