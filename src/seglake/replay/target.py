"""The topic of a real Kafka that a replay goes to, and how far the replay got in it.

Each record of a replay has two headers: the replay's name, and the record's offset in the archive.
The records go out in transactions, so the last one that is committed in a partition says where to
go on. A producer with the replay's transactional id takes over from one that was killed: what that
one had not committed is aborted before anything is read back (KIP-98).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from seglake.errors import ConfigError, StoreError, UsageError
from seglake.extras import extra

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaException, Message
    from confluent_kafka.admin import AdminClient

NAME_HEADER, OFFSET_HEADER = "seglake.replay", "seglake.offset"
OURS = {  # settings of the client that a replay's promise hangs on
    "bootstrap.servers", "enable.idempotence", "group.id", "isolation.level", "transactional.id",
}  # fmt: skip

PATIENCE_S = 30.0
_FIRST_LOOK = 1000  # records at a partition's end; then four times as many before them, and so on
_FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}

_log = logging.getLogger("seglake.replay")
_client_log = logging.getLogger("seglake.replay.client")
_client_log.addHandler(logging.NullHandler())  # the library's own words, for whoever wants them


class TopicState(NamedTuple):
    """A topic as it is found: how large its messages may be, and whether it was made just now."""

    max_message_bytes: int
    created: bool


class Target:
    """A topic of the Kafka at `servers`; `settings` are librdkafka's, for its clients.

    An answer of the broker is waited for `patience_s` seconds.

    Raises ConfigError without the extra `seglake[replay]`, and for a setting that is not the
    caller's to choose or is unknown; UsageError for a topic that cannot keep what a replay sends;
    StoreError where the broker does not answer.
    """

    def __init__(
        self, servers: str, topic: str, settings: Mapping[str, str], patience_s: float = PATIENCE_S
    ) -> None:
        with extra("replay", "seglake replay"):
            import confluent_kafka  # noqa: F401, PLC0415  # an extra
        if chosen := sorted(OURS & settings.keys()):
            raise ConfigError(f"{chosen[0]} is not for the client's settings: a replay sets it")
        self.topic = topic
        self._servers, self._patience_s = servers, patience_s
        self._settings = {**settings, "bootstrap.servers": servers, "logger": _client_log}

    def prepared(self, partitions: int) -> TopicState:
        """The topic, made if there is none, with at least so many partitions."""
        from confluent_kafka import KafkaException  # noqa: PLC0415

        admin = self._client("AdminClient", {})
        try:
            known = admin.list_topics(timeout=self._patience_s).topics
            created = self.topic not in known
            if created:
                self._create(admin, partitions)
            elif len(known[self.topic].partitions) < partitions:
                raise UsageError(
                    f"topic {self.topic!r} has {len(known[self.topic].partitions)} partitions and"
                    f" {partitions} are replayed: add partitions to it, or name another --topic"
                )
            return TopicState(self._checked(admin), created)
        except KafkaException as error:
            raise self._failed(error) from error

    def _create(self, admin: AdminClient, partitions: int) -> None:
        from confluent_kafka.admin import NewTopic  # noqa: PLC0415

        topic: Any = NewTopic(self.topic, partitions, config=_FOR_EVER)
        for future in admin.create_topics([topic]).values():
            future.result(self._patience_s)
        _log.info("topic %r is made: %d partitions, kept for ever", self.topic, partitions)

    def _checked(self, admin: AdminClient) -> int:
        """The largest message that the topic takes, in bytes."""
        from confluent_kafka.admin import ConfigResource  # noqa: PLC0415

        asked: Any = ConfigResource(ConfigResource.Type.TOPIC, self.topic)
        (future,) = admin.describe_configs([asked]).values()
        configs = {name: entry.value for name, entry in future.result(self._patience_s).items()}
        if configs.get("message.timestamp.type") == "LogAppendTime":
            raise UsageError(
                f"topic {self.topic!r} has message.timestamp.type=LogAppendTime and would lose the"
                " timestamps: set it to CreateTime, or name another --topic"
            )
        retention_ms = int(configs.get("retention.ms", -1))
        if "delete" in str(configs.get("cleanup.policy")) and retention_ms >= 0:
            _log.warning(
                "topic %r deletes records whose timestamps are older than %d ms: replayed ones"
                " may go soon; retention.ms=-1 keeps them", self.topic, retention_ms,
            )  # fmt: skip
        return int(configs.get("max.message.bytes", 1_048_588))

    # writing

    def sender(self, name: str, state: TopicState) -> Sender:
        """What writes the records of the replay `name`; no other one can from now on."""
        from confluent_kafka import KafkaException  # noqa: PLC0415

        fatal = list[Any]()
        settings = {
            "transactional.id": f"seglake-replay/{self.topic}/{name}",
            "error_cb": lambda error: fatal.append(error) if error.fatal() else None,
            "delivery.report.only.error": True,
            "message.max.bytes": state.max_message_bytes,
            "linger.ms": 20,
            "compression.type": "zstd",
        }
        producer = self._client("Producer", settings)
        try:
            producer.init_transactions(self._patience_s)
        except KafkaException as error:
            raise self._failed(error) from error
        return Sender(producer, self.topic, name, fatal)

    # reading back

    def positions(self, name: str, partitions: Sequence[int]) -> dict[int, int]:
        """The last archived offset of each partition that the replay `name` has committed.

        A partition without one is left out. Call it when `sender` has taken over.
        """
        from confluent_kafka import KafkaException  # noqa: PLC0415

        settings = {
            "group.id": "seglake-replay", "enable.auto.commit": False,
            "enable.partition.eof": True, "isolation.level": "read_committed",
        }  # fmt: skip
        consumer = self._client("Consumer", settings)
        try:
            self._require_no_open_transaction(partitions)
            found = {p: self._position(consumer, p, name) for p in partitions}
        except KafkaException as error:
            raise self._failed(error) from error
        finally:
            consumer.close()
        return {p: offset for p, offset in found.items() if offset is not None}

    def _require_no_open_transaction(self, partitions: Sequence[int]) -> None:
        """Records behind the last stable offset cannot be read, and would be sent again."""
        from confluent_kafka import IsolationLevel, TopicPartition  # noqa: PLC0415
        from confluent_kafka.admin import OffsetSpec  # noqa: PLC0415

        admin: Any = self._client("AdminClient", {})
        for partition in partitions:
            where = TopicPartition(self.topic, partition)
            ends = [
                admin.list_offsets({where: OffsetSpec.latest()}, isolation_level=level)[where]
                .result(self._patience_s).offset
                for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
            ]  # fmt: skip
            if ends[0] < ends[1]:
                raise StoreError(
                    f"partition {partition} of topic {self.topic!r} has a transaction of another"
                    f" producer open at offset {ends[0]}: try again when it has ended"
                )

    def _position(self, consumer: Consumer, partition: int, name: str) -> int | None:
        from confluent_kafka import TopicPartition  # noqa: PLC0415

        where = TopicPartition(self.topic, partition)
        watermarks = consumer.get_watermark_offsets(where, timeout=self._patience_s)
        if watermarks is None:
            raise StoreError(f"{self._servers}: does not say where partition {partition} ends")
        (low, end), size = watermarks, _FIRST_LOOK
        while low < end:
            start = max(low, end - size)
            consumer.assign([TopicPartition(self.topic, partition, start)])
            if (found := _last(consumer, end, name)) is not None:
                return found
            end, size = start, size * 4
        return None

    def _client(self, kind: str, settings: Mapping[str, Any]) -> Any:
        import confluent_kafka  # noqa: PLC0415
        from confluent_kafka import admin  # noqa: PLC0415

        made = getattr(confluent_kafka if kind != "AdminClient" else admin, kind)
        try:
            return made({**settings, **self._settings})
        except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
            raise ConfigError(f"the client's settings are refused: {_words(error)}") from error

    def _failed(self, error: KafkaException) -> StoreError:
        return StoreError(f"{self._servers}: {_words(error)}")


def _last(consumer: Consumer, end: int, name: str) -> int | None:
    """The archived offset of the replay's last record below `end`; None if there is none."""
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415

    found, quiet_since = None, time.monotonic()
    while time.monotonic() - quiet_since < PATIENCE_S:
        for message in consumer.consume(500, timeout=0.2):
            quiet_since, error = time.monotonic(), message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
                raise KafkaException(error)
            if error is not None or (message.offset() or 0) >= end:
                return found
            offset = _archived_offset(message, name)
            found = found if offset is None else offset
    raise StoreError(f"the broker sends no records, although {end} offsets are said to be there")


def _archived_offset(message: Message, name: str) -> int | None:
    """The offset that a record had in the archive, if it is one of the replay's."""
    headers: dict[str, Any] = dict(message.headers() or [])  # of equal names the last counts
    if headers.get(NAME_HEADER) != name.encode():
        return None
    try:
        return int(headers[OFFSET_HEADER])
    except (KeyError, TypeError, ValueError):
        return None


class Sender:
    """Writes records in transactions; made by `Target.sender`."""

    def __init__(self, producer: Any, topic: str, name: str, fatal: Sequence[Any]) -> None:
        self._producer, self._topic, self._name = producer, topic, name.encode()
        self._fatal = fatal  # errors that end a producer, in its library's own words
        self._begun: float | None = None  # of the open transaction
        self._refused: str | None = None

    @property
    def open_s(self) -> float:
        """For how long a transaction has been open; 0 if none is."""
        return 0.0 if self._begun is None else time.monotonic() - self._begun

    def send(self, partition: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Hand records to the client's library; `commit` says whether they arrived.

        Raises UsageError for a record that the topic does not take, StoreError.
        """
        from confluent_kafka import KafkaException  # noqa: PLC0415

        try:
            if self._begun is None:
                self._producer.begin_transaction()
                self._begun = time.monotonic()
            for row in rows:
                self._produce(partition, row)
        except KafkaException as error:
            raise self._failed(error) from error
        self._producer.poll(0)

    def _produce(self, partition: int, row: Mapping[str, Any]) -> None:
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415

        headers = [(header["key"], header["value"]) for header in row["headers"]]
        headers += [(NAME_HEADER, self._name), (OFFSET_HEADER, b"%d" % row["offset"])]
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
                    f"the record at offset {row['offset']} of partition {partition} is larger than"
                    f" topic {self._topic!r} takes: raise its max.message.bytes"
                ) from error
            else:
                return

    def commit(self) -> None:
        """Make what was sent visible, all or nothing; does nothing if nothing was sent."""
        from confluent_kafka import KafkaException  # noqa: PLC0415

        while self._begun is not None:
            try:
                self._producer.commit_transaction(PATIENCE_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise self._failed(error) from error
                continue
            self._begun = None

    def _reported(self, error: Any, _message: Any) -> None:
        if error is not None and self._refused is None:
            self._refused = error.str()

    def _failed(self, error: KafkaException) -> StoreError:
        self._producer.poll(0)
        causes = {each.name() for each in [*self._fatal, error.args[0]]}
        if causes & {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}:
            return StoreError("another replay of this name has taken over; this one ends")
        return StoreError(
            f"records of topic {self._topic!r} were not taken: {self._refused or _words(error)};"
            " run it again, and it goes on where it committed"
        )


def _words(error: BaseException) -> str:
    first = error.args[0] if error.args else error
    return first.str() if hasattr(first, "str") else str(error)
