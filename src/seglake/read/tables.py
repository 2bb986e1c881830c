"""Show which version of the lake a published table has, and which segments it lacks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from seglake.catalog.published import (
    PublishedSegment,
    PublishedTable,
    columns_digest,
    wanted_segments,
)
from seglake.catalog.schema import TableRow
from seglake.catalog.version.snapshot import Snapshot
from seglake.log.execute import execute, schema_of
from seglake.log.reads import PartitionReader, SharedReads
from seglake.log.segment import LogSegment, Window
from seglake.read.window.plan import pieces_of
from seglake.terminal.tables import ShowsTable, Table, report_table


@dataclass(frozen=True, repr=False)
class TableStatus(ShowsTable):
    """A published table, and its distance from the open version of the lake.

    `version` is the newest version of the Delta table, and `lake_version` the version of the lake
    that it shows. Both are -1 before the first publish. `segments_behind` counts the segments of
    the open version that the table lacks. They have at most `records_behind` records.
    `files_ahead` counts the files of the table that the open version does not have. The table
    equals the log of the open version if all three counts are 0.
    """

    topic: str
    uri: str
    version: int
    lake_version: int
    open_version: int
    segments_behind: int
    records_behind: int
    files_ahead: int

    def _table(self) -> Table:
        return report_table(type(self).__name__, asdict(self))


def status_of(reads: SharedReads, lake: str, snapshot: Snapshot, row: TableRow) -> TableStatus:
    """Return the status of a table. Raises what `PublishedTable.read` raises."""
    table = PublishedTable(reads.store, lake, row)
    there, wanted = table.read(), visible_segments(reads, snapshot, row)
    found = {*there.segments().values()} if there else set()
    missing = [wanted[each] for each in wanted.keys() - found]
    right = len(found & wanted.keys())
    version, shows = (there.version, there.shows) if there else (-1, None)
    return TableStatus(
        row.topic, table.uri, version, -1 if shows is None else shows, snapshot.version,
        len(missing), sum(each.record_count for each in missing),
        (len(there.files) if there else 0) - right,
    )  # fmt: skip


def visible_segments(
    reads: SharedReads, snapshot: Snapshot, row: TableRow
) -> dict[PublishedSegment, LogSegment]:
    """Return each segment that a complete table shows, by the key of its file in the table."""
    wanted = wanted_segments(snapshot, row.topic, columns_digest(row, snapshot))
    visible = {}
    for each, (view, index) in wanted.items():
        segment = LogSegment.from_view(view, index)
        gaps = segment.record_count < segment.end_offset - segment.base_offset
        if not gaps or each.first_offset == segment.base_offset or _has_record(reads, each, view):
            visible[each] = segment
    return visible


def _has_record(reads: SharedReads, each: PublishedSegment, view: Any) -> bool:
    """Return whether the segment that contains the log start has a record at or after it."""
    window = Window(start_offset=each.first_offset, end_offset=each.end_offset)
    pieces = pieces_of([(PartitionReader(view, reads), window)])
    return next(execute(reads.fetch, pieces, schema_of(["offset"])), None) is not None
