"""Create the catalog table, open it, and load its versions.

A `CatalogTable` has objects for its tags, for the rows of its versions, and for commits to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from seglake import layout
from seglake.catalog.attempts import archives, is_rebuilding
from seglake.catalog.commits import CatalogCommits
from seglake.catalog.delta import delta_rs
from seglake.catalog.delta.actions import AddedFile
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.delta.data_files import DataFile
from seglake.catalog.delta.table_contract import TableContract
from seglake.catalog.rows import CatalogRows
from seglake.catalog.schema import PARTITION_COLUMNS, TABLE_SCHEMA, Row, TagRow
from seglake.catalog.tags import CatalogTags, is_tagged_version, read_object
from seglake.catalog.topic_change import Change
from seglake.catalog.version import snapshot_files
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import CorruptData, MissingObject, UsageError, VersionExpired
from seglake.store import Store

_REMEDY = "`seglake repair {root} --catalog` rebuilds it from the manifests of the runs"
CONTRACT = TableContract("the catalog", TABLE_SCHEMA, PARTITION_COLUMNS, _REMEDY)
_REFRESH_COMMITS = 1000  # after this many commits or more, a refresh loads the whole version
_Load = Callable[[Store, int, frozenset[DataFile]], Snapshot]


class CatalogTable:
    """The existing catalog of the lake in a store. Not thread-safe.

    `tags` finds its tags, `rows` reads the rows of a version, and `commits` commits changes. `log`
    has the commits as Delta actions.

    `id` is the identity of this catalog, a UUID. A rebuilt catalog has a new identity. `lake` is
    the lake's identity, a random UUID, which a rebuild keeps.

    The constructor and methods that read a newer version raise MissingObject without a table,
    UsageError if the table has another format, and CorruptData if another program has made a change
    that the table's contract forbids.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.log = DeltaLog(store, layout.LOG_TABLE, CONTRACT)
        self.handle = delta_rs.TableHandle(self.log)
        self.id, self.lake = self.handle.id, self.handle.lake
        self.tags, self.rows = CatalogTags(store, self.newest_files), CatalogRows(store)
        self.commits = CatalogCommits(self.log, self.handle)
        self._held = partial(_tagged_files, store, self.lake)

    @staticmethod
    def open(store: Store) -> CatalogTable:
        """Open the catalog.

        Raises:
            UsageError: The store has no lake, or a lake of another format.
            CorruptData: The catalog is lost, or its rebuild is not finished.
        """
        try:
            return _open_complete(store)
        except MissingObject as error:
            raise UsageError(
                f"there is no lake at {store.uri}. Check the path. An ingest creates a lake"
            ) from error

    @staticmethod
    def create(store: Store) -> CatalogTable:
        """Open the catalog, or create it in a new lake. Several processes may do so concurrently.

        Like `open`, this raises CorruptData if the catalog of an old lake is lost. With a new
        catalog, every input file would be ingested again.
        """
        try:
            return _open_complete(store)
        except MissingObject:
            return CatalogTable.create_empty(store)

    @staticmethod
    def create_empty(store: Store, lake: str = "") -> CatalogTable:
        """Create an empty catalog, or open the existing one.

        `lake` is the identity of the lake. An empty string gives a new identity.
        """
        delta_rs.create_table(store, layout.LOG_TABLE, TABLE_SCHEMA, PARTITION_COLUMNS, lake)
        return CatalogTable(store)

    @staticmethod
    def create_from_rows(
        store: Store, topics: Mapping[str, Sequence[Row]], first_version: int, lake: str
    ) -> int:
        """Create the catalog from the rows of each topic, and return its version.

        The version is at least `first_version`. `lake` is the lake's identity, or "" if it is
        unknown. The lake must not be open in any process.
        """
        table = CatalogTable.create_empty(store, lake)
        made = 0
        for topic, rows in topics.items():
            base, attempt_id = table.snapshot(), layout.new_attempt()
            made = table.commits.make(Change(rows), topic=topic, base=base, attempt_id=attempt_id)
        delta_rs.renumber(DeltaLog(store, layout.LOG_TABLE, CONTRACT), made, first_version)
        return CatalogTable(store).snapshot().version

    def snapshot(
        self, version: int | str | None = None, topics: Collection[str] | None = None
    ) -> Snapshot:
        """Load a version of the catalog.

        Args:
            version: A version number, the name of a tag, or None for the newest version. A number
                is loaded from a tag if the version is not retained. It is also loaded from a tag if
                an erasure replaced logs of the tagged version, and a vacuum deleted the old logs.
            topics: The topics whose rows are read now, by default all. The rows of another topic
                are read when it is first used.

        Raises:
            VersionExpired: The version is not retained, and no tag keeps it.
            UsageError: The version or the tag does not exist.
            CorruptData: A log partition has a hole, or an object is damaged.
        """
        if isinstance(version, str):
            return self.tags.snapshot(self.tags.named(version), topics)
        if version is not None:
            return self._retained_or_tagged(version, topics)
        return self._at_newest(partial(snapshot_files.load, topics=topics, held=self._held))

    def _retained_or_tagged(self, version: int, topics: Collection[str] | None) -> Snapshot:
        try:
            snapshot = self.snapshot_from_log(version, topics)
        except VersionExpired:
            tag = self.tags.keeping(version)
            if tag is None:
                raise
            return self.tags.snapshot(tag, topics)
        try:
            tag = self.tags.keeping(version)
        except CorruptData:
            # The damage is in a newer version, which is not needed to read this version.
            return snapshot
        if tag is None or self._has_erased_logs(snapshot, tag):
            return snapshot
        return self.tags.snapshot(tag, topics)

    def _has_erased_logs(self, snapshot: Snapshot, tag: TagRow) -> bool:
        """Return whether all logs that erasures replaced in a tagged version still exist."""
        # A vacuum keeps all other files of the version because of its tag.
        try:
            for erased in read_object(self.store, tag).erased:
                view = snapshot.find_partition(erased.topic, erased.partition)
                if view is not None:
                    offsets = view.segments.base_offsets
                    index = int(np.searchsorted(offsets, erased.first_offset, "right")) - 1
                    self.store.stat(view.segment(index).key("log"))
        except (MissingObject, VersionExpired):
            return False
        except CorruptData:
            # The object of the tag is damaged, but it is not needed to read the version.
            return True
        return True

    def newest_ends(self, topic: str) -> Snapshot:
        """Load the newest version with only the last segment of each log partition of a topic.

        The last segments are enough to append. Raises what `snapshot` raises.
        """
        return self._at_newest(partial(snapshot_files.load_ends, topic=topic))

    def _at_newest(self, load: _Load) -> Snapshot:
        while True:
            table = self.handle.newest()
            newest = table.version()
            try:
                return self._load(newest, delta_rs.live_files(table, PARTITION_COLUMNS), load)
            except VersionExpired:
                # A merge may have replaced the files, and a vacuum may have deleted them. Then
                # there is a newer version to load.
                if self.handle.newest().version() == newest:
                    raise

    def snapshot_from_log(self, version: int, topics: Collection[str] | None = None) -> Snapshot:
        """Load a version from the Delta log, without tags. Raises what `snapshot` raises."""
        files = delta_rs.live_files(self.handle.at(version), PARTITION_COLUMNS)
        load = partial(snapshot_files.load, topics=topics, held=self._held)
        return self._load(version, files, load)

    def refresh(self, snapshot: Snapshot) -> Snapshot:
        """Return the newest version, which is made from `snapshot` and the commits after it.

        The result has the rows of new topics and of all topics that `snapshot` has read. For a
        snapshot from `newest_ends`, the result has only the last segments, too.
        """
        if is_tagged_version(snapshot.files):
            return self.snapshot(topics=())
        commits = self.log.since(snapshot.version, _REFRESH_COMMITS)
        if not commits and self.log.has(snapshot.version):
            return snapshot
        if snapshot.ends_of is not None:
            return self.newest_ends(snapshot.ends_of)
        if not 0 < len(commits) < _REFRESH_COMMITS or any(commit.definition for commit in commits):
            return self._reload(snapshot)
        try:
            return snapshot_files.advance(self.store, snapshot, commits, self._held)
        except MissingObject:
            # A file that one of the commits added was merged later, and then vacuumed.
            return self._reload(snapshot)

    def _reload(self, snapshot: Snapshot) -> Snapshot:
        """Load the newest version from its data files, with the topics that `snapshot` has read."""
        unread = snapshot.unread()
        if not unread:
            return self.snapshot()
        return self.snapshot(topics={file.topic for file in snapshot.files} - unread)

    def _load(self, version: int, files: Iterable[AddedFile], load: _Load) -> Snapshot:
        with snapshot_files.retained(version):
            return load(self.store, version, snapshot_files.data_files(files))

    def newest_files(self) -> frozenset[DataFile]:
        """Return the data files of the newest version."""
        rows = delta_rs.live_files(self.handle.newest(), PARTITION_COLUMNS)
        return snapshot_files.data_files(rows)


def _tagged_files(store: Store, lake: str, version: int) -> frozenset[DataFile] | None:
    """Return the data files of a tag that keeps a version of the lake, or None. Thread-safe."""
    table = CatalogTable.open(store)
    tag = table.tags.keeping(version) if table.lake == lake else None
    return None if tag is None else read_object(store, tag).files


def _open_complete(store: Store) -> CatalogTable:
    """Open the catalog. Raises CorruptData if it is incomplete, MissingObject for a new lake."""
    try:
        table = CatalogTable(store)
    except MissingObject:
        # A lake without a run has no manifest, so look for an unfinished rebuild first.
        _require_rebuilt(store)
        if not _was_used(store):
            raise
        # Another process may have created the table since the first try.
        try:
            table = CatalogTable(store)
        except MissingObject as error:
            what = "the catalog is missing, but runs were committed to it. "
            remedy = CONTRACT.at(store.uri).remedy
            raise CorruptData(what + remedy, file=layout.LOG_TABLE) from error
    _require_rebuilt(store)
    return table


def _require_rebuilt(store: Store) -> None:
    """Raise CorruptData if a rebuild of the catalog has begun and has not ended."""
    if is_rebuilding(store):
        what = f"the last rebuild of the catalog did not finish. {CONTRACT.at(store.uri).remedy}"
        raise CorruptData(what, file=layout.REBUILDING)


def _was_used(store: Store) -> bool:
    """Return whether a manifest, a marker or an archive exists, which proves an earlier catalog."""
    names = (item.key.rpartition("/")[2] for item in store.list(layout.ATTEMPTS))
    return not {"manifest.json", "success"}.isdisjoint(names) or any(archives(store))
