"""Kafka's lookups in a decoded index: the oracle for Seglake's own lookups, which use zone maps."""

from typing import NamedTuple

import numpy as np

from seglake.format.index import OffsetIndex, TimeIndex


class OffsetEntry(NamedTuple):
    """An absolute offset and the position of the batch that ends with it."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """A running maximum timestamp (ms) and the absolute offset up to which it holds."""

    timestamp: int
    offset: int


def offset_entries(index: OffsetIndex) -> list[OffsetEntry]:
    return list(map(OffsetEntry, index.offsets.tolist(), index.positions.tolist()))


def time_entries(index: TimeIndex) -> list[TimeEntry]:
    return list(map(TimeEntry, index.timestamps.tolist(), index.offsets.tolist()))


def offset_floor(index: OffsetIndex, offset: int) -> OffsetEntry:
    """`OffsetIndex.lookup`: the last entry with an offset <= `offset`, or (base offset, 0)."""
    number = int(np.searchsorted(index.offsets, offset, "right")) - 1
    return OffsetEntry(index.base_offset, 0) if number < 0 else offset_entries(index)[number]


def upper_bound(index: OffsetIndex, fetch: OffsetEntry, fetch_bytes: int) -> OffsetEntry | None:
    """`fetchUpperBoundOffset`: the first entry at or after `fetch.position + fetch_bytes`."""
    number = int(np.searchsorted(index.positions, fetch.position + fetch_bytes))
    return offset_entries(index)[number] if number < len(index) else None


def time_floor(index: TimeIndex, timestamp: int) -> TimeEntry:
    """`TimeIndex.lookup`: the last entry with a timestamp <= `timestamp`, or (-1, base offset)."""
    number = int(np.searchsorted(index.timestamps, timestamp, "right")) - 1
    return TimeEntry(-1, index.base_offset) if number < 0 else time_entries(index)[number]


def last_time(index: TimeIndex) -> TimeEntry:
    """The last entry, or (-1, base offset) of an empty index."""
    return time_entries(index)[-1] if len(index) else TimeEntry(-1, index.base_offset)
