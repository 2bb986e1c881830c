"""How far a replay got, and where its records stand: its topic is searched for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from seglake.errors import StoreError

NAME_HEADER, OFFSET_HEADER = "seglake.replay", "seglake.offset"

CONSUMER = {
    "group.id": "seglake-replay", "enable.auto.commit": False, "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",  # where the broker has deleted what a search begins with
}  # fmt: skip

_NEW_LEADER = {  # answers of one, or about one: of a new topic, or after a broker has died
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH,
}  # fmt: skip
_FIRST_SEARCH = 1000  # offsets at a partition's end; each further search has four times as many
_PAUSE_S = 0.2  # between two requests


class OffsetSearch(NamedTuple):
    """Offsets [start, end) of a partition to search; its log starts at `low`."""

    low: int
    start: int
    end: int

    @classmethod
    def before(cls, low: int, end: int, size: int) -> OffsetSearch:
        """The last `size` offsets below `end`."""
        return cls(low, max(low, end - size), end)


class Replayed(NamedTuple):
    """A record of a replay: its offset in the topic, and that in the lake."""

    partition: int
    place: int
    lake_offset: int


class Progress:
    """Searches a topic from its end backwards for records of a replay."""

    def __init__(self, topic: str, admin: AdminClient, consumer: Consumer, patience_s: float):
        self._topic, self._admin, self._consumer = topic, admin, consumer
        self._patience_s = patience_s

    def of(self, name: str, partitions: Collection[int]) -> dict[int, int]:
        """The offset in the lake of the replay's last record, by partition that has one.

        Raises StoreError if a transaction of another producer stays open: records behind its begin
        cannot be read yet, and the replay would send them again.
        """
        offsets = dict[int, int]()

        def look(searches: Mapping[int, OffsetSearch]) -> Collection[int]:
            offsets.update((each.partition, each.lake_offset) for each in self._in(name, searches))
            return offsets

        self._backwards(partitions, look)
        return offsets

    def places(
        self, name: str, bounds: Mapping[int, Collection[int]]
    ) -> dict[tuple[int, int], int]:
        """Where the replay's first records at or above offsets of the lake stand in the topic.

        `bounds` has the offsets in the lake, by partition; the answer has the offsets in the topic,
        by partition and offset in the lake. If there is no such record, it is the offset behind the
        replay's last one; a partition without any is left out. Raises StoreError as `of` does.
        """
        places = dict[tuple[int, int], int]()

        def look(searches: Mapping[int, OffsetSearch]) -> Collection[int]:
            first, done = dict[tuple[int, int], int](), set[int]()
            last = dict[int, int]()
            for partition, place, lake_offset in self._in(name, searches):
                last[partition] = place
                for bound in bounds[partition]:
                    if lake_offset >= bound:
                        first.setdefault((partition, bound), place)
                if lake_offset <= min(bounds[partition]):
                    done.add(partition)  # all that comes before lies lower
            places.update(first)
            for partition, place in last.items():
                for bound in bounds[partition]:
                    places.setdefault((partition, bound), place + 1)
            return done

        self._backwards([partition for partition, offsets in bounds.items() if offsets], look)
        return places

    def _backwards(
        self,
        partitions: Collection[int],
        look: Callable[[Mapping[int, OffsetSearch]], Collection[int]],
    ) -> None:
        """Have `look` search stretches from the ends on; it returns the partitions it has done."""
        ends = self._ends(partitions)
        lows = self._offsets(partitions, OffsetSpec.earliest(), IsolationLevel.READ_COMMITTED)
        size = _FIRST_SEARCH
        searches = {p: OffsetSearch.before(lows[p], ends[p], size) for p in partitions}
        while searches := {p: each for p, each in searches.items() if each.start < each.end}:
            done = look(searches)
            size *= 4
            searches = {
                p: OffsetSearch.before(each.low, each.start, size)
                for p, each in searches.items()
                if p not in done
            }

    def _ends(self, partitions: Collection[int]) -> dict[int, int]:
        """The ends of the partitions, when all before them can be read.

        The last stable offset is asked for after the end: what others write in between moves both.
        It passes the end when the transactions that were open then have ended.
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
                    f"partition {behind[0]} of topic {self._topic!r} has a transaction of another"
                    f" producer open at offset {stable[behind[0]]}: try again when it has ended"
                )
            time.sleep(_PAUSE_S)

    def _offsets(
        self, partitions: Iterable[int], spec: OffsetSpec, level: IsolationLevel
    ) -> dict[int, int]:
        asked: Any = {TopicPartition(self._topic, p): spec for p in partitions}
        deadline = time.monotonic() + self._patience_s
        while True:
            futures = self._admin.list_offsets(asked, isolation_level=level)
            try:
                return {
                    where.partition: future.result(self._patience_s).offset
                    for where, future in futures.items()
                }
            except KafkaException as error:
                if error.args[0].code() not in _NEW_LEADER or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_S)

    def _in(self, name: str, searches: Mapping[int, OffsetSearch]) -> Iterator[Replayed]:
        """The replay's records in these stretches; of a partition in the order of the topic."""
        self._consumer.assign(
            [TopicPartition(self._topic, p, each.start) for p, each in searches.items()]
        )
        left, quiet_since = set(searches), time.monotonic()
        while left:
            if time.monotonic() - quiet_since > self._patience_s:
                raise StoreError(f"topic {self._topic!r}: the broker sends no records")
            for message in self._consumer.consume(500, timeout=_PAUSE_S):
                quiet_since, partition = time.monotonic(), message.partition()
                if partition not in left:
                    continue
                place = message.offset() or 0
                if _is_end(message) or place >= searches[partition].end:
                    left.discard(partition)
                elif (offset := _lake_offset(message, name)) is not None:
                    yield Replayed(partition, place, offset)


def _is_end(message: Message) -> bool:
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  # its name
        raise KafkaException(error)
    return error is not None


def _lake_offset(message: Message, name: str) -> int | None:
    """The offset of a record in the lake, if the record is one of the replay's."""
    headers: dict[str, Any] = dict(message.headers() or [])  # of equal names the last counts
    if headers.get(NAME_HEADER) != name.encode():
        return None
    try:
        return int(headers[OFFSET_HEADER])
    except (KeyError, TypeError, ValueError):
        return None
