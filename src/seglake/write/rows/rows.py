"""Define the interface of an input format (`Format`), its rows, and the reasons to reject a row.

A format returns the rows of each chunk as `Rows`. `formats.registry` lists all formats.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from seglake.config import Pipeline, Timestamp
from seglake.format.records import Flags, Headers, Int64s, Spans
from seglake.terminal import wording
from seglake.text.spans import join_fields
from seglake.times.grammar import TimeFormat
from seglake.times.readers import Times, read_times
from seglake.write.input.content import InputStore
from seglake.write.input.files import SourceFile, Split

Codes = npt.NDArray[np.int8]

# Bounds of a chunk. An ordinary split has fewer rows. Cells estimate memory: a row has one cell for
# each field, and one more for every 16 bytes of the field's name.
MOST_ROWS = 1 << 18
_MOST_CELLS = 1 << 20
_CELL_BYTES = 16
_LISTED = 10  # number of names in a message


def most_rows(names: Iterable[str]) -> int:
    """Return the largest number of rows in a chunk. `names` are the fields that the records use.

    Short rows may take more memory than bytes in the file: for their columns, and for the field
    names, which a JSON object or headers repeat in every record.
    """
    cells = sum(1 + len(name) // _CELL_BYTES for name in names)
    return max(1, min(MOST_ROWS, _MOST_CELLS // max(cells, 1)))


class Reason(IntEnum):
    """The reason why a row is rejected.

    If a row cannot be read, its format sets the reason. Otherwise, if several reasons apply, the
    reason with the smallest code is used.
    """

    text: str

    def __new__(cls, code: int, text: str) -> Reason:
        """Create a reason. Reports and the quarantine show its `text`."""
        member = int.__new__(cls, code)
        member._value_, member.text = code, text
        return member

    NONE = 0, ""
    NOT_PARSEABLE = 1, "not parseable"
    INVALID_UTF8 = 2, "invalid UTF-8"
    TOO_LARGE = 3, "record too large"
    TIMESTAMP_MISSING = 4, "timestamp missing"
    TIMESTAMP_UNREADABLE = 5, "timestamp unreadable"
    TIMESTAMP_OUT_OF_RANGE = 6, "timestamp out of range"
    KEY_MISSING = 7, "key missing"
    PARTITION_OUT_OF_RANGE = 8, "partition out of range"
    EVENT_TOO_LONG = 9, "event too long"
    TIMESTAMP_TOO_OLD = 10, "timestamp too old for message.timestamp.before.max.ms"
    TIMESTAMP_TOO_NEW = 11, "timestamp too new for message.timestamp.after.max.ms"
    OFFSET_UNREADABLE = 12, "offset unreadable"
    TIMESTAMP_TYPE_UNREADABLE = 13, "timestamp type unreadable"
    HEADERS_UNREADABLE = 14, "headers unreadable"
    TIMESTAMP_AMBIGUOUS = 15, "timestamp ambiguous in its zone: see timestamp.ambiguous"
    TIMESTAMP_NONEXISTENT = 16, "timestamp nonexistent in its zone: see timestamp.nonexistent"
    NOT_IN_ENCODING = 17, "not in encoding: see input.encoding"
    NOT_IN_ARRAY = 18, "no array of events: see input.records"
    TIMESTAMP_BEFORE_1970 = (19, "timestamp before 1970: use another field or LogAppendTime")


REASON_TEXTS = np.array([reason.text for reason in Reason])


def similar_names_hint(name: str, names: Sequence[str], where: str) -> str:
    """Return a hint for a name that does not exist, with similar names or a list of all names.

    `where` is the subject of the sentence that lists the first of `names`, such as "the file".
    """
    # Reversed, so that the first of several names that differ only by case is suggested.
    near = wording.nearest_two(name, reversed(names))
    if near:
        return f"Did you mean {' or '.join(map(repr, near))}?"
    more = ", …" if len(names) > _LISTED else ""
    return f"{where} has {', '.join(map(repr, names[:_LISTED])) or 'no field'}{more}"


class MissingFields(NamedTuple):
    """The fields that are missing in all rows of a chunk, and one row as an example."""

    fields: list[str]
    row: bytes


class Rows(Protocol):
    """The rows of one chunk. Arrays have one item for each row."""

    @property
    def numbers(self) -> Int64s:
        """Return the line number of each row, 0-based from the beginning of the chunk."""

    @property
    def line_count(self) -> int:
        """Return the number of lines of the chunk. Empty lines and headers count, too."""

    @property
    def comment_lines(self) -> int:
        """Return the number of lines that are skipped because they begin with `input.comment`."""

    @property
    def reasons(self) -> Codes:
        """Return, for each row, the `Reason` why it cannot be read, or Reason.NONE."""

    @property
    def raw(self) -> Spans:
        """Return the bytes of each row in the file. A row of columns is one JSON object."""

    def take_raw(self, rows: Int64s) -> Spans:
        """Return the raw bytes of the rows at these positions, for the quarantine."""

    def field(self, name: str) -> Spans:
        """Return the values of a field as bytes, or null in rows without a value."""

    def headers(self, name: str) -> tuple[Headers, Flags]:
        """Return (values of a field as record headers, which rows have unreadable headers).

        A row without a value has no headers.
        """

    def times(self, name: str, form: TimeFormat) -> Times:
        """Return the values of a field as times, read in the format `form`."""

    def objects(self, names: Sequence[str]) -> Spans:
        """Return one JSON object per row with these fields. An empty `names` selects all fields."""

    def absent(self, names: Iterable[str]) -> MissingFields | None:
        """Return the fields that no row has, not even as null.

        Return None if the format checks names beforehand, or if no row can be parsed.
        """


def time_texts(rows: Rows, settings: Timestamp) -> Spans:
    """Return the texts of all time fields of each row, joined by spaces.

    The result is null if one of the fields is missing.
    """
    return join_fields([rows.field(name) for name in settings.names], b" ")


def read_row_times(rows: Rows, settings: Timestamp, form: TimeFormat) -> Times:
    """Parse the time of each row in the format `form`, from one field or several joined fields."""
    if settings.field is not None:
        return rows.times(settings.field, form)
    return read_times(time_texts(rows, settings), form)


class Format(ABC):
    """A base class for the readers of input formats.

    The default methods are for text files that are independent of each other.
    """

    def check(self, files: Sequence[SourceFile], store: InputStore, pipeline: Pipeline) -> None:
        """Raise InputError unless one run can ingest all these files."""
        del files, store, pipeline

    def value_settings(
        self, files: Sequence[SourceFile], store: InputStore, pipeline: Pipeline
    ) -> dict[str, Any]:
        """Return the value format, as settings, of values that are raw lines of these files.

        Return {} if the lines are JSON objects, which need no setting, or if they have no known
        fields. Raises InputError.
        """
        del files, store, pipeline
        return {}

    def can_split(self, file: SourceFile, store: InputStore, _pipeline: Pipeline) -> bool:
        """Return whether parts of the file can be read independently. Raises InputError."""
        return store.can_be_cut(file)

    @abstractmethod
    def read(
        self, split: Split, store: InputStore, pipeline: Pipeline
    ) -> Iterator[tuple[str, Rows]]:
        """Yield (path of the file or archive member, rows) for each chunk of a split.

        Chunks depend only on the file's bytes, the split and the settings. A chunk takes a few
        times `chunk_bytes` of memory, and has at most `most_rows` rows. Raises InputError.
        """
