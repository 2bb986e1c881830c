"""The rows of an Arrow batch, from a Parquet file or a DataFrame."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglake.errors import InputError
from seglake.format.records import Flags, Headers, Int64s, Spans
from seglake.limits import INT64_MAX
from seglake.text.json import json_objects
from seglake.times.grammar import TimeFormat
from seglake.times.readers import Times, in_range, read_times
from seglake.times.time_kernels import OUT_OF_RANGE, READ, UNREADABLE
from seglake.times.zones import read_local
from seglake.write.rows.arrow_json import (
    LISTS,
    as_lists,
    json_of,
    json_or_null,
    text_of,
    without_extension,
)  # fmt: skip
from seglake.write.rows.header_json import read_headers
from seglake.write.rows.rows import LackedFields, most_rows, nearest

_MS = pa.timestamp("ms")
_LAST_SECOND = INT64_MAX // 1000


def parts(batch: Any, size_bytes: int) -> Iterator[Any]:
    """An Arrow batch in slices of about `size_bytes`, within the bounds of `most_rows`."""
    rows = max(1, batch.num_rows * size_bytes // max(batch.nbytes, 1))
    items = sum(map(item_count, batch.columns)) // max(batch.num_rows, 1)
    rows = min(rows, most_rows([*leaf_names(batch.schema), *[""] * items]))
    return (batch.slice(first, rows) for first in range(0, batch.num_rows, rows))


def leaf_names(fields: Iterable[Any]) -> list[str]:
    """The names of fields and, of structs, those of the fields in them at any depth."""
    names = []
    for field in fields:
        below = list(field.type) if pa.types.is_struct(field.type) else []
        names += [field.name, *leaf_names(below)]
    return names


def leaves(column: Any) -> Iterator[Any]:
    """The columns without structs and lists that a column is made of."""
    if pa.types.is_struct(column.type):
        for at in range(column.type.num_fields):
            yield from leaves(pc.struct_field(column, [at]))
    elif any(test(column.type) for test in LISTS):
        yield from leaves(as_lists(column).flatten())
    else:
        yield column


def item_count(column: Any) -> int:
    """The count of items in the lists of a column, at any depth."""
    if pa.types.is_struct(column.type):
        return sum(
            item_count(pc.struct_field(column, [at])) for at in range(column.type.num_fields)
        )
    if not any(test(column.type) for test in LISTS):
        return 0
    items = as_lists(column).flatten()
    return len(items) + item_count(items)


class ArrowRows:
    """The rows of an Arrow batch: a row counts as a line, and its `raw` is JSON of all columns."""

    def __init__(self, path: str, batch: Any) -> None:
        self._path, self._batch = path, batch
        self.line_count = batch.num_rows
        self.numbers = np.arange(batch.num_rows, dtype=np.int64)
        self.reasons = np.zeros(batch.num_rows, np.int8)

    @property
    def raw(self) -> Spans:
        """One JSON object per row, with every column."""
        return self.objects(())

    def take_raw(self, rows: Int64s) -> Spans:
        """The rows at these positions; a column that cannot be JSON is null."""
        columns = self._batch.take(pa.array(rows)).columns
        return json_objects(self._batch.schema.names, list(map(json_or_null, columns)), len(rows))

    def field(self, name: str) -> Spans:
        """Strings and binaries as they are, times as ISO 8601, other values as JSON; null stays."""
        return text_of(self._column(name), self._path)

    def times(self, name: str, form: TimeFormat) -> Times:
        """Columns of a time type are converted, others are read as text in the format `form`."""
        column = self._column(name)
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("s") if column.type == pa.date32() else _MS)
        if not pa.types.is_timestamp(column.type):
            if form.text is None:
                raise InputError(
                    f"{self._path}: column {name} has type {column.type}, not a time type; "
                    "set timestamp.format"
                )
            return read_times(self.field(name), form)
        null = column.is_null().to_numpy(zero_copy_only=False)
        ms = _floor_ms(column)
        local = ~null if column.type.tz is None else np.zeros(len(ms), np.bool_)
        codes = np.where(null, UNREADABLE, READ).astype(np.int8)
        if form.any_year:
            codes[(ms < -1) | (ms == _LAST_SECOND * 1000)] = OUT_OF_RANGE
            return Times(read_local(ms, codes, local, form), codes, local & (codes == READ))
        return in_range(read_local(ms, codes, local, form), codes, local)

    def headers(self, name: str) -> tuple[Headers, Flags]:
        """Lists of structs, or maps, as record headers; text is read as JSON."""
        column = self._column(name)
        if not any(test(column.type) for test in LISTS):
            return read_headers(text_of(column, self._path))
        return self._listed_headers(name, as_lists(column))

    def _listed_headers(self, name: str, column: Any) -> tuple[Headers, Flags]:
        kind = column.type.value_type
        if not pa.types.is_struct(kind) or {field.name for field in kind} != {"key", "value"}:
            raise InputError(
                f"{self._path}: headers.array_field {name!r} has type {kind} in its lists: it must "
                "be a struct of key and value"
            )
        items = column.flatten()
        keys, values = (
            text_of(pc.struct_field(items, part), self._path) for part in ("key", "value")
        )
        sizes = column.value_lengths().fill_null(0).to_numpy()
        firsts = np.append(0, np.cumsum(sizes)).astype(np.int64)
        nameless = np.append(0, np.cumsum(keys.lengths < 0))
        return Headers(firsts, keys, values), np.diff(nameless[firsts]) > 0

    def objects(self, names: Sequence[str]) -> Spans:
        """One JSON object per row; without names, of every column."""
        names = names or self._batch.schema.names
        texts = [json_of(self._column(name), self._path) for name in names]
        return json_objects(names, texts, self.line_count)

    def absent(self, names: Iterable[str]) -> LackedFields | None:
        """None: a column that is not there is an error."""
        del names
        return None

    def _column(self, name: str) -> Any:
        """The column `name`; if there is none, "a.b" is the field b of the struct column a."""
        names = self._batch.schema.names
        first, *rest = [name] if name in names else name.split(".")
        if names.count(first) > 1:
            raise InputError(f"{self._path}: there are several columns {first}; rename all but one")
        column: Any = self._batch.column(first) if first in names else None
        for part in rest:
            struct = column is not None and pa.types.is_struct(column.type)
            has_part = struct and column.type.get_field_index(part) >= 0
            column = pc.struct_field(column, part) if has_part else None
        if column is None:
            raise InputError(
                f"{self._path}: no column {name!r}; {nearest(name, names, 'it')}; correct the "
                "settings or the file"
            )
        return without_extension(column)


def _floor_ms(column: Any) -> Int64s:
    """A timestamp column in milliseconds, rounded down; 0 for null.

    Seconds that 64 bits of milliseconds do not hold become the last ones that they do.
    """
    values: Int64s = column.cast(pa.int64()).fill_null(0).to_numpy()
    if column.type.unit == "s":
        return np.clip(values, -_LAST_SECOND, _LAST_SECOND) * 1000
    return values // {"ms": 1, "us": 1000, "ns": 1_000_000}[column.type.unit]
