"""Compaction as tasks of Spark."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from seglake.errors import CorruptData
from seglake.maintain.compaction.compact import compact
from tests.judges.latest import live_rows
from tests.makers.lakes import Event, LakeMaker, Shape, open_catalog
from tests.makers.strategies import T

NOW = T + 10**6


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    maker = LakeMaker(tmp_path / "lake", partitions=2, settings={"cleanup.policy": "compact"})
    for run in range(4):
        rows = [Event(T + i, b"%d" % (i % (7 + run)), b"%d" % i) for i in range(100)]
        maker.run({0: rows, 1: [*rows[:50], Event(T, b"1", None)]}, Shape("lz4", segment_bytes=900))
    return maker


def test_spark_compacts_as_threads_do(spark: SparkSession, maker: LakeMaker) -> None:
    """Blobs and segments go by way of the lake's storage; nothing but the segments is left."""
    copy = maker.root.with_name("copy")
    shutil.copytree(maker.root, copy)
    seen = list[tuple[int, int]]()
    told = compact(
        str(maker.root), "events", now_ms=NOW, spark=spark, progress=lambda *at: seen.append(at)
    )
    same = compact(str(copy), "events", now_ms=NOW)
    assert told.partitions == same.partitions
    rows = live_rows(maker)
    table = open_catalog(str(copy))
    others = table.segments(table.snapshot(), "events")
    assert [(r.log_crc32c, r.index_crc32c, r.zonemap_crc32c) for r in rows] == [
        (r.log_crc32c, r.index_crc32c, r.zonemap_crc32c) for r in others
    ]
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]
    assert not list(maker.root.glob("attempts/*/blobs/*"))


def test_damage_comes_back_from_a_task(spark: SparkSession, maker: LakeMaker) -> None:
    row = live_rows(maker)[0]
    path = maker.root / row.key("log")
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CorruptData) as found:
        compact(str(maker.root), "events", now_ms=NOW, spark=spark)
    assert found.value.file == row.key("log")
