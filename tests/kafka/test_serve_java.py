"""Kafka's own Java clients read from `seglake serve`; a broker with the same files answers alike.

The differences that are meant are in `same_fetch`, `same_offset` and `test_metadata`.
"""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.consumer import FetchResponse, ListOffsetsRequest, ListOffsetsResponse

from seglake.format.decode import scan
from seglake.serve.settings import Address
from tests.harness.lake_server import Serving, Wire
from tests.harness.tiers import rest_but
from tests.judges.kafka_broker import Broker
from tests.judges.kafka_judge import JavaJudge, Kafka, KafkaError, Record
from tests.judges.kafka_tools import CONSOLE, TOOLS, printed
from tests.makers.fetches import (
    Fetched,
    Wanted,
    fetch,
    fetch_request,
    metadata,
    offset_at,
    topic_id,
)
from tests.makers.lakes import LakeMaker, Written
from tests.makers.served import SPAN_MS, T, time_name, window_of

TOPIC = "events"
REQUESTS = 1500  # of each kind
TIMES = ["earliest", "latest", "max-timestamp"]


class Clients(Broker):
    """Kafka's clients, connected to a server that somebody else runs."""

    def __init__(self, kafka: Kafka, address: Address) -> None:
        JavaJudge.__init__(self, kafka)
        self._port = address.port
        self.call("connect", str(address))

    def close(self) -> None:
        """Close them."""
        self.call("close")


@pytest.fixture(scope="module")
def clients(kafka: Kafka, server: Serving) -> Iterator[Clients]:
    connected = Clients(kafka, server.address)
    yield connected
    connected.close()


def as_kafkas(records: list[Written]) -> list[Record]:
    return [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records]


# the Java consumer and admin client


@pytest.mark.parametrize("partition", [0, 1])
def test_the_consumer_reads_all(clients: Clients, maker: LakeMaker, partition: int) -> None:
    assert clients.consume_all(TOPIC, partition) == as_kafkas(maker.records(partition))


def test_the_consumer_seeks(clients: Clients, maker: LakeMaker) -> None:
    records = as_kafkas(maker.records(0))
    end = records[-1].offset + 1
    for offset in [*range(0, end, 97), end - 1]:
        polled = clients.seek_and_poll(TOPIC, 0, offset)
        expected = [record for record in records if record.offset >= offset]
        assert polled
        assert polled == expected[: len(polled)]
    with pytest.raises(KafkaError) as outside:
        clients.seek_and_poll(TOPIC, 0, end + 5)
    assert outside.value.kind == "OffsetOutOfRangeException"


def test_the_consumer_asks_for_times(clients: Clients, maker: LakeMaker) -> None:
    records = maker.records(0)
    wanted = [*range(T - 400, T + 5 * SPAN_MS, 7001), T + 10 * SPAN_MS]
    found = clients.find_by_timestamp(TOPIC, 0, wanted)
    first = [
        next(((r.timestamp, r.offset) for r in records if r.timestamp >= t), None) for t in wanted
    ]
    assert found == first
    newest = max(records, key=lambda r: (r.timestamp, -r.offset))
    assert clients.max_timestamp(TOPIC, 0) == (newest.timestamp, newest.offset)


def test_a_window_is_a_topic_that_ends(clients: Clients, maker: LakeMaker) -> None:
    for start, end in [(T - 500, T + 1), (T + 1234, T + SPAN_MS + 995), (T, T + 5 * SPAN_MS)]:
        name = f"{TOPIC}.{time_name(start)}.{time_name(end)}"
        for partition in range(2):
            expected = as_kafkas(window_of(maker.records(partition), start, end))
            assert clients.consume_all(name, partition) == expected
    pinned = clients.consume_all(f"{TOPIC}.v{maker.versions[1]}", 0)
    assert pinned == as_kafkas(maker.records(0))[: len(pinned)]
    assert len(pinned) == len(maker.records(0)) * 2 // 5


def test_errors_are_kafkas(clients: Clients) -> None:
    with pytest.raises(KafkaError) as refused:
        clients.create_topic("new", 1, {})
    assert "UnsupportedVersionException" in str(refused.value)
    with pytest.raises(KafkaError) as without_sense:
        clients.end_offset(f"{TOPIC}.{time_name(T)}.{time_name(T)}", 0)
    assert without_sense.value.kind == "InvalidTopicException"


@pytest.mark.parametrize(
    ("transactions", "kind"),
    [(False, "TopicAuthorizationException"), (True, "TransactionalIdAuthorizationException")],
)
def test_an_idle_producer_is_refused_when_it_writes(
    clients: Clients, server: Serving, transactions: bool, kind: str
) -> None:
    with pytest.raises(KafkaError) as refused:
        clients.call("produce", str(server), TOPIC, 500, transactions)
    assert kind in f"{refused.value.kind}: {refused.value}"


# Kafka's tools


@pytest.mark.parametrize("time", rest_but([*TIMES, str(T + SPAN_MS)], "max-timestamp"))
def test_get_offset_shell(server: Serving, maker: LakeMaker, time: str) -> None:
    told = printed(f"{TOOLS}GetOffsetShell", server, "--topic", TOPIC, "--time", time)
    expected = []
    for partition in range(2):
        records = maker.records(partition)
        end = records[-1].offset + 1 if records else 0
        newest = max(records, key=lambda r: (r.timestamp, -r.offset), default=None)
        reaching = next((r.offset for r in records if r.timestamp >= T + SPAN_MS), None)
        known = {"earliest": 0, "latest": end, "max-timestamp": newest and newest.offset}
        offset = known.get(time, reaching)
        expected.append(f"{TOPIC}:{partition}:" + ("" if offset is None else str(offset)))
    lines = [line for line in told.split() if not line.endswith(":")]
    assert lines == [line for line in expected if not line.endswith(":")]


def test_console_consumer(server: Serving, maker: LakeMaker) -> None:
    told = printed(
        CONSOLE, server, "--topic", TOPIC, "--partition", "1", "--offset", "20",
        "--max-messages", "50", "--timeout-ms", "120000",
    )  # fmt: skip
    expected = [record for record in maker.records(1) if record.offset >= 20][:50]
    assert told.splitlines() == [(record.value or b"null").decode() for record in expected]


def test_describe_topics(server: Serving) -> None:
    told = printed(f"{TOOLS}TopicCommand", server, "--describe", "--topic", TOPIC)
    assert "PartitionCount: 2" in told
    assert "cleanup.policy=delete" in told


# a broker with the same files


@pytest.mark.parametrize("requests", rest_but([REQUESTS // 6, REQUESTS], REQUESTS // 6))
def test_fetches_are_those_of_a_broker(
    server: Serving, twin: Broker, maker: LakeMaker, requests: int
) -> None:
    chance = random.Random(1)
    ends = [maker.records(p)[-1].offset for p in range(2)]
    with Wire(server.address) as ours, Wire(Address("127.0.0.1", twin._port)) as theirs:
        for _ in range(requests):
            version = chance.randint(4, 18)
            wanted = [
                Wanted(
                    number := chance.choice([0, 0, 1, 1, 2, 3]),
                    chance.randint(-2, (ends[number] + 4) if number < 2 else 2),
                    chance.choice([0, 1, 500, 3000, 10**6]),
                )
                for _ in range(chance.randint(1, 3))
            ]
            if len({each.number for each in wanted}) < len(wanted):
                continue  # Kafka's broker takes one of them
            how: dict[str, Any] = {
                "max_bytes": chance.choice([0, 1, 2000, 10**7]), "min_bytes": 0,
                "committed": chance.random() < 0.5,
            }  # fmt: skip
            pairs = zip(
                fetch(ours, TOPIC, wanted, version, **how),
                fetch(theirs, TOPIC, wanted, version, **how),
                strict=True,
            )
            for number, (our, their) in enumerate(pairs):
                if same_fetch(our, their, str((version, wanted, number, how))):
                    break  # what came before left less room for the others


def same_fetch(our: Fetched, their: Fetched, about: str) -> bool:
    """The same answer, but: the broker cuts where its limit is, ours where a batch ends; the broker
    stops at the end of a segment, ours goes on, and then the result is true.
    """
    assert (our.code, our.start) == (their.code, their.start), about
    assert (our.end, our.stable) == (their.end, their.stable), about
    table, _ = scan(their.data)
    size = int(table["size"].sum())
    assert len(our.data) >= size, about
    assert our.data[:size] == their.data[:size], about
    return len(our.data) > size


def test_offsets_are_those_of_a_broker(server: Serving, twin: Broker, maker: LakeMaker) -> None:
    chance = random.Random(2)
    with Wire(server.address) as ours, Wire(Address("127.0.0.1", twin._port)) as theirs:
        for _ in range(REQUESTS):
            version = chance.randint(1, 11)
            time = chance.choice([-1, -2, -3, -4, -5, chance.randint(T - 400, T + 5 * SPAN_MS)])
            asked = (TOPIC, chance.choice([0, 0, 1, 2, 3]), time, version)
            same_offset(offset_at(ours, *asked), offset_at(theirs, *asked), asked)


def same_offset(our: Any, their: Any, asked: tuple[Any, ...]) -> None:
    """The same answer, whatever the time."""
    assert our == their, asked


def test_odd_requests_get_the_errors_of_a_broker(server: Serving, twin: Broker) -> None:
    fetches: list[dict[str, int]] = [
        *({"session_id": number, "session_epoch": e} for number in (0, 77) for e in range(-2, 3)),
        *({"replica_id": number} for number in (-3, -2, 0, 1, 5)),
        *({"max_bytes": number} for number in (-(2**31), -1, 0)),
        *({"isolation_level": number} for number in (-1, 2)),
        {"min_bytes": -1}, {"max_wait_ms": -1},
    ]  # fmt: skip
    with Wire(server.address) as ours, Wire(Address("127.0.0.1", twin._port)) as theirs:
        for version in (4, 6, 7, 11, 12, 14):
            for fields in fetches:
                for offset, size in [(0, 2**20), (0, -1), (10**6, 2**20), (10**6, -1)]:
                    asked = (version, fields, Wanted(0, offset, size))
                    assert fetch_errors(ours, *asked) == fetch_errors(theirs, *asked), asked
        for ask in ({"isolation_level": 2}, {"replica_id": 5}, {"replica_id": -2}):
            assert offset_error(ours, ask) == offset_error(theirs, ask), ask


def fetch_errors(wire: Wire, version: int, fields: dict[str, int], wanted: Wanted) -> Any:
    id_of = topic_id(wire, TOPIC) if version >= 13 else None
    request = fetch_request(TOPIC, [wanted], id_of=id_of)
    for name, value in fields.items():
        setattr(request, name, value)
    answer = wire.ask(request, FetchResponse, version)
    if version >= 7 and answer.error_code:
        return answer.error_code
    return [(p.error_code, p.high_watermark) for t in answer.responses for p in t.partitions]


def offset_error(wire: Wire, fields: dict[str, int]) -> Any:
    kind = ListOffsetsRequest.ListOffsetsTopic
    one = kind.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
    topics = [kind(name=TOPIC, partitions=[one])]
    request = ListOffsetsRequest(
        **{"replica_id": -1, "isolation_level": 0, **fields}, topics=topics
    )
    (topic,) = wire.ask(request, ListOffsetsResponse, 7).topics
    return topic.partitions[0].error_code


def test_metadata(server: Serving, twin: Broker) -> None:
    """The same answer but for addresses, ids and epochs."""
    with Wire(server.address) as ours, Wire(Address("127.0.0.1", twin._port)) as theirs:
        for version in range(14):
            for names in (["events"], ["none", "events"], ["not a name"], []):
                if version < 4 and names != ["events"]:
                    continue  # a broker would create the topic; 0 topics of version 0 are all
                assert described(ours, names, version) == described(theirs, names, version), (
                    names, version,
                )  # fmt: skip


def described(wire: Wire, names: list[str], version: int) -> Any:
    answer = metadata(wire, names, version)
    return sorted(
        (
            topic.error_code, topic.name, topic.is_internal,
            sorted((p.error_code, p.partition_index, p.leader_id, tuple(p.replica_nodes),
                    tuple(p.isr_nodes), tuple(p.offline_replicas or ())) for p in topic.partitions),
        )
        for topic in answer.topics
    )  # fmt: skip
