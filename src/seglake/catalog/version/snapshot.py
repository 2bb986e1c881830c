"""Keep one version of the lake in memory, with the segments of every log partition.

A snapshot has NumPy columns and no paths, because object keys follow from the columns. It takes 80
bytes for each segment, and 16 bytes for each attempt. A newer snapshot shares every log partition
that did not change, and the columns of every log partition that grew (see `segments`). The rows of
a topic may be read only when they are first needed. The content of a snapshot never changes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from seglake import layout
from seglake.cached import cached_property
from seglake.catalog.delta.data_files import DataFile
from seglake.catalog.schema import PartitionRow, TopicRow, WithSegmentId
from seglake.catalog.version.segments import Segments
from seglake.compile.locks import fork_safe_lock
from seglake.errors import CorruptData, SeglakeError, UnknownTopic, UsageError
from seglake.format.batch import TIMESTAMP_TYPES
from seglake.format.codecs import compression
from seglake.format.records import Int64s, fixed
from seglake.layout import Suffix
from seglake.terminal.wording import nearest


@dataclass(frozen=True)
class Segment(WithSegmentId):
    """The properties of a segment that a reader needs to find, check and read its files.

    Timestamps are in ms, and `end_offset` is exclusive. `sizes` are in bytes, and 0 for a file
    that does not exist.
    """

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
    external: bool
    keyindex_kinds: int  # bit k: the key index has a subject of kind k


@dataclass(frozen=True, eq=False)
class PartitionView:
    """A log partition in one version of the catalog. Immutable.

    Its segments cover `log_start_offset` to `end_offset` (exclusive) without a hole. Its length is
    the number of segments, which may be 0. The first segment may begin below the log start offset.
    Its records before that offset are deleted. `next_offset` and the fields after it come from the
    newest partition row. Without such a row, they are 0 or None.
    """

    topic: str
    partition: int
    segments: Segments
    log_start_offset: int = 0
    next_offset: int = 0
    sequence: int = 0
    last_append_time_ms: int | None = None
    cleaned_offset: int | None = None
    leader_epoch: int | None = None

    def __len__(self) -> int:
        return self.segments.size

    @property
    def log_bytes(self) -> int:
        """Return the total size of the segments' logs in bytes."""
        return int(self.segments.details["sizes"][:, 0].sum(dtype=np.int64))

    @property
    def end_offset(self) -> int:
        """Return the offset that the next record will get."""
        ends = self.segments.end_offsets
        return max(self.next_offset, int(ends[-1]) if len(ends) else 0)

    @cached_property
    def record_counts(self) -> Int64s:
        """Return, for each segment, the number of records at or above the log start.

        If the log starts in a segment with gaps, the count of this segment is an upper bound.
        """
        counts: Int64s = self.segments.details["record_count"]
        if not len(self) or self.log_start_offset <= self.segments.base_offsets[0]:
            return counts
        first = self.segment(0)
        if first.record_count < first.end_offset - first.base_offset:
            return counts
        return np.concatenate([[first.end_offset - self.log_start_offset], counts[1:]])

    @property
    def record_count(self) -> int:
        """Return the number of records at or above the log start, or an upper bound.

        The number is an upper bound if the log starts in a segment with gaps.
        """
        return int(self.record_counts.sum())

    @property
    def cleaned_end(self) -> int:
        """Return the offset below which compaction has cleaned the log, or 0 if it never ran."""
        return self.cleaned_offset or 0

    @property
    def largest_timestamp(self) -> int:
        """Return the largest timestamp of all records, or -1 if no record has one.

        Under LogAppendTime this includes deleted records.
        """
        live = int(self.segments.max_timestamps.max()) if len(self) else -1
        return live if self.last_append_time_ms is None else max(live, self.last_append_time_ms)

    @cached_property
    def running_max_timestamps(self) -> Int64s:
        """Return, for each segment, the largest timestamp in it and in all earlier segments.

        The values never decrease, so they can be searched by bisection.
        """
        shared = self.segments.append_buffer
        if shared is None:
            return np.maximum.accumulate(self.segments.max_timestamps)
        return shared.running_max_timestamps(len(self))

    @cached_property
    def extents(self) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        """Return base offsets, end offsets, smallest and largest timestamps as `fixed` arrays."""
        bases, ends, lows, highs = map(fixed, self.segments[:4])
        return bases, ends, lows, highs

    def index_of(self, offset: int) -> int:
        """Return the position of the segment that covers `offset`, which must be in the log."""
        return int(np.searchsorted(self.segments.base_offsets, offset, "right")) - 1

    def segment(self, index: int) -> Segment:
        """Return the segment at a position, counted from 0."""
        base, end, smallest, largest, details = (column[index] for column in self.segments.columns)
        log, indexes = map(self.segments.attempts.name, details["attempts"].tolist())
        relative = int(details["relative_offset_of_max"])
        return Segment(
            topic=self.topic,
            partition=self.partition,
            attempt_id=log,
            index_attempt_id=indexes,
            base_offset=int(base),
            end_offset=int(end),
            record_count=int(details["record_count"]),
            min_timestamp=int(smallest),
            max_timestamp=int(largest),
            offset_of_max_timestamp=int(base) + relative if relative >= 0 else -1,
            timestamp_type=TIMESTAMP_TYPES[details["timestamp_type"]],
            codec=compression.NAMES[details["codec"]],
            sizes=dict(zip(layout.ALL_SUFFIXES, details["sizes"].tolist(), strict=True)),
            external=bool(details["external"]),
            keyindex_kinds=int(details["keyindex_kinds"]),
        )

    def next_row(self, log_start_offset: int, cleaned_offset: int | None = None) -> PartitionRow:
        """Return the next partition row, with a log start and maybe a new `cleaned_offset`."""
        return PartitionRow(
            topic=self.topic,
            partition=self.partition,
            sequence=self.sequence + 1,
            log_start_offset=log_start_offset,
            next_offset=self.end_offset,
            cleaned_offset=cleaned_offset,
        )

    def changed(
        self,
        row: PartitionRow | None = None,
        added: Segments | None = None,
        removed: Int64s | None = None,
    ) -> PartitionView:
        """Return the view of this log partition in a newer version.

        `row` is a newer partition row, and is ignored unless its sequence is higher. `added` are
        the new segments, and `removed` the base offsets of the removed segments. Raises CorruptData
        if the segments of the result have a hole or an overlap.
        """
        segments = self.segments
        bounds: dict[str, Any] = {}
        if row is not None and row.sequence > self.sequence:
            bounds = {name: getattr(row, name) for name in _BOUNDS}
        if removed is not None:
            segments = segments.without(removed)
        if added is not None:
            segments = segments.followed_by(added)
        view = replace(self, segments=segments, **bounds)
        same = removed is None and not bounds and segments.starts_with(self.segments)
        return view.check(len(self) if same else 0)

    def end(self) -> PartitionView:
        """Return a view with only the last segment, which is enough to check an append."""
        last = self.segments.take(slice(-1, None))
        start = max(self.log_start_offset, *last.base_offsets.tolist(), 0)
        return replace(self, segments=last, log_start_offset=start)

    def ending(self, row: PartitionRow | None, segments: Segments | None) -> PartitionView:
        """Return a view with only the last of `segments`, and the bounds of `row`."""
        bounds = {} if row is None else {name: getattr(row, name) for name in _BOUNDS}
        view = replace(self, segments=self.segments if segments is None else segments, **bounds)
        return view.end().check()

    def check(self, checked: int = 0) -> PartitionView:
        """Return this view. Raises CorruptData if its segments have a hole or an overlap.

        The first `checked` segments are skipped, because they were checked with the same log start.
        """
        first, start, end = max(0, checked - 1), self.log_start_offset, self.end_offset
        bases, ends = self.segments.base_offsets[first:], self.segments.end_offsets[first:]
        if first:
            start = int(bases[0])
        if start > end:
            raise self._damage(f"the log would start at {start}, after its end {end}")
        if not len(self) and start == end:
            return self
        if np.any(ends <= bases):
            raise self._damage(f"the segment at {bases[ends <= bases][0]} covers no offsets")
        covered, begins = np.append(min(start, *bases[:1], end), ends), np.append(bases, end)
        for wrong in np.flatnonzero(covered != begins)[:1]:
            kind = "no segment covers" if covered[wrong] < begins[wrong] else "two segments cover"
            low, high = sorted((covered[wrong], begins[wrong]))
            raise self._damage(f"{kind} offsets {low} to {high}")
        if ends[0] <= start:
            raise self._damage(f"a segment ends at {ends[0]}, before the log start {start}")
        return self

    def _damage(self, what: str) -> CorruptData:
        return CorruptData(f"{self.topic}-{self.partition}: {what}", file=layout.LOG_TABLE)


_BOUNDS = (
    "log_start_offset", "next_offset", "sequence", "last_append_time_ms", "cleaned_offset",
    "leader_epoch",
)  # fmt: skip
_NOTHING: Mapping[tuple[str, int], Any] = MappingProxyType({})


class UnreadTopics:
    """The topics of a version whose rows are not read yet.

    `files` are the data files of these topics. `read` is called with the data files of some of the
    topics, and must return a snapshot of the version with only these topics.
    """

    def __init__(
        self, files: Iterable[DataFile], read: Callable[[frozenset[DataFile]], Snapshot]
    ) -> None:
        self._files: dict[str, list[DataFile]] = {}
        for file in files:
            self._files.setdefault(file.topic, []).append(file)
        self._read = read

    def __contains__(self, topic: str) -> bool:
        return topic in self._files

    def names(self) -> list[str]:
        """Return the names of the topics, including topics without a topic row."""
        return list(self._files)

    def topics(self) -> list[str]:
        """Return the names of the topics that have a topic row. Only these topics exist."""
        files = list(self._files.items())
        return [name for name, mine in files if any(file.kind == "topic" for file in mine)]

    def following(self, topic: str, count: int) -> list[str]:
        """Return a topic, and at most `count` topics that follow it by name."""
        return [topic, *heapq.nsmallest(count, (name for name in self._files if name > topic))]

    def read(self, topics: Iterable[str]) -> Snapshot:
        """Load a snapshot of the version with only these topics."""
        return self._read(frozenset(file for name in topics for file in self._files[name]))

    def forget(self, topics: Iterable[str]) -> None:
        """Remove topics that have been read."""
        for topic in topics:
            del self._files[topic]


class Snapshot:
    """One version of the catalog in memory. Thread-safe.

    `files` are the data files of the version. If `ends_of` is a topic, the log partitions of this
    topic have only their last segment.

    The rows of `unread` topics are read when a method needs them. A method that reads a topic also
    raises VersionExpired, CorruptData and StoreError. The first and the second such topic are read
    one at a time. A later topic is read together with topics that follow by name, so that each read
    doubles the number of topics in memory. So a caller that uses one topic reads only this topic,
    and a caller that uses all topics waits for storage only a few times.
    """

    def __init__(
        self,
        version: int,
        files: frozenset[DataFile],
        topics: Mapping[str, TopicRow],
        partitions: Mapping[tuple[str, int], PartitionView],
        unread: UnreadTopics | None = None,
        ends_of: str | None = None,
    ) -> None:
        self.version, self.files, self.ends_of = version, files, ends_of
        self._topics, self._partitions = dict(topics), dict(partitions)
        self._unread, self._lock = unread or UnreadTopics((), lambda _: EMPTY), fork_safe_lock()

    def unread(self) -> set[str]:
        """Return the topics whose rows are not read yet."""
        return set(self._unread.names())

    def read(self, topics: Iterable[str] | None = None) -> Snapshot:
        """Read the rows of `topics`, by default of all unread topics, and return this snapshot."""
        with self._lock:
            asked = self._unread.names() if topics is None else topics
            self._take([topic for topic in asked if topic in self._unread])
        return self

    def contents(self) -> tuple[Mapping[str, TopicRow], Mapping[tuple[str, int], PartitionView]]:
        """Return the topic rows and the log partitions that have been read so far."""
        return self._topics, self._partitions

    def _take(self, topics: list[str]) -> None:
        if not topics:
            return
        rows, partitions = self._unread.read(topics).contents()
        self._partitions |= partitions
        self._topics |= rows
        # Do this last, because a thread without the lock expects rows of a topic that is read.
        self._unread.forget(topics)

    def _topic_rows(self, topic: str) -> Mapping[str, TopicRow]:
        """Return the topic rows read so far, after reading `topic` if this version has it."""
        if topic not in self._unread:
            return self._topics
        with self._lock:
            if topic in self._unread:
                # Another topic may be damaged. Then read only this topic.
                with suppress(SeglakeError):
                    self._take(self._unread.following(topic, max(0, len(self._topics) - 1)))
                if topic in self._unread:
                    self._take([topic])
        return self._topics

    def names(self) -> list[str]:
        """Return the sorted names of all topics, without reading rows."""
        with self._lock:
            return sorted({*self._topics, *self._unread.topics()})

    def topics(self) -> list[TopicRow]:
        """Return the newest row of each topic, sorted by name."""
        self.read()
        return [self._topics[name] for name in sorted(self._topics)]

    def topic(self, topic: str) -> TopicRow:
        """Return the newest row of a topic. Raises UnknownTopic if it does not exist."""
        rows = self._topic_rows(topic)
        if topic not in rows:
            near = nearest(topic, self.names())
            hint = f". Did you mean {near[0]!r}?" if near else ""
            what = f"topic {topic!r} is not in version {self.version} of the lake{hint}"
            raise UnknownTopic(what)
        return rows[topic]

    def partition(self, topic: str, partition: int) -> PartitionView:
        """Return a log partition, which may have no segment yet.

        Raises UnknownTopic if the topic or the partition does not exist, and UsageError if
        `partition` is not an integer.
        """
        count = self.topic(topic).partitions
        if not isinstance(partition, int | np.integer):
            what = f"partition {partition!r} of topic {topic!r} is not a number"
            raise UsageError(f"{what}. Write it without quotes")
        if not 0 <= partition < count:
            raise UnknownTopic(f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}")
        view = self._partitions.get((topic, partition))
        return PartitionView(topic, partition, Segments.empty()) if view is None else view

    def find_topic(self, topic: str) -> TopicRow | None:
        """Return the newest row of a topic, or None if it does not exist."""
        return self._topic_rows(topic).get(topic)

    def find_partition(self, topic: str, partition: int) -> PartitionView | None:
        """Return a log partition, or None if it does not exist."""
        row = self.find_topic(topic)
        lacks = row is None or not 0 <= partition < row.partitions
        return None if lacks else self.partition(topic, partition)

    def find_partitions(self, topic: str) -> list[PartitionView]:
        """Return every log partition of a topic, by number, or [] if the topic does not exist."""
        return [] if self.find_topic(topic) is None else self.partitions(topic)

    def index_attempts(self, topic: str) -> set[str]:
        """Return the attempts that rebuilt index files of a topic for logs of other attempts."""
        names = set[str]()
        for view in self.partitions(topic):
            logs, indexes = view.segments.details["attempts"].T
            renewed = np.unique(indexes[indexes != logs]).tolist()
            names.update(map(view.segments.attempts.name, renewed))
        return names

    def partitions(self, topic: str) -> list[PartitionView]:
        """Return every log partition of a topic, by number. Raises UnknownTopic."""
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
        unread: UnreadTopics | None = None,
    ) -> Snapshot:
        """Return a newer version, which shares the log partitions that do not change.

        All rows must belong to topics that have been read.

        Args:
            version: The number of the newer version.
            files: The data files of the newer version.
            topics: New topic rows. For each topic, the row with the highest sequence is used.
            partitions: New partition rows. For each log partition, the row with the highest
                sequence is used.
            added: (Topic, partition) → new segments.
            removed: (Topic, partition) → base offsets of removed segments.
            unread: The topics of the newer version that are not read now.

        Raises:
            CorruptData: A changed log partition has a hole or an overlap, or has no topic.
        """
        newest = dict(self._topics)
        for topic in sorted(topics, key=lambda row: row.sequence):
            if topic.topic not in newest or newest[topic.topic].sequence < topic.sequence:
                newest[topic.topic] = topic
        rows: dict[tuple[str, int], PartitionRow] = {}
        for row in sorted(partitions, key=lambda row: row.sequence):
            rows[row.topic, row.partition] = row
        result = Snapshot(version, files, newest, self._partitions, unread)
        for name in {*rows, *added, *removed}:
            view = result._existing(*name)
            changed = view.changed(rows.get(name), added.get(name), removed.get(name))
            result._partitions[name] = changed
        return result

    def only(self, topic: str, partitions: Iterable[int] | None = None) -> Snapshot:
        """Return this version with only one topic.

        If `partitions` are passed, the result has only these log partitions, and only the last
        segment of each, which is enough to check an append.
        """
        settings = self.find_topic(topic)
        if settings is None:
            return Snapshot(self.version, self.files, {}, {})
        chosen = range(settings.partitions) if partitions is None else partitions
        named = ((topic, number) for number in chosen)
        views = {name: self._partitions[name] for name in named if name in self._partitions}
        if partitions is not None:
            views = {name: view.end() for name, view in views.items()}
        return Snapshot(self.version, self.files, {topic: settings}, views)

    def with_ends(
        self,
        topic: str,
        partitions: Iterable[PartitionRow],
        segments: Mapping[int, Segments],
        largest_ms: int,
    ) -> Snapshot:
        """Return this version with the last segment of each log partition of one topic.

        Args:
            topic: The topic. This version must not have its log partitions yet.
            partitions: All partition rows of the topic.
            segments: Partition → segments, with the last segment of the log partition among them.
            largest_ms: The largest timestamp (ms) of all segments of the topic, or -1.

        Raises:
            CorruptData: A log partition has no topic, or its last segment is missing.
        """
        rows = {row.partition: row for row in sorted(partitions, key=lambda row: row.sequence)}
        result = Snapshot(self.version, self.files, self._topics, {}, self._unread, topic)
        for number in {*rows, *segments}:
            view = result._existing(topic, number)
            view = view.ending(rows.get(number), segments.get(number))
            if len(view) and self.topic(topic).timestamp_type == "LogAppendTime":
                view = replace(view, last_append_time_ms=max(largest_ms, view.largest_timestamp))
            result._partitions[topic, number] = view
        return result

    def _existing(self, topic: str, partition: int) -> PartitionView:
        try:
            return self.partition(topic, partition)
        except UnknownTopic as error:
            raise CorruptData(str(error), file=layout.LOG_TABLE) from error


EMPTY = Snapshot(-1, frozenset(), {}, {})
