"""Lakes of which only the catalog exists: what retention does is a matter of rows alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from seglake.catalog.schema import PartitionRow, Row
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.transaction import transact
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import combined_topic
from seglake.layout import new_attempt
from seglake.write.driver.topics import settings_json
from tests.makers.catalog_rows import run, segment, topic
from tests.makers.lakes import create_catalog


class Sketch(NamedTuple):
    """A segment: the offsets that it covers, its largest timestamp (-1: none), its log's size."""

    offsets: int
    timestamp: int
    log_bytes: int
    created_at_ms: int = 0
    records: int | None = None  # as many as offsets, unless it is given


def sketched_lake(
    root: Path | str,
    partitions: Sequence[Sequence[Sketch]],
    settings: Mapping[str, Any],
    log_starts: Mapping[int, int] | None = None,
) -> CatalogTable:
    """A lake with the topic `orders`, whose log partitions have these segments and log starts."""
    table = create_catalog(str(root))
    attempt = new_attempt()
    rows: list[Row] = [run("1", attempt)]
    stored = settings_json(combined_topic({}, {"name": "orders", **settings}), {})
    rows.append(replace(topic("orders", len(partitions)), settings=stored))
    ends = []
    for number, sketches in enumerate(partitions):
        base = 0
        for each in sketches:
            rows.append(_segment(number, base, each, attempt))
            base += each.offsets
        ends.append(base)
    transact(table, "orders", attempt, partial(_change, rows, ()))
    for number, start in (log_starts or {}).items():
        bounds = PartitionRow(
            topic="orders", partition=number, sequence=1, log_start_offset=start,
            next_offset=ends[number],
        )  # fmt: skip
        gone = _below(table, number, start)
        transact(table, "orders", new_attempt(), partial(_change, [bounds], gone))
    return table


def _below(table: CatalogTable, partition: int, offset: int) -> list[tuple[int, int]]:
    """The segments that end at or below an offset: no lake has such below its log start."""
    segments = table.snapshot().partition("orders", partition).segments
    gone = segments.base_offsets[segments.end_offsets <= offset].tolist()
    return [(partition, base_offset) for base_offset in gone]


def _change(rows: Sequence[Row], replaced: Sequence[tuple[int, int]], _base: Snapshot) -> Change:
    return Change(rows, replaced)


def _segment(partition: int, base: int, sketch: Sketch, attempt: str) -> Row:
    timed = sketch.timestamp >= 0
    made = segment(
        base,
        base + sketch.offsets,
        partition=partition,
        min_timestamp=sketch.timestamp,
        max_timestamp=sketch.timestamp,
        offset_of_max_timestamp=base if timed else -1,
        log_bytes=sketch.log_bytes,
        created_at_ms=sketch.created_at_ms,
        attempt_id=attempt,
    )
    return made if sketch.records is None else replace(made, record_count=sketch.records)
