"""Rejected rows that go: out of the quarantine, and out of the samples of failed runs."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from seglake.catalog.failed_run import FailedRun, all_failed_runs, rewrite_failed_run
from seglake.catalog.quarantine.files import (
    FILES,
    RejectsFile,
    is_merged,
    read_all_rejects,
    to_merge,
    write_merged,
    write_rejects,
)
from seglake.catalog.quarantine.leaving import Leaving, are_listed, count, joined, listed
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.engine import Amounts, Engine
from seglake.errors import CommitConflict
from seglake.maintain.erasure.wanted import ErasureCriteria
from seglake.store import Store

_TRIES = 20  # of a commit to the quarantine, when others remove the same files


class _FileRejects(NamedTuple):
    """The rejects of a quarantine file, by attempt: those that go, and the count of all."""

    go: Leaving
    all: Mapping[str, int]


class _Goes(NamedTuple):
    """Which rejects go: those that meet the criteria, and those that unfinished erasures listed."""

    criteria: ErasureCriteria
    earlier: Leaving

    def __call__(self, key: str, rows: pa.Table) -> pa.BooleanArray:
        """Of all rows in the file of the quarantine with this key."""
        return pc.or_(self.criteria.rejects(rows["raw"]), are_listed(key, rows, self.earlier))


class RejectErasure:
    """The rejects of a topic that go. A file of the quarantine is read once.

    `leaving` is the list of those that `find` found last.
    """

    def __init__(self, store: Store, topic: str, criteria: ErasureCriteria, engine: Engine) -> None:
        self._store, self._topic, self._engine = store, topic, engine
        self._table, self._goes = QuarantineTable(store), _Goes(criteria, {})
        self._by_file: dict[str, _FileRejects] = {}
        self._counted = set[str]()  # the attempts that had rejects when `find` was called last
        self.leaving: Leaving = {}

    def find(self, earlier: Leaving) -> tuple[int, dict[str, int]]:
        """How many rows go now; and of each attempt that loses some, how many stay.

        The rows that `earlier` erasures were to take, and did not, go too.
        """
        if earlier != self._goes.earlier:
            self._goes, self._by_file = self._goes._replace(earlier=earlier), {}
        live, all_of = self._live().values(), Counter[str]()
        for file in live:
            all_of.update(file.all)
        self._counted, self.leaving = {*all_of}, joined(file.go for file in live)
        go = {attempt_id: count(files) for attempt_id, files in sorted(self.leaving.items())}
        return sum(go.values()), {
            attempt: all_of[attempt] - number for attempt, number in go.items()
        }

    def files(self) -> list[str]:
        """The files of the quarantine, by their keys, that have some of them now.

        Rejects of an attempt that came after `find` are left alone: no count tells of them.
        """
        return [key for key, file in self._live().items() if not self._counted.isdisjoint(file.go)]

    def erase(self, attempt_id: str, dead: Collection[str] = ()) -> None:
        """Take these rejects out of the quarantine. Raises StoreError and CommitConflict.

        Rejects of the attempts `dead`, which never count, go with those of the same file: in a new
        object they would look like those of an attempt that runs.
        """
        for tries_left in reversed(range(_TRIES)):
            base, keys = self._table.version(), self.files()
            if not keys:
                return
            keep = _WriteRest(
                self._store,
                self._topic,
                attempt_id,
                self._goes,
                frozenset(self._counted),
                frozenset(dead),
            )
            parts = self._engine.map(keep, keys)
            try:
                self._table.replace_files(base, keys, [*chain.from_iterable(parts)], attempt_id)
            except CommitConflict:
                if not tries_left:
                    raise
            else:
                return

    def _live(self) -> dict[str, _FileRejects]:
        """What is found in every file that the quarantine names now."""
        keys = self._table.all_keys(self._topic)
        left = [key for key in keys if key not in self._by_file]
        results = self._engine.map(_Find(self._store, self._goes), left)
        self._by_file |= zip(left, results, strict=True)
        return {key: self._by_file[key] for key in keys}


class _Find(NamedTuple):
    """The task: a file of the quarantine → what goes of it."""

    store: Store
    goes: _Goes

    def __call__(self, key: str) -> _FileRejects:
        rows = read_all_rejects(self.store, key)
        return _FileRejects(listed(key, rows, self.goes(key, rows)), _by_attempt(rows))

    def amounts(self, keys: Sequence[str]) -> Amounts:
        return Amounts.alike(FILES, keys)


def _by_attempt(rows: pa.Table) -> dict[str, int]:
    counts: Any = pc.value_counts(rows["attempt_id"])
    return {item["values"]: item["counts"] for item in counts.to_pylist()}


class _WriteRest(NamedTuple):
    """The task: a file of the quarantine → files with the rejects that stay.

    A merged file stays one, of the attempt `erasure`; of others there is one for each attempt.
    """

    store: Store
    topic: str
    erasure: str
    goes: _Goes
    counted: Collection[str]
    dead: Collection[str]

    def __call__(self, key: str) -> list[RejectsFile]:
        store, topic, merged = self.store, self.topic, is_merged(key)
        rows = to_merge(store, key) if merged else read_all_rejects(store, key)
        is_counted = pc.is_in(rows["attempt_id"], pa.array(sorted(self.counted), pa.string()))
        stay = rows.filter(pc.invert(pc.and_(is_counted, self.goes(key, rows))))
        if merged:
            return [write_merged(store, topic, self.erasure, stay)] if len(stay) else []
        attempts: list[Any] = pc.unique(stay["attempt_id"]).to_pylist()
        return [
            write_rejects(
                store, topic, of_attempt, stay.filter(pc.equal(stay["attempt_id"], of_attempt))
            )
            for of_attempt in attempts
            if of_attempt not in self.dead
        ]

    def amounts(self, keys: Sequence[str]) -> Amounts:
        return Amounts.alike(FILES, keys)


class SampleErasure:
    """The samples of rejects that failed attempts at a topic left."""

    def __init__(self, store: Store, topic: str, criteria: ErasureCriteria) -> None:
        self._store, self._topic, self._criteria = store, topic, criteria

    def find(self) -> int:
        """How many rows go now. Raises CorruptData and StoreError."""
        return sum(len(old.rejects) - len(new.rejects) for old, new in self._changed())

    def erase(self) -> None:
        """Write the samples again without these rows."""
        for _, new in self._changed():
            rewrite_failed_run(self._store, new)

    def _changed(self) -> Iterator[tuple[FailedRun, FailedRun]]:
        for failed in all_failed_runs(self._store, self._topic):
            raw = pa.array([_raw(row) for row in failed.rejects], pa.binary())
            go: list[Any] = self._criteria.rejects(raw).to_pylist()
            if any(go):
                stay = [row for row, goes in zip(failed.rejects, go, strict=True) if not goes]
                yield failed, failed.model_copy(update={"rejects": stay})


def _raw(row: Mapping[str, Any]) -> bytes:
    """The bytes of a row of a sample."""
    raw = row["raw"]
    return raw.encode() if isinstance(raw, str) else base64.b64decode(raw["base64"])
