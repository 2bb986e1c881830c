"""Tags of versions that hold one of some keys: each gets an object without the records.

The new row of a tag names a new object of the same version. The object lists segments that were
written again, and says which offsets left. It is in the commit of the erasure: nobody sees a tag
with the records and a newest version without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from seglake.catalog.schema import SegmentRow, TagRow, file_table
from seglake.catalog.table import CatalogTable
from seglake.catalog.tags import ErasedRecords, Rows, live_tags, read_object, write_object
from seglake.catalog.version.snapshot import Snapshot
from seglake.clock import now_ms
from seglake.errors import UsageError
from seglake.format.index import Subjects
from seglake.layout import new_attempt
from seglake.maintain.erasure.logs import LogErasure
from seglake.maintain.tagging import rows_of_version
from seglake.shown import counted


def require_own(snapshot: Snapshot, topic: str) -> None:
    """Raise UsageError if logs lie outside the lake: an erasure would leave the records there."""
    views = snapshot.partitions(topic)
    count = sum(int(view.segments.details["external"].sum()) for view in views)
    if count:
        raise UsageError(
            f"{counted(count, 'segment')} of {topic} {'is' if count == 1 else 'are'} attached, and "
            "Seglake never changes what lies "
            "outside the lake: import the topic under another name, erase there, and delete the "
            "objects where they are"
        )


@dataclass(frozen=True)
class _Holder:
    """A tag, its version, and the segments in it that lose records."""

    tag: TagRow
    version: Snapshot
    segments: list[SegmentRow]


class TagErasure:
    """The tags that hold one of the keys, in any version of the catalog that a commit continues.

    A row of a tag is looked at once, and what was written for it serves each version of the catalog
    that has this row.
    """

    def __init__(self, table: CatalogTable, topic: str, logs: LogErasure) -> None:
        self._table, self._topic, self._logs = table, topic, logs
        self._seen: dict[TagRow, _Holder | None] = {}
        self._holders: list[_Holder] = []  # of the last version
        self._written: dict[TagRow, TagRow] = {}

    def find(self, base: Snapshot) -> dict[str, int]:
        """How many records each tag of a version of the catalog loses, by the tag's name.

        Raises UsageError if a tag names logs outside the lake, VersionExpired if a tag is deleted
        meanwhile, CorruptData and StoreError.
        """
        tags = live_tags(self._table.store, base.files)
        self._seen |= {tag: self._holder(tag) for tag in tags if tag not in self._seen}
        self._holders = [holder for tag in tags if (holder := self._seen[tag])]
        return {each.tag.name: self._logs.count(each.segments) for each in self._holders}

    def _holder(self, tag: TagRow) -> _Holder | None:
        version = self._table.tagged(tag, [self._topic])
        if version.find_topic(self._topic) is None:
            return None
        require_own(version, self._topic)
        segments = self._logs.find(version)
        return _Holder(tag, version, segments) if segments else None

    def rows(self, subjects: Subjects) -> list[TagRow]:
        """New rows of the tags that `find` found last. Their segments get an index of `subjects`.

        Raises CorruptData and StoreError.
        """
        return [self._row(holder, subjects) for holder in self._holders]

    def _row(self, holder: _Holder, subjects: Subjects) -> TagRow:
        tag, table = holder.tag, self._table
        if tag not in self._written:
            new = self._logs.written(holder.segments, subjects)
            attempt_id = new_attempt()
            self._logs.attempts.add(attempt_id)
            erased = [*read_object(table.store, tag).erased, *self._erased(holder.segments)]
            rows = self._rows(holder, new)
            written = write_object(table.store, attempt_id, tag.version, table.lake, rows, erased)
            self._written[tag] = replace(
                tag, sequence=tag.sequence + 1, attempt_id=attempt_id,
                object_bytes=written.size_bytes, object_crc32c=written.checksum,
            )  # fmt: skip
        return self._written[tag]

    def _erased(self, segments: list[SegmentRow]) -> Iterator[ErasedRecords]:
        at_ms = now_ms()
        for row in segments:
            hits = self._logs.hits(row)
            yield ErasedRecords(
                at_ms, row.topic, row.partition, hits.first_offset, hits.last_offset, hits.records
            )

    def _rows(self, holder: _Holder, new: list[SegmentRow]) -> Iterator[Rows]:
        """The rows of the version, with new segments in the place of the old ones."""
        for kind, topic, rows in rows_of_version(self._table, holder.version):
            mine = (kind, topic) == (SegmentRow.KIND, self._topic)
            yield kind, topic, _replaced(rows, holder.segments, new) if mine else rows


def _replaced(rows: pa.Table, gone: list[SegmentRow], new: list[SegmentRow]) -> pa.Table:
    """The segment rows of a topic, with new ones in the place of some."""
    places = {(row.partition, row.base_offset) for row in gone}
    columns = (rows[name].to_pylist() for name in ("partition", "base_offset"))
    stays = [place not in places for place in zip(*columns, strict=True)]
    return pa.concat_tables([rows.filter(pa.array(stays, pa.bool_())), file_table(new)])
