"""The segments of one log partition as NumPy columns, which a newer version shares and extends.

A version holds the first n rows of its columns. The next one writes its segments into the room
behind them, if no other version has, and holds more rows of the same columns: what it costs is what
is new. So a column is never changed where a version can see it.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.locks import Lock

Int64s = npt.NDArray[np.int64]

# What a reader needs once it has chosen a segment; the order of sizes is SUFFIXES'. Checksums of
# files stay in the table: what a reader reads has checksums of its own.
DETAILS = np.dtype(
    [
        ("record_count", "i4"),
        ("relative_offset_of_max", "i4"),  # -1: no record has a timestamp
        ("sizes", "i4", (4,)),
        ("attempts", "i4", (2,)),  # of the log and of its index files: places in Segments.attempts
        ("codec", "i1"),
        ("timestamp_type", "i1"),
    ]
)

ATTEMPT = np.dtype("V16")

_DTYPES = [np.dtype(np.int64)] * 4 + [DETAILS]
_SPARE = 64  # a copy leaves room for 1/64 more: so a row is copied 65 times, which is a microsecond


class Attempts:
    """UUIDs in the order in which they came. Log partitions share them; none is ever taken away."""

    def __init__(self, ids: npt.NDArray[np.void]) -> None:
        self._ids, self._length = ids, len(ids)
        self._added: tuple[Attempts, int, int] | None = None
        self._lock = Lock()

    def __len__(self) -> int:
        return self._length

    def __reduce__(self) -> tuple[Any, ...]:
        return Attempts, (self._ids[: len(self)],)

    def name(self, place: int) -> str:
        """The UUID at a place, counted from 0."""
        return str(uuid.UUID(bytes=self._ids[place].tobytes()))

    def add(self, others: Attempts) -> int:
        """Add all of `others`, unless they were the last ones added; returns the first's place."""
        with self._lock:
            if self._added is None or self._added[:2] != (others, len(others)):
                self._added = others, len(others), len(self)
                self._append(others._ids[: len(others)])
            return self._added[2]

    def _append(self, ids: npt.NDArray[np.void]) -> None:
        start, end = self._length, self._length + len(ids)
        if end > len(self._ids):
            longer = np.empty(end + end // _SPARE, ATTEMPT)
            longer[:start] = self._ids[:start]
            self._ids = longer
        self._ids[start:end] = ids
        self._length = end


class Segments(NamedTuple):
    """n segments of one log partition as columns, in the order of base offsets."""

    base_offsets: Int64s
    end_offsets: Int64s
    min_timestamps: Int64s
    max_timestamps: Int64s
    details: npt.NDArray[np.void]  # of dtype DETAILS
    attempts: Attempts
    room: Room | None = None  # whose columns these are the beginning of

    @staticmethod
    def none() -> Segments:
        """No segment."""
        columns = [np.empty(0, dtype) for dtype in _DTYPES]
        return Segments._make([*columns, Attempts(np.empty(0, ATTEMPT)), None])

    def __reduce__(self) -> tuple[Any, ...]:
        return Segments, (*self.columns, self.attempts)

    @property
    def columns(self) -> Sequence[npt.NDArray[Any]]:
        """The columns, without what they refer to."""
        return self[:5]

    @property
    def size(self) -> int:
        """Their number."""
        return len(self.base_offsets)

    def take(self, order: npt.NDArray[np.intp] | slice) -> Segments:
        """The segments at the positions `order`."""
        columns = [column[order] for column in self.columns]
        return Segments._make([*columns, self.attempts, None])

    def without(self, base_offsets: Int64s) -> Segments:
        """These segments but for those that begin at one of `base_offsets`."""
        return self.take(np.flatnonzero(~np.isin(self.base_offsets, base_offsets)))

    def followed_by(self, others: Segments) -> Segments:
        """These segments and `others`, in the order of base offsets."""
        attempts = self.attempts if self.size else others.attempts
        columns = list(others.columns)
        if attempts is not others.attempts:
            details = columns[-1] = columns[-1].copy()
            details["attempts"] += attempts.add(others.attempts)
        room = self.room
        if room is None or not room.claim(self.size, others.size):
            room = Room(self.columns, others.size)
        both = Segments._make([*room.fill(self.size, columns), attempts, room])
        if not self.size or not others.size or self.base_offsets[-1] < others.base_offsets[0]:
            return both
        return both.take(np.argsort(both.base_offsets, kind="stable"))

    def begin_with(self, others: Segments) -> bool:
        """Whether these are `others` and what followed them, if they came of them."""
        return np.array_equal(self.base_offsets[: others.size][-1:], others.base_offsets[-1:])

    def running_max_timestamps(self) -> Int64s:
        """Largest timestamp in each segment and all before it: ascending, so it can be searched."""
        if self.room is None:
            return np.maximum.accumulate(self.max_timestamps)
        return self.room.running_max_timestamps(self.size)


class Room:
    """Columns whose first rows are segments of a version, with room behind them."""

    def __init__(self, columns: Sequence[npt.NDArray[Any]], more: int) -> None:
        """A copy of `columns`, with room for `more` rows at least, which are claimed."""
        length = len(columns[0])
        self._filled = length + more
        self._capacity = self._filled + self._filled // _SPARE
        self._columns = [np.empty(self._capacity, column.dtype) for column in columns]
        for mine, column in zip(self._columns, columns, strict=True):
            mine[:length] = column
        self._highest, self._searchable = np.empty(0, np.int64), 0
        self._lock = Lock()

    def claim(self, length: int, more: int) -> bool:
        """Whether the rows length to length + more (exclusive) are free: then they are not now."""
        with self._lock:
            if self._filled != length or length + more > self._capacity:
                return False
            self._filled += more
            return True

    def fill(self, length: int, others: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Write the rows that were claimed behind the first `length`; all rows up to them."""
        end = length + len(others[0])
        for mine, column in zip(self._columns, others, strict=True):
            mine[length:end] = column
        return [column[:end] for column in self._columns]

    def running_max_timestamps(self, length: int) -> Int64s:
        """See `Segments`; goes on from where it was asked for before."""
        with self._lock:
            if not len(self._highest):
                self._highest = np.empty(self._capacity, np.int64)
            if self._searchable < length:
                new = self._columns[3][self._searchable : length]
                before = self._highest[self._searchable - 1 : self._searchable]
                running = np.maximum.accumulate(np.concatenate([before, new]))
                self._highest[self._searchable : length] = running[len(before) :]
                self._searchable = length
            return self._highest[:length]
