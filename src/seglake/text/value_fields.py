"""Fields of record values: one finder of them for indexes, searches and columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from seglake.errors import ConfigError
from seglake.format.records import Flags, Spans
from seglake.format.value_format import ValueFormat
from seglake.text.csv_fields import CsvColumns, CsvFields
from seglake.text.json_fields import FieldNames, JsonFields, Scalars
from seglake.text.patterns import groups_of
from seglake.text.text_fields import TextFields


class ValueFields(Protocol):
    """The fields of some values, one per row."""

    @property
    def fine(self) -> Flags:
        """In which values fields can be found. A null is none of them."""

    def text(self, name: str) -> Spans:
        """The texts of a field without their types; null if missing."""

    def json(self, name: str) -> Spans:
        """The values of a field as JSON; null if missing."""

    def scalars(self, name: str) -> Scalars:
        """The strings, numbers, true and false of a field."""

    def is_null(self, name: str) -> Flags:
        """Whether a value that is fine lacks the field, or has null there."""


Finder = Callable[[Spans], ValueFields]  # of values in a padded buffer


def finder(value_format: ValueFormat, names: Iterable[str]) -> Finder:
    """What finds fields with these names in values of a format. Can be pickled.

    Raises ConfigError for a format of a later version of Seglake.
    """
    if not value_format:
        return partial(JsonFields, fields=FieldNames(names))
    match json.loads(value_format):
        case {"format": "csv", "columns": columns, "delimiter": delimiter, "quote": quote}:
            return partial(CsvFields, columns=CsvColumns(columns, delimiter, quote, names))
        case {"format": "text", "pattern": pattern}:
            return partial(TextFields, pattern=pattern)
    raise ConfigError(
        f"values have the format {value_format[:80]}, which this version of Seglake does not know: "
        "update it, or alter value.format"
    )


def names_in(value_format: ValueFormat) -> list[str]:
    """The names of all fields that a format declares; values of JSON declare none."""
    parts: dict[str, Any] = json.loads(value_format or "{}")
    declared = parts.get("columns") or groups_of(parts.get("pattern") or "")
    return [name for name in declared if name]
