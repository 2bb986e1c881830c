"""Write and read the commits of a Delta table by number.

A commit is the object `_delta_log/<version, 20 digits>.json`. The writer that creates this object
makes the version. Delta requires no more of a writer of protocol 2. The versions after a known
version are read by their numbers. The folder grows with every commit, so it is listed only to
continue an old version. A commit can follow commits made since its base, unless one of them
conflicts with it (see `DeltaCommit.conflicts_with`).

Other programs commit too, so every commit that is read is checked against the table's contract. The
commits before a commit of Seglake need no check, because the writer of that commit has checked
them.
"""

import itertools
import json
import math
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from seglake.catalog.delta.actions import (
    FENCE,
    Action,
    DeltaCommit,
    Operation,
    checkpoint_actions,
    header_actions,
    parse_commit,
)
from seglake.catalog.delta.data_files import read_at_once
from seglake.catalog.delta.table_contract import TableContract
from seglake.clock import now_ms
from seglake.errors import (
    CommitConflict,
    CorruptData,
    MissingObject,
    VersionExpired,
    corrupt_unless_parsed,
)
from seglake.limits import REQUESTS
from seglake.store import Listed, Store

CHECKPOINT_INTERVAL = 25
_A_DAY_MS = 86_400_000  # the shortest retention of commits that the contract allows
_COMMIT = re.compile(r".*/(\d{20})\.json")
_NUMBERED = re.compile(r".*/_delta_log/(\d{20})\..+")
_VERSION = re.compile(r".*/(\d{20})\.(?:json|checkpoint\.parquet)")
_READ_AT_ONCE = 1000  # commits in memory while all are read
LOGGED = re.compile(r".*/(\d{20})\.(json|checkpoint\.(?:\d+\.(\d+)\.|.*\.)?parquet)")
_FENCES = 100  # tries at a commit under contention
_REPLAYS = 3  # tries at a replay while old versions are deleted


class DeltaLog:
    """The log of the existing table in `folder` of a store. The table must keep a contract.

    Every `every`-th version may get a checkpoint, by default every `CHECKPOINT_INTERVAL`-th. If the
    last checkpoint has n actions, at least n / `actions` commits are made before the next one.

    Every method that reads commits raises CorruptData if a commit breaks the contract or is
    damaged, VersionExpired if the table was replaced since an earlier call, and StoreError.
    `retained` and `read` do not check the contract.
    """

    def __init__(
        self, store: Store, folder: str, contract: TableContract, every: int = 0, actions: int = 250
    ) -> None:
        self._every, self._actions = every, actions
        self.store, self.folder, self.contract = store, folder, contract.at(store.uri)
        self.table_uri = f"{store.uri}/{folder}"
        self._seen: DeltaCommit | None = None  # the newest commit that was read and checked

    def commit(
        self,
        base: int,
        actions: Iterable[Action],
        *,
        application: str | None = None,
        unchanged: Iterable[str] = (),
        info: Mapping[str, str] | None = None,
        operation: Operation = "WRITE",
        follow: bool = True,
    ) -> list[DeltaCommit]:
        """Append a commit that continues a version.

        After any error, the commit may still have been made, so its data files must be kept.

        Args:
            base: The version to continue.
            actions: The actions that add and remove files.
            application: The id of the commit's app transaction.
            unchanged: The ids of further app transactions.
            info: Further fields of the description.
            operation: Delta's name of the operation.
            follow: Whether the commit may follow other commits made since `base` that do not
                conflict with it. Otherwise, it must be the next commit after `base`.

        Returns:
            All commits after `base`. The new commit is the last.

        Raises:
            CommitConflict: A commit made since `base` conflicts with this one, or `base` is so old
                that commits after it may have been deleted.
        """
        self._require_recent(base)
        if self._seen and not self.is_same_table() and self._seen.version != base:
            # The log keeps each commit after a recent one, so this is another table.
            raise self.replaced_error()
        token = str(uuid.uuid4())
        applications = [each for each in (application, *unchanged) if each is not None]
        lines = [*header_actions(operation, token, info or {}, applications, base + 1), *actions]
        data = "\n".join(map(json.dumps, lines)).encode()
        mine, between = parse_commit(base, lines), list[DeltaCommit]()
        while not self.store.put_if_absent(self._key(base + 1 + len(between)), data):
            news = self.since(base + len(between))
            if news and news[0].token == token:
                # An earlier put of this commit succeeded, and its reply was lost.
                return [*between, news[0]]
            if not (news and follow) or any(commit.conflicts_with(mine) for commit in news):
                raise CommitConflict(f"another commit to {self.table_uri} came first. Run again")
            between += news
        self._seen = mine._replace(version=base + 1 + len(between))
        return [*between, self._seen]

    def fence(
        self, newest: Callable[[], tuple[int, list[Action]]], application: str | None = None
    ) -> int:
        """Commit a fence, so that commits that started earlier lose and their writers retry.

        Before a process deletes files, it commits a fence for all applications. Otherwise, a writer
        that has paused for days could commit and name one of the deleted files.

        Args:
            newest: Returns a version to continue, and actions to commit together with the fence.
            application: The app transaction whose commits lose, or None for all commits.

        Returns:
            The version of the fence.

        Raises:
            CommitConflict: Concurrent commits won all 100 tries.
        """
        info = {FENCE: "all"} if application is None else {}
        for remaining in reversed(range(_FENCES)):
            version, actions = newest()
            removes = any("remove" in action for action in actions)
            operation: Operation = "DELETE" if removes else "WRITE"
            how: Any = {"application": application, "info": info, "operation": operation}
            try:
                return self.commit(version, actions, **how)[-1].version
            except CommitConflict:
                if not remaining:
                    raise
        raise AssertionError

    def since(self, version: int, most: int = 2**63) -> list[DeltaCommit]:
        """Return the commits after a version. At least the first `most` are returned, maybe more.

        The list is empty without a later commit, or if the next commit was deleted (see `has`). It
        is also empty if the newest commit that was read earlier no longer exists, because the table
        may have been rebuilt.
        """
        commits = self._after(version, most)
        if self._seen and commits and not self.is_same_table():
            # They may belong to a rebuilt table, which continues the numbers of the old one.
            return []
        # A late put may have written the newest commit of the old table again.
        if any(commit.begins for commit in commits):
            raise self.replaced_error()
        if commits:
            self._check(commits)
            self._seen = commits[-1]
        return commits

    def _after(self, version: int, most: int) -> list[DeltaCommit]:
        """Return the commits after a version like `since`, without any check."""
        commits: list[DeltaCommit] = []
        ahead = 1
        while len(commits) < most:
            first = version + 1 + len(commits)
            there = self._read_some(range(first, first + ahead))
            commits += there
            if len(there) < ahead:
                break
            ahead = min(2 * ahead, REQUESTS)
        return commits

    def retained(
        self, since_ms: float = -math.inf, *, skip_damaged: bool = False
    ) -> Iterator[tuple[int, DeltaCommit]]:
        """Yield (time in ms, commit) for each commit that was written at `since_ms` or later.

        Times are by the clock of storage, because a writer's clock may be wrong. The commits are
        not checked against the contract. Raises StoreError, and CorruptData for a damaged commit
        unless `skip_damaged`.
        """
        times = {version: ms for version, ms in self.commit_times() if ms >= since_ms}
        for commit in self.read(sorted(times), skip_damaged=skip_damaged):
            yield times[commit.version], commit

    def read(self, versions: Sequence[int], *, skip_damaged: bool = False) -> Iterator[DeltaCommit]:
        """Yield the commits of these versions that still exist. Raises what `retained` raises."""

        def read(version: int) -> DeltaCommit | None:
            try:
                return self._read(version)
            except CorruptData:
                if skip_damaged:
                    return None
                raise

        for at in range(0, len(versions), _READ_AT_ONCE):
            some = versions[at : at + _READ_AT_ONCE]
            yield from filter(None, read_at_once(self.store, read, some))

    def commit_times(self) -> list[tuple[int, int]]:
        """Return the version and the time (ms) of each retained commit, oldest first.

        Times are by the clock of storage.
        """
        return sorted((version, item.modified_ms) for version, item in self._listed(_COMMIT))

    def _listed(self, pattern: re.Pattern[str]) -> Iterator[tuple[int, Listed]]:
        """Yield (version, object) for each object of the log whose key matches `pattern`."""
        for item in self.store.list(f"{self.folder}/_delta_log"):
            if match := pattern.fullmatch(item.key):
                yield int(match[1]), item

    def has(self, version: int) -> bool:
        """Return whether the log still has the commit that made a version."""
        is_there = self.is_same_table()
        if self._seen and self._seen.version == version:
            return is_there
        return self._age_ms(version) is not None

    def is_same_table(self) -> bool:
        """Return whether the newest commit that was read still exists.

        Raises VersionExpired if another commit has its number, because the table was rebuilt.
        """
        there = self._read(self._seen.version) if self._seen else None
        if there not in (None, self._seen):
            raise self.replaced_error()
        return there is not None

    def replaced_error(self) -> VersionExpired:
        """Return the error for a table that was replaced since it was opened."""
        what = "was created again after it was opened, probably by `seglake repair --catalog`"
        return VersionExpired(f"{self.table_uri} {what}. Open the lake again")

    def check_to(self, version: int) -> None:
        """Check the commits up to a version, back to a commit that was already checked.

        The checks end at the newest commit that this object has checked, or at a commit of Seglake.
        """
        checked = self._seen.version if self._seen else -1
        commits = self._commits_back_from(version, checked) if self.contract.guards else []
        self._check(reversed(_before_ours(commits)))
        self._seen = commits[0] if commits else self._seen

    def foreign_commits(self, version: int) -> list[DeltaCommit]:
        """Return the commits up to a version that follow Seglake's last commit, newest first."""
        return _before_ours(self._commits_back_from(version))

    def _commits_back_from(
        self, version: int, checked: int = -1, known: Iterable[DeltaCommit] = ()
    ) -> list[DeltaCommit]:
        """Return the commits from a version back to Seglake's last one or to `checked` + 1.

        `known` are the newest of these commits, newest first. They are not read again.
        """
        commits = [*known]
        ahead = 1
        while not any(commit.is_ours for commit in commits):
            last = version - len(commits)
            some = self._read_some(range(last, max(checked, last - ahead), -1))
            if not some:
                break
            commits += some
            ahead = min(2 * ahead, REQUESTS)
        return commits

    def replay(self) -> tuple[list[DeltaCommit], list[DeltaCommit]]:
        """Return the commits that make the newest version, and its foreign commits (newest first).

        The last checkpoint replaces earlier commits. Each object is read once. Raises MissingObject
        without a table, and CommitConflict if old versions are deleted again and again.
        """
        for _ in range(_REPLAYS):
            last, _size = self._last_checkpoint()
            after = f"{self.folder}/_delta_log/{last:020}" if last >= 0 else ""
            first, there = self._checkpoint_and_commits(2**63, after)
            if not there:
                raise MissingObject(f"{self.table_uri}: the table does not exist")
            files = [key for number, key in there if number == first]
            newest = max(number for number, _ in there)
            with suppress(MissingObject):
                with corrupt_unless_parsed("a checkpoint of Delta", files[0] if files else ""):
                    parts = [checkpoint_actions(bytes(self.store.read_all(key))) for key in files]
                    found = [parse_commit(first, itertools.chain(*parts))] if files else []
                commits = self._read_some(range(first + 1, newest + 1))
                if first + len(commits) == newest:
                    back = self._commits_back_from(newest, known=reversed(commits))
                    return [*found, *commits], _before_ours(back)
        raise CommitConflict(f"{self.table_uri} has no commit or checkpoint after version {first}")

    def check_all(self) -> None:
        """Check every retained commit, even if Seglake made a later commit."""
        last = min((version for version, _ in self._listed(_COMMIT)), default=0) - 1
        while commits := self._after(last, _READ_AT_ONCE):
            self._check(commits)
            last = commits[-1].version

    def retains(self, version: int) -> bool:
        """Return whether a version can be loaded from a checkpoint and all commits after it."""
        first, there = self._checkpoint_and_commits(version)
        return {number for number, _ in there}.issuperset(range(first + 1, version + 1))

    def parts_of(self, version: int) -> list[str]:
        """Return the keys of the last checkpoint up to a version, and of the commits after it."""
        _, there = self._checkpoint_and_commits(version)
        return sorted(key for number, key in there if number <= version)

    def _checkpoint_and_commits(
        self, version: int, after: str = ""
    ) -> tuple[int, list[tuple[int, str]]]:
        """Return the last checkpoint up to `version` (else -1), its files, and all later commits.

        Files and commits are in one list of (version, key). Only keys after `after` are listed.
        """
        commits, checkpoints = list[tuple[int, str]](), list[tuple[int, str]]()
        left = dict[int, int]()  # files that are missing for a complete checkpoint
        for item in self.store.list(f"{self.folder}/_delta_log", after):
            if match := LOGGED.fullmatch(item.key):
                number = int(match[1])
                (commits if match[2] == "json" else checkpoints).append((number, item.key))
                if match[2] != "json":
                    left[number] = left.get(number, int(match[3] or 1)) - 1
        whole = (number for number, missing in left.items() if number <= version and missing <= 0)
        first = max(whole, default=-1)
        mine = [file for file in checkpoints if file[0] == first]
        return first, [*mine, *(file for file in commits if file[0] > first)]

    def needs_checkpoint(self, version: int) -> bool:
        """Return whether the writer of a version must also write a checkpoint.

        A checkpoint also lists the files removed within the retention, so it grows with the commits
        of that time. The larger the last checkpoint is, the more commits pass before the next one.
        """
        if version % (self._every or CHECKPOINT_INTERVAL):
            return False
        last, size = self._last_checkpoint()
        return last < 0 or (version - last) * self._actions >= size

    def _last_checkpoint(self) -> tuple[int, int]:
        """Return (version, number of actions) of the last checkpoint, or (-1, 0) without one."""
        key = f"{self.folder}/_delta_log/_last_checkpoint"
        with suppress(MissingObject), corrupt_unless_parsed("the name of a checkpoint", key):
            last = json.loads(bytes(self.store.read_all(key)))
            return int(last["version"]), int(last["size"])
        return -1, 0

    def _require_recent(self, base: int) -> None:
        """Raise CommitConflict if commits after `base` may be deleted."""
        # A new commit must not get the number of a deleted one.
        if self._is_recent(base):
            return
        newest = max(version for version, _ in self._listed(_VERSION))
        if base != newest and not self._is_recent(base + 1):
            raise CommitConflict(f"version {base} of {self.table_uri} is too old. Run again")

    def _is_recent(self, version: int) -> bool:
        age_ms = self._age_ms(version)
        return age_ms is not None and age_ms <= _A_DAY_MS

    def _age_ms(self, version: int) -> int | None:
        try:
            return now_ms() - self.store.stat(self._key(version)).modified_ms
        except MissingObject:
            return None

    def _check(self, commits: Iterable[DeltaCommit]) -> None:
        for commit in commits:
            self.contract.check_rows(commit, self._key(commit.version))

    def _read_some(self, versions: Sequence[int]) -> list[DeltaCommit]:
        """Return the commits of `versions`, in their order, up to the first missing commit."""
        commits: list[DeltaCommit] = []
        for commit in read_at_once(self.store, self._read, versions):
            # Later commits were made after this function failed to read the missing commit.
            if commit is None:
                break
            commits.append(commit)
        return commits

    def _read(self, version: int) -> DeltaCommit | None:
        key = self._key(version)
        with suppress(MissingObject), corrupt_unless_parsed("a commit of Delta", key):
            lines = bytes(self.store.read_all(key)).splitlines()
            return parse_commit(version, list(map(json.loads, lines)))
        return None

    def _key(self, version: int) -> str:
        return f"{self.folder}/_delta_log/{version:020}.json"


def _before_ours(commits: Iterable[DeltaCommit]) -> list[DeltaCommit]:
    return list(itertools.takewhile(lambda commit: not commit.is_ours, commits))


def highest_version(store: Store, table: str) -> int:
    """Return the highest version in the logs of a table and of its backups, or -1 without a log.

    `table` is the table's folder. The folders of backups have names that begin with it.
    """
    parent, _, _ = table.rpartition("/")
    named = (item.key for item in store.list(parent) if item.key.startswith(table))
    versions = [int(match[1]) for match in map(_NUMBERED.fullmatch, named) if match]
    return max(versions, default=-1)
