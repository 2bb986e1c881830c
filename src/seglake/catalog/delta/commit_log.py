"""The commits of a Delta table, written and read by number.

A commit is the object `_delta_log/<version, 20 digits>.json`. Whoever creates that object makes the
version: Delta asks no more of a writer of protocol 2. The versions after a known one are read by
their numbers. The folder grows with every commit, so it is listed only to continue an old version.
A commit passes every commit made since its base that is not in its way, see `DeltaCommit`.
"""

import json
import math
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence

from seglake.catalog.delta.actions import Action, DeltaCommit, header, now_ms, parsed
from seglake.catalog.delta.data_files import read_at_once
from seglake.errors import CommitConflict, CorruptData, MissingObject
from seglake.limits import REQUESTS
from seglake.store import Store

CHECKPOINT_INTERVAL = 25
_ACTIONS_A_COMMIT = 250  # a checkpoint may write so many for each commit since the last checkpoint
_A_DAY_MS = 86_400_000  # much less than the retention of commits
_COMMIT = re.compile(r".*/(\d{20})\.json")
_VERSION = re.compile(r".*/(\d{20})\.(?:json|checkpoint\.parquet)")
_READ_AT_ONCE = 1000
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)


class DeltaLog:
    """The log of the existing table in `folder` of a store."""

    def __init__(self, store: Store, folder: str) -> None:
        self.store, self.folder = store, folder
        self.table_uri = f"{store.uri}/{folder}"

    def commit(
        self,
        base: int,
        actions: Iterable[Action],
        *,
        application: str | None = None,
        info: Mapping[str, str] | None = None,
    ) -> list[DeltaCommit]:
        """Append a commit that continues the version `base`, with `info` in its description.

        Returns the commits after `base`, this one last. Raises CommitConflict if one of the others
        is in the way, and StoreError. After either error the commit may still have been made, so
        its files must stay.
        """
        self._require_recent(base)
        token = str(uuid.uuid4())
        lines = [*header(token, info or {}, application, base + 1), *actions]
        data = "\n".join(map(json.dumps, lines)).encode()
        mine, between = parsed(base, lines), list[DeltaCommit]()
        while not self.store.put_if_absent(self._key(base + 1 + len(between)), data):
            news = self.since(base + len(between))
            if news and news[0].token == token:  # the reply was lost
                return [*between, news[0]]
            if not news or any(commit.is_in_the_way_of(mine) for commit in news):
                raise CommitConflict(f"{self.table_uri} changed after version {base}")
            between += news
        return [*between, mine._replace(version=base + 1 + len(between))]

    def since(self, version: int, most: int = 2**63) -> list[DeltaCommit]:
        """The commits after a version: all of them, or at least the first `most`.

        The list is also empty if the log no longer has the version itself, see `has`. Raises
        CorruptData and StoreError.
        """
        found: list[DeltaCommit] = []
        ahead = 1
        while len(found) < most:
            first = version + 1 + len(found)
            some = read_at_once(self.store, self._read, range(first, first + ahead))
            there = list(_without_gap(some))
            found += there
            if len(there) < ahead:
                break
            ahead = min(2 * ahead, REQUESTS)
        return found

    def retained(
        self, since_ms: float = -math.inf, *, skip_damaged: bool = False
    ) -> Iterator[tuple[int, DeltaCommit]]:
        """The commits written at `since_ms` or later, each with the time at which it was written.

        Both times are those of storage, in milliseconds: a writer's own clock may be wrong. A
        damaged commit raises CorruptData, unless it is to be skipped. Raises StoreError.
        """

        def read(version: int) -> DeltaCommit | None:
            try:
                return self._read(version)
            except CorruptData:
                if skip_damaged:
                    return None
                raise

        listed = self.store.list(f"{self.folder}/_delta_log")
        found = ((_COMMIT.fullmatch(each.key), each.modified_ms) for each in listed)
        times = {int(match[1]): ms for match, ms in found if match and ms >= since_ms}
        for some in _parts(sorted(times)):
            for version, commit in zip(some, read_at_once(self.store, read, some), strict=True):
                if commit is not None:  # it was not cleaned up meanwhile
                    yield times[version], commit

    def has(self, version: int) -> bool:
        """Whether the log still has the commit that made a version."""
        return self._age_ms(version) is not None

    def asks_for_checkpoint(self, version: int) -> bool:
        """Whether the maker of a version has to write a checkpoint.

        A checkpoint also lists the files removed within the retention, so it grows with the commits
        of that time. The larger the last one is, the longer the next one waits.
        """
        if version % CHECKPOINT_INTERVAL:
            return False
        key = f"{self.folder}/_delta_log/_last_checkpoint"
        try:
            last = json.loads(bytes(self.store.read_all(key)))
            return bool(version - last["version"] >= last["size"] / _ACTIONS_A_COMMIT)
        except MissingObject:
            return True
        except _DAMAGE as error:
            raise CorruptData(f"this is not Delta's: {error!r}", file=key) from error

    def _require_recent(self, base: int) -> None:
        """Raise CommitConflict if commits after `base` may be deleted: no number is used twice."""
        if self._is_recent(base):
            return
        listed = self.store.list(f"{self.folder}/_delta_log")
        found = (_VERSION.fullmatch(item.key) for item in listed)
        newest = max(int(match[1]) for match in found if match)
        if base != newest and not self._is_recent(base + 1):
            raise CommitConflict(f"{self.table_uri}: version {base} is too old to continue")

    def _is_recent(self, version: int) -> bool:
        age_ms = self._age_ms(version)
        return age_ms is not None and age_ms <= _A_DAY_MS

    def _age_ms(self, version: int) -> int | None:
        try:
            return now_ms() - self.store.stat(self._key(version)).modified_ms
        except MissingObject:
            return None

    def _read(self, version: int) -> DeltaCommit | None:
        key = self._key(version)
        try:
            lines = bytes(self.store.read_all(key)).splitlines()
        except MissingObject:
            return None
        try:
            return parsed(version, list(map(json.loads, lines)))
        except _DAMAGE as error:
            raise CorruptData(f"this is not a commit of Delta: {error!r}", file=key) from error

    def _key(self, version: int) -> str:
        return f"{self.folder}/_delta_log/{version:020}.json"


def _without_gap(some: Iterable[DeltaCommit | None]) -> Iterator[DeltaCommit]:
    """The commits before the first missing one: one behind it was made after the look for that."""
    for commit in some:
        if commit is None:
            return
        yield commit


def _parts(versions: Sequence[int]) -> Iterator[Sequence[int]]:
    return (versions[at : at + _READ_AT_ONCE] for at in range(0, len(versions), _READ_AT_ONCE))
