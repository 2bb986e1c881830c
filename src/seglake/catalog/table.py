"""The catalog table: the one place that commits, and the one that decides who won.

Every commit is one delta-rs transaction over files that this package wrote. A commit to a topic
carries the app transaction `seglake/<topic>`, and is made from the table version whose offsets it
continues: delta-rs lets it pass any commit in between, unless one of them carries the same app
transaction. Then it fails, as `CommitConflict`, and the caller reloads. It must look for its own
attempt before it tries again (`CatalogTable.has_attempt`): a lost reply looks like a lost race.

delta-rs does not notice that two commits remove the same file. So a commit that removes files is
made without retries, which compares and sets the version of the whole table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from seglake import layout
from seglake.catalog import delta
from seglake.catalog import files as data
from seglake.catalog.change import checked_change
from seglake.catalog.manifest import Manifest, SegmentId, mark_committed, write_manifest
from seglake.catalog.rows import (
    FILE_SCHEMAS,
    PARTITION_COLUMNS,
    TABLE_SCHEMA,
    AnyRow,
    DataFile,
    Kind,
    PartitionRow,
    Row,
    RunRow,
    SegmentRow,
    TopicRow,
    rows_of,
)
from seglake.catalog.snapshot import EMPTY, Snapshot
from seglake.errors import MissingObject, UsageError, VersionExpired
from seglake.store import Store, open_store
from seglake.store.interface import reason

_RETRIES = 100  # commits to other topics that may come in between


class CatalogTable:
    """The catalog of the lake at a root, as of the newest version that this object has seen."""

    def __init__(self, store: Store, storage_options: Mapping[str, str] | None = None) -> None:
        self._store = store
        self._uri = f"{store.uri}/{layout.LOG_TABLE}"
        self._options = dict(storage_options or {})
        self._newest = delta.open_table(self._uri, self._options)

    @staticmethod
    def open(root: str, storage_options: Mapping[str, str] | None = None) -> CatalogTable:
        """The catalog of the lake at `root`; UsageError if there is none, or of another format."""
        try:
            return CatalogTable(open_store(root, storage_options), storage_options)
        except MissingObject as error:
            raise UsageError(f"{root} holds no lake; the first ingest creates it") from error

    @staticmethod
    def create(root: str, storage_options: Mapping[str, str] | None = None) -> CatalogTable:
        """The catalog of the lake at `root`, created if there is none; several may try at once."""
        store = open_store(root, storage_options)
        try:
            return CatalogTable(store, storage_options)
        except MissingObject:
            uri, options = f"{store.uri}/{layout.LOG_TABLE}", dict(storage_options or {})
            delta.open_or_create(uri, TABLE_SCHEMA, PARTITION_COLUMNS, options)
        return CatalogTable(store, storage_options)

    def _refreshed(self) -> DeltaTable:
        try:
            self._newest.update_incremental()
        except (DeltaError, OSError):  # a failure, or the log was cleaned up under an old handle
            self._newest = delta.open_table(self._uri, self._options)
        return self._newest

    def _at(self, version: int) -> DeltaTable:
        """A handle at exactly this version; VersionExpired if the log no longer has it."""
        if self._newest.version() == version:
            return self._newest
        if version > self._refreshed().version():
            raise UsageError(
                f"version {version} is newer than the newest, {self._newest.version()}"
            )
        with delta.naming(self._uri, f"version {version} cannot be read"):
            try:
                return DeltaTable(self._uri, version=version, storage_options=self._options)
            except (DeltaError, OverflowError) as error:
                message = f"version {version} of the catalog is not retained: {reason(error)}"
                raise VersionExpired(message) from None

    def snapshot(self, version: int | None = None) -> Snapshot:
        """The newest version, or a given one.

        Raises VersionExpired if the version is no longer retained, UsageError if it does not exist
        yet, and CorruptData if a log partition has a hole.
        """
        handle = self._refreshed() if version is None else self._at(version)
        return self._loaded(EMPTY, handle)

    def refresh(self, snapshot: Snapshot) -> Snapshot:
        """The newest version, made from an older snapshot by reading what was added since."""
        handle = self._refreshed()
        return snapshot if handle.version() == snapshot.version else self._loaded(snapshot, handle)

    def _loaded(self, known: Snapshot, handle: DeltaTable) -> Snapshot:
        files = _active(handle)
        if not known.files <= files:  # rows were replaced: what is known cannot be told apart
            known = EMPTY
        new = files - known.files
        try:
            return known.with_rows(
                handle.version(),
                files,
                topics=self._rows(TopicRow, new),
                partitions=self._rows(PartitionRow, new),
                added={
                    (topic, partition): segments
                    for topic, tables in self._tables("segment", new).items()
                    for partition, segments in data.segments_by_partition(tables).items()
                },
            )
        except MissingObject as error:
            raise VersionExpired(f"version {handle.version()} was vacuumed: {error}") from error

    def _tables(self, kind: Kind, files: Iterable[DataFile]) -> dict[str, list[pa.Table]]:
        """The data of all files of a kind, by topic."""
        chosen = sorted(file for file in files if file.kind == kind)
        tables: dict[str, list[pa.Table]] = defaultdict(list)
        found = data.read_files(self._store, layout.LOG_TABLE, chosen)
        for file, table in zip(chosen, found, strict=True):
            tables[file.topic].append(table)
        return tables

    def _rows(self, row_type: type[AnyRow], files: Iterable[DataFile]) -> list[AnyRow]:
        tables = self._tables(row_type.KIND, files)
        return [
            row
            for topic, parts in tables.items()
            for row in rows_of(row_type, topic, pa.concat_tables(parts))
        ]

    def table(self, snapshot: Snapshot, kind: Kind, topic: str) -> pa.Table:
        """All rows of one kind and topic in this version, without the columns kind and topic."""
        found = self._tables(kind, [file for file in snapshot.files if file.topic == topic])
        return pa.concat_tables(found[topic]) if found else FILE_SCHEMAS[kind].empty_table()

    def segments(self, snapshot: Snapshot, topic: str) -> list[SegmentRow]:
        """Every segment row of a topic in the order of the log, with all its columns."""
        rows = rows_of(SegmentRow, topic, self.table(snapshot, "segment", topic))
        return sorted(rows, key=lambda row: (row.partition, row.base_offset))

    def runs(self, snapshot: Snapshot, topic: str) -> list[RunRow]:
        """Every committed run of a topic."""
        return rows_of(RunRow, topic, self.table(snapshot, "run", topic))

    def run(self, snapshot: Snapshot, topic: str, pipeline: str, run_id: str) -> RunRow | None:
        """The committed run with this key, if there is one."""
        runs = self.table(snapshot, "run", topic)
        same_pipeline = pc.equal(runs["pipeline"], pa.scalar(pipeline))
        same_run = pc.equal(runs["run_id"], pa.scalar(run_id))
        found = rows_of(RunRow, topic, runs.filter(pc.and_(same_pipeline, same_run)))
        return found[0] if found else None

    def has_attempt(self, snapshot: Snapshot, topic: str, attempt_id: str) -> bool:
        """Whether a run row names this attempt: it is in, whatever its committer was told."""
        return attempt_id in self.table(snapshot, "run", topic)["attempt_id"].to_pylist()

    def sources(self, snapshot: Snapshot, topic: str) -> pa.Table:
        """The input files of a topic, with the columns of `SourceRow` but for the topic."""
        return self.table(snapshot, "source", topic)

    def commit(
        self,
        rows: Sequence[Row],
        *,
        topic: str,
        base: Snapshot,
        attempt_id: str,
        replaced: Iterable[tuple[int, int]] = (),
    ) -> int:
        """Make all rows visible at once, and return the version that has them.

        `base` is the version whose offsets the rows continue. `replaced` are segments of it, as
        (partition, base offset), that go away in the same commit. Raises CommitConflict if the
        topic changed since `base` (with `replaced`: if the table did), CorruptData if the log
        would have a hole or an overlap, UsageError if a row contradicts the topic, and StoreError.
        The attempt's manifest says what was to be committed, and its mark of success that it was:
        an attempt commits once.
        """
        replaced = list(replaced)
        change = checked_change(rows, replaced, topic, base)
        removed: list[DataFile] = []
        if change.gone:
            removed = [file for file in base.files if file[1:3] == ("segment", topic)]
            kept = change.kept(self.table(base, "segment", topic))
            added = change.added.get("segment", kept.slice(0, 0))
            change.added["segment"] = pa.concat_tables([kept, added])
        written = [
            data.write_file(self._store, layout.LOG_TABLE, kind, topic, table)
            for kind, table in change.added.items()
            if len(table)
        ]
        gone = [_identity(base, topic, *segment) for segment in replaced]
        write_manifest(self._store, Manifest(attempt_id, rows, gone))
        self._write(base.version, written, removed, topic=topic, attempt_id=attempt_id)
        mark_committed(self._store, attempt_id)
        return self._version_of(attempt_id, base.version)

    def compact(self, min_files: int = 16) -> int:
        """Rewrite each kind and topic that has so many files as one file; returns how many went.

        Changes no row. A running commit passes it, unless it replaces segments. Raises
        CommitConflict if another commit came in between: try again, or leave it to the next run.
        """
        handle = self._refreshed()
        groups: dict[tuple[Kind, str], list[DataFile]] = defaultdict(list)
        for file in sorted(_active(handle)):
            groups[file.kind, file.topic].append(file)
        groups = {name: group for name, group in groups.items() if len(group) >= min_files}
        written = [
            data.write_file(
                self._store,
                layout.LOG_TABLE,
                kind,
                topic,
                pa.concat_tables(data.read_files(self._store, layout.LOG_TABLE, group)),
            )
            for (kind, topic), group in groups.items()
        ]
        removed = [file for group in groups.values() for file in group]
        if removed:
            self._write(handle.version(), written, removed)
        return len(removed)

    def vacuum(self, retention_hours: int | None = None, *, dry_run: bool = False) -> list[str]:
        """Delete data files that no retained version names; returns their paths.

        Without `retention_hours` the table's own retention holds. A shorter one expires versions.
        With `dry_run` nothing is deleted.
        """
        handle = self._refreshed()
        with delta.naming(self._uri, "vacuum failed"):
            return handle.vacuum(
                retention_hours,
                dry_run=dry_run,
                full=True,
                enforce_retention_duration=retention_hours is None,
            )

    def retained(
        self, kind: Kind, retention_hours: int | None = None
    ) -> Iterator[tuple[str, pa.Table]]:
        """The rows that any retained version may have, as (topic, rows) for each data file.

        They are in the files that `vacuum` would not delete: each is read once, in whichever
        versions it is.
        """
        expired = set(self.vacuum(retention_hours, dry_run=True))
        prefix = f"{layout.LOG_TABLE}/"
        for found in self._store.list(f"{prefix}kind={kind}"):
            path = found.key.removeprefix(prefix)
            if path.endswith(".parquet") and path not in expired:
                topic = path.split("/")[1].removeprefix("topic=")
                yield topic, data.read_parquet(self._store, found.key, FILE_SCHEMAS[kind])

    def _write(
        self,
        version: int,
        written: Sequence[data.Written],
        removed: Sequence[DataFile],
        *,
        attempt_id: str | None = None,
        topic: str | None = None,
    ) -> None:
        """One Delta commit on top of `version`."""
        handle = self._at(version)
        changes = topic is not None  # else the rows stay what they were
        application = f"seglake/{topic}"
        following = Transaction(application, (handle.transaction_version(application) or 0) + 1)
        properties = CommitProperties(
            custom_metadata={"seglake.attempt": attempt_id} if attempt_id else None,
            max_commit_retries=0 if removed else _RETRIES,
            app_transactions=[following] if changes else None,
        )
        actions = [_added(item, changes) for item in written]
        gone = [_removed(file, changes) for file in removed]
        delta.commit(handle, [*actions, *gone], TABLE_SCHEMA, PARTITION_COLUMNS, properties)

    def _version_of(self, attempt_id: str, since: int) -> int:
        """The version that a commit of ours made; commits to other topics may surround it."""
        newest = self._refreshed().version()
        if newest == since + 1:
            return newest
        with delta.naming(self._uri, "the log of versions cannot be read"):
            entries = self._newest.history(newest - since)
        made = [entry for entry in entries if entry.get("seglake.attempt") == attempt_id]
        return int(made[0]["version"]) if made else newest


def _identity(base: Snapshot, topic: str, partition: int, base_offset: int) -> SegmentId:
    view = base.partition(topic, partition)
    segment = view.segment(view.index_of(base_offset))
    return SegmentId(topic, partition, base_offset, segment.attempt_id, segment.index_attempt_id)


def _active(table: DeltaTable) -> frozenset[DataFile]:
    """The data files of a version."""
    found = pa.table(table.get_add_actions(flatten=True))
    names = ("path", "partition.kind", "partition.topic", "size_bytes")
    columns = [found.column(name).to_pylist() for name in names]
    return frozenset(map(DataFile, *columns))


def _added(item: data.Written, changes: bool) -> AddAction:
    file = item.file
    values = {"kind": file.kind, "topic": file.topic}
    return delta.add(file.path, file.size_bytes, values, item.stats, changes=changes)


def _removed(file: DataFile, changes: bool) -> RemoveAction:
    values: dict[str, str | None] = {"kind": file.kind, "topic": file.topic}
    return delta.remove(file.path, file.size_bytes, values, changes=changes)
