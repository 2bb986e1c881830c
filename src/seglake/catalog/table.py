"""The catalog table: the one place that commits, and the one that decides who won.

Every commit is one commit of Delta over files that this package wrote. A commit to a topic carries
the app transaction `seglake/<topic>`, and follows the table version whose offsets it continues: it
passes any commit in between, unless one of them carries the same app transaction, or removed a file
that it removes too. Then it fails, as `CommitConflict`, and the caller reloads. It must look for
its own attempt before it tries again: a lost reply looks like a lost race.

Whoever has committed leaves the table tidy: small files are merged (`delta.file_merges`)
and checkpoints written. That changes no row, so nobody has to notice.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from seglake import layout
from seglake.catalog.change import checked_change, with_append_times
from seglake.catalog.delta import commit_log as deltalog
from seglake.catalog.delta import data_files as data
from seglake.catalog.delta import delta_rs as delta
from seglake.catalog.delta import file_merges as compaction
from seglake.catalog.delta.commit_log import Action, DeltaLog
from seglake.catalog.manifest import Manifest, SegmentId, mark_committed, write_manifest
from seglake.catalog.rows import (
    FILE_SCHEMAS,
    PARTITION_COLUMNS,
    TABLE_SCHEMA,
    DataFile,
    Kind,
    Row,
    RunRow,
    SegmentRow,
    rows_of,
)
from seglake.catalog.version import loading
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import (
    CommitConflict,
    CorruptData,
    MissingObject,
    SeglakeError,
    StoreError,
    UsageError,
    VersionExpired,
)
from seglake.store import Listed, Store, open_store
from seglake.store.interface import reason

_REMEDY = "`seglake repair ROOT --catalog` makes it whole from the manifests of the runs"
_ROWS = 10_000  # of segments, as Python objects, at once
_TAIL = 1000  # commits that a refresh reads; for more, all that there is is read sooner

_log = logging.getLogger(__name__)


class CatalogTable:
    """The catalog of the lake at a root, as of the newest version that this object has seen."""

    def __init__(self, store: Store, storage_options: Mapping[str, str] | None = None) -> None:
        self._store = store
        self._uri = f"{store.uri}/{layout.LOG_TABLE}"
        self._options = dict(storage_options or {})
        self._delta_log = DeltaLog(store, layout.LOG_TABLE)
        self._newest = delta.open_table(self._uri, self._options)

    @staticmethod
    def open(root: str, storage_options: Mapping[str, str] | None = None) -> CatalogTable:
        """The catalog of the lake at `root`; UsageError if there is none, or of another format.

        Raises CorruptData if it is lost, or if a rebuild of it was not finished.
        """
        store = open_store(root, storage_options)
        try:
            return _whole(store, storage_options)
        except MissingObject as error:
            raise UsageError(f"{root} holds no lake; the first ingest creates it") from error

    @staticmethod
    def create(root: str, storage_options: Mapping[str, str] | None = None) -> CatalogTable:
        """The catalog of the lake at `root`, created if there is none; several may try at once.

        Raises CorruptData as `open` does: an empty catalog would let everything be ingested again.
        """
        store = open_store(root, storage_options)
        try:
            return _whole(store, storage_options)
        except MissingObject:
            return CatalogTable.create_anew(store, storage_options)

    @staticmethod
    def create_anew(store: Store, storage_options: Mapping[str, str] | None = None) -> CatalogTable:
        """An empty catalog, whatever the lake had before; the one that is there, if there is."""
        uri, options = f"{store.uri}/{layout.LOG_TABLE}", dict(storage_options or {})
        delta.open_or_create(uri, TABLE_SCHEMA, PARTITION_COLUMNS, options)
        return CatalogTable(store, storage_options)

    def _refreshed(self) -> DeltaTable:
        try:
            self._newest.update_incremental()
        except (DeltaError, OSError):  # a failure, or the log was cleaned up under an old handle
            self._newest = delta.open_table(self._uri, self._options)
        return delta.checked_format(self._newest)

    def _at(self, version: int) -> DeltaTable:
        """A handle at exactly this version; VersionExpired if the log no longer has it."""
        if self._newest.version() == version:
            return self._newest
        if version > self._refreshed().version():
            raise UsageError(
                f"version {version} is newer than the newest, {self._newest.version()}"
            )
        with delta.delta_errors(self._uri, f"version {version} cannot be read"):
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
        try:
            return loading.load(self._store, handle.version(), loading.active_files(handle))
        except MissingObject as error:
            raise VersionExpired(f"version {handle.version()} was vacuumed: {error}") from error

    def refresh(self, snapshot: Snapshot) -> Snapshot:
        """The newest version, made from an older snapshot by reading what was added since."""
        entries = self._delta_log.since(snapshot.version, _TAIL)
        if not entries and self._delta_log.has(snapshot.version):
            return snapshot
        if not 0 < len(entries) < _TAIL or any(entry.redefines for entry in entries):
            return self.snapshot()
        try:
            return loading.advance(self._store, snapshot, entries)
        except MissingObject:  # merged since, and vacuumed
            return self.snapshot()

    def table(self, snapshot: Snapshot, kind: Kind, topic: str) -> pa.Table:
        """All rows of one kind and topic in this version, without the columns kind and topic."""
        mine = [file for file in snapshot.files if file.topic == topic]
        found = loading.tables(self._store, kind, mine)
        return pa.concat_tables(found[topic]) if found else FILE_SCHEMAS[kind].empty_table()

    def segments(self, snapshot: Snapshot, topic: str) -> list[SegmentRow]:
        """Every segment row of a topic in the order of the log, with all its columns."""
        rows = rows_of(SegmentRow, topic, self.table(snapshot, "segment", topic))
        return sorted(rows, key=lambda row: (row.partition, row.base_offset))

    def segment_lists(
        self, snapshot: Snapshot, topics: Collection[str]
    ) -> Iterator[list[SegmentRow]]:
        """The segment rows of some topics, in no order, in lists that fit into memory."""
        files = (f for f in sorted(snapshot.files) if f.kind == "segment" and f.topic in topics)
        rows = itertools.chain.from_iterable(map(self._segment_rows, files))
        while some := list(itertools.islice(rows, _ROWS)):
            yield some

    def _segment_rows(self, file: DataFile) -> Iterator[SegmentRow]:
        (table,) = data.read_files(self._store, layout.LOG_TABLE, [file])
        for some in table.to_batches(max_chunksize=_ROWS):
            yield from rows_of(SegmentRow, file.topic, pa.Table.from_batches([some]))

    def damage(self) -> Iterator[tuple[DataFile, CorruptData | StoreError]]:
        """Every data file of the newest version that cannot be read, of whatever kind."""
        for file in sorted(loading.active_files(self._refreshed())):
            try:
                data.read_files(self._store, layout.LOG_TABLE, [file])
            except (CorruptData, StoreError) as error:
                yield file, error

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
        topic changed since `base` (with `replaced`: or its files were merged), CorruptData if the
        log would have a hole or an overlap, UsageError if a row contradicts the topic, and
        StoreError. The attempt's manifest says what was to be committed, and its mark of success
        that it was: an attempt commits once.
        """
        rows, replaced = with_append_times(rows, base), list(replaced)
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
        actions = [*map(_added, written), *map(_removed, removed)]
        entries = self._delta_log.commit(
            base.version,
            actions,
            application=f"seglake/{topic}",
            info={"seglake.attempt": attempt_id},
        )
        mark_committed(self._store, attempt_id)
        version = entries[-1].version
        self._tidy(version, loading.files_after(base.files, entries))
        return version

    def _tidy(self, version: int, files: frozenset[DataFile]) -> None:
        """After the commit of a version with these files: merge small ones, and write a checkpoint.

        Losing a race here, or failing, is no failure of the commit: a later one does it.
        """
        made = [version]
        try:
            made += self._merge(version, compaction.due(files, compaction.FAN_IN))
        except CommitConflict as error:
            _log.debug("another commit merges the files of the catalog: %s", error)
        except SeglakeError as error:
            _log.warning("a later commit has to merge the files of the catalog: %s", error)
        delta.checkpoint_if_due(self._delta_log, self._options, made)

    def _merge(self, version: int, groups: Iterable[Sequence[DataFile]]) -> list[int]:
        """Write each group of files of a version as one; returns the version made, if any was."""
        actions: list[Action] = []
        for files in groups:
            tables = data.read_files(self._store, layout.LOG_TABLE, files)
            name = (layout.LOG_TABLE, files[0].kind, files[0].topic)
            merged = data.write_file(self._store, *name, pa.concat_tables(tables))
            actions += [_added(merged, changes=False)]
            actions += [_removed(file, changes=False) for file in files]
        return [self._delta_log.commit(version, actions)[-1].version] if actions else []

    def expired(self, retention_hours: int | None = None, *, before_ms: float) -> list[Listed]:
        """The objects in the table's folder that no retained version names.

        Without `retention_hours` the table's own retention holds; a shorter one expires versions.
        What was written at `before_ms` or later is left out: a commit may be about to name it.
        """
        handle = self._refreshed()
        with delta.delta_errors(self._uri, "vacuum failed"):
            paths = handle.vacuum(
                retention_hours,
                dry_run=True,
                full=True,
                enforce_retention_duration=retention_hours is None,
            )
        keys = {f"{layout.LOG_TABLE}/{path}" for path in paths}
        listed = self._store.list(layout.LOG_TABLE) if keys else ()
        return [found for found in listed if found.key in keys and found.modified_ms < before_ms]

    def retained(self, kind: Kind, expired: Collection[str]) -> Iterator[tuple[str, pa.Table]]:
        """The rows that any retained version may have, as (topic, rows) for each data file.

        They are in all files but those with one of the keys `expired`: each is read once, in
        whichever versions it is. MissingObject, at the end, if the newest version lacks a file.
        """
        active = loading.active_files(self._refreshed())
        needed = {f"{layout.LOG_TABLE}/{file.path}" for file in active if file.kind == kind}
        for found in self._store.list(f"{layout.LOG_TABLE}/kind={kind}"):
            if found.key.endswith(".parquet") and found.key not in expired:
                topic = found.key.split("/")[3].removeprefix("topic=")
                yield topic, data.read_parquet(self._store, found.key, FILE_SCHEMAS[kind])
                needed.discard(found.key)
        for key in needed:
            raise MissingObject(f"{self._store.uri}/{key}: no such object")


def _whole(store: Store, storage_options: Mapping[str, str] | None) -> CatalogTable:
    """The catalog. MissingObject if there never was one, CorruptData if it is lost or in part."""
    try:
        table = CatalogTable(store, storage_options)
    except MissingObject:
        if not _was_used(store):
            raise
        try:
            table = CatalogTable(store, storage_options)  # another process has just created it
        except MissingObject as error:
            what = f"the catalog is gone, but runs were committed to it; {_REMEDY}"
            raise CorruptData(what, file=layout.LOG_TABLE) from error
    with contextlib.suppress(MissingObject):
        store.size(layout.REBUILDING)
        raise CorruptData(f"the catalog was made again in part; {_REMEDY}", file=layout.REBUILDING)
    return table


def _was_used(store: Store) -> bool:
    """Whether an attempt has written down what it commits, which it does after the creation."""
    names = (found.key.rpartition("/")[2] for found in store.list(layout.ATTEMPTS))
    return not {"manifest.json", "success"}.isdisjoint(names)


def _identity(base: Snapshot, topic: str, partition: int, base_offset: int) -> SegmentId:
    view = base.partition(topic, partition)
    segment = view.segment(view.index_of(base_offset))
    return SegmentId(topic, partition, base_offset, segment.attempt_id, segment.index_attempt_id)


def _added(item: data.Written, *, changes: bool = True) -> Action:
    file = item.file
    values = {"kind": file.kind, "topic": file.topic}
    return deltalog.add(file.path, file.size_bytes, values, item.stats, changes=changes)


def _removed(file: DataFile, *, changes: bool = True) -> Action:
    values = {"kind": file.kind, "topic": file.topic}
    return deltalog.remove(file.path, file.size_bytes, values, changes=changes)
