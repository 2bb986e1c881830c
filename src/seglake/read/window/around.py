"""Find, for every row of a table, the records near its time.

A batch of rows is processed as a whole. The union of its windows decides which blocks are fetched,
so a block that windows share is fetched and decoded once. All windows have the same width, so they
end in the order in which they start, and two binary searches find the rows of a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seglake.errors import UsageError
from seglake.format.index import RECORD_KEYS
from seglake.format.key_hashes import Hashes, hashes_of_spans
from seglake.format.partitioner import partition_of
from seglake.format.records import Int32s, Int64s, Spans
from seglake.limits import INT64_MAX, INT64_MIN
from seglake.log.execute import SCHEMA, Array, ReadStats, execute
from seglake.log.key_indexes import SubjectHashes
from seglake.log.reads import PartitionReader
from seglake.log.segment import Window
from seglake.log.zone_maps import distinct, union
from seglake.read.window.plan import BlockPlan
from seglake.times.instants import to_epoch_ms_array

_PAIRS = 65_536  # pairs of a row and a record that are joined at a time


class _LogOfEvents(Protocol):
    """The part of `seglake.read.log.Log` that is needed here."""

    def partitions(self) -> Sequence[int]: ...
    def partition_counts(self) -> Sequence[int]: ...
    def reader(self, partition: int) -> PartitionReader: ...


class Around:
    """A function from batches of rows to batches of rows with events; see `Log.read_around`.

    It is pickled with the log's list of segments, so it does not need the catalog afterwards.
    """

    def __init__(
        self,
        log: _LogOfEvents,
        at: str,
        before_ms: int,
        after_ms: int,
        key: str | None,
        schema: pa.Schema,
    ) -> None:
        least, most = sorted((before_ms, after_ms))
        if least < 0 or not 0 < most <= INT64_MAX:
            raise UsageError("before_ms and after_ms must be at least 0, and one must be above 0")
        self._log, self._at, self._key, self._schema = log, at, key, schema
        self._before_ms, self._after_ms = before_ms, after_ms
        self._partition_counts = log.partition_counts() if key else ()

    def check(self, row_schema: pa.Schema, added: Iterable[str]) -> None:
        """Raise UsageError if `row_schema` misses a column, or has a column of `added`."""
        for name in filter(None, (self._at, self._key)):
            if name not in row_schema.names:
                columns = ", ".join(row_schema.names)
                raise UsageError(f"there is no column {name!r}. The columns are {columns}")
        names = {name.lower() for name in row_schema.names}  # Spark ignores case in names
        for name in added:
            if name.lower() in names:
                raise UsageError(
                    f"both the rows and the records have a column {name!r}. Rename it in the rows, "
                    "or choose other columns of the records"
                )
        _times(pa.array([], row_schema.field(self._at).type))
        if self._key:
            _bytes(pa.array([], row_schema.field(self._key).type))

    def schema(self, row_schema: pa.Schema) -> pa.Schema:
        """Return the schema of the result for rows of `row_schema`."""
        return pa.schema([*row_schema, *self._schema])

    def __call__(
        self, rows: Iterable[pa.RecordBatch], memory_bytes: int, stats: ReadStats | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield pairs of a row and a record in its window, unordered.

        A batch uses about 1/8 of `memory_bytes`.
        """
        for batch in rows:
            schema = self.schema(batch.schema)
            moments = self._moments(batch)
            for partition in self._log.partitions():
                reader, own = self._log.reader(partition), moments.of(partition)
                if len(own.rows):
                    records = self._records(reader, own, memory_bytes, stats)
                    yield from _joined(batch, own, records, schema, memory_bytes // 8)

    def _moments(self, batch: pa.RecordBatch) -> _Moments:
        times, valid = _times(batch.column(self._at))
        codes, keys = np.zeros(len(batch), np.int64), None
        homes, hashes = tuple[Int32s, ...](), np.empty(0, np.uint64)
        if self._key:
            coded = _bytes(batch.column(self._key)).dictionary_encode()
            codes, keys = coded.indices.fill_null(-1).to_numpy().astype(np.int64), coded.dictionary
            spans = _spans(keys)
            hashes = hashes_of_spans(spans)
            homes = tuple(partition_of(spans, count) for count in self._partition_counts)
        low, after = self._before_ms, self._after_ms - 1  # windows have inclusive ends
        # Windows begin at 0 or later, so a record without a timestamp (-1) is in no window.
        starts = np.maximum(times, low) - low
        lasts = np.clip(times, INT64_MIN + 1, INT64_MAX - max(after, 0)) + after
        asked = np.flatnonzero(valid & (codes >= 0) & (starts <= lasts))
        order = asked[np.lexsort((times[asked], codes[asked]))]
        return _Moments(order, starts[order], lasts[order], codes[order], keys, homes, hashes)

    def _records(
        self, reader: PartitionReader, own: _Moments, memory_bytes: int, stats: ReadStats | None
    ) -> Iterator[pa.RecordBatch]:
        """Return the records of the blocks that overlap the windows, with the columns of the join.

        If rows have keys, blocks that cannot hold one of the keys are left out.
        """
        windows = union(np.sort(own.starts), np.sort(own.lasts))
        window = Window(int(windows[0, 0]), int(windows[1, -1]) + 1)
        needed = ["timestamp"] if own.keys is None else ["timestamp", "key"]
        needed = [name for name in needed if name not in self._schema.names]
        schema = pa.schema([*self._schema, *(SCHEMA.field(name) for name in needed)])
        pieces = BlockPlan.from_window(reader, window, own.sought, windows).pieces()
        return execute(reader.fetch, pieces, schema, memory_bytes=memory_bytes, stats=stats)


def streams_of(rows: Any) -> Iterator[pa.RecordBatchReader]:
    """Yield a stream of all rows per pass. If `rows` is a stream, pass two raises UsageError."""
    return chain([_stream_of(rows)], map(_another_stream, repeat(rows)))


def _another_stream(rows: Any) -> pa.RecordBatchReader:
    if isinstance(rows, pa.RecordBatchReader):
        raise UsageError("the rows are a stream, which was read already. Pass a table instead")
    return _stream_of(rows)


def _stream_of(rows: Any) -> pa.RecordBatchReader:
    """Return the rows of an Arrow table or stream, with plain columns instead of view columns.

    Polars makes string and binary views, and Arrow cannot repeat the items of a view. Raises
    UsageError for an object that is neither a table nor a stream.
    """
    try:
        stream = pa.RecordBatchReader.from_stream(rows)
    except TypeError:
        raise UsageError(
            f"read_around takes an Arrow table, or a stream that Arrow can take, not "
            f"{type(rows).__name__}: pyarrow.table({{...}}) makes a table of columns"
        ) from None
    plain: Any = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    fields = [field.with_type(plain.get(field.type, field.type)) for field in stream.schema]
    return stream.cast(pa.schema(fields))


class _Moments(NamedTuple):
    """Moments: rows of a batch, sorted by (key code, time), with first and last ms of windows.

    Each array of `homes` has, for each key, a partition that may hold records of the key. If there
    is no array, every partition may. `hashes` are the hashes of the keys, by code.
    """

    rows: Int64s
    starts: Int64s
    lasts: Int64s
    codes: Int64s
    keys: Array | None
    homes: tuple[Int32s, ...]
    hashes: Hashes

    @property
    def sought(self) -> SubjectHashes:
        """Return the sorted hashes of the moments' keys, or {} if records with every key match."""
        if self.keys is None:
            return {}
        return {RECORD_KEYS: np.sort(self.hashes[distinct(self.codes)])}

    def of(self, partition: int) -> _Moments:
        """Return the moments whose records may be in a partition."""
        if not self.homes:
            return self
        here = np.logical_or.reduce([home == partition for home in self.homes])[self.codes]
        rows, starts, lasts, codes = (column[here] for column in self[:4])
        return self._replace(rows=rows, starts=starts, lasts=lasts, codes=codes)


class _MomentFinder:
    """Finds the moments whose windows contain a record.

    The bounds of all windows are numbered. A key code and the number of a bound are combined to one
    integer, so that one binary search compares both.
    """

    def __init__(self, moments: _Moments) -> None:
        self._keys = moments.keys
        # A bound is the last time before a window, or the last in it. Neither exceeds INT64_MAX.
        before = moments.starts - 1
        self._bounds = distinct(np.sort(np.concatenate([before, moments.lasts])))
        self._opened = self._place(before, moments.codes, "right")
        self._closed = self._place(moments.lasts, moments.codes, "right")

    def _place(self, times: Int64s, codes: Int64s, side: Literal["left", "right"]) -> Int64s:
        places: Int64s = codes * (len(self._bounds) + 1)
        return places + self._bounds.searchsorted(times, side)

    def of(self, records: pa.RecordBatch) -> tuple[Int64s, Int64s]:
        """Return, for each record, the range [first, end) of moments whose windows contain it."""
        times = records["timestamp"].cast(pa.int64()).to_numpy()
        codes = np.zeros(len(records), np.int64)
        if self._keys is not None:
            indexes = pc.index_in(records["key"], value_set=self._keys)
            codes = indexes.fill_null(-1).to_numpy().astype(np.int64)
        places = self._place(times, codes, "left")
        first, end = self._closed, self._opened
        return first.searchsorted(places, "right"), end.searchsorted(places, "right")


def _joined(
    batch: pa.RecordBatch,
    moments: _Moments,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    limit_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Yield pairs of a row and a record, side by side, in batches of about `limit_bytes`."""
    matching = _MomentFinder(moments)
    row_bytes = _row_bytes(batch)[moments.rows]
    added = schema.names[len(batch.schema) :]
    for records in batches:
        record_bytes = _row_bytes(records)
        for which, moment in _pairs(*matching.of(records)):
            parts = np.cumsum(record_bytes[which] + row_bytes[moment]) // limit_bytes
            cuts = np.flatnonzero(np.diff(parts)) + 1
            for part in np.split(np.arange(len(which)), cuts):
                left = batch.take(moments.rows[moment[part]])
                right = records.select(added).take(which[part])
                yield pa.RecordBatch.from_arrays([*left.columns, *right.columns], schema=schema)


def _pairs(lows: Int64s, highs: Int64s) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield every (i, j) with lows[i] <= j < highs[i], `_PAIRS` pairs at a time."""
    counts = np.maximum(highs - lows, 0)
    ends = np.cumsum(counts)
    shifts = lows - (ends - counts)
    for first in range(0, int(ends[-1]) if len(ends) else 0, _PAIRS):
        numbers = np.arange(first, min(first + _PAIRS, int(ends[-1])))
        which = ends.searchsorted(numbers, "right")
        yield which, numbers + shifts[which]


def _times(column: Array) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """Return a column of times in ms, rounded up, and a mask of the times that are not null."""
    kind: Any = column.type
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_integer(kind):
        return to_epoch_ms_array(column.fill_null(0).to_numpy()), valid
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        raise UsageError(f"times must be timestamps with a zone, or integer ms, not {kind}")
    if kind.unit == "s":
        column = column.cast(pa.timestamp("ms", kind.tz))
    units = {"s": 1, "ms": 1, "us": 1_000, "ns": 1_000_000}[kind.unit]
    return -(-column.cast(pa.int64()).fill_null(0).to_numpy() // units), valid


def _bytes(column: Array) -> Array:
    """Cast a column of keys to bytes."""
    try:
        return column.cast(pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise UsageError(f"a key must be text or binary, not {column.type}. Cast it") from None


def _spans(items: Array) -> Spans:
    """Return a binary array without nulls as spans over its buffer."""
    _, offsets, data = items.buffers()
    ends = np.frombuffer(offsets, np.int32)[items.offset :][: len(items) + 1]
    content = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    return Spans(content, ends[:-1].astype(np.int64), np.diff(ends))


def _row_bytes(batch: pa.RecordBatch) -> Int64s:
    """Estimate how many bytes each row takes."""
    return sum((_item_bytes(column) for column in batch.columns), np.full(len(batch), 8))


def _item_bytes(column: Array) -> Int64s:
    kind = column.type
    if pa.types.is_struct(kind):
        return sum(map(_item_bytes, column.flatten()), np.zeros(len(column), np.int64))
    if pa.types.is_list(kind):
        ends = np.append(0, np.cumsum(_item_bytes(column.values)))
        inner: Int64s = np.diff(ends[column.offsets.to_numpy()])
        return inner
    try:
        lengths: Any = pc.binary_length(column)
    except pa.ArrowNotImplementedError:
        return np.full(len(column), -(-column.nbytes // max(1, len(column))))
    sizes: Int64s = lengths.fill_null(0).to_numpy().astype(np.int64)
    return sizes
