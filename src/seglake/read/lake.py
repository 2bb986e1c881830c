"""A lake opened for reading: one version of its catalog, and the topics in it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from seglake.catalog.rows import RunRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.version.snapshot import Snapshot
from seglake.locks import Lock
from seglake.read.log import Log
from seglake.read.lookup.partition import CACHE_BYTES, SharedReads
from seglake.store import Store, open_store


def open(  # noqa: A001  # users write seglake.open
    root: str,
    version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    cache_bytes: int = CACHE_BYTES,
) -> Lake:
    """The lake at `root`, as of its newest version or an older one that is still retained.

    `root` is a path or a URI of an object store; `storage_options` are named as for `deltalake`.
    `cache_bytes` bounds the index blocks and decoded batches that lookups keep. Raises UsageError
    where there is no lake, VersionExpired for a version that is gone.
    """
    return Lake(open_store(root, storage_options), version, cache_bytes=cache_bytes)


class Lake:
    """One version of a lake. Safe for threads; unpickled, it opens the same version again.

    A pickled lake carries no credentials: a worker finds its own in its environment.
    """

    def __init__(
        self,
        store: Store,
        version: int | None = None,
        *,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._store, self._cache_bytes = store, cache_bytes
        self._catalog = CatalogTable.open(store)
        self._snapshot = self._catalog.snapshot(version)
        self._reader = SharedReads(store, cache_bytes)
        self._lock = Lock()  # a handle of the catalog is for one thread at a time

    def __repr__(self) -> str:
        return f"seglake.open({self._store.uri!r}, version={self.version})"

    def __reduce__(self) -> tuple[Any, ...]:
        known: Any = self._store.__reduce__()  # what of a store another process may know
        root, *options = known[1]
        return partial(open, cache_bytes=self._cache_bytes), (root, self.version, *options)

    @property
    def version(self) -> int:
        """The version of the catalog that everything is read from."""
        return self._snapshot.version

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return [row.topic for row in self._snapshot.topics()]

    def topic(self, name: str) -> Log:
        """The log of a topic in this version; UnknownTopic if there is none."""
        return self._log(name, self._snapshot)

    def _log(self, topic: str, snapshot: Snapshot) -> Log:
        rows = partial(self._catalog.rows, snapshot, topic=topic)
        return Log(snapshot, topic, self._reader, rows, partial(self._log_at, topic))

    def _log_at(self, topic: str, version: int) -> Log:
        with self._lock:
            snapshot = self._catalog.snapshot(version)
        return self._log(topic, snapshot)

    def refresh(self) -> Lake:
        """Move on to the newest version, and return this lake; costs what changed since.

        Logs taken before keep the version that they were taken from.
        """
        with self._lock:
            self._snapshot = self._catalog.refresh(self._snapshot)
        return self

    def history(self, topic: str | None = None) -> list[RunRow]:
        """The committed runs of a topic, or of all topics, in the order in which they ended."""
        snapshot = self._snapshot
        names = self.topics() if topic is None else [snapshot.topic(topic).topic]
        runs = [run for name in names for run in self._catalog.runs(snapshot, name)]
        return sorted(runs, key=lambda run: (run.finished_at_ms, run.topic, run.run_id))
