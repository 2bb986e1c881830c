"""The versions of the catalog: opened, loaded, refreshed, and held by tags."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from shlex import quote
from typing import Self, TypeVar

import numpy as np

from seglake import layout
from seglake.catalog.attempts import archives, is_rebuilding
from seglake.catalog.delta import delta_rs
from seglake.catalog.delta.actions import AddedFile
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.delta.data_files import DataFile
from seglake.catalog.delta.table_contract import TableContract
from seglake.catalog.schema import PARTITION_COLUMNS, TABLE_SCHEMA, TagRow
from seglake.catalog.tags import check_name, is_of_a_tag, live_tags, read_object
from seglake.catalog.version import snapshot_files
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import CorruptData, MissingObject, UsageError, VersionExpired
from seglake.store import Store, nearby_root
from seglake.terminal.wording import advice

_REMEDY = "`seglake repair {root} --catalog` rebuilds it from the manifests of the runs"
CONTRACT = TableContract("the catalog", TABLE_SCHEMA, PARTITION_COLUMNS, _REMEDY)
_REFRESH_COMMITS = 1000  # a refresh reads fewer commits than this, or else the whole version
_Load = Callable[[Store, int, frozenset[DataFile]], Snapshot]
AnyTable = TypeVar("AnyTable", bound="CatalogVersions")


class CatalogVersions:
    """The versions of an existing catalog; for one thread at a time.

    Making one raises MissingObject if there is no table, UsageError if it has another format, and
    CorruptData if another program did to it what its contract forbids. So does every method
    that reads a newer version.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._delta_log = DeltaLog(store, layout.LOG_TABLE, CONTRACT)
        self.handle = delta_rs.TableHandle(self._delta_log)
        self._tags: tuple[frozenset[DataFile], list[TagRow]] = (frozenset(), [])

    @classmethod
    def open(cls, store: Store) -> Self:
        """Open the catalog; UsageError if the store holds no lake, or one of another format.

        Raises CorruptData if the catalog is lost, or its rebuild is not finished.
        """
        try:
            return _open_complete(cls, store)
        except MissingObject as error:
            near = nearby_root(store, layout.LOG_TABLE)
            helps = f"did you mean {near}?" if near else "check the path; an ingest creates a lake"
            raise UsageError(f"{store.uri} holds no lake; {helps}") from error

    @classmethod
    def create(cls, store: Store) -> Self:
        """Open the catalog, or create it in a new lake; several processes may try at once.

        Raises CorruptData as `open` does: a new catalog would let every file be ingested again.
        """
        try:
            return _open_complete(cls, store)
        except MissingObject:
            return cls.create_empty(store)

    @classmethod
    def create_empty(cls, store: Store, lake: str = "") -> Self:
        """Create an empty catalog, or open the one that already exists.

        `lake` is the identity of its lake, "" for a new lake.
        """
        delta_rs.create_table(store, layout.LOG_TABLE, TABLE_SCHEMA, PARTITION_COLUMNS, lake)
        return cls(store)

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
        return partial(_held_files, type(self), self.store, self.lake)

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


def _held_files(
    table_type: type[CatalogVersions], store: Store, lake: str, version: int
) -> frozenset[DataFile] | None:
    """Return the data files with which a tag holds a version of the lake. Safe for threads."""
    table = table_type.open(store)
    tag = table.tag_of(version) if table.lake == lake else None
    return None if tag is None else read_object(store, tag).files


def _open_complete(table_type: type[AnyTable], store: Store) -> AnyTable:
    """Open the catalog, unless it is lost or only rebuilt in part: then CorruptData.

    Raises MissingObject for a new lake.
    """
    try:
        table = table_type(store)
    except MissingObject:
        _require_rebuilt(store)  # a rebuild that died may have been that of a lake without a run
        if not _was_used(store):
            raise
        table = _open_used(table_type, store)
    _require_rebuilt(store)
    return table


def _require_rebuilt(store: Store) -> None:
    """Raise CorruptData if a rebuild of the catalog has begun, and not ended."""
    if is_rebuilding(store):
        what = f"the catalog is only rebuilt in part; {CONTRACT.at(store.uri).remedy}"
        raise CorruptData(what, file=layout.REBUILDING)


def _open_used(table_type: type[AnyTable], store: Store) -> AnyTable:
    """Open the catalog of a lake with attempts, which another process may just have created."""
    try:
        return table_type(store)
    except MissingObject as error:
        what = "the catalog is missing, but runs were committed to it; "
        raise CorruptData(what + CONTRACT.at(store.uri).remedy, file=layout.LOG_TABLE) from error


def _was_used(store: Store) -> bool:
    """Whether there are manifests, marks or archives, which only follow a catalog's creation."""
    names = (item.key.rpartition("/")[2] for item in store.list(layout.ATTEMPTS))
    return not {"manifest.json", "success"}.isdisjoint(names) or any(archives(store))
