"""One version of the lake in memory: which segments every log partition has, ready for searching.

A snapshot holds NumPy columns and no path: a segment's keys follow from its row (`seglake.layout`).
That is 74 bytes a segment, and 16 for each attempt that wrote to a log partition. It never changes;
a newer version shares every log partition that did not.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seglake import layout
from seglake.catalog.rows import DataFile, PartitionRow, TopicRow
from seglake.errors import CorruptData, UnknownTopic
from seglake.format import compression
from seglake.layout import SegmentFile, Suffix

Int64s = npt.NDArray[np.int64]

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")  # at the value of the attribute bit of a batch

# What a reader needs once it has chosen a segment; the order of sizes is SUFFIXES'. Checksums of
# files stay in the table: what a reader reads has checksums of its own.
DETAILS = np.dtype(
    [
        ("record_count", "i4"),
        ("relative_offset_of_max", "i4"),  # -1: no record has a timestamp
        ("sizes", "i4", (4,)),
        ("attempts", "i4", (2,)),  # of the log and of its index files: rows of Segments.attempts
        ("codec", "i1"),
        ("timestamp_type", "i1"),
    ]
)

ATTEMPT = np.dtype("V16")


class Segments(NamedTuple):
    """n segments of one log partition as columns, in the order of base offsets."""

    base_offsets: Int64s
    end_offsets: Int64s
    min_timestamps: Int64s
    max_timestamps: Int64s
    details: npt.NDArray[np.void]  # of dtype DETAILS
    attempts: npt.NDArray[np.void]  # the UUIDs that details name, each as 16 bytes

    @staticmethod
    def none() -> Segments:
        """No segment."""
        empty = np.empty(0, np.int64)
        return Segments(empty, empty, empty, empty, np.empty(0, DETAILS), np.empty(0, ATTEMPT))

    def take(self, order: npt.NDArray[np.intp] | slice) -> Segments:
        """The segments at the positions `order`."""
        columns: list[Any] = [column[order] for column in self[:-1]]
        columns.append(self.attempts)
        return Segments(*columns)

    def without(self, base_offsets: Int64s) -> Segments:
        """These segments but for those that begin at one of `base_offsets`."""
        return self.take(np.flatnonzero(~np.isin(self.base_offsets, base_offsets)))

    def followed_by(self, others: Segments) -> Segments:
        """These segments and `others`, in the order of base offsets."""
        columns: list[Any] = [np.concatenate(pair) for pair in zip(self, others, strict=True)]
        codes = columns[-2]["attempts"]
        codes[len(self.details) :] += len(self.attempts)
        used, new_codes = np.unique(codes, return_inverse=True)
        codes[:], columns[-1] = new_codes.reshape(-1, 2), columns[-1][used]
        both = Segments(*columns)
        if np.all(both.base_offsets[1:] > both.base_offsets[:-1]):
            return both
        return both.take(np.argsort(both.base_offsets, kind="stable"))


@dataclass(frozen=True)
class Segment:
    """One segment, with what is needed to find, check and read its files. Times are in ms."""

    topic: str
    partition: int
    attempt_id: str
    index_attempt_id: str
    base_offset: int
    end_offset: int
    record_count: int
    min_timestamp: int
    max_timestamp: int
    offset_of_max_timestamp: int
    timestamp_type: str
    codec: str
    sizes: dict[Suffix, int]

    def key(self, suffix: Suffix) -> str:
        """The key of one of the four files."""
        attempt_id = self.attempt_id if suffix == "log" else self.index_attempt_id
        return layout.segment_key(
            SegmentFile(self.topic, self.partition, attempt_id, self.base_offset, suffix)
        )


@dataclass(frozen=True, eq=False)
class PartitionView:
    """A log partition; its segments cover log_start_offset to end_offset (exclusive) without hole.

    Its length is the number of its segments, which may be 0.

    The first segment may begin below the log start offset: the records before it are deleted.
    `sequence` is that of the partition row which holds, 0 if there is none.
    """

    topic: str
    partition: int
    segments: Segments
    log_start_offset: int = 0
    next_offset: int = 0
    sequence: int = 0

    def __len__(self) -> int:
        return len(self.segments.base_offsets)

    @property
    def end_offset(self) -> int:
        """The offset that the next record will get."""
        ends = self.segments.end_offsets
        return max(self.next_offset, int(ends[-1]) if len(ends) else 0)

    @cached_property
    def running_max_timestamps(self) -> Int64s:
        """Largest timestamp in each segment and all before it: ascending, so it can be searched."""
        return np.maximum.accumulate(self.segments.max_timestamps)

    def index_of(self, offset: int) -> int:
        """Which segment covers `offset`; it must lie in the log."""
        return int(np.searchsorted(self.segments.base_offsets, offset, "right")) - 1

    def first_reaching(self, timestamp: int) -> int:
        """The first segment with a record at `timestamp` or later; len(self) if none has."""
        return int(np.searchsorted(self.running_max_timestamps, timestamp, "left"))

    def segment(self, index: int) -> Segment:
        """The segment at a position, counted from 0."""
        base, end, smallest, largest, details = (column[index] for column in self.segments[:-1])
        ids = self.segments.attempts[details["attempts"]]
        relative = int(details["relative_offset_of_max"])
        return Segment(
            topic=self.topic,
            partition=self.partition,
            attempt_id=str(uuid.UUID(bytes=ids[0].tobytes())),
            index_attempt_id=str(uuid.UUID(bytes=ids[1].tobytes())),
            base_offset=int(base),
            end_offset=int(end),
            record_count=int(details["record_count"]),
            min_timestamp=int(smallest),
            max_timestamp=int(largest),
            offset_of_max_timestamp=int(base) + relative if relative >= 0 else -1,
            timestamp_type=TIMESTAMP_TYPES[details["timestamp_type"]],
            codec=compression.NAMES[details["codec"]],
            sizes=dict(zip(layout.SUFFIXES, details["sizes"].tolist(), strict=True)),
        )

    def changed(
        self, segments: Segments | None = None, row: PartitionRow | None = None
    ) -> PartitionView:
        """This log partition with all its segments exchanged, or with a newer partition row."""
        kept = self.segments if segments is None else segments
        if row is None or row.sequence <= self.sequence:
            row = PartitionRow(
                topic=self.topic,
                partition=self.partition,
                sequence=self.sequence,
                log_start_offset=self.log_start_offset,
                next_offset=self.next_offset,
            )
        bounds = (row.log_start_offset, row.next_offset, row.sequence)
        return PartitionView(self.topic, self.partition, kept, *bounds)

    def check(self) -> PartitionView:
        """This view, if its segments cover the log without hole or overlap; else CorruptData."""
        bases, ends = self.segments.base_offsets, self.segments.end_offsets
        start, end = self.log_start_offset, self.end_offset
        if start > end:
            raise self._damage(f"the log would start at {start}, after its end {end}")
        if not len(self) and start == end:
            return self
        if np.any(ends <= bases):
            raise self._damage(f"the segment at {bases[ends <= bases][0]} covers nothing")
        covered, wanted = np.append(min(start, *bases[:1], end), ends), np.append(bases, end)
        for wrong in np.flatnonzero(covered != wanted)[:1]:
            kind = "no segment covers" if covered[wrong] < wanted[wrong] else "two segments cover"
            low, high = sorted((covered[wrong], wanted[wrong]))
            raise self._damage(f"{kind} offsets {low} to {high}")
        if ends[0] <= start:
            raise self._damage(f"a segment ends at {ends[0]}, before the log start {start}")
        return self

    def _damage(self, what: str) -> CorruptData:
        return CorruptData(f"{self.topic}-{self.partition}: {what}", file=layout.LOG_TABLE)


_NOTHING: Mapping[tuple[str, int], Any] = MappingProxyType({})


class Snapshot:
    """One version of the catalog; `files` are the data files of the table it was read from."""

    def __init__(
        self,
        version: int,
        files: frozenset[DataFile],
        topics: Mapping[str, TopicRow],
        partitions: Mapping[tuple[str, int], PartitionView],
    ) -> None:
        self.version, self.files = version, files
        self._topics, self._partitions = dict(topics), dict(partitions)

    def topics(self) -> list[TopicRow]:
        """The settings that hold for each topic, in the order of names."""
        return [self._topics[name] for name in sorted(self._topics)]

    def topic(self, topic: str) -> TopicRow:
        """The settings that hold for a topic; UnknownTopic if there is none."""
        if topic not in self._topics:
            raise UnknownTopic(f"topic {topic!r} is not in version {self.version} of the lake")
        return self._topics[topic]

    def partition(self, topic: str, partition: int) -> PartitionView:
        """A log partition, which may have no segment yet; UnknownTopic if the topic has it not."""
        count = self.topic(topic).partitions
        if not 0 <= partition < count:
            raise UnknownTopic(f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}")
        found = self._partitions.get((topic, partition))
        return PartitionView(topic, partition, Segments.none()) if found is None else found

    def partitions(self, topic: str) -> list[PartitionView]:
        """Every log partition of a topic, by number."""
        return [self.partition(topic, number) for number in range(self.topic(topic).partitions)]

    def with_rows(
        self,
        version: int,
        files: frozenset[DataFile],
        *,
        topics: Iterable[TopicRow] = (),
        partitions: Iterable[PartitionRow] = (),
        added: Mapping[tuple[str, int], Segments] = _NOTHING,
        removed: Mapping[tuple[str, int], Int64s] = _NOTHING,
    ) -> Snapshot:
        """A newer version with these rows; log partitions that none of them touches are shared.

        `added` and `removed` are segments and base offsets of segments, by (topic, partition).
        Raises CorruptData if a log partition then has a hole or an overlap, or no topic.
        """
        newest = dict(self._topics)
        for topic in sorted(topics, key=lambda row: row.sequence):
            if topic.topic not in newest or newest[topic.topic].sequence < topic.sequence:
                newest[topic.topic] = topic
        result = Snapshot(version, files, newest, self._partitions)
        names = {*added, *removed, *((row.topic, row.partition) for row in partitions)}
        views = {name: result._known(*name) for name in names}
        for name, base_offsets in removed.items():
            views[name] = views[name].changed(views[name].segments.without(base_offsets))
        for name, segments in added.items():
            views[name] = views[name].changed(views[name].segments.followed_by(segments))
        for row in partitions:
            views[row.topic, row.partition] = views[row.topic, row.partition].changed(row=row)
        result._partitions |= {name: view.check() for name, view in views.items()}
        return result

    def _known(self, topic: str, partition: int) -> PartitionView:
        try:
            return self.partition(topic, partition)
        except UnknownTopic as error:
            raise CorruptData(str(error), file=layout.LOG_TABLE) from error


EMPTY = Snapshot(-1, frozenset(), {}, {})
