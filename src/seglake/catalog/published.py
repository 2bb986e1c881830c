"""Read and commit published tables, which are Delta tables with the decoded records of a topic.

A data file has the visible records of one segment. Its name identifies the segment and the attempt
that wrote it, because checkpoints keep names, and even a file that no commit names has a name. The
property `seglake.lake` has the lake's identity, and the app transaction `seglake/<lake>` has the
version of the lake that the table shows. A publisher must not commit an old version last:

    1. Publisher A reads version 7 of the lake, and pauses.
    2. An erasure commits version 8, and publisher B publishes it.
    3. Publisher A commits version 7. The table has the erased records again.

So a publisher reads the table, then the lake, and its commit must be the next commit of the table.
If another commit was made in between, the publisher loses, and reads the table and the lake again.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import pyarrow as pa

from seglake import layout
from seglake.catalog.delta import delta_rs
from seglake.catalog.delta.actions import (
    Action,
    AddedFile,
    Operation,
    WrittenFile,
    add_action,
    definition_action,
    remove_action,
)
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.delta.table_contract import LAKE, Definition, TableContract
from seglake.catalog.schema import TableRow, rows_of
from seglake.catalog.table import CatalogTable
from seglake.catalog.version.snapshot import PartitionView, Snapshot
from seglake.clock import now_ms
from seglake.errors import MissingObject, SeglakeError, UsageError, corrupt_unless_parsed
from seglake.limits import INT64_MAX
from seglake.store import Store, is_local, open_store

TOPIC = "seglake.topic"  # the property with the topic's name
_FORMAT = 1  # of the columns; another one makes all files again
_NO_COLUMNS = pa.schema([])  # a publisher compares the schema, and replaces another one
_REMEDY = "Delete the folder of the table and publish again, or give another table"
CONTRACT = TableContract("the published table", _NO_COLUMNS, (), _REMEDY, guards=False)
_NAME = re.compile(r"(\d+)-(\d+)-(\d+)-(\d+)-([0-9a-f-]{36})-([0-9a-f]{8})-[0-9a-f]{32}\.parquet")
_log = logging.getLogger(__name__)
_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp$")


class PublishedSegment(NamedTuple):
    """Identifies the content of a data file: the records of a segment from `first_offset` on.

    The attempt and the base offset identify the log without its checksum, because no log is ever
    written again under the same name. `columns` is a digest of the settings that decide how these
    records become rows, see `columns_digest`.
    """

    partition: int
    base_offset: int
    end_offset: int
    first_offset: int
    attempt_id: str
    columns: str

    @property
    def log(self) -> tuple[int, int, str]:
        """Return partition, base offset and attempt, which identify the segment's log."""
        return self.partition, self.base_offset, self.attempt_id

    def path(self, attempt_id: str) -> str:
        """Return the path of a file with this content by an attempt, below the table's folder."""
        return f"{'-'.join(map(str, self))}-{attempt_id.replace('-', '')}.parquet"

    @staticmethod
    def parse(path: str) -> PublishedSegment | None:
        """Parse the path of a data file. Return None if no publisher wrote the file."""
        match = _NAME.fullmatch(path)
        if match is None:
            return None
        partition, base, end, first = map(int, match.groups()[:4])
        return PublishedSegment(partition, base, end, first, match[5], match[6])


class NewFile(NamedTuple):
    """A data file that is written and not yet committed. `stats` are Delta's statistics.

    `misfits` has, by column, the number of values that do not fit the column's type.
    """

    path: str
    size_bytes: int
    rows: int
    stats: Mapping[str, Any]
    misfits: Counter[str]

    @property
    def offsets(self) -> tuple[int, int]:
        """Return the offsets of the first and the last record."""
        return self.stats["minValues"]["offset"], self.stats["maxValues"]["offset"]


class TableVersion(NamedTuple):
    """A version of a published table.

    `files` are its data files by path, and `definition` is Delta's metadata action. `shows` is the
    version of the lake that it shows, or None if no publisher of this lake has committed. `foreign`
    names the commits of other programs since Seglake's last commit.
    """

    version: int
    files: Mapping[str, AddedFile]
    definition: Mapping[str, Any]
    shows: int | None
    foreign: list[str]

    def segments(self) -> dict[str, PublishedSegment]:
        """Return the content of each file that a publisher wrote, by the file's path.

        Two files may have the same content.
        """
        parsed = {path: PublishedSegment.parse(path) for path in sorted(self.files)}
        return {path: segment for path, segment in parsed.items() if segment}


class PublishedTable:
    """A published table of a lake, which may not exist yet.

    Args:
        store: The store of the lake.
        lake: The identity of the lake.
        row: The table's row in the catalog.
    """

    def __init__(self, store: Store, lake: str, row: TableRow) -> None:
        self._lake, self._topic, self._application = lake, row.topic, f"seglake/{lake}"
        self.uri = f"{store.uri}/{row.path}" if _is_inside(row.path) else row.path
        if _is_inside(row.path):
            self.store, self.folder = store, row.path
        else:
            parent, _, self.folder = row.path.rpartition("/")
            self.store = open_store(parent, store.storage_options)

    def read(self, *, replace: bool = False) -> TableVersion | None:
        """Return the newest version of the table, or None if the table does not exist.

        With `replace`, the table may be a table of another lake or topic.

        Raises:
            UsageError: The table is of another lake or topic.
            CorruptData: Seglake did not create the table, or it needs features that a publisher
                does not support.
            StoreError: Storage failed.
        """
        log = self._log()
        try:
            commits, since_ours = log.replay()
        except MissingObject:
            return None
        files, set_by, shown = dict[str, AddedFile](), dict[str, Any](), dict[str, int]()
        for commit in commits:
            for path in commit.removed:
                files.pop(path, None)
            files |= {file.path: file for file in commit.added}
            set_by |= commit.definition
            shown |= commit.applications
        with corrupt_unless_parsed("a definition of Delta", self.folder):
            definition = Definition.parse(**set_by)
        log.contract.check(definition, lambda: since_ours, self.folder)
        other = definition.properties.get(LAKE), definition.properties.get(TOPIC)
        if not replace and other not in {(self._lake, self._topic), (self._lake, None)}:
            raise UsageError(
                f"{self.uri} is the table of topic {other[1]} of lake {other[0]}, not of "
                f"{self._topic} of {self._lake}. Give another table, or use --replace"
            )
        # A fence is a commit of Seglake, and corrects nothing.
        ours = {each.version: each for each in commits if each.is_ours}
        last = commits[-1].version - len(since_ours)
        while (own := ours.get(last) or next(log.read([last]), None)) and own.fences:
            since_ours += (more := log.foreign_commits(last - 1))
            last -= 1 + len(more)
        foreign = [each.title for each in since_ours if each.added or each.removed]
        shows, metadata = shown.get(self._application), set_by["metaData"]
        return TableVersion(commits[-1].version, files, metadata, shows, foreign)

    def create(self, schema: pa.Schema) -> None:
        """Create the table without rows, unless it exists. Raises StoreError."""
        delta_rs.create_table(self.store, self.folder, schema, [], self._lake)

    def commit(
        self, base: TableVersion, schema: pa.Schema, shows: int, added: Iterable[NewFile],
        removed: Collection[str], *, changes: bool = True,
    ) -> int:  # fmt: skip
        """Commit a change of the version `base`, and return the new version.

        Args:
            base: The version to continue.
            schema: The columns of the table.
            shows: The version of the lake that the table then shows.
            added: The files to add.
            removed: The paths of the files to remove.
            changes: False if the added files have the same rows as the removed files.

        Raises:
            CommitConflict: Another writer has committed since `base`.
            StoreError: Storage failed. The commit may have been made.
        """
        actions: list[Action] = [
            {"txn": {"appId": self._application, "version": shows, "lastUpdated": now_ms()}},
            *self._definition(base.definition, delta_rs.schema_json(schema)),
        ]
        for path in sorted(removed):
            file = base.files[path]
            actions.append(remove_action(path, file.size_bytes, file.partition, changes=changes))
        for new in added:
            stats = json.dumps({"numRecords": new.rows, **new.stats})
            written = WrittenFile(new.path, new.size_bytes, {}, stats)
            actions.append(add_action(written, changes=changes))
        log = self._log()
        operation: Operation = "REPLACE" if removed else "WRITE"
        commits = log.commit(base.version, actions, operation=operation, follow=False)
        version = commits[-1].version
        delta_rs.checkpoint_if_due(log, [version])
        return version

    def _definition(self, found: Mapping[str, Any], schema: str) -> list[Action]:
        """Return the actions that give the table this schema, this topic and this lake."""
        own, properties = {LAKE: self._lake, TOPIC: self._topic}, dict(found["configuration"])
        right = json.loads(found["schemaString"]) == json.loads(schema)
        if right and own.items() <= properties.items():
            return []
        return [definition_action(found["id"], schema, [], properties | own, now_ms())]

    def fence(self) -> None:
        """Commit a fence, so that publishers that have read the table lose and read the lake again.

        Nothing is committed if the table does not exist. Raises StoreError, CorruptData and
        CommitConflict.
        """
        log = self._log()
        if self.exists():
            log.fence(lambda: (delta_rs.open_table(log).version(), []))

    def exists(self) -> bool:
        """Return whether the table exists. Raises StoreError."""
        return delta_rs.exists(self.store, self.folder)

    def old_files(self, newest: Callable[[], Snapshot]) -> list[str]:
        """Return the paths of all data files whose segments the lake does not have.

        These include files that no commit names, and files of other programs, which may contain any
        record. `newest` returns the newest version of the lake. It is called after the files are
        listed, so no later version has the segment of a returned file.
        """
        keys = [item.key.removeprefix(f"{self.folder}/") for item in self.store.list(self.folder)]
        live = {each.log for each in wanted_segments(newest(), self._topic, "")}
        there = (path for path in keys if not path.startswith("_delta_log/"))
        found = {path: PublishedSegment.parse(_TEMPORARY.sub("", path)) for path in there}
        return [path for path, each in found.items() if each is None or each.log not in live]

    def files_of(self, attempt_id: str) -> list[str]:
        """Return the paths of all data files of an attempt, even if no commit names them."""
        name = f"-{attempt_id.replace('-', '')}.parquet"
        keys = (item.key for item in self.store.list(self.folder) if name in item.key)
        return [key.removeprefix(f"{self.folder}/") for key in keys]

    def delete(self, paths: Iterable[str]) -> None:
        """Delete `paths`, except files of the newest version. Later commits must not name them."""
        there = self.read()
        named: Collection[str] = there.files if there else ()
        self.store.delete([f"{self.folder}/{path}" for path in paths if path not in named])

    def keep_newest(self) -> None:
        """Delete all older versions, because their statistics may contain erased values."""
        delta_rs.keep_newest(self._log())

    def _log(self) -> DeltaLog:
        # With so few commits to read, a publish makes at most 10 requests on the table.
        return DeltaLog(self.store, self.folder, CONTRACT, every=5, actions=5000)


# ---------------- rows of the catalog


def locate(store: Store, topic: str, table: str | None) -> str:
    """Return the `path` for a table's row: relative to the lake's root, or a URI if outside.

    Raises UsageError if no table is allowed there, and ConfigError for a URI with secrets.
    """
    if table is None:
        return f"{layout.TABLES}/{topic}"
    uri = open_store(table.rstrip("/")).uri
    path = uri.removeprefix(f"{store.uri}/")
    inside = path != uri
    if f"{store.uri}/".startswith(f"{uri}/") or (inside and not _is_inside(path)):
        raise UsageError(
            f"a table must be below {store.uri}/{layout.TABLES} or outside the lake, not at {uri}"
        )
    if not inside and "/" not in uri.partition("://")[2] and not is_local(store):
        raise UsageError(f"{uri} is a bucket, not a table. Give a folder in the bucket")
    return path


def _is_inside(path: str) -> bool:
    return path.startswith(f"{layout.TABLES}/")


def published_tables(table: CatalogTable, snapshot: Snapshot, topic: str) -> list[TableRow]:
    """Return the rows of the tables of a topic that the lake publishes, sorted by path."""
    return [row for row in known_tables(table, snapshot, topic) if row.state == "published"]


def known_tables(table: CatalogTable, snapshot: Snapshot, topic: str) -> list[TableRow]:
    """Return the current rows of all tables of a topic, even of forgotten ones, sorted by path."""
    rows = rows_of(TableRow, topic, table.rows.all(snapshot, "table", topic))
    return list(newest_tables(rows).values())


def newest_tables(rows: Iterable[TableRow]) -> dict[str, TableRow]:
    """Return the current row of each path, sorted by path."""
    newest = {row.path: row for row in sorted(rows, key=lambda row: row.sequence)}
    return dict(sorted(newest.items()))


def columns_digest(row: TableRow, snapshot: Snapshot) -> str:
    """Return a digest of the table's column settings and the value format of its topic."""
    settings = {**json.loads(row.settings), "strict": None}
    parts = [_FORMAT, settings, snapshot.topic(row.topic).value_format]
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:8]


def wanted_segments(
    snapshot: Snapshot, topic: str, columns: str
) -> dict[PublishedSegment, tuple[PartitionView, int]]:
    """Return the content of each file that a table must have → (view, position) of its segment.

    If the log starts in a segment with gaps, the segment may have no visible record.
    """
    wanted = {}
    for view in snapshot.partitions(topic):
        bases, ends = (column.tolist() for column in view.segments.columns[:2])
        logs: list[int] = view.segments.details["attempts"][:, 0].tolist() if len(view) else []
        counts = view.record_counts.tolist()
        for index, (base, end, log, count) in enumerate(
            zip(bases, ends, logs, counts, strict=True)
        ):
            first = max(base, min(view.log_start_offset, INT64_MAX))
            if count and first < end:
                name = view.segments.attempts.name(log)
                each = PublishedSegment(view.partition, base, end, first, name, columns)
                wanted[each] = view, index
    return wanted


def highest_shown(store: Store, lake: str, rows: Iterable[TableRow]) -> int:
    """Return the highest version of the lake that one of the tables shows, or -1 without any.

    A table that cannot be read is skipped with a warning. If that table shows a higher version, its
    next publish is refused.
    """
    highest = -1
    for row in newest_tables(rows).values():
        try:
            found = PublishedTable(store, lake, row).read(replace=True)
            highest = max(highest, found.shows or 0 if found else -1)
        except SeglakeError as error:
            _log.warning("the published table %s cannot be read: %s", row.path, error)
    return highest
