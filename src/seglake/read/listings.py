"""Lists of runs and segments of a lake. They are shown as tables, and become Arrow tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import pyarrow as pa

from seglake.catalog.rows import FILE_SCHEMAS, MaintenanceRow, RunRow
from seglake.catalog.version.snapshot import PartitionView
from seglake.shown import ShowsTable, Table
from seglake.times.instants import format_ms

Commit = TypeVar("Commit", bound=RunRow | MaintenanceRow)
_SHOWN = 20


class Commits(ShowsTable, list[Commit]):
    """A list of committed runs, or of commits of maintenance, in the order of their ends."""

    def __init__(self, rows: Iterable[Commit], row_type: type[Commit]) -> None:
        super().__init__(rows)
        self._row_type: Any = row_type

    def to_arrow(self) -> pa.Table:
        """A row for each commit, with the columns of the catalog; times are int64 ms."""
        columns = {f.name: FILE_SCHEMAS[self._row_type.KIND].field(f.name).type
                   for f in fields(self._row_type) if f.name != "topic"}  # fmt: skip
        schema = pa.schema({"topic": pa.string(), **columns})
        values = {name: [getattr(row, name) for row in self] for name in schema.names}
        return pa.table(values, schema=schema)

    def _table(self) -> Table:
        """The newest first."""
        newest: Sequence[RunRow | MaintenanceRow] = self[: -_SHOWN - 1 : -1]
        runs = [_run(row) for row in newest if isinstance(row, RunRow)]
        others = [_upkeep(row) for row in newest if isinstance(row, MaintenanceRow)]
        heads = ["finished", "topic", "run", "interval", "took", "records", "rejected", "state"]
        if self._row_type is MaintenanceRow:
            heads = ["finished", "topic", "operation", "took"]
        return Table(f"{len(self):,} commits, newest first", heads, runs or others, len(self))


def _upkeep(row: MaintenanceRow) -> tuple[Any, ...]:
    return format_ms(row.finished_at_ms), row.topic, row.operation, took(row)


def _run(row: RunRow) -> tuple[Any, ...]:
    return (
        format_ms(row.finished_at_ms), row.topic, row.run_id, interval(row), took(row),
        row.records, row.quarantined, row.state,
    )  # fmt: skip


def interval(run: RunRow) -> str | None:
    """The declared interval, as ISO 8601 has it; None without one."""
    if run.interval_start_ms is None or run.interval_end_ms is None:
        return None
    bounds = (run.interval_start_ms, run.interval_end_ms)
    return "/".join(format_ms(ms).replace(".000Z", "Z") for ms in bounds)


def took(row: RunRow | MaintenanceRow) -> str:
    """How long a commit's work took."""
    return f"{max(0, row.finished_at_ms - row.started_at_ms) / 1000:,.1f} s"


def summed(views: Sequence[PartitionView]) -> tuple[Any, ...]:
    """Records, segments, bytes of logs, oldest and newest timestamp of some log partitions."""
    segments = [view.segments for view in views if len(view)]
    lows = [int(dated.min()) for columns in segments
            if len(dated := columns.min_timestamps[columns.min_timestamps >= 0])]  # fmt: skip
    highs = [int(columns.max_timestamps.max()) for columns in segments]
    return (
        sum(int(columns.details["record_count"].sum()) for columns in segments),
        sum(columns.size for columns in segments),
        sum(int(columns.details["sizes"][:, 0].sum(dtype="i8")) for columns in segments),
        _instant("timestamp", min(lows, default=-1)),
        _instant("timestamp", max(highs, default=-1)),
    )


class SegmentList(ShowsTable):
    """The segments of a topic, in the order of the log. Consumers of Arrow take the list itself."""

    def __init__(self, topic: str, rows: pa.Table) -> None:
        self._topic = topic
        self._rows = rows.sort_by([("partition", "ascending"), ("base_offset", "ascending")])

    def __len__(self) -> int:
        return len(self._rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        stream: Any = self._rows
        return stream.__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """A row for each segment, with the columns of the catalog; times are int64 ms."""
        return self._rows

    def _table(self) -> Table:
        names = ("partition", "base_offset", "end_offset", "record_count", "min_timestamp",
                 "max_timestamp", "log_bytes", "codec")  # fmt: skip
        rows = [
            tuple(_instant(name, row[name]) for name in names)
            for row in self._rows.select(names).slice(0, _SHOWN).to_pylist()
        ]
        title = f"{len(self):,} segments of {self._topic}"
        return Table(title, [name.replace("_", " ") for name in names], rows, len(self))


def _instant(name: str, value: Any) -> Any:
    if name.endswith("timestamp"):
        return format_ms(value) if value >= 0 else None
    return value
