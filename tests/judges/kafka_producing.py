"""A real broker with a producer at work, and what a `read_committed` consumer reads of it."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.judges.kafka_broker import Broker
from tests.judges.kafka_judge import JavaJudge, Kafka

PARTITIONS = 2
TOPICS = {"web": {}, "app": {"message.timestamp.type": "LogAppendTime"}}

Headers = list[tuple[str, bytes | None]]


class Consumed(NamedTuple):
    """A record as a consumer gets it."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Log(NamedTuple):
    """A partition for a `read_committed` consumer: records from the log start to the end offset."""

    start: int
    end: int
    records: list[Consumed]


class Producing(JavaJudge):
    """A producer of transactions and plain records; see Producing.java."""

    java_class = "Producing"

    def __init__(self, kafka: Kafka, broker: Broker, seed: int) -> None:
        super().__init__(kafka)
        self.call("connect", broker.address, json.dumps(list(TOPICS)), PARTITIONS, seed)

    def consumed(self, topic: str, partition: int) -> Log:
        """What a new consumer reads up to the end offset."""
        start, end, rows = json.loads(self.call("consumed", topic, partition, "read_committed"))
        return Log(start, end, [_record(*row) for row in rows])


def _record(*row: Any) -> Consumed:
    offset, timestamp, kind, key, value, headers = row
    named = [(name, _bytes(each)) for name, each in headers]
    return Consumed(offset, timestamp, kind, _bytes(key), _bytes(value), named)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


@contextmanager
def producing(
    kafka: Kafka, folder: Path, seed: int, topics: Sequence[str] = tuple(TOPICS)
) -> Iterator[tuple[Broker, Producing]]:
    """A broker with topics of both timestamp types, and a producer that is connected to it."""
    broker = Broker(kafka, folder)
    try:
        broker.start()
        for topic in topics:
            broker.create_topic(topic, PARTITIONS, TOPICS[topic])
        producer = Producing(kafka, broker, seed)
        try:
            yield broker, producer
        finally:
            producer.call("close")
    finally:
        broker.stop()
