"""A partition with only the records that have one key, at their own offsets.

It begins and ends as the partition that it is made of, so that it looks to clients as a compacted
log does. Where keys choose the partition, only some partitions are searched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from seglake.catalog.quarantine.gone import ERASE
from seglake.format.index import RECORD_KEYS
from seglake.format.key_hashes import hashes_of_keys
from seglake.log.blocks.search import OffsetAndTimestamp
from seglake.log.piece import Window
from seglake.read.lake import Lake
from seglake.read.log import Log
from seglake.read.window.find import homes
from seglake.read.window.search_blocks import SearchBlocks
from seglake.serve.records.sought import SoughtRecords
from seglake.serve.records.taking import Run
from seglake.serve.topics.partition import ServedPartition

_OWN_BYTES = 2000  # of a partition: its objects


class KeyOfTopic(NamedTuple):
    """A key, and the partitions of a topic that may hold it."""

    text: bytes
    homes: frozenset[int]

    @staticmethod
    def of(key: bytes, log: Log) -> KeyOfTopic:
        """The key in a topic. May read the catalog. Raises VersionExpired and StoreError."""
        return KeyOfTopic(key, frozenset(homes([key], log.partition_counts(), log.partitions())))


def last_erasure(lake: Lake, topic: str) -> str:
    """A text that another erasure in a topic changes; "" if there was none."""
    rows = [row for row in lake.maintenance(topic) if row.operation == ERASE]
    return f"{len(rows)} {rows[-1].attempt_id}" if rows else ""


def keys_without_records(log: Log, keys: Collection[bytes]) -> set[bytes]:
    """Those of the keys that no record of a log has."""
    left = {*keys}
    for batch in log.find(keys=[*keys], columns=["key"]):
        left.difference_update(batch["key"].unique().to_pylist())
        if not left:
            break
    return left


class KeyPartitions(Sequence[ServedPartition]):
    """The partitions of a topic for one key, each made when it is first asked for."""

    def __init__(
        self, whole: Sequence[ServedPartition], log: Log, window: Window, key: KeyOfTopic
    ) -> None:
        self._whole, self._log, self._window, self._key = whole, log, window, key
        self._made = dict[int, ServedPartition]()

    def __len__(self) -> int:
        return len(self._whole)

    def __getitem__(self, number: Any) -> Any:
        whole = self._whole[number]
        if number not in self._made:
            key, _ = self._key
            reader = self._log.reader(number)
            blocks = SearchBlocks.of(reader, self._window, {RECORD_KEYS: hashes_of_keys([key])})
            sought = SoughtRecords(key, blocks, number not in self._key.homes)
            self._made[number] = KeyPartition(whole, sought)
        return self._made[number]


class KeyPartition:
    """The records of a partition with one key; `whole` is that partition, or a window of it."""

    remote = True  # its records are in memory, and lookups wait for a search

    def __init__(self, whole: ServedPartition, sought: SoughtRecords) -> None:
        self._whole, self.sought = whole, sought
        self.start, self.held_bytes = whole.start, whole.held_bytes + _OWN_BYTES

    def end(self) -> int:
        """See `ServedPartition`."""
        return self._whole.end()

    def grows_in(self) -> float | None:
        """See `ServedPartition`."""
        return self._whole.grows_in()

    def runs(self, offset: int) -> Iterator[Run]:
        """See `ServedPartition`."""
        return self._whole.runs(offset)

    def at_time(self, timestamp: int) -> OffsetAndTimestamp | None:
        """See `ServedPartition`."""
        return self._whole.at_time(timestamp)

    def max_timestamp(self) -> OffsetAndTimestamp | None:
        """See `ServedPartition`."""
        return self._whole.max_timestamp()

    def log_bytes(self) -> int:
        """See `ServedPartition`; what is searched."""
        return self._whole.log_bytes()
