"""The catalog table: opens it, loads its versions, reads their rows, and commits to it.

A snapshot has the segments of a version in memory. Other rows are read from data files when they
are needed: only from the files whose statistics or filters say that they may have such rows.

Nothing else commits to the table. Every commit is one commit of Delta over files that this package
wrote. A commit to a topic prevents this:

    1. Two runs read version 7, in which the next offset of a partition is 100.
    2. Both write segments at offset 100, and both commit. One offset has two records.

So a commit carries the app transaction `seglake/<topic>`, and continues the version that supplied
its offsets:

    1. It checks that the log has neither a hole nor an overlap with the change, and claims.
    2. It writes the data files, then the manifest: a rebuild must find every commit there.
    3. It puts the commit under the next free version. It passes commits made since its base, unless
       one has the same app transaction, or removes a file that it removes too: CommitConflict. The
       caller looks for its own attempt before it tries again: a lost reply looks like a lost race.
    4. It writes the success marker, merges small data files and writes a checkpoint if one is due.
       Merges and checkpoints change no row.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from shlex import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglake import layout
from seglake.catalog.attempts import (
    Manifest,
    archives,
    attempts_without_marker,
    claim,
    find_manifest,
    is_rebuilding,
    mark_committed,
    write_manifest,
)
from seglake.catalog.delta import delta_rs, file_merges
from seglake.catalog.delta.actions import Action, AddedFile, add, remove
from seglake.catalog.delta.commit_log import DeltaLog, highest_version
from seglake.catalog.delta.data_files import DataFile, read_files, write_file
from seglake.catalog.delta.table_contract import TableContract
from seglake.catalog.schema import (
    FILE_SCHEMAS,
    PARTITION_COLUMNS,
    TABLE_SCHEMA,
    Kind,
    MaintenanceRow,
    Row,
    RunRow,
    SegmentRow,
    SourceRow,
    TagRow,
    committed_runs,
    rows_of,
)
from seglake.catalog.tags import check_name, is_of_a_tag, live_tags, read_object
from seglake.catalog.topic_change import (
    Change,
    Removal,
    TopicChange,
    checked_change,
    divided,
    removed_segments,
)
from seglake.catalog.version import snapshot_files
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import (
    CommitConflict,
    CorruptData,
    MissingObject,
    SeglakeError,
    UsageError,
    VersionExpired,
)
from seglake.store import Store, nearby_root
from seglake.terminal.wording import advice

COMMITS: tuple[Kind, ...] = ("run", "maintenance")  # each commit adds a row of one of these kinds
COMMITTED = threading.Event()  # set once this process has made a commit to a topic
_REMEDY = "`seglake repair {root} --catalog` rebuilds it from the manifests of the runs"
CONTRACT = TableContract("the catalog", TABLE_SCHEMA, PARTITION_COLUMNS, _REMEDY)
_REFRESH_COMMITS = 1000  # a refresh reads fewer commits than this, or else the whole version
_RECENT_RUNS = 4  # runs whose rows are cached
_LISTED_ROWS = 10_000  # segment rows, as Python objects, in one list of `segment_lists`
_A_DAY_MS = 86_400_000
_Load = Callable[[Store, int, frozenset[DataFile]], Snapshot]
_log = logging.getLogger(__name__)


class CatalogTable:
    """The existing catalog of the lake in a store; for one thread at a time.

    The constructor, and every method that reads a newer version, raises MissingObject if there is
    no table, UsageError if it has another format, and CorruptData if another program did to it
    what its contract forbids.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._delta_log = DeltaLog(store, layout.LOG_TABLE, CONTRACT)
        self.handle = delta_rs.TableHandle(self._delta_log)
        self._tags: tuple[frozenset[DataFile], list[TagRow]] = (frozenset(), [])
        self._recent_runs: dict[tuple[int, str, str, str], list[RunRow]] = {}

    @staticmethod
    def open(store: Store) -> CatalogTable:
        """Open the catalog; UsageError if the store holds no lake, or one of another format.

        Raises CorruptData if the catalog is lost, or its rebuild is not finished.
        """
        try:
            return _open_complete(store)
        except MissingObject as error:
            near = nearby_root(store, layout.LOG_TABLE)
            helps = f"did you mean {near}?" if near else "check the path; an ingest creates a lake"
            raise UsageError(f"{store.uri} holds no lake; {helps}") from error

    @staticmethod
    def create(store: Store) -> CatalogTable:
        """Open the catalog, or create it in a new lake; several processes may try at once.

        Raises CorruptData as `open` does: a new catalog would let every file be ingested again.
        """
        try:
            return _open_complete(store)
        except MissingObject:
            return CatalogTable.create_empty(store)

    @staticmethod
    def create_empty(store: Store, lake: str = "") -> CatalogTable:
        """Create an empty catalog, or open the one that already exists.

        `lake` is the identity of its lake, "" for a new lake.
        """
        delta_rs.create_table(store, layout.LOG_TABLE, TABLE_SCHEMA, PARTITION_COLUMNS, lake)
        return CatalogTable(store)

    def commit_times(self) -> list[tuple[int, int]]:
        """The version and the time (ms) of each commit that is retained, oldest first."""
        return self._delta_log.commit_times()

    def delta_log(self) -> DeltaLog:
        """The table's log, for a reader that does not check commits."""
        return DeltaLog(self.store, layout.LOG_TABLE, CONTRACT)

    @property
    def lake(self) -> str:
        """The lake's identity, a UUID. It is random, and stays when the catalog is rebuilt."""
        return self.handle.lake

    @property
    def id(self) -> str:
        """The identity of this catalog, a UUID; a catalog that is rebuilt has another."""
        return self.handle.id

    def snapshot(
        self, version: int | str | None = None, topics: Collection[str] | None = None
    ) -> Snapshot:
        """Return the newest version, the one with a number, or that of the tag with a name.

        The rows of `topics` are read at once, by default those of all topics. Rows of the others
        are read when such a topic is first used. A number is answered from a tag only if the
        version is no longer retained. Raises VersionExpired if no tag has it then;
        UsageError if it or the tag does not exist; CorruptData if a log partition has a hole.
        """
        if isinstance(version, str):
            return self.tagged(self.tag(version), topics)
        if version is not None:
            return self._retained_or_tagged(version, topics)
        return self._at_newest(partial(snapshot_files.load, topics=topics, held=self._held))

    def _retained_or_tagged(self, version: int, topics: Collection[str] | None) -> Snapshot:
        try:
            snapshot = self.logged(version, topics)
        except VersionExpired:
            tag = self.tag_of(version)
            if tag is None:
                raise
            return self.tagged(tag, topics)
        try:
            tag = self.tag_of(version)
        except CorruptData:  # of a newer version, which this one does not need
            return snapshot
        if tag is None or self._has_erased_logs(snapshot, tag):
            return snapshot
        return self.tagged(tag, topics)

    def _has_erased_logs(self, snapshot: Snapshot, tag: TagRow) -> bool:
        """Whether the logs that erasures replaced in a tag of the version are still there.

        A vacuum keeps all other files of a version for its tag.
        """
        try:
            for erased in read_object(self.store, tag).erased:
                view = snapshot.find_partition(erased.topic, erased.partition)
                if view is not None:
                    offsets = view.segments.base_offsets
                    index = int(np.searchsorted(offsets, erased.first_offset, "right")) - 1
                    self.store.stat(view.segment(index).key("log"))
        except (MissingObject, VersionExpired):
            return False
        except CorruptData:  # of the tag: the version does not need it
            return True
        return True

    @property
    def _held(self) -> snapshot_files.HeldFiles:
        return partial(_held_files, self.store, self.lake)

    def ends(self, topic: str) -> Snapshot:
        """The newest version with the ends of a topic's logs: enough to append. As `snapshot`."""
        return self._at_newest(partial(snapshot_files.load_ends, topic=topic))

    def _at_newest(self, load: _Load) -> Snapshot:
        while True:
            table = self.handle.newest()
            newest = table.version()
            try:
                return self._load(newest, delta_rs.live_files(table, PARTITION_COLUMNS), load)
            except VersionExpired:  # a merge of its files and a vacuum may have come between
                if self.handle.newest().version() == newest:
                    raise

    def logged(self, version: int, topics: Collection[str] | None = None) -> Snapshot:
        """A version as the Delta log has it. Raises as `snapshot`."""
        files = delta_rs.live_files(self.handle.at(version), PARTITION_COLUMNS)
        return self._load(
            version, files, partial(snapshot_files.load, topics=topics, held=self._held)
        )

    def refresh(self, snapshot: Snapshot) -> Snapshot:
        """The newest version, made from an older snapshot by reading only later commits.

        Topics that the older one has read are read, and new ones. Of `ends` come newer ends.
        """
        if is_of_a_tag(snapshot.files):
            return self.snapshot(topics=())
        commits = self._delta_log.since(snapshot.version, _REFRESH_COMMITS)
        if not commits and self._delta_log.has(snapshot.version):
            return snapshot
        if snapshot.ends_of is not None:
            return self.ends(snapshot.ends_of)
        if not 0 < len(commits) < _REFRESH_COMMITS or any(commit.redefines for commit in commits):
            return self._anew(snapshot)
        try:
            return snapshot_files.advance(self.store, snapshot, commits, self._held)
        except MissingObject:  # a new file was merged into another one, and vacuumed
            return self._anew(snapshot)

    def _anew(self, snapshot: Snapshot) -> Snapshot:
        """The newest version, read as a whole, with the topics that a snapshot has read."""
        unread = snapshot.unread()
        if not unread:
            return self.snapshot()
        return self.snapshot(topics={file.topic for file in snapshot.files} - unread)

    def _load(self, version: int, files: Iterable[AddedFile], load: _Load) -> Snapshot:
        with snapshot_files.retained(version):
            return load(self.store, version, snapshot_files.data_files(files))

    def check_history(self) -> None:
        """Raise CorruptData if a commit in the log changed rows and is not Seglake's."""
        self._delta_log.check_all()

    def newest_files(self) -> frozenset[DataFile]:
        """The data files of the newest version."""
        rows = delta_rs.live_files(self.handle.newest(), PARTITION_COLUMNS)
        return snapshot_files.data_files(rows)

    def tags(self) -> list[TagRow]:
        """The tags that there are now, by name."""
        return live_tags(self.store, self.newest_files())

    def tags_in(self, snapshot: Snapshot) -> list[TagRow]:
        """The tags that a version of the catalog has, by name; that of a tag has none.

        Asks nothing of storage if it has no others than the version that was asked for last.
        """
        files = frozenset(file for file in snapshot.files if file.kind == TagRow.KIND)
        if files != self._tags[0]:
            self._tags = files, live_tags(self.store, files)
        return self._tags[1]

    def tag(self, name: str) -> TagRow:
        """Return the tag with a name. Raises UsageError if there is none."""
        check_name(name)
        names = {tag.name: tag for tag in self.tags()}
        if name not in names:
            lists = f"`seglake tag {quote(self.store.uri)}` lists the tags"
            raise UsageError(f"there is no tag {name}; {advice(name, names, lists)}")
        return names[name]

    def tag_of(self, version: int) -> TagRow | None:
        """A tag that holds a version, or None."""
        return next((tag for tag in self.tags() if tag.version == version), None)

    def tagged(self, tag: TagRow, topics: Collection[str] | None = None) -> Snapshot:
        """The version that a tag names.

        Raises VersionExpired if the tag was deleted meanwhile, CorruptData if its object is damaged
        or missing.
        """
        try:
            files = read_object(self.store, tag).files
            return snapshot_files.load(self.store, tag.version, files, topics)
        except MissingObject as error:
            if tag in self.tags():
                what = f"tag {tag.name} names an object that is gone: {error}"
                raise CorruptData(what, file=layout.tag_key(tag.attempt_id)) from error
            raise VersionExpired(f"tag {tag.name} was deleted or changed: {error}") from error

    # ---------------- rows

    def rows(self, snapshot: Snapshot, kind: Kind, topic: str) -> pa.Table:
        """All rows of one kind and topic in this version, without the columns kind and topic."""
        files = [file for file in snapshot.files if file.topic == topic]
        tables = snapshot_files.tables(self.store, kind, files)
        return pa.concat_tables(tables[topic]) if tables else FILE_SCHEMAS[kind].empty_table()

    def latest_rows(self, files: Collection[DataFile], kind: Kind, topic: str, n: int) -> pa.Table:
        """As `rows`, at least the `n` rows of a run or of maintenance that finished last.

        Of a version's files, those that have none of them are not read.
        """
        some = [file for file in files if file.topic == topic and file.kind == kind]
        tables = snapshot_files.tables(self.store, kind, snapshot_files.finished_last(some, n))
        return pa.concat_tables(tables[topic]) if tables else FILE_SCHEMAS[kind].empty_table()

    def segments(self, snapshot: Snapshot, topic: str) -> list[SegmentRow]:
        """Every segment row of a topic in the order of the log, with all its columns."""
        rows = rows_of(SegmentRow, topic, self.rows(snapshot, "segment", topic))
        return sorted(rows, key=lambda row: (row.partition, row.base_offset))

    def segments_at(
        self, snapshot: Snapshot, topic: str, places: Sequence[tuple[int, int]]
    ) -> list[SegmentRow]:
        """The rows of the segments at (partition, base offset), in the order of the log.

        Only data files that can have them are read. Raises UsageError if one does not exist.
        """
        if not places:
            return []
        mine = [file for file in snapshot.files if file.topic == topic]
        removal = removed_segments(snapshot, topic, places)
        parts = divided(self.store, layout.LOG_TABLE, mine, removal)
        rows = rows_of(SegmentRow, topic, pa.concat_tables([part.goes for part in parts]))
        return sorted(rows, key=lambda row: (row.partition, row.base_offset))

    def segment_lists(
        self, snapshot: Snapshot, topics: Collection[str]
    ) -> Iterator[list[SegmentRow]]:
        """The segment rows of some topics, in no order, in lists that fit into memory."""
        files = (f for f in sorted(snapshot.files) if f.kind == "segment" and f.topic in topics)
        rows = itertools.chain.from_iterable(map(self._segment_rows, files))
        while some := list(itertools.islice(rows, _LISTED_ROWS)):
            yield some

    def _segment_rows(self, file: DataFile) -> Iterator[SegmentRow]:
        (table,) = read_files(self.store, layout.LOG_TABLE, [file])
        for some in table.to_batches(max_chunksize=_LISTED_ROWS):
            yield from rows_of(SegmentRow, file.topic, pa.Table.from_batches([some]))

    def runs(self, snapshot: Snapshot, topic: str) -> list[RunRow]:
        """The committed runs of a topic."""
        return committed_runs(self.run_history(snapshot, topic))

    def run_history(self, snapshot: Snapshot, topic: str) -> list[RunRow]:
        """Every run row of a topic, also of runs that were undone or replaced."""
        return rows_of(RunRow, topic, self.rows(snapshot, "run", topic))

    def run(self, snapshot: Snapshot, topic: str, pipeline: str, run_id: str) -> RunRow | None:
        """The committed run with this key, if there is one."""
        return next(iter(committed_runs(self._run_rows(snapshot, topic, pipeline, run_id))), None)

    def next_sequence(self, snapshot: Snapshot, topic: str, pipeline: str, run_id: str) -> int:
        """The sequence of the next row of the run with this key: 0 for a new run."""
        rows = self._run_rows(snapshot, topic, pipeline, run_id)
        return max((row.sequence + 1 for row in rows), default=0)

    def _run_rows(self, snapshot: Snapshot, topic: str, pipeline: str, run_id: str) -> list[RunRow]:
        """Return every row of the run with this key. Reads only data files that can have one.

        The last result is cached, because a commit asks for the rows of its base again.
        """
        key = snapshot.version, topic, pipeline, run_id
        if key not in self._recent_runs:
            runs = self._named(snapshot, "run", topic, "run_id", [run_id])
            same = pc.equal(runs["pipeline"], pa.scalar(pipeline))
            others = list(self._recent_runs.items())[1 - _RECENT_RUNS :]
            self._recent_runs = dict([*others, (key, rows_of(RunRow, topic, runs.filter(same)))])
        return self._recent_runs[key]

    def _named(
        self, snapshot: Snapshot, kind: Kind, topic: str, column: str, values: Collection[str]
    ) -> pa.Table:
        mine = [file for file in snapshot.files if file.topic == topic]
        return snapshot_files.rows_with(self.store, kind, mine, column, values)

    def has(
        self,
        snapshot: Snapshot,
        topic: str,
        attempt_id: str,
        finished_ms: Collection[int] | None = None,
    ) -> bool:
        """Whether this version has the commit of an attempt.

        `finished_ms` has the times in its row, one of which that is: only data files that can have
        it are read. Without it all are.
        """
        times = None if finished_ms is None else np.array(sorted(finished_ms), np.int64)
        stated = {} if times is None else {"finished_at_ms": times}
        files = (file for file in snapshot.files if file.topic == topic and file.kind in COMMITS)
        value = pa.scalar(attempt_id)
        return any(
            pc.any(pc.equal(rows["attempt_id"], value)).as_py()
            for file in files
            if file.may_hold(stated)
            for rows in read_files(self.store, layout.LOG_TABLE, [file])
        )

    def maintenance(self, snapshot: Snapshot, topic: str) -> list[MaintenanceRow]:
        """Every commit of maintenance to a topic."""
        return rows_of(MaintenanceRow, topic, self.rows(snapshot, "maintenance", topic))

    def sources(self, snapshot: Snapshot, topic: str) -> pa.Table:
        """The input files of a topic, with the columns of `SourceRow` except the topic."""
        return self.rows(snapshot, "source", topic)

    def sources_at(self, snapshot: Snapshot, topic: str, paths: Collection[str]) -> pa.Table:
        """As `sources`, the rows of some paths. Only data files that can have one are read."""
        return self._named(snapshot, "source", topic, "path", paths)

    def source_paths(self, snapshot: Snapshot, run: RunRow) -> set[str]:
        """The input files that a run ingested.

        Its manifest names them; if that is gone or damaged, all source rows are read.
        """
        attempt_id = run.attempt_id
        try:
            rows: Sequence[Row] = find_manifest(self.store, attempt_id, run.finished_at_ms).rows
        except (MissingObject, CorruptData):
            rows = rows_of(SourceRow, run.topic, self.sources(snapshot, run.topic))
        own = (row for row in rows if isinstance(row, SourceRow) and row.attempt_id == attempt_id)
        return {row.path for row in own}

    # ---------------- commits

    @staticmethod
    def rebuilt(
        store: Store, topics: Mapping[str, Sequence[Row]], first_version: int, lake: str
    ) -> int:
        """Create the catalog with these rows; returns its version, at least `first_version`.

        `lake` is the lake's identity, "" if none is known. Nobody may have the lake open.
        """
        table = CatalogTable.create_empty(store, lake)
        made = 0
        for topic, rows in topics.items():
            attempt_id = layout.new_attempt()
            made = table.commit(rows, topic=topic, base=table.snapshot(), attempt_id=attempt_id)
        delta_rs.renumber(DeltaLog(store, layout.LOG_TABLE, CONTRACT), made, first_version)
        return CatalogTable(store).snapshot().version

    @staticmethod
    def highest_version(store: Store) -> int:
        """A version that the catalog never went beyond, by its files and its backups'; or -1."""
        return highest_version(store, layout.LOG_TABLE)

    def commit(  # noqa: PLR0913  # the fields of a change, and of whom it is
        self,
        rows: Sequence[Row],
        *,
        topic: str,
        base: Snapshot,
        attempt_id: str,
        replaced: Sequence[tuple[int, int]] = (),
        forgotten: Collection[str] = (),
        files_of: Collection[str] = (),
        beside: Collection[str] = (),
        tags: Sequence[TagRow] = (),
        lost_races: int = 0,
    ) -> int:
        """Make a change visible at once, see `Change`, and return the version that has it.

        The change continues the version `base`. An attempt commits once: its manifest is written
        before, and marked after; `lost_races` counts its tries before. Raises CommitConflict if
        the topic, or one of `beside`, changed since `base` (for a removal, also if its data files
        were merged), AttemptAbandoned, CorruptData if the log would have a hole or an overlap,
        UsageError if a row contradicts the topic, and StoreError.
        """
        change = Change(rows, replaced, forgotten, files_of, tags=tags)
        checked = checked_change(change, topic, base)
        for owner in (attempt_id, *files_of):
            claim(self.store, owner, topic)
        removals = checked.removals(base)
        actions = self._write_files(checked, removals, base)
        manifest = Manifest(
            attempt_id, checked.rows, checked.replaced, sorted(forgotten), base.version + 1,
            self.lake,
        )  # fmt: skip
        write_manifest(self.store, manifest, lost_races)
        commits = self._delta_log.commit(
            base.version,
            actions,
            application=f"seglake/{topic}",
            beside=[f"seglake/{each}" for each in beside],
            info={"seglake.attempt": attempt_id},
            operation="REPLACE" if removals else "WRITE",
        )
        COMMITTED.set()
        mark_committed(self.store, attempt_id)
        version = commits[-1].version
        self._tidy(version, snapshot_files.files_after(base.files, commits))
        return version

    def fence(self, topic: str | None = None) -> None:
        """Make every commit to a topic, or to all, that is under way fail: it has to begin again.

        So an attempt that was given up finds that out, and no commit names data files that are
        about to be deleted. Raises CommitConflict and StoreError.
        """
        application = None if topic is None else f"seglake/{topic}"
        self._delta_log.fence(lambda: (self.handle.newest().version(), []), application)

    def unmarked(self, files: Collection[DataFile]) -> set[str]:
        """The attempts without a mark that rows in these files, or the log's commits, name."""
        waiting = attempts_without_marker(self.store)
        if not waiting:
            return set()
        since_ms = min(waiting.values()) - _A_DAY_MS  # a copied lake has the times of copying
        committed = {commit.attempt_id for _, commit in self._delta_log.retained(since_ms)}
        return waiting.keys() & (committed | snapshot_files.attempts(self.store, files))

    def mark_committed(self, files: Collection[DataFile]) -> list[str]:
        """Mark the attempts that `unmarked` gives; returns them.

        They died between their commit and their mark.
        """
        attempt_ids = sorted(self.unmarked(files))
        if attempt_ids:
            sync_commits(self.store)
        for attempt_id in attempt_ids:
            mark_committed(self.store, attempt_id)
        return attempt_ids

    def _write_files(
        self, change: TopicChange, removals: Iterable[Removal], base: Snapshot
    ) -> list[Action]:
        """Write the data files of a change; returns the actions that commit it."""
        mine = [file for file in base.files if file.topic == change.topic]
        tables, removed = [*change.tables().items()], list[DataFile]()
        for removal in removals:
            for file, _, rows in divided(self.store, layout.LOG_TABLE, mine, removal):
                removed.append(file)
                tables.append(((removal.kind, change.topic), rows))
        written = [
            write_file(self.store, layout.LOG_TABLE, kind, topic, *part)
            for (kind, topic), rows in tables
            if len(rows)
            for part in file_merges.parts(rows)
        ]
        gone = [remove(file.path, file.size_bytes, file.partition) for file in removed]
        return [*map(add, written), *gone]

    def _tidy(self, version: int, files: frozenset[DataFile]) -> None:
        """After the commit of a version with these files: merge small ones, write a checkpoint.

        If that fails or loses a race, the commit stands, and a later commit tidies.
        """
        made = [version]
        try:
            due = file_merges.due(files, file_merges.FAN_IN)
            made += file_merges.merge(self._delta_log, version, due)
        except CommitConflict as error:
            _log.debug("another commit merges the files of the catalog: %s", error)
        except SeglakeError as error:
            _log.warning("a later commit has to merge the files of the catalog: %s", error)
        delta_rs.checkpoint_if_due(self._delta_log, made)


def _held_files(store: Store, lake: str, version: int) -> frozenset[DataFile] | None:
    """Return the data files with which a tag holds a version of the lake. Safe for threads."""
    table = CatalogTable.open(store)
    tag = table.tag_of(version) if table.lake == lake else None
    return None if tag is None else read_object(store, tag).files


def _open_complete(store: Store) -> CatalogTable:
    """Open the catalog. Raises CorruptData if it is lost or only partly rebuilt.

    Raises MissingObject for a new lake.
    """
    try:
        table = CatalogTable(store)
    except MissingObject:
        _require_rebuilt(store)  # a rebuild that died may have been that of a lake without a run
        if not _was_used(store):
            raise
        try:  # again: another process may just have created it
            table = CatalogTable(store)
        except MissingObject as error:
            what = "the catalog is missing, but runs were committed to it; "
            remedy = CONTRACT.at(store.uri).remedy
            raise CorruptData(what + remedy, file=layout.LOG_TABLE) from error
    _require_rebuilt(store)
    return table


def _require_rebuilt(store: Store) -> None:
    """Raise CorruptData if a rebuild of the catalog has begun, and not ended."""
    if is_rebuilding(store):
        what = f"the catalog is only rebuilt in part; {CONTRACT.at(store.uri).remedy}"
        raise CorruptData(what, file=layout.REBUILDING)


def _was_used(store: Store) -> bool:
    """Whether there are manifests, marks or archives, which only follow a catalog's creation."""
    names = (item.key.rpartition("/")[2] for item in store.list(layout.ATTEMPTS))
    return not {"manifest.json", "success"}.isdisjoint(names) or any(archives(store))


def sync_commits(store: Store) -> None:
    """Let every commit that is there, also to the quarantine, survive a loss of power.

    Whoever made it may have died before its name was on the disk. Raises StoreError.
    """
    for table in (layout.LOG_TABLE, layout.QUARANTINE_TABLE):
        with contextlib.suppress(MissingObject):
            store.sync(f"{table}/_delta_log")
