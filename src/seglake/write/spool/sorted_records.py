"""Represent sorted records of a log partition as columns, and define a run's total order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from seglake.errors import InputError
from seglake.format.encode import Bodies
from seglake.format.records import Int64s
from seglake.limits import INT64_MAX, INT64_MIN

COLUMN_BYTES = 32  # per record: sort key, timestamp or tie-breaker, start and size of its body


@dataclass(frozen=True)
class SortedRecords:
    """Records in total order (see "merge order" below), as columns with one item per record.

    Timestamps are in ms. If event times are the sort keys, `timestamps` and `sort_keys` are the
    same array. If `tie_breakers` is None, records with equal sort keys are ordered by position.
    """

    sort_keys: Int64s
    tie_breakers: Int64s | None
    timestamps: Int64s
    bodies: Bodies

    def __len__(self) -> int:
        return len(self.sort_keys)

    def part(self, start: int, end: int) -> SortedRecords:
        """Return the records [start, end). Their bodies are not copied."""
        return self.take(slice(start, end))

    def take(self, order: Int64s | slice) -> SortedRecords:
        """Return the records at the positions `order`. Their bodies are not copied."""
        ties = None if self.tie_breakers is None else self.tie_breakers[order]
        sort_keys = self.sort_keys[order]
        timestamps = sort_keys if self.by_time else self.timestamps[order]
        return SortedRecords(sort_keys, ties, timestamps, self.bodies.take(order))

    @property
    def by_time(self) -> bool:
        """Return whether the timestamps are the sort keys."""
        return self.timestamps is self.sort_keys

    @property
    def size_bytes(self) -> int:
        """Return the size of bodies and columns in bytes. Shared buffers may be larger."""
        return int(self.bodies.sizes.sum()) + COLUMN_BYTES * len(self)

    def detached(self) -> SortedRecords:
        """Return a copy of the records, so that the larger shared buffers can be freed."""
        sort_keys = self.sort_keys.copy()
        ties = None if self.tie_breakers is None else self.tie_breakers.copy()
        timestamps = sort_keys if self.by_time else self.timestamps.copy()
        return SortedRecords(sort_keys, ties, timestamps, self.bodies.detached())


def join_records(parts: Sequence[SortedRecords]) -> SortedRecords:
    """Return the records of the parts, one part after another. Bodies are not copied."""
    if len(parts) == 1:
        return parts[0]
    sort_keys = np.concatenate([part.sort_keys for part in parts])
    ties = [part.tie_breakers for part in parts if part.tie_breakers is not None]
    by_time = all(part.by_time for part in parts)
    timestamps = sort_keys if by_time else np.concatenate([part.timestamps for part in parts])
    bodies = Bodies.joined([part.bodies for part in parts])
    return SortedRecords(sort_keys, np.concatenate(ties) if ties else None, timestamps, bodies)


# ---------------- merge order
# The total order of a run's records within a log partition; no other module defines it.
#
# Records are ordered by (sort key, tie-breaker, unit, blob number, position in the blob). For
# files in time order the sort key is the event time and the tie-breaker is 0, so records with equal
# times are in the order of file and position. For a DataFrame the tie-breaker is the order column.
# In arrival order the sort key is 0. If records keep their offsets (`topic.offset_field`), the sort
# key is the offset. Then no two sort keys are equal, and the tie-breaker only stores a flag: 1 if
# the timestamp is the append time of a broker, else 0.


class Place(NamedTuple):
    """The sort columns and the blob of a record, which define a position in the total order.

    `blob` is the number of the blob in its unit.
    """

    sort_key: int
    tie_breaker: int
    unit: int
    blob: int


FIRST = Place(INT64_MIN, 0, 0, 0)
LAST = Place(INT64_MAX, INT64_MAX, INT64_MAX, 0)


class PlacedRecords(NamedTuple):
    """Records of one blob, and the `Place` of the blob's first record."""

    place: Place
    records: SortedRecords

    def part(self, start: int, end: int) -> PlacedRecords:
        """Return the records [start, end). A small part is copied, so that the blob can be freed.

        `place` does not change.
        """
        if start == 0 and end == len(self.records):
            return self
        records = self.records.part(start, end)
        is_large = 2 * int(records.bodies.sizes.sum()) > len(records.bodies.data)
        return PlacedRecords(self.place, records if is_large else records.detached())

    def count_before(self, place: Place) -> int:
        """Return the number of records that are before `place` in the total order."""
        records = self.records
        start = int(np.searchsorted(records.sort_keys, place.sort_key, "left"))
        end = int(np.searchsorted(records.sort_keys, place.sort_key, "right"))
        if records.tie_breakers is not None:
            equal = records.tie_breakers[start:end]
            return start + int(np.searchsorted(equal, place.tie_breaker, "left"))
        return end if self.place[2:] < place[2:] else start


def sort_order(sort_keys: Int64s, tie_breakers: Int64s | None) -> Int64s:
    """Return positions sorted by sort key, then tie-breaker, then position."""
    if tie_breakers is None:
        return np.argsort(sort_keys, kind="stable")  # timsort is fast for sorted sequences
    return np.lexsort((tie_breakers, sort_keys))


def join_sorted(blobs: list[PlacedRecords]) -> SortedRecords:
    """Return the records of all blobs in total order."""
    in_order = sorted(blobs, key=lambda blob: blob.place[2:])
    parts = [blob.records for blob in in_order if len(blob.records)] or [in_order[0].records]
    if len(parts) == 1:
        return parts[0]
    records = join_records(parts)
    return records.take(sort_order(records.sort_keys, records.tie_breakers))


def require_unique(records: SortedRecords, order_column: str) -> None:
    """Raise InputError, which names `order_column`, if two records have equal places.

    Records are compared by sort key and tie-breaker, and must be sorted.
    """
    sort_keys = records.sort_keys
    ties = sort_keys if records.tie_breakers is None else records.tie_breakers
    equal = (sort_keys[1:] == sort_keys[:-1]) & (ties[1:] == ties[:-1])
    for at in np.flatnonzero(equal)[:1]:
        raise InputError(
            f"order column {order_column!r} has {ties[at]} twice. It must have a unique integer "
            f"in every row, because it orders equal event times"
        )
