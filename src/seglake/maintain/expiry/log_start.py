"""The log start of a log partition, moved; and the segments below it, which go with it.

Kafka's log has an active segment, which is never removed. Every segment of a lake is closed, as if
an empty active one followed the last. So the last segment may go too: the partition row keeps the
offsets, which never restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seglake.catalog.schema import PartitionRow, Row
from seglake.catalog.topic_change import Change
from seglake.catalog.version.snapshot import PartitionView, Snapshot
from seglake.maintain.report import MaintenanceReport, TopicReport


@dataclass
class Moved(MaintenanceReport):
    """A log start that moved from `before` to `after`, and the segments that went with it.

    `records` and `log_bytes` count what these segments have. Deleted records in the segment that
    follows are not counted: its files stay as they are.
    """

    partition: int
    before: int
    after: int
    segments: int
    records: int
    log_bytes: int


def moved(view: PartitionView, offset: int) -> Moved:
    """What happens if the log of a partition begins at `offset`, which lies in the log."""
    segments = view.segments
    gone = segments.details[: _below(view, offset)]
    return Moved(
        view.partition,
        view.log_start_offset,
        offset,
        len(gone),
        int(gone["record_count"].sum(dtype=np.int64)),
        int(gone["sizes"][:, 0].sum(dtype=np.int64)),
    )


def change_of(
    base: Snapshot, report: TopicReport, operation: str, moves: Sequence[Moved]
) -> Change:
    """The commit that moves the log starts of a topic; `report` is that of the operation."""
    rows: list[Row] = []
    replaced: list[tuple[int, int]] = []
    for move in moves:
        view = base.partition(report.topic, move.partition)
        rows.append(_row(view, move.after))
        gone = view.segments.base_offsets[: move.segments].tolist()
        replaced += [(move.partition, base_offset) for base_offset in gone]
    return Change([*rows, report.row(operation)], replaced)


def _below(view: PartitionView, offset: int) -> int:
    """The number of segments that end at or below an offset."""
    return int(np.searchsorted(view.segments.end_offsets, offset, "right"))


def _row(view: PartitionView, log_start_offset: int) -> PartitionRow:
    return PartitionRow(
        topic=view.topic,
        partition=view.partition,
        sequence=view.sequence + 1,
        log_start_offset=log_start_offset,
        next_offset=view.end_offset,
    )
