"""Erase all records with given keys from a topic, and all rejects that contain one of the keys.

An ingest that runs at the same time could add a key again without notice:

    1. An ingest reads a file with the key, and has written nothing yet.
    2. An erasure finds no segment with the key, and ends.
    3. The ingest commits the record.

So an erasure waits, or is refused, while an attempt at the topic may still run. Ingests, merges,
compactions and erasures announce themselves before they read input or copy records. The steps are:

    1. Find the attempts at the topic. Abandon the attempts that have ended, so that they cannot
       commit later. If an attempt may still run, stop, unless the caller waits.
    2. Announce the erasure. Find the segments, tags and rejects of the newest version that have a
       key, and write the segments again without the records.
    3. Put a list of the rejects without their content, see `open_rejects`.
    4. Commit to the catalog. The same commit gives each tag with the key an object without the
       records. If another commit came first, repeat step 2. The row of the commit has the number of
       rejects that remain after the next step, so `verify` finds an erasure that was killed between
       these steps.
    5. Commit to the quarantine. Delete the list. Until then, the next erasure of the topic also
       erases the listed rejects, whatever its keys are.
    6. Find the attempts again, and report attempts that began before the commit. Remove rows from
       the samples of failed runs.
    7. Fence the published tables of the topic, so that no publisher that ran before the commit can
       add its files.
    8. With `wait`, wait for the attempts that ran before the commit. Then repeat steps 1 to 7, to
       erase what they added.
    9. With `vacuum`, delete the old objects that have a key. If logs are among them and there was
       no commit, commit first, so that no version before it can be tagged, and search again. Repeat
       this until abandoned attempts have written nothing more. Publish the tables, and delete the
       files of removed segments.

No report contains a key, because the history keeps the reports.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.compute as pc

from seglake import layout
from seglake.catalog.attempts import is_abandoned
from seglake.catalog.failed_run import rewrite_failed_run
from seglake.catalog.published import published_tables
from seglake.catalog.quarantine.files import only_attempt, read_all_rejects, writing_attempt
from seglake.catalog.quarantine.open_rejects import (
    ERASE,
    erasures,
    join_lists,
    unfinished_lists,
    write_list,
)
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.retention import UnreferencedFiles
from seglake.catalog.schema import SegmentRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.transaction import announce
from seglake.catalog.version.snapshot import Snapshot
from seglake.clock import now_ms
from seglake.engine import Engine, Progress, SegmentTasks
from seglake.errors import CorruptData, MissingObject, UsageError
from seglake.layout import TOPICS, WHOLE_LAKE, new_attempt, rejects_key
from seglake.limits import GRACE_HOURS, HOUR_MS
from seglake.maintain.commit import TopicReport, check_hours, commit_change, retry, storage_time_ms
from seglake.maintain.erasure.criteria import ErasureCriteria
from seglake.maintain.erasure.rewrites import (
    LogErasure,
    RejectErasure,
    StoredLog,
    TagErasure,
    may_have_hits,
    require_own,
    samples_to_erase,
)
from seglake.maintain.publish.publish import clear_tables
from seglake.maintain.vacuum import (
    TEMPORARY,
    NamedFiles,
    Unnamed,
    delete_objects,
    find_unreferenced,
    is_claim,
    is_needed_to_commit,
    may_still_run,
    resolve,
)
from seglake.store import Listed, Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# ---------------- attempts
# Find the attempts at a topic that did not commit. An attempt has ended if it stored a report of
# its failure, or was abandoned, or if it wrote nothing for the grace period, like in a vacuum
# (`may_still_run`). An attempt with only blobs may be at any topic.

_QUARANTINED = re.compile(rf"{layout.QUARANTINE_TABLE}/topic=([^/]+)/")


class TopicAttempts(NamedTuple):
    """The attempts at a topic that did not commit, and all committed attempts.

    `running` attempts may still run, and have the times (ms) of their first and last write.
    `to_abandon` attempts count as ended and are abandoned, but their processes may be alive and
    write more objects. `remaining_objects` are the unnamed objects of attempts that have ended, and
    `remains` are the keys of the objects of `to_abandon` attempts. `named_rejects` are the keys of
    files that the quarantine names now, or has named during the grace period. The writers of these
    files no longer need them.
    """

    running: dict[str, tuple[int, int]]
    to_abandon: set[str]
    committed: set[str]
    remaining_objects: list[Listed]
    remains: set[str]
    named_rejects: Collection[str]

    def has_ended(self, attempt_id: str) -> bool:
        """Return whether an attempt is committed or abandoned."""
        return attempt_id in self.committed or attempt_id in self.to_abandon


def find_attempts(
    table: CatalogTable, report: EraseResult, grace_hours: float, own: Collection[str]
) -> TopicAttempts:
    """Find the attempts at the report's topic, except for the `own` attempts.

    An attempt may still run for `grace_hours` after its last write. A dry run measures this time by
    this machine's clock, any other erasure by storage's clock. Attempts that have ended are
    abandoned first, unless it is a dry run. Raises StoreError, CorruptData and CommitConflict.
    """
    clock_ms = now_ms() if report.dry_run else storage_time_ms(table.store)
    find = partial(_find, table, report.topic, clock_ms, clock_ms - grace_hours * HOUR_MS, own)
    return find() if report.dry_run else resolve(table, find)


def _find(
    table: CatalogTable, topic: str, clock_ms: int, oldest_ms: float, own: Collection[str]
) -> TopicAttempts:
    """Find the attempts. An attempt that has written since `oldest_ms` may still run."""

    def unnamed_objects() -> tuple[Unnamed, NamedFiles]:
        # Ignore the rows of young data files that no commit names, see `find_unreferenced`.
        never_named = UnreferencedFiles.from_table(table, now_ms=clock_ms)
        marked = table.commits.without_marker(table.newest_files())
        return find_unreferenced(
            table, never_named, marked, never_named, rejects_since_ms=oldest_ms
        )

    # An object is missing if a commit has just named it.
    unnamed, named = retry(unnamed_objects, MissingObject)
    committed = named.attempts
    attempts = TopicAttempts({}, set(), committed, [], set(), named.rejects or ())
    for owner, objects in unnamed.items():
        if owner is None or owner in own or not _may_be_at(table.store, topic, objects):
            continue
        if owner not in committed and any(map(is_needed_to_commit, objects)):
            if _may_run(table.store, owner, objects, oldest_ms):
                written_ms = [item.modified_ms for item in objects if not is_claim(item)]
                attempts.running[owner] = min(written_ms), max(written_ms)
            else:
                attempts.to_abandon.add(owner)
        if attempts.has_ended(owner):
            attempts.remaining_objects.extend(objects)
        if owner in attempts.to_abandon:
            attempts.remains.update(item.key for item in objects)
    return attempts


def _may_run(store: Store, attempt_id: str, objects: Sequence[Listed], oldest_ms: float) -> bool:
    # An attempt that stored a report has ended with an error.
    if any(item.key.endswith("/report.json") for item in objects):
        return False
    if any(map(is_claim, objects)) and is_abandoned(store, attempt_id):
        return False
    return may_still_run(objects, oldest_ms)


def _may_be_at(store: Store, topic: str, objects: Sequence[Listed]) -> bool:
    """Return whether an attempt with these objects may work on the topic.

    The result is true if no object names a topic. It is false for an attempt that writes the object
    of a tag, because such an attempt copies no records.
    """
    if any(layout.parse_tag_key(item.key) for item in objects):
        return False
    topics = {_topic_of(store, item.key) for item in objects} - {None}
    return not topics or topic in topics


def _topic_of(store: Store, key: str) -> str | None:
    """Return the topic that an object names in its key or its content, or None."""
    partial_write = TEMPORARY.fullmatch(key)
    if key.startswith(f"{layout.TOPICS}/"):
        return layout.parse_segment_key(partial_write[1] if partial_write else key).topic
    if match := _QUARANTINED.match(key):
        return match[1]
    if not (key.endswith(("/begun", "/fate", "/report.json")) or layout.is_rejects_key(key)):
        return None
    try:
        content: Any = json.loads(bytes(store.read_all(key)))
        return str(content["topic"])
    except MissingObject:
        return None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


# ---------------- objects
# Find the objects with erased content that the newest version does not need. These are logs of the
# topic with one of the keys and their index files, old key indexes, quarantine files with such a
# row, and the blobs and unfinished writes of attempts that have ended. Objects of attempts that may
# still run are kept.

_WITHOUT_EVENTS = re.compile(
    r"/(manifest\.json|success|fate|clock|rejects(-\d+)?)\.[0-9a-f]+\.tmp$"
)


class OldObjects:
    """Finds the old objects of a topic that have erased content and can be deleted."""

    def __init__(
        self, table: CatalogTable, topic: str, criteria: ErasureCriteria, attempts: TopicAttempts
    ) -> None:
        self._table, self._topic, self._criteria = table, topic, criteria
        self._attempts = attempts

    def find(self, tasks: SegmentTasks, gone: Collection[str] = ()) -> list[Listed]:
        """Return the old objects, with the index files of each log before the log.

        `gone` are the keys of files that are about to be replaced, so that they count as old.
        Raises StoreError and CorruptData.
        """
        left = [
            item for item in self._attempts.remaining_objects
            if "/blobs/" in item.key
            or (TEMPORARY.fullmatch(item.key) and not _WITHOUT_EVENTS.search(item.key))
        ]  # fmt: skip
        return [*self._logs(tasks, gone), *self._rejects(tasks.engine, gone), *left]

    def _logs(self, tasks: SegmentTasks, gone: Collection[str]) -> Iterator[Listed]:
        if not self._criteria.keys:
            return
        listed = self._of_topic()
        live = self._live() - {*gone}
        ended = {
            key: item for key, item in listed.items()
            if key not in live
            and self._attempts.has_ended(layout.parse_segment_key(key).attempt_id)
        }  # fmt: skip
        logs = [item for key, item in ended.items() if key.endswith(".log")]
        # Optional files may contain hashes of keys. A replaced key index may belong to a kept log.
        optional = tuple(f".{suffix}" for suffix in layout.OPTIONAL_SUFFIXES)
        yield from (item for key, item in ended.items() if key.endswith(optional))
        work = partial(may_have_hits, self._criteria.keys)
        holds = tasks.map(work, [StoredLog(item.key, item.size) for item in logs])
        for log, goes in zip(logs, holds, strict=True):
            if goes:
                names = (f"{log.key.removesuffix('log')}{name}" for name in layout.SUFFIXES[::-1])
                yield from (listed[name] for name in names if name in listed and name not in live)

    def _of_topic(self) -> dict[str, Listed]:
        """Return the files of all segments of the topic, from all attempts, by key."""
        by_key = {}
        for item in self._table.store.list(layout.TOPICS):
            with suppress(CorruptData):  # not the file of a segment
                if layout.parse_segment_key(item.key).topic == self._topic:
                    by_key[item.key] = item
        return by_key

    def _live(self) -> set[str]:
        """Return the keys of all files that the newest version or a tag names."""
        table, topics = self._table, [self._topic]
        versions = [table.snapshot(), *map(table.tags.snapshot, table.tags.live())]
        lists = chain.from_iterable(table.rows.segment_lists(each, topics) for each in versions)
        return {row.key(suffix) for rows in lists for row in rows for suffix in row.suffixes}

    def _rejects(self, engine: Engine, gone: Collection[str]) -> Iterator[Listed]:
        store = self._table.store
        listed = list(store.list(f"{layout.QUARANTINE_TABLE}/topic={self._topic}"))
        live = {*QuarantineTable(store).all_keys(self._topic)} - {*gone}
        old = [item for item in listed if item.key not in live and self._is_old(item.key)]
        goes = engine.map(partial(_may_have_rejects, store, self._criteria), old)
        yield from (item for item, had in zip(old, goes, strict=True) if had)

    def _is_old(self, key: str) -> bool:
        """Return whether an unnamed quarantine file can no longer be named by a commit."""
        if TEMPORARY.fullmatch(key):
            return False
        named = self._attempts.named_rejects
        return key in named or self._attempts.has_ended(writing_attempt(key) or "")


def _may_have_rejects(store: Store, criteria: ErasureCriteria, file: Listed) -> bool:
    """Return whether an unnamed quarantine file has a row to erase, or is damaged."""
    try:
        rows = read_all_rejects(store, file.key)
        return bool(pc.any(criteria.rejects(rows["raw"])).as_py())
    except MissingObject:
        return False
    except CorruptData:
        return True


IF_RUNNING = "erase with --wait, or after it has ended. If it is dead, give a shorter --grace-hours"
_log = logging.getLogger(__name__)
_COUNTS = ("segments", "records", "rejects", "samples")
_NAMED_AFTER_S = 2  # a longer wait logs the attempts that it waits for
_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 1, 30  # between two searches for running attempts


@dataclass(repr=False)
class EraseResult(TopicReport):
    """The result of an erasure, or of its dry run.

    It has the number of keys, but not the keys. `segments` is the number of rewritten segments, and
    `records` the number of records removed from them. `rejects` is the number of rejects removed
    from the quarantine, including rejects that a killed erasure had left there. `rejects_left` has
    the number of remaining rejects of each attempt that lost rejects. `samples` is the number of
    rows removed from the samples of failed runs. `tags` has the number of records removed from each
    tag, by name. `deleted` are the keys of the old objects that were deleted. `running` attempts
    began in the meantime. After they have ended, the erasure must be repeated. `tables` has each
    published table that may still have erased records, with the reason. A table keeps them until
    its next publish and vacuum. If a requested vacuum failed, the table is also in `uncleared`.
    """

    dry_run: bool = False
    keys: int = 0
    segments: int = 0
    records: int = 0
    rejects: int = 0
    rejects_left: dict[str, int] = field(default_factory=dict)
    samples: int = 0
    tags: dict[str, int] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    deleted_bytes: int = 0
    tables: dict[str, str] = field(default_factory=dict)
    uncleared: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """Return 0 if nothing remains to be done, else 1."""
        return 1 if self.running or self.uncleared else 0

    def followed_by(self, other: EraseResult) -> EraseResult:
        """Return one report of this erasure and of `other`, which erased records added later.

        Attempts that began after the first erasure have also listed their input after it, so
        `running` is empty.
        """
        last = other if other.version >= 0 else self
        sums = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        left = {**self.rejects_left, **other.rejects_left}
        tags = dict(Counter(self.tags) + Counter(other.tags))
        return replace(last, running=[], rejects_left=left, tags=tags, **sums)


def erase(  # noqa: PLR0913  # each is an option of the command
    root: str,
    topic: str,
    keys: Iterable[str | bytes] = (),
    *,
    raw_containing: str | bytes | None = None,
    vacuum: bool = False,
    wait: bool = False,
    dry_run: bool = False,
    grace_hours: float = GRACE_HOURS,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> EraseResult:
    """Remove all records with the keys from a topic, and rejects with a key or `raw_containing`.

    The records are also removed from tags. After StoreError, CommitConflict or VersionExpired, the
    erasure must be repeated.

    Args:
        root: The folder or URI of the lake.
        topic: The topic.
        keys: The record keys. Text is encoded as UTF-8.
        raw_containing: Rejects that contain this text anywhere are erased, too.
        vacuum: Also delete the old objects with erased content. Then older versions that need them
            can no longer be read.
        wait: Wait for attempts that are running, then erase what they added.
        dry_run: Write nothing, and only report what an erasure would do.
        grace_hours: An attempt that wrote something within this time counts as running.
        spark: Runs the work on its executors. Without it, this process runs the work.
        storage_options: Options of the store.
        progress: Called with the bytes of log that are done, and the total.

    Raises:
        UsageError: There is neither a key nor a text, the hours are negative, logs of the topic
            are outside the lake (in the newest version or in a tagged version), or an attempt may
            still run and `wait` is not set.
        UnknownTopic: There is no such topic.
        CorruptData: A log is damaged.
        VersionExpired: A tag was deleted in the meantime.
        CommitConflict: Concurrent commits won all retries.
        StoreError: Storage failed.

    Example:
        >>> erased = seglake.erase("lake", "web", ["u3"], vacuum=True, grace_hours=0)
        >>> erased.records
        171
    """
    criteria = ErasureCriteria.from_keys(keys, raw_containing)
    check_hours("--grace-hours", grace_hours)
    table = CatalogTable.open(open_store(root, storage_options))
    require_own(table.snapshot(), topic)
    tasks = SegmentTasks.from_session(table.store, spark, progress)

    def begin() -> _Erasure:
        report = EraseResult(topic, dry_run=dry_run, keys=len(criteria.keys))
        return _Erasure(table, report, criteria, tasks, grace_hours)

    work = begin()
    if dry_run:
        work.show(vacuum=vacuum)
        return work.report
    work.carry_out(wait=wait)
    if wait and work.report.running:
        work.wait_for_their_ends()
        first, work = work.report, begin()
        work.carry_out(wait=wait)
        work.report = first.followed_by(work.report)
    if vacuum:
        work.delete_old()
    return work.report


class _Erasure:
    """Carries out one erasure, and fills in its report."""

    def __init__(
        self,
        table: CatalogTable,
        report: EraseResult,
        criteria: ErasureCriteria,
        tasks: SegmentTasks,
        grace_hours: float,
    ) -> None:
        self._table, self.report, self._criteria = table, report, criteria
        self._tasks, self._grace_hours = tasks, grace_hours
        self._begin_attempt()
        self._rejects = RejectErasure(table.store, report.topic, criteria, tasks.engine)
        self._base_runs: set[str] = set()  # attempts whose runs are in the version of the plan
        # The keys of lists of rejects: its own, and lists of killed erasures that it completes.
        self._lists: set[str] = set()
        self._tries = 0
        self._says_so = False  # whether to commit even if there is nothing to erase

    def _begin_attempt(self) -> None:
        """Begin an attempt with the id in the report. Forget the segments of earlier attempts."""
        report = self.report
        self._logs = LogErasure(
            self._table, report.topic, self._criteria.keys, report.attempt_id, self._tasks
        )
        self._tags = TagErasure(self._table, report.topic, self._logs)

    def show(self, *, vacuum: bool) -> None:
        """Fill in the report of a dry run. With `vacuum`, it has the objects to delete."""
        attempts = self._find_attempts()
        rows = self._find(self._table.snapshot())
        self.report.running = sorted(attempts.running)
        if vacuum:
            files = {row.key(suffix) for row in rows for suffix in row.suffixes}
            self._find_old(attempts, {*files, *self._rejects.files()})

    def carry_out(self, *, wait: bool) -> None:
        """Erase, and report the attempts that ran in the meantime. Raises what `erase` raises."""
        report, before = self.report, self._find_attempts()
        if before.running and not wait:
            raise UsageError(
                f"attempt {min(before.running)} may still run, and could add records of an erased "
                f"key: {IF_RUNNING}"
            )
        with announce(self._table, report.attempt_id, report.topic, self._logs.attempts):
            self._commit(before)
        self._note_running()
        self._erase_samples()
        self._clear_tables(vacuum=False)

    def _erase_samples(self) -> None:
        """Remove rows from samples, including samples of attempts that failed since `_find`."""
        store = self._table.store
        for failed, _ in samples_to_erase(store, self.report.topic, self._criteria):
            rewrite_failed_run(store, failed)

    def _clear_tables(self, *, vacuum: bool) -> None:
        report = self.report
        if self._criteria.keys:
            rows = published_tables(self._table, self._newest, report.topic)
            report.tables = clear_tables(self._table, rows, self._tasks, vacuum=vacuum)
        report.uncleared = sorted(report.tables) if vacuum else []

    def _note_running(self) -> TopicAttempts:
        """Return the present attempts at the topic.

        Attempts that may have read input before the commit are set in the report.
        """
        attempts = self._find_attempts()
        self._newest = self._table.snapshot()
        arrived = self._runs(self._newest) - self._base_runs
        running = {*attempts.running, *arrived}
        self.report.running = sorted(running.union(self.report.running))
        return attempts

    def _commit(self, before: TopicAttempts) -> None:
        """Remove the records, then the rejects. The erasure must have been announced."""
        report = self.report
        commit_change(self._table, report, self._plan, dry_run=False)
        self._rejects.erase(report.attempt_id, before.to_abandon)
        delete_objects(self._table.store, sorted(self._lists))

    def wait_for_their_ends(self) -> None:
        """Wait until the attempts in `report.running` have ended.

        Attempts that began later are ignored. An attempt that writes nothing for the grace period
        counts as ended.
        """
        pause_s, begun, named = _SHORTEST_WAIT_S, time.monotonic(), set[str]()
        while waits_for := {*self.report.running} & (found := self._find_attempts().running).keys():
            if time.monotonic() - begun >= _NAMED_AFTER_S:
                for attempt_id in sorted(waits_for - named):
                    self._log_wait(attempt_id, *found[attempt_id])
                named |= waits_for
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_WAIT_S)

    def _log_wait(self, attempt_id: str, first_ms: int, last_ms: int) -> None:
        since, dead_at = (
            dt.datetime.fromtimestamp(ms / 1000, dt.UTC).isoformat(timespec="seconds")
            for ms in (first_ms, last_ms + self._grace_hours * HOUR_MS)
        )
        _log.warning(
            "waiting for attempt %s of topic %s, which began at %s, until its command ends. If "
            "the command is dead, the wait ends at %s. To wait less, stop, and erase with a "
            "shorter --grace-hours", attempt_id, self.report.topic, since, dead_at,
        )  # fmt: skip

    def delete_old(self) -> None:
        """Delete the old objects with erased content.

        The process of an abandoned attempt may be alive and write objects. So this is repeated
        until abandoned attempts have written no new object. Other attempts are ignored.
        """
        attempts, remains = self._find_attempts(), set[str]()
        # Attempts may have written objects between the search and their abandonment.
        if attempts.to_abandon:
            attempts = self._find_attempts()
        while True:
            self._delete_old(attempts)
            remains |= attempts.remains
            attempts = self._find_attempts()
            if remains >= attempts.remains:
                break
        self._clear_tables(vacuum=True)

    def _delete_old(self, attempts: TopicAttempts) -> None:
        dying = {
            item.key
            for item in attempts.remaining_objects
            if writing_attempt(item.key) in attempts.to_abandon
        }
        # A dying attempt may just have named its own files in the quarantine.
        own = {*filter(only_attempt, dying)}
        QuarantineTable(self._table.store).remove_files(own, dying - own)
        before, size = self.report.deleted, self.report.deleted_bytes
        self._find_old(attempts)
        logs = any(key.startswith(f"{TOPICS}/") for key in self.report.deleted)
        if logs and self.report.version < 0:
            self._find_old(self._forbid_tags(attempts))
        delete_objects(self._table.store, self.report.deleted)
        self.report.deleted = [*before, *self.report.deleted]
        self.report.deleted_bytes += size

    def _forbid_tags(self, attempts: TopicAttempts) -> TopicAttempts:
        """Commit the erasure even if it changes no segment, to prevent tags of older versions.

        The files of older versions are about to be deleted. Return the attempts after this commit,
        because it may remove records of an attempt that was still running before.
        """
        self._says_so, report = True, self.report
        # The previous attempt has ended without a commit.
        report.attempt_id = new_attempt()
        self._begin_attempt()
        with announce(self._table, report.attempt_id, report.topic, self._logs.attempts):
            self._commit(attempts)
        # Other attempts may have begun since the first search.
        return self._note_running()

    def _find_attempts(self) -> TopicAttempts:
        own = {self.report.attempt_id, *self._logs.attempts}
        return find_attempts(self._table, self.report, self._grace_hours, own)

    def _find(self, base: Snapshot) -> list[SegmentRow]:
        """Return the segments of a version that lose records, and fill in the report's counts."""
        report, rows = self.report, self._logs.find(base)
        report.tags = self._tags.find(base)
        report.segments, report.records = len(rows), self._logs.count(rows)
        # Earlier erasures listed these rejects, and may not have erased them.
        upkeep = self._table.rows.maintenance(base, report.topic)
        lists = unfinished_lists(self._table.store, erasures(upkeep))
        self._lists |= lists.keys()
        report.rejects, report.rejects_left = self._rejects.find(join_lists(lists.values()))
        samples = samples_to_erase(self._table.store, report.topic, self._criteria)
        report.samples = sum(rows for _, rows in samples)
        return rows

    def _plan(self, base: Snapshot) -> Change | None:
        self._base_runs, rows, report = self._runs(base), self._find(base), self.report
        if not (rows or report.rejects or report.samples or report.tags or self._says_so):
            return None
        subjects = base.topic(report.topic).index_subjects
        written, tags = self._logs.written(rows, subjects), self._tags.rows(subjects)
        # List the rejects, because the commit records how many of them the next step leaves.
        if report.rejects:
            key = rejects_key(report.attempt_id, self._tries)
            write_list(self._table.store, key, report.topic, self._rejects.leaving)
            self._tries += 1
            self._lists.add(key)
        return Change(
            rows=[*written, report.row(ERASE)],
            replaced=[(row.partition, row.base_offset) for row in rows],
            other_attempts=self._logs.attempts,
            unchanged_topics=[WHOLE_LAKE],
            tags=tags,
        )

    def _runs(self, base: Snapshot) -> set[str]:
        return {run.attempt_id for run in self._table.rows.run_history(base, self.report.topic)}

    def _find_old(self, attempts: TopicAttempts, gone: Collection[str] = ()) -> None:
        """Find old objects, and add them to the report. `gone` are files about to be replaced."""
        objects = OldObjects(self._table, self.report.topic, self._criteria, attempts)
        old = objects.find(self._tasks, gone)
        self.report.deleted = [item.key for item in old]
        self.report.deleted_bytes = sum(item.size for item in old)
