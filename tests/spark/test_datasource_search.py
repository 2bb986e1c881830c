"""Searches, and the events of many keys, through Spark, with a key index and without one."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from seglake.datasource import register
from seglake.format.index import IndexPolicy
from seglake.format.partitioner import partition_of
from seglake.format.records import Spans
from tests.makers.lakes import Event, LakeMaker, Shape, Written

T = 1795136400000  # 2026-11-20T01:00:00Z
KEYS = [None, b"", b"ann", b"bob", b"\xff\x00", *(b"u%d" % n for n in range(45))]


@pytest.fixture(scope="module", params=["index", "no index"])
def maker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LakeMaker:
    """3000 events of 50 keys, one of them null and one empty; values are JSON, or none."""
    made = LakeMaker(tmp_path_factory.mktemp("search") / "lake", partitions=3)
    policy = IndexPolicy("bytes", 400, keys=request.param == "index")
    rows = [
        Event(T + n, KEYS[n * 7919 % 50], b'{"n":%d}' % (n // 50 % 10) if n % 11 else None)
        for n in range(3000)
    ]
    homes = partition_of(Spans.of([row.key for row in rows]), 3).tolist()
    pairs = list(zip(rows, homes, strict=True))
    placed = {p: [row for row, home in pairs if home == p] for p in range(3)}
    made.run(placed, Shape("zstd", 300, 20_000, policy))
    return made


def load(spark: SparkSession, maker: LakeMaker, **options: str) -> DataFrame:
    register(spark)
    return spark.read.format("seglake").options(subscribe="events", **options).load(str(maker.root))


def offsets(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted(
        (row.partition, row.offset) for row in frame.select("partition", "offset").collect()
    )


def has(record: Written, *numbers: int) -> bool:
    return record.value is not None and json.loads(record.value)["n"] in numbers


def test_a_key_and_conditions(spark: SparkSession, maker: LakeMaker) -> None:
    ann = [record for record in maker.records() if record.key == b"ann"]
    assert offsets(load(spark, maker, key="ann")) == [record[:2] for record in ann]
    some = load(spark, maker, key="ann", where='{"n":[3,"4"]}', columns="partition,offset")
    assert offsets(some) == [record[:2] for record in ann if has(record, 3, 4)]
    assert len(ann) > some.count() > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": ""}, "UsageError: option key: a key is empty; base64: alone names the empty key"),
        ({"where": "n=3"}, 'UsageError: option where is JSON such as {"status"'),
    ],
)
def test_wrong_options_are_one_sentence(
    spark: SparkSession, maker: LakeMaker, options: dict[str, str], words: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        load(spark, maker, **options)
    assert words in str(caught.value)
