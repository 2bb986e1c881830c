"""Share the storage, the caches and the catalog of a lake among the logs that are read from it.

A pickled origin has no credentials. A worker finds credentials in its environment.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from seglake.catalog.published import locate, published_tables
from seglake.catalog.schema import Kind, MaintenanceRow, RunRow, TableRow, TagRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.tags import is_tagged_version
from seglake.catalog.version.snapshot import Snapshot
from seglake.catalog.version.snapshot_files import retained
from seglake.compile.locks import fork_safe_lock
from seglake.credentials import from_environment
from seglake.errors import MissingObject, SeglakeError, UsageError, VersionExpired
from seglake.log.reads import CACHE_BYTES, SharedReads
from seglake.log.segment import LogSegment
from seglake.store import Store, open_store

_Result = TypeVar("_Result")


class Origin:
    """A lake in all its versions. Safe for threads.

    With a `catalog_id`, it reads only that catalog, and raises VersionExpired if another catalog is
    at the root. A lake that was created again at the same root has another catalog, perhaps with
    the same version numbers.
    """

    def __init__(self, store: Store, cache_bytes: int = CACHE_BYTES, catalog_id: str = "") -> None:
        self.store, self._catalog_id = store, catalog_id
        missing = MissingLogs(store)
        self.reads = SharedReads(store, cache_bytes, missing)
        self.deletions = self.reads.deletions
        missing.found_expired = self.deletions.request_check
        self._lock = fork_safe_lock()  # only one thread at a time may use the catalog
        self._opened: CatalogTable | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _in_this_process, (self.store, self.reads.cache_bytes, self.catalog_id)

    @property
    def catalog_id(self) -> str:
        """Return the id of the catalog that is read, or "" if none was opened or required yet."""
        return self._catalog_id if self._opened is None else self._opened.id

    @property
    def _catalog(self) -> CatalogTable:
        if self._opened is None:
            opened = CatalogTable.open(self.store)
            if self._catalog_id not in ("", opened.id):
                what = "has another catalog than when it was pickled. Open the lake again"
                raise VersionExpired(f"{self.store.uri} {what}")
            self._opened = opened
        return self._opened

    def snapshot(self, version: int | str | None) -> Snapshot:
        """Return the lake in a version or at a tag. None returns the newest version.

        The rows of a topic are read on first use. Raises VersionExpired and UsageError.
        """
        with self._lock:
            return self._catalog.snapshot(version, ())

    def standing(self, snapshot: Snapshot) -> Snapshot:
        """Load the version of a snapshot again, after logs were deleted.

        If the catalog no longer retains the version but a tag keeps it, return the version of the
        tag. If it cannot be loaded, return the snapshot itself. Reading from it raises
        VersionExpired.
        """
        with self._lock:
            try:
                if not is_tagged_version(snapshot.files):
                    return self._catalog.snapshot(snapshot.version, ())
                tag = self._catalog.tags.keeping(snapshot.version)
                return snapshot if tag is None else self._catalog.tags.snapshot(tag, ())
            except SeglakeError:
                return snapshot

    def refreshed(self, snapshot: Snapshot) -> Snapshot:
        """Return the newest version, made from `snapshot` and the changes since then.

        Deleted logs are dropped from the caches.
        """
        self.deletions.check()
        with self._lock:
            return self._catalog.refresh(snapshot)

    def reopened(self) -> Snapshot:
        """Return the newest version, even if the catalog was rebuilt since the lake was opened.

        Raises VersionExpired if another lake is at the root now.
        """
        self.deletions.check()
        opened = CatalogTable.open(self.store)
        with self._lock:
            if opened.lake != self._catalog.lake:
                raise VersionExpired(
                    f"another lake replaced the one at {self.store.uri}. Open it again"
                )
            self._opened = opened
            return opened.snapshot(topics=())

    def tags(self) -> list[TagRow]:
        """Return the current tags, by name."""
        with self._lock:
            return self._catalog.tags.live()

    def tags_in(self, snapshot: Snapshot) -> list[TagRow]:
        """Return the tags in a version, sorted by name. The snapshot must not come from a tag."""
        with self._lock:
            return self._catalog.tags.in_snapshot(snapshot)

    def tagged(self, tag: TagRow) -> Snapshot:
        """Return the version that a tag keeps.

        Raises VersionExpired if the tag changed, and CorruptData.
        """
        with self._lock:
            return self._catalog.tags.snapshot(tag, ())

    @property
    def lake(self) -> str:
        """Return the identity of the lake."""
        with self._lock:
            return self._catalog.lake

    def rows(self, snapshot: Snapshot, kind: Kind, topic: str) -> pa.Table:
        """Return all rows of one kind and topic in the version of the snapshot.

        This method and the methods below raise VersionExpired if a vacuum removed the rows.
        """
        return self._read(snapshot, lambda whole: self._catalog.rows.all(whole, kind, topic))

    def runs(self, snapshot: Snapshot, topic: str) -> list[RunRow]:
        """Return the committed runs of a topic."""
        return self._read(snapshot, lambda whole: self._catalog.rows.runs(whole, topic))

    def run_history(self, snapshot: Snapshot, topic: str) -> list[RunRow]:
        """Return all run rows of a topic."""
        return self._read(snapshot, lambda whole: self._catalog.rows.run_history(whole, topic))

    def maintenance(self, snapshot: Snapshot, topic: str) -> list[MaintenanceRow]:
        """Return all maintenance commits of a topic."""
        return self._read(snapshot, lambda whole: self._catalog.rows.maintenance(whole, topic))

    def table_row(self, snapshot: Snapshot, topic: str, table: str | None) -> TableRow:
        """Return the row of a published table of a topic. Raises UsageError if it has none."""
        rows = self._read(snapshot, lambda whole: published_tables(self._catalog, whole, topic))
        path = locate(self.store, topic, table)
        live = {row.path: row for row in rows}
        if path not in live:
            lists = f"Use {' or '.join(live)}" if live else "`seglake publish` makes a table"
            raise UsageError(f"version {snapshot.version} has no table {path} of {topic}. {lists}")
        return live[path]

    def _read(self, snapshot: Snapshot, read: Callable[[Snapshot], _Result]) -> _Result:
        """Read from the snapshot. First load its list of data files, because pickling drops it.

        If a data file is missing and the newest version does not need it, a vacuum removed it. Then
        the rows of a tag that keeps the version are read.
        """
        whole = snapshot if snapshot.files else self.snapshot(snapshot.version)
        try:
            return read(whole)
        except MissingObject as error:
            with self._lock:
                if whole.files <= self._catalog.newest_files():
                    raise
                tag = self._catalog.tags.keeping(whole.version)
                held = None if tag is None else self._catalog.tags.snapshot(tag, ())
            if held is not None and held.files != whole.files:
                with retained(whole.version):
                    return read(held)
            what = f"a vacuum deleted files of version {whole.version}: {error}. Open the newest"
            raise VersionExpired(what) from error


class MissingLogs:
    """Decides whether a log is missing because a vacuum deleted it with its versions.

    `found_expired` is called before a VersionExpired is returned. Safe for threads. A repeated call
    costs as much as a refresh: only changes are read.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.found_expired: Callable[[], None] = lambda: None
        self._lock = fork_safe_lock()
        self._last: tuple[CatalogTable, Snapshot] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return MissingLogs, (self._store,)

    def __call__(self, segment: LogSegment) -> VersionExpired | None:
        """Return VersionExpired if the newest version does not name the log, else None.

        None is also returned if the newest version cannot be read.
        """
        try:
            newest = self._newest()
            if _names(newest, segment):
                return None
        except SeglakeError:
            return None
        self.found_expired()
        return VersionExpired(
            f"{segment.log_key} was deleted, because the open version is no longer retained. "
            f"Open version {newest.version}, or call `refresh()` on the lake"
        )

    def _newest(self) -> Snapshot:
        with self._lock:
            try:
                table, newest = self._last or self._opened()
                newest = table.refresh(newest)
            except VersionExpired:  # of a catalog that was rebuilt
                table, newest = self._opened()
            self._last = table, newest
            return newest

    def _opened(self) -> tuple[CatalogTable, Snapshot]:
        table = CatalogTable.open(self._store)
        return table, table.snapshot(topics=())


def _names(snapshot: Snapshot, segment: LogSegment) -> bool:
    view = snapshot.find_partition(segment.topic, segment.partition)
    if view is None:
        return False
    same = np.flatnonzero(view.segments.base_offsets == segment.base_offset).tolist()
    return any(view.segment(index).key("log") == segment.log_key for index in same)


_Items = tuple[tuple[str, str], ...]


def _in_this_process(store: Store, cache_bytes: int, catalog_id: str) -> Origin:
    options = tuple(sorted(store.public_options.items()))
    environment = tuple(sorted(from_environment().items())) if store.remote else ()
    return _origin_at(store.uri, options, environment, cache_bytes, catalog_id)


@lru_cache(8)
def _origin_at(
    root: str, options: _Items, _environment: _Items, cache_bytes: int, catalog_id: str
) -> Origin:
    """Return the shared origin of this process; its store reads the environment once."""
    return Origin(open_store(root, dict(options)), cache_bytes, catalog_id)
