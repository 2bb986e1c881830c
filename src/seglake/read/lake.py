"""A lake opened for reading: one version of its catalog, and the topics in it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from seglake.catalog.schema import MaintenanceRow, RunRow, TagRow
from seglake.compile.locks import Lock
from seglake.layout import WHOLE_LAKE
from seglake.log.reads import CACHE_BYTES, SharedReads
from seglake.read.listings import SUMS, Commits, Tags, summed
from seglake.read.log import Log
from seglake.read.origin import Origin
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
    """The lake at `root`, in its newest version, an older one that is retained, or that of a tag.

    `root` is a path or a URI of an object store. `storage_options` have the names that `deltalake`
    uses. `cache_bytes` is the most memory for cached zone maps and batches. Raises UsageError if
    there is no lake, or no such tag, and VersionExpired for a version that is no longer retained.
    """
    return Lake(open_store(root, storage_options), version, cache_bytes=cache_bytes)


class Lake(ShowsTable):
    """One version of a lake. Safe for threads. An unpickled lake opens the same version again.

    A pickled lake has no credentials: a worker finds credentials in its environment.
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
        self._lock = Lock()  # of `refresh`, so that the newest snapshot stays

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
        """The storage and the caches that all logs of the lake share."""
        return self._origin.reads

    @property
    def version(self) -> int:
        """The version of the catalog that everything is read from."""
        return self._snapshot.version

    @property
    def identity(self) -> str:
        """The UUID of this lake. It stays the same when the catalog is rebuilt."""
        return self._origin.lake

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return self._snapshot.names()

    def topic(self, name: str) -> Log:
        """The log of a topic in this version; UnknownTopic if there is none."""
        if self._forgotten != self._origin.reads.forgotten:  # logs were deleted, perhaps of it
            with self._lock:
                self._forgotten = self._origin.reads.forgotten
                self._snapshot = self._origin.standing(self._snapshot)
        return Log(self._snapshot, name, self._origin)

    def tags(self) -> Tags:
        """The tags that the lake has now, by name, whichever version is open."""
        return Tags(self._origin.tags())

    def known_tags(self) -> list[TagRow]:
        """The tags in the version that is open, by name, without a look for a newer one.

        Storage is read only if there are other tags than at the last call.
        """
        return self._origin.tags_in(self._snapshot)

    def topic_in(self, tag: TagRow, name: str) -> Log:
        """The log of a topic in the version of a tag as it was seen, whatever it names by now.

        Raises UnknownTopic, CorruptData and, if what the tag had is gone, VersionExpired.
        """
        return Log(self._origin.tagged(tag), name, self._origin)

    def refresh(self) -> Lake:
        """Move on to the newest version, and return this lake. Reads only what changed since.

        A log that was taken from this lake before stays in its version.
        """
        with self._lock:
            self._snapshot = self._origin.refreshed(self._snapshot)
            self._forgotten = self._origin.reads.forgotten
        return self

    def reopen(self) -> Lake:
        """As `refresh`, also if the catalog was rebuilt since the lake was opened.

        Raises VersionExpired if the root holds another lake by now.
        """
        with self._lock:
            self._snapshot = self._origin.reopened()
            self._forgotten = self._origin.reads.forgotten
        return self

    def history(self, topic: str | None = None) -> Commits[RunRow]:
        """The runs of a topic, or of all topics, in the order in which they ended.

        So `[-1]` is the newest; shown as a table, the newest comes first. A run that was undone or
        replaced has a row for each of its states. The method `to_arrow` of the list returns an
        Arrow table.
        """
        names = self._names(topic)
        runs = [run for name in names for run in self._origin.run_history(self._snapshot, name)]
        runs.sort(key=lambda run: (run.finished_at_ms, run.topic, run.run_id))
        return Commits(runs, RunRow)

    def maintenance(self, topic: str | None = None) -> Commits[MaintenanceRow]:
        """The commits of maintenance to a topic, or to all topics, in the order of their ends.

        So `[-1]` is the newest; shown as a table, the newest comes first. Those of tags are of no
        topic: they have `@lake` in its place.
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
    """A lake that was pickled; VersionExpired if the root has another catalog by now."""
    return Lake(open_store(root, storage_options), version, **options)
