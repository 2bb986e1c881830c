"""Decode a segment, and write its visible records as a Parquet file of a published table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seglake.catalog.attempts import require_not_abandoned
from seglake.catalog.published import NewFile, PublishedSegment
from seglake.format.value_format import ValueFormat
from seglake.log.execute import execute, schema_of
from seglake.log.fetch import LogFetch
from seglake.log.segment import LogSegment, Window
from seglake.maintain.publish.columns import TableColumns
from seglake.store import Store

MEMORY_BYTES = 256 * 2**20
_GROUP_ROWS = 2**20
_SHORT = 32  # bytes; longer text has no statistics in the Delta log
_YEARS = range(*np.array(["0001", "9999"], "M8[us]").view("i8").tolist())


class SegmentToPublish(NamedTuple):
    """A segment to decode, and the identity of the content of its data file."""

    segment: LogSegment
    content: PublishedSegment

    @property
    def log_bytes(self) -> int:
        """Return the number of bytes of the log to decode."""
        return self.segment.log_bytes


@dataclass(frozen=True)
class FileWriter:
    """The task that writes the data file of one segment to `folder` of `store`, for an attempt.

    It uses about `memory_bytes` of memory. It raises AttemptAbandoned if an erasure abandoned the
    attempt, because the erasure has already listed the folder. If the columns are strict, it raises
    UsageError for a value that does not fit. It also raises CorruptData and StoreError.
    """

    columns: TableColumns
    value_format: ValueFormat
    store: Store
    folder: str
    attempt_id: str
    memory_bytes: int

    def __call__(self, lake: Store, work: SegmentToPublish) -> NewFile:
        """Write the file of a segment, and return it."""
        require_not_abandoned(lake, self.attempt_id)
        path, schema = work.content.path(self.attempt_id), self.columns.schema
        misfits, footer = Counter[str](), list[Any]()
        with self.store.writer(f"{self.folder}/{path}") as stream:
            file: Any = SimpleNamespace(write=stream.write, closed=False)
            sink: Any = pa.PythonFile(file, "w")
            with pq.ParquetWriter(
                sink, schema, metadata_collector=footer, write_page_index=True
            ) as writer:
                for group in self._groups(lake, work, misfits):
                    writer.write_table(group, row_group_size=len(group))
        statistics = _statistics(footer[0], schema)
        return NewFile(path, sink.tell(), footer[0].num_rows, statistics, misfits)

    def _groups(
        self, lake: Store, work: SegmentToPublish, misfits: Counter[str]
    ) -> Iterator[pa.Table]:
        """Yield the rows of the file, as one table for each row group."""
        segment, find = work.segment, self.columns.finder(self.value_format)
        first = work.content.first_offset
        window = Window() if first == segment.base_offset else Window(start_offset=first)
        read = schema_of(self.columns.read)
        memory, some, rows, size = self.memory_bytes // 4, list[pa.RecordBatch](), 0, 0
        pieces = [segment.whole(window)]
        for batch in execute(LogFetch(lake), pieces, read, memory_bytes=memory, threads=1):
            some.append(self.columns.convert(batch, find, misfits))
            rows, size = rows + len(batch), size + some[-1].nbytes
            if rows >= _GROUP_ROWS or size >= 2 * memory:
                yield pa.Table.from_batches(some)
                some, rows, size = [], 0, 0
        if some:
            yield pa.Table.from_batches(some)


def _statistics(metadata: Any, schema: pa.Schema) -> dict[str, Any]:
    """Return Delta's statistics of all columns of a file except key, value and headers."""
    found: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]
    for number in range(metadata.num_columns if groups else 0):
        chunks = [group.column(number) for group in groups]
        name = chunks[0].path_in_schema
        if name not in schema.names or name in ("key", "value"):
            continue
        each = [chunk.statistics for chunk in chunks]
        found["nullCount"][name] = sum(one.null_count for one in each)
        bounded = [one for one in each if one.has_min_max]
        if not bounded:
            continue
        kind = schema.field(name).type
        low = _plain(min(one.min_raw for one in bounded), kind)
        high = _plain(max(one.max_raw for one in bounded), kind)
        if low is not None and high is not None:
            found["minValues"][name], found["maxValues"][name] = low, high
    return found


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Convert a value of Parquet's statistics to Delta's form, or to None if there is no form."""
    if pa.types.is_timestamp(kind):
        if value not in _YEARS:
            return None
        return f"{np.datetime64(value // 1000, 'ms')}Z"
    if isinstance(value, bytes):
        return value.decode() if len(value) <= _SHORT else None
    if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value
