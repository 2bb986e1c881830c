"""Delete the objects that no retained version, tag or running attempt needs.

A vacuum must not delete a file that a paused writer is about to commit:

    1. A writer reads version 7, writes data file F for its commit, and pauses for a day.
    2. A vacuum finds no version that names F, and deletes it.
    3. The writer commits version 8, which names F. Nobody can open the lake any more.

So a vacuum works in this order (I1, I5, I6):

    1. Read storage's clock, and write missing markers of committed attempts. Delete ended tags.
       List the data files that recent commits removed, see `catalog.retention`.
    2. Find the old objects that nothing names. An attempt whose newest unnamed object is younger
       than the grace period may still run, so its objects are kept. Abandon the other attempts, see
       `catalog.attempts`. Claims are kept for 30 days, because an abandoned attempt may still run
       and must find its claim.
    3. If data files of the catalog are among the objects, commit a fence, then search again among
       the same files. A commit before the fence is found by this search. A later commit loses, and
       its writer writes its files again.
    4. Remove the quarantine files to delete from their table, in a fence.
    5. Delete the expired data files first, so that an expired version cannot be opened any more.
    6. If segments are to be deleted, commit a fence and read the tags again. A tag of an expired
       version that was made in the meantime keeps its segments. A later tag finds that the version
       has expired (decision 27).
    7. Delete archived manifests, then everything else. A manifest without its marker would count as
       the manifest of a failed attempt.
    8. Archive old manifests, if there are many.

The catalog's retention decides which versions are retained (30 days, see `catalog.retention`). The
vacuum keeps a hash of each named object, and the keys of all other objects, in memory.
"""

from __future__ import annotations

import logging
import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from seglake import layout
from seglake.catalog import deletions
from seglake.catalog.attempts import archived_since, list_attempts, write_archives
from seglake.catalog.commits import sync_commits
from seglake.catalog.quarantine.files import only_attempt, writing_attempt
from seglake.catalog.quarantine.open_rejects import expired_attempts
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.retention import (
    UnreferencedFiles,
    expired_files,
    retained_rows,
    tagged_rows,
    write_removed_files_list,
)
from seglake.catalog.schema import Kind, MaintenanceRow, RunState, rows_of
from seglake.catalog.table import CatalogTable
from seglake.catalog.transaction import abandon_all, announce
from seglake.clock import now_ms
from seglake.errors import (
    AttemptAbandoned,
    CommitConflict,
    CorruptData,
    MissingObject,
    StoreError,
    warn_on,
)
from seglake.limits import GRACE_HOURS, HOUR_MS
from seglake.maintain.commit import MaintenanceReport, check_hours, storage_time_ms
from seglake.maintain.tagging import delete_ended, ended_tags, tag_usage
from seglake.store import Listed, Store, open_store
from seglake.write.driver.report import Progress, silent

Unnamed = dict[str | None, list[Listed]]

_CLAIM_HOURS = 30 * 24  # how long the claim of an abandoned attempt is kept
_ARCHIVE_HOURS = 2 * _CLAIM_HOURS  # a vacuum reads the manifest archives of this period
_DELETE_AT_ONCE = 1000
_GONE: list[RunState] = ["undone", "replaced"]
_IN_VAIN = (CommitConflict, AttemptAbandoned, CorruptData, MissingObject)
_log = logging.getLogger(__name__)
TEMPORARY = re.compile(r"(.+)\.[0-9a-f]{32}\.tmp")  # of a local write, remains after a crash


@dataclass(repr=False)
class VacuumResult(MaintenanceReport):
    """The objects that a vacuum deleted, or would delete.

    `catalog_files` are data files of the catalog, `deleted` are all other objects, and
    `deleted_bytes` is the total size of `catalog_files` and `deleted`. `rewritten` quarantine files
    were replaced by files without the rejects of expired attempts. A later vacuum deletes the old
    files. `young` objects are kept because they belong to attempts that may still run, and
    `unknown` objects are kept because Seglake did not write them. `marked` attempts are committed
    and get their missing marker. `folded` is the number of old manifests that were archived. `tags`
    has the fields of a `TagUsage` for each tag. `ended_tags` are the names of the tags whose
    `until` has passed. The vacuum deletes these tags.
    """

    dry_run: bool
    deleted: list[str] = field(default_factory=list)
    deleted_bytes: int = 0
    rewritten: list[str] = field(default_factory=list)
    catalog_files: list[str] = field(default_factory=list)
    young: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    marked: list[str] = field(default_factory=list)
    folded: int = 0
    tags: list[dict[str, Any]] = field(default_factory=list)
    ended_tags: list[str] = field(default_factory=list)


def vacuum(
    root: str,
    *,
    dry_run: bool,
    grace_hours: float = GRACE_HOURS,
    retention_hours: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> VacuumResult:
    """Delete the objects that no retained version, tag or running attempt needs.

    Args:
        root: The folder or URI of the lake.
        dry_run: Only report the objects. Use this machine's clock, not the clock of storage.
        grace_hours: Objects of an attempt that wrote something within this time are kept.
        retention_hours: How long a version is retained after it was replaced. By default, the
            setting of the catalog applies. With a shorter time, more versions expire.
        storage_options: Options of the store.
        progress: Called with the name of each step, and with the number of deleted objects.

    Raises:
        UsageError: A number of hours is negative.
        CorruptData: The catalog cannot be read. Nothing was deleted.
        CommitConflict: Concurrent commits won all retries.
        StoreError: Storage failed.

    Example:
        >>> seglake.vacuum("lake", dry_run=True).deleted
        []
    """
    check_hours("--grace-hours", grace_hours)
    check_hours("retention_hours", retention_hours or 0)
    store = open_store(root, storage_options)
    table, report = CatalogTable.open(store), VacuumResult(dry_run)
    own = _Scope(now_ms(), grace_hours, retention_hours)
    scope = own if dry_run else _by_storage(table, own)
    if scope is None:
        return report
    archived = archived_since(store, scope.oldest_ms - _ARCHIVE_HOURS * HOUR_MS)
    old = {attempt_id for attempt_id, ms in archived.items() if ms <= scope.oldest_ms}
    mark = table.commits.without_marker if dry_run else table.commits.write_missing_markers
    report.marked = sorted(mark(table.newest_files()))
    report.ended_tags = ended_tags(table, min(own.now_ms, scope.now_ms))
    if not dry_run:
        delete_ended(table, report.ended_tags)
        write_removed_files_list(table.log)
    scope = scope._replace(archived=old, marked=report.marked, ended_tags=report.ended_tags)
    sweep = _Sweep(table, scope, progress)
    garbage = sweep.find() if dry_run else sweep.carry_out()
    report.catalog_files, report.deleted = _keys(garbage.data_files), _keys(garbage.others)
    report.deleted_bytes = sum(item.size for item in (*garbage.data_files, *garbage.others))
    report.young, report.unknown = garbage.young, garbage.unknown
    report.rewritten = [*chain.from_iterable(garbage.merged.values())]
    report.tags = [hold._asdict() for hold in tag_usage(table, report.ended_tags)]
    report.folded = archive_manifests(store, archived, scope.oldest_ms, dry_run=dry_run)
    return report


class EndedAttempts(Protocol):
    """The attempts that a search found: attempts to abandon, and committed attempts."""

    @property
    def to_abandon(self) -> set[str]:
        """Return the attempts that have ended and did not commit."""

    @property
    def committed(self) -> set[str]:
        """Return the attempts that have a commit in the catalog."""


AnyEnded = TypeVar("AnyEnded", bound=EndedAttempts)


def resolve(table: CatalogTable, find: Callable[[], AnyEnded]) -> AnyEnded:
    """Call `find`, abandon the `to_abandon` attempts of its result, and return the last result.

    If an abandoned attempt had claimed, `find` is called again, because the attempt may have
    committed. Raises CommitConflict and StoreError.
    """
    garbage = find()

    def committed() -> Collection[str]:
        nonlocal garbage
        # One of the attempts may have committed before it was abandoned.
        garbage = find()
        return garbage.committed

    while abandon_all(table, garbage.to_abandon, committed):
        pass
    return garbage


def delete_objects(store: Store, keys: Sequence[str], progress: Progress = silent) -> None:
    """Delete objects in the order of `keys`, up to 1000 in one request.

    Commits are synced to disk first. Otherwise, if the process that made a commit died, a power
    failure could revert the commit, and the catalog would name deleted objects. Open readers are
    notified of deleted logs. Raises StoreError.
    """
    if keys:
        sync_commits(store)
    with deletions.notify_readers(store, keys):
        for first in range(0, len(keys), _DELETE_AT_ONCE):
            progress(f"deleting objects, {first:,} of {len(keys):,}")
            store.delete(keys[first : first + _DELETE_AT_ONCE])


class _Scope(NamedTuple):
    """The times that decide which objects a vacuum may delete, and what it found before its search.

    `now_ms` is the present time. `grace_hours` is how long the objects of an attempt that writes
    nothing are kept, and `retention_hours` how long replaced versions are kept. `archived` are the
    attempts in manifest archives that are older than the grace period, `marked` are committed
    attempts that had no marker, and `ended_tags` are tags that do not count.
    """

    now_ms: int
    grace_hours: float
    retention_hours: int | None
    archived: Collection[str] = ()
    marked: Collection[str] = ()
    ended_tags: Collection[str] = ()

    @property
    def oldest_ms(self) -> float:
        """Return the time (ms) before which an object must have been written to be deleted.

        A commit may still need objects that were written after this time.
        """
        return self.now_ms - self.grace_hours * HOUR_MS


def _by_storage(table: CatalogTable, own: _Scope) -> _Scope | None:
    """Return `own` with the present time by the clock of storage, or None for nothing to do.

    None is returned only if storage cannot be written to, and a vacuum by this machine's clock
    finds nothing to do. If it finds something, StoreError is raised.
    """
    try:
        return own._replace(now_ms=storage_time_ms(table.store))
    except StoreError:
        marked = table.commits.without_marker(table.newest_files())
        garbage = _find(table, own._replace(marked=marked))
        work = garbage.data_files or garbage.others or garbage.to_abandon or garbage.merged
        if marked or work or ended_tags(table, own.now_ms):
            raise
        return None


class _Garbage(NamedTuple):
    """The objects that a search found, the attempts to abandon first, and what versions name.

    `data_files` of the catalog and `others` are deleted. `young` and `unknown` objects are kept,
    see `VacuumResult`. `merged` has the topics and keys of merged quarantine files with rejects of
    expired attempts.
    """

    data_files: list[Listed]
    others: list[Listed]
    young: list[str]
    unknown: list[str]
    to_abandon: set[str]
    named: NamedFiles
    merged: Mapping[str, Sequence[str]]

    @property
    def committed(self) -> set[str]:
        """Return the committed attempts."""
        return self.named.attempts


def _keys(objects: Iterable[Listed]) -> list[str]:
    return [item.key for item in objects]


class _Sweep:
    """Finds the garbage of a lake, and deletes it."""

    def __init__(self, table: CatalogTable, scope: _Scope, progress: Progress) -> None:
        self._table, self._scope, self._progress = table, scope, progress
        # Read the tags before the first search, so that later tags are noticed.
        self._tags = table.tags.live()

    def find(self, among: Collection[str] | None = None) -> _Garbage:
        """Search for garbage, see `_find`."""
        self._progress("searching objects that no version names")
        return _find(self._table, self._scope, among)

    def carry_out(self) -> _Garbage:
        """Find garbage, delete it, and return it. Raises StoreError and CommitConflict."""
        store, archived = self._table.store, self._scope.archived
        garbage = self._fenced()
        rewritten = self._drop_rejects(garbage)
        garbage = self._remove_from_quarantine(garbage)
        delete_objects(store, _keys(garbage.data_files), self._progress)
        garbage = self._without_new_tags(garbage)
        keys = _keys(garbage.others)
        manifests = [key for key in keys if layout.parse_manifest_key(key) in archived]
        # Delete manifests first, because a manifest without its marker looks like a failed attempt.
        delete_objects(store, manifests, self._progress)
        rest = {*keys} - {*manifests}
        delete_objects(store, [key for key in keys if key in rest], self._progress)
        return garbage._replace(merged=rewritten)

    def _fenced(self) -> _Garbage:
        """Return the garbage. If it has data files of the catalog, commit a fence and search again.

        A writer may have paused for any time since it wrote such a file for its commit. A commit
        before the fence is found by the second search, and its files are kept. A later commit loses
        to the fence, and its writer writes the files again.
        """
        garbage = resolve(self._table, self.find)
        if not garbage.data_files:
            return garbage
        self._table.commits.fence()
        return resolve(self._table, partial(self.find, {*_keys(garbage.data_files)}))

    def _drop_rejects(self, garbage: _Garbage) -> dict[str, list[str]]:
        """Rewrite merged quarantine files without the rejects of expired attempts.

        The rewrite of a topic is an announced attempt, because it copies rejects. If it loses a
        race, or if a file is damaged, a warning is logged, and a later vacuum retries the topic.
        Return the keys of the old files by topic.
        """
        quarantine, rewritten = QuarantineTable(self._table.store), dict[str, list[str]]()
        for topic in sorted(garbage.merged):
            attempt_id = layout.new_attempt()
            with announce(self._table, attempt_id, topic):
                problem = f"cannot remove old rejects of {topic}. A later vacuum retries it"
                with warn_on(_IN_VAIN, problem, _log):
                    gone = garbage.named.expired
                    rewritten[topic] = quarantine.drop_rejects(topic, gone, attempt_id)
        return rewritten

    def _remove_from_quarantine(self, garbage: _Garbage) -> _Garbage:
        """Remove files from the quarantine table, and return the garbage without files to keep.

        Afterwards, commits in progress cannot name the removed files. Files with rejects that
        count are kept if the table names them.
        """
        files = {*filter(writing_attempt, _keys(garbage.others))}
        lost = {key for key in files if not garbage.named.counts(only_attempt(key))}
        spared = QuarantineTable(self._table.store).remove_files(lost, files - lost)
        return garbage._replace(others=[item for item in garbage.others if item.key not in spared])

    def _without_new_tags(self, garbage: _Garbage) -> _Garbage:
        """Return the garbage without the files of tags that were made in the meantime.

        The data files of expired versions are already deleted, so a tag that is made after the
        fence finds that its version has expired. Objects that only the second search finds are
        kept, because the quarantine may name them.
        """
        table, keys = self._table, {*_keys(garbage.others)}
        if not any(key.startswith(f"{layout.TOPICS}/") for key in keys):
            return garbage
        table.commits.fence()
        if table.tags.live() == self._tags:
            return garbage
        again = resolve(table, partial(self.find, ()))
        others = [item for item in again.others if item.key in keys]
        return again._replace(data_files=garbage.data_files, others=others)


def _find(table: CatalogTable, scope: _Scope, among: Collection[str] | None = None) -> _Garbage:
    """Return the garbage, with only those data files of the catalog that are in `among`, if passed.

    A commit may name a data file in the meantime, so such a file is kept.
    """
    oldest_ms = scope.oldest_ms
    never_named = UnreferencedFiles.from_table(table, scope.retention_hours, now_ms=scope.now_ms)
    expired = expired_files(table, never_named, oldest_ms)
    expired = [item for item in expired if among is None or item.key in among]
    unnamed, named = find_unreferenced(
        table, {*_keys(expired)}, scope.marked, never_named, scope.ended_tags, scope.archived,
        rejects_since_ms=oldest_ms,
    )  # fmt: skip
    newest = {f"{layout.LOG_TABLE}/{file.path}" for file in table.newest_files()}
    garbage = _Garbage(
        data_files=sorted(item for item in expired if item.key not in newest),
        others=[],
        young=[],
        unknown=_keys(unnamed.pop(None, ())),
        to_abandon=set(),
        named=named,
        merged=QuarantineTable(table.store).merged_with(named.expired),
    )
    for owner, objects in unnamed.items():
        others = [item for item in objects if not is_claim(item)]
        if may_still_run(others, oldest_ms):
            garbage.young.extend(_keys(others))
            continue
        long_ago_ms = oldest_ms - _CLAIM_HOURS * HOUR_MS
        garbage.others.extend(
            others or [item for item in objects if item.modified_ms <= long_ago_ms]
        )
        is_needed = any(map(is_needed_to_commit, others))
        if is_needed and owner is not None and owner not in named.attempts:
            garbage.to_abandon.add(owner)
    return garbage


def may_still_run(objects: Iterable[Listed], oldest_ms: float) -> bool:
    """Return whether an attempt that wrote these unnamed objects may still run.

    It may if it wrote one of them after `oldest_ms`, the start of the grace period. Its claim does
    not count, because a vacuum or an erasure that abandons the attempt writes the claim.
    """
    return any(item.modified_ms > oldest_ms for item in objects if not is_claim(item))


def is_claim(item: Listed) -> bool:
    """Return whether an object is the claim of an attempt."""
    return item.key.startswith(f"{layout.ATTEMPTS}/") and item.key.endswith("/fate")


def is_needed_to_commit(item: Listed) -> bool:
    """Return whether an attempt needs this object to commit."""
    if item.key.startswith(f"{layout.ATTEMPTS}/"):
        named = item.key.endswith(("/manifest.json", "/begun"))
        return named or "/blobs/" in item.key or layout.is_rejects_key(item.key)
    return not (item.key.startswith(f"{layout.CATALOG}/") and TEMPORARY.fullmatch(item.key))


def find_unreferenced(
    table: CatalogTable,
    expired: Container[str],
    marked: Iterable[str],
    never_named: UnreferencedFiles,
    without_tags: Collection[str] = (),
    archived: Collection[str] = (),
    *,
    rejects_since_ms: float,
) -> tuple[Unnamed, NamedFiles]:
    """Return the objects that no retained version names, by attempt, and the named objects.

    The catalog is read before the objects are listed. If an object is not named, the catalog is
    read again, because another process may have committed the object in the meantime. Tagged
    versions count as retained.

    Args:
        table: The catalog.
        expired: Keys of data files of the catalog that are ignored.
        marked: Committed attempts. Attempts with a success marker are added.
        never_named: Keys of data files that no version names. Their rows name segments of attempts
            that may still commit, but do not prove that these attempts are committed.
        without_tags: Names of tags that are ignored.
        archived: Attempts in old manifest archives. Their manifests and markers are not needed.
        rejects_since_ms: A time (ms) by the clock of storage. A quarantine file counts as named if
            the quarantine has named it since then.

    Returns:
        The unnamed objects by attempt, and the named objects. An object of unknown origin is
        under None. A temporary file that belongs to no attempt is under its own key.

    Raises:
        MissingObject: A data file of the newest version does not exist.
        CorruptData: A data file is damaged.
        StoreError: Storage failed.
    """
    places = (layout.TOPICS, layout.ATTEMPTS, layout.CATALOG, layout.CHRONICLES)
    listed = chain.from_iterable(map(table.store.list, places))
    others = (item for item in listed if item.key not in expired)
    among = (table, expired, never_named, without_tags, rejects_since_ms)
    marked = {*marked, *archived}
    named = _named(*among, marked)._replace(archived=archived)
    left = [item for _, item in _unneeded(others, named)]
    more = {item.key.split("/")[1] for item in left if item.key.endswith("/success")}
    if left:
        named = _named(*among, marked | more)._replace(archived=archived)
    unnamed: Unnamed = defaultdict(list)
    for owner, item in _unneeded(left, named):
        unnamed[owner].append(item)
    return unnamed, named


def orphans(table: CatalogTable) -> Iterator[str]:
    """Yield the keys of all objects, of any age, that no retained version names."""
    never_named = UnreferencedFiles.from_table(table, now_ms=now_ms())
    expired = {item.key for item in expired_files(table, never_named, math.inf)}
    unnamed, _ = find_unreferenced(
        table,
        expired,
        table.commits.without_marker(table.newest_files()),
        never_named,
        rejects_since_ms=now_ms() - GRACE_HOURS * HOUR_MS,
    )
    yield from (item.key for objects in unnamed.values() for item in objects if not is_claim(item))


class NamedFiles(NamedTuple):
    """The attempts and objects that retained versions and tags name.

    `attempts` are committed. `files` has a hash for each named log, and for each named set of index
    files. `rejects` are the keys of the files that the quarantine names, or named recently.
    """

    attempts: set[str]
    files: set[int]
    expired: set[str]  # attempts whose rejects no longer count
    rejects: set[str] | None  # None if there is no quarantine table
    tags: set[str]  # attempts that wrote the object of a tag
    archived: Collection[str] = ()  # attempts whose manifests are archived

    def counts(self, attempt_id: str | None) -> bool:
        """Return whether an attempt is committed and its rejects have not expired.

        Return True if `attempt_id` is None, which stands for a merged file.
        """
        return attempt_id is None or (
            attempt_id in self.attempts and attempt_id not in self.expired
        )

    def needs(self, file: layout.SegmentFile) -> bool:
        """Return whether a segment row names this log, or the set of index files with this file."""
        name = (file.topic, file.partition, file.base_offset, file.attempt_id, file.is_log)
        # If two hashes collide, an object is kept that could be deleted.
        return hash(name) in self.files


def _named(
    table: CatalogTable,
    expired: Container[str],
    never_named: UnreferencedFiles,
    without_tags: Collection[str],
    rejects_since_ms: float,
    marked: Iterable[str],
) -> NamedFiles:
    """Return the attempts and objects that the rows of retained versions and tags name.

    The attempts include `marked`. Rows in files of `never_named` do not count: an attempt that
    paused may have written them without a commit, however old they are.
    """
    attempts, files, without_rejects = set(marked), set[int](), set[str]()
    kinds: tuple[Kind, ...] = ("run", "maintenance")
    for kind in kinds:
        for topic, rows, _, live in retained_rows(table, kind, never_named):
            commits: list[Any] = rows["attempt_id"].to_pylist()
            attempts.update(commits)
            if kind == "maintenance":
                without_rejects |= expired_attempts(rows_of(MaintenanceRow, topic, rows))
            elif live:
                undone = pc.is_in(rows["state"], pa.array(_GONE))
                gone: list[Any] = rows["attempt_id"].filter(undone).to_pylist()
                without_rejects.update(gone)
    tags = [tag for tag in table.tags.live() if tag.name not in without_tags]
    retained = retained_rows(table, "segment", expired, never_named)
    for topic, rows, committed, _ in chain(retained, tagged_rows(table, tags)):
        for column, is_log in ((rows["attempt_id"], True), (rows["index_attempt_id"], False)):
            columns = (rows["partition"], rows["base_offset"], column)
            values = (id_column.to_pylist() for id_column in columns)
            files.update(map(hash, zip(repeat(topic), *values, repeat(is_log))))
            ids: list[Any] = pc.unique(column).to_pylist() if committed else []
            attempts.update(ids)
    # Read the quarantine after the runs.
    rejects = QuarantineTable(table.store).retained_keys(rejects_since_ms)
    return NamedFiles(attempts, files, without_rejects, rejects, {tag.attempt_id for tag in tags})


def _unneeded(objects: Iterable[Listed], named: NamedFiles) -> Iterator[tuple[str | None, Listed]]:
    """Yield (owner, object) for each object that nothing needs. Unknown objects have no owner."""
    for item in objects:
        partial_write = TEMPORARY.fullmatch(item.key)
        try:
            owner, needed = _place(partial_write[1] if partial_write else item.key, named)
        except CorruptData:
            yield None, item
        else:
            if partial_write or not needed:
                yield owner or item.key, item


def _place(key: str, named: NamedFiles) -> tuple[str, bool]:
    """Return the attempt of an object, or "", and whether something still needs the object."""
    if writer := layout.parse_tag_key(key):
        return writer, writer in named.tags
    if key.startswith(f"{layout.CATALOG}/"):
        writer = writing_attempt(key)
        named_there = named.rejects is None or key in named.rejects
        return writer or "", writer is None or (named_there and named.counts(only_attempt(key)))
    if key.startswith(f"{layout.TOPICS}/"):
        file = layout.parse_segment_key(key)
        return file.attempt_id, named.needs(file)
    if layout.is_archive_key(key) or key == layout.TOMBSTONES:
        return "", True
    attempt_id, name = layout.parse_attempt_key(key)
    # Blobs, announcements and reports of failures are not needed after the attempt has ended.
    if attempt_id in named.archived and layout.is_of_commit(name):
        return attempt_id, False
    return attempt_id, attempt_id in named.attempts and "/" not in name and name != "begun"


# ---------------- archiving manifests
# Old manifests are archived, see `catalog.attempts`, so that the listing of a vacuum does not grow
# with the history. At least a thousand are archived together. Their attempts must have written
# nothing for the grace period.

_FEW = 1000  # fewer old manifests are not archived


def archive_manifests(
    store: Store, archived: Container[str], oldest_ms: float, *, dry_run: bool
) -> int:
    """Archive the manifests of attempts that have written nothing since `oldest_ms`.

    Attempts in `archived` are already archived. Return the number of archived manifests, or 0 if
    there were fewer than a thousand to archive. Raises StoreError.
    """
    old = {
        attempt_id: each.lost_races
        for attempt_id, each in sorted(list_attempts(store).items())
        if each.marked
        and not each.unfinished
        and each.lost_races >= 0
        and each.newest_ms <= oldest_ms
        and attempt_id not in archived
    }
    if len(old) < _FEW:
        return 0
    return len(old if dry_run else write_archives(store, old))
