"""Write the records of a replay to a topic of a real Kafka.

Each record of a replay has two headers: the replay's name, and the record's offset in the lake.
Records are sent in transactions, so a repeated replay continues after the last committed record of
each partition. A new producer with the replay's transactional id replaces a killed one. The broker
aborts the open transaction of the old producer before the new one reads the topic (KIP-98).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout  # another class before Python 3.11
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

from seglake.errors import ConfigError, StoreError, UsageError
from seglake.terminal.wording import counted

PATIENCE_S = 30.0
_PAUSE_S = 0.1
CONSUMER = {
    "group.id": "seglake-replay", "enable.auto.commit": False, "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",  # if the broker has deleted the start of a search
}  # fmt: skip
OURS = {  # settings that a replay depends on, so only it may set them
    "bootstrap.servers", "enable.idempotence", "transactional.id", *CONSUMER,
}  # fmt: skip

_UNANSWERED = (  # ends the error if a broker does not answer
    ". Check host and port, that the broker runs, and --kafka security.protocol=… if it requires "
    "TLS or a login"
)
_FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_UNREACHABLE = {  # librdkafka's names
    KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE,  # noqa: SLF001
}  # fmt: skip
_log = logging.getLogger("seglake.replay")
_client_log = logging.getLogger("seglake.replay.client")
_client_log.addHandler(logging.NullHandler())  # the log of librdkafka, which is hidden by default
_client_log.propagate = False
_Client = TypeVar("_Client")


class Target:
    """A topic of the Kafka at `servers`. `settings` are librdkafka's, for its clients.

    Requests wait at most `patience_s` seconds for the broker. Raises ConfigError for a setting that
    is unknown or reserved, UsageError for a topic that cannot keep the records of a replay, and
    StoreError if the broker does not answer.
    """

    def __init__(
        self, servers: str, topic: str, settings: Mapping[str, str], patience_s: float = PATIENCE_S
    ) -> None:
        if chosen := sorted(OURS & settings.keys()):
            raise ConfigError(f"the replay itself sets {chosen[0]}. Remove this setting")
        self.topic = topic
        self._servers, self._patience_s = servers, patience_s
        self._settings = {**settings, "bootstrap.servers": servers, "logger": _client_log}

    def prepare(self, partitions: int) -> bool:
        """Create the topic if it is missing; return whether this call created it.

        Raises StoreError, and UsageError for an existing topic that has fewer partitions or would
        change timestamps. Logs a warning if the topic may soon delete the records.
        """
        admin = self._client(AdminClient, {})
        _log.info("connecting to %s, for up to %g s", self._servers, self._patience_s)
        try:
            topics = admin.list_topics(timeout=self._patience_s).topics
            created = self.topic not in topics
            if created:
                topic: Any = NewTopic(self.topic, partitions, config=_FOR_EVER)
                for future in admin.create_topics([topic]).values():
                    future.result(self._patience_s)
                _log.info("created topic %r: %d partitions, kept forever", self.topic, partitions)
            elif len(topics[self.topic].partitions) < partitions:
                there = counted(len(topics[self.topic].partitions), "partition")
                raise UsageError(
                    f"topic {self.topic!r} has {there}, but {partitions} are replayed. Add "
                    f"partitions to it, or give another --topic"
                )
            self._max_message_bytes = self._checked(admin)
        except (KafkaException, FutureTimeout) as error:
            raise self._failed(error) from error
        return created

    def _checked(self, admin: AdminClient) -> int:
        """Check the topic's settings, and return its largest message size in bytes."""
        configs = self._configs(admin)
        if configs.get("message.timestamp.type") == "LogAppendTime":
            raise UsageError(
                f"topic {self.topic!r} has message.timestamp.type=LogAppendTime and would lose "
                f"the timestamps. Set it to CreateTime, or give another --topic"
            )
        retention_ms = int(configs.get("retention.ms", -1))
        if "delete" in str(configs.get("cleanup.policy")) and retention_ms >= 0:
            _log.warning(
                "topic %r deletes records older than %d ms, so the broker may soon delete "
                "replayed records. To keep them, set retention.ms=-1", self.topic, retention_ms,
            )  # fmt: skip
        return int(configs.get("max.message.bytes", 1_048_588))

    def _configs(self, admin: AdminClient) -> dict[str, str]:
        """Return the topic's settings. Retry, because a broker may learn of a new topic later."""
        asked: Any = ConfigResource(ConfigResource.Type.TOPIC, self.topic)
        deadline = time.monotonic() + self._patience_s
        while True:
            (future,) = admin.describe_configs([asked]).values()
            try:
                entries = future.result(self._patience_s)
                return {name: entry.value for name, entry in entries.items()}
            except KafkaException as error:
                unknown = error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                if not unknown or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_S)

    def sender(self, name: str) -> Sender:
        """Return the sender of the replay `name`. Call `prepare` first, which checks the topic.

        Earlier senders of the replay can no longer commit, because the broker fences them off.
        """
        settings = {
            "transactional.id": f"seglake-replay/{self.topic}/{name}",
            "delivery.report.only.error": True,
            "message.max.bytes": self._max_message_bytes,
            "linger.ms": 20,
            "compression.type": "zstd",
        }
        producer = self._client(Producer, settings)
        try:
            producer.init_transactions(self._patience_s)
        except (KafkaException, FutureTimeout) as error:
            raise self._failed(error) from error
        return Sender(producer, self.topic, name)

    def positions(self, name: str, partitions: Sequence[int]) -> dict[int, int]:
        """Return, by partition, the lake offset of the last record that replay `name` committed.

        Partitions without such a record are left out. Call `sender` first, to stop other senders.
        """
        consumer = self._client(Consumer, CONSUMER)
        try:
            admin = self._client(AdminClient, {})
            search = ReplaySearch(self.topic, admin, consumer, self._patience_s)
            return search.last_offsets(name, partitions)
        except (KafkaException, FutureTimeout) as error:
            raise self._failed(error) from error
        finally:
            consumer.close()

    def _client(self, kind: Callable[[Any], _Client], settings: Mapping[str, Any]) -> _Client:
        try:
            return kind({**settings, **self._settings})
        except (KafkaException, TypeError, ValueError) as error:
            raise ConfigError(f"the client's settings are refused: {_words(error)}") from error

    def _failed(self, error: KafkaException | FutureTimeout) -> StoreError:
        words, first = _words(error), error.args[0] if error.args else None
        if not isinstance(error, KafkaException):
            words = f"the broker has not answered for {self._patience_s:g} s"
        elif isinstance(first, KafkaError) and first.code() in _UNREACHABLE:
            words += _UNANSWERED
        return StoreError(f"broker {self._servers}: {words}")


def _words(error: BaseException) -> str:
    first = error.args[0] if error.args else error
    return first.str() if isinstance(first, KafkaError) else str(error)


# ---------------- sender
# Send records to a real Kafka in transactions (KIP-98).

_FENCED = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}


class Sender:
    """Sends records of the replay `name`. `Target.sender` creates it."""

    def __init__(self, producer: Producer, topic: str, name: str) -> None:
        self._producer, self._topic, self._name = producer, topic, name
        self._headers = [(NAME_HEADER, name.encode())]
        self._begun: float | None = None  # when the open transaction began
        self._refused: str | None = None

    @property
    def open_s(self) -> float:
        """Return for how many seconds a transaction has been open, or 0 if none is open."""
        return 0.0 if self._begun is None else time.monotonic() - self._begun

    def send(self, partition: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Pass records to librdkafka. `commit` waits until the broker has them.

        Raises UsageError for a record that the topic does not accept, and StoreError.
        """
        try:
            if self._begun is None:
                self._producer.begin_transaction()
                self._begun = time.monotonic()
            for row in rows:
                self._produce(partition, row)
            self._producer.poll(0)
        except KafkaException as error:
            raise self._failed(error) from error

    def _produce(self, partition: int, row: Mapping[str, Any]) -> None:
        headers = [(header["key"], header["value"]) for header in row["headers"]]
        if any("\0" in key for key, _ in headers):
            raise UsageError(
                f"the record at offset {row['offset']} of partition {partition} has a header whose"
                " name has a zero byte: librdkafka would cut it"
            )
        headers += [*self._headers, (OFFSET_HEADER, b"%d" % row["offset"])]
        while True:
            try:
                self._producer.produce(
                    self._topic, row["value"], row["key"], partition, headers=headers,
                    timestamp=row["timestamp"], on_delivery=self._reported,
                )  # fmt: skip
            except BufferError:  # the library's queue is full
                self._producer.poll(0.1)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise
                raise UsageError(
                    f"the record at offset {row['offset']} of partition {partition} is too large "
                    f"for topic {self._topic!r}. Raise its max.message.bytes"
                ) from error
            else:
                return

    def commit(self) -> None:
        """Commit the sent records in one transaction. Do nothing without sent records."""
        while self._begun is not None:
            try:
                self._producer.commit_transaction(PATIENCE_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise self._failed(error) from error
            else:
                self._begun = None

    def _reported(self, error: KafkaError | None, _message: object) -> None:
        if error is not None and self._refused is None:
            self._refused = error.str()

    def _failed(self, error: KafkaException) -> StoreError:
        cause = self._cause(error)
        if cause.name() in _FENCED:
            return StoreError(f"another replay named {self._name!r} took over. This replay ends")
        return StoreError(
            f"the broker refused records of topic {self._topic!r}: "
            f"{self._refused or cause.str()}. Run the replay again. It continues after the last "
            f"committed records"
        )

    def _cause(self, error: KafkaException) -> KafkaError:
        """Return the cause of librdkafka's "fatal error", which `poll` raises."""
        cause: KafkaError = error.args[0]
        try:
            self._producer.poll(0)
        except KafkaException as fatal:
            cause = fatal.args[0]
        return cause


# ---------------- progress
# Search a topic for the records of a replay, to find how far it got.

NAME_HEADER, OFFSET_HEADER = "seglake.replay", "seglake.offset"


_NEW_LEADER = {  # errors while a topic is new or a broker has died: retry them
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH,
}  # fmt: skip
# The first search covers this many offsets at the end of a partition. Each later search covers four
# times as many as the search before it.
_FIRST_SEARCH = 1000
_WAIT_S = 0.2  # wait between two requests


class ReplaySearch:
    """Searches a topic from its end backwards for records of a replay."""

    def __init__(self, topic: str, admin: AdminClient, consumer: Consumer, patience_s: float):
        self._topic, self._admin, self._consumer = topic, admin, consumer
        self._patience_s = patience_s

    def last_offsets(self, name: str, partitions: Collection[int]) -> dict[int, int]:
        """Return the lake offset of the replay's last record, for partitions that have one.

        Raises StoreError if a transaction of another producer stays open. Records after its begin
        cannot be read yet, so the replay would send them again.
        """
        offsets, ends = dict[int, int](), self._ends(partitions)
        lows = self._offsets(partitions, OffsetSpec.earliest(), IsolationLevel.READ_COMMITTED)
        size = _FIRST_SEARCH
        while left := [p for p in partitions if p not in offsets and lows[p] < ends[p]]:
            starts = {p: max(lows[p], ends[p] - size) for p in left}
            offsets.update(self._in(name, starts, ends))
            size *= 4
            ends |= starts
        return offsets

    def _ends(self, partitions: Collection[int]) -> dict[int, int]:
        """Return the ends of the partitions. Wait until all records below them can be read.

        The last stable offset is requested after the end. It reaches the end when the transactions
        that were open at the first request have ended.
        """
        latest, deadline = OffsetSpec.latest(), time.monotonic() + self._patience_s
        written = self._offsets(partitions, latest, IsolationLevel.READ_UNCOMMITTED)
        while True:
            stable = self._offsets(partitions, latest, IsolationLevel.READ_COMMITTED)
            behind = [p for p in partitions if stable[p] < written[p]]
            if not behind:
                return written
            if time.monotonic() > deadline:
                raise StoreError(
                    f"partition {behind[0]} of topic {self._topic!r} has an open transaction of "
                    f"another producer at offset {stable[behind[0]]}. Try again when it has ended"
                )
            time.sleep(_WAIT_S)

    def _offsets(
        self, partitions: Iterable[int], spec: OffsetSpec, level: IsolationLevel
    ) -> dict[int, int]:
        asked: Any = {TopicPartition(self._topic, p): spec for p in partitions}
        deadline = time.monotonic() + self._patience_s
        while True:
            futures = self._admin.list_offsets(asked, isolation_level=level)
            try:
                done = ((p.partition, f.result(self._patience_s)) for p, f in futures.items())
                return {partition: result.offset for partition, result in done}
            except KafkaException as error:
                if error.args[0].code() not in _NEW_LEADER or time.monotonic() > deadline:
                    raise
                time.sleep(_WAIT_S)

    def _in(
        self, name: str, starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> Iterator[tuple[int, int]]:
        """Yield partition and lake offset of the replay's records from starts to ends, in order."""
        self._consumer.assign([TopicPartition(self._topic, p, at) for p, at in starts.items()])
        left, quiet_since = {*starts}, time.monotonic()
        while left:
            if time.monotonic() - quiet_since > self._patience_s:
                raise StoreError(
                    f"the broker sends no records of topic {self._topic!r}. Check the broker, "
                    f"and run the replay again"
                )
            for message in self._consumer.consume(500, timeout=_WAIT_S):
                quiet_since, partition = time.monotonic(), message.partition()
                if partition not in left:
                    continue
                if _is_end(message) or (message.offset() or 0) >= ends[partition]:
                    left.discard(partition)
                elif (offset := _lake_offset(message, name)) is not None:
                    yield partition, offset


def _is_end(message: Message) -> bool:
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  # its name
        raise KafkaException(error)
    return error is not None


def _lake_offset(message: Message, name: str) -> int | None:
    """Return the lake offset of a record, or None if it is not a record of the replay."""
    headers: dict[str, Any] = dict(message.headers() or [])  # the last of equal names counts
    if headers.get(NAME_HEADER) != name.encode():
        return None
    try:
        return int(headers[OFFSET_HEADER])
    except (KeyError, TypeError, ValueError):
        return None
