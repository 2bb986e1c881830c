"""A topic's log in one version of the lake: where it begins and ends, lookups, fetches, windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seglake.catalog.rows import Kind, TopicRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.version.snapshot import PartitionView, Snapshot
from seglake.errors import OffsetNotFound, UsageError
from seglake.format.records import Headers, Int64s, Spans
from seglake.read.decode.columns import schema_of
from seglake.read.lookup.block_search import OffsetAndTimestamp
from seglake.read.lookup.bulk import offsets_for_times, records_at
from seglake.read.lookup.partition import PartitionReader, SharedReads
from seglake.read.window.around import Around, with_plain_types
from seglake.read.window.plan import (
    MEMORY_BYTES,
    Plan,
    ReadStats,
    Window,
    execute,
    pieces_in,
    pieces_of,
)
from seglake.read.window.time_order import merged
from seglake.store import Store, open_store
from seglake.times.instants import Time, to_epoch_ms, to_epoch_ms_array
from seglake.times.intervals import covers

MAX_RECORDS = 500  # of one fetch: Kafka's max.poll.records


class Record(NamedTuple):
    """One record. `timestamp` is in ms, or -1; its type is 0 (CreateTime) or 1 (LogAppendTime)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Lag(NamedTuple):
    """How far a committed offset is behind the log's end: in offsets, and in ms of record time."""

    records: int
    milliseconds: int


class Log:
    """The log of one topic; obtained from `Lake.topic`.

    Times are aware datetimes, ISO-8601 strings with a zone, or integer milliseconds since the
    epoch. Partitions that do not exist raise UnknownTopic, damaged files CorruptData with their
    names. Safe for threads. A pickled log takes its list of segments with it, some 66 bytes for
    each, and no credentials; unpickled, it is the same version, and asks the catalog for nothing
    but what `closed` needs. The logs of a lake that a process unpickles share one cache.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        topic: str,
        reader: SharedReads,
        rows: Callable[[Kind], pa.Table],
        other: Callable[[int], Log],
    ) -> None:
        self._snapshot, self._reader, self._rows, self._other = snapshot, reader, rows, other
        self.topic = snapshot.topic(topic).topic
        self._readers: dict[int, PartitionReader] = {}

    def __repr__(self) -> str:
        return f"<{self.topic} in version {self.version} of {self._reader.store.uri!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        views = [self._snapshot.partition(self.topic, p) for p in self.partitions()]
        views = [view.changed() for view in views]  # without what can be computed again
        reader = self._reader
        return _elsewhere, (reader.store, reader.cache_bytes, self.version, self.settings, views)

    @property
    def version(self) -> int:
        """The version of the catalog that this log is read from."""
        return self._snapshot.version

    def at(self, version: int | None) -> Log:
        """The same topic in another version; of None and its own, itself.

        Raises VersionExpired if that is no longer retained, UsageError if it does not exist yet.
        """
        return self if version is None or version == self.version else self._other(version)

    @property
    def settings(self) -> TopicRow:
        """The topic's settings in this version."""
        return self._snapshot.topic(self.topic)

    # where it begins and ends

    def partitions(self) -> list[int]:
        """The numbers of its partitions."""
        return list(range(self._snapshot.topic(self.topic).partitions))

    def beginning_offsets(self, partitions: Iterable[int] | None = None) -> dict[int, int]:
        """The log start offset of each partition: the first that can be read."""
        return {p: self.reader(p).view.log_start_offset for p in self._chosen(partitions)}

    def end_offsets(self, partitions: Iterable[int] | None = None) -> dict[int, int]:
        """The end offset of each partition: the one that the next record will get."""
        return {p: self.reader(p).view.end_offset for p in self._chosen(partitions)}

    # times to offsets

    def offsets_for_times(self, times: Mapping[int, Time]) -> dict[int, OffsetAndTimestamp | None]:
        """For each partition the first record, in offset order, at the time or later; None if none.

        Kafka's `offsetsForTimes`, but for logs in which Kafka overlooks later segments: here the
        answer is the true one. Records below the log start do not count.
        """
        return {p: self.reader(p).offset_for_time(_not_negative(t)) for p, t in times.items()}

    def offsets_for_times_array(
        self, partition: int, times: npt.ArrayLike
    ) -> tuple[Int64s, Int64s]:
        """Offsets and timestamps for many times (int64 ms) in one partition; -1 where none."""
        wanted = to_epoch_ms_array(times)
        if wanted.min(initial=0) < 0:
            raise UsageError("a time lies before 1970: a target time cannot be negative")
        return offsets_for_times(self.reader(partition), wanted)

    def max_timestamps(
        self, partitions: Iterable[int] | None = None
    ) -> dict[int, OffsetAndTimestamp | None]:
        """The first record with the largest timestamp in each partition (KIP-734); None if none."""
        return {p: self.reader(p).max_timestamp() for p in self._chosen(partitions)}

    # records

    def record_at(self, partition: int, offset: int) -> Record:
        """The record at exactly this offset.

        Raises OffsetOutOfRange below the log start and at or above the end, OffsetNotFound in a
        gap.
        """
        batch, row = self.reader(partition).batch_at(offset)
        records = batch.records
        return Record(
            self.topic,
            partition,
            offset,
            int(records.timestamps[row]),
            int(batch.timestamp_types[row]),
            _item(records.keys, row),
            _item(records.values, row),
            _headers_of(records.headers, row),
        )

    def records_at(
        self, partition: int, offsets: npt.ArrayLike, *, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The records at exactly these offsets (int64), one row for each of them in their order.

        All of them are held in memory. Errors as of `record_at`.
        """
        wanted = np.asarray(offsets)
        if wanted.ndim != 1 or (len(wanted) and wanted.dtype.kind not in "iu"):
            raise UsageError("offsets are one array of integers")
        return records_at(self.reader(partition), wanted.astype(np.int64), schema_of(columns))

    def read(
        self,
        partition: int,
        offset: int,
        *,
        max_records: int = MAX_RECORDS,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """The records from `offset` on, at most `max_records`: a fetch.

        In a gap it goes on from the next record; at the end it is empty. Raises OffsetOutOfRange
        above the end and below the log start.
        """
        reader, schema = self.reader(partition), schema_of(columns)
        reader.require(offset, reader.view.end_offset)
        pieces = pieces_in(reader, Window(start_offset=offset))
        memory_bytes = min(MEMORY_BYTES, 8 * reader.bytes_of(max_records))
        batches = execute(self._reader.store, pieces, schema, memory_bytes=memory_bytes)
        return pa.Table.from_batches(_first(batches, max_records), schema)

    def plan_offsets(
        self, ranges: Mapping[int, tuple[int, int]], *, columns: Sequence[str] | None = None
    ) -> Plan:
        """A read of the offsets [start, end) of each partition, as far as they exist."""
        windows = {p: Window(start_offset=s, end_offset=e) for p, (s, e) in ranges.items()}
        return self._plan(windows, columns)

    # windows of time

    def plan_range(
        self,
        start: Time,
        end: Time,
        *,
        partitions: Iterable[int] | None = None,
        columns: Sequence[str] | None = None,
        version: int | None = None,
    ) -> Plan:
        """What `read_range` would fetch: segments, byte ranges, bytes, records at most."""
        if (log := self.at(version)) is not self:
            return log.plan_range(start, end, partitions=partitions, columns=columns)
        window = _window(start, end)
        return self._plan(dict.fromkeys(self._chosen(partitions), window), columns)

    def read_range(
        self,
        start: Time,
        end: Time,
        *,
        partitions: Iterable[int] | None = None,
        columns: Sequence[str] | None = None,
        version: int | None = None,
        order: str = "offset",
        memory_bytes: int = MEMORY_BYTES,
        stats: ReadStats | None = None,
    ) -> pa.RecordBatchReader:
        """Every record with start <= timestamp < end, and no other, in this `version` or another.

        `order` "offset" gives partition after partition, each in offset order; "time" one stream by
        (timestamp, partition, offset). About `memory_bytes` are in use, whatever the window's size.
        `columns` chooses and orders columns; `stats` counts what was fetched. Damage and failures
        of storage are raised from the reader when it comes to them.
        """
        if order not in ("offset", "time"):
            raise UsageError(f"order is 'offset' or 'time', not {order!r}")
        if (log := self.at(version)) is not self:
            return log.read_range(
                start, end, partitions=partitions, columns=columns, order=order,
                memory_bytes=memory_bytes, stats=stats,
            )  # fmt: skip
        readers = [self.reader(p) for p in self._chosen(partitions)]
        schema, window = schema_of(columns), _window(start, end)
        if order == "time":
            batches = merged(readers, window, schema, memory_bytes, stats or ReadStats())
            return pa.RecordBatchReader.from_batches(schema, batches)
        # not a Plan, which holds every segment of the window
        pieces, kept = self._reader.kept.if_small(pieces_of([(each, window) for each in readers]))
        batches = execute(
            self._reader.store, pieces, schema, memory_bytes=memory_bytes, stats=stats, kept=kept
        )
        return pa.RecordBatchReader.from_batches(schema, batches)

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
        """Each row with each record of the time around it: one row for each such pair, in no order.

        `rows` is an Arrow table, or a stream that Arrow can take. Its column `at` (timestamps with
        a zone, or integer milliseconds) says when: records with at - before_ms <= timestamp < at +
        after_ms are found. With `key`, a column of `rows`, only those with that key, and only the
        partitions are read that it can be in. Rows without a time, a key or a record are left out.
        The columns of `rows` come first, then those chosen of the records; no name may be in both.

        Every batch of rows is answered at once: what windows share is read once. Besides a batch,
        about `memory_bytes` are in use. Where batches lie far apart in time, less is read: sort a
        large table first. Errors as of `read_range`.
        """
        schema = schema_of(columns)
        around = Around(self, at, before_ms, after_ms, key, schema)
        given = with_plain_types(pa.RecordBatchReader.from_stream(rows))
        around.check(given.schema, schema.names)
        batches = around(given, memory_bytes, stats)
        return pa.RecordBatchReader.from_batches(around.schema(given.schema), batches)

    def closed(self, start: Time, end: Time, lateness_ms: int = 0) -> bool:
        """Whether nothing can land in [start, end) any more, if no event is later than declared.

        True when the intervals that committed runs declared cover [start, end + lateness_ms).
        """
        window = _window(start, end)
        intervals = self._rows("run").select(["interval_start_ms", "interval_end_ms"]).drop_null()
        declared = zip(*(column.to_pylist() for column in intervals.columns), strict=True)
        return covers(declared, window.start_ms, window.end_ms + lateness_ms)

    # consumers

    def lag(self, committed: Mapping[int, int]) -> dict[int, Lag]:
        """How far each committed offset (the next one to read) is behind.

        The time is from the next unread record to the newest timestamp of the partition; 0 when all
        is read. Below the log start, the first record that is left is the next one.
        """
        return {p: self._lag(self.reader(p), offset) for p, offset in committed.items()}

    def translate(
        self, committed: Mapping[int, int], to: Log, *, skew_ms: int = 0
    ) -> dict[int, int]:
        """Offsets in another log from which a consumer of this one loses nothing (KIP-33's case).

        Every record unread here has, in the other log, a timestamp not below the smallest unread
        one less `skew_ms`, the most by which the two logs date the same record differently; so
        reading starts at the first record there that reaches it. Fewer duplicates cannot be had
        from timestamps. Where all is read, it starts after the newest timestamp less `skew_ms`.
        Partition numbers are kept if both topics have as many; otherwise every partition there
        starts from the smallest time of all here.
        """
        since = {
            p: self.reader(p).unread_since(offset) - skew_ms for p, offset in committed.items()
        }
        if len(self.partitions()) != len(to.partitions()):
            since = dict.fromkeys(to.partitions(), min(since.values(), default=0))
        return {p: to.reader(p).offset_from(time) for p, time in since.items()}

    def partition_counts(self) -> list[int]:
        """How many partitions the topic has had, each number once, if keys choose among them.

        A record with a key stands in the partition that Kafka's murmur2 gives for one of these
        counts. Empty where records were placed in another way.
        """
        settings = self.settings
        if settings.partitioner != "murmur2":
            return []
        if settings.sequence == 1:  # the first settings are still the only ones
            return [settings.partitions]
        counts: Any = self._rows("topic")["partitions"].unique()
        return sorted(counts.to_pylist())

    def reader(self, partition: int) -> PartitionReader:
        """The lookups of one partition, in plain numbers."""
        reader = self._readers.get(partition)
        if reader is None:
            view = self._snapshot.partition(self.topic, partition)
            reader = self._readers[partition] = PartitionReader(view, self._reader)
        return reader

    def _lag(self, reader: PartitionReader, committed: int) -> Lag:
        view = reader.view
        offset = max(committed, view.log_start_offset)
        reader.require(offset, view.end_offset)
        newest, since = reader.max_timestamp(), self._first_timestamp(reader, offset)
        behind = newest.timestamp - since if newest and since >= 0 else 0
        return Lag(view.end_offset - offset, max(0, behind))

    def _first_timestamp(self, reader: PartitionReader, offset: int) -> int:
        """The timestamp of the first record from `offset` on; -1 if there is none."""
        if offset == reader.view.end_offset:
            return -1
        try:
            batch, row = reader.batch_at(offset)
            return int(batch.records.timestamps[row])
        except OffsetNotFound:  # a gap
            found = self.read(reader.view.partition, offset, max_records=1, columns=["timestamp"])
            timestamps = found["timestamp"].cast(pa.int64()).to_numpy()
            return int(timestamps[0]) if len(timestamps) else -1

    def _chosen(self, partitions: Iterable[int] | None) -> list[int]:
        return self.partitions() if partitions is None else list(partitions)

    def _plan(self, windows: Mapping[int, Window], columns: Sequence[str] | None) -> Plan:
        schema = schema_of(columns)
        pieces = pieces_of([(self.reader(p), window) for p, window in windows.items()])
        return Plan(self.version, tuple(pieces), schema, self._reader.store, self._reader.kept)


def _headers_of(headers: Headers | None, row: int) -> list[tuple[str, bytes | None]]:
    if headers is None:
        return []
    items = range(int(headers.firsts[row]), int(headers.firsts[row + 1]))
    return [(_text(_item(headers.keys, i)), _item(headers.values, i)) for i in items]


def _item(spans: Spans, row: int) -> bytes | None:
    start, length = int(spans.starts[row]), int(spans.lengths[row])
    return None if length < 0 else spans.data[start : start + length].tobytes()


def _text(key: bytes | None) -> str:
    return (key or b"").decode(errors="replace")


def _elsewhere(
    store: Store, cache_bytes: int, version: int, topic: TopicRow, views: list[PartitionView]
) -> Log:
    """A log out of what was pickled of it."""
    partitions = {(view.topic, view.partition): view for view in views}
    snapshot = Snapshot(version, frozenset(), {topic.topic: topic}, partitions)
    place = store.uri, tuple(sorted(store.public_options.items()))
    rows = partial(_rows_of, *place, version, topic.topic)
    other = partial(_other_of, *place, cache_bytes, topic.topic)
    return Log(snapshot, topic.topic, _reader_at(*place, cache_bytes), rows, other)


_Options = tuple[tuple[str, str], ...]


@lru_cache(8)
def _reader_at(root: str, options: _Options, cache_bytes: int) -> SharedReads:
    return SharedReads(open_store(root, dict(options)), cache_bytes)


def _rows_of(root: str, options: _Options, version: int, topic: str, kind: Kind) -> pa.Table:
    catalog = CatalogTable.open(open_store(root, dict(options)))
    return catalog.rows(catalog.snapshot(version), kind, topic)


def _other_of(root: str, options: _Options, cache_bytes: int, topic: str, version: int) -> Log:
    catalog = CatalogTable.open(open_store(root, dict(options)))
    snapshot = catalog.snapshot(version)
    rows = partial(catalog.rows, snapshot, topic=topic)
    other = partial(_other_of, root, options, cache_bytes, topic)
    return Log(snapshot, topic, _reader_at(root, options, cache_bytes), rows, other)


def _not_negative(time: Time) -> int:
    timestamp = to_epoch_ms(time)
    if timestamp < 0:
        raise UsageError(f"{time!r} lies before 1970: a target time cannot be negative")
    return timestamp


def _window(start: Time, end: Time) -> Window:
    start_ms, end_ms = to_epoch_ms(start), to_epoch_ms(end)
    if start_ms > end_ms:
        raise UsageError(f"the window would end before it starts: {start!r} to {end!r}")
    return Window(max(start_ms, 0), end_ms)  # records without a timestamp (-1) are in no window


def _first(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if count <= 0:
            return
        yield batch.slice(0, count)
        count -= len(batch)
