"""Commits to the catalog table. Nothing else commits to it.

Every commit is one commit of Delta over files that this package wrote. A commit to a topic carries
the app transaction `seglake/<topic>` and continues the version that supplied its offsets. It passes
any commit made since, unless that one carries the same app transaction, or removes a file that it
removes too: then it raises CommitConflict, and the caller reloads. The caller must look for its own
attempt before it tries again: a lost reply looks like a lost race.

After a commit the same process merges small files and writes checkpoints, which changes no row.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence

from seglake import layout
from seglake.catalog.attempts import (
    Manifest,
    attempts_without_marker,
    claim,
    mark_committed,
    write_manifest,
)
from seglake.catalog.delta import delta_rs, file_merges
from seglake.catalog.delta.actions import Action, add, remove
from seglake.catalog.delta.commit_log import DeltaLog, highest_version
from seglake.catalog.delta.data_files import DataFile, write_file
from seglake.catalog.rows import CatalogRows
from seglake.catalog.schema import Row, TagRow
from seglake.catalog.topic_change import Change, Removal, TopicChange, checked_change, divided
from seglake.catalog.version import snapshot_files
from seglake.catalog.version.snapshot import Snapshot
from seglake.catalog.versions import CONTRACT
from seglake.errors import CommitConflict, MissingObject, SeglakeError
from seglake.store import Store

_A_DAY_MS = 86_400_000
_log = logging.getLogger(__name__)
COMMITTED = threading.Event()  # set once this process has made a commit to a topic


class CatalogTable(CatalogRows):
    """The existing catalog of the lake in a store; for one thread at a time.

    `CatalogVersions` opens it and loads versions, `CatalogRows` reads rows, this class commits.
    """

    @staticmethod
    def rebuilt(
        store: Store, topics: Mapping[str, Sequence[Row]], first_version: int, lake: str
    ) -> int:
        """Create the catalog with these rows; returns its version, at least `first_version`.

        `lake` is the lake's identity, "" if none is known. Nobody may have the lake open.
        """
        table = CatalogTable.create_empty(store, lake)
        made = 0
        for topic, rows in topics.items():
            attempt_id = layout.new_attempt()
            made = table.commit(rows, topic=topic, base=table.snapshot(), attempt_id=attempt_id)
        delta_rs.renumber(DeltaLog(store, layout.LOG_TABLE, CONTRACT), made, first_version)
        return CatalogTable(store).snapshot().version

    @staticmethod
    def highest_version(store: Store) -> int:
        """A version that the catalog never went beyond, by its files and its backups'; or -1."""
        return highest_version(store, layout.LOG_TABLE)

    def commit(  # noqa: PLR0913  # the fields of a change, and of whom it is
        self,
        rows: Sequence[Row],
        *,
        topic: str,
        base: Snapshot,
        attempt_id: str,
        replaced: Sequence[tuple[int, int]] = (),
        forgotten: Collection[str] = (),
        files_of: Collection[str] = (),
        beside: Collection[str] = (),
        tags: Sequence[TagRow] = (),
        lost_races: int = 0,
    ) -> int:
        """Make a change visible at once, see `Change`, and return the version that has it.

        The change continues the version `base`. An attempt commits once: its manifest is written
        before, and marked after; `lost_races` counts its tries before. Raises CommitConflict if
        the topic, or one of `beside`, changed since `base` (for a removal, also if its data files
        were merged), AttemptAbandoned, CorruptData if the log would have a hole or an overlap,
        UsageError if a row contradicts the topic, and StoreError.
        """
        change = Change(rows, replaced, forgotten, files_of, tags=tags)
        checked = checked_change(change, topic, base)
        for owner in (attempt_id, *files_of):
            claim(self.store, owner, topic)
        removals = checked.removals(base)
        actions = self._write_files(checked, removals, base)
        manifest = Manifest(
            attempt_id, checked.rows, checked.replaced, sorted(forgotten), base.version + 1,
            self.lake,
        )  # fmt: skip
        write_manifest(self.store, manifest, lost_races)
        commits = self._delta_log.commit(
            base.version,
            actions,
            application=f"seglake/{topic}",
            beside=[f"seglake/{each}" for each in beside],
            info={"seglake.attempt": attempt_id},
            operation="REPLACE" if removals else "WRITE",
        )
        COMMITTED.set()
        mark_committed(self.store, attempt_id)
        version = commits[-1].version
        self._tidy(version, snapshot_files.files_after(base.files, commits))
        return version

    def fence(self, topic: str | None = None) -> None:
        """Make every commit to a topic, or to all, that is under way fail: it has to begin again.

        So an attempt that was given up finds that out, and no commit names data files that are
        about to be deleted. Raises CommitConflict and StoreError.
        """
        application = None if topic is None else f"seglake/{topic}"
        self._delta_log.fence(lambda: (self.handle.newest().version(), []), application)

    def unmarked(self, files: Collection[DataFile]) -> set[str]:
        """The attempts without a mark that rows in these files, or the log's commits, name."""
        waiting = attempts_without_marker(self.store)
        if not waiting:
            return set()
        since_ms = min(waiting.values()) - _A_DAY_MS  # a copied lake has the times of copying
        committed = {commit.attempt_id for _, commit in self._delta_log.retained(since_ms)}
        return waiting.keys() & (committed | snapshot_files.attempts(self.store, files))

    def mark_committed(self, files: Collection[DataFile]) -> list[str]:
        """Mark the attempts that `unmarked` gives; returns them.

        They died between their commit and their mark.
        """
        attempt_ids = sorted(self.unmarked(files))
        if attempt_ids:
            sync_commits(self.store)
        for attempt_id in attempt_ids:
            mark_committed(self.store, attempt_id)
        return attempt_ids

    def _write_files(
        self, change: TopicChange, removals: Iterable[Removal], base: Snapshot
    ) -> list[Action]:
        """Write the data files of a change; returns the actions that commit it."""
        mine = [file for file in base.files if file.topic == change.topic]
        tables, removed = [*change.tables().items()], list[DataFile]()
        for removal in removals:
            for file, _, rows in divided(self.store, layout.LOG_TABLE, mine, removal):
                removed.append(file)
                tables.append(((removal.kind, change.topic), rows))
        written = [
            write_file(self.store, layout.LOG_TABLE, kind, topic, *part)
            for (kind, topic), rows in tables
            if len(rows)
            for part in file_merges.parts(rows)
        ]
        gone = [remove(file.path, file.size_bytes, file.partition) for file in removed]
        return [*map(add, written), *gone]

    def _tidy(self, version: int, files: frozenset[DataFile]) -> None:
        """After the commit of a version with these files: merge small ones, write a checkpoint.

        If that fails or loses a race, the commit stands, and a later commit tidies.
        """
        made = [version]
        try:
            due = file_merges.due(files, file_merges.FAN_IN)
            made += file_merges.merge(self._delta_log, version, due)
        except CommitConflict as error:
            _log.debug("another commit merges the files of the catalog: %s", error)
        except SeglakeError as error:
            _log.warning("a later commit has to merge the files of the catalog: %s", error)
        delta_rs.checkpoint_if_due(self._delta_log, made)


def sync_commits(store: Store) -> None:
    """Let every commit that is there, also to the quarantine, survive a loss of power.

    Whoever made it may have died before its name was on the disk. Raises StoreError.
    """
    for table in (layout.LOG_TABLE, layout.QUARANTINE_TABLE):
        with contextlib.suppress(MissingObject):
            store.sync(f"{table}/_delta_log")
