"""How far a replay got, asked of a topic that others write to; tests/kafka has a broker."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

import seglake
from seglake.errors import StoreError
from seglake.replay import target
from seglake.replay.run import replay_window
from seglake.replay.target import NAME_HEADER, OFFSET_HEADER, ReplaySearch, Target
from tests.makers.lakes import Event, LakeMaker, Shape, T

_Earliest: Any = type(OffsetSpec.earliest())  # type: ignore[no-untyped-call]
Headers = Sequence[tuple[str, bytes]]
OURS: Headers = [(NAME_HEADER, b"r"), (OFFSET_HEADER, b"41")]
Topic = list[Headers]  # the records of one partition


class Answer(NamedTuple):
    """An answer to a question for offsets, and the future that brings it; an error where >= 0."""

    offset: int
    code: int = -1

    def result(self, _timeout_s: float) -> Answer:
        if self.code >= 0:
            raise KafkaException(KafkaError(self.code))
        return self


class Message(NamedTuple):
    """What a consumer gets: a record, or the end of its partition."""

    at: int
    record: Headers | None

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def headers(self) -> Headers:
        assert self.record is not None
        return self.record

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self.record is None else None


class Broker:
    """One partition. `meanwhile` happens after each answer; it may write, or end `open_at`."""

    def __init__(self, topic: Topic, meanwhile: Callable[[Broker], object]) -> None:
        self.topic, self.meanwhile = topic, meanwhile
        self.open_at: int | None = None  # where a transaction begins that is open
        self.errors: list[int] = []  # codes of the next answers
        self.answers = self.at = 0

    @property
    def stable(self) -> int:
        return len(self.topic) if self.open_at is None else self.open_at

    def list_offsets(
        self, asked: Mapping[TopicPartition, object], isolation_level: IsolationLevel
    ) -> dict[TopicPartition, Answer]:
        ((place, spec),) = asked.items()
        if self.errors:
            return {place: Answer(0, self.errors.pop())}
        if isinstance(spec, _Earliest):
            return {place: Answer(0)}
        committed = isolation_level == IsolationLevel.READ_COMMITTED
        found = self.stable if committed else len(self.topic)
        self.answers += 1
        self.meanwhile(self)
        return {place: Answer(found)}

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self.at = places[0].offset

    def consume(self, count: int, timeout: float) -> list[Message]:
        del timeout
        first, self.at = self.at, min(self.at + count, self.stable)
        if first == self.at:
            return [Message(first, None)]
        return [Message(at, self.topic[at]) for at in range(first, self.at)]


def found(broker: Broker, patience_s: float = 30) -> dict[int, int]:
    """What a replay "r" finds of itself in partition 0."""
    admin, consumer = cast("AdminClient", broker), cast("Consumer", broker)
    return ReplaySearch("t", admin, consumer, patience_s).last_offsets("r", [0])


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "_PAUSE_S", 0.001)


@pytest.mark.parametrize("last", [0, 1, 70, 99])
def test_each_further_search_reads_what_is_before(
    last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "_FIRST_SEARCH", 2)
    topic: Topic = [[(NAME_HEADER, b"another"), (OFFSET_HEADER, b"500")]] * 100
    topic[last] = OURS
    assert found(Broker(topic, lambda _: None)) == {0: 41}


@pytest.mark.parametrize("before", [0, 7])
def test_records_of_a_plain_producer_are_no_open_transaction(before: int) -> None:
    """It writes after each answer, and there are more of its records each time."""
    broker = Broker([[]] * before + [OURS], lambda each: each.topic.extend([[]] * 5))
    assert found(broker) == {0: 41}


def test_an_open_transaction_is_waited_for() -> None:
    """Others follow it, as in every busy topic; what the replay has written lies before them."""

    def later(each: Broker) -> None:
        each.topic.extend([[]] * 5)
        each.open_at = 3 if each.answers < 4 else len(each.topic) - 1

    broker = Broker([[]] * 5 + [OURS], later)
    broker.open_at = 3
    assert found(broker) == {0: 41}


def test_an_open_transaction_that_stays_is_an_error() -> None:
    broker = Broker([[]] * 5 + [OURS], lambda _: None)
    broker.open_at = 3
    with pytest.raises(StoreError, match="partition 0 of topic 't' has an open transaction"):
        found(broker, patience_s=0.01)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
    ],
)
def test_a_leader_that_is_new_is_asked_again(code: int) -> None:
    broker = Broker([OURS], lambda _: None)
    broker.errors = [code] * 3
    assert found(broker) == {0: 41}


def test_a_refusal_is_no_reason_to_ask_again() -> None:
    broker = Broker([OURS], lambda _: None)
    broker.errors = [KafkaError.TOPIC_AUTHORIZATION_FAILED] * 2
    with pytest.raises(KafkaException):
        found(broker)
    assert len(broker.errors) == 1


def test_a_broker_that_does_not_answer_in_time() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StoreError, match=f"{address}: the broker has not answered for 0.2 s"):
            Target(address, "t", {}, patience_s=0.2).positions("r", [0])


# Where a replay goes on; tests/kafka/test_replay.py has a broker.


class Overtaken:
    """A topic that this replay has made, and another of its name has filled up to offset 2."""

    topic, open_s = "t", 0.0

    def __init__(self) -> None:
        self.sent: list[int] = []

    def prepare(self, _partitions: int) -> bool:
        return True

    def sender(self, _name: str) -> Overtaken:
        return self

    def positions(self, _name: str, _partitions: Sequence[int]) -> dict[int, int]:
        return {0: 2}

    def send(self, _partition: int, rows: Sequence[Mapping[str, Any]]) -> None:
        self.sent += [row["offset"] for row in rows]

    def commit(self) -> None:
        pass


def test_a_topic_that_was_made_just_now_is_not_known_to_be_empty(tmp_path: Path) -> None:
    """The other replay ended between the making of the topic and the takeover."""
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(T, b"k", b"v")] * 5}, Shape())
    target = Overtaken()
    replay_window(seglake.open(str(maker.root)).topic("events"), T, T + 1, cast("Target", target))
    assert target.sent == [3, 4]
