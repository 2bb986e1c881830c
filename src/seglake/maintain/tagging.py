"""Name versions with tags. A tag keeps the rows and files of its version until it is deleted.

A vacuum must not delete the segments of a version that is tagged at the same time:

    1. A vacuum finds that version 7 has expired, and that no tag names it.
    2. A tag of version 7 is committed.
    3. The vacuum deletes the segments of version 7. The tagged version can no longer be read.

So both work in a fixed order (decision 27):

    1. A tag first opens the version that its commit continues, and then reads the tagged version.
    2. A vacuum deletes the data files of expired versions, commits a fence, and reads the tags
       again. Then it deletes segments.

If the tag commits before the fence, the vacuum finds the tag. Otherwise the tag loses to the fence,
reads its version again, and finds that the version has expired.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any, NamedTuple

import pyarrow as pa

from seglake import layout
from seglake.catalog.quarantine.open_rejects import ERASE
from seglake.catalog.schema import SegmentRow, TagRow, file_table
from seglake.catalog.table import CatalogTable
from seglake.catalog.tags import (
    ErasedRecords,
    Rows,
    TagObject,
    check_name,
    read_object,
    tag_rows,
    write_object,
)
from seglake.catalog.topic_change import Change
from seglake.catalog.version.snapshot import Snapshot
from seglake.catalog.version.snapshot_files import retained
from seglake.clock import now_ms
from seglake.errors import UsageError, VersionExpired
from seglake.layout import new_attempt
from seglake.maintain.commit import Status, TopicReport, commit_change
from seglake.store import open_store
from seglake.times.instants import Time, to_epoch_ms

TAG, DELETE_TAG = "tag", "delete-tag"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(repr=False)
class TagResult(TopicReport):
    """A tag that was made, changed or deleted. `version` is -1 if nothing was committed.

    `tagged` is the version that the tag names. `until_ms` is the time (ms) from which a vacuum
    deletes the tag, or None.
    """

    name: str = ""
    tagged: int = -1
    until_ms: int | None = None
    status: Status = "committed"


class TagUsage(NamedTuple):
    """A tag, and the size of the files that exist only because of it. Times are in ms.

    `segments` counts all segments of the tagged version. `held_segments` counts the segments with
    at least one file that the newest version does not name. `held_bytes` is the size of these files
    in the lake. `erased` has the fields of each `ErasedRecords`.
    """

    name: str
    version: int
    created_at_ms: int
    until_ms: int | None
    segments: int
    held_segments: int
    held_bytes: int
    erased: list[dict[str, Any]]

    @property
    def erased_records(self) -> int:
        """Return the number of records that erasures removed from the version."""
        return sum(each["records"] for each in self.erased)

    def as_dict(self) -> dict[str, Any]:
        """Return all fields and `erased_records` by name, as in JSON output."""
        return {**self._asdict(), "erased_records": self.erased_records}


def tag(
    root: str,
    name: str,
    version: int | None = None,
    *,
    until: Time | None = None,
    delete: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> TagResult:
    """Tag a version of the lake, or delete a tag.

    An existing tag cannot name another version, but its `until` can change.

    Args:
        root: The folder or URI of the lake.
        name: The name of the tag.
        version: The version to tag, by default the newest version.
        until: A vacuum deletes the tag from this time on. A date is the start of that day in UTC.
        delete: Delete the tag.
        storage_options: Options of the store.

    Returns:
        The tag. The status is "already done" if nothing had to change.

    Raises:
        UsageError: The name is invalid or names another version, the version does not exist or is
            from before an erasure, `until` is in the past, or there is no tag to delete.
        VersionExpired: Files of the version were deleted.
        CorruptData: The catalog is damaged.
        StoreError: Storage failed.
        CommitConflict: Concurrent commits won all retries.

    Example:
        >>> tagged = seglake.tag("lake", "q2")
        >>> seglake.open("lake", version="q2").topics()
        ['web']
    """
    check_name(name)
    if delete and (version is not None or until is not None):
        raise UsageError("--delete contradicts --version and --until. Leave them out")
    table = CatalogTable.open(open_store(root, storage_options))
    until_ms = None if until is None else _end(until)
    work = _Tagging(table, TagResult(layout.WHOLE_LAKE, name=name), version, until_ms)
    return work.carry_out(delete=delete)


def _end(until: Time) -> int:
    zone = "UTC" if isinstance(until, str) and _DATE.fullmatch(until.strip()) else None
    until_ms = to_epoch_ms(until, zone)
    if until_ms <= now_ms():
        raise UsageError(
            f"--until {until} is in the past. Give a future time, or leave out --until"
        )
    return until_ms


class _Tagging:
    """Makes, changes or deletes one tag, and fills in the report."""

    def __init__(
        self, table: CatalogTable, report: TagResult, version: int | None, until_ms: int | None
    ) -> None:
        self._table, self._report = table, report
        self._version, self._until_ms = version, until_ms
        # The object of the tag, with its source: the version, and the attempt of another tag or "".
        self._written: tuple[tuple[int, str], TagObject] | None = None

    def carry_out(self, *, delete: bool) -> TagResult:
        plan = self._deleted if delete else self._made
        commit_change(self._table, self._report, plan, dry_run=False)
        if self._report.version < 0:
            self._report.status = "already done"
        return self._report

    def _made(self, base: Snapshot) -> Change | None:
        """Return the change that makes or changes the tag, or None if nothing changes."""
        before = _last(self._table, base, self._report.name)
        if before and before.state == "tagged":
            return self._another_end(before)
        version = base.version if self._version is None else self._version
        written = self._object(version, base)
        row = TagRow(
            name=self._report.name, sequence=before.sequence + 1 if before else 0, version=version,
            attempt_id=written.attempt_id, object_bytes=written.size_bytes,
            object_crc32c=written.checksum, created_at_ms=now_ms(), until_ms=self._until_ms,
        )  # fmt: skip
        change = self._change(TAG, row)
        return change._replace(other_attempts={written.attempt_id} - {self._report.attempt_id})

    def _object(self, version: int, base: Snapshot) -> TagObject:
        """Write the object of the new tag, and return it.

        If another tag has the version, the rows of that tag's object are copied. Erasures have
        updated them, so the version may be tagged even if it is not retained, or is from before an
        erasure. If the other tag is deleted or changed in the meantime, the commit loses, and the
        object is written again.
        """
        tags = self._table.tags.in_snapshot(base)
        holder = next((tag for tag in tags if tag.version == version), None)
        source = version, holder.attempt_id if holder else ""
        # After a lost race, read the version again, because a vacuum may have deleted its files.
        snapshot, erased = self._read(version, holder, base)
        if self._written is None or self._written[0] != source:
            attempt_id = new_attempt() if self._written else self._report.attempt_id
            table, rows = self._table, version_rows(self._table, snapshot)
            written = write_object(table.store, attempt_id, version, table.lake, rows, erased)
            self._written = source, written
        return self._written[1]

    def _read(
        self, version: int, holder: TagRow | None, base: Snapshot
    ) -> tuple[Snapshot, list[ErasedRecords]]:
        """Return a version and the records erased from it. Raises what `tag` raises."""
        table = self._table
        if version == base.version:
            return base, []
        if holder is not None:
            return table.tags.snapshot(holder), read_object(table.store, holder).erased
        snapshot = table.snapshot_from_log(version)
        self._check(snapshot, base)
        return snapshot, []

    def _another_end(self, before: TagRow) -> Change | None:
        """Return the change that sets `until` of an existing tag, or None if it is already set.

        Raises UsageError if the tag names another version.
        """
        if self._version not in (None, before.version):
            raise UsageError(
                f"tag {before.name!r} already names version {before.version}. Use another name, or "
                f"delete the tag with `seglake tag {quote(self._table.store.uri)} {before.name} "
                f"--delete`"
            )
        until_ms = before.until_ms if self._until_ms is None else self._until_ms
        row = replace(before, sequence=before.sequence + 1, until_ms=until_ms)
        change = self._change(TAG, row)
        return None if until_ms == before.until_ms else change

    def _deleted(self, base: Snapshot) -> Change | None:
        before = _last(self._table, base, self._report.name)
        if before is None:
            # Raises an error that lists the existing tags.
            self._table.tags.named(self._report.name)
            raise AssertionError
        row = replace(before, sequence=before.sequence + 1, state="deleted")
        change = self._change(DELETE_TAG, row)
        return None if before.state == "deleted" else change

    def _change(self, operation: str, row: TagRow) -> Change:
        self._report.tagged, self._report.until_ms = row.version, row.until_ms
        return Change([row, self._report.row(operation)])

    def _check(self, snapshot: Snapshot, base: Snapshot) -> None:
        """Raise UsageError if an erasure followed the version, VersionExpired if a file is gone."""
        erased = {topic: _erasures(self._table, base, topic) for topic in snapshot.names()}
        there = {hash(item.key) for item in self._table.store.list(layout.TOPICS)}
        with retained(snapshot.version):
            for topic, erasures in erased.items():
                if erasures - _erasures(self._table, snapshot, topic):
                    raise UsageError(
                        f"version {snapshot.version} is older than an erasure of {topic}, so its "
                        f"files may contain erased records. Tag a later version"
                    )
            for key in _files(self._table, snapshot, erased):
                if hash(key) not in there:
                    raise VersionExpired(
                        f"version {snapshot.version} is no longer retained: {key} was deleted. "
                        f"Tag a later version"
                    )


def _last(table: CatalogTable, base: Snapshot, name: str) -> TagRow | None:
    rows = [row for row in tag_rows(table.store, base.files) if row.name == name]
    return rows[-1] if rows else None


def _erasures(table: CatalogTable, snapshot: Snapshot, topic: str) -> set[str]:
    rows = table.rows.maintenance(snapshot, topic)
    return {row.attempt_id for row in rows if row.operation == ERASE}


def _files(table: CatalogTable, snapshot: Snapshot, topics: Collection[str]) -> Iterator[str]:
    """Yield the keys of all files of `topics` that a version names."""
    for rows in table.rows.segment_lists(snapshot, topics):
        yield from (row.key(suffix) for row in rows for suffix in row.suffixes)


def version_rows(table: CatalogTable, snapshot: Snapshot) -> Iterator[Rows]:
    """Yield all rows of a version by kind and topic, without tags. Raises VersionExpired."""
    with retained(snapshot.version):
        for kind, topic in sorted({(file.kind, file.topic) for file in snapshot.files}):
            if kind != TagRow.KIND:
                yield kind, topic, table.rows.all(snapshot, kind, topic)


def rewrite_tag(
    table: CatalogTable,
    tag: TagRow,
    replaced: Mapping[SegmentRow, SegmentRow],
    erased: Iterable[ErasedRecords] = (),
) -> TagRow:
    """Write a new object for a tag, in which new segments of one topic replace old ones.

    Args:
        table: The catalog.
        tag: The row of the tag.
        replaced: Old segment → new segment, for one or more segments of one topic.
        erased: The records that were removed from the segments.

    Returns:
        The next row of the tag. The commit that adds it must have its attempt in `other_attempts`.

    Raises:
        VersionExpired: The tag was changed.
        CorruptData: The object of the tag is damaged.
        StoreError: Storage failed.
    """
    topic = next(iter(replaced)).topic
    places = {(row.partition, row.base_offset) for row in replaced}

    def changed(rows: pa.Table) -> pa.Table:
        columns = (rows[name].to_pylist() for name in ("partition", "base_offset"))
        stays = [place not in places for place in zip(*columns, strict=True)]
        new = file_table([*replaced.values()])
        return pa.concat_tables([rows.filter(pa.array(stays, pa.bool_())), new])

    rows = (
        (kind, name, changed(some) if (kind, name) == (SegmentRow.KIND, topic) else some)
        for kind, name, some in version_rows(table, table.tags.snapshot(tag))
    )
    store, attempt_id = table.store, new_attempt()
    all_erased = [*read_object(store, tag).erased, *erased]
    written = write_object(store, attempt_id, tag.version, table.lake, rows, all_erased)
    return replace(
        tag, sequence=tag.sequence + 1, attempt_id=attempt_id,
        object_bytes=written.size_bytes, object_crc32c=written.checksum,
    )  # fmt: skip


def delete_ended(table: CatalogTable, names: Collection[str]) -> None:
    """Delete the tags with these names. Raises StoreError and CommitConflict."""
    for name in names:
        _Tagging(table, TagResult(layout.WHOLE_LAKE, name=name), None, None).carry_out(delete=True)


def ended_tags(table: CatalogTable, at_ms: int) -> list[str]:
    """Return the names of the tags whose `until` is at or before a time (ms)."""
    tags = table.tags.live()
    return [tag.name for tag in tags if tag.until_ms is not None and tag.until_ms <= at_ms]


def tag_usage(
    table: CatalogTable, without: Collection[str] = (), topic: str | None = None
) -> list[TagUsage]:
    """Return a `TagUsage` for each tag, except for the tags in `without`.

    If `topic` is passed, only files of this topic are counted, and tags whose version does not have
    the topic are skipped. Without any tag, no version is read. Raises StoreError and
    CorruptData.
    """
    tags = [tag for tag in table.tags.live() if tag.name not in without]
    if not tags:
        return []
    newest = table.snapshot()
    topics = newest.names() if topic is None else [topic]
    named = {hash(key) for key in _files(table, newest, topics)}
    snapshots = ((tag, table.tags.snapshot(tag)) for tag in tags)
    return [
        _tag_usage(table, tag, snapshot, named, topic)
        for tag, snapshot in snapshots
        if topic is None or topic in snapshot.names()
    ]


def _tag_usage(
    table: CatalogTable, tag: TagRow, snapshot: Snapshot, named: Collection[int], topic: str | None
) -> TagUsage:
    count, held, size = 0, 0, 0
    for rows in table.rows.segment_lists(snapshot, snapshot.names() if topic is None else [topic]):
        for row in rows:
            left = [s for s in row.suffixes if hash(row.key(s)) not in named]
            own = [getattr(row, f"{s}_bytes") for s in left if s != "log" or not row.external]
            count, held, size = count + 1, held + bool(left), size + sum(own)
    records = read_object(table.store, tag).erased
    erased = [each._asdict() for each in records if topic in (None, each.topic)]
    return TagUsage(
        tag.name, tag.version, tag.created_at_ms, tag.until_ms, count, held, size, erased
    )
