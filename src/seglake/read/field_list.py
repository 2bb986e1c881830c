"""List the fields in a sample of values: names, types and how many values have them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from seglake.format.value_format import ValueFormat
from seglake.read.fields import BESIDE
from seglake.terminal.tables import Column, ShowsTable, Table, number
from seglake.terminal.wording import counted
from seglake.text.spans import from_arrow, to_arrow
from seglake.text.value_fields import declared_names, field_finder
from seglake.times.grammar import ISO, TimeFormat
from seglake.times.readers import read_times
from seglake.times.time_kernels import READ

_SHOWN = 60  # fields in a table
_INT64 = range(-(2**63), 2**63)
_ZONED = re.compile(r":\d{2}(?:[.,]\d+)?(?:[Zz]| ?[+-]\d{2}(?::?\d{2})?)$")


class ListedField(NamedTuple):
    """A field: its name, the type of column that fits all its values, and the number of values."""

    name: str
    type: str
    records: int


@dataclass(frozen=True, repr=False)
class FieldList(ShowsTable):
    """The fields of a sample of records, in the order of their first occurrence.

    `sampled` is the number of records. `objects` counts the records whose value has fields: it is a
    JSON object, or it has the topic's `value.format`.
    """

    sampled: int
    objects: int
    fields: Sequence[ListedField]

    @property
    def types(self) -> dict[str, str]:
        """Return the type of each field, except fields named partition, offset or timestamp."""
        return {each.name: each.type for each in self.fields if each.name not in BESIDE}

    def _table(self) -> Table:
        values, records = counted(self.objects, "value"), counted(self.sampled, "record")
        title = f"Fields in {values} of {records}"
        columns = [Column("name", "field"), Column("type", "type"), number("records", "records")]
        return Table(title, columns, [*map(tuple, self.fields[:_SHOWN])], len(self.fields))


def listed(values: Sequence[bytes | None], value_format: ValueFormat) -> FieldList:
    """Return the fields of these values. Members of a nested object are listed instead of it."""
    return _declared(values, value_format) if value_format else _members_of(values)


def _declared(values: Sequence[bytes | None], value_format: ValueFormat) -> FieldList:
    """Return the fields that a format declares. Texts of JSON numbers and booleans get a type."""
    names = declared_names(value_format)
    value_fields = field_finder(value_format, names)(from_arrow(pa.array(values, pa.binary())))
    fields = []
    for name in names:
        scalars = value_fields.scalars(name)
        texts = to_arrow(scalars.texts).to_pylist()
        items = [
            _number(text) if raw else text
            for text, raw in zip(texts, scalars.raw.tolist(), strict=True)
        ]
        fields.append(ListedField(name, _type_of(items), len(items)))
    return FieldList(len(values), int(value_fields.fine.sum()), fields)


def _number(text: str) -> Any:
    """Parse a JSON number, true or false. Return an integer with too many digits as text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _members_of(values: Sequence[bytes | None]) -> FieldList:
    met: dict[str, list[Any]] = {}
    objects = 0
    for value in values:
        members = _object(value)
        objects += members is not None
        for name, item in dict(_members(members or {})).items():
            met.setdefault(name, []).append(item)
    lists = {name: items for name, items in met.items() if not all(map(_is_whole, items))}
    fields = [ListedField(name, _type_of(items), len(items)) for name, items in lists.items()]
    return FieldList(len(values), objects, fields)


def _is_whole(item: Any) -> bool:
    """Return whether an item is an object with members. The members are listed instead of it."""
    return isinstance(item, dict) and bool(item)


def _object(value: bytes | None) -> dict[str, Any] | None:
    try:
        document = json.loads(value or b"")
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _members(members: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (path, item) of the members at every depth.

    Top-level members whose name contains a dot are yielded last, so that they take precedence.
    """
    yield from _below(members, "")
    yield from ((name, item) for name, item in members.items() if "." in name)


def _below(members: dict[str, Any], way: str) -> Iterator[tuple[str, Any]]:
    """Yield (path, item) of the members at every depth, except below names that contain a dot."""
    for name, item in members.items():
        if "." not in name:
            yield way + name, item
            if isinstance(item, dict):
                yield from _below(item, f"{way}{name}.")


def _type_of(items: Sequence[Any]) -> str:
    """Return the narrowest type of column that fits all items. Null fits every type."""
    kinds = {type(item) for item in items if item is not None}
    if not kinds:
        return "string"
    if kinds & {dict, list}:
        return "json"
    if kinds == {int} and all(item in _INT64 for item in items if item is not None):
        return "int64"
    if kinds <= {int, float}:
        return "float64" if all(map(_fits_float, items)) else "string"
    if kinds == {bool}:
        return "bool"
    return "timestamp" if kinds == {str} and _are_times(items) else "string"


def _fits_float(item: float | None) -> bool:
    try:
        return item is None or math.isfinite(item)
    except OverflowError:  # an integer of hundreds of digits
        return False


def _are_times(items: Sequence[str | None]) -> bool:
    """Return whether all items are times with a zone. Without a zone, the instant is unknown."""
    if not all(item is None or _ZONED.search(item) for item in items):
        return False
    values = [item.encode("utf-8", "replace") for item in items if item is not None]
    texts = from_arrow(pa.array(values, pa.binary()))
    return bool((read_times(texts, TimeFormat(ISO)).codes == READ).all())
