"""Define the columns of a published table, and convert batches of records to them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from seglake.errors import UsageError
from seglake.format.value_format import ValueFormat
from seglake.limits import INT64_MAX
from seglake.log.execute import SCHEMA
from seglake.read.fields import Fields
from seglake.text.spans import from_arrow
from seglake.text.utf8 import invalid_utf8
from seglake.text.value_fields import Finder, field_finder

pc: Any = pyarrow.compute  # its type stubs require the type of each item
Array = Any  # a pa.Array, for the same reason
Flags = Any  # an array of bool

TableFields = Mapping[str, str | Sequence[str]] | Sequence[str]
"""Column → its type, or its field and type. A list of names has columns of text."""

_MICROS = pa.timestamp("us", tz="UTC")
_LOG: dict[str, Any] = {"partition": pa.int32(), "offset": pa.int64(), "timestamp": _MICROS}
_MOST_MS = INT64_MAX // 1000  # the largest time in ms that Delta can store in microseconds
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]|^$")  # in names of columns, by Delta
_KEYS = {"binary": pa.binary(), "string": pa.string()}


@dataclass(frozen=True)
class TableColumns:
    """The optional columns of a published table, and how values are converted.

    Every table has the columns partition, offset, timestamp, key and headers. `fields` maps each
    further column to its field and type. `value` and `timestamp_ms` state whether the table has
    these columns. `key` is the type of the key. A value that does not fit its type is an error if
    `strict` is set, else null.
    """

    fields: Mapping[str, tuple[str, str]]
    value: bool = False
    key: str = "binary"
    timestamp_ms: bool = False
    strict: bool = False

    @staticmethod
    def from_fields(fields: TableFields, **options: Any) -> TableColumns:
        """Return columns for `fields`, see `publish`. Raises UsageError for invalid columns."""
        if isinstance(fields, str):
            raise UsageError(f"fields must be a list or a dictionary. Write fields=[{fields!r}]")
        pairs = fields if isinstance(fields, Mapping) else dict.fromkeys(fields, "string")
        chosen = {
            name: (name, kind) if isinstance(kind, str) else (kind[0], kind[1])
            for name, kind in pairs.items()
        }
        columns = TableColumns(chosen, **options)
        if columns.key not in _KEYS:
            raise UsageError(f"the key must be {' or '.join(_KEYS)}, not {columns.key!r}")
        columns._check_names()
        columns._fields()
        return columns

    def _check_names(self) -> None:
        taken = {*_LOG, "key", "headers", "value", "timestamp_ms"}
        for name in self.fields:
            wrong = (
                "Delta forbids this name" if _FORBIDDEN.search(name)
                else "another column has this name, perhaps in other case"
                if name.lower() in taken else ""
            )  # fmt: skip
            if wrong:
                raise UsageError(
                    f"field {name!r} cannot be a column: {wrong}. Give the column a name, as in "
                    f"--fields new_name={name}:string, or fields={{'new_name': ({name!r}, "
                    f"'string')}}"
                )
            taken.add(name.lower())
        sources = Counter(source for source, _ in self.fields.values())
        if twice := [source for source, count in sources.items() if count > 1]:
            raise UsageError(f"field {twice[0]!r} is in two columns. Leave out one of them")

    def _fields(self) -> Fields | None:
        kinds = dict(self.fields.values())
        return Fields(kinds, self.strict) if kinds else None

    @staticmethod
    def parse(text: str) -> dict[str, tuple[str, str]]:
        """Parse `--fields` of a command line, as in `user,status:int32,at=created at:timestamp`.

        Return column → (field, type). The type is "string" by default.
        """
        fields = {}
        for each in filter(None, map(str.strip, text.split(","))):
            name, _, source = each.rpartition("=")
            field, _, kind = source.rpartition(":")
            field, kind = (field, kind) if field else (kind, "string")
            fields[name or field] = field, kind
        return fields

    def dump(self) -> str:
        """Return the columns as JSON, for the table's row in the catalog."""
        return json.dumps(asdict(self))

    @staticmethod
    def load(settings: str) -> TableColumns:
        """Return the columns from `settings`, the result of `dump`."""
        found = json.loads(settings)
        return TableColumns.from_fields(found.pop("fields"), **found)

    @property
    def read(self) -> list[str]:
        """Return the names of the columns to read from the log."""
        value = ["value"] if self.value or self.fields else []
        return ["partition", "offset", "timestamp", "key", "headers", *value]

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the table."""
        own = self._fields()
        kinds = {each.name: each.type for each in own.columns} if own else {}
        columns = dict(_LOG)
        if self.timestamp_ms:
            columns["timestamp_ms"] = pa.int64()
        columns |= {"key": _KEYS[self.key], "headers": SCHEMA.field("headers").type}
        for name, (source, _) in self.fields.items():
            kind = kinds[source]
            columns[name] = _MICROS if pa.types.is_timestamp(kind) else kind
        if self.value:
            columns["value"] = pa.binary()
        return pa.schema(columns)

    def finder(self, value_format: ValueFormat) -> Finder | None:
        """Return the finder of the fields in values of a format, or None without fields."""
        own = self._fields()
        return field_finder(value_format, own.kinds) if own else None

    def convert(
        self, read: pa.RecordBatch, find: Finder | None, misfits: Counter[str]
    ) -> pa.RecordBatch:
        """Convert records of the log to rows of the table.

        Values that do not fit the type of their column become null, and are counted in `misfits` by
        column. If `strict`, they raise UsageError.
        """
        ms = np.asarray(read["timestamp"].cast(pa.int64()))
        columns: dict[str, Array] = {name: read[name] for name in ("partition", "offset")}
        late = ms > _MOST_MS
        self._note(read, "timestamp", late, misfits)
        columns["timestamp"] = _micros(read["timestamp"], (ms >= 0) & ~late)
        if self.timestamp_ms:
            columns["timestamp_ms"] = pa.array(ms, mask=ms < 0)
        columns["key"], columns["headers"] = read["key"], read["headers"]
        if self.key == "string":
            bad = invalid_utf8(*from_arrow(read["key"]))
            self._note(read, "key", bad, misfits)
            columns["key"] = pc.if_else(pa.array(bad), None, read["key"]).cast(pa.string())
        if (own := self._fields()) and find:
            arrays, wrong = own.read(read["value"], find)
            for (name, (source, _)), array in zip(self.fields.items(), arrays, strict=True):
                bad = wrong[source]
                if pa.types.is_timestamp(array.type):
                    times = np.asarray(array.cast(pa.int64()).fill_null(0))
                    fits = np.abs(times) <= _MOST_MS
                    bad, array = bad | ~fits, _micros(array, fits)  # noqa: PLW2901  # converted
                self._note(read, name, bad, misfits)
                columns[name] = array
        if self.value:
            columns["value"] = read["value"]
        return pa.RecordBatch.from_arrays([*columns.values()], schema=self.schema)

    def _note(self, read: pa.RecordBatch, name: str, wrong: Flags, misfits: Counter[str]) -> None:
        count = int(np.count_nonzero(wrong))
        if count and self.strict:
            row = read.slice(int(np.argmax(wrong)), 1)
            raise UsageError(
                f"column {name!r} cannot hold the value of partition {row['partition'][0]}, offset "
                f"{row['offset'][0]}. Give it another type, or publish without --strict to get null"
            )
        if count:
            misfits[name] += count


def _micros(times: Array, keep: Flags) -> Array:
    """Convert times from ms to microseconds. Times that `keep` does not mark become null."""
    return pc.if_else(pa.array(keep), times, None).cast(_MICROS)
