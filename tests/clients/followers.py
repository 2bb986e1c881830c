"""Clients that read a topic for as long as a test likes, each on a thread of its own."""

import asyncio
import threading
import time
import traceback
from collections.abc import Coroutine
from threading import Event
from typing import Any, NamedTuple, Protocol, TypeVar

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPlace
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

import seglake
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPlace
from seglake.serve.settings import Address
from tests.clients.commands import PARTITIONS
from tests.harness.lake_server import Wire
from tests.makers.fetches import LATEST, offset_at
from tests.makers.raw_events import T
from tests.makers.served import time_name

PATIENCE_S = 300
TOPIC = "events"
WINDOW = f"{TOPIC}.{time_name(T - 1000)}.{time_name(T + 1000)}"  # all records are in it
Result = TypeVar("Result")


class Row(NamedTuple):
    """A record as a client hands it out, beside its headers."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class Reader(Protocol):
    """A consumer of one topic; with a group it commits by itself, else it begins at the start."""

    def __init__(self, address: str, topic: str, partitions: int, group: str | None) -> None: ...

    def poll(self) -> list[Row]:
        """What came, after a moment at most."""

    def at_end(self, ends: dict[int, int]) -> bool:
        """Whether its positions have reached these."""

    def close(self) -> None:
        """Leave."""


class ConfluentReader:
    """librdkafka. It tells of an end when it comes there, and each time it comes there again."""

    def __init__(self, address: str, topic: str, partitions: int, group: str | None) -> None:
        self._reached: dict[int, int] = {}
        self._consumer = Consumer(
            {"bootstrap.servers": address, "group.id": group or "alone", "check.crcs": True,
             "enable.auto.commit": group is not None, "auto.commit.interval.ms": 200,
             "auto.offset.reset": "earliest", "enable.partition.eof": True,
             "fetch.wait.max.ms": 100, "log_level": 0}
        )  # fmt: skip
        if group is None:
            self._consumer.assign([TopicPartition(topic, p, -2) for p in range(partitions)])
        else:
            self._consumer.subscribe([topic])

    def poll(self) -> list[Row]:
        rows = []
        for message in self._consumer.consume(100, 0.1):
            error, at = message.error(), (message.partition() or 0, message.offset() or 0)
            if error is None:
                rows.append(Row(*at, message.timestamp()[1], message.key(), message.value()))
                self._reached[at[0]] = at[1] + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self._reached[at[0]] = at[1]
            elif not error.retriable():
                raise KafkaException(error)
        return rows

    def at_end(self, ends: dict[int, int]) -> bool:
        return all(self._reached.get(p, 0) >= end for p, end in ends.items())

    def close(self) -> None:
        self._consumer.close()


class AioReader:
    """aiokafka, on a loop of its own."""

    def __init__(self, address: str, topic: str, partitions: int, group: str | None) -> None:
        self._loop = asyncio.new_event_loop()
        self._topic, self._group = topic, group
        self._consumer = self._run(self._opened(address, partitions))

    async def _opened(self, address: str, partitions: int) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            *([] if self._group is None else [self._topic]), bootstrap_servers=address,
            group_id=self._group, auto_offset_reset="earliest", auto_commit_interval_ms=200,
            enable_auto_commit=self._group is not None, fetch_max_wait_ms=100,
        )  # fmt: skip
        await consumer.start()
        if self._group is None:
            consumer.assign([AioPlace(self._topic, p) for p in range(partitions)])
            await consumer.seek_to_beginning()
        return consumer

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run_until_complete(asyncio.wait_for(work, PATIENCE_S))

    def poll(self) -> list[Row]:
        return rows_of(self._run(self._consumer.getmany(timeout_ms=100, max_records=100)))

    def at_end(self, ends: dict[int, int]) -> bool:
        return all(self._run(self._behind(p)) >= end for p, end in ends.items())

    async def _behind(self, partition: int) -> int:
        place = AioPlace(self._topic, partition)
        known = place in self._consumer.assignment()
        return (await self._consumer.position(place)) if known else -1

    def close(self) -> None:
        self._run(self._consumer.stop())
        self._loop.close()


class PythonReader:
    """kafka-python."""

    def __init__(self, address: str, topic: str, partitions: int, group: str | None) -> None:
        self._topic = topic
        self._consumer = KafkaConsumer(
            *([] if group is None else [topic]), bootstrap_servers=address, group_id=group,
            auto_offset_reset="earliest", auto_commit_interval_ms=200, fetch_max_wait_ms=100,
            enable_auto_commit=group is not None,
        )  # fmt: skip
        if group is None:
            self._consumer.assign([PythonPlace(topic, p) for p in range(partitions)])
            self._consumer.seek_to_beginning()

    def poll(self) -> list[Row]:
        return rows_of(self._consumer.poll(timeout_ms=100, max_records=100))

    def at_end(self, ends: dict[int, int]) -> bool:
        return all(self._behind(p) >= end for p, end in ends.items())

    def _behind(self, partition: int) -> int:
        place = PythonPlace(self._topic, partition)
        known = place in self._consumer.assignment()
        position = self._consumer.position(place, timeout_ms=1000) if known else None
        return -1 if position is None else position

    def close(self) -> None:
        self._consumer.close()


def rows_of(batches: dict[Any, list[Any]]) -> list[Row]:
    """What a client in Python gave."""
    return [
        Row(m.partition, m.offset, m.timestamp, m.key, m.value)
        for messages in batches.values()
        for m in messages
    ]


READERS: list[type[Reader]] = [ConfluentReader, AioReader, PythonReader]


class Work(threading.Thread):
    """A client at work until it is told that no command is left; `failed` says why it gave up."""

    def __init__(self, reader: type[Reader], lake: str, address: Address, over: Event) -> None:
        super().__init__(name=f"{type(self).__name__} {reader.__name__}")
        self._reader, self._lake, self._address, self._over = reader, lake, address, over
        self.failed = ""
        self.start()

    def run(self) -> None:
        try:
            self.work()
        except BaseException:
            self.failed = f"{self.name}: {traceback.format_exc()}"

    def work(self) -> None:
        """Do the thread's work. Each class has its own."""
        raise NotImplementedError

    def opened(self, topic: str = TOPIC, group: str | None = None) -> Reader:
        """A consumer."""
        return self._reader(str(self._address), topic, PARTITIONS, group)

    def ends(self, topic: str = TOPIC) -> dict[int, int]:
        """The ends of a log, as the server tells them now; it may have to look for them again."""
        since = time.monotonic()
        while time.monotonic() - since < PATIENCE_S:
            with Wire(self._address) as wire:
                told = {p: offset_at(wire, topic, p, LATEST) for p in range(PARTITIONS)}
            if not any(code for code, _, _ in told.values()):
                return {p: end for p, (_, end, _) in told.items()}
        raise AssertionError(f"{topic} has no ends: {told}")


class Pass(NamedTuple):
    """One way from the start of a topic to what was its end: what came, and the newest version."""

    rows: list[Row]
    ends: dict[int, int]
    version: int


class Again(Work):
    """Reads from the start to the end, again and again; the last time after the last command."""

    passes: list[Pass]

    def work(self) -> None:
        self.passes, last = [], False
        while not last:
            last, reader = self._over.is_set(), self.opened()
            try:
                self.passes.append(self._pass(reader))
            finally:
                reader.close()

    def _pass(self, reader: Reader) -> Pass:
        rows, ends, since = list[Row](), self.ends(), time.monotonic()
        while not reader.at_end(ends):
            rows += reader.poll()
            assert time.monotonic() - since < PATIENCE_S, f"stalled: {len(rows)} of {ends}"
        return Pass(rows, ends, seglake.open(self._lake).version)


class Member(Work):
    """Reads in a group, and is at the end some time after the last command."""

    rows: list[Row]

    def work(self) -> None:
        self.rows, reader = [], self.opened(group=self.name)
        try:
            while not self._over.is_set():
                self.rows += reader.poll()
            ends, since = self.ends(), time.monotonic()
            while not reader.at_end(ends):
                self.rows += reader.poll()
                assert time.monotonic() - since < PATIENCE_S, f"stalled before {ends}"
        finally:
            reader.close()


class InWindow(Work):
    """Reads a window from its start to its end, again and again.

    Whenever a file of its version is deleted, the window becomes that of a newer version, which may
    end earlier: so its end is asked for again and again, too.
    """

    rows: list[Row]

    def work(self) -> None:
        self.rows, last = [], False
        while not last:
            last, reader, since = self._over.is_set(), self.opened(WINDOW), time.monotonic()
            try:
                while not reader.at_end(self.ends(WINDOW)):
                    self.rows += reader.poll()
                    assert time.monotonic() - since < PATIENCE_S, "stalled in the window"
            finally:
                reader.close()
