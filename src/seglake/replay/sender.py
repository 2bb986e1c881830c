"""Records on their way to a real Kafka, in transactions (KIP-98)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from seglake.errors import StoreError, UsageError
from seglake.replay.progress import NAME_HEADER, OFFSET_HEADER

_PATIENCE_S = 30.0
_FENCED = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}


class Sender:
    """Writes records of the replay `name`; made by `Target.sender`."""

    def __init__(self, producer: Producer, topic: str, name: str) -> None:
        self._producer, self._topic, self._name = producer, topic, name
        self._headers = [(NAME_HEADER, name.encode())]
        self._begun: float | None = None  # of the open transaction
        self._refused: str | None = None

    @property
    def open_s(self) -> float:
        """For how many seconds a transaction has been open; 0 if none is."""
        return 0.0 if self._begun is None else time.monotonic() - self._begun

    def send(self, partition: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Hand records to the client's library; `commit` waits until they have arrived.

        Raises UsageError for a record that the topic does not take, StoreError.
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
                    f"the record at offset {row['offset']} of partition {partition} is larger than"
                    f" topic {self._topic!r} takes: raise its max.message.bytes"
                ) from error
            else:
                return

    def commit(self) -> None:
        """Make what was sent visible, all or nothing; does nothing if nothing was sent."""
        while self._begun is not None:
            try:
                self._producer.commit_transaction(_PATIENCE_S)
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
            return StoreError(f"another replay {self._name!r} has taken over; this one ends")
        return StoreError(
            f"records of topic {self._topic!r} were not taken: {self._refused or cause.str()};"
            " run it again, and it goes on where it committed"
        )

    def _cause(self, error: KafkaException) -> KafkaError:
        """The error behind librdkafka's "fatal error": `poll` raises it."""
        cause: KafkaError = error.args[0]
        try:
            self._producer.poll(0)
        except KafkaException as fatal:
            cause = fatal.args[0]
        return cause
