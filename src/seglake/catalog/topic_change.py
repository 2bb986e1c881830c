"""What one commit changes in a topic, checked against the version it continues before any write."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from seglake import layout
from seglake.catalog.rows import (
    AnyRow,
    Kind,
    PartitionRow,
    Row,
    SegmentId,
    SegmentRow,
    TopicRow,
    file_table,
)
from seglake.catalog.version.segment_columns import Int64s, segments_by_partition
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import UnknownTopic, UsageError


class TopicChange(NamedTuple):
    """New rows of one topic, and the segments that they replace."""

    topic: str
    rows: Sequence[Row]
    replaced: Sequence[SegmentId]

    def tables(self, rewritten: Sequence[pa.Table]) -> dict[Kind, pa.Table]:
        """The data files to write, by kind; `rewritten` are those with the replaced segments."""
        kinds: dict[Kind, list[Row]] = defaultdict(list)
        for row in self.rows:
            kinds[row.KIND].append(row)
        tables = {kind: file_table(rows) for kind, rows in kinds.items()}
        if rewritten:
            new = [tables["segment"]] if "segment" in tables else []
            tables["segment"] = pa.concat_tables([self._remaining(rewritten), *new])
        return {kind: table for kind, table in tables.items() if len(table)}

    def _remaining(self, segments: Sequence[pa.Table]) -> pa.Table:
        """The rows of `segments` that are not replaced."""
        table = pa.concat_tables(segments)
        partitions, base_offsets = table["partition"].to_numpy(), table["base_offset"].to_numpy()
        remains = np.ones(len(table), bool)
        for partition, offsets in _by_partition(s[1:3] for s in self.replaced).items():
            remains &= (partitions != partition) | ~np.isin(base_offsets, offsets)
        return table.filter(pa.array(remains))


def checked_change(
    rows: Sequence[Row], replaced: Sequence[tuple[int, int]], topic: str, base: Snapshot
) -> TopicChange:
    """The change that adds `rows` and replaces segments, given as (partition, base offset).

    Raises CorruptData if the log would then have a hole or an overlap, and UsageError for rows of
    another topic, for no row at all, and for rows that contradict newer ones.
    """
    layout.check_topic(topic)
    if not rows or any(row.topic != topic for row in rows):
        raise UsageError(f"a commit to {topic!r} needs rows of this topic, and of no other")
    for row in rows:
        _check_row(row, base)
    removed = {
        (topic, partition): _live(topic, partition, offsets, base)
        for partition, offsets in _by_partition(replaced).items()
    }
    _check_log(rows, removed, base)
    rows = [_with_append_time(row, base) if isinstance(row, PartitionRow) else row for row in rows]
    return TopicChange(topic, rows, [_identity(base, topic, *segment) for segment in replaced])


def _check_row(row: Row, base: Snapshot) -> None:
    if isinstance(row, SegmentRow):
        layout.check_attempt(row.attempt_id)
        layout.check_attempt(row.index_attempt_id)
    elif isinstance(row, TopicRow):
        _check_topic(row, base)
    elif isinstance(row, PartitionRow):
        _check_partition(row, base)


def _check_log(
    rows: Sequence[Row], removed: Mapping[tuple[str, int], Int64s], base: Snapshot
) -> None:
    """Raise CorruptData if a log partition would have a hole or an overlap."""
    segments, bounds = _of(SegmentRow, rows), _of(PartitionRow, rows)
    found = segments_by_partition([file_table(segments)]) if segments else {}
    added = {(rows[0].topic, partition): columns for partition, columns in found.items()}
    known = base if removed or bounds else base.ends(added)
    topics = _of(TopicRow, rows)
    known.with_rows(
        base.version + 1, base.files, topics=topics, partitions=bounds, added=added, removed=removed
    )


def _of(row_type: type[AnyRow], rows: Iterable[Row]) -> list[AnyRow]:
    return [row for row in rows if isinstance(row, row_type)]


def _by_partition(segments: Iterable[tuple[int, int]]) -> dict[int, Int64s]:
    """The base offsets of each log partition, from pairs of both."""
    found: dict[int, list[int]] = defaultdict(list)
    for partition, base_offset in segments:
        found[partition].append(base_offset)
    return {partition: np.array(offsets, np.int64) for partition, offsets in found.items()}


def _with_append_time(row: PartitionRow, base: Snapshot) -> PartitionRow:
    """The row, with the last append time of a LogAppendTime topic: segments to remove have it."""
    try:
        stamped = base.topic(row.topic).timestamp_type == "LogAppendTime"
        view = base.partition(row.topic, row.partition)
    except UnknownTopic:
        return row
    if not stamped or row.last_append_time_ms is not None:
        return row
    return replace(row, last_append_time_ms=view.largest_timestamp)


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


def _live(topic: str, partition: int, base_offsets: Int64s, base: Snapshot) -> Int64s:
    """The base offsets themselves; UsageError unless a live segment begins at each."""
    if not np.isin(base_offsets, base.partition(topic, partition).segments.base_offsets).all():
        found = base_offsets.tolist()
        raise UsageError(f"{topic}-{partition}: no segment begins at some of {found}")
    return base_offsets


def _identity(base: Snapshot, topic: str, partition: int, base_offset: int) -> SegmentId:
    view = base.partition(topic, partition)
    return view.segment(view.index_of(base_offset)).id
