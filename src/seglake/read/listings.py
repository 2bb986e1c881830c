"""Lists of runs, tags and segments, which display as tables and convert to Arrow tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import pyarrow as pa

from seglake.catalog.schema import FILE_SCHEMAS, MaintenanceRow, RunRow, TagRow
from seglake.catalog.version.snapshot import PartitionView
from seglake.terminal.tables import Column, ShowsTable, Table, moment, number, second, size
from seglake.terminal.wording import counted, short_time

Commit = TypeVar("Commit", bound=RunRow | MaintenanceRow)
_SHOWN = 20

SUMS = [  # what `summed` returns
    number("records", "records"),
    number("segments", "segments"),
    size("log_bytes", "log bytes"),
    moment("oldest", "oldest"),
    moment("newest", "newest"),
]
_TAGS = [
    Column("name", "tag"),
    number("version", "version"),
    second("created_at_ms", "made"),
    Column("until", "until"),
]
_TOOK = Column("took", "took", right=True)
_RUNS = [
    second("finished", "finished"),
    Column("topic", "topic"),
    Column("run", "run"),
    Column("interval", "interval"),
    _TOOK,
    number("records", "records"),
    number("rejected", "rejected"),
    Column("state", "state"),
]
_OPERATIONS = [
    second("finished", "finished"),
    Column("topic", "topic"),
    Column("operation", "operation"),
    _TOOK,
]
SEGMENT_COLUMNS = [
    number("partition", "partition"),
    number("base_offset", "base offset"),
    number("end_offset", "end offset"),
    number("record_count", "records"),
    moment("min_timestamp", "oldest"),
    moment("max_timestamp", "newest"),
    size("log_bytes", "log bytes"),
    Column("codec", "codec"),
]


class Commits(ShowsTable, list[Commit]):
    """A list of committed runs, or of maintenance commits, in the order in which they ended."""

    def __init__(self, rows: Iterable[Commit], row_type: type[Commit]) -> None:
        super().__init__(rows)
        self._row_type: Any = row_type

    def to_arrow(self) -> pa.Table:
        """Return a row for each commit, with the columns of the catalog. Times are int64 ms."""
        columns = {f.name: FILE_SCHEMAS[self._row_type.KIND].field(f.name).type
                   for f in fields(self._row_type) if f.name != "topic"}  # fmt: skip
        schema = pa.schema({"topic": pa.string(), **columns})
        values = {name: [getattr(row, name) for row in self] for name in schema.names}
        return pa.table(values, schema=schema)

    def _table(self) -> Table:
        """Return the commits as a table, newest first."""
        newest: Sequence[RunRow | MaintenanceRow] = self[: -_SHOWN - 1 : -1]
        runs = [_run(row) for row in newest if isinstance(row, RunRow)]
        others = [_upkeep(row) for row in newest if isinstance(row, MaintenanceRow)]
        columns = _OPERATIONS if self._row_type is MaintenanceRow else _RUNS
        return Table(
            f"{counted(len(self), 'commit')}, newest first", columns, runs or others, len(self)
        )


class Tags(ShowsTable, list[TagRow]):
    """The tags of a lake, by name."""

    def to_arrow(self) -> pa.Table:
        """Return a row for each tag, with the columns of the catalog. Times are int64 ms."""
        schema = FILE_SCHEMAS[TagRow.KIND]
        return pa.table({n: [getattr(row, n) for row in self] for n in schema.names}, schema=schema)

    def _table(self) -> Table:
        rows = [(row.name, row.version, row.created_at_ms, until(row.until_ms)) for row in self]
        return Table(counted(len(self), "tag"), _TAGS, rows[:_SHOWN], len(self))


def until(ms: int | None) -> str:
    """Return when a tag expires, as text."""
    return "it is deleted" if ms is None else short_time(ms)


def _upkeep(row: MaintenanceRow) -> tuple[Any, ...]:
    return row.finished_at_ms, row.topic, row.operation, took(row)


def _run(row: RunRow) -> tuple[Any, ...]:
    return (
        row.finished_at_ms, row.topic, row.run_id, interval(row), took(row),
        row.records, row.quarantined, row.state,
    )  # fmt: skip


def interval(run: RunRow) -> str | None:
    """Return the declared interval of a run in ISO 8601, or None if it declared no interval."""
    if run.interval_start_ms is None or run.interval_end_ms is None:
        return None
    bounds = (run.interval_start_ms, run.interval_end_ms)
    return "/".join(map(short_time, bounds))


def took(row: RunRow | MaintenanceRow) -> str | None:
    """Return how long a commit's work took, or None for a run that was removed.

    The row of a removed run ends with the removal.
    """
    if isinstance(row, RunRow) and row.state != "committed":
        return None
    return f"{max(0, row.finished_at_ms - row.started_at_ms) / 1000:,.1f} s"


def summed(views: Sequence[PartitionView]) -> tuple[Any, ...]:
    """Return the `SUMS` over log partitions. A time is -1 if no record has a timestamp."""
    segments = [view.segments for view in views if len(view)]
    lows = [int(dated.min()) for columns in segments
            if len(dated := columns.min_timestamps[columns.min_timestamps >= 0])]  # fmt: skip
    highs = [int(columns.max_timestamps.max()) for columns in segments]
    return (
        sum(view.record_count for view in views),
        sum(columns.size for columns in segments),
        sum(int(columns.details["sizes"][:, 0].sum(dtype="i8")) for columns in segments),
        min(lows, default=-1),
        max(highs, default=-1),
    )


class SegmentList(ShowsTable):
    """The segments of a topic, in the order of the log. Arrow consumers accept the list itself."""

    def __init__(self, topic: str, rows: pa.Table) -> None:
        self._topic = topic
        self._rows = rows.sort_by([("partition", "ascending"), ("base_offset", "ascending")])

    def __len__(self) -> int:
        return len(self._rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        stream: Any = self._rows
        return stream.__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """Return a row for each segment, with the columns of the catalog. Times are int64 ms."""
        return self._rows

    def _table(self) -> Table:
        shown = self._rows.select([column.field for column in SEGMENT_COLUMNS]).slice(0, _SHOWN)
        rows = [tuple(row.values()) for row in shown.to_pylist()]
        return Table(
            f"{counted(len(self), 'segment')} of {self._topic}", SEGMENT_COLUMNS, rows, len(self)
        )
