"""The topic of a real Kafka that a replay goes to.

Each record of a replay has two headers: the replay's name, and the record's offset in the lake.
The records go out in transactions, so the last one that is committed in a partition says where to
go on. A new producer with the replay's transactional id takes over from a killed one: the killed
one's open transaction is aborted before the new one reads the topic (KIP-98).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout  # another class before Python 3.11
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from seglake.catalog.groups import GroupOffset
from seglake.config.client_settings import UNREACHABLE
from seglake.errors import ConfigError, StoreError, UsageError
from seglake.replay.progress import CONSUMER, Progress
from seglake.replay.sender import Sender
from seglake.shown import counted

PATIENCE_S = 30.0
_PAUSE_S = 0.1
OURS = {  # settings of the client that a replay depends on, so that it sets them
    "bootstrap.servers", "enable.idempotence", "transactional.id", *CONSUMER,
}  # fmt: skip

_FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_UNREACHABLE = {  # librdkafka's names
    KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE,  # noqa: SLF001
}  # fmt: skip
_log = logging.getLogger("seglake.replay")
_client_log = logging.getLogger("seglake.replay.client")
_client_log.addHandler(logging.NullHandler())  # the library's log, shown on request
_client_log.propagate = False
_Client = TypeVar("_Client")


class TopicState(NamedTuple):
    """A topic: how many bytes its messages may have, and whether it was made just now."""

    max_message_bytes: int
    created: bool


class Target:
    """A topic of the Kafka at `servers`; `settings` are librdkafka's, for its clients.

    An answer of the broker is waited for `patience_s` seconds. Raises ConfigError for a setting
    that is unknown or not the caller's to choose, UsageError for a topic that cannot keep what a
    replay sends, StoreError where the broker does not answer.
    """

    def __init__(
        self, servers: str, topic: str, settings: Mapping[str, str], patience_s: float = PATIENCE_S
    ) -> None:
        if chosen := sorted(OURS & settings.keys()):
            raise ConfigError(f"{chosen[0]} is not for the client's settings: a replay sets it")
        self.topic = topic
        self._servers, self._patience_s = servers, patience_s
        self._settings = {**settings, "bootstrap.servers": servers, "logger": _client_log}

    def prepared(self, partitions: int) -> TopicState:
        """The topic, made if there is none, with at least so many partitions."""
        admin = self._client(AdminClient, {})
        _log.info("connecting to %s, for up to %g s", self._servers, self._patience_s)
        try:
            topics = admin.list_topics(timeout=self._patience_s).topics
            created = self.topic not in topics
            if created:
                self._create(admin, partitions)
            elif len(topics[self.topic].partitions) < partitions:
                there = counted(len(topics[self.topic].partitions), "partition")
                raise UsageError(
                    f"topic {self.topic!r} has {there} and"
                    f" {partitions} are replayed: add partitions to it, or name another --topic"
                )
            return TopicState(self._checked(admin), created)
        except (KafkaException, FutureTimeout) as error:
            raise self._failed(error) from error

    def _create(self, admin: AdminClient, partitions: int) -> None:
        topic: Any = NewTopic(self.topic, partitions, config=_FOR_EVER)
        for future in admin.create_topics([topic]).values():
            future.result(self._patience_s)
        _log.info("topic %r is made: %d partitions, kept for ever", self.topic, partitions)

    def _checked(self, admin: AdminClient) -> int:
        """The largest message that the topic takes, in bytes."""
        configs = self._configs(admin)
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

    def _configs(self, admin: AdminClient) -> dict[str, str]:
        """The topic's settings; a broker may not know a new topic at once."""
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

    def sender(self, name: str, state: TopicState) -> Sender:
        """The sender of the replay `name`. Every earlier sender of that replay is fenced off."""
        settings = {
            "transactional.id": f"seglake-replay/{self.topic}/{name}",
            "delivery.report.only.error": True,
            "message.max.bytes": state.max_message_bytes,
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
        """The last offset in the lake that the replay `name` has committed, by partition.

        A partition without one is left out. Call it when `sender` has taken over.
        """
        consumer = self._client(Consumer, CONSUMER)
        try:
            admin = self._client(AdminClient, {})
            return Progress(self.topic, admin, consumer, self._patience_s).of(name, partitions)
        except (KafkaException, FutureTimeout) as error:
            raise self._failed(error) from error
        finally:
            consumer.close()

    def commit_groups(
        self, name: str, groups: Mapping[str, Mapping[int, GroupOffset]]
    ) -> dict[str, dict[int, int]]:
        """Let consumer groups go on in this topic where they stood in the lake.

        Each gets the offset of the replay's first record at or above its own, or the one behind the
        last record. What a group has committed for a partition of this topic stays, and so does a
        partition without a record of the replay. Returns the offsets that this call committed, by
        group and partition. Raises StoreError, also for a group that has members.
        """
        bounds = dict[int, set[int]]()
        for offsets in groups.values():
            for partition, each in offsets.items():
                bounds.setdefault(partition, set()).add(each.offset)
        consumer = self._client(Consumer, CONSUMER)
        try:
            admin = self._client(AdminClient, {})
            places = Progress(self.topic, admin, consumer, self._patience_s).places(name, bounds)
            return {
                group: self._committed(admin, group, offsets, places)
                for group, offsets in groups.items()
            }
        except (KafkaException, FutureTimeout) as error:
            raise self._failed(error) from error
        finally:
            consumer.close()

    def _committed(
        self,
        admin: AdminClient,
        group: str,
        offsets: Mapping[int, GroupOffset],
        places: Mapping[tuple[int, int], int],
    ) -> dict[int, int]:
        """Commit for one group; returns the new offsets by partition."""
        chosen = {
            partition: TopicPartition(self.topic, partition, place, each.metadata)
            for partition, each in offsets.items()
            if (place := places.get((partition, each.offset))) is not None
        }
        if not chosen:
            return {}
        asked = [TopicPartition(self.topic, partition) for partition in chosen]
        listing = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, asked)])
        for commit in listing[group].result(self._patience_s).topic_partitions:
            if commit.offset >= 0:
                del chosen[commit.partition]
        if chosen:
            self._alter(admin, ConsumerGroupTopicPartitions(group, [*chosen.values()]))
        return {partition: each.offset for partition, each in chosen.items()}

    def _alter(self, admin: AdminClient, new: ConsumerGroupTopicPartitions) -> None:
        (future,) = admin.alter_consumer_group_offsets([new]).values()
        try:
            altered = future.result(self._patience_s).topic_partitions
        except KafkaException as error:
            raise self._unmoved(new.group_id, _words(error)) from error
        for each in altered:
            if each.error is not None:
                raise self._unmoved(new.group_id, each.error.str())

    def _unmoved(self, group: str, words: str) -> StoreError:
        return StoreError(
            f"{self._servers}: group {group!r} could not be moved: {words}; all records are there:"
            " stop its members, and run the same replay again"
        )

    def _client(self, kind: Callable[[Any], _Client], settings: Mapping[str, Any]) -> _Client:
        try:
            return kind({**settings, **self._settings})
        except (KafkaException, TypeError, ValueError) as error:
            raise ConfigError(f"the client's settings are refused: {_words(error)}") from error

    def _failed(self, error: KafkaException | FutureTimeout) -> StoreError:
        silent = f"the broker has not answered for {self._patience_s:g} s"
        words = _words(error) if isinstance(error, KafkaException) else silent
        return StoreError(
            f"{self._servers}: {words}{UNREACHABLE if _is_unreachable(error) else ''}"
        )


def _is_unreachable(error: BaseException) -> bool:
    """Whether no broker took part in it."""
    first = error.args[0] if error.args else error
    return isinstance(first, KafkaError) and first.code() in _UNREACHABLE


def _words(error: BaseException) -> str:
    first = error.args[0] if error.args else error
    return first.str() if isinstance(first, KafkaError) else str(error)
