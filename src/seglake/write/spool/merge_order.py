"""The total order of a run's records within a log partition; no other module defines it.

Records are ordered by (sort key, tie-breaker, unit, blob number, position in the blob). For files
sorted by time the sort key is the event time and the tie-breaker 0, so records with equal times
stand in the order of file and position. For a DataFrame the tie-breaker is the order column. In
arrival order the sort key is 0. Where records keep their offsets (`topic.offset_field`), the sort
key is the offset, and the tie-breaker, which decides nothing then, 1 under LogAppendTime, else 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seglake.errors import InputError
from seglake.format.records import Int64s
from seglake.limits import INT64_MAX, INT64_MIN
from seglake.write.spool.sorted_records import SortedRecords, joined


class Place(NamedTuple):
    """A place in the total order: the sort columns of a record, and the blob of the record."""

    sort_key: int
    tie_breaker: int
    unit: int
    blob: int


FIRST = Place(INT64_MIN, 0, 0, 0)
LAST = Place(INT64_MAX, INT64_MAX, INT64_MAX, 0)


class PlacedRecords(NamedTuple):
    """Records of one blob, and the place at which the whole blob begins."""

    place: Place
    records: SortedRecords

    def part(self, start: int, end: int) -> PlacedRecords:
        """Records `start` to `end`, exclusive; a small part is copied, so the blob can be freed."""
        if start == 0 and end == len(self.records):
            return self
        records = self.records.part(start, end)
        is_large = 2 * int(records.bodies.sizes.sum()) > len(records.bodies.data)
        return PlacedRecords(self.place, records if is_large else records.detached())

    def count_before(self, place: Place) -> int:
        """The count of records that stand before `place`."""
        records = self.records
        start = int(np.searchsorted(records.sort_keys, place.sort_key, "left"))
        end = int(np.searchsorted(records.sort_keys, place.sort_key, "right"))
        if records.tie_breakers is not None:
            equal = records.tie_breakers[start:end]
            return start + int(np.searchsorted(equal, place.tie_breaker, "left"))
        return end if self.place[2:] < place[2:] else start


def sort_order(sort_keys: Int64s, tie_breakers: Int64s | None) -> Int64s:
    """Positions by sort key, then tie-breaker, then as they stand."""
    if tie_breakers is None:
        return np.argsort(sort_keys, kind="stable")  # timsort: fast where stretches are sorted
    return np.lexsort((tie_breakers, sort_keys))


def join_sorted(blobs: list[PlacedRecords]) -> SortedRecords:
    """The records of all blobs in total order."""
    in_order = sorted(blobs, key=lambda blob: blob.place[2:])
    parts = [blob.records for blob in in_order if len(blob.records)] or [in_order[0].records]
    if len(parts) == 1:
        return parts[0]
    records = joined(parts)
    return records.taken(sort_order(records.sort_keys, records.tie_breakers))


def require_unique(records: SortedRecords, order_column: str) -> None:
    """Raise InputError if two records have the same sort key and tie-breaker."""
    sort_keys = records.sort_keys
    ties = sort_keys if records.tie_breakers is None else records.tie_breakers
    equal = (sort_keys[1:] == sort_keys[:-1]) & (ties[1:] == ties[:-1])
    for at in np.flatnonzero(equal)[:1]:
        raise InputError(
            f"order column {order_column!r} has {ties[at]} twice: it must have a unique integer "
            "in every row, since it decides among equal event times"
        )
