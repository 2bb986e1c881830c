"""What one commit changes, checked against the version it continues before anything is written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from seglake import layout
from seglake.catalog.delta.data_files import segments_by_partition
from seglake.catalog.rows import AnyRow, Kind, PartitionRow, Row, SegmentRow, TopicRow, file_table
from seglake.catalog.version.segment_columns import Int64s
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import UnknownTopic, UsageError


class Change(NamedTuple):
    """New rows of one topic by kind, and the base offsets of segments that go, by partition."""

    topic: str
    added: dict[Kind, pa.Table]
    gone: dict[int, Int64s]

    def kept(self, segments: pa.Table) -> pa.Table:
        """The rows of `segments` that stay."""
        partitions = segments["partition"].to_numpy()
        base_offsets = segments["base_offset"].to_numpy()
        keep = np.ones(len(segments), bool)
        for partition, offsets in self.gone.items():
            keep &= (partitions != partition) | ~np.isin(base_offsets, offsets)
        return segments.filter(pa.array(keep))


def with_append_times(rows: Iterable[Row], base: Snapshot) -> list[Row]:
    """The rows to commit on top of `base`; what removes records says the last append time itself.

    Under LogAppendTime that time must not be forgotten with the segments that had it.
    """
    return [_with_append_time(row, base) if isinstance(row, PartitionRow) else row for row in rows]


def _with_append_time(row: PartitionRow, base: Snapshot) -> PartitionRow:
    try:
        stamped = base.topic(row.topic).timestamp_type == "LogAppendTime"
        view = base.partition(row.topic, row.partition)
    except UnknownTopic:
        return row
    if not stamped or row.last_append_time_ms is not None:
        return row
    return replace(row, last_append_time_ms=view.largest_timestamp)


def checked_change(
    rows: Sequence[Row], replaced: Iterable[tuple[int, int]], topic: str, base: Snapshot
) -> Change:
    """The change that adds `rows` and takes away `replaced`, as (partition, base offset).

    Raises CorruptData if the log would have a hole or an overlap then, and UsageError for rows of
    another topic, for no row at all, and for rows that contradict or would not replace older ones.
    """
    layout.check_topic(topic)
    if not rows or any(row.topic != topic for row in rows):
        raise UsageError(f"a commit to {topic!r} needs rows of this topic, and of no other")
    topics, partitions = _of(TopicRow, rows), _of(PartitionRow, rows)
    segments = _of(SegmentRow, rows)
    for segment in segments:
        layout.check_attempt(segment.attempt_id)
        layout.check_attempt(segment.index_attempt_id)
    for settings in topics:
        _check_topic(settings, base)
    for bounds in partitions:
        _check_partition(bounds, base)
    gone = _gone(replaced, topic, base)
    found = segments_by_partition([file_table(segments)]) if segments else {}
    added = {(topic, partition): columns for partition, columns in found.items()}
    known = base if gone or partitions else base.ends(added)
    known.with_rows(
        base.version + 1,
        base.files,
        topics=topics,
        partitions=partitions,
        added=added,
        removed={(topic, partition): offsets for partition, offsets in gone.items()},
    )
    return Change(topic, _tables(rows), gone)


def _of(row_type: type[AnyRow], rows: Iterable[Row]) -> list[AnyRow]:
    return [row for row in rows if isinstance(row, row_type)]


def _tables(rows: Iterable[Row]) -> dict[Kind, pa.Table]:
    kinds: dict[Kind, list[Row]] = defaultdict(list)
    for row in rows:
        kinds[row.KIND].append(row)
    return {kind: file_table(same) for kind, same in kinds.items()}


def _check_topic(row: TopicRow, base: Snapshot) -> None:
    if row.partitions < 1:
        raise UsageError(f"topic {row.topic!r} needs at least one partition")
    try:
        known = base.topic(row.topic)
    except UnknownTopic:
        return
    if row.sequence <= known.sequence:
        raise UsageError(f"topic {row.topic!r} is at sequence {known.sequence}; {row} is not newer")
    if row.partitions < known.partitions:
        raise UsageError(
            f"topic {row.topic!r} has {known.partitions} partitions; the number may only grow"
        )


def _check_partition(row: PartitionRow, base: Snapshot) -> None:
    try:
        known = base.partition(row.topic, row.partition)
    except UnknownTopic:
        return
    if row.sequence <= known.sequence:
        raise UsageError(f"{row} is not newer than sequence {known.sequence}")
    if row.log_start_offset < known.log_start_offset or row.next_offset < known.end_offset:
        raise UsageError(
            f"{row} would go back: the log holds {known.log_start_offset} to {known.end_offset}"
        )


def _gone(replaced: Iterable[tuple[int, int]], topic: str, base: Snapshot) -> dict[int, Int64s]:
    found: dict[int, list[int]] = defaultdict(list)
    for partition, base_offset in replaced:
        found[partition].append(base_offset)
    gone = {partition: np.array(offsets, np.int64) for partition, offsets in found.items()}
    for partition, offsets in gone.items():
        live = base.partition(topic, partition).segments.base_offsets
        if not np.isin(offsets, live).all():
            raise UsageError(
                f"{topic}-{partition}: no segment begins at some of {offsets.tolist()}"
            )
    return gone
