"""A topic's log in one version of the lake: its beginning and end, lookups, fetches, windows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seglake.catalog.groups import GroupInTopic, of_topic
from seglake.catalog.schema import TopicRow
from seglake.catalog.version.snapshot import PartitionView, Snapshot
from seglake.errors import UsageError
from seglake.format.records import Int64s
from seglake.log.blocks.search import OffsetAndTimestamp
from seglake.log.decode.columns import SCHEMA, schema_of
from seglake.log.execute import MEMORY_BYTES, ReadStats
from seglake.log.piece import Window
from seglake.log.segment_lookup import PartitionReader
from seglake.read import consumers
from seglake.read.bulk import offsets_for_times, records_at
from seglake.read.consumers import Lag
from seglake.read.field_list import FieldList, listed
from seglake.read.fields import AnyFields, FieldReader, Fields
from seglake.read.lacking import with_hints
from seglake.read.listings import SUMS, SegmentList, summed
from seglake.read.origin import Origin
from seglake.read.record import Record
from seglake.read.where import Conditions
from seglake.read.window.around import Around, stream_of
from seglake.read.window.edges import open_window, window_of
from seglake.read.window.find import Criteria, FindPlan, Search, found, searches_of
from seglake.read.window.from_offset import records_from
from seglake.read.window.orders import in_offset_order, in_time_order
from seglake.read.window.plan import Plan, pieces_of
from seglake.read.window.reader import WindowReader, window_table
from seglake.store import Store
from seglake.terminal.tables import ShowsTable, Table, number
from seglake.times.instants import Time, to_epoch_ms, to_epoch_ms_array
from seglake.times.intervals import covers, united

if TYPE_CHECKING:
    from seglake.read.dataset import LogDataset

_Read = Callable[
    [Sequence[PartitionReader], Window, pa.Schema, int, ReadStats], Iterator[pa.RecordBatch]
]

_SHOWN = 20  # log partitions in a table
MAX_RECORDS = 500  # of one fetch: Kafka's max.poll.records


class Log(ShowsTable):
    """The log of one topic; obtained from `Lake.topic`.

    Times are aware datetimes, ISO-8601 strings with a zone, or integer milliseconds since the
    epoch. Methods raise UnknownTopic for a partition that does not exist, and CorruptData, with the
    file's name, for a damaged file. Safe for threads. A pickled log contains its list of segments,
    some 70 bytes for each, and no credentials. An unpickled log is of the same version. These
    methods read the catalog: `closed`, `coverage`, `at`, `segments`, `follow`, `find`, `plan_find`
    and `last`. `read_around` and a scan of `dataset` read it if they filter by a key. Unpickled
    logs of a lake share one cache.
    """

    def __init__(self, snapshot: Snapshot, topic: str, origin: Origin) -> None:
        self._snapshot, self._origin = snapshot, origin
        self.topic = snapshot.topic(topic).topic
        self._readers: dict[int, PartitionReader] = {}
        self._forgotten = origin.reads.forgotten

    def _table(self) -> Table:
        title = f"<{self.topic} in version {self.version} of {self._origin.store.uri!r}>"
        views = self._snapshot.partitions(self.topic)
        columns = [number("partition", "partition"), number("start", "log start"),
                   number("end", "end offset"), *SUMS]  # fmt: skip
        rows = [
            (view.partition, view.log_start_offset, view.end_offset, *summed([view]))
            for view in views[:_SHOWN]
        ]
        return Table(title, columns, rows, len(views))

    def __reduce__(self) -> tuple[Any, ...]:
        views = [view.changed() for view in self._snapshot.partitions(self.topic)]  # uncached
        return _unpickled, (self._origin, self.version, self.settings, views)

    def alone(self) -> Log:
        """The same log, without the other topics of its version in memory."""
        views = self._snapshot.partitions(self.topic)
        return _unpickled(self._origin, self.version, self.settings, views)

    @property
    def store(self) -> Store:
        """The storage that this log is read from."""
        return self._origin.store

    @property
    def version(self) -> int:
        """The version of the catalog that this log is read from."""
        return self._snapshot.version

    def kept_groups(self) -> list[GroupInTopic]:
        """The committed offsets of consumer groups that an archive of this topic saved, by name.

        They do not depend on the version of this log. Raises StoreError, CorruptData.
        """
        return of_topic(self.store, self._origin.lake, self.topic)

    def at(self, version: int | str | None) -> Log:
        """The same topic in another version. Returns this log for None and for its own version.

        Raises VersionExpired for a version that is no longer retained, and UsageError for a version
        that does not exist yet.
        """
        if version is None or version == self.version:
            return self
        return Log(self._origin.snapshot(version), self.topic, self._origin)

    @property
    def settings(self) -> TopicRow:
        """The topic's settings in this version."""
        return self._snapshot.topic(self.topic)

    @property
    def value_format(self) -> str:
        """How fields are found in its values, by the topic's settings in this version."""
        return self.settings.value_format

    # where it begins and ends

    def partitions(self) -> list[int]:
        """The numbers of the topic's partitions."""
        return list(range(self._snapshot.topic(self.topic).partitions))

    def beginning_offsets(self, partitions: Iterable[int] | None = None) -> dict[int, int]:
        """The log start offset of each partition: the first offset that can be read."""
        return {p: self.reader(p).view.log_start_offset for p in _chosen(self, partitions)}

    def end_offsets(self, partitions: Iterable[int] | None = None) -> dict[int, int]:
        """The end offset of each partition: the offset of the next record to come."""
        return {p: self.reader(p).view.end_offset for p in _chosen(self, partitions)}

    def segments(self) -> SegmentList:
        """Every segment in the order of the log. Its method `to_arrow` returns an Arrow table."""
        rows = self._origin.rows(self._snapshot, "segment", self.topic)
        return SegmentList(self.topic, rows)

    # times to offsets

    def offsets_for_times(self, times: Mapping[int, Time]) -> dict[int, OffsetAndTimestamp | None]:
        """For each partition the first record, in offset order, at the time or later, or None.

        As Kafka's `offsetsForTimes`, but never wrong: in some logs Kafka overlooks later segments.
        Records below the log start do not count.
        """
        if not isinstance(times, Mapping):
            raise UsageError(
                f"offsets_for_times takes a time for each partition, as in {{0: {times!r}}}"
            )
        return {p: self.reader(p).offset_for_time(_not_negative(t)) for p, t in times.items()}

    def offsets_for_times_array(
        self, partition: int, times: npt.ArrayLike
    ) -> tuple[Int64s, Int64s]:
        """`offsets_for_times` for many times (int64 ms) in one partition.

        Returns the offset and the timestamp for each time; both are -1 if there is no record.
        """
        times_ms = to_epoch_ms_array(times)
        if times_ms.min(initial=0) < 0:
            raise UsageError("a time lies before 1970: a target time cannot be negative")
        return offsets_for_times(self.reader(partition), times_ms)

    def max_timestamps(
        self, partitions: Iterable[int] | None = None
    ) -> dict[int, OffsetAndTimestamp | None]:
        """The first record with the largest timestamp in each partition (KIP-734), or None."""
        return {p: self.reader(p).max_timestamp() for p in _chosen(self, partitions)}

    # records

    def record_at(self, partition: int, offset: int) -> Record:
        """The record at exactly this offset.

        Raises OffsetOutOfRange below the log start and at or above the end, OffsetNotFound in a
        gap.
        """
        return Record.of(self.topic, partition, *self.reader(partition).batch_at(offset))

    def records_at(
        self, partition: int, offsets: npt.ArrayLike, *, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The records at exactly these offsets (int64), a row for each offset, in the same order.

        All records are in memory at once. Raises as `record_at`.
        """
        numbers = np.asarray(offsets)
        if numbers.ndim != 1 or (len(numbers) and numbers.dtype.kind not in "iu"):
            raise UsageError("offsets are one array of integers")
        return records_at(self.reader(partition), numbers.astype(np.int64), schema_of(columns))

    def read(
        self,
        partition: int,
        offset: int,
        *,
        max_records: int = MAX_RECORDS,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Fetch: the records from `offset` on, at most `max_records`.

        If `offset` is in a gap, the fetch starts at the next record. At the end offset, the fetch
        is empty. Raises OffsetOutOfRange above the end offset and below the log start.
        """
        return records_from(self.reader(partition), offset, max_records, schema_of(columns))

    def tail(
        self,
        count: int,
        *,
        partitions: Iterable[int] | None = None,
        columns: Sequence[str] | None = None,
        fields: AnyFields | None = None,
    ) -> WindowReader:
        """The last `count` records of each partition, partition after partition, by offset.

        `fields` are those of `read_range`.
        """
        beside = FieldReader.of(fields, columns, self.value_format)
        ends = self.end_offsets(partitions)
        starts = {p: consumers.offset_of_last(self.reader(p), count) for p in ends}
        ranges = {p: (starts[p], ends[p]) for p in ends}
        return beside.over(self.plan_offsets(ranges, columns=beside.wanted).execute())

    def follow(
        self,
        offsets: Mapping[int, int] | None = None,
        *,
        partitions: Iterable[int] | None = None,
        columns: Sequence[str] | None = None,
        poll_s: float = 1.0,
    ) -> Iterator[pa.RecordBatch]:
        """The records from these offsets on, and those of later commits as they come, endlessly.

        `offsets` is {partition: offset}. A partition without one begins at its end in this version;
        one that the topic gets later, at its log start. Records that leave the log before they are
        read are passed over. A newer version is looked for every `poll_s` seconds. Raises what
        `Lake.refresh` and a read raise.
        """
        chosen = None if partitions is None else [*partitions]
        log, places = self, {**self.end_offsets(chosen), **(offsets or {})}
        while True:
            starts, ends = log.beginning_offsets(chosen), log.end_offsets(chosen)
            starts = {p: max(start, places.get(p, 0)) for p, start in starts.items()}
            ranges = {p: (starts[p], end) for p, end in ends.items() if starts[p] < end}
            yield from log.plan_offsets(ranges, columns=columns).execute()
            places = {p: max(starts[p], end) for p, end in ends.items()}
            log = log._newer(poll_s)

    def _newer(self, poll_s: float) -> Log:
        """The topic in the next version, as soon as there is one."""
        while True:
            listed = bool(self._snapshot.files)  # an unpickled log has no list to refresh
            snapshot = (
                self._origin.refreshed(self._snapshot) if listed else self._origin.snapshot(None)
            )
            if snapshot.version != self.version:
                return Log(snapshot, self.topic, self._origin)
            time.sleep(poll_s)

    def plan_offsets(
        self, ranges: Mapping[int, tuple[int, int]], *, columns: Sequence[str] | None = None
    ) -> Plan:
        """A read of the records at offsets [start, end) of each partition; there may be gaps."""
        windows = {p: Window(start_offset=s, end_offset=e) for p, (s, e) in ranges.items()}
        return self._plan(windows, columns)

    # windows of time

    def plan_range(
        self,
        start: Time | None,
        end: Time | None,
        *,
        partitions: Iterable[int] | None = None,
        columns: Sequence[str] | None = None,
        version: int | str | None = None,
    ) -> Plan:
        """What `read_range` would fetch: segments, byte ranges, bytes, the most records."""
        log: Log = self.at(version)
        window = open_window(start, end)
        return log._plan(dict.fromkeys(_chosen(log, partitions), window), columns)

    def read_range(
        self,
        start: Time | None,
        end: Time | None,
        *,
        partitions: Iterable[int] | None = None,
        columns: Sequence[str] | None = None,
        fields: AnyFields | None = None,
        version: int | str | None = None,
        order: str = "offset",
        memory_bytes: int = MEMORY_BYTES,
        stats: ReadStats | None = None,
    ) -> WindowReader:
        """Every record with start <= timestamp < end, and no other, in this version or another.

        None for `start` or `end` leaves that side open. A record without a timestamp (-1) is in no
        window, unless both sides are open, which reads every record. `order`
        "offset" gives partition after partition, each in offset order. `order` "time" gives one
        stream by (timestamp, partition, offset). About `memory_bytes` are in use, whatever the
        window's size. `columns` chooses and orders columns. `fields`, as in {"user": "string",
        "status": "int32"}, adds fields of values as columns; the others are then `partition`,
        `offset` and `timestamp` unless `columns` names them. `stats` counts requests and bytes, of
        all reads of the window together.
        """
        log: Log = self.at(version)
        ways: dict[str, _Read] = {"offset": in_offset_order, "time": in_time_order}
        if order not in ways:
            raise UsageError(f"order is 'offset' or 'time', not {order!r}")
        beside = FieldReader.of(fields, columns, log.value_format)
        window = open_window(start, end)
        readers = tuple(log.reader(p) for p in _chosen(log, partitions))
        schema, counted = schema_of(beside.wanted), stats or ReadStats()
        read = partial(ways[order], readers, window, schema, memory_bytes, counted)
        describe = partial(window_table, log.topic, log.version, readers, window)
        reader = WindowReader(schema, partial(log._after_a_look, read), describe)
        return beside.over(reader, stats)

    def _after_a_look(self, read: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[Any]:
        """Look for deleted logs, then read. The readers may have been made long ago."""
        self._origin.deletions.look_if_due()
        return read()

    def find(  # noqa: PLR0913  # each has a default
        self,
        key: str | bytes | None = None,
        *,
        keys: Sequence[str | bytes] | None = None,
        where: Conditions | None = None,
        headers: Conditions | None = None,
        start: Time | None = None,
        end: Time | None = None,
        partitions: Iterable[int] | None = None,
        columns: Sequence[str] | None = None,
        fields: AnyFields | None = None,
        newest: int | None = None,
        version: int | str | None = None,
        stats: ReadStats | None = None,
    ) -> WindowReader:
        """Every record with this key, or with one of these `keys`, and no other.

        `where` maps a field of the value to a value or to a list of values, as in
        {"status": 500, "user": ["ann", "bob"]}. A record matches if every field has its value or
        one of its list. `headers` does the same for record headers. A string matches a field with
        this text, so "200" matches the number 200. A number matches only an equal JSON number.
        None matches null and a missing field. Each element of an array counts, and each repeated
        header. Without a key, every record is compared.

        A string as a key means its UTF-8. `start` and `end` bound the timestamps: start <=
        timestamp < end. A record without a timestamp then never matches. Records come partition
        after partition, each in offset order. `newest` is a number: each partition gives only its
        last `newest` matching records. If keys choose the partition, only partitions that can hold
        the keys are asked. Key indexes (setting `index.keys`) choose the blocks to read. Segments
        without a key index are read whole. The answer is the same. `fields` are those of
        `read_range`. If nothing is found and no value has a field, a warning in the log names the
        nearest one. Raises as `read_range`.
        """
        if newest is not None and newest < 0:
            raise UsageError(f"newest is a number of records, not {newest}")
        log: Log = self.at(version)
        beside = FieldReader.of(fields, columns, log.value_format)
        criteria, window = Criteria.of(key, keys, where, headers), open_window(start, end)
        searches, schema = log._searches(criteria, window, partitions), schema_of(beside.wanted)
        readers = [search.reader for search in searches]
        describe = partial(
            window_table, log.topic, log.version, readers, window, criteria=str(criteria)
        )
        read = partial(log._after_a_look, partial(found, searches, schema, newest, stats))
        if where:
            read = partial(with_hints, read, log.topic, [*where], log.fields)
        return beside.over(WindowReader(schema, read, describe), stats)

    def plan_find(
        self,
        key: str | bytes | None = None,
        *,
        keys: Sequence[str | bytes] | None = None,
        where: Conditions | None = None,
        headers: Conditions | None = None,
        start: Time | None = None,
        end: Time | None = None,
        partitions: Iterable[int] | None = None,
        version: int | str | None = None,
    ) -> FindPlan:
        """What `find` would read: segments by key index and without, ranges, bytes, records.

        Reads key indexes and zone maps, and no record.
        """
        log: Log = self.at(version)
        criteria = Criteria.of(key, keys, where, headers)
        searches = log._searches(criteria, open_window(start, end), partitions)
        return FindPlan.of(log.version, criteria, searches)

    def last(
        self,
        key: str | bytes,
        *,
        partitions: Iterable[int] | None = None,
        version: int | str | None = None,
    ) -> Record | None:
        """The last record with this key: that of the highest offset; None if there is none.

        Several partitions may have the key. Then the result is the last record with the largest
        timestamp. If timestamps are equal, the highest partition wins.
        """
        log, columns = self.at(version), ["timestamp", "partition", "offset"]
        rows = log.find(key, partitions=partitions, columns=columns, newest=1).read_all()
        places = zip(*(rows[name].cast(pa.int64()).to_pylist() for name in columns), strict=True)
        _, partition, offset = max(places, default=(-1, -1, -1))
        return log.record_at(partition, offset) if len(rows) else None

    def dataset(
        self,
        start: Time | None = None,
        end: Time | None = None,
        *,
        partitions: Iterable[int] | None = None,
        columns: Sequence[str] | None = None,
        fields: AnyFields | None = None,
        version: int | str | None = None,
        stats: ReadStats | None = None,
    ) -> LogDataset:
        """The records as a `pyarrow.dataset.Dataset`, which DuckDB, Polars and others scan.

        `start` and `end` are those of `find`, `fields` those of `read_range`. Nothing is read
        before a scan. Its filter chooses what is read: by comparisons of `timestamp`, `offset` and
        `partition`, and equality of `key` and of indexed string fields. Raises as `read_range`.
        """
        from seglake.read.dataset import LogDataset  # noqa: PLC0415  # a fifth of a second

        log: Log = self.at(version)
        chosen = [log.reader(p).view.partition for p in _chosen(log, partitions)]
        read_fields = None if fields is None else Fields.of(fields)
        schema = FieldReader.of(read_fields, columns, log.value_format).schema(SCHEMA)
        return LogDataset(log, open_window(start, end), chosen, schema, read_fields, stats)

    def _searches(
        self, criteria: Criteria, window: Window, partitions: Iterable[int] | None
    ) -> list[Search]:
        """The searches, one for each partition that can hold what is asked for."""
        reads = [(self.reader(p), window) for p in dict.fromkeys(_chosen(self, partitions))]
        return searches_of(reads, criteria.over(self.value_format), self.partition_counts)

    def fields(self, sample: int = 1000) -> FieldList:
        """The fields of values: names, types and shares, in the newest `sample` records.

        They come from all partitions alike. `types` of the result is what `read_range` takes.
        """
        share = -(-sample // len(self.partitions()))
        values = self.tail(share, columns=["value"]).read_all()["value"]
        return listed(values.to_pylist()[:sample], self.value_format)

    def read_around(
        self,
        rows: Any,
        at: str,
        *,
        before_ms: int = 0,
        after_ms: int = 0,
        key: str | None = None,
        columns: Sequence[str] | None = None,
        memory_bytes: int = MEMORY_BYTES,
        stats: ReadStats | None = None,
    ) -> pa.RecordBatchReader:
        """Each row with each record near its time: a result row for each such pair, in no order.

        `rows` is an Arrow table, or a stream that Arrow can take. Its column `at` has timestamps
        with a zone, or integer milliseconds. A row is paired with the records with
        at - before_ms <= timestamp < at + after_ms. `key` names a column of `rows`: then the record
        key must be equal to it, only the partitions that can hold the key are read, and of segments
        with a key index only the blocks that may hold a key of the batch of rows. Rows without a
        time, a key or a record are left out. The columns of `rows` come first, then the chosen
        columns of the records; no name may be in both.

        The windows of a batch of rows are read together, each block once. Besides a batch, about
        `memory_bytes` are in use. Sort a large table by time first: less is read if the rows of a
        batch are near each other. Raises as `read_range`.
        """
        schema = schema_of(columns)
        around = Around(self, at, before_ms, after_ms, key, schema)
        stream = stream_of(rows)
        around.check(stream.schema, schema.names)
        batches = around(stream, memory_bytes, stats)
        return pa.RecordBatchReader.from_batches(around.schema(stream.schema), batches)

    def closed(self, start: Time, end: Time, lateness_ms: int = 0) -> bool:
        """Whether the window [start, end) is complete, if no event is later than `lateness_ms`.

        It is complete if the intervals of committed runs cover [start, end + lateness_ms), see
        `coverage`.
        """
        window = window_of(start, end)
        return covers(self.coverage(), window.start_ms, window.end_ms + lateness_ms)

    def coverage(self) -> list[tuple[int, int]]:
        """The times that committed runs cover: disjoint intervals [start, end) in ms.

        A run covers the interval that it declares, unless all its records are outside.
        """
        runs = self._origin.runs(self._snapshot, self.topic)
        return united(run.covered for run in runs if run.covered is not None)

    # consumers

    def lag(self, committed: Mapping[int, int]) -> dict[int, Lag]:
        """The lag of each partition's committed offset, which is the next offset to read.

        The time of a lag is from the next unread record to the newest timestamp of the partition;
        0 if every record is read. For an offset below the log start, the next unread record is the
        first record of the log.
        """
        return {p: consumers.lag(self.reader(p), offset) for p, offset in committed.items()}

    def translate(
        self, committed: Mapping[int, int], to: Log, *, skew_ms: int = 0
    ) -> dict[int, int]:
        """Offsets in another log from which a consumer of this log misses nothing (KIP-33's case).

        `skew_ms` is the most by which the two logs date the same record differently. Subtract it
        from the smallest timestamp of the unread records of a partition: in the other log, no
        unread record is older than this time. So the consumer starts there at the first record that
        reaches this time. Timestamps cannot give fewer duplicates. A partition without unread
        records has no smallest timestamp: its newest timestamp plus 1 ms takes that place. If both
        topics have the same number of partitions, a partition continues in the partition of the
        same number. Otherwise all partitions start at the smallest of these times.
        """
        since = {
            p: consumers.unread_since(self.reader(p), offset) - skew_ms
            for p, offset in committed.items()
        }
        if len(self.partitions()) != len(to.partitions()):
            since = dict.fromkeys(to.partitions(), min(since.values(), default=0))
        return {p: consumers.offset_from(to.reader(p), time) for p, time in since.items()}

    def partition_counts(self) -> list[int]:
        """Each number of partitions that the topic has had, if keys choose the partition.

        A record with a key is in the partition that Kafka's murmur2 gives for one of these numbers.
        The list is empty if keys do not choose the partition.
        """
        settings = self.settings
        if settings.partitioner != "murmur2":
            return []
        if settings.sequence == 1:  # the settings never changed
            return [settings.partitions]
        rows = self._origin.rows(self._snapshot, "topic", self.topic)
        counts: Any = rows["partitions"].unique()
        return sorted(counts.to_pylist())

    def reader(self, partition: int) -> PartitionReader:
        """The lookups of one partition. They take times and offsets as plain integers."""
        self._origin.deletions.look_if_due()
        if self._forgotten != self._origin.reads.forgotten:  # logs were deleted, perhaps these
            self._forgotten = self._origin.reads.forgotten
            self._snapshot, self._readers = self._origin.standing(self._snapshot), {}
        reader = self._readers.get(partition)
        if reader is None:
            view = self._snapshot.partition(self.topic, partition)
            reader = self._readers[partition] = PartitionReader(view, self._origin.reads)
        return reader

    def _plan(self, windows: Mapping[int, Window], columns: Sequence[str] | None) -> Plan:
        schema = schema_of(columns)
        pieces = pieces_of([(self.reader(p), window) for p, window in windows.items()])
        return Plan(self.version, tuple(pieces), schema, self._origin.reads.cached_fetch)


def _chosen(log: Log, partitions: Iterable[int] | None) -> list[int]:
    return log.partitions() if partitions is None else list(partitions)


def _unpickled(
    origin: Origin, version: int, settings: TopicRow, views: Sequence[PartitionView]
) -> Log:
    partitions = {(view.topic, view.partition): view for view in views}
    snapshot = Snapshot(version, frozenset(), {settings.topic: settings}, partitions)
    return Log(snapshot, settings.topic, origin)


def _not_negative(time: Time) -> int:
    if (timestamp := to_epoch_ms(time)) < 0:
        raise UsageError(f"{time!r} lies before 1970: a target time cannot be negative")
    return timestamp
