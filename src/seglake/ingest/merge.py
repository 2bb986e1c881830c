"""Merging sorted blobs into one sorted stream, in memory bounded by how far the blobs overlap.

Blobs arrive in the order of their first records. What stands before the first record of the next blob
can have no predecessor any more, so it is final: pending records are kept until there are enough of
them, and then everything final leaves in one sort.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from seglake.format.batch import Bodies
from seglake.ingest.blob import Run


class Place(NamedTuple):
    """A place in the total order: before the first record of the blob that begins with it."""

    key: int
    second: int
    unit: int
    sequence: int


class SortedBlob(NamedTuple):
    """A blob's records and the place at which it begins."""

    place: Place
    run: Run


def count_before(blob: SortedBlob, place: Place) -> int:
    """How many of the blob's records stand before `place`."""
    run = blob.run
    start = int(np.searchsorted(run.keys, place.key, "left"))
    end = int(np.searchsorted(run.keys, place.key, "right"))
    if run.seconds is not None:
        return start + int(np.searchsorted(run.seconds[start:end], place.second, "left"))
    return end if blob.place[2:] < place[2:] else start


def merge(blobs: Iterator[SortedBlob], buffer_bytes: int) -> Iterator[Run]:
    """The records of all blobs in total order, in runs of about `buffer_bytes` of bodies.

    `blobs` must come in the order of their places. Memory: `buffer_bytes`, plus the blobs that
    overlap one place.
    """
    pending: list[SortedBlob] = []
    pending_bytes = 0
    for blob in blobs:
        if pending_bytes >= buffer_bytes:
            cuts = [count_before(each, blob.place) for each in pending]
            yield _join(_parts(pending, [0] * len(cuts), cuts))
            pending = [blob for blob in _parts(pending, cuts, None) if len(blob.run)]
            pending_bytes = sum(_size(each) for each in pending)
        pending.append(blob)
        pending_bytes += _size(blob)
    if pending:
        yield _join(pending)


def _parts(blobs: list[SortedBlob], starts: list[int], ends: list[int] | None) -> list[SortedBlob]:
    ends = [len(blob.run) for blob in blobs] if ends is None else ends
    return [
        SortedBlob(blob.place, blob.run.part(start, end))
        for blob, start, end in zip(blobs, starts, ends, strict=True)
    ]


def _size(blob: SortedBlob) -> int:
    return int(blob.run.bodies.sizes.sum()) + 24 * len(blob.run)


def _join(blobs: list[SortedBlob]) -> Run:
    """One sorted run of several; among equal keys, the order of unit, sequence and position holds."""
    ordered = sorted(blobs, key=lambda blob: blob.place[2:])
    runs = [blob.run for blob in ordered if len(blob.run)] or [ordered[0].run]
    if len(runs) == 1:
        return runs[0]
    keys = np.concatenate([run.keys for run in runs])
    seconds = _concatenate([run.seconds for run in runs])
    if seconds is None:
        order = np.argsort(keys, kind="stable")  # timsort: merges the runs that it finds
    else:
        order = np.lexsort((seconds, keys))
    bodies = join_bodies([run.bodies for run in runs]).take(order)
    ordered = keys[order]
    if all(run.timestamps is run.keys for run in runs):
        return Run(ordered, None if seconds is None else seconds[order], ordered, bodies)
    timestamps = np.concatenate([run.timestamps for run in runs])[order]
    return Run(ordered, None if seconds is None else seconds[order], timestamps, bodies)


def _concatenate(columns: list[np.ndarray | None]) -> np.ndarray | None:
    present = [column for column in columns if column is not None]
    return np.concatenate(present) if present else None


def join_bodies(parts: list[Bodies]) -> Bodies:
    """The bodies of several parts, one after another, over one buffer."""
    datas = [part.data for part in parts]
    shifts = np.cumsum([0] + [len(data) for data in datas[:-1]])
    starts = [part.starts + shift for part, shift in zip(parts, shifts, strict=True)]
    sizes = np.concatenate([part.sizes for part in parts])
    return Bodies(np.concatenate(starts), sizes, np.concatenate(datas))
