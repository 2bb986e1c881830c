"""The same events written by others: Spark to Delta, DuckDB to Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIELDS = "ts BIGINT, user STRING"


def spark_lines(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """key, value, time, where the value is the raw line: Spark's text source and `from_json`.

    Spark's JSON source does not hand out the line that it parsed, so the line is read as text.
    """
    lines = spark.read.text([str(path) for path in files])
    parsed = lines.select(f.col("value"), f.from_json("value", FIELDS).alias("fields"))
    return parsed.select(
        f.col("fields.user").alias("key"), "value", f.col("fields.ts").alias("time")
    )


def spark_delta_line(
    spark: SparkSession, files: Sequence[Path], path: Path, partitions: int
) -> None:
    """Raw lines to Delta, in hash partitions sorted by time."""
    _write_sorted(spark_lines(spark, files).repartition(partitions, "key"), path)


def spark_delta_by_time(
    spark: SparkSession, files: Sequence[Path], path: Path, ranges: int
) -> None:
    """Raw lines to Delta, each file a range of time and sorted by it."""
    _write_sorted(spark_lines(spark, files).repartitionByRange(ranges, "time"), path)


def _write_sorted(frame: DataFrame, path: Path) -> None:
    ordered = frame.sortWithinPartitions("time")
    ordered.write.format("delta").option("compression", "zstd").save(str(path))


def duckdb_parquet(files: Sequence[Path], path: Path, *, row_group_size: int = 122_880) -> None:
    """key, value, time to one Parquet file sorted by time; the value is the raw line."""
    lines = "SELECT json->>'$.user' AS key, json::VARCHAR AS value, (json->>'$.ts')::BIGINT AS time"
    source = "read_json_objects(?, format = 'newline_delimited')"
    options = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {row_group_size}"
    with duckdb.connect() as connection:
        query = f"COPY ({lines} FROM {source} ORDER BY time) TO '{path}' ({options})"
        connection.execute(query, [[str(file) for file in files]])


def rows_in(path: Path) -> int:
    """How many rows the Parquet files hold."""
    pattern = str(path / "*.parquet") if path.is_dir() else str(path)
    with duckdb.connect() as connection:
        found = connection.execute("SELECT count(*) FROM read_parquet(?)", [pattern]).fetchall()
    return int(found[0][0])
