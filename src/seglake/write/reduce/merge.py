"""Merging sorted blobs into one sorted stream, in memory bounded by how far the blobs overlap.

Blobs arrive in the order of their first records. What stands before the first record of the next
blob can have no predecessor any more, so it is final: pending records are kept until there are
enough of them, and then everything final leaves in one sort.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from seglake.errors import InputError
from seglake.format.batch import Bodies
from seglake.format.records import Int64s
from seglake.write.spool.blob import Run


class Place(NamedTuple):
    """A place in the total order: before the first record of the blob that begins with it."""

    key: int
    second: int
    unit: int
    sequence: int


class SortedBlob(NamedTuple):
    """A blob's records and the place at which the blob began before any part of it was taken."""

    place: Place
    run: Run

    def part(self, start: int, end: int) -> SortedBlob:
        """Records `start` to `end`, exclusive; a small part does not hold the blob's memory."""
        if start == 0 and end == len(self.run):
            return self
        run = self.run.part(start, end)
        lean = 2 * int(run.bodies.sizes.sum()) > len(run.bodies.data)
        return SortedBlob(self.place, run if lean else run.detached())


def count_before(blob: SortedBlob, place: Place) -> int:
    """How many of the blob's records stand before `place`."""
    run = blob.run
    start = int(np.searchsorted(run.keys, place.key, "left"))
    end = int(np.searchsorted(run.keys, place.key, "right"))
    if run.seconds is not None:
        return start + int(np.searchsorted(run.seconds[start:end], place.second, "left"))
    return end if blob.place[2:] < place[2:] else start


def merge(
    blobs: Iterator[SortedBlob], buffer_bytes: int, order_column: str | None = None
) -> Iterator[Run]:
    """The records of all blobs in total order, in runs of about `buffer_bytes`.

    `blobs` must come in the order of their places. Memory: twice `buffer_bytes`, and twice the
    blobs that overlap one place. With `order_column`, no two records may have the same key and
    second: records that have meet in one run, since none of them is final before the others. Raises
    InputError, which names the column.
    """
    for run in _merge(blobs, buffer_bytes):
        if order_column is not None:
            _require_unique(run, order_column)
        yield run


def _merge(blobs: Iterator[SortedBlob], buffer_bytes: int) -> Iterator[Run]:
    pending: list[SortedBlob] = []
    pending_bytes, enough = 0, buffer_bytes
    for blob in blobs:
        if pending_bytes >= enough:
            cuts = [count_before(each, blob.place) for each in pending]
            if any(cuts):
                yield _join([each.part(0, cut) for each, cut in zip(pending, cuts, strict=True)])
            rest = zip(pending, cuts, strict=True)
            pending = [each.part(cut, len(each.run)) for each, cut in rest if cut < len(each.run)]
            pending_bytes = sum(each.run.size_bytes for each in pending)
            enough = pending_bytes + buffer_bytes  # what overlaps is looked at again only then
        pending.append(blob)
        pending_bytes += blob.run.size_bytes
    if pending:
        yield _join(pending)


def _join(blobs: list[SortedBlob]) -> Run:
    """One sorted run of several; equal keys stand in the order of unit, sequence, position."""
    in_order = sorted(blobs, key=lambda blob: blob.place[2:])
    runs = [blob.run for blob in in_order if len(blob.run)] or [in_order[0].run]
    if len(runs) == 1:
        return runs[0]
    keys = np.concatenate([run.keys for run in runs])
    seconds = _concatenate([run.seconds for run in runs])
    # timsort merges the runs that it finds
    order = np.argsort(keys, kind="stable") if seconds is None else np.lexsort((seconds, keys))
    bodies = join_bodies([run.bodies for run in runs]).take(order)
    seconds = None if seconds is None else seconds[order]
    if all(run.timestamps is run.keys for run in runs):
        timestamps = keys = keys[order]
    else:
        keys, timestamps = keys[order], np.concatenate([run.timestamps for run in runs])[order]
    return Run(keys, seconds, timestamps, bodies)


def _concatenate(columns: list[Int64s | None]) -> Int64s | None:
    present = [column for column in columns if column is not None]
    return np.concatenate(present) if present else None


def _require_unique(run: Run, order_column: str) -> None:
    seconds = run.keys if run.seconds is None else run.seconds
    equal = (run.keys[1:] == run.keys[:-1]) & (seconds[1:] == seconds[:-1])
    for at in np.flatnonzero(equal)[:1]:
        raise InputError(
            f"order column {order_column!r} holds {seconds[at]} twice: it must hold a unique "
            "integer in every row, since it decides among equal event times"
        )


def join_bodies(parts: list[Bodies]) -> Bodies:
    """The bodies of several parts, one after another, over one buffer."""
    datas = [part.data for part in parts]
    shifts = np.cumsum([0] + [len(data) for data in datas[:-1]])
    starts = [part.starts + shift for part, shift in zip(parts, shifts, strict=True)]
    sizes = np.concatenate([part.sizes for part in parts])
    return Bodies(np.concatenate(starts), sizes, np.concatenate(datas))
