"""Represent a window of records as an object that displays without a read, and can be reread."""

# ruff: noqa: PLC0415  # pandas and polars are imported where they are used

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from seglake.errors import MissingExtra
from seglake.limits import INT64_MIN, NO_END
from seglake.log.reads import PartitionReader
from seglake.log.segment import Window
from seglake.log.zone_maps import Bounds
from seglake.terminal.tables import ShowsTable, Table, number, size
from seglake.terminal.wording import counted, short_bytes, short_time

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

_SHOWN = 20  # log partitions in a table


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
    numbers, whole = Bounds.from_window(window.above(view.log_start_offset)).meet(
        lows, highs, bases, ends
    )
    counts, sizes = view.record_counts[numbers], view.segments.details["sizes"][numbers, 0]
    some = counts > 0  # a segment without records only covers a gap
    row = (int(np.count_nonzero(some)), int(counts.sum()), int(sizes[some].sum(dtype="i8")))
    return (view.partition, *row), bool(whole[some].all())


def _bounds(window: Window) -> str:
    if window.start_ms == INT64_MIN:
        return "of all times"
    start, end = short_time(window.start_ms), window.end_ms
    return f"from {start} on" if end == NO_END else f"{start} to {short_time(end)}"
