"""Open a lake for reading: one version of its catalog, and the topics in it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from seglake.catalog.schema import MaintenanceRow, RunRow, TagRow
from seglake.compile.locks import fork_safe_lock
from seglake.layout import WHOLE_LAKE
from seglake.log.reads import CACHE_BYTES, SharedReads
from seglake.read.listings import SUMS, Commits, Tags, summed
from seglake.read.log import Log
from seglake.read.origin import Origin
from seglake.read.tables import TableStatus, status_of
from seglake.store import Store, open_store
from seglake.terminal.tables import Column, ShowsTable, Table, number

_SHOWN = 20  # topics in a table


def open(  # noqa: A001  # users write seglake.open
    root: str,
    version: int | str | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    cache_bytes: int = CACHE_BYTES,
) -> Lake:
    """Open the lake at `root`, by default in its newest version.

    Args:
        root: A path, or a URI of an object store.
        version: A version number that is retained or that a tag keeps, or the name of a tag. None
            opens the newest version.
        storage_options: Options of the object store, with the names that `deltalake` uses.
        cache_bytes: Limit of the memory for cached zone maps and record batches.

    Raises:
        UsageError: There is no lake at `root`, or no such version or tag.
        VersionExpired: The version is no longer retained, and no tag keeps it.

    Example:
        >>> lake = seglake.open("lake")
        >>> lake.topics()
        ['web']
    """
    return Lake(open_store(root, storage_options), version, cache_bytes=cache_bytes)


class Lake(ShowsTable):
    """One version of a lake. Safe for threads. An unpickled lake opens the same version again.

    A pickled lake has no credentials. A worker finds credentials in its environment. Unpickling
    raises VersionExpired if another catalog is at the root now.
    """

    def __init__(
        self,
        store: Store,
        version: int | str | None = None,
        *,
        cache_bytes: int = CACHE_BYTES,
        catalog_id: str = "",
    ) -> None:
        self._store = store
        self._origin = Origin(store, cache_bytes, catalog_id)
        self._forgotten = self._origin.reads.forgotten
        self._snapshot = self._origin.snapshot(version)
        self._lock = fork_safe_lock()  # for `refresh`, so that the newest snapshot wins

    def _table(self) -> Table:
        names = self.topics()
        views = {name: self._snapshot.partitions(name) for name in names[:_SHOWN]}
        rows = [(name, len(some), *summed(some)) for name, some in views.items()]
        title = f"seglake.open({self._store.uri!r}, version={self.version})"
        columns = [Column("topic", "topic"), number("partitions", "partitions"), *SUMS]
        return Table(title, columns, rows, len(names))

    def __reduce__(self) -> tuple[Any, ...]:
        public: Any = self._store.__reduce__()  # leaves credentials out
        origin = self._origin
        open_again = partial(
            _opened_again, cache_bytes=origin.reads.cache_bytes, catalog_id=origin.catalog_id
        )
        return open_again, (self.version, *public[1])

    @property
    def reads(self) -> SharedReads:
        """Return the storage and the caches that all logs of the lake share.

        Example:
            >>> lake.reads.cache_bytes
            268435456
        """
        return self._origin.reads

    @property
    def version(self) -> int:
        """Return the version of the catalog that everything is read from.

        Example:
            >>> lake.version
            2
        """
        return self._snapshot.version

    @property
    def identity(self) -> str:
        """Return the UUID of this lake. It does not change when the catalog is rebuilt.

        Example:
            >>> len(lake.identity)
            36
        """
        return self._origin.lake

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted.

        Example:
            >>> lake.topics()
            ['web']
        """
        return self._snapshot.names()

    def topic(self, name: str) -> Log:
        """Return the log of a topic in this version.

        Raises:
            UnknownTopic: This version has no such topic.

        Example:
            >>> lake.topic("web").end_offsets()
            {0: 1029, 1: 171}
        """
        if self._forgotten != self._origin.reads.forgotten:  # logs were deleted since
            with self._lock:
                self._forgotten = self._origin.reads.forgotten
                self._snapshot = self._origin.standing(self._snapshot)
        return Log(self._snapshot, name, self._origin)

    def table(self, topic: str, table: str | None = None) -> TableStatus:
        """Return the state of a published table of a topic, compared with the open version.

        Args:
            topic: The topic.
            table: The path or URI of the table, if it is not the default one.

        Raises:
            UnknownTopic: This version has no such topic.
            UsageError: The open version has no such table.
            CorruptData: The table cannot be read.
            StoreError: Storage failed.

        Example:
            >>> published = seglake.publish("lake", "web")
            >>> seglake.open("lake").table("web").segments_behind
            0
        """
        row = self._origin.table_row(self._snapshot, self._snapshot.topic(topic).topic, table)
        return status_of(self.reads, self.identity, self._snapshot, row)

    def tags(self) -> Tags:
        """Return the current tags of the lake, sorted by name. The open version does not matter.

        Example:
            >>> tagged = seglake.tag("lake", "q2")
            >>> [tag.name for tag in lake.tags()]
            ['q2']
        """
        return Tags(self._origin.tags())

    def known_tags(self) -> list[TagRow]:
        """Return the tags in the open version, sorted by name, without a check for a newer version.

        Storage is read only if the tags changed since the last call.

        Example:
            >>> lake.known_tags()
            []
        """
        return self._origin.tags_in(self._snapshot)

    def topic_in(self, tag: TagRow, name: str) -> Log:
        """Return the log of a topic in the version that `tag` named when its row was read.

        Raises:
            UnknownTopic: The version has no such topic.
            VersionExpired: The tag changed, and its version is no longer retained.
            CorruptData: A file of the tag is damaged.

        Example:
            >>> tagged = seglake.tag("lake", "q2")
            >>> (tag,) = seglake.open("lake").known_tags()
            >>> lake.topic_in(tag, "web").version
            2
        """
        return Log(self._origin.tagged(tag), name, self._origin)

    def refresh(self) -> Lake:
        """Move on to the newest version, and return this lake. Only the changes are read.

        A log that was obtained from this lake earlier keeps its version.

        Example:
            >>> lake.refresh().version
            2
        """
        with self._lock:
            self._snapshot = self._origin.refreshed(self._snapshot)
            self._forgotten = self._origin.reads.forgotten
        return self

    def reopen(self) -> Lake:
        """Move on to the newest version like `refresh`, even if the catalog was rebuilt since.

        Raises:
            VersionExpired: Another lake is at the root now.

        Example:
            >>> lake.reopen().version
            2
        """
        with self._lock:
            self._snapshot = self._origin.reopened()
            self._forgotten = self._origin.reads.forgotten
        return self

    def history(self, topic: str | None = None) -> Commits[RunRow]:
        """Return the runs of a topic, or of all topics, in the order in which they ended.

        So `[-1]` is the newest run, but the displayed table begins with the newest run. A run that
        was undone or replaced has a row for each of its states. `to_arrow` of the list returns an
        Arrow table.

        Raises:
            UnknownTopic: This version has no such topic.
            VersionExpired: A vacuum removed the rows of this version.

        Example:
            >>> [run.run_id for run in lake.history("web")]
            ['d1', 'd2']
        """
        names = self._names(topic)
        runs = [run for name in names for run in self._origin.run_history(self._snapshot, name)]
        runs.sort(key=lambda run: (run.finished_at_ms, run.topic, run.run_id))
        return Commits(runs, RunRow)

    def maintenance(self, topic: str | None = None) -> Commits[MaintenanceRow]:
        """Return the maintenance commits of a topic, or of all topics, in order of their ends.

        So `[-1]` is the newest commit, but the displayed table begins with the newest commit.
        Commits that change tags belong to no topic: their topic is `@lake`.

        Raises:
            UnknownTopic: This version has no such topic.
            VersionExpired: A vacuum removed the rows of this version.

        Example:
            >>> undone = seglake.undo("lake", "web", "d2")
            >>> [row.operation for row in lake.refresh().maintenance("web")]
            ['undo']
        """
        names = [*self._names(topic), *([WHOLE_LAKE] if topic is None else [])]
        rows = [row for name in names for row in self._origin.maintenance(self._snapshot, name)]
        rows.sort(key=lambda row: (row.finished_at_ms, row.topic, row.attempt_id))
        return Commits(rows, MaintenanceRow)

    def _names(self, topic: str | None) -> list[str]:
        return self.topics() if topic is None else [self._snapshot.topic(topic).topic]


def _opened_again(
    version: int, root: str, storage_options: Mapping[str, str] | None = None, **options: Any
) -> Lake:
    """Open a pickled lake. Raise VersionExpired if another catalog is at the root now."""
    return Lake(open_store(root, storage_options), version, **options)
