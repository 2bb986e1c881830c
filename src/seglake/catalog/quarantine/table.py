"""The quarantine table: what the driver commits, and what counts.

The parts of an attempt are committed before its run. A row counts only if a run row names its
attempt, so what a failed attempt left here is never reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from seglake import layout
from seglake.catalog.delta import commit_log as deltalog
from seglake.catalog.delta import delta_rs as delta
from seglake.catalog.delta.commit_log import Action, DeltaLog
from seglake.catalog.delta.data_files import read_parquet
from seglake.catalog.quarantine.parts import FILE_SCHEMA, SCHEMA, Part, attempt_of
from seglake.catalog.table import CatalogTable
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import MissingObject
from seglake.store import open_store

_PARTITION_BY = ["topic"]


class QuarantineTable:
    """The quarantine of the lake at a root."""

    def __init__(self, root: str, storage_options: Mapping[str, str] | None = None) -> None:
        self._store = open_store(root, storage_options)
        self._uri = f"{self._store.uri}/{layout.QUARANTINE_TABLE}"
        self._options = dict(storage_options or {})

    def add_parts(self, parts: Sequence[Part], attempt_id: str) -> None:
        """Commit the files of one attempt; creates the table if there is none.

        Runs that do so at once all succeed. Raises StoreError; calling again is safe, since Delta
        holds a path once however often it is added.
        """
        if not parts:
            return
        delta.open_or_create(self._uri, SCHEMA, _PARTITION_BY, self._options)
        base = delta.open_table(self._uri, self._options).version()
        actions = [
            deltalog.add(part.path, part.size_bytes, {"topic": part.topic}, part.stats)
            for part in parts
        ]
        self._commit(base, actions, {"seglake.attempt": attempt_id})

    def remove_parts(self, keys: Collection[str]) -> None:
        """Take files out of the table, as far as they are in it; they can be deleted then.

        Raises StoreError, and CommitConflict if another process does the same.
        """
        try:
            table = delta.open_table(self._uri, self._options)
        except MissingObject:
            return
        folder = f"{layout.QUARANTINE_TABLE}/"
        actions = [
            deltalog.remove(path, size, {"topic": topic}, changes=True)
            for path, size, topic in _files(table)
            if folder + path in keys
        ]
        if actions:
            self._commit(table.version(), actions, {})

    def _commit(self, base: int, actions: Sequence[Action], info: Mapping[str, str]) -> None:
        log = DeltaLog(self._store, layout.QUARANTINE_TABLE)
        entries = log.commit(base, actions, info=info)
        delta.checkpoint_if_due(log, self._options, [entries[-1].version])

    def read(self, catalog: CatalogTable, snapshot: Snapshot, topic: str) -> Iterator[pa.Table]:
        """The rows of every committed run of a topic, in tables of FILE_SCHEMA, one per file."""
        attempts = catalog.table(snapshot, "run", topic)["attempt_id"].combine_chunks()
        counting = {None, *attempts.to_pylist()}  # None: another writer's file, which may have any
        try:
            files = _files(delta.open_table(self._uri, self._options))
        except MissingObject:
            return
        for path, _, of_topic in files:
            if of_topic != topic or attempt_of(path) not in counting:
                continue
            rows = read_parquet(self._store, f"{layout.QUARANTINE_TABLE}/{path}", FILE_SCHEMA)
            counted = rows.filter(pc.is_in(rows["attempt_id"], attempts))
            if len(counted):
                yield counted


def _files(table: DeltaTable) -> list[tuple[str, int, str]]:
    """The path, size and topic of every file, in the order of paths."""
    found = pa.table(table.get_add_actions(flatten=True))
    columns = (found[name].to_pylist() for name in ("path", "size_bytes", "partition.topic"))
    return sorted(zip(*columns, strict=True))
