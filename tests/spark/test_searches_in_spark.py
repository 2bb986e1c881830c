"""Searches, and the events of many keys, through Spark, with a key index and without one."""

import json

import pytest
from pyspark.sql import DataFrame, SparkSession

import seglake
from seglake.datasource import events_with_keys, register
from seglake.errors import UsageError
from seglake.format.index import RECORD_KEYS, IndexPolicy
from seglake.format.partitioner import partition_of
from seglake.format.records import Spans
from tests.harness.tiers import rest_but
from tests.makers.lakes import Event, LakeMaker, Shape, Written

T = 1795136400000  # 2026-11-20T01:00:00Z
KEYS = [None, b"", b"ann", b"bob", b"\xff\x00", *(b"u%d" % n for n in range(45))]


@pytest.fixture(scope="module", params=rest_but(["index", "no index"], "index"))
def maker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LakeMaker:
    """3000 events of 50 keys, one of them null and one empty; values are JSON, or none."""
    made = LakeMaker(tmp_path_factory.mktemp("search") / "lake", partitions=3)
    subjects = (RECORD_KEYS,) if request.param == "index" else ()
    policy = IndexPolicy(400, subjects)
    rows = [
        Event(T + n, KEYS[n * 7919 % 50], b'{"n":%d}' % (n // 50 % 10) if n % 11 else None)
        for n in range(3000)
    ]
    homes = partition_of(Spans.from_list([row.key for row in rows]), 3).tolist()
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


@pytest.mark.rest
def test_the_events_of_many_keys(spark: SparkSession, maker: LakeMaker) -> None:
    """As a list and as DataFrames of text and of bytes; among them a null and absent ones."""
    register(spark)
    log = seglake.open(str(maker.root)).topic("events")
    asked = [b"", b"\xff\x00", b"bob", b"u7", b"u7", *(b"absent %d" % n for n in range(9_000))]
    right = [record[:2] for record in maker.records() if record.key in asked]
    columns = ["offset", "partition"]
    found = events_with_keys(spark, log, asked, columns=columns)
    assert found.columns == columns
    assert offsets(found) == right
    as_bytes = spark.createDataFrame([(key,) for key in [None, *asked[:5]]], "k binary")
    assert offsets(events_with_keys(spark, log, as_bytes)) == right
    as_text = spark.createDataFrame([("u7",), (None,), ("",)], "k string")
    near = events_with_keys(spark, log, as_text, start=T + 500, end=T + 2500)
    within = [r[:2] for r in maker.records() if T + 500 <= r.timestamp < T + 2500
              and r.key in (b"u7", b"")]  # fmt: skip
    assert offsets(near) == within
    assert events_with_keys(spark, log, as_text.limit(0)).count() == 0


def test_wrong_keys_are_refused_at_once(spark: SparkSession, maker: LakeMaker) -> None:
    log = seglake.open(str(maker.root)).topic("events")
    two = spark.range(3).selectExpr("id", "cast(id AS string) AS key")
    many = spark.range(10_001).selectExpr("cast(id AS string) AS key")
    listed = [str(n) for n in range(10_001)]
    assert events_with_keys(spark, log, many.limit(10_000)).columns[0] == "key"
    for keys, words in (
        (two, "one column of text or binary, not struct<id.*Select the column"),
        (two.select("id"), "one column of text or binary"),
        (many, "more than 10,000 keys"), (listed, "more than 10,000 keys"),
        ("ann", "Put a single key into a list"), ([7], "a key must be bytes or text, not 7"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=words):
            events_with_keys(spark, log, keys)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="ends before it starts"):
        events_with_keys(spark, log, ["ann"], start=T, end=T - 1)
    with pytest.raises(UsageError, match="unknown column 'keys'"):
        events_with_keys(spark, log, ["ann"], columns=["keys"])
