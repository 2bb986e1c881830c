"""Rows for the tests of the catalog."""

from collections.abc import Sequence
from typing import Any

from seglake.catalog.schema import PartitionRow, Row, RunRow, SegmentRow, SourceRow, TopicRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import UnknownTopic
from seglake.layout import new_attempt

ATTEMPT = "0b6e6a3c-4a53-4a8e-9d0b-6f1f5f0b7a11"


def segment(base_offset: int, end_offset: int, **changes: Any) -> SegmentRow:
    row: dict[str, Any] = {
        "topic": "orders",
        "partition": 0,
        "base_offset": base_offset,
        "end_offset": end_offset,
        "record_count": end_offset - base_offset,
        "min_timestamp": base_offset,
        "max_timestamp": end_offset - 1,
        "offset_of_max_timestamp": end_offset - 1,
        "max_lateness_ms": 0,
        "timestamp_type": "CreateTime",
        "codec": "zstd",
        "log_bytes": 1000,
        "index_bytes": 16,
        "timeindex_bytes": 24,
        "zonemap_bytes": 99,
        "log_crc32c": 2**32 - 1,
        "index_crc32c": 0,
        "timeindex_crc32c": 2**31,
        "zonemap_crc32c": 7,
        "index_interval_kind": "bytes",
        "index_interval": 4096,
        "attempt_id": ATTEMPT,
        "created_at_ms": 1_700_000_000_000,
    }
    return SegmentRow(**{**row, **changes})


def run(run_id: str, attempt_id: str, topic: str = "orders", **changes: Any) -> RunRow:
    row: dict[str, Any] = {"pipeline": "daily", "fingerprint": "f", "started_at_ms": 1}
    row |= {"topic": topic, "run_id": run_id, "attempt_id": attempt_id, "finished_at_ms": 2}
    return RunRow(**{**row, **changes})


def source(path: str, attempt_id: str = ATTEMPT, topic: str = "orders") -> SourceRow:
    facts: dict[str, Any] = {"size_bytes": 1, "modified_ms": 2, "etag": None, "rows": 3}
    return SourceRow(topic=topic, path=path, attempt_id=attempt_id, **facts)


def topic(name: str = "orders", partitions: int = 2, sequence: int = 1) -> TopicRow:
    return TopicRow(
        topic=name,
        sequence=sequence,
        partitions=partitions,
        partitioner="murmur2",
        timestamp_type="CreateTime",
    )


__all__ = ["ATTEMPT", "new_attempt", "run", "segment", "source", "topic"]


def commit_rows(
    catalog: CatalogTable, rows: Sequence[Row], base: Snapshot | None = None,
    attempt_id: str = "", **removed: Any,
) -> int:  # fmt: skip
    """Commit rows of one topic, by default onto the newest version and as a new attempt."""
    change, base = Change(rows, **removed), base or catalog.snapshot()
    own = attempt_id or new_attempt()
    return catalog.commits.make(change, topic=rows[0].topic, base=base, attempt_id=own)


def append(
    catalog: CatalogTable, base: Snapshot, count: int, name: str = "orders", **changes: Any
) -> tuple[int, str]:
    """One run that adds a segment of `count` records to partition 0; creates the topic."""
    attempt = new_attempt()
    try:
        end = base.partition(name, 0).end_offset
        rows: list[Row] = []
    except UnknownTopic:
        end, rows = 0, [topic(name)]
    rows += [segment(end, end + count, topic=name, attempt_id=attempt, **changes)]
    rows += [run(f"run {attempt}", attempt, name), source(f"in/{attempt}", attempt, name)]
    return commit_rows(catalog, rows, base=base, attempt_id=attempt), attempt


def drop_first(catalog: CatalogTable, base: Snapshot, name: str) -> int:
    """Let the oldest segment of a topic leave, so that its log starts later."""
    view = base.partition(name, 0)
    first = view.segment(0)
    bounds = PartitionRow(
        topic=name,
        partition=0,
        sequence=view.sequence + 1,
        log_start_offset=first.end_offset,
        next_offset=view.end_offset,
    )
    commit_rows(catalog, [bounds], base=base, replaced=[(0, first.base_offset)])
    return first.end_offset
