"""Retry the commit of an attempt to a topic until it succeeds, and end the attempt.

`transact` commits. A commit that failed may have been made, because a lost reply looks like a lost
race. So it retries in these steps:

    1. After every failure, it reads the catalog again and searches it for the attempt.
    2. After a lost race, it plans the change again on top of the newer version.
    3. After a failure of storage, it commits the unchanged change again. Storage may still execute
       the failed commit, and the manifest must match either commit.

`announce` is the block in which an attempt reads, writes and commits. An erasure that abandons the
attempt deletes the objects that the attempt has written. But the attempt may still run, and write
more objects later. So it cleans up at its end, even after an error about missing objects, because
the erasure may have deleted them:

    1. `transact` withdraws an attempt that claimed and ends without a commit (see `abandon_all`).
       Otherwise it would count as running for the grace period, and storage could execute its
       commit later, which names deleted files.
    2. At the end of the block, an attempt that never claimed abandons itself.
    3. If it can no longer commit, its segments are deleted. Its announcement is always deleted.
"""

import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, compress

from seglake.catalog.attempts import (
    abandon,
    abandon_unless_claimed,
    confirm_abandoned,
    lacks_marker,
    mark_committed,
    restore_claim,
)
from seglake.catalog.commits import sync_commits
from seglake.catalog.delta.data_files import DataFile, read_at_once
from seglake.catalog.schema import MaintenanceRow, RunRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.version.snapshot import Snapshot
from seglake.catalog.version.snapshot_files import last_finished_files, rows_in
from seglake.errors import CommitConflict, MissingObject, SeglakeError, StoreError, warn_on
from seglake.layout import announcement_key, attempt_folder, new_attempt, success_key
from seglake.store import Store

PATIENCE = 100  # an attempt ends when the costs of its lost races and storage failures reach this
RACE_COST, FAILURE_COST = 1, 20
PAUSE_S = 0.5  # after a failure of storage
_ANNOUNCE_S = 600  # between two announcements of one attempt
_MARK_TRIES = 4  # tries to write a success marker, after the try in the commit itself
_NOT_ABANDONED = (
    "cannot abandon attempt {}; it counts as running until `seglake vacuum` abandons it"
)
_RECENT = 100  # maintenance commits whose markers are checked

Plan = Callable[[Snapshot], Change | None]
Progress = Callable[[int, int], None]  # the amount that is done, and the total

_log = logging.getLogger(__name__)


def transact(
    table: CatalogTable, topic: str, attempt_id: str, plan: Plan, base: Snapshot | None = None
) -> int | None:
    """Plan a change and commit it. Retry after lost races and failures of storage.

    Args:
        table: The catalog.
        topic: The topic to change.
        attempt_id: The attempt that commits. It may commit once.
        plan: Returns the change for a version, or None if there is nothing to do. It is called with
            `base`, and after each lost race with a newer version.
        base: The version to continue, by default the newest.

    Returns:
        A version that has the commit, or None if `plan` returned None.

    Raises:
        AttemptAbandoned: A vacuum or an erasure abandoned the attempt.
        CommitConflict: Too many races were lost.
        StoreError: Storage failed too often. The commit may have been made.
        Exception: Anything that `plan` raises.
    """
    return _Transaction(table, topic, attempt_id).run(plan, base)


def transact_upkeep(
    table: CatalogTable, topic: str, attempt_id: str, plan: Plan, base: Snapshot | None = None
) -> int | None:
    """Commit like `transact`, and write missing success markers of earlier maintenance.

    An earlier call of a maintenance command may have died between its commit and its marker. The
    next call then finds nothing to do, so it writes the missing marker. Markers are written after
    the commit, so that nothing slow happens between a plan and its commit. Arguments, result and
    errors are the same as in `transact`.
    """
    base = base or table.snapshot(topics=[topic])
    version = transact(table, topic, attempt_id, plan, base)
    files = base.files if version is None else table.newest_files()
    write_recent_markers(table, files, topic)
    return version


def write_marker(store: Store, attempt_id: str) -> None:
    """Write the success marker of a committed attempt. Log a warning if that fails.

    The commit is first synced to the disk, because another process may have made it. A failed write
    is retried, because a rebuild does not trust an attempt without a marker.
    """
    for tries_left in reversed(range(_MARK_TRIES)):
        try:
            sync_commits(store)
            mark_committed(store, attempt_id)
        except StoreError as error:
            if tries_left:
                time.sleep(PAUSE_S)
                continue
            _log.warning(
                "the commit succeeded, but its success marker for `seglake repair` cannot be "
                "written; `seglake vacuum` writes it later: %s", error,
            )  # fmt: skip
        return


def write_recent_markers(table: CatalogTable, files: Collection[DataFile], topic: str) -> None:
    """Write missing success markers of the last maintenance commits to a topic.

    `files` are the data files of a version. A command calls this function if its work is already
    done. The process that did the work may have died before it wrote its marker or synced its
    commit.
    """
    store = table.store
    mine = [file for file in files if file.topic == topic and file.kind == "maintenance"]
    rows = rows_in(store, MaintenanceRow, last_finished_files(mine, _RECENT))
    last = sorted(rows, key=lambda row: row.finished_at_ms)[-_RECENT:]
    recent = [*dict.fromkeys(row.attempt_id for row in last)]
    unmarked = read_at_once(store, partial(lacks_marker, store), recent)
    for attempt_id in compress(recent, unmarked):
        write_marker(store, attempt_id)
    if unmarked and not unmarked[-1]:
        sync_commits(store)
        # If the marker does not exist, the manifest is in an archive.
        with suppress(MissingObject):
            store.sync(success_key(recent[-1]))


@contextmanager
def announce(
    table: CatalogTable, attempt_id: str, topic: str, *others: Collection[str], partitions: int = 0
) -> Iterator[None]:
    """Announce an attempt for a `with` block, and clean up when the block ends.

    Args:
        table: The catalog.
        attempt_id: The id of the attempt.
        topic: The topic that it changes.
        others: Collections of further attempt ids under which the block writes segments. They are
            read when the block ends.
        partitions: The number of partitions of the topic after the commit, if it may grow.

    Raises:
        StoreError: The announcement cannot be written.
    """
    store = table.store
    store.put(announcement_key(attempt_id), json.dumps({"topic": topic}).encode())
    try:
        yield
    finally:
        files = "cannot delete the files of this attempt; `seglake vacuum` deletes them later"
        with warn_on(SeglakeError, files, _log):
            own = [attempt_id, *chain(*others)]
            ended = read_at_once(store, partial(abandon_unless_claimed, store), own)
            if any(ended):
                _delete_own_segments(table, topic, partitions, [*compress(own, ended)])
        begun = "cannot delete an announcement; `seglake vacuum` deletes it later"
        with warn_on(StoreError, begun, _log):
            store.delete([announcement_key(attempt_id)])


@contextmanager
def announce_copies(store: Store, topic: str, progress: Progress) -> Iterator[tuple[str, Progress]]:
    """Announce an attempt that copies records of a topic and does not commit to the catalog.

    Yields the attempt's id, and a function to call instead of `progress`. The function calls
    `progress`, and announces the attempt again every ten minutes, because an attempt that writes
    nothing to the lake would count as dead. Raises StoreError.
    """
    attempt_id, announced_s = new_attempt(), time.monotonic()
    put = partial(store.put, announcement_key(attempt_id), json.dumps({"topic": topic}).encode())

    def told(done: int, total: int) -> None:
        nonlocal announced_s
        if time.monotonic() - announced_s > _ANNOUNCE_S:
            put()
            announced_s = time.monotonic()
        progress(done, total)

    put()
    try:
        yield attempt_id, told
    finally:
        with suppress(StoreError):
            store.delete([announcement_key(attempt_id)])


def _delete_own_segments(
    table: CatalogTable, topic: str, partitions: int, own: Collection[str]
) -> None:
    """Delete the files of segments under the attempt ids `own`. Raises StoreError, CorruptData."""
    row = table.snapshot(topics=[topic]).find_topic(topic)
    count = max(partitions, row.partitions if row else 0)
    folders = [attempt_folder(topic, number, each) for number in range(count) for each in own]
    listed = read_at_once(table.store, lambda folder: [*table.store.list(folder)], folders)
    table.store.delete([item.key for item in chain.from_iterable(listed)])


def abandon_all(
    table: CatalogTable, attempts: Iterable[str], committed: Callable[[], Collection[str]]
) -> bool:
    """Abandon attempts, so that they cannot commit. Return whether one of them had claimed.

    If an attempt had claimed, a fence is committed to the topic of each claim. Then `committed` is
    called, which must return the attempts that have a commit. Their claims are restored. Raises
    CommitConflict and StoreError.
    """
    store = table.store
    topics = {each: abandon(store, each) for each in sorted(attempts)}
    claimed = {each: topic for each, topic in topics.items() if topic is not None}
    for topic in {*claimed.values()}:
        table.commits.fence(topic)
    made = committed() if claimed else ()
    for each, topic in claimed.items():
        if each in made:
            restore_claim(store, each, topic)
        else:
            confirm_abandoned(store, each)
    return bool(claimed)


class _Transaction:
    """All tries of one attempt to make its commit."""

    def __init__(self, table: CatalogTable, topic: str, attempt_id: str) -> None:
        self._table, self._topic, self._attempt_id = table, topic, attempt_id
        self._patience, self._lost_races = PATIENCE, 0
        self._finished_ms = set[int]()  # `finished_at_ms` of its row, in each change that was tried
        self._owners = dict[str, None]()  # ids that have claimed, in the order of their claims
        self._tried = list[str]()  # ids of the last try

    def run(self, plan: Plan, base: Snapshot | None) -> int | None:
        """Return a version with the commit, or None. Withdraw if this ends without a commit."""
        version = None
        try:
            version = self._retry_until_committed(plan, base)
        finally:
            if version is None and self._owners:
                version = self._withdraw()
        self._abandon_unused()
        return version

    def _abandon_unused(self) -> None:
        """Abandon attempt ids that only lost tries used, so that erasures do not wait for them."""
        # A lost try can never commit, because all versions up to the new one exist.
        for each in [each for each in self._owners if each not in self._tried]:
            with warn_on(StoreError, _NOT_ABANDONED.format(each), _log):
                confirm_abandoned(self._table.store, each)

    def _withdraw(self) -> int | None:
        """Abandon all attempt ids, so that no commit of them can succeed later.

        Return a version that has the commit if it was already made, else None.
        """
        made = list[int]()

        def committed() -> Collection[str]:
            newest = self._table.snapshot(topics=[self._topic])
            made.extend([newest.version] if self._is_made(newest) else [])
            return self._owners if made else ()

        with warn_on(SeglakeError, _NOT_ABANDONED.format(self._attempt_id), _log):
            abandon_all(self._table, self._owners, committed)
            return made[0] if made else None
        return None

    def _retry_until_committed(self, plan: Plan, base: Snapshot | None) -> int | None:
        base = base or self._table.snapshot(topics=[self._topic])
        while True:
            change = plan(base)
            if change is None:
                return None
            self._finished_ms |= {
                row.finished_at_ms
                for row in change.rows
                if isinstance(row, RunRow | MaintenanceRow) and row.attempt_id == self._attempt_id
            }
            self._tried = [self._attempt_id, *sorted(change.other_attempts)]
            self._owners |= dict.fromkeys(self._tried)
            try:
                return self._commit(change, base)
            except (CommitConflict, MissingObject) as problem:
                base = self._newest(base)
                if self._is_made(base):
                    return base.version
                self._spend_patience(problem)
                self._lost_races += 1

    def _commit(self, change: Change, base: Snapshot) -> int:
        """Commit a change, and commit it again unchanged after a failure of storage."""
        # Storage may have executed the failed commit, or may execute it later. All tries write the
        # same manifest, so it is right for each of them. If storage executes the failed commit, the
        # next try conflicts with it.
        while True:
            try:
                return self._table.commits.make(
                    change, topic=self._topic, base=base, attempt_id=self._attempt_id,
                    lost_races=self._lost_races,
                )  # fmt: skip
            except MissingObject:
                # A data file of the base was merged and then vacuumed, so plan again.
                raise
            except StoreError as problem:
                newest = self._newest(base)
                if self._is_made(newest):
                    return newest.version
                self._spend_patience(problem)

    def _is_made(self, newest: Snapshot) -> bool:
        """Return whether a version has the commit. If so, write the success marker."""
        made = self._table.rows.has_commit(newest, self._topic, self._attempt_id, self._finished_ms)
        if made:
            write_marker(self._table.store, self._attempt_id)
        return made

    def _newest(self, base: Snapshot) -> Snapshot:
        while True:
            try:
                return self._table.refresh(base)
            except StoreError as problem:
                self._spend_patience(problem)

    def _spend_patience(self, problem: CommitConflict | StoreError) -> None:
        """Raise `problem` after too many failures. Otherwise, pause after a failure of storage."""
        raced = isinstance(problem, CommitConflict)
        self._patience -= RACE_COST if raced else FAILURE_COST
        if self._patience <= 0:
            raise problem
        if not raced:
            time.sleep(PAUSE_S)
