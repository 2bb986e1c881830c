"""The interface of an input format (`Format`), its rows, and the reasons to reject a row.

A format gives its rows as `Rows`: the columns of one chunk. `formats.registry` lists all formats.
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

MOST_ROWS = 1 << 18  # of a chunk; an ordinary split has fewer
_MOST_CELLS = 1 << 20  # of a chunk; a cell is a field of a row, or 16 bytes of its name
_CELL_BYTES = 16
_LISTED = 10  # names that a message shows


def most_rows(names: Iterable[str]) -> int:
    """The most rows of a chunk whose records take the fields, or the texts, `names`.

    The columns of a short row take more memory than its bytes in the file, and so do the names of
    its fields where a JSON object or a header repeats them.
    """
    cells = sum(1 + len(name) // _CELL_BYTES for name in names)
    return max(1, min(MOST_ROWS, _MOST_CELLS // max(cells, 1)))


class Reason(IntEnum):
    """Why a row is rejected.

    A row that cannot be read has the reason that its format gives. Of several other reasons, the
    first in this order counts.
    """

    text: str

    def __new__(cls, code: int, text: str) -> Reason:
        """A reason; reports and the quarantine show its `text`."""
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


REASON_TEXTS = np.array([reason.text for reason in Reason])


def nearest(name: str, names: Sequence[str], where: str) -> str:
    """What may be meant by a name that is not there: the nearest of `names`, or the first ones."""
    near = wording.as_near(name, reversed(names))  # of names that differ by case, the first
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    more = ", …" if len(names) > _LISTED else ""
    return f"{where} has {', '.join(map(repr, names[:_LISTED])) or 'no field'}{more}"


class LackedFields(NamedTuple):
    """The fields that no row of a chunk has, and one row."""

    fields: list[str]
    row: bytes


class Rows(Protocol):
    """The rows of one chunk."""

    @property
    def numbers(self) -> Int64s:
        """The line number of each row, 0-based from the beginning of the chunk."""

    @property
    def line_count(self) -> int:
        """The count of lines of the chunk, empty lines and headers included."""

    @property
    def reasons(self) -> Codes:
        """Why each row cannot be read; Reason.NONE if it can."""

    @property
    def raw(self) -> Spans:
        """The bytes of the rows in the file."""

    def take_raw(self, rows: Int64s) -> Spans:
        """The raw bytes of the rows at these positions, for the quarantine."""

    def field(self, name: str) -> Spans:
        """The values of a field as bytes; null if a row has no value."""

    def headers(self, name: str) -> tuple[Headers, Flags]:
        """The values of a field as record headers, and which rows have none that can be read.

        A row without a value has no headers.
        """

    def times(self, name: str, form: TimeFormat) -> Times:
        """The values of a field as times."""

    def objects(self, names: Sequence[str]) -> Spans:
        """One JSON object per row, of these fields; without names, of every field."""

    def absent(self, names: Iterable[str]) -> LackedFields | None:
        """The fields that no row has, not even as null.

        None if the format checks names beforehand, or if no row can be parsed.
        """


def texts_of_times(rows: Rows, settings: Timestamp) -> Spans:
    """The text of each row's time, with a blank between fields; null if a row lacks one of them."""
    return join_fields([rows.field(name) for name in settings.names], b" ")


def times_of(rows: Rows, settings: Timestamp, form: TimeFormat) -> Times:
    """The times of some rows, written as `form` says: those of one field, or of several joined."""
    if settings.field is not None:
        return rows.times(settings.field, form)
    return read_times(texts_of_times(rows, settings), form)


class Format(ABC):
    """How files of one `input.format` become rows. By default they are independent text files."""

    def check(self, files: Sequence[SourceFile], store: InputStore, pipeline: Pipeline) -> None:
        """Raise InputError unless one run can ingest all these files."""
        del files, store, pipeline

    def value_settings(
        self, files: Sequence[SourceFile], store: InputStore, pipeline: Pipeline
    ) -> dict[str, Any]:
        """Return the `value.*` settings of a topic whose values are raw lines of these files.

        There are none for JSON objects, and for lines without known fields. Raises InputError.
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
        """Yield the rows of a split, chunk by chunk, each with the path of its file or member.

        Chunks are a function of the file's bytes, the split and the settings. A chunk takes a few
        times `chunk_bytes` of memory, and has at most `most_rows`. Raises InputError.
        """
