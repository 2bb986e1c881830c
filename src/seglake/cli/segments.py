"""`seglake segments`: offsets, times and sizes of the segments of a topic."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from seglake.cli.arguments.options import Json, Partition, Root, Topic, Version
from seglake.cli.terminal.tables import Listing, show
from seglake.shown import size

if TYPE_CHECKING:
    from seglake.read.log import Log


def segments(
    root: Root,
    topic: Topic,
    partition: Partition = None,
    version: Version = None,
    json: Json = False,
) -> None:
    """List the segments of a topic."""
    import seglake

    log = seglake.open(root, version).topic(topic)
    show(f"segments of {topic}", segment_rows(log, partition), as_json=json)


def segment_rows(log: Log, partition: int | None) -> Listing:
    """A row for each segment of a topic."""
    from seglake.read.listings import SEGMENT_COLUMNS

    *columns, codec = SEGMENT_COLUMNS
    columns += [size("index_bytes", "index bytes", rank=4), codec]
    chosen = log.partitions() if partition is None else [partition]
    return Listing(columns, (row for number in chosen for row in _segments_of(log, number)))


def _segments_of(log: Log, partition: int) -> Iterator[dict[str, Any]]:
    from seglake.read.consumers import oldest_in

    reader = log.reader(partition)
    view = reader.view
    counts = view.record_counts.tolist()
    for index in range(len(view.segments.base_offsets)):
        segment = view.segment(index)
        row = asdict(segment)
        del row["keyindex_kinds"]  # how a search looks at it
        sizes = row.pop("sizes")
        yield {
            **row,
            "record_count": counts[index],
            "min_timestamp": oldest_in(reader, index) if counts[index] else -1,
            "log_bytes": sizes["log"],
            "index_bytes": sum(sizes.values()) - sizes["log"],
            "log": segment.key("log"),
        }
