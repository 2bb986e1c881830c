"""The archive of live topics, on a real broker, against a `read_committed` consumer.

A producer writes transactions, aborted ones too, and plain records, to a topic with event times and
to one with append times, while the job is run and killed. `make test-live` kills it more often.
"""

from __future__ import annotations

import json
import random
import time
from base64 import b64encode
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import seglake
from seglake.errors import OffsetOutOfRange, SeglakeError
from seglake.maintain.health.verify import verify
from seglake.read.log import Log as LakeLog
from seglake.write.live.archive import TIME_HEADER
from tests.harness.archivist import Archivist
from tests.harness.lake_server import serving
from tests.judges.kafka_broker import Broker
from tests.judges.kafka_jars import spark_kafka_jars
from tests.judges.kafka_judge import Kafka
from tests.judges.kafka_producing import PARTITIONS, TOPICS, Consumed, Producing, producing
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import T, quarantined


class World:
    """A broker with a producer, a lake, and the process that archives."""

    def __init__(self, folder: Path, broker: Broker, producer: Producing) -> None:
        self.folder, self.root, self.address = folder, folder / "lake", broker.address
        self.broker, self.producer = broker, producer
        self.archivist = self.another()

    def another(self) -> Archivist:
        """A new process, which starts its Spark session when it is asked."""
        self.archivist = Archivist(self.folder, self.root, self.address)
        return self.archivist

    def log(self, topic: str) -> LakeLog:
        return seglake.open(str(self.root)).topic(topic)

    def assert_archived(self, topic: str, *, live: str = "", behind: bool = False) -> None:
        """The lake has what a consumer reads; `behind`, up to its own end only."""
        log = self.log(topic)
        for partition in range(PARTITIONS):
            theirs = self.producer.consumed(live or topic, partition)
            end = log.end_offsets()[partition]
            assert end <= theirs.end if behind else end == theirs.end
            known = [record for record in theirs.records if record.offset < end]
            ours = [each for each in records_of(log, partition) if each.offset >= theirs.start]
            assert ours == known
        assert verify(str(self.root), deep=True, topics=[topic]).exit_code == 0

    def assert_committed_offsets_are_good(self, topic: str) -> None:
        """A consumer that goes on in the lake where it was on the broker misses nothing."""
        log = self.log(topic)
        for partition in range(PARTITIONS):
            theirs = self.producer.consumed(topic, partition)
            offsets = [record.offset for record in theirs.records]
            behind = {each + 1 for each in offsets} - {*offsets}  # gaps: markers, aborted records
            chosen = random.Random(5).sample(
                range(log.beginning_offsets()[partition], theirs.end), 40
            )
            for offset in {theirs.end, *sorted(behind)[-20:], *chosen}:
                found = log.read(partition, offset, max_records=1)["offset"].to_pylist()
                at = bisect_left(offsets, offset)
                assert found == offsets[at : at + 1]
            with pytest.raises(OffsetOutOfRange):
                log.read(partition, theirs.end + 1, max_records=1)


def records_of(log: LakeLog, partition: int) -> list[Consumed]:
    start, end = log.beginning_offsets()[partition], log.end_offsets()[partition]
    rows = log.read(partition, start, max_records=10**9).to_pylist() if start < end else []
    return [
        Consumed(
            row["offset"], int(row["timestamp"].timestamp() * 1000 + 0.5), row["timestamp_type"],
            row["key"], row["value"], [(h["key"], h["value"]) for h in row["headers"] or []],
        )
        for row in rows
    ]  # fmt: skip


@pytest.fixture(scope="module")
def world(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    try:
        spark_kafka_jars()
    except SeglakeError as error:
        pytest.skip(f"Spark's Kafka source cannot be fetched: {error}")
    folder = tmp_path_factory.mktemp("live")
    with producing(kafka, folder / "broker", seed=7) as (broker, producer):
        producer.call("produce", 10)
        place = World(folder, broker, producer)
        try:
            yield place
        finally:
            place.archivist.kill()


def killed_again_and_again(world: World, steps: Sequence[str], seed: int) -> None:
    """Run the job with a kill at each of these steps, then to its end, while a producer writes."""
    chance = random.Random(seed)
    world.producer.call("start")
    for step in steps:
        world.archivist.killed_at(step, list(TOPICS), chance.random() / 5)
        world.another()
        if (world.root / "catalog").exists():
            for topic in {row.topic for row in open_catalog(str(world.root)).snapshot().topics()}:
                world.assert_archived(topic, behind=True)
    assert world.archivist.run(list(TOPICS)).code == 0
    for topic in TOPICS:
        world.assert_archived(topic, behind=True)
    world.producer.call("stop")
    done = world.archivist.run(list(TOPICS))
    assert (done.code, [each["error"] for each in done.topics]) == (0, [None, None])
    for topic in TOPICS:
        world.assert_archived(topic)


@pytest.mark.rest
@pytest.mark.long
def test_nothing_is_lost_and_nothing_is_there_twice(world: World) -> None:
    killed_again_and_again(world, ["commit"], seed=1)
    done = world.archivist.run(list(TOPICS))
    assert [each["status"] for each in done.topics] == ["nothing new"] * 2
    found = [
        record for t in TOPICS for p in range(PARTITIONS) for record in records_of(world.log(t), p)
    ]
    assert {record.timestamp_type for record in found} == {0, 1}
    assert any(len({name for name, _ in r.headers}) < len(r.headers) for r in found)
    assert any(value is None for record in found for _, value in record.headers)
    for topic in TOPICS:
        world.assert_committed_offsets_are_good(topic)


def stand(address: str, group: ConsumerGroupTopicPartitions) -> None:
    """Let a group stand somewhere; a broker refuses partitions while it loads their coordinator."""
    admin = AdminClient({"bootstrap.servers": address})
    for _ in range(120):
        (done,) = admin.alter_consumer_group_offsets([group]).values()
        errors = [each.error for each in done.result(60).topic_partitions if each.error]
        if not errors:
            return
        time.sleep(0.5)
    raise AssertionError(errors)


def test_a_group_goes_on_in_the_lake_where_it_stood_on_the_broker(world: World) -> None:
    log_ends = {p: world.producer.consumed("web", p).end for p in range(PARTITIONS)}
    stood = {p: end // 2 for p, end in log_ends.items() if p}
    places = [TopicPartition("web", p, offset) for p, offset in stood.items()]
    stand(world.address, ConsumerGroupTopicPartitions("billing", places))
    archived = world.archivist.run(["web"], "", "--group", "billing", "--group", "typo")
    (report,) = archived.topics
    assert (archived.code, report["error"]) == (0, None)
    asked = {"billing": {str(p): offset for p, offset in stood.items()}, "typo": {}}
    assert report["groups"] == asked
    with serving(world.root) as server:
        consumer = Consumer({"bootstrap.servers": str(server), "group.id": "billing"})
        found = consumer.committed([TopicPartition("web", p) for p in range(PARTITIONS)], 60)
        consumer.close()
    assert {each.partition: each.offset for each in found if each.offset >= 0} == stood


@pytest.mark.rest
def test_an_open_transaction_ends_the_archive(world: World) -> None:
    world.producer.call("open")
    assert world.archivist.run(["web"]).code == 0
    world.assert_archived("web")
    world.producer.call("commit")
    assert world.archivist.run(["web"]).code == 0
    world.assert_archived("web")


@pytest.mark.rest
def test_what_the_broker_deleted_is_a_gap_with_a_name(world: World) -> None:
    before = world.log("web").end_offsets()[0]
    world.producer.call("produce", 8)
    end = world.producer.consumed("web", 0).end
    world.producer.call("deleteRecords", "web", 0, end - 2)
    done = world.archivist.run(["web"])
    assert (done.code, done.topics[0]["gaps"]) == (4, {"0": [before, end - 2]})
    assert f"deleted offsets {before} to {end - 3}" in done.topics[0]["summary"]
    world.assert_archived("web")
    assert world.archivist.run(["web"]).code == 0
    assert world.archivist.run(["web:late"]).code == 0  # an archive that begins late has no gap
    assert world.log("late").beginning_offsets()[0] == end - 2
    world.assert_archived("late", live="web")


@pytest.mark.rest
def test_a_topic_that_is_gone_or_made_again_is_refused(world: World) -> None:
    assert world.archivist.run(["app", "web"]).code == 0
    world.producer.call("deleteTopic", "app")
    version = seglake.open(str(world.root)).version
    done = world.archivist.run(["app", "web"])
    assert (done.code, [each["status"] for each in done.topics]) == (2, ["failed", "nothing new"])
    assert "has no topic 'app'" in done.topics[0]["error"]
    world.producer.call("createTopic", "app", PARTITIONS)
    done = world.archivist.run(["app"])
    assert done.code == 2
    assert "deleted and created again" in done.topics[0]["error"]
    assert seglake.open(str(world.root)).version == version
    assert world.archivist.run(["app:again"]).code == 0


@pytest.mark.rest
def test_a_broker_that_does_not_answer_is_told(world: World) -> None:
    options = "--kafka", "default.api.timeout.ms=2000", "--kafka", "request.timeout.ms=1000"
    done = world.archivist.run(["web"], "127.0.0.1:1", *options)
    assert done.code == 1
    assert "the broker at 127.0.0.1:1 did not answer" in done.topics[0]["error"]
    assert "; check host and port, that the broker runs" in done.topics[0]["error"]


@pytest.mark.rest
@pytest.mark.long
def test_timestamps_that_no_calendar_has(world: World) -> None:
    """Microseconds for milliseconds are archived; nanoseconds are more than Spark can hold."""
    limit = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    world.broker.create_topic("far", 1, limit)
    producer = Producer({"bootstrap.servers": world.address})
    times = [T, T * 1000, (2**63 - 1) // 1000]
    for at in times:
        producer.produce("far", b"v", partition=0, timestamp=at)
    producer.flush(30)
    assert world.archivist.run(["far"]).code == 0
    for at in (T * 10**6, T, 2**63 - 1):
        producer.produce("far", b"v", b"k", 0, timestamp=at, headers=[("h", b"1")])
    producer.flush(30)
    done = world.archivist.run(["far"])
    assert (done.code, seglake.open(str(world.root)).topic("far").end_offsets()) == (2, {0: 3})
    assert "partition 0 of 'far' has a record at offset 3 whose" in done.topics[0]["error"]
    done = world.archivist.run(["far"], "", "--quarantine")
    assert (done.code, done.topics[0]["error"]) == (0, None)
    log = world.log("far")
    found = log.read(0, 0, max_records=10)
    assert found["offset"].to_pylist() == [0, 1, 2, 4]
    assert found["timestamp"].cast(pa.int64()).to_pylist() == [*times, T]
    assert log.end_offsets() == {0: 6}
    left = quarantined(world.root, "far")
    assert [each.number for each in left] == [3, 5]
    assert [json.loads(each.raw)["headers"][-1] for each in left] == [
        {"key": TIME_HEADER, "value": b64encode(b"%d" % time).decode()}
        for time in (T * 10**6, 2**63 - 1)
    ]
