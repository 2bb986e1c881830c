"""A DataFrame as input: the log is a function of its rows, not of how Spark holds them."""

import datetime as dt
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody names it

import seglake
from seglake.config import Pipeline
from seglake.errors import ConfigError, InputError
from seglake.write.map.frame import short_batches
from seglake.write.map.unit import map_sizes_for_frame
from tests.harness.tiers import rest_but
from tests.makers.murmur2 import murmur2
from tests.makers.raw_events import T, quarantined, read_lake, read_raw
from tests.spark.test_ingest_files import TASK, TOPIC, bytes_of

ROWS = 600
PARTITIONS = 3


def rows_of() -> list[tuple[int, int | None, str | None, str]]:
    """(id, time, key, text); some have no time, many times are equal."""
    return [
        (at, None if at % 50 == 7 else T + (at * 37) % 200, None if at % 5 == 0 else f"k{at % 7}",
         f"text {at}")
        for at in range(ROWS)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(rows_of(), "id long, ts long, k string, text string")


def settings_of(root: Path, order: str = "time", **changes: Any) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "frame", "root": str(root), "order": order, "task": TASK,
            "max_quarantine_ratio": 0.5,
            "input": {"format": "dataframe", "order_column": "id"},
            "timestamp": {"field": "ts", "format": "epoch_ms"},
            "key": {"fields": ["k"]},
            "value": {"from": "field", "field": "text"},
            "topic": {"name": "events", "partitions": PARTITIONS, **TOPIC},
            **changes,
        }
    )  # fmt: skip


def expected(order: str) -> dict[int, list[tuple[int, bytes | None, bytes]]]:
    logs: dict[int, list[tuple[int, bytes | None, bytes]]] = {p: [] for p in range(PARTITIONS)}
    good = [row for row in rows_of() if row[1] is not None]
    for number, time, key, text in sorted(
        good, key=lambda row: ((row[1] or 0) * (order == "time"), row[0])
    ):
        partition = (number if key is None else murmur2(key.encode())) % PARTITIONS
        logs[partition].append((time or 0, None if key is None else key.encode(), text.encode()))
    return logs


@pytest.mark.parametrize("order", rest_but(["time", "arrival"], "arrival"))
def test_the_log_is_a_function_of_the_rows(frame: DataFrame, tmp_path: Path, order: str) -> None:
    made = []
    for number, shaped in enumerate(
        (frame.coalesce(1), frame.repartition(5, "text"), frame.orderBy(F.rand(3)))
    ):
        task = {**TASK, "blob_bytes": 2**20 if number else 100}  # more than a chunk, or less
        settings = settings_of(tmp_path / str(number), order, task=task)
        assert bool(map_sizes_for_frame(settings).gather_bytes) is bool(number)
        report = seglake.ingest(shaped, settings, run_id="1")
        assert (report.records, report.quarantined) == (588, 12)
        made.append(bytes_of(settings.root))
        found = read_lake(settings.root)
        assert {p: [(r.timestamp, r.key, r.value) for r in log] for p, log in found.items()} == (
            expected(order)
        )
        assert found == read_raw(settings.root)
        rejected = [(each.path, each.number) for each in quarantined(settings.root)]
        assert rejected == [("DataFrame", at) for at in range(7, ROWS, 50)]
        again = seglake.ingest(shaped, settings, run_id="1")
        assert again.status == "already done"
    assert made[0] == made[1] == made[2]


def test_rows_outside_the_limits_of_event_time(frame: DataFrame, tmp_path: Path) -> None:
    limits = {"message.timestamp.before.max.ms": 150, "message.timestamp.after.max.ms": 20}
    topic = {"name": "events", "partitions": PARTITIONS, **TOPIC, **limits}
    settings = settings_of(tmp_path, topic=topic)
    report = seglake.ingest(frame, settings, run_id="1", interval=(T, T + 160))
    times = [each for _, each, _, _ in rows_of() if each is not None]
    good = sorted(each for each in times if T + 10 <= each <= T + 180)
    stored = (record.timestamp for log in read_lake(tmp_path).values() for record in log)
    assert sorted(stored) == good
    assert report.quarantined == ROWS - len(good)


def test_seconds_as_milliseconds_stop_the_run(spark: SparkSession, tmp_path: Path) -> None:
    """If all rows have them, in whichever task; one later time is enough."""
    rows = [(at, T // 1000, "k", "text") for at in range(8)]
    schema = "id long, ts long, k string, text string"
    seconds = spark.createDataFrame(rows, schema).repartition(3)
    with pytest.raises(InputError, match=r"DataFrame: all times are in January 1970.*'epoch_s'"):
        seglake.ingest(seconds, settings_of(tmp_path))
    assert not seglake.open(str(tmp_path)).topics()
    mixed = spark.createDataFrame([*rows, (8, T, "k", "text")], schema).repartition(3)
    assert seglake.ingest(mixed, settings_of(tmp_path)).records == 9


@pytest.mark.rest
@pytest.mark.parametrize("order", ["time", "arrival"])
def test_an_order_column_that_is_not_unique(frame: DataFrame, tmp_path: Path, order: str) -> None:
    twice = frame.union(frame.where("id = 9")).repartition(3)
    with pytest.raises(InputError, match="'id' has 9 twice"):
        seglake.ingest(twice, settings_of(tmp_path, order))
    assert not seglake.open(str(tmp_path)).topics()


@pytest.mark.rest
def test_an_order_column_that_is_none(frame: DataFrame, tmp_path: Path) -> None:
    def ingest(column: str) -> None:
        given = {"format": "dataframe", "order_column": column}
        seglake.ingest(frame.coalesce(1), settings_of(tmp_path, input=given))

    with pytest.raises(ConfigError, match="names 'nothing', but the columns are id, ts, k, text"):
        ingest("nothing")
    with pytest.raises(InputError, match=r"'text' must have .* has type string"):
        ingest("text")
    with pytest.raises(InputError, match=r"'ts' must have .* has type int64 and .* nulls"):
        ingest("ts")
    files = settings_of(tmp_path, input={"format": "jsonl", "paths": ["x"]})
    with pytest.raises(ConfigError, match="dataframe"):
        seglake.ingest(frame, files)


def test_a_column_whose_name_has_a_dot(spark: SparkSession, tmp_path: Path) -> None:
    """As from a spreadsheet; Spark would take "Kunde Nr." for a field of a struct."""
    kind = "id long, ts long, `Kunde Nr.` string, text string"
    frame = spark.createDataFrame([(1, T, "a", "x"), (2, T + 1, "b", "y")], kind)
    settings = settings_of(tmp_path, key={"fields": ["Kunde Nr."]})
    assert seglake.ingest(frame, settings).records == 2
    records = [each for log in read_lake(tmp_path).values() for each in log]
    assert {each.key for each in records} == {b"a", b"b"}
    with pytest.raises(ConfigError, match="the settings are a dict"):
        seglake.ingest(frame, {"input": {}})  # type: ignore[arg-type]


def test_variants_become_json_and_types_outside_arrow_are_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.range(2).selectExpr("id", f"{T} + id ts", """parse_json('{"a":[1,"x"]}') v""")
    settings = settings_of(tmp_path, key={"fields": ["v"]}, value={"columns": ["id", "v"]})
    assert seglake.ingest(rows, settings).records == 2
    stored = sorted(str(each.value) for log in read_lake(tmp_path).values() for each in log)
    assert stored == [f'b\'{{"id":{n},"v":{{"a":[1,"x"]}}}}\'' for n in range(2)]
    for expression in ("array(v)", "struct(v)", "interval '1' month", "make_interval(1)"):
        bad = rows.selectExpr("id", "ts", f"{expression} odd")
        with pytest.raises(InputError, match="column 'odd' of the DataFrame"):
            seglake.ingest(bad, settings_of(tmp_path, key={}, value={"columns": ["odd"]}))
        with pytest.raises(InputError, match="column 'odd' of the DataFrame"):
            seglake.append(bad, tmp_path, "odd", time="ts", run_id="1")


def test_the_order_column_belongs_to_the_settings_of_a_run(
    frame: DataFrame, tmp_path: Path
) -> None:
    few = frame.where("id < 5").withColumn("number", -F.col("id"))
    seglake.ingest(few, settings_of(tmp_path), run_id="1")
    other = settings_of(tmp_path, input={"format": "dataframe", "order_column": "number"})
    with pytest.raises(ConfigError, match="committed with other settings"):
        seglake.ingest(few, other, run_id="1")


KAFKA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)


def kafka_rows() -> list[tuple[Any, ...]]:
    """Rows as Spark's Kafka source has them; offsets have gaps, headers repeat a key."""
    headers = [None, [("a", b"1"), ("a", None)], [("größe", b"")]]
    return [
        (None if at % 5 == 0 else b"k\xff", b"%d" % at, "web", at % 2, at // 2 * 3 + at % 2,
         dt.datetime.fromtimestamp(T // 1000 + at // 7, dt.UTC), at // 50 % 2, headers[at % 3])
        for at in range(300)
    ]  # fmt: skip


def test_batches_with_lists_are_short(spark: SparkSession) -> None:
    """Spark takes time with the square of their length."""

    def lengths(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from (pa.RecordBatch.from_pydict({"n": [len(batch)]}) for batch in batches)

    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    plain = spark.range(3000, numPartitions=1)
    for frame, longest in ((plain, 3000), (plain.withColumn("l", F.array("id")), 1024)):
        with short_batches(frame):
            counted = frame.mapInArrow(lengths, "n bigint").toArrow()
        found: list[Any] = counted.column("n").to_pylist()
        assert (sum(found), max(found)) == (3000, longest)
        assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == before


@pytest.mark.rest
@pytest.mark.long
def test_rows_of_sparks_kafka_source_keep_their_offsets(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = kafka_rows()
    frame = spark.createDataFrame(rows, KAFKA)
    settings = settings_of(
        tmp_path, "arrival", input={"format": "dataframe"},
        timestamp={"field": "timestamp", "type_field": "timestampType"},
        key={"fields": ["key"]}, value={"from": "field", "field": "value"},
        headers={"array_field": "headers"},
        topic={"name": "web", "partitions": 2, "partition_field": "partition",
               "offset_field": "offset", **TOPIC},
    )  # fmt: skip
    first = seglake.ingest(frame.where("offset < 200").repartition(3), settings, run_id="1")
    again = seglake.ingest(frame.orderBy(F.rand(5)), settings, run_id="2")
    assert (again.records, again.skipped_records) == (300 - first.records, first.records)
    read = spark.read.format("seglake").option("subscribe", "web").option("includeHeaders", "true")
    found = read.load(str(tmp_path)).orderBy("partition", "offset").collect()
    wanted = frame.orderBy("partition", "offset").collect()
    assert [tuple(row) for row in found] == [tuple(row) for row in wanted]
    ends = seglake.open(str(tmp_path)).topic("web").end_offsets()
    assert ends == {0: 448, 1: 449}
    later = frame.withColumn("offset", F.lit(600) + F.col("partition")).limit(9)
    with pytest.raises(InputError, match=r"web-[01] has offset 60[01] twice"):
        seglake.ingest(later, settings, run_id="3")
    with pytest.raises(ConfigError, match=r"topic.offset_field names 'offset'"):
        seglake.ingest(frame.drop("offset"), settings, run_id="4")
    headers = F.expr("array(named_struct('k', 'a', 'v', 'b'))")
    with pytest.raises(InputError, match="must be structs of key and value"):
        seglake.ingest(frame.withColumn("headers", headers), settings, run_id="5")


def test_append_takes_a_frame_and_gives_the_records_of_its_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [(T + at, f"k{at % 7}", f"text {at}") for at in range(100)]
    frame = spark.createDataFrame(rows, "ts long, k string, text string")
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    statuses = [
        seglake.append(frame, one, "web", time="ts", key="k", run_id="1").status for _ in range(2)
    ]
    assert statuses == ["committed", "already done"]
    seglake.append(frame.toArrow(), other, "web", time="ts", key="k", run_id="1", spark=spark)
    tables = [
        seglake.open(root).topic("web").read_range(T, T + 1000).read_all() for root in (one, other)
    ]
    assert tables[0] == tables[1]
    assert len(tables[0]) == len(rows)
