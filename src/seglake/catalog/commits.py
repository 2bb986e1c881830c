"""Commit changes of topics to the catalog.

Only this module commits to the table. Each commit is a Delta commit of files that this package
wrote. Two runs must not append at the same offset:

    1. Two runs read version 7, in which the next offset of a partition is 100.
    2. Both write segments at offset 100, and both commit. One offset has two records.

So a commit has the app transaction `seglake/<topic>`, and continues the version that supplied its
offsets. `CatalogCommits.make` works in these steps:

    1. Check that the log has neither a hole nor an overlap after the change. Write the claim.
    2. Write the data files, then the manifest, because a rebuild needs a manifest of every commit.
    3. Put the commit as the next free version. If a commit made since the base has the same app
       transaction, or removes a file that this commit also removes, raise CommitConflict. A lost
       reply looks like a lost race, so the caller searches for its own attempt before it retries.
    4. Write the success marker, merge small data files, and write a checkpoint if necessary. Merges
       and checkpoints change no row.
"""

import contextlib
import logging
import threading
from collections.abc import Collection, Iterable

from seglake import layout
from seglake.catalog.attempts import (
    Manifest,
    attempts_without_marker,
    claim,
    has_failed,
    mark_committed,
    write_manifest,
)
from seglake.catalog.delta import delta_rs, file_merges
from seglake.catalog.delta.actions import Action, add_action, remove_action
from seglake.catalog.delta.commit_log import DeltaLog
from seglake.catalog.delta.data_files import DataFile, write_file
from seglake.catalog.topic_change import Change, Removal, TopicChange, check_change, divide_files
from seglake.catalog.version import snapshot_files
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import CommitConflict, MissingObject, SeglakeError, warn_on
from seglake.store import Store

COMMITTED = threading.Event()  # set once this process has made a commit to a topic
_A_DAY_MS = 86_400_000
_log = logging.getLogger(__name__)


class CatalogCommits:
    """Commits to the catalog. `log` has its commits, and `handle` opens its newest version."""

    def __init__(self, log: DeltaLog, handle: delta_rs.TableHandle) -> None:
        self._log, self._handle = log, handle
        self._store, self._lake = log.store, handle.lake

    def make(
        self, change: Change, *, topic: str, base: Snapshot, attempt_id: str, lost_races: int = 0
    ) -> int:
        """Commit a change of a topic, and return the version that has it.

        Args:
            change: The change. All its rows, except for rows of tags, are rows of `topic`.
            topic: The topic to change.
            base: The version that the change continues.
            attempt_id: The attempt that commits. It may commit once.
            lost_races: The number of earlier tries of the attempt to commit.

        Raises:
            CommitConflict: The topic, or one of `change.unchanged_topics`, changed since `base`, or
                data files with rows to remove were merged.
            AttemptAbandoned: A vacuum or an erasure abandoned the attempt, or an attempt in
                `change.other_attempts`.
            CorruptData: The log would have a hole or an overlap.
            UsageError: A row contradicts the topic.
            StoreError: Storage failed.
        """
        checked = check_change(change, topic, base)
        for owner in (attempt_id, *change.other_attempts):
            claim(self._store, owner, topic)
        removals = checked.removals(base)
        actions = self._write_files(checked, removals, base)
        manifest = Manifest(
            attempt_id, checked.rows, checked.replaced, sorted(change.forgotten),
            base.version + 1, self._lake,
        )  # fmt: skip
        write_manifest(self._store, manifest, lost_races)
        commits = self._log.commit(
            base.version,
            actions,
            application=f"seglake/{topic}",
            unchanged=[f"seglake/{each}" for each in change.unchanged_topics],
            info={"seglake.attempt": attempt_id},
            operation="REPLACE" if removals else "WRITE",
        )
        COMMITTED.set()
        mark_committed(self._store, attempt_id)
        version = commits[-1].version
        self._merge_small_files(version, snapshot_files.files_after(base.files, commits))
        return version

    def fence(self, topic: str | None = None) -> None:
        """Commit a fence: commits in progress to `topic`, or by default to any topic, will lose.

        Afterwards, an abandoned attempt can no longer commit, and commits in progress cannot name
        data files that the caller is about to delete. Raises CommitConflict and StoreError.
        """
        application = None if topic is None else f"seglake/{topic}"
        self._log.fence(lambda: (self._handle.newest().version(), []), application)

    def without_marker(self, files: Collection[DataFile]) -> set[str]:
        """Return the committed attempts that have a manifest and no success marker.

        An attempt is committed if a row in `files` or a retained commit names it, and `has_failed`
        is false.
        """
        waiting = attempts_without_marker(self._store)
        if not waiting:
            return set()
        # In a copied lake, objects have the times of the copy, in another order. Allow for a day.
        since_ms = min(waiting.values()) - _A_DAY_MS
        committed = {commit.attempt_id for _, commit in self._log.retained(since_ms)}
        found = waiting.keys() & (committed | snapshot_files.attempts(self._store, files))
        return {attempt_id for attempt_id in found if not has_failed(self._store, attempt_id)}

    def write_missing_markers(self, files: Collection[DataFile]) -> list[str]:
        """Write the missing success markers of committed attempts, and return these attempts.

        The attempts died between their commit and their marker, see `without_marker`.
        """
        attempt_ids = sorted(self.without_marker(files))
        if attempt_ids:
            sync_commits(self._store)
        for attempt_id in attempt_ids:
            mark_committed(self._store, attempt_id)
        return attempt_ids

    def _write_files(
        self, change: TopicChange, removals: Iterable[Removal], base: Snapshot
    ) -> list[Action]:
        """Write the data files of a change, and return the actions that commit it."""
        mine = [file for file in base.files if file.topic == change.topic]
        tables, removed = [*change.tables().items()], list[DataFile]()
        for removal in removals:
            for file, _, rows in divide_files(self._store, layout.LOG_TABLE, mine, removal):
                removed.append(file)
                tables.append(((removal.kind, change.topic), rows))
        written = [
            write_file(self._store, layout.LOG_TABLE, kind, topic, *part)
            for (kind, topic), rows in tables
            if len(rows)
            for part in file_merges.cut_rows(rows)
        ]
        gone = [remove_action(file.path, file.size_bytes, file.partition) for file in removed]
        return [*map(add_action, written), *gone]

    def _merge_small_files(self, version: int, files: frozenset[DataFile]) -> None:
        """Merge small data files of a version that was just committed, and write a checkpoint."""
        # A failure or a lost race is only logged, because a later commit does this work too.
        made = [version]
        problem = "cannot merge the files of the catalog. A later commit retries it"
        with warn_on(SeglakeError, problem, _log):
            try:
                due = file_merges.groups_to_merge(files, file_merges.FAN_IN)
                made += file_merges.merge_groups(self._log, version, due)
            except CommitConflict as error:
                _log.debug("another commit is merging the files of the catalog: %s", error)
        delta_rs.checkpoint_if_due(self._log, made)


def sync_commits(store: Store) -> None:
    """Sync the commits to the catalog and to the quarantine, so that they survive a power loss.

    A process may die between writing a commit and syncing its folder. Raises StoreError.
    """
    for table in (layout.LOG_TABLE, layout.QUARANTINE_TABLE):
        with contextlib.suppress(MissingObject):
            store.sync(f"{table}/_delta_log")
