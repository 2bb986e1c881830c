"""Rejected rows that go: out of the quarantine, and out of the samples of failed runs."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from seglake.catalog.delta.actions import WrittenFile
from seglake.catalog.failed_run import FailedRun, all_failed_runs, rewrite_failed_run
from seglake.catalog.quarantine.files import read_all_rejects, write_rejects
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.engine import Engine
from seglake.errors import CommitConflict
from seglake.maintain.erasure.wanted import Wanted
from seglake.store import Store

_TRIES = 20  # of a commit to the quarantine, when others remove the same files


class _Counts(NamedTuple):
    """The rejects of a quarantine file, by attempt: those that go, and all."""

    go: Mapping[str, int]
    all: Mapping[str, int]


class RejectErasure:
    """The rejects of a topic that go. A file of the quarantine is read once."""

    def __init__(self, store: Store, topic: str, wanted: Wanted, engine: Engine) -> None:
        self._store, self._topic, self._wanted, self._engine = store, topic, wanted, engine
        self._table = QuarantineTable(store)
        self._counts: dict[str, _Counts] = {}

    def find(self) -> tuple[int, dict[str, int]]:
        """How many rejects go now; and of each attempt that loses some, how many stay."""
        go, all_of = Counter[str](), Counter[str]()
        for counts in self._live().values():
            go.update(counts.go)
            all_of.update(counts.all)
        return go.total(), {each: all_of[each] - count for each, count in sorted(go.items())}

    def files(self) -> list[str]:
        """The files of the quarantine, by their keys, that have some of them now."""
        return [key for key, counts in self._live().items() if counts.go]

    def erase(self, attempt_id: str) -> None:
        """Take these rejects out of the quarantine. Raises StoreError and CommitConflict."""
        for tries_left in reversed(range(_TRIES)):
            keys = self.files()
            if not keys:
                return
            parts = self._engine.map(partial(_kept, self._store, self._topic, self._wanted), keys)
            try:
                self._table.replace_files(keys, list(chain.from_iterable(parts)), attempt_id)
            except CommitConflict:
                if not tries_left:
                    raise
            else:
                return

    def _live(self) -> dict[str, _Counts]:
        """The counts of every file that the quarantine names now."""
        keys = self._table.all_keys(self._topic)
        left = [key for key in keys if key not in self._counts]
        found = self._engine.map(partial(_count, self._store, self._wanted), left)
        self._counts |= zip(left, found, strict=True)
        return {key: self._counts[key] for key in keys}


def _count(store: Store, wanted: Wanted, key: str) -> _Counts:
    """The task: a file of the quarantine → its counts."""
    rows = read_all_rejects(store, key)
    go = rows.filter(wanted.rejects(rows["raw"]))
    return _Counts(_by_attempt(go), _by_attempt(rows))


def _by_attempt(rows: pa.Table) -> dict[str, int]:
    counts: Any = pc.value_counts(rows["attempt_id"])
    return {item["values"]: item["counts"] for item in counts.to_pylist()}


def _kept(store: Store, topic: str, wanted: Wanted, key: str) -> list[WrittenFile]:
    """The task: a file of the quarantine → a file of each attempt with the rejects that stay."""
    rows = read_all_rejects(store, key)
    stay = rows.filter(pc.invert(wanted.rejects(rows["raw"])))
    attempts: list[Any] = pc.unique(stay["attempt_id"]).to_pylist()
    return [
        write_rejects(store, topic, each, stay.filter(pc.equal(stay["attempt_id"], each)))
        for each in attempts
    ]


class SampleErasure:
    """The samples of rejects that failed attempts at a topic left."""

    def __init__(self, store: Store, topic: str, wanted: Wanted) -> None:
        self._store, self._topic, self._wanted = store, topic, wanted

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
            go: list[Any] = self._wanted.rejects(raw).to_pylist()
            if any(go):
                stay = [row for row, goes in zip(failed.rejects, go, strict=True) if not goes]
                yield failed, failed.model_copy(update={"rejects": stay})


def _raw(row: Mapping[str, Any]) -> bytes:
    """The bytes of a row of a sample."""
    raw = row["raw"]
    return raw.encode() if isinstance(raw, str) else base64.b64decode(raw["base64"])
