"""The quarantine table: commits of its files, and the rejects that count.

An attempt commits its files here before its run. A reject counts only if a run row names its
attempt, so rejects of a failed attempt are never reported.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import pyarrow as pa

from seglake.catalog import fate
from seglake.catalog.delta import delta_rs
from seglake.catalog.delta.actions import Action, AddedFile, Operation, WrittenFile, add, remove
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.delta.table_contract import TableContract
from seglake.catalog.quarantine.files import LATER_COLUMNS, SCHEMA, attempt_of, read_rejects
from seglake.errors import AttemptAbandoned, CommitConflict, MissingObject
from seglake.layout import QUARANTINE_TABLE
from seglake.store import Store

_PARTITION_BY = ["topic"]
_TRIES = 100  # at a commit, while others fence theirs
_REMEDY = f"undo that, or move the folder {QUARANTINE_TABLE} aside: the next rejects begin another"
CONTRACT = TableContract(
    "the quarantine", SCHEMA, _PARTITION_BY, _REMEDY, LATER_COLUMNS, guards=False
)


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
        has a path once however often it is added. Raises AttemptAbandoned if the attempt was given
        up: then its files are deleted, which an erasure may not have seen. Raises CommitConflict.
        """
        if not files:
            return
        delta_rs.create_table(self._store, QUARANTINE_TABLE, SCHEMA, _PARTITION_BY)
        actions, info = list(map(add, files)), {"seglake.attempt": attempt_id}
        for tries_left in reversed(range(_TRIES)):
            base = delta_rs.open_table(self._log()).version()
            try:
                fate.require_hope(self._store, attempt_id)  # a fence that comes after this is seen
                self._commit(base, actions, "WRITE", info)
            except AttemptAbandoned:
                if tries_left == _TRIES - 1:  # else it had hope when they were written
                    self._store.delete([f"{QUARANTINE_TABLE}/{file.path}" for file in files])
                raise
            except CommitConflict:
                if not tries_left:
                    raise
            else:
                return

    def remove_files(self, keys: Collection[str]) -> None:
        """Remove the files with these keys from the table, before they are deleted.

        From now on no commit under way can name one of them: its writer looks first whether the
        attempt was given up. Raises StoreError and CommitConflict.
        """
        if keys and self._live_files()[0] >= 0:
            self._take_out(keys)

    def unnamed_keys(self, topic: str, attempt_id: str) -> list[str]:
        """The keys of an attempt's files that the table does not name. Raises StoreError."""
        named = {*self.all_keys(topic)}
        listed = self._store.list(f"{QUARANTINE_TABLE}/topic={topic}")
        return [item.key for item in listed
                if attempt_of(item.key) == attempt_id and item.key not in named]  # fmt: skip

    def remove_lost_files(self, committed: Collection[str]) -> None:
        """Remove the files that are not there, of attempts that are not `committed`.

        Older versions could delete a file of an attempt that went on to name it. Its rejects never
        counted, but nobody could read the table. A file is there before it is named, so the names
        are read first. Raises StoreError and CommitConflict.
        """
        named = {f"{QUARANTINE_TABLE}/{file.path}" for file in self._live_files()[1]}
        there = {item.key for item in self._store.list(QUARANTINE_TABLE)}
        lost = {key for key in named - there if attempt_of(key) not in {None, *committed}}
        if lost:
            self._take_out(lost)

    def _take_out(self, keys: Collection[str]) -> None:
        """Remove files from the table, in a fence. Another one, if a commit came just before it."""
        made = [self._log().fence(lambda: self._removal(keys))]
        if self._removal(keys)[1]:  # the fence only stops commits that come after it
            made.append(self._log().fence(lambda: self._removal(keys)))
        delta_rs.checkpoint_if_due(self._log(), made)

    def _removal(self, keys: Collection[str]) -> tuple[int, list[Action]]:
        """The newest version, and the actions that remove files from it, by their keys."""
        version, files = self._live_files()
        gone = [file for file in files if f"{QUARANTINE_TABLE}/{file.path}" in keys]
        return version, [remove(file.path, file.size_bytes, file.partition) for file in gone]

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
