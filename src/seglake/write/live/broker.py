"""A Kafka cluster, asked by Kafka's own admin client in the JVM of Spark's driver.

The client comes with the jars of Spark's Kafka source, so it needs no package of Python, and takes
the same options as the source.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from seglake.catalog.groups import GroupOffset
from seglake.config.client_settings import UNREACHABLE
from seglake.errors import ConfigError, InputError, StoreError
from seglake.extras import extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNKNOWN = ("UnknownTopicOrPartitionException", "InvalidTopicException")
_SILENT = ("TimeoutException", "DisconnectException")
_PATIENCE_MS = 60_000  # the default of default.api.timeout.ms
_POLLS = 30  # of a second
_JARS = '--jars "$(python -m seglake.session kafka-jars)"'
_log = logging.getLogger(__name__)


class LiveTopic(NamedTuple):
    """A topic of a broker.

    `offsets` has for each partition the log start offset and the end offset for `read_committed`
    consumers: the last stable offset, exclusive.
    """

    name: str
    topic_id: str
    offsets: dict[int, tuple[int, int]]


class LiveRecord(NamedTuple):
    """A record of a broker. `timestamp_type` is Kafka's number for it."""

    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Broker:
    """The admin client; a context manager that closes it."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self._servers, self._options = options["bootstrap.servers"], options
        try:
            jvm: Any = spark._jvm  # noqa: SLF001  # see `ALLOWED` of tests/test_tidy.py
        except Exception as error:  # Spark Connect has no JVM, and an error of its own for that
            raise ConfigError("an archive needs a Spark session with a JVM, not Connect") from error
        self._jvm = cast("Any", jvm)
        properties = self._jvm.java.util.Properties()
        for key, value in options.items():
            properties.setProperty(key, value)
        admin = self._jvm.org.apache.kafka.clients.admin
        if type(admin.AdminClient).__name__ == "JavaPackage":  # py4j's type of an unknown class
            raise ConfigError(f"this Spark session has no Kafka source: give spark-submit {_JARS}")
        with self._errors():
            self._admin = admin.AdminClient.create(properties)
        patience_s = int(options.get("default.api.timeout.ms", _PATIENCE_MS)) / 1000
        _log.info("connecting to %s, for up to %g s", self._servers, patience_s)

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_error: object) -> None:
        self._admin.close()

    def topic(self, name: str) -> LiveTopic:
        """The topic as it is now. Raises InputError if there is none, StoreError."""
        topic_id, partitions = self._description(name)
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
        starts = self._offsets(name, partitions, spec.earliest())
        ends = self._offsets(name, partitions, spec.latest())
        return LiveTopic(name, topic_id, {p: (starts[p], ends[p]) for p in range(partitions)})

    def topic_id(self, name: str) -> str:
        """The id of a topic. Raises InputError if there is none, StoreError."""
        return self._description(name)[0]

    def timestamp_type(self, name: str) -> str:
        """The topic's `message.timestamp.type`; CreateTime if this client may not ask."""
        config = self._jvm.org.apache.kafka.common.config.ConfigResource
        resource = config(config.Type.TOPIC, name)
        try:
            with self._errors():
                settings = self._admin.describeConfigs([resource]).all().get().get(resource)
        except StoreError:
            return "CreateTime"
        return str(settings.get("message.timestamp.type").value())

    def committed(self, group: str, name: str) -> dict[int, GroupOffset]:
        """What a group has committed for a topic, by partition. Raises StoreError."""
        with self._errors(name):
            listed = self._admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()
            offsets = listed.get()
        return {
            int(place.partition()): GroupOffset(int(each.offset()), str(each.metadata()))
            for place, each in ((entry.getKey(), entry.getValue()) for entry in offsets.entrySet())
            if each is not None and place.topic() == name
        }

    def record(self, name: str, partition: int, offset: int) -> LiveRecord:
        """One record of a topic. Raises StoreError if the broker does not send it."""
        classes = self._jvm.org.apache.kafka.common
        properties = self._jvm.java.util.Properties()
        for key, value in {**self._options, "isolation.level": "read_committed"}.items():
            properties.setProperty(key, value)
        plain = classes.serialization.ByteArrayDeserializer()
        consumer = self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(
            properties, plain, plain
        )
        place = classes.TopicPartition(name, partition)
        try:
            with self._errors(name):
                consumer.assign([place])
                consumer.seek(place, offset)
                return _first(self._polled(consumer, place), f"offset {offset} of {place}")
        finally:
            consumer.close()

    def _polled(self, consumer: Any, place: Any) -> Iterator[Any]:
        for _ in range(_POLLS):
            yield from consumer.poll(self._jvm.java.time.Duration.ofSeconds(1)).records(place)

    def _description(self, name: str) -> tuple[str, int]:
        with self._errors(name):
            description = self._admin.describeTopics([name]).allTopicNames().get().get(name)
        return str(description.topicId().toString()), int(description.partitions().size())

    def _offsets(self, name: str, partitions: int, spec: Any) -> dict[int, int]:
        common = self._jvm.org.apache.kafka.common
        places = [common.TopicPartition(name, number) for number in range(partitions)]
        specs = self._jvm.java.util.HashMap()
        for place in places:
            specs.put(place, spec)
        committed = self._jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(
            common.IsolationLevel.READ_COMMITTED
        )
        with self._errors(name):
            offsets = self._admin.listOffsets(specs, committed).all().get()
        return {place.partition(): int(offsets.get(place).offset()) for place in places}

    @contextmanager
    def _errors(self, topic: str = "") -> Iterator[None]:
        """Kafka's errors as Seglake's."""
        with extra("spark", "an archive"):
            from py4j.protocol import Py4JJavaError  # noqa: PLC0415  # it may be missing
        try:
            yield
        except Py4JJavaError as error:
            cause = error.java_exception.getCause() or error.java_exception
            kind = cause.getClass().getSimpleName()
            if kind in _UNKNOWN:
                raise InputError(
                    f"the broker at {self._servers} has no topic {topic!r}: correct the name; what "
                    "the lake has of it stays"
                ) from None
            words = f"{kind}: {cause.getMessage()}{UNREACHABLE if kind in _SILENT else ''}"
            raise StoreError(f"the broker at {self._servers} did not answer: {words}") from None


def _first(records: Iterator[Any], what: str) -> LiveRecord:
    record = next(records, None)
    if record is None:
        raise StoreError(f"the broker does not send the record at {what}: run again")
    headers = [(str(each.key()), _bytes(each.value())) for each in record.headers().toArray()]
    kind = int(record.timestampType().ordinal()) - 1  # its id, a field, which py4j does not get
    return LiveRecord(
        int(record.timestamp()), kind, _bytes(record.key()), _bytes(record.value()), headers
    )


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)
