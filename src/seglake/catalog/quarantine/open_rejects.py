"""Find the open rejects: rejects that are not redriven, expired, or about to be erased.

Rejects are redriven, expire or are erased by a commit to the catalog. So the rows of runs and of
maintenance decide which rejects in the quarantine still count:

- A redrive ingests all open rejects of one attempt. Each becomes a record, or a reject of the
  redrive's own attempt. The report in its run row has `"redrives": {"run_id": "R", "attempt_id":
  "…"}`, where `run_id` is the id of the first run. Each redrive ingests the rejects that the
  previous one left open, so the redrives of a run form a chain. A redrive is a run of the pipeline
  of the first run, and is removed together with the runs before it.
- A commit of the operation `expire-rejects` lists the `attempts` whose rejects no longer count.
- A commit of the operation `erase` has `"rejects_left": {"<attempt>": 3}`, the number of rejects
  that remain for each attempt that loses some.

An erasure commits to the catalog and to the quarantine, and may die between the two commits:

    1. It puts a list of the rejects that it erases, `attempts/<attempt>/rejects`.
    2. It commits to the catalog, and then to the quarantine.
    3. It deletes the list. A committed erasure that still has a list is unfinished. The next
       erasure of the topic erases these rejects too, and a redrive refuses to read them.

A list may exist for a long time, so it identifies rejects without their content: by attempt, a
digest of the path of the source file, and the line, as in `{"topic": "T", "rejects": {"<attempt>":
{"<SHA-256>": [2, 7]}}}`. After a lost race, an erasure writes another list under another key,
because the put of an earlier try may reach storage late. Two rows of a DataFrame may have the same
line, for example records of two partitions. So DataFrame rows are identified by the quarantine file
to which they were first written, and their position in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, count
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglake.catalog.delta.data_files import read_at_once
from seglake.catalog.quarantine.files import first_places, is_from_frame
from seglake.catalog.schema import MaintenanceRow, RunRow
from seglake.errors import MissingObject, corrupt_unless_parsed
from seglake.format.records import Int64s
from seglake.layout import attempt_objects, is_rejects_key
from seglake.store import Store


class Redrive(NamedTuple):
    """The rejects that a redrive ingested. The attempt `attempt_id` had left them open.

    `run_id` is the id of the first run of the chain.
    """

    run_id: str
    attempt_id: str


def redrive_from_run(run: RunRow) -> Redrive | None:
    """Return the rejects that a run ingested, or None if the run is not a redrive."""
    # Most reports need not be parsed.
    if '"redrives"' not in run.report:
        return None
    taken = json.loads(run.report).get("redrives")
    return Redrive(taken["run_id"], taken["attempt_id"]) if taken else None


def open_attempts(runs: Iterable[RunRow]) -> list[str]:
    """Return the attempts whose rejects no redrive has ingested. `runs` are all runs of a topic."""
    runs = list(runs)
    taken = {redrive.attempt_id for redrive in map(redrive_from_run, runs) if redrive}
    return [run.attempt_id for run in runs if run.attempt_id not in taken]


class RedriveChain(NamedTuple):
    """A run and its redrives, in order, and the run id for the next redrive."""

    first: RunRow
    redrives: list[RunRow]
    next_run_id: str

    @property
    def last(self) -> RunRow:
        """Return the run or redrive that has the open rejects."""
        return self.redrives[-1] if self.redrives else self.first


def redrive_chain(run: RunRow, runs: Sequence[RunRow]) -> RedriveChain:
    """Return the chain of a run or of a redrive. `runs` are all runs of its topic."""
    by_attempt, first = {other.attempt_id: other for other in runs}, run
    while before := redrive_from_run(first):
        first = by_attempt[before.attempt_id]
    after = {redrive.attempt_id: other for other in runs if (redrive := redrive_from_run(other))}
    redrives: list[RunRow] = []
    attempt_id = first.attempt_id
    while attempt_id in after:
        redrives.append(after[attempt_id])
        attempt_id = redrives[-1].attempt_id
    same = {other.run_id for other in runs if other.pipeline == run.pipeline}
    names = (f"{first.run_id} redrive {number}" for number in count(1))
    return RedriveChain(first, redrives, next(name for name in names if name not in same))


# ---------------- expired and erased


ERASE, EXPIRE = "erase", "expire-rejects"
_RECENT = 100  # erasures of a topic; more than one, because their clocks may differ


def expired_attempts(rows: Iterable[MaintenanceRow]) -> set[str]:
    """Return the attempts whose rejects have expired. `rows` are all maintenance rows."""
    return {
        attempt_id
        for row in rows
        if row.operation == EXPIRE
        for attempt_id in json.loads(row.report)["attempts"]
    }


def rejects_left(rows: Iterable[MaintenanceRow]) -> dict[str, int]:
    """Return, for each attempt that lost rejects in erasures, the number of remaining rejects.

    `rows` are all rows of maintenance. The smallest number is used, because it is from the last
    erasure.
    """
    left: dict[str, int] = {}
    for row in rows:
        for attempt_id, number in _rejects_left(row).items():
            left[attempt_id] = min(number, left.get(attempt_id, number))
    return left


def erasures(rows: Iterable[MaintenanceRow]) -> list[str]:
    """Return the attempts of the last 100 erasures that erased rejects, oldest first."""
    commits = sorted((row.finished_at_ms, row.attempt_id) for row in rows if _rejects_left(row))
    return [attempt_id for _, attempt_id in commits[-_RECENT:]]


def erasures_for_attempt(rejects_of: str, rows: Iterable[MaintenanceRow]) -> list[str]:
    """Return the attempts of the erasures that erased rejects of the attempt `rejects_of`."""
    return [row.attempt_id for row in rows if rejects_of in _rejects_left(row)]


def _rejects_left(row: MaintenanceRow) -> dict[str, int]:
    """Return, for each attempt that lost rejects in one erasure, the number of remaining ones."""
    counts: dict[str, int] = (
        json.loads(row.report)["rejects_left"] if row.operation == ERASE else {}
    )
    return counts


# ---------------- about to be erased


# Lines, by attempt and digest of the path.
PendingRemovals = Mapping[str, Mapping[str, Sequence[int]]]


class _RejectGroup(NamedTuple):
    """The rejects of one attempt and source file, as lines and as positions `at` in a table."""

    attempt_id: str
    digest: str
    lines: Int64s
    at: Int64s


def write_list(store: Store, key: str, topic: str, rejects: PendingRemovals) -> None:
    """Write a list of the rejects that an erasure is about to erase. Raises StoreError."""
    store.put(key, json.dumps({"topic": topic, "rejects": rejects}).encode())


def unfinished_lists(store: Store, erasures: Sequence[str]) -> dict[str, PendingRemovals]:
    """Return the lists that committed erasures have not deleted yet, by object key.

    `erasures` are attempts. Call this before you read the quarantine, because an erasure whose list
    does not exist has already committed to the quarantine. Raises StoreError and CorruptData.
    """
    folders = list(map(attempt_objects, erasures))
    listed = chain(*read_at_once(store, lambda folder: [*store.list(folder)], folders))
    keys = [item.key for item in listed if is_rejects_key(item.key)]
    return dict(zip(keys, read_at_once(store, partial(_read, store), keys), strict=True))


def _read(store: Store, key: str) -> PendingRemovals:
    """Read a list. Return an empty list if it was deleted in the meantime."""
    with suppress(MissingObject), corrupt_unless_parsed("a list of rejects", key):
        content: Any = json.loads(bytes(store.read_all(key)))
        return {
            str(attempt): {str(digest): [*map(int, lines)] for digest, lines in files.items()}
            for attempt, files in content["rejects"].items()
        }
    return {}


def list_rejects(key: str, rows: pa.Table, go: pa.BooleanArray) -> PendingRemovals:
    """Return a list of the rejects to erase from the quarantine file with this key.

    `rows` are all rejects in the file. `go` is true for each reject that is erased.
    """
    leaves = go.to_numpy(zero_copy_only=False)
    groups = ((group, group.lines[leaves[group.at]].tolist()) for group in _groups(key, rows))
    return join_lists({group.attempt_id: {group.digest: lines}} for group, lines in groups if lines)


def join_lists(lists: Iterable[PendingRemovals]) -> PendingRemovals:
    """Return one list with the rejects of all lists."""
    merged: dict[str, dict[str, list[int]]] = {}
    for leaving in lists:
        for attempt_id, files in leaving.items():
            for digest, lines in files.items():
                merged.setdefault(attempt_id, {}).setdefault(digest, []).extend(lines)
    return merged


def count_listed(files: Mapping[str, Sequence[int]]) -> int:
    """Return the number of rejects in a list's entry for one attempt."""
    return sum(map(len, files.values()))


def count_by_attempt(rows: pa.Table) -> dict[str, int]:
    """Return the number of rejects of each attempt in a table of rejects."""
    counts: Any = pc.value_counts(rows["attempt_id"])
    return {item["values"]: item["counts"] for item in counts.to_pylist()}


def is_listed(key: str, rows: pa.Table, leaving: PendingRemovals) -> pa.BooleanArray:
    """Return, for each reject in the quarantine file with this key, whether `leaving` lists it.

    `rows` are all rejects in the file.
    """
    flags = np.zeros(len(rows), np.bool_)
    for group in _groups(key, rows) if leaving else ():
        lines = leaving.get(group.attempt_id, {}).get(group.digest, ())
        flags[group.at] = np.isin(group.lines, lines)
    return pa.array(flags)


def has_any_reject(leaving: PendingRemovals, attempt_id: str, lines: Mapping[str, Int64s]) -> bool:
    """Return whether the list `leaving` contains one of several rejects of an attempt.

    `lines` maps the paths of source files to the lines of the rejects.
    """
    files = leaving.get(attempt_id, {})
    some: Collection[str] = lines if files else ()
    return any(np.isin(lines[path], files.get(_digest(path), ())).any() for path in some)


def _groups(key: str, rows: pa.Table) -> Iterator[_RejectGroup]:
    files, places = first_places(key, rows)
    is_of_frame = is_from_frame(rows)
    columns = {
        "attempt_id": rows["attempt_id"],
        "named": pc.if_else(is_of_frame, files, rows["source_file"]),
        "at": pa.array(np.arange(len(rows))),
    }
    numbers = np.where(is_of_frame.to_numpy(zero_copy_only=False), places, rows["line"].to_numpy())
    grouped = pa.table(columns).group_by(["attempt_id", "named"]).aggregate([("at", "list")])
    groups: list[Any] = grouped.to_pylist()
    for group in groups:
        at = np.array(group["at_list"], np.int64)
        yield _RejectGroup(group["attempt_id"], _digest(group["named"]), numbers[at], at)


def _digest(path: str | None) -> str:
    return hashlib.sha256((path or "").encode()).hexdigest()
