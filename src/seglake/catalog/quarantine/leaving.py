"""Rejects that an erasure takes away, listed until they are gone.

An erasure commits to the catalog first, and then to the quarantine, and it may die in between. So
it puts `attempts/<attempt>/rejects` before both, and deletes it after both. An erasure that is
committed and still has its list is unfinished: the next one of the topic takes these rejects, too,
and a redrive does not read them.

Such a list may stay for long, so it has nothing of what the rejects are. It names them by their
attempt, a digest of the path of their source file, and their line:

    {"topic": "T", "rejects": {"<attempt>": {"<SHA-256 of the path>": [2, 7]}}}

After a lost race an erasure writes another list, under another key: a request of an earlier try may
reach storage late. A row of any of its lists goes.

Two rows of a DataFrame may have the same line, such as records of two partitions that an archive
rejected. For them it is the file of the quarantine, and the place in it: where they were written
first, which a merged file knows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglake.catalog.delta.data_files import read_at_once
from seglake.catalog.quarantine.files import are_of_frames, first_places
from seglake.errors import CorruptData, MissingObject
from seglake.format.records import Int64s
from seglake.layout import attempt_objects, is_rejects_key
from seglake.store import Store

Leaving = Mapping[str, Mapping[str, Sequence[int]]]  # lines, by attempt and digest of the path


class _RejectGroup(NamedTuple):
    """The rejects of an attempt and source file: their lines, and their places in the file read."""

    attempt_id: str
    digest: str
    lines: Int64s
    at: Int64s


def write_list(store: Store, key: str, topic: str, rejects: Leaving) -> None:
    """Write a list. Raises StoreError."""
    store.put(key, json.dumps({"topic": topic, "rejects": rejects}).encode())


def unfinished(store: Store, erasures: Sequence[str]) -> dict[str, Leaving]:
    """The lists of those of these committed erasures that still have some, by their keys.

    Whoever reads the quarantine after this sees the end of the others. Raises StoreError and
    CorruptData.
    """
    keys = list(chain(*read_at_once(store, partial(_lists, store), erasures)))
    return dict(zip(keys, read_at_once(store, partial(_read, store), keys), strict=True))


def _lists(store: Store, attempt_id: str) -> list[str]:
    keys = (item.key for item in store.list(attempt_objects(attempt_id)))
    return list(filter(is_rejects_key, keys))


def _read(store: Store, key: str) -> Leaving:
    """A list; an empty one if it is gone."""
    try:
        content: Any = json.loads(bytes(store.read_all(key)))
        return {
            str(attempt): {str(digest): [*map(int, lines)] for digest, lines in files.items()}
            for attempt, files in content["rejects"].items()
        }
    except MissingObject:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptData(f"this is not a list of rejects: {error!r}", file=key) from error


def listed(key: str, rows: pa.Table, go: pa.BooleanArray) -> Leaving:
    """The list of those that go of all rejects in the file of the quarantine with this key."""
    leaves = go.to_numpy(zero_copy_only=False)
    groups = ((group, group.lines[leaves[group.at]].tolist()) for group in _groups(key, rows))
    return joined({group.attempt_id: {group.digest: lines}} for group, lines in groups if lines)


def joined(lists: Iterable[Leaving]) -> Leaving:
    """One list of the rejects of all."""
    merged: dict[str, dict[str, list[int]]] = {}
    for leaving in lists:
        for attempt_id, files in leaving.items():
            for digest, lines in files.items():
                merged.setdefault(attempt_id, {}).setdefault(digest, []).extend(lines)
    return merged


def count(files: Mapping[str, Sequence[int]]) -> int:
    """How many rejects of an attempt a list has."""
    return sum(map(len, files.values()))


def are_listed(key: str, rows: pa.Table, leaving: Leaving) -> pa.BooleanArray:
    """Which of all rejects in the file of the quarantine with this key a list has."""
    flags = np.zeros(len(rows), np.bool_)
    for group in _groups(key, rows) if leaving else ():
        lines = leaving.get(group.attempt_id, {}).get(group.digest, ())
        flags[group.at] = np.isin(group.lines, lines)
    return pa.array(flags)


def has_one_of(leaving: Leaving, attempt_id: str, lines: Mapping[str, Int64s]) -> bool:
    """Whether a list has some of an attempt's rejects, given as lines by path of the file."""
    files = leaving.get(attempt_id, {})
    some: Collection[str] = lines if files else ()
    return any(np.isin(lines[path], files.get(_digest(path), ())).any() for path in some)


def _groups(key: str, rows: pa.Table) -> Iterator[_RejectGroup]:
    files, places = first_places(key, rows)
    is_of_frame = are_of_frames(rows)
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
