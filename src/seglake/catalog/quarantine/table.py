"""The quarantine table: commits of its files, and the rejects that count.

An attempt commits its files here before its run. A reject counts only if a run row names its
attempt, so rejects of a failed attempt are never reported.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import pyarrow as pa

from seglake.catalog.delta import delta_rs
from seglake.catalog.delta.actions import Action, AddedFile, Operation, WrittenFile, add, remove
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.delta.table_contract import TableContract
from seglake.catalog.quarantine.files import SCHEMA, attempt_of, read_rejects
from seglake.errors import CommitConflict, MissingObject
from seglake.layout import QUARANTINE_TABLE
from seglake.store import Store

_PARTITION_BY = ["topic"]
_REMEDY = f"undo that, or move the folder {QUARANTINE_TABLE} aside: the next rejects begin another"
CONTRACT = TableContract("the quarantine", SCHEMA, _PARTITION_BY, _REMEDY, guards=False)


class QuarantineTable:
    """The quarantine of the lake in a store, which may not exist yet.

    Other programs may delete its rows. Every method raises CorruptData if they did what its
    contract forbids.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def add_files(self, files: Sequence[WrittenFile], attempt_id: str) -> None:
        """Commit the files of one attempt; creates the table unless it exists.

        Several runs may do so at once. Raises StoreError; calling again is safe, since Delta
        has a path once however often it is added.
        """
        if not files:
            return
        delta_rs.create_table(self._store, QUARANTINE_TABLE, SCHEMA, _PARTITION_BY)
        base = delta_rs.open_table(self._log()).version()
        self._commit(base, list(map(add, files)), "WRITE", {"seglake.attempt": attempt_id})

    def remove_files(self, keys: Collection[str]) -> None:
        """Remove the files with these keys from the table, before they are deleted.

        A key that the table does not name is passed over. Raises StoreError, and CommitConflict if
        another process removes the same files.
        """
        version, files = self._live_files()
        actions = [
            remove(file.path, file.size_bytes, file.partition)
            for file in files
            if f"{QUARANTINE_TABLE}/{file.path}" in keys
        ]
        if actions:
            self._commit(version, actions, "DELETE", {})

    def replace_files(
        self, keys: Collection[str], files: Sequence[WrittenFile], attempt_id: str
    ) -> None:
        """Put files in the place of those with these keys, in one commit of an attempt.

        Raises StoreError, and CommitConflict if another process removed one of the old files.
        """
        version, live = self._live_files()
        old = [file for file in live if f"{QUARANTINE_TABLE}/{file.path}" in keys]
        if len(old) < len(keys):
            raise CommitConflict(f"{QUARANTINE_TABLE} changed: another process removed its files")
        gone = [remove(file.path, file.size_bytes, file.partition) for file in old]
        self._commit(version, [*map(add, files), *gone], "REPLACE", {"seglake.attempt": attempt_id})

    def all_keys(self, topic: str) -> list[str]:
        """The keys of all files of a topic, whoever's rejects they have."""
        return [
            f"{QUARANTINE_TABLE}/{file.path}"
            for file in self._live_files()[1]
            if file.partition["topic"] == topic
        ]

    def keys(self, topic: str, attempts: Collection[str]) -> list[str]:
        """The keys of the files that may have rejects of some attempts at a topic."""
        counting = {None, *attempts}  # None: another writer's file may have rejects of any attempt
        return [key for key in self.all_keys(topic) if attempt_of(key) in counting]

    def read(self, topic: str, attempts: Collection[str]) -> Iterator[pa.Table]:
        """The rejects of some attempts at a topic, in tables of FILE_SCHEMA, one per file."""
        for key in self.keys(topic, attempts):
            counted = read_rejects(self._store, key, attempts)
            if len(counted):
                yield counted

    def _live_files(self) -> tuple[int, list[AddedFile]]:
        """The newest version and its files in the order of paths; -1 and none without a table."""
        try:
            table = delta_rs.open_table(self._log())
        except MissingObject:
            return -1, []
        files = delta_rs.live_files(table, _PARTITION_BY)
        return table.version(), sorted(files, key=lambda file: file.path)

    def _commit(
        self, base: int, actions: Sequence[Action], operation: Operation, info: Mapping[str, str]
    ) -> None:
        log = self._log()
        commits = log.commit(base, actions, operation=operation, info=info)
        delta_rs.checkpoint_if_due(log, [commits[-1].version])

    def _log(self) -> DeltaLog:
        return DeltaLog(self._store, QUARANTINE_TABLE, CONTRACT)
