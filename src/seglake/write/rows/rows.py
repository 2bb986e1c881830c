"""Define the interface of an input format (`Format`), its rows, and the reasons to reject a row.

A format returns the rows of each chunk as `Rows`. `formats.registry` lists all formats.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from seglake.advice.conclude import AbsentFields
from seglake.config import Pipeline, Timestamp
from seglake.format.records import Flags, Headers, Int64s, Spans
from seglake.terminal import wording
from seglake.text.json import json_objects, quote_texts
from seglake.text.spans import join_fields, to_arrow
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

    The number is limited because short rows take more memory than their bytes in the file: their
    columns need memory, and every record repeats the field names in its JSON object or headers.
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
    """Return a hint for a name that does not exist, with a similar name or a list of all names.

    `where` is the subject of the sentence that lists the first of `names`, such as "the file".
    """
    # Reversed, so that the first of several names that differ only by case is suggested.
    more = ", …" if len(names) > _LISTED else ""
    has = f"{where} has {', '.join(map(repr, names[:_LISTED])) or 'no field'}{more}"
    return wording.suggest(name, reversed(names), has)


class Rows(ABC):
    """The rows of one chunk. Arrays have one item for each row.

    The default methods are for formats whose fields are text.
    """

    numbers: Int64s
    """The line number of each row, 0-based from the beginning of the chunk."""
    line_count: int
    """The number of lines of the chunk. Empty lines and headers count, too."""
    comment_lines: int = 0
    """The number of lines that are skipped because they begin with `input.comment`."""
    reasons: Codes
    """For each row, the `Reason` why it cannot be read, or Reason.NONE."""
    raw: Spans
    """The bytes of each row in the file. A row of columns is one JSON object."""
    all_names: Sequence[str] = ()
    """The names of all fields, if the input declares them."""

    @abstractmethod
    def field(self, name: str) -> Spans:
        """Return the values of a field as bytes, or null in rows without a value."""

    def take_raw(self, rows: Int64s) -> Spans:
        """Return the raw bytes of the rows at these positions, for the quarantine."""
        return self.raw.take(rows)

    def headers(self, name: str) -> tuple[Headers, Flags]:
        """Return (values of a field as record headers, which rows have unreadable headers).

        A row without a value has no headers. By default, values are JSON; see `read_headers`.
        """
        return read_headers(self.field(name))

    def times(self, name: str, form: TimeFormat) -> Times:
        """Return the values of a field as times, read in the format `form`."""
        return read_times(self.field(name), form)

    def json(self, name: str) -> Spans:
        """Return the values of a field as JSON, by default as strings. A null value stays null."""
        return quote_texts(self.field(name))

    def objects(self, names: Sequence[str]) -> Spans:
        """Return one JSON object per row with these fields. An empty `names` selects all fields."""
        names = names or self.all_names
        return json_objects(names, [self.json(name) for name in names], len(self.numbers))

    def absent(self, _names: Iterable[str]) -> AbsentFields:
        """Return the fields of `_names` that no row has, not even as null.

        By default no field is checked, because the format checks names before it reads rows.
        """
        return AbsentFields()


RowChunks = Iterator[tuple[str, Rows]]  # (path of the file or archive member, rows)


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

    def check(  # noqa: B027  # most formats have nothing to check
        self, _files: Sequence[SourceFile], _store: InputStore, _pipeline: Pipeline
    ) -> None:
        """Raise InputError unless one run can ingest all these files."""

    def value_settings(
        self, _files: Sequence[SourceFile], _store: InputStore, _pipeline: Pipeline
    ) -> dict[str, Any]:
        """Return the `value.*` settings of a topic whose values are raw lines of these files.

        Return {} if the lines are JSON objects, which need no setting, or if they have no known
        fields. Raises InputError.
        """
        return {}

    def can_split(self, file: SourceFile, store: InputStore, _pipeline: Pipeline) -> bool:
        """Return whether parts of the file can be read independently. Raises InputError."""
        return store.can_be_cut(file)

    @abstractmethod
    def read(self, split: Split, store: InputStore, pipeline: Pipeline) -> RowChunks:
        """Yield (path of the file or archive member, rows) for each chunk of a split.

        Chunks depend only on the file's bytes, the split and the settings. A chunk takes a few
        times `chunk_bytes` of memory, and has at most `most_rows` rows. Raises InputError.
        """


# ---------------- header json
# Parse record headers from JSON arrays, in the format that Seglake prints:
#
#     [{"key": "a", "value": null}, {"key": "c", "value": {"base64": "/w=="}}]
#
# Each distinct text is parsed only once.

Header = tuple[bytes, bytes | None]


def read_headers(texts: Spans) -> tuple[Headers, Flags]:
    """Parse the record headers in each text. Return (headers, which texts are invalid).

    A null text has no headers.
    """
    encoded = to_arrow(texts).view("large_binary").dictionary_encode()
    parsed = [_parsed(text) for text in encoded.dictionary.to_pylist()]
    codes = encoded.indices.fill_null(len(parsed)).to_numpy(zero_copy_only=False)
    lists = [[] if header_list is None else header_list for header_list in [*parsed, []]]
    items = list(chain.from_iterable(lists))
    firsts = np.append(0, np.cumsum([len(header_list) for header_list in lists])).astype(np.int64)
    keys, values = (Spans.from_list([item[at] for item in items]) for at in (0, 1))
    bad = np.array([header_list is None for header_list in [*parsed, []]])
    return Headers(firsts, keys, values).take(codes.astype(np.int64)), bad[codes]


def _parsed(text: bytes) -> list[Header] | None:
    """Return the headers in a JSON array, or None if the text is not such an array."""
    try:
        return [(header["key"].encode(), _value(header["value"])) for header in json.loads(text)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _value(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return b64decode(value["base64"], validate=True)
