"""Read and write Kafka's two sparse index files: offset index and time index.

    .index       8 bytes an entry:  relative offset i32, position i32
    .timeindex  12 bytes an entry:  timestamp i64, relative offset i32

All integers are big-endian, as always in Kafka. An offset entry maps the *last* offset of a batch
to the position of its *first* byte (`OffsetIndex`). A time entry states that every record newer
than `timestamp` is after `offset`, the last offset of the earliest batch that reached this running
maximum (`TimeIndex`). The first batch of a segment is never indexed; a closed segment's time index
ends with the segment's largest timestamp. Indexes depend only on the segment's batches and the
policy, so they can be rebuilt byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.errors import ConfigError, CorruptData
from seglake.format.batch import BatchTable
from seglake.format.records import Flags, Int64s
from seglake.format.value_format import JSON, ValueFormat, line_of, value_format_of
from seglake.limits import INT32_MAX

OFFSET_ENTRY = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])


class Subject(NamedTuple):
    """A subject of a key index: the record keys, a field of values, or a header.

    The subject of a field includes the value format with which it is found. A search with another
    value format cannot use the index.
    """

    kind: int  # KEYS, FIELDS or HEADERS
    name: str = ""  # of the field or header
    value_format: ValueFormat = JSON

    def __str__(self) -> str:
        return _KINDS[self.kind] + (f":{self.name}" if self.name else "")

    @staticmethod
    def parse(text: str, value_format: ValueFormat = JSON) -> Subject:
        """Parse `key`, `field:order.id` or `header:tenant`, the inverse of `str`.

        Raises KeyError for another kind.
        """
        kind, _, name = text.partition(":")
        number = {kind: number for number, kind in _KINDS.items()}[kind]
        return Subject(number, name, value_format if number == FIELDS else JSON)


KEYS, FIELDS, HEADERS = 1, 2, 3
_KINDS = {KEYS: "key", FIELDS: "field", HEADERS: "header"}
Subjects = tuple[Subject, ...]  # in order, each once
RECORD_KEYS = Subject(KEYS)


def subjects_of(settings: Mapping[str, Any]) -> Subjects:
    """Return the subjects of the key indexes of a topic with these settings."""
    keys = [RECORD_KEYS] if settings.get("index.keys") is True else []
    values = value_format_of(settings)
    fields = [Subject(FIELDS, name, values) for name in settings.get("index.fields", ())]
    headers = [Subject(HEADERS, name) for name in settings.get("index.headers", ())]
    return tuple(sorted({*keys, *fields, *headers}))


def format_of_fields(subjects: Iterable[Subject]) -> ValueFormat:
    """Return the value format that all fields of a key index share, by default `JSON`."""
    formats = {each.value_format for each in subjects if each.kind == FIELDS} or {JSON}
    (value_format,) = formats
    return value_format


def subjects_as_json(subjects: Subjects) -> str:
    """Format subjects as a JSON list, with an object for the fields' value format in front."""
    value_format = format_of_fields(subjects)
    first = [json.loads(value_format)] if value_format else []
    return json.dumps([*first, *map(str, subjects)])


def subjects_from_json(text: str) -> Subjects:
    """Parse the result of `subjects_as_json`.

    Any other text raises ValueError, LookupError, TypeError or another exception.
    """
    listed, value_format = json.loads(text), JSON
    if listed and isinstance(listed[0], dict):
        value_format = line_of(listed.pop(0))
    return tuple(Subject.parse(each, value_format) for each in listed)


@dataclass(frozen=True)
class IndexPolicy:
    """A rule that decides which batches of a segment get an index entry.

    This is Kafka's rule: a batch gets an entry if more than `interval` bytes precede it since the
    last entry (`index.interval.bytes`). 0 indexes every batch except the first. With `subjects`,
    the segment also has a key index of these subjects.
    """

    interval: int = 4096
    subjects: Subjects = ()

    def __post_init__(self) -> None:
        """Raise ConfigError for a negative interval."""
        if self.interval < 0:
            raise ConfigError(f"index.interval.bytes must not be negative, not {self.interval}")


@dataclass(frozen=True)
class OffsetIndex:
    """The entries of one .index file as columns. Offsets are absolute and increase strictly."""

    base_offset: int
    offsets: Int64s
    positions: Int64s

    @classmethod
    def decode(cls, base_offset: int, data: Any) -> OffsetIndex:
        """Decode the bytes of a file. A truncated last entry is ignored, as in Kafka."""
        entries = _entries(data, OFFSET_ENTRY)
        offsets = base_offset + entries["relative_offset"].astype(np.int64)
        return cls(base_offset, offsets, entries["position"].astype(np.int64))

    @classmethod
    def build(cls, base_offset: int, offsets: Int64s, positions: Int64s) -> OffsetIndex:
        """Build an index from its entries. Raises CorruptData if they are invalid."""
        _check_relative(base_offset, offsets)
        if np.any(np.diff(offsets) <= 0):
            raise CorruptData("offsets of an offset index must increase strictly")
        if len(positions) and not 0 <= positions.min() <= positions.max() <= INT32_MAX:
            raise CorruptData(f"a position is not between 0 and {INT32_MAX}")
        return cls(base_offset, offsets, positions)

    def __len__(self) -> int:
        return len(self.offsets)

    def encode(self) -> bytes:
        """Return the bytes of the .index file."""
        entries = np.empty(len(self), OFFSET_ENTRY)
        entries["relative_offset"] = self.offsets - self.base_offset
        entries["position"] = self.positions
        return entries.tobytes()

    def check(self, data: Any) -> None:
        """Check the entries, and the size of the file `data`, like Kafka's `sanityCheck`."""
        _check_last(self.base_offset, self.offsets)
        _check_length(data, OFFSET_ENTRY)


@dataclass(frozen=True)
class TimeIndex:
    """The entries of one .timeindex file as columns. Offsets are absolute."""

    base_offset: int
    timestamps: Int64s
    offsets: Int64s

    @classmethod
    def decode(cls, base_offset: int, data: Any) -> TimeIndex:
        """Decode the bytes of a file. A truncated last entry is ignored, as in Kafka."""
        entries = _entries(data, TIME_ENTRY)
        offsets = base_offset + entries["relative_offset"].astype(np.int64)
        return cls(base_offset, entries["timestamp"].astype(np.int64), offsets)

    @classmethod
    def build(cls, base_offset: int, timestamps: Int64s, offsets: Int64s) -> TimeIndex:
        """Build an index from points. A point is skipped unless its timestamp is a new maximum.

        The timestamp before the first point counts as -1. Raises CorruptData if timestamps or
        offsets decrease (`TimeIndex.maybeAppend`).
        """
        _check_relative(base_offset, offsets)
        if np.any(timestamps[1:] < timestamps[:-1]):
            raise CorruptData("timestamps of a time index must not decrease")
        rises = _rises(timestamps)
        if np.any(np.diff(offsets[rises]) < 0):
            raise CorruptData("offsets of a time index must not decrease")
        return cls(base_offset, timestamps[rises], offsets[rises])

    def __len__(self) -> int:
        return len(self.timestamps)

    def encode(self) -> bytes:
        """Return the bytes of the .timeindex file."""
        entries = np.empty(len(self), TIME_ENTRY)
        entries["timestamp"] = self.timestamps
        entries["relative_offset"] = self.offsets - self.base_offset
        return entries.tobytes()

    def check(self, data: Any) -> None:
        """Check the entries, and the size of the file `data`, like Kafka's `sanityCheck`."""
        if len(self) and self.timestamps[-1] < self.timestamps[0]:
            raise CorruptData("the last timestamp is smaller than the first")
        _check_last(self.base_offset, self.offsets)
        _check_length(data, TIME_ENTRY)


def offset_index(
    base_offset: int, table: BatchTable, indexed: npt.NDArray[np.bool_]
) -> OffsetIndex:
    """Return the offset index of a segment whose batches `table` describes."""
    rows = table[indexed]
    return OffsetIndex.build(base_offset, rows["last_offset"].copy(), rows["position"].copy())


def time_index(base_offset: int, table: BatchTable, indexed: npt.NDArray[np.bool_]) -> TimeIndex:
    """Return the time index of a closed segment whose batches `table` describes."""
    if not len(table):
        return TimeIndex.build(base_offset, np.empty(0, np.int64), np.empty(0, np.int64))
    highest = np.maximum(np.maximum.accumulate(table["max_timestamp"]), -1)
    reached_by = np.maximum.accumulate(np.where(_rises(highest), np.arange(len(table)), 0))
    points = np.append(np.flatnonzero(indexed), len(table) - 1)
    return TimeIndex.build(base_offset, highest[points], table["last_offset"][reached_by[points]])


def _rises(timestamps: Int64s) -> Flags:
    """Return, for each timestamp, whether it exceeds the preceding one. The first must exceed -1.

    Timestamps are not subtracted, because a difference could overflow.
    """
    rises: Flags = timestamps > np.append(-1, timestamps[:-1])
    return rises


def _entries(data: Any, dtype: np.dtype[Any]) -> npt.NDArray[np.void]:
    return np.frombuffer(data, dtype, len(memoryview(data).cast("B")) // dtype.itemsize)


def _check_last(base_offset: int, offsets: Int64s) -> None:
    if len(offsets) and offsets[-1] < base_offset:
        raise CorruptData(f"the last offset {offsets[-1]} is below the base offset {base_offset}")


def _check_length(data: Any, dtype: np.dtype[Any]) -> None:
    size = len(memoryview(data).cast("B"))
    if size % dtype.itemsize:
        raise CorruptData(f"{size} bytes are not a multiple of {dtype.itemsize}, an entry's size")


def _check_relative(base_offset: int, offsets: Int64s) -> None:
    for offset in (int(offsets.min()), int(offsets.max())) if len(offsets) else ():
        if not 0 <= offset - base_offset <= INT32_MAX:
            raise CorruptData(f"offset {offset} is out of range for base offset {base_offset}")
