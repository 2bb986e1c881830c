"""Check a commit's change of a topic, and find the data files whose rows it removes."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seglake import layout
from seglake.catalog.delta.data_files import DataFile, read_files
from seglake.catalog.schema import (
    AnyRow,
    Kind,
    PartitionRow,
    Row,
    SegmentId,
    SegmentRow,
    TagRow,
    TopicRow,
    file_table,
)
from seglake.catalog.version.segments import Segments, segments_by_partition
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import CommitConflict, UsageError
from seglake.format.records import Int64s
from seglake.limits import REQUESTS
from seglake.store import Store

# ---------------- removal
# Remove rows from the catalog. This finds the data files that contain the rows, and rewrites only
# these files with their other rows.
#
# Statistics rule out most files. The others are read, the most likely first, until all rows are
# found. The first round reads one file. On an object store, each round reads twice as many files as
# the previous one.


class Removal(NamedTuple):
    """Rows of one kind to remove.

    `expected` is the number of rows, or None for any number. `stated` maps integer columns to the
    values in these rows, one item per row. `goes` returns a mask of the rows to remove in a table.
    """

    kind: Kind
    stated: Mapping[str, npt.NDArray[np.int64]]
    expected: int | None
    goes: Callable[[pa.Table], pa.BooleanArray]


class DividedFile(NamedTuple):
    """A data file with rows to remove (`goes`) and the rows to keep (`stays`)."""

    file: DataFile
    goes: pa.Table
    stays: pa.Table


def divide_files(
    store: Store, folder: str, files: Collection[DataFile], removal: Removal
) -> list[DividedFile]:
    """Return the data files that have rows to remove, each with its rows to remove and to keep.

    `files` are the data files of one topic. Raises CommitConflict if fewer rows than expected are
    found, CorruptData, MissingObject and StoreError.
    """
    parts, missing = list[DividedFile](), removal.expected
    likely = [f for f in files if f.kind == removal.kind and f.may_hold(removal.stated)]
    # Files with the narrowest bounds are the most likely ones.
    likely.sort(key=lambda f: (sum(high - low for low, high in f.bounds.values()), f))
    for some in _rounds(likely, removal, store):
        for file, rows in zip(some, read_files(store, folder, some), strict=True):
            gone = removal.goes(rows)
            part = DividedFile(file, rows.filter(gone), rows.filter(pc.invert(gone)))
            missing = missing and missing - len(part.goes)
            if len(part.goes):
                parts.append(part)
        if missing == 0:
            break
    if missing:
        raise CommitConflict(
            f"another commit removed rows of {folder} first (count: {missing}). Run again"
        )
    return parts


def _rounds(
    files: Sequence[DataFile], removal: Removal, store: Store
) -> Iterator[Sequence[DataFile]]:
    """Yield the files in groups. The files of a group are read concurrently."""
    most = REQUESTS if store.remote else 1
    first, at_once = 0, most if removal.expected is None else 1
    while first < len(files):
        yield files[first : first + at_once]
        first, at_once = first + at_once, min(2 * at_once, most)


# ---------------- change of a topic

_STATED = (  # the columns whose statistics show which data files may have a segment's row
    "partition", "base_offset", "end_offset", "min_timestamp", "max_timestamp", "record_count",
)  # fmt: skip


class Change(NamedTuple):
    """The change that one commit makes to a topic.

    It adds `rows`. It removes the live segments `replaced`, given as pairs of partition and base
    offset, and the source rows of the attempts `forgotten`. `other_attempts` have no
    commit, and the rows name their files. The topics `unchanged_topics` must not have changed since
    the version that this change continues. `tags` are new rows of tags. Tags belong to no topic, so
    `unchanged_topics` must then have `@lake`.
    """

    rows: Sequence[Row] = ()
    replaced: Sequence[tuple[int, int]] = ()
    forgotten: Collection[str] = ()
    other_attempts: Collection[str] = ()
    unchanged_topics: Collection[str] = ()
    tags: Sequence[TagRow] = ()


class TopicChange(NamedTuple):
    """A checked change of one topic: new rows (also of tags), and the rows to remove."""

    topic: str
    rows: Sequence[Row]
    replaced: Sequence[SegmentId]
    forgotten: Collection[str]

    def tables(self) -> dict[tuple[Kind, str], pa.Table]:
        """Return the new rows as the content of data files, by kind and topic."""
        kinds: dict[tuple[Kind, str], list[Row]] = defaultdict(list)
        for row in self.rows:
            kinds[row.KIND, row.topic].append(row)
        return {kind: file_table(rows) for kind, rows in kinds.items()}

    def removals(self, base: Snapshot) -> list[Removal]:
        """Return the removals of rows from the version `base`."""
        removals = []
        if self.replaced:
            places = [segment[1:3] for segment in self.replaced]
            removals.append(segment_removal(base, self.topic, places))
        if self.forgotten:
            gone = pa.array(sorted(self.forgotten))
            forgets = Removal("source", {}, None, lambda rows: pc.is_in(rows["attempt_id"], gone))
            removals.append(forgets)
        return removals


def segment_removal(base: Snapshot, topic: str, places: Iterable[tuple[int, int]]) -> Removal:
    """Return the removal of live segments, given as pairs of partition and base offset.

    Raises UsageError if a segment does not exist.
    """
    parts = []
    for partition, offsets in _by_partition(places).items():
        live = _live(topic, partition, offsets, base)
        chosen = live.take(live.beginning_at(np.sort(offsets)))
        numbers = np.full(len(offsets), partition, np.int64)
        parts.append([numbers, *chosen.columns[:4], chosen.details["record_count"]])
    values = [np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True)]

    goes = _rows_at(values[0], values[1])
    return Removal("segment", dict(zip(_STATED, values, strict=True)), len(values[0]), goes)


def _rows_at(partitions: Int64s, base_offsets: Int64s) -> Callable[[pa.Table], pa.BooleanArray]:
    """Return a function that selects the rows with one of these (partition, base offset) pairs."""
    distinct = np.unique(base_offsets)

    def numbered(of: Int64s, bases: Int64s) -> Int64s:
        numbers: Int64s = of * len(distinct) + distinct.searchsorted(bases)
        return numbers

    wanted = numbered(partitions, base_offsets)

    def goes(table: pa.Table) -> pa.BooleanArray:
        of, bases = (table[name].to_numpy().astype(np.int64) for name in _STATED[:2])
        return pa.array(np.isin(numbered(of, bases), wanted) & np.isin(bases, distinct))

    return goes


def check_change(change: Change, topic: str, base: Snapshot) -> TopicChange:
    """Check a change of a topic that continues the version `base`, and return the checked change.

    Raises CorruptData if the log would have a hole or an overlap after the change. Raises
    UsageError for rows of another topic, for a change without rows, and for rows that contradict
    rows of `base`.
    """
    rows, replaced = change.rows, change.replaced
    if topic != layout.WHOLE_LAKE:
        layout.check_topic(topic)
    if not rows or any(row.topic != topic for row in rows):
        raise UsageError(f"a commit to {topic!r} must have rows of this topic only")
    for row in rows:
        if isinstance(row, SegmentRow):
            layout.check_attempt(row.attempt_id)
            layout.check_attempt(row.index_attempt_id)
        elif isinstance(row, TopicRow):
            _check_topic(row, base)
        elif isinstance(row, PartitionRow):
            _check_partition(row, base)
    removed = {(topic, each): offsets for each, offsets in _by_partition(replaced).items()}
    for (_, partition), offsets in removed.items():
        _live(topic, partition, offsets, base)
    _check_log(rows, removed, base)
    rows = [_complete(row, base) if isinstance(row, PartitionRow) else row for row in rows]
    places = [(base.partition(topic, each), offset) for each, offset in replaced]
    gone = [view.segment(view.index_of(offset)).id for view, offset in places]
    return TopicChange(topic, [*rows, *change.tags], gone, change.forgotten)


def _check_log(
    rows: Sequence[Row], removed: Mapping[tuple[str, int], Int64s], base: Snapshot
) -> None:
    """Raise CorruptData if a log partition would have a hole or an overlap."""
    topic, segments, bounds = rows[0].topic, _of(SegmentRow, rows), _of(PartitionRow, rows)
    by_partition = segments_by_partition([file_table(segments)]) if segments else {}
    added = {(topic, partition): columns for partition, columns in by_partition.items()}
    before = base.only(topic, None if removed or bounds else by_partition)
    topics = _of(TopicRow, rows)
    before.with_rows(
        base.version + 1, base.files, topics=topics, partitions=bounds, added=added, removed=removed
    )


def _of(row_type: type[AnyRow], rows: Iterable[Row]) -> list[AnyRow]:
    return [row for row in rows if isinstance(row, row_type)]


def _by_partition(segments: Iterable[tuple[int, int]]) -> dict[int, Int64s]:
    """Group pairs of partition and base offset. Return the base offsets of each partition."""
    lists: dict[int, list[int]] = defaultdict(list)
    for partition, base_offset in segments:
        lists[partition].append(base_offset)
    return {partition: np.array(offsets, np.int64) for partition, offsets in lists.items()}


def _complete(row: PartitionRow, base: Snapshot) -> PartitionRow:
    """Return the row with missing values copied from the version `base`."""
    view = base.find_partition(row.topic, row.partition)
    if view is None:
        return row
    if row.cleaned_offset is None:
        row = replace(row, cleaned_offset=view.cleaned_offset)
    if row.leader_epoch is None:
        row = replace(row, leader_epoch=view.leader_epoch)
    # The commit may remove the segments that have the last append time.
    stamped = base.topic(row.topic).timestamp_type == "LogAppendTime"
    if not stamped or row.last_append_time_ms is not None:
        return row
    return replace(row, last_append_time_ms=view.largest_timestamp)


def _check_topic(row: TopicRow, base: Snapshot) -> None:
    if row.partitions < 1:
        raise UsageError(f"topic {row.topic!r} needs at least one partition")
    stored = base.find_topic(row.topic)
    if stored is None:
        return
    if row.sequence <= stored.sequence:
        raise UsageError(
            f"topic {row.topic!r} is already at sequence {stored.sequence}; {row} is not newer"
        )
    if row.partitions < stored.partitions:
        raise UsageError(
            f"{row.topic!r}: {stored.partitions} partitions cannot be lowered to {row.partitions}"
        )


def _check_partition(row: PartitionRow, base: Snapshot) -> None:
    stored = base.find_partition(row.topic, row.partition)
    if stored is None:
        return
    if row.sequence <= stored.sequence:
        raise UsageError(f"{row} is not newer than sequence {stored.sequence}")
    if row.log_start_offset < stored.log_start_offset or row.next_offset < stored.end_offset:
        raise UsageError(
            f"{row.topic}-{row.partition} has the offsets {stored.log_start_offset} to "
            f"{stored.end_offset}. {row.log_start_offset} to {row.next_offset} would be a step back"
        )


def _live(topic: str, partition: int, base_offsets: Int64s, base: Snapshot) -> Segments:
    """Return the live segments that begin at `base_offsets`. Raise UsageError if one is missing."""
    live = base.partition(topic, partition).segments
    if len(live.beginning_at(base_offsets)) < len(base_offsets):
        offsets = base_offsets.tolist()
        raise UsageError(
            f"{topic}-{partition} has no segment at one or more of the base offsets {offsets}"
        )
    return live
