"""`spark.readStream.format("seglake")` with a checkpoint, kills and restarts, against the log."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from seglake.format.index import RECORD_KEYS, IndexPolicy
from tests.makers.lakes import Event, LakeMaker, Shape, T

pytestmark = pytest.mark.skipif(pyspark.__version__ < "4.2", reason="a stream needs Spark 4.2")
Row = tuple[int, int, bytes | None]


class Sink:
    """What a query wrote, by micro-batch: one that runs again replaces itself."""

    def __init__(self, spark: SparkSession, maker: LakeMaker, folder: Path) -> None:
        self.spark, self.maker, self.checkpoint = spark, maker, folder / "checkpoint"
        self.batches: dict[int, list[Row]] = {}

    def start(self, trigger: dict[str, Any], **options: str) -> StreamingQuery:
        source = self.spark.readStream.format("seglake").option("subscribe", "events")
        frame = source.options(**options).load(str(self.maker.root))
        writer = frame.select("partition", "offset", "value").writeStream.foreachBatch(self._save)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**trigger).start()

    def run(self, **options: str) -> StreamingQuery:
        """A query that ends when it has read what is there."""
        query = self.start({"availableNow": True}, **options)
        query.awaitTermination()
        return query

    @contextmanager
    def running(self, **options: str) -> Iterator[StreamingQuery]:
        query = self.start({"processingTime": "100 milliseconds"}, **options)
        try:
            yield query
        finally:
            query.stop()

    def _save(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = [
            (row.partition, row.offset, bytes(row.value)) for row in frame.collect()
        ]

    def forget_last(self) -> None:
        """As if the query had been killed in its last micro-batch, before anything was written."""
        number = max(self.batches)
        (self.checkpoint / "commits" / str(number)).unlink()
        (self.checkpoint / "commits" / f".{number}.crc").unlink(missing_ok=True)
        del self.batches[number]

    def offset(self, number: int) -> Any:
        """What the checkpoint holds as the end of a micro-batch."""
        lines = (self.checkpoint / "offsets" / str(number)).read_text().splitlines()
        found = json.loads(lines[-1])
        assert found.pop("@version") > 0
        assert (found.pop("@start", None) is not None) == (number == 0)
        return found

    @property
    def rows(self) -> list[Row]:
        return sorted(row for rows in self.batches.values() for row in rows)


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    maker = LakeMaker(tmp_path / "lake", partitions=2)
    commit(maker, 60, 20)
    return maker


def commit(maker: LakeMaker, zero: int, one: int) -> None:
    rows = [Event(T + i, None, b"%d" % i) for i in range(max(zero, one))]
    maker.run({0: rows[:zero], 1: rows[:one]}, Shape(segment_bytes=600))


def written(maker: LakeMaker) -> list[Row]:
    return [(r.partition, r.offset, r.value) for r in maker.records()]


@pytest.fixture
def sink(spark: SparkSession, maker: LakeMaker, tmp_path: Path) -> Sink:
    return Sink(spark, maker, tmp_path)


def test_available_now_in_limited_batches_and_on_from_the_checkpoint(
    sink: Sink, maker: LakeMaker
) -> None:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
    sink.run(**options)
    assert [len(rows) for rows in sink.batches.values()] == [40, 40]
    assert sink.offset(0) == {"events": {"0": 30, "1": 10}}
    assert sink.rows == written(maker)
    sink.forget_last()
    commit(maker, 3, 5)
    sink.run(**options)
    assert [len(rows) for rows in sink.batches.values()] == [40, 40, 8]
    assert sink.offset(2) == {"events": {"0": 63, "1": 25}}
    assert sink.rows == written(maker)


@pytest.mark.rest
def test_a_query_from_the_end_that_is_killed_in_its_first_batch(
    sink: Sink, maker: LakeMaker
) -> None:
    before = written(maker)
    sink.run()
    assert sink.rows == []
    sink.forget_last()
    commit(maker, 7, 0)
    sink.run()
    assert sink.rows == sorted(set(written(maker)) - set(before))
    sink.forget_last()
    sink.run()
    assert sink.rows == sorted(set(written(maker)) - set(before))


@pytest.mark.rest
def test_a_micro_batch_that_is_read_again_is_the_same_whatever_was_removed(
    sink: Sink, maker: LakeMaker
) -> None:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
    sink.run(**options)
    before = written(maker)
    sink.forget_last()
    maker.delete_records(0, 45)
    sink.run(**options)
    assert sink.rows == before


@pytest.mark.rest
def test_a_commit_is_the_next_micro_batch_of_a_running_query(sink: Sink, maker: LakeMaker) -> None:
    with sink.running(startingOffsets="earliest") as query:
        query.processAllAvailable()
        assert sink.rows == written(maker)
        commit(maker, 4, 4)
        query.processAllAvailable()
        assert sink.rows == written(maker)
        progress = query.lastProgress
        assert progress is not None
        assert json.loads(progress.sources[0].latestOffset) == {"events": {"0": 64, "1": 24}}
    commit(maker, 2, 0)
    with sink.running(startingOffsets="earliest") as query:
        query.processAllAvailable()
    assert sink.rows == written(maker)


@pytest.mark.rest
def test_what_was_deleted_before_it_was_read(sink: Sink, maker: LakeMaker) -> None:
    sink.run(startingOffsets='{"events":{"0":10,"1":20}}', maxOffsetsPerTrigger="100")
    commit(maker, 10, 0)
    maker.delete_records(0, 65)
    with pytest.raises(StreamingQueryException) as caught:
        sink.run()
    assert "requested, but its log has 65 to 70. To skip missing records, set" in str(caught.value)
    sink.run(failOnDataLoss="false")
    assert [row[1] for row in sink.rows] == [*range(10, 60), *range(65, 70)]


@pytest.mark.rest
def test_a_micro_batch_may_find_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """One that plans no task at all, too; and the query goes on."""
    maker = LakeMaker(tmp_path / "lake")
    shape = Shape("none", 100, policy=IndexPolicy(0, subjects=(RECORD_KEYS,)))
    sink = Sink(spark, maker, tmp_path)
    for keys in ([b"b"], [b"a", b"b"], [b"b"], [b"a"]):
        maker.run({0: [Event(T + n, keys[n % len(keys)], b"%d" % n) for n in range(20)]}, shape)
        sink.run(key="a", startingOffsets="earliest")
    right = [(r.partition, r.offset, r.value) for r in maker.records() if r.key == b"a"]
    assert sink.rows == right
    assert [len(rows) for _, rows in sorted(sink.batches.items())] == [0, 10, 0, 20]
