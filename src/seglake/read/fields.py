"""Read fields of values as typed columns, using only the stored record and its topic's settings.

A field is found like an ingest finds it. In JSON, `a.b` is a member of that name, or else member
`b` of the object at `a`. Of repeated members, the last one counts. The text of a string, or of any
other scalar, is parsed as the column's type: `200` and `"200"` are the same number.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from seglake.errors import UsageError
from seglake.format.records import Flags, Spans
from seglake.format.value_format import ValueFormat
from seglake.log.execute import SCHEMA, ReadStats, map_side_by_side
from seglake.read.window.reader import WindowReader
from seglake.terminal.wording import counted
from seglake.text.spans import from_arrow, signed_integers, to_arrow
from seglake.text.value_fields import Finder, ValueFields, field_finder
from seglake.times.grammar import ISO, TimeFormat
from seglake.times.readers import read_times
from seglake.times.time_kernels import READ

BESIDE = ("partition", "offset", "timestamp")  # the columns of a log next to fields, by default
_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"

_log = logging.getLogger(__name__)

pc: Any = pyarrow.compute  # its stubs require the type of each item
Array = Any  # a pa.Array, for the same reason

Misfits = Counter[str]  # by field: values that the column's type cannot hold
Column = tuple[Array, Flags]  # the values, and which present values could not be parsed
Read = tuple[list[Array], dict[str, Flags]]  # the columns, and by field the unparsable values


def _read_text(texts: Spans) -> Column:
    return to_arrow(texts, pa.string()), np.zeros(len(texts), np.bool_)


def _read_integers(texts: Spans, kind: Any) -> Column:
    numbers, read = signed_integers(*texts)
    limits = np.iinfo(kind.to_pandas_dtype())
    read &= (numbers >= limits.min) & (numbers <= limits.max)
    return pa.array(numbers.astype(kind.to_pandas_dtype()), kind, mask=~read), _left(texts, read)


def _read_floats(texts: Spans, kind: Any) -> Column:
    array = to_arrow(texts)
    good = pc.fill_null(pc.match_substring_regex(array, _NUMBER), fill_value=False)
    numbers = pc.if_else(good, array, None).cast(pa.float64()).cast(kind)
    finite = pc.fill_null(pc.is_finite(numbers), fill_value=False)
    read = np.asarray(finite.to_numpy(zero_copy_only=False))
    return pc.if_else(finite, numbers, None), _left(texts, read)


def _read_flags(texts: Spans) -> Column:
    array = to_arrow(texts)
    true, false = (pc.fill_null(pc.equal(array, name), False) for name in ("true", "false"))
    good = pc.or_(true, false)
    read = np.asarray(good.to_numpy(zero_copy_only=False))
    return pc.if_else(good, true, None), _left(texts, read)


def _read_times(texts: Spans) -> Column:
    times = read_times(texts, TimeFormat(ISO))
    read = (texts.lengths >= 0) & (times.codes == READ)
    return pa.array(times.ms, SCHEMA.field("timestamp").type, mask=~read), _left(texts, read)


def _left(texts: Spans, read: Flags) -> Flags:
    """Return, for each text, whether it is present but could not be parsed."""
    return (texts.lengths >= 0) & ~read


_INTEGERS = {"int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64()}
_FLOATS = {"float32": pa.float32(), "float64": pa.float64()}
_OTHERS = {
    "string": pa.string(), "json": pa.string(), "bool": pa.bool_(),
    "timestamp": SCHEMA.field("timestamp").type,
}  # fmt: skip
TYPES: Mapping[str, pa.DataType] = {**_OTHERS, **_INTEGERS, **_FLOATS}
_ALIASES = {"int": "int32", "bigint": "int64", "long": "int64", "float": "float32",
            "double": "float64", "boolean": "bool", "text": "string"}  # fmt: skip


def _reader(kind: str) -> Callable[[ValueFields, str], Column]:
    if kind == "json":
        return lambda found, name: _read_text(found.json(name))
    if kind in _INTEGERS:
        return lambda found, name: _read_integers(found.text(name), _INTEGERS[kind])
    if kind in _FLOATS:
        return lambda found, name: _read_floats(found.text(name), _FLOATS[kind])
    plain = {"string": _read_text, "bool": _read_flags, "timestamp": _read_times}[kind]
    return lambda found, name: plain(found.text(name))


@dataclass(frozen=True)
class Fields:
    """Fields of record values, and the type of each field's column.

    `types` maps a field to `string`, `json` (the unchanged JSON text), `bool`, `int8` to `int64`,
    `float32`, `float64` or `timestamp` (ISO 8601, UTC without a zone). In a list of names,
    each field is a string. A missing field is null. A misfit is a value that does not fit the
    type, or a record value that is not of the topic's `value.format`. It is null and counted in
    `ReadStats.misfits`, or an error if `strict`. `kinds` maps each field to its type, a key of
    `TYPES`. Raises UsageError for an unknown type.
    """

    types: Mapping[str, str] | Sequence[str]
    strict: bool = False
    kinds: Mapping[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.types, str):
            raise UsageError(
                f"fields must be a list of names, or a dictionary with a type for each name. "
                f"Write fields=[{self.types!r}]"
            )
        pairs = self.types if isinstance(self.types, Mapping) else dict.fromkeys(self.types)
        kinds = {name: _kind(name, kind) for name, kind in pairs.items()}
        if not kinds:
            raise UsageError("fields is empty. Leave it out to read whole values")
        object.__setattr__(self, "kinds", kinds)

    @staticmethod
    def from_any(fields: AnyFields) -> Fields:
        """Convert the fields that a caller passed, in any accepted form, to `Fields`."""
        return fields if isinstance(fields, Fields) else Fields(fields)

    @staticmethod
    def parse(text: str) -> Fields:
        """Parse the fields of a command line, such as `user,status:int32`. Raises UsageError."""
        pairs = (each.strip().rpartition(":") for each in text.split(",") if each.strip())
        return Fields({name or kind: kind if name else "string" for name, _, kind in pairs})

    @property
    def columns(self) -> list[Any]:
        """Return the Arrow columns, in the order of the fields."""
        return [pa.field(name, TYPES[kind]) for name, kind in self.kinds.items()]

    def read(self, values: Array, find: Finder) -> Read:
        """Return the columns for `values`, and for each field a mask of the values that do not fit.

        `find` must find at least these fields.
        """
        texts = from_arrow(values)
        found = find(texts)
        broken = ~found.fine & (texts.lengths >= 0)
        read = {name: _reader(kind)(found, name) for name, kind in self.kinds.items()}
        return [array for array, _ in read.values()], {n: b | broken for n, (_, b) in read.items()}


AnyFields = Fields | Mapping[str, str] | Sequence[str]


def _kind(name: str, kind: str | None) -> str:
    chosen = "string" if kind is None else _ALIASES.get(kind.lower(), kind.lower())
    if chosen not in TYPES:
        raise UsageError(f"field {name!r} has the unknown type {kind!r}. Use {', '.join(TYPES)}")
    return chosen


class FieldReader:
    """Adds columns of fields to the `columns` of a log, by default partition, offset, timestamp.

    Fields are found with `value_format`. `wanted` are the columns to read from the log. Raises
    UsageError if a field has the name of one of the `columns`.
    """

    def __init__(
        self, fields: AnyFields, columns: Sequence[str] | None, value_format: ValueFormat
    ) -> None:
        self._fields = Fields.from_any(fields)
        self._find = field_finder(value_format, self._fields.kinds)
        self._beside = [*(BESIDE if columns is None else columns)]
        more = ["value", *(BESIDE[:2] if self._fields.strict else ())]
        self.wanted = [*dict.fromkeys([*self._beside, *more])]
        if twice := {*self._beside} & {each.name for each in self._fields.columns}:
            raise UsageError(
                f"{min(twice)!r} would be both a field and a column of the log. Leave out the "
                f"field, or in Python pass `columns` without {min(twice)!r}"
            )

    def over(self, window: WindowReader, stats: ReadStats | None = None) -> WindowReader:
        """Add the fields to a window of the columns `wanted`. `stats` counts misfits."""
        misfits = None if stats is None else stats.misfits
        return window.mapped(
            self.schema(window.schema), lambda batches: self.batches(batches, misfits)
        )

    def schema(self, read: pa.Schema) -> pa.Schema:
        """Return the columns of the result for batches with the schema `read`."""
        return pa.schema([*(read.field(name) for name in self._beside), *self._fields.columns])

    def batches(
        self, read: Iterator[pa.RecordBatch], misfits: Misfits | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches with fields instead of the value, and count misfits in `misfits`.

        If `misfits` is None, a warning with the number of misfits is logged at the end. Raises
        UsageError for a misfit if `strict`.
        """
        counts = Counter[str]() if misfits is None else misfits
        for batch, (arrays, left) in map_side_by_side(read, self._read):
            for name, which in left.items():
                self._note(batch, name, which, counts)
            beside = [batch[name] for name in self._beside]
            columns: Any = [*beside, *arrays]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema(batch.schema))
        if misfits is None:
            self._warn(counts)

    def _read(self, batch: pa.RecordBatch) -> Read:
        return self._fields.read(batch["value"], self._find)

    def _warn(self, misfits: Misfits) -> None:
        for name, count in misfits.items():
            records, kind = counted(count, "record"), self._fields.kinds[name]
            _log.warning(
                "field %r is not of type %s in %s, so it is null there", name, kind, records
            )

    def _note(self, batch: pa.RecordBatch, name: str, which: Flags, misfits: Misfits) -> None:
        count = int(np.count_nonzero(which))
        if count and self._fields.strict:
            row = batch.slice(int(np.argmax(which)), 1)
            place = f"partition {row['partition'][0]}, offset {row['offset'][0]}"
            raise UsageError(
                f"field {name!r} of {place} is not of type {self._fields.kinds[name]}. Read it "
                f"as a string, or without strict to get null"
            )
        if count:
            misfits[name] += count
