"""Keep the segments of one log partition as NumPy columns that several versions share.

A version uses the first n rows of its columns. The next version writes its new segments into the
free rows after them, and uses more rows of the same columns. So only new rows are copied, unless
another version already uses the free rows. Rows that a version uses never change.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seglake.catalog.schema import subjects_in
from seglake.compile.locks import fork_safe_lock
from seglake.errors import CorruptData
from seglake.format.batch import TIMESTAMP_TYPES
from seglake.format.codecs import compression
from seglake.format.records import Int64s, copy_rows, take_rows
from seglake.layout import ALL_SUFFIXES, OPTIONAL_SUFFIXES

# The properties of a segment that a reader needs once it has chosen the segment. Sizes are in the
# order of ALL_SUFFIXES, and 0 for a file that does not exist. The checksums of whole files are only
# in the table, because the parts of a file that a reader reads have their own checksums.
DETAILS = np.dtype(
    [
        ("record_count", "i4"),
        ("relative_offset_of_max", "i4"),  # -1: no record has a timestamp
        ("sizes", "i4", (len(ALL_SUFFIXES),)),
        ("attempts", "i4", (2,)),  # of log and index files: positions in Segments.attempts
        ("codec", "i1"),
        ("timestamp_type", "i1"),
        ("external", "?"),  # whether the log is stored outside the lake
        ("keyindex_kinds", "u1"),  # bit k: the key index has a subject of kind k
    ]
)

ATTEMPT = np.dtype("V16")

_DTYPES = [np.dtype(np.int64)] * 4 + [DETAILS]
# A copy has free space for 1/64 more rows. So a row is copied at most 65 times, in one microsecond.
_SPARE = 64


class AttemptIds:
    """UUIDs of attempts, shared by log partitions. Positions of ids never change. Thread-safe."""

    def __init__(self, ids: npt.NDArray[np.void]) -> None:
        self._ids, self._length = ids, len(ids)
        self._added: tuple[AttemptIds, int, int] | None = None
        self._lock = fork_safe_lock()

    def __len__(self) -> int:
        return self._length

    def __reduce__(self) -> tuple[Any, ...]:
        return AttemptIds, (self._ids[: len(self)],)

    def name(self, position: int) -> str:
        """Return the UUID at a position, counted from 0."""
        return str(uuid.UUID(bytes=self._ids[position].tobytes()))

    def add(self, others: AttemptIds) -> int:
        """Append `others`, and return the position of their first id.

        If the last call has appended them, they are not appended again.
        """
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
    """The segments of one log partition as columns, sorted by base offset."""

    base_offsets: Int64s
    end_offsets: Int64s
    min_timestamps: Int64s
    max_timestamps: Int64s
    details: npt.NDArray[np.void]  # of dtype DETAILS
    attempts: AttemptIds
    # The shared columns whose first rows are these columns.
    append_buffer: AppendBuffer | None = None

    @staticmethod
    def empty() -> Segments:
        """Return columns without a segment."""
        columns = [np.empty(0, dtype) for dtype in _DTYPES]
        return Segments._make([*columns, AttemptIds(np.empty(0, ATTEMPT)), None])

    def __reduce__(self) -> tuple[Any, ...]:
        return Segments, (*self.columns, self.attempts)

    @property
    def columns(self) -> Sequence[npt.NDArray[Any]]:
        """Return the five columns, without `attempts` and `append_buffer`."""
        return self[:5]

    @property
    def size(self) -> int:
        """Return the number of segments."""
        return len(self.base_offsets)

    def take(self, order: npt.NDArray[np.intp] | slice) -> Segments:
        """Return the segments at the positions `order`."""
        columns = [take_rows(column, order) for column in self.columns]
        return Segments._make([*columns, self.attempts, None])

    def beginning_at(self, base_offsets: Int64s) -> npt.NDArray[np.intp]:
        """Return the positions of the segments that begin at one of `base_offsets`."""
        places: npt.NDArray[np.intp] = self.base_offsets.searchsorted(base_offsets)
        here: npt.NDArray[np.bool_] = np.append(self.base_offsets, -1)[places] == base_offsets
        return places[here]

    def without(self, base_offsets: Int64s) -> Segments:
        """Return all segments except segments that begin at one of `base_offsets`."""
        gone = np.unique(self.beginning_at(base_offsets))
        # If only the oldest segments are removed, slices are enough, and nothing is copied.
        if len(gone) and gone[-1] == len(gone) - 1:
            return self.take(slice(len(gone), None))
        return self.take(np.delete(np.arange(self.size), gone))

    def followed_by(self, others: Segments) -> Segments:
        """Return these segments and `others`, sorted by base offset."""
        attempts = self.attempts if self.size else others.attempts
        columns = list(others.columns)
        if attempts is not others.attempts:
            details = columns[-1] = copy_rows(columns[-1])
            details["attempts"] += attempts.add(others.attempts)
        room = self.append_buffer
        if room is None or not room.claim(self.size, others.size):
            room = AppendBuffer(self.columns, others.size)
        both = Segments._make([*room.fill(self.size, columns), attempts, room])
        if not self.size or not others.size or self.base_offsets[-1] < others.base_offsets[0]:
            return both
        return both.take(np.argsort(both.base_offsets, kind="stable"))

    def starts_with(self, others: Segments) -> bool:
        """Return whether these segments, which were made from `others`, begin with `others`."""
        return np.array_equal(self.base_offsets[: others.size][-1:], others.base_offsets[-1:])


class AppendBuffer:
    """Columns that several versions share, with free rows for new segments. Thread-safe."""

    def __init__(self, columns: Sequence[npt.NDArray[Any]], more: int) -> None:
        """Copy `columns`, and claim `more` rows after them."""
        length = len(columns[0])
        self._filled = length + more
        self._capacity = self._filled + self._filled // _SPARE
        self._columns = [np.empty(self._capacity, column.dtype) for column in columns]
        for mine, column in zip(self._columns, columns, strict=True):
            mine[:length] = column
        self._highest, self._searchable = np.empty(0, np.int64), 0
        self._lock = fork_safe_lock()

    def claim(self, length: int, more: int) -> bool:
        """Claim rows `length` to `length + more` (exclusive). Return False if they are in use."""
        with self._lock:
            if self._filled != length or length + more > self._capacity:
                return False
            self._filled += more
            return True

    def fill(self, length: int, others: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Write the claimed rows after the first `length`, and return all rows up to their end."""
        end = length + len(others[0])
        for mine, column in zip(self._columns, others, strict=True):
            mine[length:end] = column
        return [column[:end] for column in self._columns]

    def running_max_timestamps(self, length: int) -> Int64s:
        """Return the running maximum for the first `length` rows. Computes each row once."""
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


def segments_by_partition(tables: Iterable[pa.Table]) -> dict[int, Segments]:
    """Convert tables of one topic's segment rows to columns. Return them by partition."""
    table = pa.concat_tables(tables)
    partitions = _numbers(table, "partition")
    order = np.lexsort((_numbers(table, "base_offset"), partitions))
    segments = _segments(table).take(order)
    numbers, firsts = np.unique(partitions[order], return_index=True)
    ends = [*firsts.tolist(), len(order)][1:]
    return {
        number: segments.take(slice(first, end))
        for number, first, end in zip(numbers.tolist(), firsts.tolist(), ends, strict=True)
    }


def _segments(table: pa.Table) -> Segments:
    base = _numbers(table, "base_offset")
    of_max = _numbers(table, "offset_of_max_timestamp")
    details = np.zeros(len(table), DETAILS)
    details["record_count"] = _numbers(table, "record_count")
    details["relative_offset_of_max"] = np.where(of_max < 0, -1, of_max - base)
    for position, suffix in enumerate(ALL_SUFFIXES):
        numbers = _numbers_or_zero if suffix in OPTIONAL_SUFFIXES else _numbers
        details["sizes"][:, position] = numbers(table, f"{suffix}_bytes")
    has_keys = details["sizes"][:, ALL_SUFFIXES.index("keyindex")] > 0
    details["keyindex_kinds"] = _kinds(table) * has_keys
    details["attempts"], attempts = _attempts(table)
    details["codec"] = _codes(table, "codec", compression.NAMES)
    details["timestamp_type"] = _codes(table, "timestamp_type", TIMESTAMP_TYPES)
    details["external"] = _values(table.column("external").combine_chunks().is_valid().cast("int8"))
    ends, smallest, largest = (
        _numbers(table, name) for name in ("end_offset", "min_timestamp", "max_timestamp")
    )
    return Segments(base, ends, smallest, largest, details, attempts)


def _numbers(table: pa.Table, name: str) -> npt.NDArray[Any]:
    column = table.column(name)
    if column.null_count:
        raise CorruptData(f"{name} is null in a segment row")
    return _values(column.combine_chunks())


def _numbers_or_zero(table: pa.Table, name: str) -> npt.NDArray[Any]:
    column: Any = table.column(name).combine_chunks()
    # This is 0 where the number is null. To coalesce with a scalar would import pandas.
    return _values(pc.coalesce(column, column.is_valid().cast("int64")))


def _values(column: Any) -> npt.NDArray[Any]:
    """Convert an Arrow array without nulls. `to_numpy` may import pandas (45 MB and 0.2 s)."""
    values: npt.NDArray[Any] = np.from_dlpack(column)
    return values


def _codes(table: pa.Table, name: str, names: Sequence[str]) -> npt.NDArray[Any]:
    column = table.column(name)
    coded: Any = column.combine_chunks().dictionary_encode()
    different = coded.dictionary.to_pylist()
    if column.null_count or not set(different) <= set(names):
        raise CorruptData(f"a {name} in a segment row is not one of {', '.join(names)}")
    codes = list(map(names.index, different))
    return np.array(codes, np.int8).take(_values(coded.indices))


def _kinds(table: pa.Table) -> npt.NDArray[Any]:
    """Return the kinds of subjects in each segment's key index. Bit k is set for kind k."""
    texts: Any = table.column("keyindex_of").combine_chunks()
    # Encode nulls too, because `fill_null` would import pandas.
    coded = texts.dictionary_encode("encode")
    try:
        different = coded.dictionary.to_pylist()
    except UnicodeDecodeError as error:
        raise CorruptData("keyindex_of in a segment row is not text") from error
    kinds = [sum({1 << each.kind for each in subjects_in(text)}) for text in different]
    return np.array(kinds, np.uint8).take(_values(coded.indices))


def _attempts(table: pa.Table) -> tuple[npt.NDArray[np.int32], AttemptIds]:
    """Return the positions of each segment's two attempts (log, index files), and the UUIDs."""
    logs, indexes = table.column("attempt_id"), table.column("index_attempt_id")
    both = pa.chunked_array([*logs.chunks, *indexes.chunks], pa.string()).combine_chunks()
    coded: Any = both.dictionary_encode()
    try:
        ids = b"".join(uuid.UUID(name).bytes for name in coded.dictionary.to_pylist())
    except ValueError as error:
        raise CorruptData("an attempt id in a segment row is not a UUID") from error
    if both.null_count:
        raise CorruptData("attempt_id is null in a segment row")
    return _values(coded.indices).reshape(2, -1).T, AttemptIds(np.frombuffer(ids, ATTEMPT).copy())
