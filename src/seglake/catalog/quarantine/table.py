"""Commit files to the quarantine table, and read the rejects that count.

An attempt commits its files of rejects before its run. A reject counts only if a run row names its
attempt, so rejects of a failed attempt are never reported. Then the attempt merges small files of
earlier attempts. It is announced during all of this, so an erasure waits for the copies of rejects
that the attempt may make.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, compress

import pyarrow as pa
import pyarrow.compute as pc

from seglake.catalog.attempts import is_abandoned, require_not_abandoned
from seglake.catalog.delta import delta_rs, file_merges
from seglake.catalog.delta.actions import (
    Action,
    AddedFile,
    Operation,
    WrittenFile,
    add_action,
    remove_action,
)
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.delta.data_files import read_at_once
from seglake.catalog.delta.table_contract import TableContract
from seglake.catalog.quarantine.files import (
    SCHEMA,
    RejectsFile,
    attempts_in,
    is_merged,
    only_attempt,
    read_for_merge,
    read_rejects,
    write_merged,
    writing_attempt,
)
from seglake.errors import (
    AttemptAbandoned,
    CommitConflict,
    CorruptData,
    MissingObject,
    SeglakeError,
    warn_on,
)
from seglake.layout import QUARANTINE_TABLE, attempt_objects, claim_key, success_key
from seglake.store import Store

_log = logging.getLogger(__name__)

_PARTITION_BY = ["topic"]
_TRIES = 100  # tries at a commit that loses to fences
_IN_VAIN = (CommitConflict, AttemptAbandoned, CorruptData, MissingObject)  # nothing was committed
_REMEDY = (
    f"Undo that, or move the folder {QUARANTINE_TABLE} away. The next run with rejects "
    f"creates a new one"
)
CONTRACT = TableContract("the quarantine", SCHEMA, _PARTITION_BY, _REMEDY, guards=False)


class QuarantineTable:
    """The quarantine of the lake in a store. The table may not exist yet.

    Other programs may delete its rows. Every method raises CorruptData if another program made a
    change that the contract forbids.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def add_files(self, files: Sequence[WrittenFile], attempt_id: str) -> None:
        """Commit the files of one attempt at a topic, and merge small files of the topic.

        The first call creates the table. Several runs may call this concurrently. The call may be
        repeated after an error, because a path that is added twice is in a Delta table once.

        Raises:
            AttemptAbandoned: The attempt was abandoned. Its files are deleted, because the erasure
                that abandoned it may not have found them.
            CommitConflict: The commit lost to fences 100 times.
            StoreError: Storage failed.
        """
        if not files:
            return
        delta_rs.create_table(self._store, QUARANTINE_TABLE, SCHEMA, _PARTITION_BY)
        actions = list(map(add_action, files))
        for tries_left in reversed(range(_TRIES)):
            base = delta_rs.open_table(self._delta_log()).version()
            try:
                # An erasure abandons the attempt first, and then commits a fence. So this check
                # finds that it is abandoned, or the commit loses to the fence.
                require_not_abandoned(self._store, attempt_id)
                self._commit(base, actions, "WRITE", attempt_id)
            except AttemptAbandoned:
                # After a lost try, the attempt had not been abandoned when the files were written.
                if tries_left == _TRIES - 1:
                    self._store.delete([f"{QUARANTINE_TABLE}/{file.path}" for file in files])
                raise
            except CommitConflict:
                if not tries_left:
                    raise
            else:
                break
        self._merge_small_files(files[0].partition["topic"], attempt_id)

    def _merge_small_files(self, topic: str, attempt_id: str) -> None:
        """Merge small files of a topic. Log failures. Raises only AttemptAbandoned."""
        try:
            base, files = self._files_of(topic)
            chosen = files_to_merge(files, partial(is_committed, self._store))
            if chosen:
                merged = merge_files(self._store, topic, attempt_id, list(map(_key, chosen)))
                with self._deleted_on_failure([merged]):
                    require_not_abandoned(self._store, attempt_id)
                    self._replace(base, chosen, [merged], attempt_id, changes=False)
        except AttemptAbandoned:
            raise
        except CommitConflict as error:
            _log.debug("another commit is merging the files of the quarantine: %s", error)
        except SeglakeError as error:
            problem = "cannot merge the files of the quarantine. A later run retries it"
            _log.warning("%s: %s", problem, error)

    @contextmanager
    def _deleted_on_failure(self, files: Sequence[WrittenFile]) -> Iterator[None]:
        """Delete `files`, which have copies of rejects, if the block fails to commit them."""
        try:
            yield
        except _IN_VAIN:
            # An erasure that must delete the copies may have ended already. Keep files that the
            # table names.
            problem = "cannot delete copies of rejects; `seglake vacuum` deletes them later"
            with warn_on(SeglakeError, problem, _log):
                named = {*map(_key, self._live_files()[1])}
                self._store.delete([key for key in map(_key, files) if key not in named])
            raise

    def remove_files(self, keys: Collection[str], others: Collection[str] = ()) -> set[str]:
        """Remove the files with these keys from the table, so that they can be deleted.

        Afterwards, a commit in progress that names one of the files loses to a fence. Its writer
        checks whether the attempt was abandoned before it retries. This also applies to the
        files with keys in `others` that the table does not name.

        Returns:
            The keys in `others` that the table names. These files must be kept.

        Raises:
            CommitConflict: Concurrent commits won all 100 tries.
            StoreError: Storage failed.
        """
        if not (keys or others) or self._live_files()[0] < 0:
            return set()
        log = self._delta_log()
        made = [log.fence(lambda: self._removal(keys))]
        # A commit just before the fence may have named some of the files.
        if self._removal(keys)[1]:
            made.append(log.fence(lambda: self._removal(keys)))
        delta_rs.checkpoint_if_due(log, made)
        return {*others}.intersection(map(_key, self._live_files()[1]))

    def unreferenced_keys(self, topic: str, attempt_id: str) -> list[str]:
        """Return the keys of files that an attempt wrote and that the table does not name.

        Raises StoreError.
        """
        named = {*self.all_keys(topic)}
        listed = self._store.list(f"{QUARANTINE_TABLE}/topic={topic}")
        return [item.key for item in listed
                if writing_attempt(item.key) == attempt_id and item.key not in named]  # fmt: skip

    def retained_keys(self, since_ms: float) -> set[str] | None:
        """Return the keys of the files that the table has named since a time (ms).

        The time is by the clock of storage. Return None if the table does not exist. Raises
        StoreError.
        """
        version, files = self._live_files()
        if version < 0:
            return None
        commits = (commit for _, commit in self._delta_log().retained(since_ms))
        removed = chain.from_iterable(commit.removed for commit in commits)
        return {f"{QUARANTINE_TABLE}/{path}" for path in chain(removed, (f.path for f in files))}

    def _removal(self, keys: Collection[str]) -> tuple[int, list[Action]]:
        """Return the newest version, and the actions that remove the files with these keys."""
        version, files = self._live_files()
        gone = [file for file in files if _key(file) in keys]
        return version, [remove_action(file.path, file.size_bytes, file.partition) for file in gone]

    def replace_files(
        self, base: int, keys: Collection[str], files: Sequence[WrittenFile], attempt_id: str
    ) -> None:
        """Replace the files with these keys by other files, in one commit of an attempt.

        Args:
            base: A version that the table had before the new files were written. The commit loses
                to any fence after this version.
            keys: The keys of the old files.
            files: The new files. They are deleted if the commit certainly failed.
            attempt_id: The attempt that commits.

        Raises:
            CommitConflict: Another process removed one of the old files, or committed a fence.
            StoreError: Storage failed.
        """
        with self._deleted_on_failure(files):
            old = [file for file in self._live_files()[1] if _key(file) in keys]
            if len(old) < len(keys):
                raise CommitConflict(f"files of {QUARANTINE_TABLE} were removed. Run again")
            self._replace(base, old, files, attempt_id)

    def _replace(
        self,
        base: int,
        old: Sequence[AddedFile],
        new: Sequence[WrittenFile],
        attempt_id: str,
        *,
        changes: bool = True,
    ) -> None:
        gone = [remove_action(f.path, f.size_bytes, f.partition, changes=changes) for f in old]
        come = [add_action(file, changes=changes) for file in new]
        operation: Operation = "REPLACE" if changes else "OPTIMIZE"
        self._commit(base, [*come, *gone], operation, attempt_id)

    def merged_with(self, attempts: Collection[str]) -> dict[str, list[str]]:
        """Return the keys of the merged files that have rejects of `attempts`, by topic.

        A damaged or deleted file is skipped. Raises StoreError.
        """

        def has_some(file: AddedFile) -> bool:
            problem = "rejects of undone or replaced runs may remain in the quarantine"
            with warn_on((CorruptData, MissingObject), problem, _log):
                return self._has_some(file, attempts)
            return False

        files = self._live_files()[1] if attempts else []
        merged = [file for file in files if is_merged(file.path)]
        found: dict[str, list[str]] = {}
        for file in compress(merged, read_at_once(self._store, has_some, merged)):
            found.setdefault(file.partition["topic"], []).append(_key(file))
        return found

    def drop_rejects(self, topic: str, attempts: Collection[str], attempt_id: str) -> list[str]:
        """Rewrite the merged files of a topic without the rejects of `attempts`.

        `attempt_id` is the attempt that commits. Return the keys of the replaced files. Raises
        AttemptAbandoned, CommitConflict, CorruptData and StoreError.
        """
        base, rest = self.version(), list[WrittenFile]()
        keys = self.merged_with(attempts).get(topic, [])
        with self._deleted_on_failure(rest):
            for key in keys:
                rows = read_for_merge(self._store, key)
                goes = pc.is_in(rows["attempt_id"], pa.array(sorted(attempts), pa.string()))
                if len(stay := rows.filter(pc.invert(goes))):
                    rest.append(write_merged(self._store, topic, attempt_id, stay))
            require_not_abandoned(self._store, attempt_id)
            if keys:
                self.replace_files(base, keys, rest, attempt_id)
        return keys

    def version(self) -> int:
        """Return the newest version, or -1 if the table does not exist."""
        return self._live_files()[0]

    def all_keys(self, topic: str) -> list[str]:
        """Return the keys of all files of a topic, including files of rejects that do not count."""
        return list(map(_key, self._files_of(topic)[1]))

    def keys(self, topic: str, attempts: Collection[str]) -> list[str]:
        """Return the keys of the files of a topic that may have rejects of `attempts`."""
        # None stands for merged files, and for files of other programs.
        counting = {None, *attempts}
        files = [file for file in self._files_of(topic)[1] if only_attempt(file.path) in counting]
        merged = [file for file in files if is_merged(file.path)]
        has_some = read_at_once(self._store, partial(self._has_some, attempts=attempts), merged)
        some = {*map(_key, compress(merged, has_some))}
        return [key for key in map(_key, files) if key in some or not is_merged(key)]

    def _has_some(self, merged: AddedFile, attempts: Collection[str]) -> bool:
        """Return whether a merged file has rejects of one of `attempts`."""
        return not attempts_in(self._store, _key(merged), merged.size_bytes).isdisjoint(attempts)

    def read(self, topic: str, attempts: Collection[str]) -> Iterator[pa.Table]:
        """Yield the rejects of `attempts` at a topic, as one table of FILE_SCHEMA per file."""
        for key in self.keys(topic, attempts):
            counted = read_rejects(self._store, key, attempts)
            if len(counted):
                yield counted

    def _files_of(self, topic: str) -> tuple[int, list[AddedFile]]:
        """Return the newest version, and the files of a topic in it."""
        version, files = self._live_files()
        return version, [file for file in files if file.partition["topic"] == topic]

    def _live_files(self) -> tuple[int, list[AddedFile]]:
        """Return the newest version and its files, sorted by path, or (-1, []) without a table."""
        try:
            table = delta_rs.open_table(self._delta_log())
        except MissingObject:
            return -1, []
        files = delta_rs.live_files(table, _PARTITION_BY)
        return table.version(), sorted(files, key=lambda file: file.path)

    def _commit(
        self, base: int, actions: Sequence[Action], operation: Operation, attempt_id: str
    ) -> None:
        log = self._delta_log()
        info = {"seglake.attempt": attempt_id}
        commits = log.commit(base, actions, operation=operation, info=info)
        delta_rs.checkpoint_if_due(log, [commits[-1].version])

    def _delta_log(self) -> DeltaLog:
        return DeltaLog(self._store, QUARANTINE_TABLE, CONTRACT)


def _key(file: AddedFile | WrittenFile) -> str:
    return f"{QUARANTINE_TABLE}/{file.path}"


# ---------------- merges
# Each run with rejects writes a small file, and listing rejects may have to open all of them. So
# small files are merged, as in the catalog. Only rejects of committed runs are merged, because a
# vacuum removes other rejects by the names of their files. A file of another program may have
# rejects of any attempt, so it is not merged.

FAN_IN = file_merges.FAN_IN
ENOUGH_BYTES = 4 * 2**20  # a file of this size is final; each run writes few larger files
UNIT_BYTES = 256  # this many bytes count like one row of a catalog file


def files_to_merge(
    files: Iterable[AddedFile], is_committed: Callable[[str], bool]
) -> list[AddedFile]:
    """Return the files to merge now. `files` are the files of one topic.

    Sizes are classes, each STEP times the one below; see `file_merges`. When FAN_IN small files of
    committed attempts exist, return all files up to the largest class that has two files.
    `is_committed` is not called before there are FAN_IN small files.
    """
    small = [file for file in files if file.size_bytes < ENOUGH_BYTES]
    merged = [file for file in small if is_merged(file.path)]
    owners = {file.path: owner for file in small if (owner := only_attempt(file.path)) is not None}
    if len(merged) + len(owners) < FAN_IN:
        return []
    committed = {owner for owner in sorted({*owners.values()}) if is_committed(owner)}
    small = [file for file in small if file in merged or owners.get(file.path) in committed]
    if len(small) < FAN_IN:
        return []
    return file_merges.largest_pair(small, lambda file: file.size_bytes // UNIT_BYTES)


def is_committed(store: Store, attempt_id: str) -> bool:
    """Return whether, by its objects, an attempt with rejects in the table is committed.

    It is committed if it has a success marker. If at most its claim remains, its manifest was
    archived, so it is committed too. A running attempt still has its announcement. A vacuum removes
    the rejects of an attempt that ended without a commit from the table.
    """
    keys = {item.key for item in store.list(attempt_objects(attempt_id))}
    if success_key(attempt_id) in keys:
        return True
    return keys <= {claim_key(attempt_id)} and not is_abandoned(store, attempt_id)


def merge_files(store: Store, topic: str, attempt_id: str, keys: Sequence[str]) -> RejectsFile:
    """Write all rejects in the files with these keys as one merged file of an attempt."""
    rows = pa.concat_tables(read_for_merge(store, key) for key in keys)
    return write_merged(store, topic, attempt_id, rows)
