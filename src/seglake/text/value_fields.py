"""Find the fields of record values by their value format, for indexes, searches and columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, cast

import numpy as np
import pyarrow.compute

from seglake.errors import ConfigError
from seglake.format.records import NULL, Flags, Int64s, Spans
from seglake.format.value_format import ValueFormat
from seglake.text.csv_kernels import scan_values, undouble
from seglake.text.json import quote_texts
from seglake.text.json_fields import FieldNames, JsonFields, Scalars
from seglake.text.patterns import match_groups, named_groups
from seglake.text.spans import from_arrow, from_ends, to_arrow, where_null
from seglake.text.utf8 import invalid_utf8


class ValueFields(Protocol):
    """The fields of a column of record values. Results have one item for each value."""

    fine: Flags
    """For each value, whether it can be parsed. A null value cannot."""

    def text(self, name: str) -> Spans:
        """Return, for each value, the text of a field without its type, or null if missing."""

    def json(self, name: str) -> Spans:
        """Return, for each value, a field as JSON, or null if missing."""

    def scalars(self, name: str) -> Scalars:
        """Return the strings, numbers, true and false of a field, and the row of each."""

    def is_null(self, name: str) -> Flags:
        """Return, for each value, whether it can be parsed and its field is missing or null."""


Finder = Callable[[Spans], ValueFields]  # the values must be in a padded buffer


def field_finder(value_format: ValueFormat, names: Iterable[str]) -> Finder:
    """Return a function that finds the fields `names` in values of a value format.

    The function can be pickled. Raises ConfigError for a format of a later version of Seglake.
    """
    if not value_format:
        return partial(JsonFields, fields=FieldNames(names))
    match json.loads(value_format):
        case {"format": "csv", "columns": columns, "delimiter": delimiter, "quote": quote, **rest}:
            marks = csv_marks(delimiter, quote, cast("str | None", rest.get("escape")))
            return partial(CsvFields, columns=CsvColumns(columns, marks, names))
        case {"format": "text", "pattern": pattern}:
            return partial(TextFields, pattern=pattern)
    raise ConfigError(
        f"values have the format {value_format[:80]}, which this version of Seglake does not "
        "support. Update Seglake, or change value.format"
    )


def declared_names(value_format: ValueFormat) -> list[str]:
    """Return the CSV columns or named groups in a value format. JSON values give []."""
    parts: dict[str, Any] = json.loads(value_format or "{}")
    declared = parts.get("columns") or named_groups(parts.get("pattern") or "")
    return [name for name in declared if name]


# ---------------- untyped fields
# Find fields whose values are texts without a type, as in CSV and lines of text.

_RAW_JSON = r"^(true|false|-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?)$"


class UntypedFields(ValueFields):
    """A base class for formats whose fields have no types. An empty field is null."""

    def json(self, name: str) -> Spans:
        """Return, for each value, the text of a field as a JSON string, or null if missing."""
        return quote_texts(self.text(name))

    def scalars(self, name: str) -> Scalars:
        """Return the text of a field in each row that has it.

        `raw` is true for a text that is also a valid JSON number, true or false.
        """
        texts = self.text(name)
        rows = np.flatnonzero(texts.lengths >= 0)
        some = texts.take(rows)
        raw = pc.match_substring_regex(to_arrow(some), _RAW_JSON)
        return Scalars(rows, some, raw.to_numpy(zero_copy_only=False))

    def is_null(self, name: str) -> Flags:
        """Return, for each value, whether it can be parsed and its field is missing or empty."""
        null: Flags = self.fine & (self.text(name).lengths < 0)
        return null


# ---------------- csv fields
# Find the fields of CSV records, and return their texts without quotes and escapes.


def csv_marks(
    delimiter: str,
    quote: str,
    escape: str | None = None,
    comment: str | None = None,
    *,
    multiline: bool = True,
) -> Int64s:
    """Return the special characters of a CSV dialect as an array; see `marks` in `csv_kernels`."""
    others = [ord(each) if each else -1 for each in (escape, comment)]
    return np.array([ord(delimiter), ord(quote), multiline, *others], np.int64)


def texts_of(data: Spans, places: Int64s, marks: Int64s) -> Spans:
    """Return the text of one field in each record, without quotes and escapes, or null if empty.

    `places` has (start, length, number of pairs) of the field in each record; see `undouble`.
    """
    start, length, pairs = places.T
    spans = Spans(data.data, start.copy(), length.astype(np.int32))
    if pairs.any():
        quote, escape = int(marks[1]), int(marks[3])
        spans = from_ends(*undouble(*spans, np.ascontiguousarray(pairs), quote, escape))
    return Spans(spans.data, spans.starts, np.where(length == 0, np.int32(NULL), spans.lengths))


class CsvColumns:
    """The columns of CSV records, and the numbers (slots) of the columns to extract.

    `names` are the columns to extract. Names that are not in `columns` are ignored. `slots` maps
    extracted names to slots, and `by_column` has the slot of each column, or -1.
    """

    def __init__(self, columns: Sequence[str], marks: Int64s, names: Iterable[str]) -> None:
        self.marks = marks
        fields = [name for name in dict.fromkeys(names) if name and name in columns]
        self.slots = {name: slot for slot, name in enumerate(fields)}
        self.by_column = np.array([self.slots.get(name, -1) for name in columns], np.int64)


class CsvFields(UntypedFields):
    """The fields of values that are CSV records. `values` must be in a padded buffer.

    A value is `fine` if it is UTF-8 and one record with as many fields as there are columns. A line
    end (LF, CR LF or CR) at the end of a value is ignored.
    """

    def __init__(self, values: Spans, columns: CsvColumns) -> None:
        self._values, self._columns = values, columns
        read = where_null(values, invalid_utf8(*values))
        self.fine: Flags
        count = len(columns.slots)
        self.fine, self._places = scan_values(*read, columns.marks, columns.by_column, count)

    def text(self, name: str) -> Spans:
        """Return, for each value, the text of a column, or null if it is empty.

        All results are null if there is no such column.
        """
        slot = self._columns.slots.get(name)
        if slot is None:
            return Spans.nulls(len(self.fine))
        return texts_of(self._values, self._places[:, slot], self._columns.marks)


# ---------------- text fields
# Find the fields of lines of text, which are the named groups of a pattern.

pc: Any = pyarrow.compute  # Any, because its stubs require the type of each item


class TextFields(UntypedFields):
    """The fields of texts, which are the named groups of `pattern`.

    `texts` must be in a padded buffer. `fine` marks the texts that match, and `invalid` the texts
    that are not UTF-8.
    """

    def __init__(self, texts: Spans, pattern: str) -> None:
        self.invalid: Flags = invalid_utf8(*texts)
        self._matches = match_groups(to_arrow(where_null(texts, self.invalid)), pattern)
        self._names = {field.name for field in self._matches.type}
        self.fine: Flags = self._matches.is_valid().to_numpy(zero_copy_only=False)

    def text(self, name: str) -> Spans:
        """Return, for each value, the text of a group, or null if it is empty or not matched.

        All results are null if the pattern has no such group.
        """
        if name not in self._names:
            return Spans.nulls(len(self.fine))
        spans = from_arrow(pc.struct_field(self._matches, name))
        return where_null(spans, spans.lengths <= 0)
