"""Read one topic in one version of the lake: its bounds, lookups, fetches and windows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seglake.catalog.schema import TopicRow
from seglake.catalog.version.snapshot import PartitionView, Snapshot
from seglake.errors import UsageError
from seglake.format.records import Int64s
from seglake.log.execute import MEMORY_BYTES, SCHEMA, ReadStats, schema_of
from seglake.log.reads import OffsetAndTimestamp, PartitionReader
from seglake.log.segment import Window
from seglake.read import consumers
from seglake.read.consumers import Lag
from seglake.read.field_list import FieldList, listed
from seglake.read.fields import AnyFields, FieldReader, Fields
from seglake.read.listings import SUMS, SegmentList, summed
from seglake.read.origin import Origin
from seglake.read.record import Record, offsets_for_times, records_at
from seglake.read.where import Conditions
from seglake.read.window.around import Around, streams_of
from seglake.read.window.find import (
    Criteria,
    FindPlan,
    Search,
    newest_of,
    search_records,
    searches_of,
    with_order,
)
from seglake.read.window.plan import open_window, pieces_of
from seglake.read.window.reader import (
    Plan,
    WindowReader,
    in_offset_order,
    in_time_order,
    records_from,
    window_table,
)
from seglake.store import Store
from seglake.terminal.tables import ShowsTable, Table, number
from seglake.times.instants import Time, to_epoch_ms, to_epoch_ms_array
from seglake.times.intervals import covers, united

if TYPE_CHECKING:
    from seglake.read.dataset import LogDataset

_SHOWN = 20  # log partitions in a table
MAX_RECORDS = 500  # records of one fetch, like Kafka's max.poll.records


class Log(ShowsTable):
    """The log of one topic in one version; obtained from `Lake.topic`. Safe for threads.

    `topic` is the name of the topic, and `settings` are its settings in this version.

    A time is an aware datetime, an ISO 8601 string with a zone, or integer milliseconds since the
    epoch. Methods raise UnknownTopic for a partition that does not exist, CorruptData for a damaged
    file, and StoreError if the storage fails. The message of CorruptData names the file.

    A pickled log contains its list of segments, about 70 bytes for each segment, and no
    credentials. An unpickled log is of the same version. Unpickled logs of a lake share one cache.

    These methods read the catalog: `closed`, `coverage`, `at`, `segments`, `follow`, `find`,
    `plan_find` and `last`. `read_around` and a scan of `dataset` read it if they filter by a key.
    """

    def __init__(self, snapshot: Snapshot, topic: str, origin: Origin) -> None:
        self._snapshot, self._origin = snapshot, origin
        self.settings = snapshot.topic(topic)
        self.topic = self.settings.topic
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

    def detached(self) -> Log:
        """Return a copy of this log that does not keep the version's other topics in memory.

        Example:
            >>> log.detached().end_offsets() == log.end_offsets()
            True
        """
        views = self._snapshot.partitions(self.topic)
        return _unpickled(self._origin, self.version, self.settings, views)

    @property
    def store(self) -> Store:
        """Return the storage that this log is read from.

        Example:
            >>> log.store.remote
            False
        """
        return self._origin.store

    @property
    def version(self) -> int:
        """Return the version of the catalog that this log is read from.

        Example:
            >>> log.version
            2
        """
        return self._snapshot.version

    def at(self, version: int | str | None) -> Log:
        """Return the topic in another version.

        Args:
            version: A version number or the name of a tag. None returns this log.

        Raises:
            VersionExpired: The version is no longer retained, and no tag keeps it.
            UsageError: The version does not exist yet, or there is no such tag.
            UnknownTopic: That version has no such topic.

        Example:
            >>> undone = seglake.undo("lake", "web", "d2")
            >>> newest = seglake.open("lake").topic("web")
            >>> newest.end_offsets(), newest.at(log.version).read_range(None, None).read_all(
            ...     ).num_rows
            ({0: 1029, 1: 171}, 1200)
        """
        if version is None or version == self.version:
            return self
        return Log(self._origin.snapshot(version), self.topic, self._origin)

    @property
    def value_format(self) -> str:
        """Return how fields are found in the values, from the topic's settings in this version.

        Example:
            >>> log.value_format
            ''
        """
        return self.settings.value_format

    # bounds

    def partitions(self) -> list[int]:
        """Return the numbers of the topic's partitions.

        Example:
            >>> log.partitions()
            [0, 1]
        """
        return list(range(self.settings.partitions))

    def beginning_offsets(self, partitions: Iterable[int] | None = None) -> dict[int, int]:
        """Return the log start offset of each partition: the first offset that can be read.

        Example:
            >>> log.beginning_offsets()
            {0: 0, 1: 0}
        """
        return {r.view.partition: r.view.log_start_offset for r in self._readers_of(partitions)}

    def end_offsets(self, partitions: Iterable[int] | None = None) -> dict[int, int]:
        """Return the end offset of each partition: the offset that the next record will get.

        Example:
            >>> log.end_offsets()
            {0: 1029, 1: 171}
        """
        return {r.view.partition: r.view.end_offset for r in self._readers_of(partitions)}

    def segments(self) -> SegmentList:
        """Return all segments in the order of the log. `to_arrow` of the list returns a table.

        Example:
            >>> log.segments().to_arrow()["base_offset"].to_pylist()
            [0, 515, 0, 85]
        """
        rows = self._origin.rows(self._snapshot, "segment", self.topic)
        return SegmentList(self.topic, rows)

    # times to offsets

    def offsets_for_times(self, times: Mapping[int, Time]) -> dict[int, OffsetAndTimestamp | None]:
        """Return, for each partition, the first record at or after a time.

        "First" is by offset, as in Kafka's `offsetsForTimes`, but later segments are searched too:
        in some logs Kafka overlooks them. Records below the log start offset do not count.

        Args:
            times: Partition number → time. A time before 1970 is an error.

        Returns:
            Partition number → offset and timestamp of the record, or None if no record is that
            late.

        Raises:
            UnknownTopic: The topic has no such partition.
            UsageError: `times` is not a mapping, or a time is before 1970.
            CorruptData: A file is damaged. The message names the file and the byte.

        Example:
            >>> log.offsets_for_times({0: "2026-06-01T12:05:00Z"})
            {0: OffsetAndTimestamp(offset=257, timestamp=1780315500000)}
        """
        if not isinstance(times, Mapping):
            raise UsageError(
                f"offsets_for_times takes a time for each partition, as in {{0: {times!r}}}"
            )
        return {p: self.reader(p).offset_for_time(_not_negative(t)) for p, t in times.items()}

    def offsets_for_times_array(
        self, partition: int, times: npt.ArrayLike
    ) -> tuple[Int64s, Int64s]:
        """Return the first record at or after each of many times in one partition.

        Args:
            partition: The partition number.
            times: An array of times, in int64 milliseconds since the epoch, in any order.

        Returns:
            Two int64 arrays as long as `times`: the offset and the timestamp (ms) for each time.
            Both are -1 if no record is that late.

        Raises:
            UsageError: A time is before 1970.

        Example:
            >>> offsets, timestamps = log.offsets_for_times_array(0, [1780315200000, 1780315500000])
            >>> offsets.tolist()
            [0, 257]
        """
        times_ms = to_epoch_ms_array(times)
        if times_ms.min(initial=0) < 0:
            raise UsageError("a target time is before 1970, but no record is. Give later times")
        return offsets_for_times(self.reader(partition), times_ms)

    def max_timestamps(
        self, partitions: Iterable[int] | None = None
    ) -> dict[int, OffsetAndTimestamp | None]:
        """Return, for each partition, the first record with the largest timestamp (KIP-734).

        A partition without timestamps has the value None.

        Example:
            >>> log.max_timestamps()
            {0: OffsetAndTimestamp(offset=1028, timestamp=1780316399000),
             1: OffsetAndTimestamp(offset=170, timestamp=1780316395000)}
        """
        return {r.view.partition: r.max_timestamp() for r in self._readers_of(partitions)}

    # records

    def record_at(self, partition: int, offset: int) -> Record:
        """Return the record at exactly this offset.

        Raises:
            OffsetOutOfRange: The offset is below the log start offset, or not below the end offset.
            OffsetNotFound: The offset is in a gap.

        Example:
            >>> log.record_at(0, 10).value
            b'{"ts": 1780315211000, "user": "u4", "status": 200}'
        """
        return Record.from_batch(self.topic, partition, *self.reader(partition).batch_at(offset))

    def records_at(
        self, partition: int, offsets: npt.ArrayLike, *, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the records at exactly these offsets, as one table in memory.

        Args:
            partition: The partition number.
            offsets: A one-dimensional array of integers, in any order. Offsets may repeat.
            columns: The columns to read, in this order. None reads all columns.

        Returns:
            One row for each item of `offsets`, in the order of `offsets`.

        Raises:
            OffsetOutOfRange: See `record_at`.
            OffsetNotFound: See `record_at`. The message names the first offset in a gap.
            UsageError: `offsets` is not a one-dimensional array of integers.

        Example:
            >>> log.records_at(0, [30, 10])["offset"].to_pylist()
            [30, 10]
        """
        numbers = np.asarray(offsets)
        if numbers.ndim != 1 or (len(numbers) and numbers.dtype.kind not in "iu"):
            raise UsageError("offsets must be a one-dimensional array of integers")
        return records_at(self.reader(partition), numbers.astype(np.int64), schema_of(columns))

    def read(
        self,
        partition: int,
        offset: int,
        *,
        max_records: int = MAX_RECORDS,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Fetch at most `max_records` records, starting at `offset`.

        If `offset` is in a gap, the fetch starts at the next record. At the end offset, the result
        is empty.

        Raises:
            OffsetOutOfRange: The offset is below the log start offset or above the end offset.
            UsageError: `max_records` is negative.

        Example:
            >>> log.read(0, 10, max_records=3)["offset"].to_pylist()
            [10, 11, 12]
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
        """Return the `count` newest records, one partition after another.

        They are the records with the largest timestamps among the last `count` records of each
        partition. Of equal timestamps, the highest partition counts as the newest, then the highest
        offset.

        Args:
            count: The largest number of records. If a log has fewer records, all are returned.
            partitions: The partitions to read. None reads all.
            columns: The columns of the result, see `read_range`.
            fields: Fields of the values to add as columns, see `read_range`.

        Example:
            >>> log.tail(2, columns=["partition", "offset"]).read_all().to_pylist()
            [{'partition': 0, 'offset': 1027}, {'partition': 0, 'offset': 1028}]
        """
        beside = None if fields is None else FieldReader(fields, columns, self.value_format)
        ends = self.end_offsets(partitions)
        starts = {p: consumers.offset_of_last(self.reader(p), count) for p in ends}
        ranges = {p: (starts[p], ends[p]) for p in ends}
        schema = schema_of(columns if beside is None else beside.wanted)
        ends = self.plan_offsets(ranges, columns=with_order(schema).names).execute()
        newest = ends.mapped(schema, partial(newest_of, count=count, schema=schema))
        return newest if beside is None else beside.over(newest)

    def follow(
        self,
        offsets: Mapping[int, int] | None = None,
        *,
        partitions: Iterable[int] | None = None,
        columns: Sequence[str] | None = None,
        poll_s: float = 1.0,
    ) -> Iterator[pa.RecordBatch]:
        """Yield records from these offsets on, then wait for later commits and yield their records.

        The iterator never ends. Records that are removed from the log before they are read are
        skipped.

        Args:
            offsets: Partition number → first offset. A partition that is missing here starts at its
                end offset in this version. A partition that the topic gets later starts at its log
                start.
            partitions: The partitions to follow. None follows all, including partitions that are
                added later.
            columns: The columns to read, in this order. None reads all columns.
            poll_s: Seconds between two checks for a newer version.

        Raises:
            VersionExpired: The catalog was rebuilt, or the version is no longer retained.

        Example:
            >>> batch = next(log.follow({0: 10}, partitions=[0]))
            >>> batch["offset"][0].as_py()
            10
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
        """Wait for a newer version, and return the topic in it."""
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
        """Plan a read of the records at offsets [start, end) of each partition.

        Args:
            ranges: Partition number → (start, end). There may be gaps in a range.
            columns: The columns to read, in this order. None reads all columns.

        Example:
            >>> log.plan_offsets({0: (10, 20)}).execute().read_all().num_rows
            10
        """
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
        """Plan a `read_range`: return the segments, byte ranges and bytes it would read.

        `records_at_most` of the plan is an upper bound of the records.

        Example:
            >>> plan = log.plan_range("2026-06-01T12:00:00Z", "2026-06-01T12:05:00Z")
            >>> plan.ranges, plan.records_at_most
            (2, 600)
        """
        log: Log = self.at(version)
        window = open_window(start, end)
        windows = {r.view.partition: window for r in log._readers_of(partitions)}
        return log._plan(windows, columns)

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
        """Return all records with start <= timestamp < end, and no others.

        A record without a timestamp (-1) is in no window, unless both sides are open.

        Args:
            start: The first time, inclusive. None leaves this side open.
            end: The end time, exclusive. None leaves this side open.
            partitions: The partitions to read. None reads all.
            columns: The columns of the result, in this order. None returns all columns. With
                `fields`, None returns `partition`, `offset` and `timestamp`.
            fields: Fields of the values to add as columns, with their types, for example {"user":
                "string", "status": "int32"}. See `Fields`.
            version: A version number or the name of a tag. None reads this version.
            order: "offset" returns one partition after another, each in offset order. "time"
                returns one stream sorted by (timestamp, partition, offset).
            memory_bytes: About how much memory the read uses, whatever the size of the window.
            stats: Counts requests, bytes and records of all reads of the window together.

        Raises:
            UsageError: `order` is unknown, the window ends before it starts, or `columns` and
                `fields` do not fit.
            VersionExpired: The version is no longer retained.

        Example:
            >>> events = log.read_range("2026-06-01T12:00:00Z", "2026-06-01T12:05:00Z")
            >>> events.read_all().num_rows
            300
        """
        log: Log = self.at(version)
        if order not in ("offset", "time"):
            raise UsageError(f"order must be 'offset' or 'time', not {order!r}")
        beside = None if fields is None else FieldReader(fields, columns, log.value_format)
        window = open_window(start, end)
        readers = log._readers_of(partitions)
        schema = schema_of(columns if beside is None else beside.wanted)
        read_in_order = in_offset_order if order == "offset" else in_time_order
        read = partial(read_in_order, readers, window, schema, memory_bytes, stats or ReadStats())
        describe = partial(window_table, log.topic, log._snapshot.version, readers, window)
        records = WindowReader(schema, read, describe)
        return records if beside is None else beside.over(records, stats)

    def _after_a_look(self, read: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[Any]:
        """Drop deleted logs from the caches, then read. The call may be long after the planning."""
        self._origin.deletions.check_if_due()
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
        """Return all records that have one of the keys and meet all conditions, and no others.

        Records are returned one partition after another, each in offset order. If keys choose the
        partition, only partitions that can hold the keys are searched. Key indexes (settings
        `index.*`) choose the blocks to read. A segment without a key index is read whole, with the
        same result.

        A string matches a field with this text, so "200" matches the number 200. A number matches
        only an equal JSON number. None matches null and a missing field. Each element of an array
        counts, and each repeated header.

        Args:
            key: The record key. A string is encoded as UTF-8.
            keys: Several keys, instead of `key`. Without `key` and `keys`, every record is
                compared.
            where: Field of the value → a value or a list of values, for example {"status": 500,
                "user": ["ann", "bob"]}. Every field must have one of its values.
            headers: Header → a value or a list of values, like `where`.
            start: The first time, inclusive. With `start` or `end`, a record without a timestamp
                never matches.
            end: The end time, exclusive.
            partitions: The partitions to search. None searches all.
            columns: The columns of the result, see `read_range`.
            fields: Fields of the values to add as columns, see `read_range`.
            newest: The largest number of records to return: the newest matching records, see
                `tail`.
            version: A version number or the name of a tag. None searches this version.
            stats: Counts requests, bytes and records of all reads together.

        Returns:
            The records. If a read finds none and no value has a field of `where`, it logs a warning
            that names the most similar field.

        Raises:
            UsageError: No key and no condition is given, or they contradict each other.
            VersionExpired: The version is no longer retained.

        Example:
            >>> log.find("u3", where={"status": 500}).read_all().num_rows
            17
        """
        if newest is not None and newest < 0:
            raise UsageError(f"newest must be 0 or more, not {newest}")
        log: Log = self.at(version)
        beside = None if fields is None else FieldReader(fields, columns, log.value_format)
        criteria, window = (Criteria.parse(key, keys, where, headers), open_window(start, end))
        searches = log._searches(criteria, window, partitions)
        schema = schema_of(columns if beside is None else beside.wanted)
        readers = [search.blocks.reader for search in searches]
        describe = partial(
            window_table, log.topic, log.version, readers, window, criteria=str(criteria)
        )
        read = partial(log._after_a_look, partial(search_records, searches, schema, newest, stats))
        records = WindowReader(schema, read, describe)
        return records if beside is None else beside.over(records, stats)

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
        """Plan a `find`: return how many segments, byte ranges, bytes and records it would read.

        This reads key indexes and zone maps, but no records.

        Example:
            >>> plan = log.plan_find("u3")
            >>> plan.scanned, plan.records_at_most
            (2, 1029)
        """
        log: Log = self.at(version)
        criteria = Criteria.parse(key, keys, where, headers)
        searches = log._searches(criteria, open_window(start, end), partitions)
        return FindPlan(log.version, str(criteria), [search.planned() for search in searches])

    def last(
        self,
        key: str | bytes,
        *,
        partitions: Iterable[int] | None = None,
        version: int | str | None = None,
    ) -> Record | None:
        """Return the record with this key that has the highest offset, or None.

        If several partitions have the key, return the last record with the largest timestamp. If
        the timestamps are equal, the highest partition wins.

        Example:
            >>> log.last("u3").value
            b'{"ts": 1780316393000, "user": "u3", "status": 200}'
        """
        log, columns = self.at(version), ["partition", "offset"]
        rows = log.find(key, partitions=partitions, columns=columns, newest=1).read_all()
        return log.record_at(*rows.to_pylist()[0].values()) if len(rows) else None

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
        """Return the records as a `pyarrow.dataset.Dataset`, for DuckDB, Polars and others.

        Nothing is read before a scan. The scan's filter limits what is read: comparisons of
        `timestamp`, `offset` and `partition`, and equality of `key` and of indexed string fields.
        For `start` and `end` see `find`; for the other arguments and errors see `read_range`.

        Example:
            >>> log.dataset(fields=["user"]).to_table().column_names
            ['partition', 'offset', 'timestamp', 'user']
        """
        from seglake.read.dataset import LogDataset  # noqa: PLC0415  # a fifth of a second

        log: Log = self.at(version)
        chosen = [r.view.partition for r in log._readers_of(partitions)]
        if fields is None:
            read_fields, schema = None, schema_of(columns)
        else:
            read_fields = Fields.from_any(fields)
            schema = FieldReader(read_fields, columns, log.value_format).schema(SCHEMA)
        return LogDataset(log, open_window(start, end), chosen, schema, read_fields, stats)

    def _searches(
        self, criteria: Criteria, window: Window, partitions: Iterable[int] | None
    ) -> list[Search]:
        """Return one search for each partition that can hold records that meet the criteria."""
        reads = [(reader, window) for reader in dict.fromkeys(self._readers_of(partitions))]
        return searches_of(reads, criteria.over(self.value_format), self.partition_counts)

    def fields(self, sample: int = 1000) -> FieldList:
        """Return the fields of the values in the newest records: names, types and counts.

        Every partition contributes the same share of the `sample` records. `types` of the result
        can be passed to `read_range`.

        Example:
            >>> log.fields().types
            {'ts': 'int64', 'user': 'string', 'status': 'int64'}
        """
        share = -(-sample // len(self.partitions()))
        ends = (self.tail(share, partitions=[p], columns=["value"]) for p in self.partitions())
        values = [value for end in ends for value in end.read_all()["value"].to_pylist()]
        return listed(values[:sample], self.value_format)

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
    ) -> WindowReader:
        """Join each row with the records near its time, one result row per pair, unordered.

        A row is paired with the records with at - before_ms <= timestamp < at + after_ms. Rows
        without a time, a key or a matching record are left out. The windows of a batch of rows are
        read together, each block once. So less is read if a large table is sorted by time.

        Args:
            rows: An Arrow table, or a stream that Arrow can read, which can be read only once.
            at: The column of `rows` with the times: timestamps with a zone, or integer ms.
            before_ms: How far the window begins before the time of a row.
            after_ms: How far the window extends after the time of a row, exclusive.
            key: A column of `rows`. The record key must equal it. Then only the partitions that can
                hold the key are read, and, of segments with a key index, only blocks that may hold
                a key.
            columns: The columns of the records; None adds all. `rows` must have other names.
            memory_bytes: About how much memory the read uses, in addition to one batch of rows.
            stats: Counts requests, bytes and records.

        Returns:
            What `read_range` returns, with the columns of `rows` and of the records.

        Raises:
            UsageError: A column is missing, repeated or of a wrong type; or both widths are 0.

        Example:
            >>> import pyarrow as pa
            >>> alerts = pa.table({"at": [1780315500000], "alert": ["slow"]})
            >>> around = log.read_around(alerts, "at", before_ms=5000, columns=["offset"])
            >>> around.to_pandas().shape
            (5, 3)
        """
        schema = schema_of(columns)
        around = Around(self, at, before_ms, after_ms, key, schema)
        streams = streams_of(rows)
        first = next(streams)
        around.check(first.schema, schema.names)
        readers = [self.reader(p) for p in self.partitions()]
        window, what = open_window(None, None), "Records around the times of rows"
        describe = partial(window_table, self.topic, self.version, readers, window, criteria=what)
        streams = chain([first], streams)
        read = partial(self._after_a_look, lambda: around(next(streams), memory_bytes, stats))
        return WindowReader(around.schema(first.schema), read, describe)

    def closed(self, start: Time, end: Time, lateness_ms: int = 0) -> bool:
        """Return whether [start, end) is complete if events are at most `lateness_ms` late.

        The intervals of committed runs must cover [start, end + lateness_ms), see `coverage`.

        Args:
            start: The first time of the window, inclusive.
            end: The end of the window, exclusive.
            lateness_ms: The largest lateness of an event, in milliseconds.

        Raises:
            UsageError: The window ends before it starts.

        Example:
            >>> log.closed("2026-06-01T12:00:00Z", "2026-06-01T12:20:00Z")
            True
        """
        window = open_window(start, end)
        return covers(self.coverage(), window.start_ms, window.end_ms + lateness_ms)

    def coverage(self) -> list[tuple[int, int]]:
        """Return the times that committed runs cover, as disjoint intervals [start, end) in ms.

        A run covers the interval that it declares, unless all its records are outside the interval.

        Example:
            >>> log.coverage()
            [(1780315200000, 1780316400000)]
        """
        runs = self._origin.runs(self._snapshot, self.topic)
        return united(run.covered for run in runs if run.covered is not None)

    # consumers

    def lag(self, committed: Mapping[int, int]) -> dict[int, Lag]:
        """Return the lag of each partition's committed offset, which is the next offset to read.

        The time of a lag is from the next unread record (at or after the log start) to the newest
        timestamp of the partition, or 0 if every record was read.

        Args:
            committed: Partition number → committed offset. Leave out partitions without a
                committed offset.

        Raises:
            OffsetOutOfRange: A committed offset is above the end offset.
            UsageError: A committed offset is negative.

        Example:
            >>> log.lag({0: 10})[0].records
            1019
        """
        return {p: consumers.lag(self.reader(p), offset) for p, offset in committed.items()}

    def translate(
        self, committed: Mapping[int, int], to: Log, *, skew_ms: int = 0
    ) -> dict[int, int]:
        """Return offsets in another log from which a consumer of this log misses no record.

        Two logs have the same records at different offsets (KIP-33). Timestamps decide, so a
        consumer may read some records twice:

            1. Take the smallest timestamp of the unread records of a partition, or its newest
               timestamp plus 1 ms if all are read, minus `skew_ms`.
            2. In the other log, start at the first record at or after this time.
            3. If the topics have different numbers of partitions, all partitions start at the
               smallest of these times.

        Args:
            committed: Partition number → committed offset in this log.
            to: The other log.
            skew_ms: The largest difference between the timestamps of one record in the two logs.

        Example:
            >>> log.translate({0: 10}, seglake.open("lake").topic("web"))
            {0: 10}
        """
        since = {
            p: consumers.unread_since(self.reader(p), offset) - skew_ms
            for p, offset in committed.items()
        }
        if len(self.partitions()) != len(to.partitions()):
            since = dict.fromkeys(to.partitions(), min(since.values(), default=0))
        return {p: consumers.offset_from(to.reader(p), time) for p, time in since.items()}

    def partition_counts(self) -> list[int]:
        """Return each number of partitions that the topic has had, if keys choose the partition.

        A record with a key is in the partition that murmur2 selects with one of these numbers.
        The result is empty if keys do not choose the partition.

        Example:
            >>> log.partition_counts()
            [2]
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
        """Return the lookups of one partition, which take times and offsets as plain integers.

        Example:
            >>> log.reader(0).offset_for_time(1780315500000).offset
            257
        """
        return self._readers_of((partition,))[0]

    def _readers_of(self, partitions: Iterable[int] | None) -> list[PartitionReader]:
        """Return the lookups of these partitions. None chooses all."""
        self._origin.deletions.check_if_due()
        if self._forgotten != self._origin.reads.forgotten:  # logs were deleted since
            self._forgotten = self._origin.reads.forgotten
            self._snapshot, self._readers = self._origin.standing(self._snapshot), {}
        readers = list[PartitionReader]()
        for partition in range(self.settings.partitions) if partitions is None else partitions:
            reader = self._readers.get(partition)
            if reader is None:
                view = self._snapshot.partition(self.topic, partition)
                reader = self._readers[partition] = PartitionReader(view, self._origin.reads)
            readers.append(reader)
        return readers

    def _plan(self, windows: Mapping[int, Window], columns: Sequence[str] | None) -> Plan:
        schema = schema_of(columns)
        pieces = pieces_of([(self.reader(p), window) for p, window in windows.items()])
        return Plan(self.version, tuple(pieces), schema, self._origin.reads.cached_fetch)


def _unpickled(
    origin: Origin, version: int, settings: TopicRow, views: Sequence[PartitionView]
) -> Log:
    partitions = {(view.topic, view.partition): view for view in views}
    snapshot = Snapshot(version, frozenset(), {settings.topic: settings}, partitions)
    return Log(snapshot, settings.topic, origin)


def _not_negative(time: Time) -> int:
    if (timestamp := to_epoch_ms(time)) < 0:
        raise UsageError(f"{time!r} is before 1970, but no record is. Give a later time")
    return timestamp
