"""Kafka's producers against a real broker, and what a consumer with read_committed gets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.judges.kafka_broker import Broker
from tests.judges.kafka_judge import JavaJudge, Kafka, Record, record_from_json, record_to_json


class Committed(NamedTuple):
    """A partition as a consumer with read_committed sees it."""

    start: int
    end: int  # the last stable offset
    records: list[Record]


class Producer:
    """A producer of a broker; with `transactional.id` among its settings it has transactions."""

    def __init__(self, producers: Producers, name: str) -> None:
        self._producers, self.name = producers, name

    def send(self, topic: str, partition: int, records: Iterable[Record]) -> int:
        """Send records, whose offsets do not count; returns the offset of the last one."""
        text = json.dumps([record_to_json(record) for record in records])
        return int(self._producers.call("send", self.name, topic, partition, text))

    def begin(self) -> None:
        """Begin a transaction."""
        self._producers.call("begin", self.name)

    def commit(self) -> None:
        """Commit the transaction."""
        self._producers.call("commit", self.name)

    def abort(self) -> None:
        """Abort the transaction."""
        self._producers.call("abort", self.name)

    def close(self) -> None:
        """Leave at once: an open transaction stays open."""
        self._producers.call("close", self.name)


class Producers(JavaJudge):
    """Producers of one broker, and other clients that change or judge it."""

    java_class = "Producers"

    def __init__(self, kafka: Kafka, broker: Broker) -> None:
        super().__init__(kafka)
        self._broker = broker
        self._count = 0

    def open(self, **settings: str) -> Producer:
        """A new producer; "_" in the names of settings is "."."""
        self._count += 1
        name = f"producer-{self._count}"
        plain = {key.replace("_", "."): value for key, value in settings.items()}
        self.call("open", name, self._broker.address, json.dumps(plain))
        return Producer(self, name)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """DeleteRecords: those below an offset."""
        self.call("deleteRecords", self._broker.address, topic, partition, before)

    def committed(self, topic: str, partition: int) -> Committed:
        """All that a consumer with read_committed gets."""
        text = self.call("committed", self._broker.address, topic, partition)
        start, end, records = json.loads(text)
        return Committed(start, end, [record_from_json(record) for record in records])

    def offsets_for_times(
        self, topic: str, partition: int, times: Sequence[int]
    ) -> list[tuple[int, int] | None]:
        """`offsetsForTimes` of such a consumer: (offset, timestamp) or None for each time."""
        text = self.call(
            "offsetsForTimes", self._broker.address, topic, partition, json.dumps(list(times))
        )
        return [None if pair is None else (pair[0], pair[1]) for pair in json.loads(text)]
