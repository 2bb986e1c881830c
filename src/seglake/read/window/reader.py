"""Read a window, or a plan, in offset or time order, as an object that can be displayed and reread.

Windows are read in bounded memory. In time order, the partitions become one stream. The window is
cut into slices of time that fit into memory, and the records of a slice are collected and sorted.
Where events are nearly in order, zone maps let a slice fetch little more than its records. A slice
with too many records is cut to end at the median time of its records so far.
"""

# ruff: noqa: PLC0415  # pandas and polars are imported where they are used

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from seglake.errors import MissingExtra, UsageError
from seglake.format.records import Int64s
from seglake.limits import INT64_MIN, NO_END
from seglake.log.execute import MEMORY_BYTES, SCHEMA, ReadStats, execute
from seglake.log.fetch import Fetch
from seglake.log.reads import PartitionReader
from seglake.log.segment import Piece, Window
from seglake.log.zone_maps import NO_WINDOWS, meet
from seglake.read.window.plan import pieces_of
from seglake.terminal.tables import Column, ShowsTable, Table, number, size
from seglake.terminal.wording import counted, short_bytes, short_time

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

_SHOWN = 20  # segments or log partitions in a table


# polars.from_arrow makes a DataFrame only of pyarrow's classes, else a Series. The base
# class of pyarrow's readers is private and empty; without it nothing else would change.
_PyArrowKin: Any = getattr(pa.lib, "_Weakrefable", object)


class WindowReader(ShowsTable, _PyArrowKin):  # type: ignore[misc]  # as above
    """The records of a window or of a plan, in Arrow batches; obtained from `Log` and `Plan`.

    Each iteration, each `read_all` and each library that takes the object reads the window again,
    and returns the same records. Only `read_next_batch` keeps its position, until `close`.
    Libraries that accept Arrow streams accept the object itself, for example
    `polars.DataFrame(events)` and `duckdb.sql("FROM events")`. Reading raises CorruptData and
    StoreError at the batch where they occur. Showing the object reads no record, only the catalog.
    Use an object in one thread at a time.
    """

    __slots__ = ("_batches", "_count", "_describe", "_place", "schema")

    def __init__(
        self,
        schema: pa.Schema,
        batches: Callable[[], Iterator[pa.RecordBatch]],
        describe: Callable[[], Table],
    ) -> None:
        self.schema, self._batches, self._describe = schema, batches, describe
        self._place: Iterator[pa.RecordBatch] | None = None
        self._count: int | None = None  # number of records of the last read that was completed

    def mapped(
        self,
        schema: pa.Schema,
        change: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    ) -> WindowReader:
        """Return this window with its batches changed by `change` to batches of `schema`.

        Example:
            >>> import pyarrow as pa
            >>> events = log.read_range(None, None)
            >>> keys = events.mapped(pa.schema([events.schema.field("key")]), lambda some: (
            ...     b.select(["key"]) for b in some))
            >>> keys.read_all().column_names
            ['key']
        """
        return WindowReader(schema, lambda: change(self._batches()), self._describe)

    def _table(self) -> Table:
        table = self._describe()
        if self._count is None:
            return table
        return table._replace(title=f"{table.title}; a read gave {self._count:,}")

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield all batches from the first one on, a few MiB at a time. No batch is empty."""
        count = 0
        for batch in self._batches():
            count += len(batch)
            yield batch
        self._count = count

    def read_all(self) -> pa.Table:
        """Return all records in memory.

        Example:
            >>> log.read_range(None, None).read_all().num_rows
            1200
        """
        return pa.Table.from_batches(list(self), self.schema)

    def read_next_batch(self) -> pa.RecordBatch:
        """Return the next batch of a read that begins with the first call.

        Raises StopIteration at the end.

        Example:
            >>> log.read_range(None, None).read_next_batch().num_rows
            1200
        """
        if self._place is None:
            self._place = iter(self)
        return next(self._place)

    def close(self) -> None:
        """End the read of `read_next_batch`. Its next call begins another read.

        Example:
            >>> events = log.read_range(None, None)
            >>> first = events.read_next_batch()
            >>> events.close()
            >>> events.read_next_batch() == first
            True
        """
        self._place = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        stream: Any = pa.RecordBatchReader.from_batches(self.schema, iter(self))
        return stream.__arrow_c_stream__(requested_schema)

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """Return all records as a DataFrame. `options` are passed to pyarrow's `Table.to_pandas`.

        Only pandas 3 reads Arrow streams itself. Raises MissingExtra without pandas.

        Example:
            >>> log.read_range(None, None).to_pandas().shape
            (1200, 8)
        """
        try:
            import pandas as pd  # noqa: F401  # pyarrow's message would name no remedy
        except ModuleNotFoundError:
            raise MissingExtra("to_pandas needs pandas. Run pip install pandas") from None
        frame: pd.DataFrame = self.read_all().to_pandas(**options)
        return frame

    def to_polars(self) -> pl.DataFrame:
        """Return all records as a DataFrame of polars. Raises MissingExtra without polars.

        Example:
            >>> log.read_range(None, None).to_polars().shape
            (1200, 8)
        """
        try:
            import polars as pl
        except ModuleNotFoundError:
            raise MissingExtra("to_polars needs polars. Run pip install polars") from None
        return pl.DataFrame(self)

    read_pandas = to_pandas  # the name that pyarrow's readers have


PLAN_COLUMNS = [
    Column("segment", "segment"),
    number("ranges", "ranges"),
    size("bytes", "bytes"),
    size("of_bytes", "of"),
    number("records_at_most", "records at most"),
]


@dataclass(frozen=True, repr=False)
class Plan(ShowsTable):
    """A read of one topic in one version of the lake that is not executed yet. Can be pickled."""

    version: int
    pieces: tuple[Piece, ...]
    schema: pa.Schema = field(repr=False)
    fetch: Fetch = field(repr=False)

    def _table(self) -> Table:
        rows = [tuple(row.values()) for row in self.rows(_SHOWN)]
        topics = sorted({piece.segment.topic for piece in self.pieces})
        title = (
            f"A read of {', '.join(topics) or 'nothing'} in version {self.version}: "
            f"{short_bytes(self.size_bytes)} in {counted(self.ranges, 'range')} of "
            f"{counted(len(self.pieces), 'segment')}, at most "
            f"{counted(self.records_at_most, 'record')}"
        )
        return Table(title, PLAN_COLUMNS, rows, len(self.pieces))

    def rows(self, most: int | None = None) -> list[dict[str, Any]]:
        """Return a row for each segment that is read, or for the first `most` of these segments."""
        spans = [(piece, *piece.spans(self.fetch.gap_bytes)) for piece in self.pieces[:most]]
        return [
            {
                "segment": piece.segment.log_key,
                "ranges": len(starts),
                "bytes": int((ends - starts).sum()),
                "of_bytes": piece.segment.log_bytes,
                "records_at_most": piece.records_at_most,
            }
            for piece, starts, ends in spans
        ]

    @property
    def spans(self) -> list[tuple[Int64s, Int64s]]:
        """Return, for each piece, the starts and ends of the byte ranges to request."""
        return [piece.spans(self.fetch.gap_bytes) for piece in self.pieces]

    @property
    def size_bytes(self) -> int:
        """Return an upper bound of the bytes that `execute` fetches. It skips cached batches."""
        return sum(int((ends - starts).sum()) for starts, ends in self.spans)

    @property
    def records_at_most(self) -> int:
        """Return an upper bound of the number of records."""
        return sum(piece.records_at_most for piece in self.pieces)

    @property
    def ranges(self) -> int:
        """Return the number of byte ranges to fetch. `execute` may cut a large range."""
        return sum(len(starts) for starts, _ in self.spans)

    def execute(
        self, *, memory_bytes: int = MEMORY_BYTES, stats: ReadStats | None = None
    ) -> WindowReader:
        """Return the records, one partition after another, in offset order.

        Args:
            memory_bytes: About how much memory the read uses.
            stats: Counts requests, bytes and records of all reads together.
        """
        batches = partial(
            execute, self.fetch, self.pieces, self.schema, memory_bytes=memory_bytes, stats=stats
        )
        return WindowReader(self.schema, batches, self._table)


_OUTPUT_ROWS = 65_536
_MOST_BYTES = 2**30  # Arrow's offsets have 32 bits, also while a slice is sorted
_ORDER = ("timestamp", "partition", "offset")


def in_offset_order(
    readers: Sequence[PartitionReader],
    window: Window,
    schema: pa.Schema,
    memory_bytes: int,
    stats: ReadStats,
) -> Iterator[pa.RecordBatch]:
    """Return the records of `window`, partition after partition, each in offset order."""
    if not readers:
        return iter(())
    # Iterate over pieces: a Plan would keep all of them in memory.
    pieces = pieces_of(zip(readers, repeat(window)))
    return execute(readers[0].cached_fetch, pieces, schema, memory_bytes=memory_bytes, stats=stats)


def in_time_order(
    readers: Sequence[PartitionReader],
    window: Window,
    schema: pa.Schema,
    memory_bytes: int,
    stats: ReadStats,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of `window` by (timestamp, partition, offset), as batches of `schema`."""
    names = [name for name in _ORDER if name not in schema.names]
    inner = pa.schema([*schema, *(SCHEMA.field(name) for name in names)])
    ordered = sorted(readers, key=lambda reader: reader.view.partition)
    start, width = window.start_ms, window.end_ms - window.start_ms
    while ordered and start < window.end_ms:
        slice_ = _Slice(start, min(start + width, window.end_ms), inner, memory_bytes, stats)
        for batch in slice_.records(ordered):
            yield batch.select(schema.names)
        start, width = slice_.end_ms, slice_.next_width()


class _Slice:
    """Records with start_ms <= timestamp < end_ms. `end_ms` is lowered if they are too many."""

    def __init__(
        self, start_ms: int, end_ms: int, schema: pa.Schema, memory_bytes: int, stats: ReadStats
    ) -> None:
        self.start_ms, self.end_ms = start_ms, end_ms
        self._schema, self._memory_bytes, self._stats = schema, memory_bytes, stats
        self._batches: list[pa.RecordBatch] = []
        self._size = 0

    @property
    def _limit(self) -> int:
        return min(self._memory_bytes // 4, _MOST_BYTES)  # sorting makes a copy

    def next_width(self) -> int:
        """Return the width (ms) at which a slice of this density fills two thirds of its memory."""
        growth = min(8.0, self._limit * 2 / 3 / max(1, self._size))
        return max(1, int((self.end_ms - self.start_ms) * growth))

    def records(self, readers: Sequence[PartitionReader]) -> Iterator[pa.RecordBatch]:
        """Yield the records in time order. `end_ms` is final after the last record."""
        if not self._collect(readers):
            # A single millisecond has too many records. Their order is partition and offset.
            self._drop(self._batches)
            self._batches = []
            yield from self._read(readers, 0)
        elif self._batches:
            batch, self._batches = _sorted(self._batches), []
            for first in range(0, len(batch), _OUTPUT_ROWS):
                yield batch.slice(first, _OUTPUT_ROWS)

    def _collect(self, readers: Sequence[PartitionReader]) -> bool:
        """Collect all records of the slice. Return False if one millisecond has too many."""
        following = self._collect_from(readers, 0)
        while following is not None:
            if not self._narrow():
                return False
            partition, offset = following
            left = [reader for reader in readers if reader.view.partition >= partition]
            following = self._collect_from(left, offset)
        return True

    def _collect_from(
        self, readers: Sequence[PartitionReader], offset: int
    ) -> tuple[int, int] | None:
        """Collect the records of the first partition from `offset` on, and of all other partitions.

        If there are too many, return the partition and the offset at which to continue.
        """
        for batch in self._read(readers, offset):
            self._batches.append(batch)
            self._size += batch.nbytes
            if self._size > self._limit:
                return batch["partition"][-1].as_py(), batch["offset"][-1].as_py() + 1
        return None

    def _read(self, readers: Sequence[PartitionReader], offset: int) -> Iterator[pa.RecordBatch]:
        window = Window(self.start_ms, self.end_ms)
        windows = [window._replace(start_offset=offset), *[window] * (len(readers) - 1)]
        pieces = pieces_of(zip(readers, windows, strict=True))
        return execute(
            readers[0].cached_fetch, pieces, self._schema,
            memory_bytes=self._memory_bytes // 4, stats=self._stats,
        )  # fmt: skip

    def _narrow(self) -> bool:
        """End the slice earlier, so that about half of its records so far remain."""
        if self.end_ms - self.start_ms == 1:
            return False
        times = np.concatenate([_times(batch) for batch in self._batches])
        middle = int(np.partition(times, len(times) // 2)[len(times) // 2])
        self.end_ms = max(self.start_ms + 1, middle)
        left = [batch.take(np.flatnonzero(_times(batch) < self.end_ms)) for batch in self._batches]
        self._stats.records += sum(map(len, left))
        self._drop(self._batches)
        self._batches = [batch for batch in left if len(batch)]
        self._size = sum(batch.nbytes for batch in self._batches)
        return True

    def _drop(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Subtract records that will be read again from the counts: each record counts once."""
        self._stats.records -= sum(map(len, batches))


def _times(batch: pa.RecordBatch) -> Int64s:
    times: Int64s = batch["timestamp"].cast(pa.int64()).to_numpy()
    return times


def _sorted(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    # The batches are sorted by partition and offset, so a stable sort by time is enough.
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch.take(np.argsort(_times(batch), kind="stable"))


def records_from(
    reader: PartitionReader, offset: int, max_records: int, schema: pa.Schema
) -> pa.Table:
    """Return the records at or above `offset`, at most `max_records`.

    Raises OffsetOutOfRange if `offset` is below the log start or above the end, UsageError for a
    negative count, CorruptData and StoreError.
    """
    if max_records < 0:
        raise UsageError(f"max_records must be 0 or more, not {max_records}")
    reader.require(offset, reader.view.end_offset)
    pieces = pieces_of([(reader, Window(start_offset=offset))])
    memory_bytes = min(MEMORY_BYTES, 8 * reader.bytes_of(max_records))
    batches = execute(reader.fetch, pieces, schema, memory_bytes=memory_bytes)
    return pa.Table.from_batches(first_rows(batches, max_records), schema)


def first_rows(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """Yield the first `count` rows, without reading a batch that has none of them."""
    while count > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, count)
        count -= len(batch)


def window_table(
    topic: str,
    version: int,
    readers: Sequence[PartitionReader],
    window: Window,
    *,
    criteria: str = "",
) -> Table:
    """Return a table about a window, a row for each partition, from the catalog and without a read.

    `criteria` describes which records are wanted. The counts include all records of the window.
    """
    rows, exact = list[tuple[int, ...]](), True
    for reader in readers:
        row, whole = _row(reader, window)
        rows.append(row)
        exact &= whole
    records, log_bytes = (sum(row[at] for row in rows) for at in (2, 3))
    exact &= not criteria
    count = f"{'' if exact else 'at most '}{counted(records, 'record')}"
    logs = counted(len(rows), "log partition")
    title = (
        f"{f'{criteria} in a' if criteria else 'A'} window of {topic} in version {version}, "
        f"{_bounds(window)}: {count} in {short_bytes(log_bytes)} of {logs}"
    )
    columns = [number("partition", "partition"), number("segments", "segments"),
               number("records", "records" if exact else "records at most"),
               size("log_bytes", "log bytes")]  # fmt: skip
    return Table(title, columns, rows[:_SHOWN], len(rows))


def _row(reader: PartitionReader, window: Window) -> tuple[tuple[int, ...], bool]:
    """Return partition, segments, an upper bound of records, and log bytes of a partition.

    The second result is whether all records of these segments are in the window.
    """
    view = reader.view
    bases, ends, lows, highs = view.extents
    above = window.above(view.log_start_offset)
    numbers, whole = meet(above, NO_WINDOWS, lows, highs, bases, ends)
    counts, sizes = view.record_counts[numbers], view.segments.details["sizes"][numbers, 0]
    some = counts > 0  # a segment without records only covers a gap
    row = (int(np.count_nonzero(some)), int(counts.sum()), int(sizes[some].sum(dtype="i8")))
    return (view.partition, *row), bool(whole[some].all())


def _bounds(window: Window) -> str:
    if window.start_ms == INT64_MIN:
        return "of all times"
    start, end = short_time(window.start_ms), window.end_ms
    return f"from {start} on" if end == NO_END else f"{start} to {short_time(end)}"
