"""`seglake topics`: the settings and sizes of the topics of a lake."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seglake.cli.arguments.options import Json, Root, Version
from seglake.cli.terminal.tables import Listing, show
from seglake.shown import Column, moment, number, size

if TYPE_CHECKING:
    from seglake.log.segment_lookup import PartitionReader
    from seglake.read.lake import Lake
    from seglake.read.log import Log


def topics(root: Root, version: Version = None, json: Json = False) -> None:
    """List the topics of a lake."""
    import seglake

    show("topics", topic_rows(seglake.open(root, version)), as_json=json)


def topic_rows(lake: Lake) -> Listing:
    """A row for each topic of a lake: its settings and sizes."""
    columns = [
        Column("topic", "topic"),
        number("partitions", "partitions", rank=3),
        Column("timestamp_type", "clock", rank=4),
        number("segments", "segments", rank=2),
        number("records", "records"),
        size("log_bytes", "bytes"),
        moment("min_timestamp", "oldest", rank=1),
        moment("max_timestamp", "newest"),
    ]
    return Listing(columns, (_topic_row(lake.topic(name)) for name in lake.topics()))


def _oldest(reader: PartitionReader) -> int:
    """The smallest timestamp of a log partition, -1 without one: an empty segment has none."""
    from seglake.read.consumers import oldest_in

    if not len(reader.view):
        return -1
    times = [oldest_in(reader, 0), *reader.view.segments.min_timestamps[1:].tolist()]
    return min((time for time in times if time >= 0), default=-1)


def _topic_row(log: Log) -> dict[str, Any]:
    readers = [log.reader(partition) for partition in log.partitions()]
    partitions = [reader.view for reader in readers]
    views = [view.segments for view in partitions]
    lows = [_oldest(reader) for reader in readers]
    highs = [int(view.max_timestamps.max()) for view in views if len(view.max_timestamps)]
    return {
        "topic": log.topic,
        "version": log.version,
        "partitions": len(views),
        "partitioner": log.settings.partitioner,
        "timestamp_type": log.settings.timestamp_type,
        "segments": sum(len(view.base_offsets) for view in views),
        "records": sum(view.record_count for view in partitions),
        "log_bytes": sum(int(view.details["sizes"][:, 0].sum()) for view in views),
        "min_timestamp": min((low for low in lows if low >= 0), default=-1),
        "max_timestamp": max(highs, default=-1),
    }
