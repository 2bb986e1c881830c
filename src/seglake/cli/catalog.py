"""Topics, segments, offsets and runs of a lake, as rows to show."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from seglake.catalog.rows import MaintenanceRow, RunRow
from seglake.cli.terminal.tables import Column, Rows, moment, number
from seglake.read.lake import Lake
from seglake.read.listings import interval, took
from seglake.read.log import Log


def topic_rows(lake: Lake) -> Rows:
    """A row for each topic of a lake: its settings and sizes."""
    columns = [
        Column("topic", "topic"),
        number("partitions", "partitions"),
        Column("timestamp_type", "clock"),
        number("segments", "segments"),
        number("records", "records"),
        number("log_bytes", "bytes"),
        moment("min_timestamp", "oldest"),
        moment("max_timestamp", "newest"),
    ]
    return Rows(columns, (_topic_row(lake.topic(name)) for name in lake.topics()))


def _topic_row(log: Log) -> dict[str, Any]:
    views = [log.reader(partition).view.segments for partition in log.partitions()]
    lows = [int(view.min_timestamps.min()) for view in views if len(view.min_timestamps)]
    highs = [int(view.max_timestamps.max()) for view in views if len(view.max_timestamps)]
    return {
        "topic": log.topic,
        "version": log.version,
        "partitions": len(views),
        "partitioner": log.settings.partitioner,
        "timestamp_type": log.settings.timestamp_type,
        "segments": sum(len(view.base_offsets) for view in views),
        "records": sum(int(view.details["record_count"].sum()) for view in views),
        "log_bytes": sum(int(view.details["sizes"][:, 0].sum()) for view in views),
        "min_timestamp": min(lows, default=-1),
        "max_timestamp": max(highs, default=-1),
    }


def segment_rows(log: Log, partition: int | None) -> Rows:
    """A row for each segment of a topic."""
    columns = [
        number("partition", "partition"),
        number("base_offset", "base offset"),
        number("end_offset", "end offset"),
        number("record_count", "records"),
        moment("min_timestamp", "oldest"),
        moment("max_timestamp", "newest"),
        number("log_bytes", "log bytes"),
        number("index_bytes", "index bytes"),
        Column("codec", "codec"),
    ]
    chosen = log.partitions() if partition is None else [partition]
    return Rows(columns, (row for number in chosen for row in _segments_of(log, number)))


def _segments_of(log: Log, partition: int) -> Iterator[dict[str, Any]]:
    view = log.reader(partition).view
    for index in range(len(view.segments.base_offsets)):
        segment = view.segment(index)
        row = asdict(segment)
        sizes = row.pop("sizes")
        yield {
            **row,
            "log_bytes": sizes["log"],
            "index_bytes": sum(sizes.values()) - sizes["log"],
            "log": segment.key("log"),
        }


def offset_rows(log: Log, time: str, partition: int | None) -> Rows:
    """A row for each partition: its offset at a time, or at one of Kafka's special times."""
    columns = [
        number("partition", "partition"),
        number("offset", "offset"),
        moment("timestamp", "timestamp"),
    ]
    chosen = log.partitions() if partition is None else [partition]
    names = [column.field for column in columns]
    found = _find(log, time, chosen)
    return Rows(columns, [dict(zip(names, (p, *place), strict=True)) for p, place in found.items()])


def _find(log: Log, time: str, chosen: list[int]) -> dict[int, tuple[int | None, int | None]]:
    if time == "earliest":
        return {p: (offset, None) for p, offset in log.beginning_offsets(chosen).items()}
    if time == "latest":
        return {p: (offset, None) for p, offset in log.end_offsets(chosen).items()}
    if time == "max-timestamp":
        found = log.max_timestamps(chosen)
    else:
        found = log.offsets_for_times(dict.fromkeys(chosen, time))
    return {p: answer or (None, None) for p, answer in found.items()}


def history_rows(commits: Iterable[RunRow | MaintenanceRow], *, as_json: bool) -> Rows:
    """A row for each commit of an ingest or of maintenance, in the order of their ends.

    JSON has all columns of the catalog; a table has some, and interval, duration and reasons.
    """
    columns = [
        moment("finished_at_ms", "finished"),
        Column("topic", "topic"),
        Column("operation", "operation"),
        Column("pipeline", "pipeline"),
        Column("run_id", "run"),
        Column("state", "state"),
        number("input_files", "files"),
        number("input_rows", "rows"),
        number("records", "records"),
        number("quarantined", "quarantined"),
    ]
    empty = dict.fromkeys(column.field for column in columns) | {"operation": "ingest"}
    ordered = sorted(commits, key=lambda commit: commit.finished_at_ms)
    if as_json:
        return Rows(columns, ({**empty, **asdict(commit)} for commit in ordered))
    details = [Column(name, name) for name in ("interval", "took")]
    columns = [*columns[:6], *details, *columns[6:], Column("reasons", "reasons")]
    return Rows(columns, ({**empty, **asdict(commit), **_details(commit)} for commit in ordered))


def _details(commit: RunRow | MaintenanceRow) -> dict[str, str | None]:
    if isinstance(commit, MaintenanceRow):
        return {"interval": None, "took": took(commit), "reasons": None}
    found = json.loads(commit.report).get("reasons") or {}
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in found.items())
    return {"interval": interval(commit), "took": took(commit), "reasons": reasons or None}
