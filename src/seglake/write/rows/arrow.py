"""Read the rows of an Arrow batch, from a Parquet file or a DataFrame."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglake.cached import cached_property
from seglake.errors import InputError
from seglake.format.records import Flags, Headers, Int64s, Spans
from seglake.limits import INT64_MAX
from seglake.text.json import base64, json_objects, quote_texts
from seglake.text.simd import padded
from seglake.text.spans import constant, from_arrow, join_rows, nulls_as, to_arrow, where_null
from seglake.times.grammar import TimeFormat
from seglake.times.readers import Times, in_range, read_times
from seglake.times.time_kernels import OUT_OF_RANGE, READ, UNREADABLE
from seglake.times.zones import read_local
from seglake.write.rows.rows import Rows, most_rows, read_headers, similar_names_hint

_MS = pa.timestamp("ms")
_LAST_SECOND = INT64_MAX // 1000


def cut_batch(batch: Any, size_bytes: int) -> Iterator[Any]:
    """Cut an Arrow batch into slices of about `size_bytes`, with at most `most_rows` rows each."""
    rows = max(1, batch.num_rows * size_bytes // max(batch.nbytes, 1))
    items = sum(map(item_count, batch.columns)) // max(batch.num_rows, 1)
    rows = min(rows, most_rows([*leaf_names(batch.schema), *[""] * items]))
    return (batch.slice(first, rows) for first in range(0, batch.num_rows, rows))


def leaf_names(fields: Iterable[Any]) -> list[str]:
    """Return the names of fields and of all fields nested in structs, at any depth."""
    names = []
    for field in fields:
        below = list(field.type) if pa.types.is_struct(field.type) else []
        names += [field.name, *leaf_names(below)]
    return names


def leaves(column: Any) -> Iterator[Any]:
    """Yield the columns that are nested in a column at any depth, without structs and lists.

    If the column is neither a struct nor a list, yield the column itself.
    """
    if pa.types.is_struct(column.type):
        for at in range(column.type.num_fields):
            yield from leaves(pc.struct_field(column, [at]))
    elif any(test(column.type) for test in LISTS):
        yield from leaves(as_lists(column).flatten())
    else:
        yield column


def item_count(column: Any) -> int:
    """Return the total number of items in the lists and maps of a column, at any depth."""
    if pa.types.is_struct(column.type):
        fields = (pc.struct_field(column, [at]) for at in range(column.type.num_fields))
        return sum(map(item_count, fields))
    if not any(test(column.type) for test in LISTS):
        return 0
    items = as_lists(column).flatten()
    return len(items) + item_count(items)


class ArrowRows(Rows):
    """The rows of an Arrow batch. A row counts as a line."""

    def __init__(self, path: str, batch: Any) -> None:
        self._path, self._batch = path, batch
        self.line_count = batch.num_rows
        self.numbers = np.arange(batch.num_rows, dtype=np.int64)
        self.reasons = np.zeros(batch.num_rows, np.int8)
        self.all_names = batch.schema.names

    @cached_property
    def raw(self) -> Spans:
        """Return one JSON object per row, with all columns."""
        return self.objects(())

    def take_raw(self, rows: Int64s) -> Spans:
        """Return the rows at these positions as JSON objects, for the quarantine.

        Columns of a type that cannot be converted to JSON are null.
        """
        columns = self._batch.take(pa.array(rows)).columns
        return json_objects(self._batch.schema.names, list(map(json_or_null, columns)), len(rows))

    def field(self, name: str) -> Spans:
        """Return the values of a column as bytes; see `column_text`."""
        return column_text(self._column(name), f"{self._path}: column {name}")

    def times(self, name: str, form: TimeFormat) -> Times:
        """Return the values of a column as times.

        A column without a time type is read as text, in the format `form`.
        """
        column = self._column(name)
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("s") if column.type == pa.date32() else _MS)
        if not pa.types.is_timestamp(column.type):
            if form.text is None:
                raise InputError(
                    f"{self._path} has a column {name!r} of type {column.type}, which is not a "
                    "time type. Set timestamp.format"
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
        """Return (values of a column as record headers, which rows have unreadable headers).

        Values are lists of structs (key, value), maps, or JSON text.
        """
        column = self._column(name)
        if not any(test(column.type) for test in LISTS):
            return read_headers(column_text(column, self._path))
        return self._listed_headers(name, as_lists(column))

    def _listed_headers(self, name: str, column: Any) -> tuple[Headers, Flags]:
        kind = column.type.value_type
        if not pa.types.is_struct(kind) or {field.name for field in kind} != {"key", "value"}:
            raise InputError(
                f"{self._path} has lists of {kind} in headers.array_field {name!r}. Their items "
                "must be structs of key and value"
            )
        items = column.flatten()
        parts = (pc.struct_field(items, part) for part in ("key", "value"))
        keys, values = (column_text(part, self._path) for part in parts)
        sizes = column.value_lengths().fill_null(0).to_numpy()
        firsts = np.append(0, np.cumsum(sizes)).astype(np.int64)
        nameless = np.append(0, np.cumsum(keys.lengths < 0))
        return Headers(firsts, keys, values), np.diff(nameless[firsts]) > 0

    def json(self, name: str) -> Spans:
        """Return the values of a column as JSON; see `column_json`."""
        return column_json(self._column(name), f"{self._path}: column {name}")

    def _column(self, name: str) -> Any:
        """Return the column `name`. Without such a column, "a.b" is field b of struct column a.

        Raises InputError if this field does not exist either.
        """
        names = self._batch.schema.names
        first, *rest = [name] if name in names else name.split(".")
        if names.count(first) > 1:
            raise InputError(f"{self._path} has several columns {first!r}. Rename all but one")
        column: Any = self._batch.column(first) if first in names else None
        for part in rest:
            struct = column is not None and pa.types.is_struct(column.type)
            has_part = struct and column.type.get_field_index(part) >= 0
            column = pc.struct_field(column, part) if has_part else None
        if column is None:
            raise InputError(
                f"{self._path} has no column {name!r}. Correct the settings or the file. "
                f"{similar_names_hint(name, names, 'It')}"
            )
        return plain_column(column)


def _floor_ms(column: Any) -> Int64s:
    """Convert a timestamp column to milliseconds, rounded down. Null becomes 0.

    Milliseconds that do not fit in 64 bits become the nearest whole second that fits.
    """
    values: Int64s = column.cast(pa.int64()).fill_null(0).to_numpy()
    if column.type.unit == "s":
        return np.clip(values, -_LAST_SECOND, _LAST_SECOND) * 1000
    return values // {"ms": 1, "us": 1000, "ns": 1_000_000}[column.type.unit]


# ---------------- arrow json
# Convert Arrow columns to JSON text, one array at a time.

_STRINGS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BINARIES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_LAST_YEAR = 32_767  # Arrow counts years in 16 bits, and writes wrong text for later ones
_TIMES = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_time)
LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_map)
_HEX = np.array([list(f"{byte:02x}".encode()) for byte in range(256)], np.uint8)
_UUID_DIGITS = [at for at in range(36) if at not in (8, 13, 18, 23)]


def column_text(column: Any, path: str) -> Spans:
    """Return the values of a column as bytes. A null value remains null.

    Strings and binaries are unchanged, times become ISO 8601, and other values become JSON. Errors
    name `path`.
    """
    column = plain_column(column)
    kind = column.type
    if any(test(kind) for test in (*_STRINGS, *_BINARIES)):
        return from_arrow(column)
    if any(test(kind) for test in _TIMES):
        return from_arrow(_iso(column))
    null = column.is_null().to_numpy(zero_copy_only=False)
    return where_null(column_json(column, path), null)


def column_json(column: Any, path: str) -> Spans:
    """Return the values of a column as JSON.

    NaN and infinities become null. Binaries become base64, and UUIDs text. Times become ISO 8601,
    in UTC if the type has a zone. Maps become arrays of {"key": …, "value": …}. Raises InputError,
    which names `path`, for a type that cannot be converted.
    """
    column = plain_column(column)
    kind = column.type
    if any(test(kind) for test in _BINARIES):
        return nulls_as(quote_texts(base64(from_arrow(column))), b"null")
    if any(test(kind) for test in (*_STRINGS, *_TIMES)):
        return nulls_as(quote_texts(column_text(column, path)), b"null")
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        fields = [column_json(pc.struct_field(column, [at]), path) for at in range(len(names))]
        return _or_null(json_objects(names, fields, len(column)), column)
    if any(test(kind) for test in LISTS):
        return _json_list(column, path)
    return _json_number(column, path)


def plain_column(column: Any) -> Any:
    """Return a column without a dictionary and without an extension type.

    UUIDs become text. Columns of Arrow's JSON type are kept, because their values are already JSON:
    as strings, they would be quoted. Other extension types become their storage type.
    """
    if pa.types.is_dictionary(column.type):
        return plain_column(column.dictionary_decode())
    if not isinstance(column.type, pa.BaseExtensionType):
        return column
    name = column.type.extension_name
    if name == "arrow.json":
        return column
    return _uuid_texts(column.storage) if name == "arrow.uuid" else column.storage


def _uuid_texts(column: Any) -> Any:
    """Convert UUIDs of 16 bytes to text with 8-4-4-4-12 hex digits."""
    count = len(column)
    data = np.frombuffer(column.buffers()[1] or b"", np.uint8)
    out = padded(36 * count)
    rows = out[: 36 * count].reshape(count, 36)
    rows[:] = ord("-")
    items = data[16 * column.offset :][: 16 * count]
    rows[:, _UUID_DIGITS] = _HEX[items].reshape(count, 32)
    texts = Spans(out, np.arange(count) * 36, np.full(count, 36, np.int32))
    return to_arrow(where_null(texts, column.is_null().to_numpy(zero_copy_only=False)))


def json_or_null(column: Any) -> Spans:
    """Return the values of a column as JSON. All are null if the type cannot be converted."""
    try:
        return column_json(column, "")
    except InputError:
        return constant(b"null", len(column))


def _json_number(column: Any, path: str) -> Spans:
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))
    if pa.types.is_duration(column.type):
        column = column.cast(pa.int64())
    try:
        return nulls_as(from_arrow(column.cast(pa.large_string())), b"null")
    except pa.ArrowException as problem:
        raise InputError(
            f"{path} has type {column.type}, which cannot be written as JSON ({problem}). Convert "
            "the column, or leave it out of value.columns"
        ) from problem


def as_lists(column: Any) -> Any:
    """Convert a column of lists or maps to large lists. Map entries become (key, value) structs."""
    if pa.types.is_map(column.type):
        items = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
        column = column.cast(pa.list_(items))
    if pa.types.is_large_list(column.type):
        return column
    return column.cast(pa.large_list(column.type.value_type))


def _json_list(column: Any, path: str) -> Spans:
    column = as_lists(column)
    items = to_arrow(column_json(column.flatten(), path))
    sizes = column.value_lengths().fill_null(0).to_numpy()
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
    lists = pa.LargeListArray.from_arrays(pa.array(ends), items)
    joined = pc.binary_join(lists, pa.scalar(",", pa.large_string()))
    opening, closing = constant(b"[", len(column)), constant(b"]", len(column))
    return _or_null(join_rows([opening, from_arrow(joined), closing]), column)


def _or_null(text: Spans, column: Any) -> Spans:
    """Return `text`, with the JSON literal null where the column is null."""
    return nulls_as(where_null(text, column.is_null().to_numpy(zero_copy_only=False)), b"null")


def _iso(column: Any) -> Any:
    """Return times as ISO 8601 text.

    A time after the year 32,767 or before -32,767 becomes `<value out of range: N>`, as in Arrow.
    """
    if not pa.types.is_timestamp(column.type):
        return column.cast(pa.large_string())
    form = "%Y-%m-%dT%H:%M:%S" + ("Z" if column.type.tz else "")
    if column.type.tz:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    numbers = column.cast(pa.int64())
    near = _is_near(numbers, column.type.unit)
    if pc.all(near, skip_nulls=True, min_count=0).as_py():
        return pc.strftime(column, form)
    texts = pc.binary_join_element_wise("<value out of range: ", numbers.cast(pa.string()), ">", "")
    nearest = pc.if_else(near, column, pa.scalar(0, column.type))
    return pc.if_else(near, pc.strftime(nearest, form), texts)


def _is_near(numbers: Any, unit: str) -> Any:
    """Return, for each time in `unit`, whether Arrow can format its year."""
    years = [np.datetime64(str(year), "s") for year in (-_LAST_YEAR, _LAST_YEAR)]
    low, high = (int(each.astype(np.int64)) * _PER_SECOND[unit] for each in years)
    bounds = [pa.scalar(max(-INT64_MAX, min(each, INT64_MAX)), pa.int64()) for each in (low, high)]
    return pc.and_(pc.greater_equal(numbers, bounds[0]), pc.less_equal(numbers, bounds[1]))
