"""librdkafka and kcat read from `seglake serve` what the lake has: each against the records.

The programs of test_matrix.py read whole topics with these and all other clients.
"""

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from seglake.maintain.tagging import tag
from tests.harness.debian import NoPackageError
from tests.harness.kcat import run_kcat
from tests.harness.lake_server import Serving, serving
from tests.makers.lakes import Event, LakeMaker, Written
from tests.makers.served import SPAN_MS, T, rich_lake, time_name, window_of

TOPIC = "events"
WINDOW = (T + 1234, T + 2 * SPAN_MS + 995)
NAMES = [
    TOPIC,
    f"{TOPIC}.v3",
    f"{TOPIC}.{time_name(WINDOW[0])}.{time_name(WINDOW[1])}",
    f"{TOPIC}.third-run",
]
PATIENCE_S = 120
OUT_OF_RANGE = KafkaError.OFFSET_OUT_OF_RANGE
Row = tuple[int, int, int, bytes | None, bytes | None]


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> LakeMaker:
    maker = rich_lake(tmp_path_factory.mktemp("lake"))
    tag(str(maker.root), "third-run", 3)
    return maker


def written(maker: LakeMaker, name: str, partition: int) -> list[Written]:
    """What a topic of NAMES holds."""
    records = maker.records(partition)
    if name in (NAMES[1], NAMES[3]):
        return records[: len(records) * 3 // 5]
    return window_of(records, *WINDOW) if name == NAMES[2] else records


def rows(maker: LakeMaker, name: str) -> list[Row]:
    return [
        (r.partition, r.offset, r.timestamp, r.key, r.value)
        for partition in range(3)
        for r in written(maker, name, partition)
    ]


# librdkafka


def confluent(server: Serving, **more: object) -> Consumer:
    settings = {
        "bootstrap.servers": str(server), "group.id": "judge", "enable.auto.commit": False,
        "enable.partition.eof": True, "check.crcs": True, "auto.offset.reset": "error",
        "fetch.wait.max.ms": 50, "log_level": 0,
    }  # fmt: skip
    return Consumer({**settings, **more})


def consumed(consumer: Consumer, partitions: int) -> list[Any]:
    """Messages until the end of so many partitions."""
    ended, found = set[tuple[str | None, int | None]](), list[Any]()
    deadline = time.monotonic() + PATIENCE_S
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"only {ended} ended; {len(found)} messages"
        for message in consumer.consume(1000, 0.2):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add((message.topic(), message.partition()))
            else:
                raise KafkaException(error)
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


def as_row(message: Any) -> Row:
    _, timestamp = message.timestamp()
    return (message.partition(), message.offset(), timestamp, message.key(), message.value())


@pytest.mark.parametrize("name", NAMES)
def test_confluent_reads_to_the_end(server: Serving, maker: LakeMaker, name: str) -> None:
    consumer = confluent(server)
    consumer.assign([TopicPartition(name, partition, -2) for partition in range(3)])
    found = consumed(consumer, 3)
    consumer.close()
    assert [as_row(message) for message in found] == rows(maker, name)
    headers = [message.headers() or [] for message in found]
    assert headers == [r.headers for p in range(3) for r in written(maker, name, p)]


def test_confluent_seeks_and_looks_up_times(server: Serving, maker: LakeMaker) -> None:
    consumer, records = confluent(server), maker.records(0)
    consumer.assign([TopicPartition(TOPIC, 0, 777)])
    after = [r.offset for r in records if r.offset >= 777]
    assert [message.offset() for message in consumed(consumer, 1)] == after
    consumer.seek(TopicPartition(TOPIC, 0, 1000))
    after = [r.offset for r in records if r.offset >= 1000]
    assert [message.offset() for message in consumed(consumer, 1)] == after
    for asked in range(T - 400, T + 6 * SPAN_MS, 30_011):
        (found,) = consumer.offsets_for_times([TopicPartition(TOPIC, 0, asked)], timeout=60)
        first = next((r.offset for r in records if r.timestamp >= asked), -1)
        assert found.offset == first
    low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=60)
    assert (low, high) == (0, records[-1].offset + 1)
    consumer.close()


def test_confluent_beyond_the_end(server: Serving) -> None:
    consumer = confluent(server)
    consumer.assign([TopicPartition(TOPIC, 0, 10**6)])
    with pytest.raises(KafkaException) as raised:
        consumed(consumer, 1)
    assert raised.value.args[0].code() in (OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)
    consumer.close()


def test_lookups_do_not_wait_for_polls(server: Serving) -> None:
    """librdkafka sends them on the connection of its fetch, which waits at the end of the log."""
    consumer = confluent(server, **{"fetch.wait.max.ms": 20_000})
    consumer.assign([TopicPartition(TOPIC, 2, 0)])
    consumed(consumer, 1)
    started = time.monotonic()
    for _ in range(5):
        consumer.offsets_for_times([TopicPartition(TOPIC, 0, T)], timeout=60)
        consumer.poll(0.01)
    assert time.monotonic() - started < 50  # behind the polls it would be 100
    consumer.close()


def test_confluent_metadata(server: Serving) -> None:
    admin = AdminClient({"bootstrap.servers": str(server), "log_level": 0})
    listed = admin.list_topics(timeout=60)
    assert sorted(listed.topics) == [TOPIC]
    assert sorted(listed.topics[TOPIC].partitions) == [0, 1, 2]
    assert str(listed.cluster_id) == server.topics.cluster_id
    assert listed.controller_id == 1


def test_confluent_producers_are_told(server: Serving) -> None:
    told = list[Any]()
    producer = Producer(
        {"bootstrap.servers": str(server), "message.timeout.ms": 10_000, "log_level": 0}
    )
    producer.produce(TOPIC, b"value", callback=lambda error, _: told.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert [error.code() for error in told] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("listed", [(), (NAMES[2],)])
def test_a_subscription_by_pattern(maker: LakeMaker, listed: tuple[str, ...]) -> None:
    """It has each record once, unless the operator lists another name of the topic."""
    with serving(maker.root, list=listed) as server:
        other, consumer = confluent(server), confluent(server, **{"auto.offset.reset": "earliest"})
        for name in NAMES:  # the server knows all; a client subscribes to all that it knows
            assert other.list_topics(name, PATIENCE_S).topics[name].error is None
        assert {*consumer.list_topics(timeout=PATIENCE_S).topics} == {TOPIC, *listed}
        consumer.subscribe([f"^{TOPIC}.*"])
        found = consumed(consumer, 3 * (1 + len(listed)))
        consumer.close()
    for name in (TOPIC, NAMES[2]):
        wanted = rows(maker, name) if name in (TOPIC, *listed) else []
        assert [as_row(each) for each in found if each.topic() == name] == wanted


def test_new_records_come_by_themselves(server: Serving, maker: LakeMaker) -> None:
    made = LakeMaker(maker.root.with_name("growing"))
    made.run({0: [Event(T)]})
    with serving(made.root) as growing:
        consumer = confluent(growing, **{"fetch.wait.max.ms": 1000})
        consumer.assign([TopicPartition(TOPIC, 0, -2)])
        assert len(consumed(consumer, 1)) == 1
        made.run({0: [Event(T + 1)]})
        assert [message.offset() for message in consumed(consumer, 1)] == [1]
        consumer.close()


@pytest.mark.parametrize("seen", [True, False])  # by the server: that there was no tag
def test_a_consumer_goes_on_when_its_tag_names_a_later_version(tmp_path: Path, seen: bool) -> None:
    made = LakeMaker(tmp_path)
    made.run({0: [Event(T)]})
    tag(str(tmp_path), "newest")
    with serving(tmp_path, refresh_ms=50 if seen else 600_000) as server:
        settings = {"group.id": "tags", "topic.metadata.refresh.interval.ms": 100}
        consumer = confluent(server, **settings)
        consumer.assign([TopicPartition(f"{TOPIC}.newest", 0, -2)])
        assert [message.offset() for message in consumed(consumer, 1)] == [0]
        tag(str(tmp_path), "newest", delete=True)
        time.sleep(0.5 if seen else 0)
        made.run({0: [Event(T + 1)]})
        tag(str(tmp_path), "newest")
        server.refresh()
        found, deadline = list[int | None](), time.monotonic() + PATIENCE_S
        while not found and time.monotonic() < deadline:
            some = consumer.consume(10, 0.2)
            found = [message.offset() for message in some if message.error() is None]
        consumer.close()
    assert found == [1]


# kcat


def kcat(*arguments: str) -> str:
    try:
        return run_kcat(*arguments)
    except NoPackageError as reason:
        pytest.skip(f"kcat cannot judge: {reason}")


def test_kcat_between_times(server: Serving, maker: LakeMaker) -> None:
    printed = kcat(
        "-b", str(server), "-C", "-t", TOPIC, "-p", "1", "-o", f"s@{T + SPAN_MS}",
        "-o", f"e@{T + SPAN_MS + 500}", "-q", "-f", r"%o\n",
    )  # fmt: skip
    records = maker.records(1)
    first = next(r.offset for r in records if r.timestamp >= T + SPAN_MS)
    last = next(r.offset for r in records if r.timestamp >= T + SPAN_MS + 500)
    expected = [r.offset for r in records if first <= r.offset < last]
    assert [int(line) for line in printed.split()] == expected


def test_kcat_logs_in_by_a_password(maker: LakeMaker) -> None:
    """Debian's: its librdkafka does not try where SaslHandshake 0 is not offered."""
    users = maker.root.with_name("users")
    users.write_text("alice:secret\n")
    users.chmod(0o600)
    settings = {"sasl.users": str(users), "sasl.sasl.enabled.mechanisms": ("PLAIN",)}
    login = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=alice"]
    options = [part for each in [*login, "sasl.password=secret"] for part in ("-X", each)]
    with serving(maker.root, settings) as closed:
        printed = kcat(
            "-b", str(closed), *options, "-C", "-t", NAMES[2],
            "-o", "beginning", "-e", "-q", "-f", r"%p %o\n",
        )  # fmt: skip
    assert len(printed.splitlines()) == len(rows(maker, NAMES[2]))
