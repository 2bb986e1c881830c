"""`seglake replay` into a real broker: every record once, whatever is killed in between."""

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

import seglake
from seglake.errors import ConfigError, StoreError, UsageError
from seglake.read.log import Log
from seglake.replay.run import Tempo, replay_window
from seglake.replay.target import NAME_HEADER, OFFSET_HEADER, ReplaySearch, Target
from tests.harness.lake_server import until
from tests.harness.ports import free_ports
from tests.harness.tiers import rest_but
from tests.judges.kafka_broker import Broker
from tests.judges.oracle import as_written
from tests.makers.lakes import Event, LakeMaker, Shape

T = 1_750_000_000_000
TOPIC = "replayed"
COUNT = 6_000
START, END = T + 100, T + 10 * COUNT - 500  # neither bound is one of the log's
WINDOW = ["--start", str(START), "--end", str(END)]


class Sent(NamedTuple):
    """A record as it was archived."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def events(chance: random.Random, count: int) -> list[Event]:
    """Late ones, gaps, null and empty keys and values, headers."""
    return [
        Event(
            T + 10 * at - chance.choice((0, 0, 0, 900)), chance.choice((None, b"", b"key")),
            chance.choice((None, b"", b"value %d" % at)),
            (("h", b"1"), ("größe", None), ("h", b"")) if at % 7 == 0 else (),
            gap=3 if at % 50 == 9 else 0,
        )
        for at in range(count)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three partitions; the last one is small, and there is a fourth without a record."""
    root, chance = tmp_path_factory.mktemp("lake"), random.Random(7)
    maker = LakeMaker(root, TOPIC, partitions=4)
    rows = {p: events(chance, COUNT if p < 2 else 40) for p in range(3)}
    maker.run(rows, Shape("zstd", batch_bytes=3000, segment_bytes=40_000))
    return root


@pytest.fixture(scope="module")
def log(lake: Path) -> Log:
    return seglake.open(str(lake)).topic(TOPIC)


def archived(log: Log, partition: int) -> list[Sent]:
    """What the window holds, as `read_range` says."""
    table = log.read_range(START, END, partitions=[partition]).read_all()
    rows = as_written(table)
    return [Sent(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in rows]


def arrived(broker: Broker, topic: str, partitions: Collection[int]) -> dict[int, list[Sent]]:
    """What a consumer that reads committed records gets, by partition."""
    settings = {
        "bootstrap.servers": broker.address, "group.id": "judge", "enable.partition.eof": True,
        "isolation.level": "read_committed", "fetch.wait.max.ms": 20,
    }  # fmt: skip
    consumer, left = Consumer(settings), set(partitions)
    found: dict[int, list[Sent]] = {partition: [] for partition in partitions}
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    deadline = time.monotonic() + 300
    while left:
        assert time.monotonic() < deadline
        for message in consumer.consume(1000, timeout=0.05):
            if message.error() is not None:
                left.discard(message.partition() or 0)
                continue
            headers: Any = message.headers()
            assert [name for name, _ in headers[-2:]] == [NAME_HEADER, OFFSET_HEADER]
            found[message.partition() or 0].append(
                Sent(
                    int(headers[-1][1]), message.timestamp()[1], message.key(), message.value(),
                    tuple(headers[:-2]),
                )
            )  # fmt: skip
    consumer.close()
    return found


def assert_whole(log: Log, broker: Broker, topic: str) -> None:
    found = arrived(broker, topic, log.partitions())
    assert found == {partition: archived(log, partition) for partition in log.partitions()}


def command(lake: Path, broker: Broker, *more: object) -> list[str]:
    words = [sys.executable, "-m", "seglake", "replay", lake, TOPIC, "--to", broker.address]
    return [str(word) for word in [*words, *WINDOW, *more]]


def test_a_window_arrives_whole_and_a_second_call_sends_nothing(
    log: Log, lake: Path, broker: Broker
) -> None:
    done = subprocess.run(command(lake, broker, "--json"), check=True, capture_output=True)
    report = json.loads(done.stdout)
    wanted = {p: archived(log, p) for p in log.partitions()}
    assert report["created"]
    assert report["records"] == sum(map(len, wanted.values()))
    assert {row["partition"]: row["records"] for row in report["partitions"]} == {
        p: len(records) for p, records in wanted.items() if records
    }
    assert_whole(log, broker, TOPIC)
    again = replay_window(log, START, END, Target(broker.address, TOPIC, {}))
    assert again.records == 0
    assert again.resumed_after == {p: found[-1].offset for p, found in wanted.items() if found}
    assert_whole(log, broker, TOPIC)


@pytest.mark.parametrize("kills", rest_but([1, 3], 1))
@pytest.mark.long
def test_killed_at_any_moment_and_resumed(log: Log, lake: Path, broker: Broker, kills: int) -> None:
    """SIGKILL, again and again; the last call ends the work."""
    chance, topic = random.Random(3), f"killed-{kills}"
    more = ["--topic", topic, "--speed", 5, "--json"]
    for _ in range(kills):
        before = ended(broker, topic)
        with subprocess.Popen(command(lake, broker, *more), stdout=subprocess.PIPE) as process:
            until(partial(grown, broker, topic, before + 50))
            time.sleep(chance.random() * 0.4)
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
    done = subprocess.run(
        command(lake, broker, "--topic", topic, "--json"), check=True, stdout=subprocess.PIPE
    )
    report = json.loads(done.stdout)
    total = sum(len(archived(log, p)) for p in log.partitions())
    assert 0 < report["records"] < total  # some had arrived before, some were left
    assert_whole(log, broker, topic)


def grown(broker: Broker, topic: str, than: int) -> bool:
    return ended(broker, topic) > than


def ended(broker: Broker, topic: str) -> int:
    """The end offsets of all partitions together; what is not committed counts, too."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "judge"})
    try:
        if topic not in consumer.list_topics(timeout=10).topics:
            return 0
        count = len(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        found = [consumer.get_watermark_offsets(TopicPartition(topic, p), 10) for p in range(count)]
        return sum(marks[1] for marks in found if marks)
    except KafkaException:  # a topic that was made just now
        return 0
    finally:
        consumer.close()


@pytest.mark.rest
def test_another_name_sends_everything_again(log: Log, broker: Broker) -> None:
    """Two replays in one topic do not take each other's records for their own."""
    target = Target(broker.address, "twice", {})
    first = replay_window(log, START, END, target, name="first")
    middle = (START + END) // 2
    second = replay_window(log, START, middle, target, name="second")
    assert second.resumed_after == {}
    assert 0 < second.records < first.records
    assert replay_window(log, START, END, target, name="first").records == 0
    assert replay_window(log, START, middle, target, name="second").records == 0


@pytest.mark.rest
def test_the_speed_is_that_of_event_time(log: Log, broker: Broker) -> None:
    """The window's 59 s take a thirtieth of them, and the records of all partitions mix."""
    target = Target(broker.address, "fast", {})
    report = replay_window(log, START, END, target, tempo=Tempo(30.0))
    assert (END - START - 2000) / 30_000 <= report.seconds < 60
    assert_whole(log, broker, "fast")


@pytest.mark.rest
def test_a_second_one_of_the_same_name_takes_over(log: Log, lake: Path, broker: Broker) -> None:
    more = ["--topic", "fenced", "--speed", 5]
    with subprocess.Popen(command(lake, broker, *more), stderr=subprocess.PIPE) as first:
        until(partial(grown, broker, "fenced", 100))
        replay_window(log, START, END, Target(broker.address, "fenced", {}))
        _, told = first.communicate(timeout=300)
    assert first.returncode == 1
    assert b"took over. This replay ends" in told
    assert_whole(log, broker, "fenced")


def test_topics_that_cannot_keep_it_are_refused(log: Log, broker: Broker) -> None:
    broker.create_topic("narrow", 2, {})
    with pytest.raises(UsageError, match="has 2 partitions, but 4 are replayed"):
        replay_window(log, START, END, Target(broker.address, "narrow", {}))
    broker.create_topic("restamped", 4, {"message.timestamp.type": "LogAppendTime"})
    with pytest.raises(UsageError, match="would lose the timestamps"):
        replay_window(log, START, END, Target(broker.address, "restamped", {}))
    broker.create_topic("small", 4, {"max.message.bytes": "1100"})
    with pytest.raises(UsageError, match=r"Raise its max\.message\.bytes"):
        replay_window(_with(log, b"x" * 5000), START, END, Target(broker.address, "small", {}))
    with pytest.raises(UsageError, match="offset 0 of partition 0 has a header whose name"):
        replay_window(_with(log, b"", "a\0b"), START, END, Target(broker.address, "named", {}))
    assert ended(broker, "narrow") == ended(broker, "restamped") == 0
    assert arrived(broker, "small", [0]) == {0: []}


def _with(log: Log, value: bytes, header: str = "h") -> Log:
    """A log of one record."""
    root = Path(log._origin.store.uri.removeprefix("file://")).parent / f"{len(value)} bytes"
    LakeMaker(root, partitions=1).run({0: [Event(START, b"k", value, ((header, b""),))]})
    return seglake.open(str(root)).topic("events")


@pytest.mark.rest
@pytest.mark.long
def test_a_transaction_of_somebody_else_is_waited_for(log: Log, broker: Broker) -> None:
    """Behind an open one nothing can be read back, so nothing is sent."""
    replay_window(log, START, END, Target(broker.address, "shared", {}))
    other = Producer({"bootstrap.servers": broker.address, "transactional.id": "somebody"})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce("shared", b"theirs", partition=1)
    other.flush(10)
    assert "an open transaction of another producer" in refused(log, broker, "shared")
    ends = threading.Timer(1, other.commit_transaction, [30])
    ends.start()
    assert replay_window(log, START, END, Target(broker.address, "shared", {})).records == 0
    ends.join()


def refused(log: Log, broker: Broker, topic: str) -> str:
    """Why; a busy machine, on which nobody answers in time, is given longer."""
    for patience_s in (2, 10, 30):
        with pytest.raises(StoreError) as told:
            replay_window(log, START, END, Target(broker.address, topic, {}, patience_s=patience_s))
        if "not answered" not in str(told.value) and "timed out" not in str(told.value).lower():
            break
    return str(told.value)


@contextmanager
def busy(broker: Broker, topic: str) -> Iterator[None]:
    """Somebody writes plain records, somebody else one transaction after the other."""
    plain = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
    other = Producer({"bootstrap.servers": broker.address, "transactional.id": "busy"})
    other.init_transactions(30)
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            other.begin_transaction()
            for partition in range(4):
                plain.produce(topic, b"plain", partition=partition)
                other.produce(topic, b"theirs", partition=partition)
            plain.poll(0.01)
            other.commit_transaction(30)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()
        plain.flush(30)


@pytest.mark.rest
def test_a_busy_topic_is_no_obstacle(log: Log, broker: Broker) -> None:
    target = Target(broker.address, "busy", {})
    replay_window(log, START, END, target)
    with busy(broker, "busy"):
        assert [replay_window(log, START, END, target).records for _ in range(3)] == [0, 0, 0]


@pytest.mark.rest
def test_records_that_the_broker_deletes_meanwhile_end_no_search(
    log: Log, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log begins elsewhere when the search begins than when it was planned."""
    target = Target(broker.address, "shrinking", {})
    replay_window(log, START, END, target)
    earliest: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    admin, ask = AdminClient({"bootstrap.servers": broker.address}), ReplaySearch._offsets

    def asked(self: ReplaySearch, partitions: Any, spec: Any, level: Any) -> dict[int, int]:
        found = ask(self, partitions, spec, level)
        if isinstance(spec, type(earliest)):
            gone = [TopicPartition("shrinking", 2, found[2] + 10)]
            for future in admin.delete_records(gone).values():
                future.result(30)
        return found

    monkeypatch.setattr(ReplaySearch, "_offsets", asked)
    assert replay_window(log, START, END, target).records == 0


@pytest.mark.rest
def test_what_is_wrong_is_said(log: Log, lake: Path, broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Start it after 1970"):
        replay_window(log, 0, END, Target(broker.address, "never", {}))
    with pytest.raises(ConfigError, match=r"sets transactional\.id"):
        Target(broker.address, "never", {"transactional.id": "mine"})
    with pytest.raises(ConfigError, match="No such configuration property"):
        replay_window(log, START, END, Target(broker.address, "never", {"no.such": "1"}))
    (nowhere,) = free_ports(1)
    with pytest.raises(StoreError, match=f"127.0.0.1:{nowhere}"):
        replay_window(log, START, END, Target(f"127.0.0.1:{nowhere}", "never", {}, patience_s=1))
    wrong = tmp_path / "client.properties"
    wrong.write_text("# of librdkafka\nsecurity.protocol\n")
    refused = command(lake, broker, "--kafka-file", wrong, "--topic", "never")
    done = subprocess.run(refused, check=False, capture_output=True)
    assert done.returncode == 2
    assert b"is not of the form KEY=VALUE" in done.stderr
