"""Arrow columns as JSON text, one array at a time."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglake.errors import InputError
from seglake.format.records import Spans
from seglake.limits import INT64_MAX
from seglake.text.json import base64, json_objects, quoted
from seglake.text.simd import padded
from seglake.text.spans import constant, from_arrow, join_rows, nulls_as, to_arrow, where_null

_STRINGS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BINARIES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_BYTES = (*_STRINGS, *_BINARIES)
_LAST_YEAR = 32_767  # Arrow counts years in 16 bits, and writes others as if they were near
_TIMES = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_time)
LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_map)
_HEX = np.array([list(f"{byte:02x}".encode()) for byte in range(256)], np.uint8)
_UUID_DIGITS = [at for at in range(36) if at not in (8, 13, 18, 23)]


def text_of(column: Any, path: str) -> Spans:
    """The values as bytes: strings and binaries unchanged, times as ISO 8601, others as JSON."""
    column = without_extension(column)
    kind = column.type
    if pa.types.is_dictionary(kind):
        return text_of(column.dictionary_decode(), path)
    if any(test(kind) for test in _BYTES):
        return from_arrow(column)
    if any(test(kind) for test in _TIMES):
        return from_arrow(_iso(column))
    null = column.is_null().to_numpy(zero_copy_only=False)
    return where_null(json_of(column, path), null)


def json_of(column: Any, path: str) -> Spans:
    """The values as JSON.

    NaN and infinities become null, binaries base64, times ISO 8601 (in UTC if the type has a zone),
    maps arrays of {"key": …, "value": …}, a UUID its text. Raises InputError, which names `path`,
    for a type that cannot be JSON.
    """
    column = without_extension(column)
    kind = column.type
    if pa.types.is_dictionary(kind):
        return json_of(column.dictionary_decode(), path)
    if any(test(kind) for test in (*_BYTES, *_TIMES)):
        return nulls_as(quoted(_string(column)), b"null")
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        fields = [json_of(pc.struct_field(column, [at]), path) for at in range(len(names))]
        return _or_null(json_objects(names, fields, len(column)), column)
    if any(test(kind) for test in LISTS):
        return _json_list(column, path)
    return _json_number(column, path)


def without_extension(column: Any) -> Any:
    """A UUID as text, another extension type as its storage; JSON stays, for it is no string."""
    if not isinstance(column.type, pa.BaseExtensionType):
        return column
    name = column.type.extension_name
    if name == "arrow.json":
        return column
    return _uuid_texts(column.storage) if name == "arrow.uuid" else column.storage


def _uuid_texts(column: Any) -> Any:
    """Sixteen bytes each as 8-4-4-4-12 hex digits."""
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
    """The values as JSON; the literal null for a column that cannot be JSON."""
    try:
        return json_of(column, "")
    except InputError:
        return constant(b"null", len(column))


def _string(column: Any) -> Spans:
    """The text between the quotes, for a column whose values are JSON strings."""
    if any(test(column.type) for test in _BINARIES):
        return base64(from_arrow(column))
    return from_arrow(_iso(column) if any(test(column.type) for test in _TIMES) else column)


def _json_number(column: Any, path: str) -> Spans:
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))
    if pa.types.is_duration(column.type):
        column = column.cast(pa.int64())
    try:
        return nulls_as(from_arrow(column.cast(pa.large_string())), b"null")
    except pa.ArrowException as problem:
        raise InputError(f"{path}: type {column.type} cannot be JSON: {problem}") from problem


def as_lists(column: Any) -> Any:
    """A column of a type of LISTS as large lists."""
    if pa.types.is_map(column.type):
        items = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
        column = column.cast(pa.list_(items))
    if pa.types.is_large_list(column.type):
        return column
    return column.cast(pa.large_list(column.type.value_type))


def _json_list(column: Any, path: str) -> Spans:
    column = as_lists(column)
    items = to_arrow(json_of(column.flatten(), path))
    sizes = column.value_lengths().fill_null(0).to_numpy()
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
    lists = pa.LargeListArray.from_arrays(pa.array(ends), items)
    joined = pc.binary_join(lists, pa.scalar(",", pa.large_string()))
    opening, closing = constant(b"[", len(column)), constant(b"]", len(column))
    return _or_null(join_rows([opening, from_arrow(joined), closing]), column)


def _or_null(text: Spans, column: Any) -> Spans:
    """`text`, with the literal null where the column is null."""
    return nulls_as(where_null(text, column.is_null().to_numpy(zero_copy_only=False)), b"null")


def _iso(column: Any) -> Any:
    """Times as ISO 8601 text; `<value out of range: N>`, as Arrow has it, for a far year."""
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
    """Which times, counted in this unit, are in a year that Arrow can write."""
    years = [np.datetime64(str(year), "s") for year in (-_LAST_YEAR, _LAST_YEAR)]
    low, high = (int(each.astype(np.int64)) * _PER_SECOND[unit] for each in years)
    bounds = [pa.scalar(max(-INT64_MAX, min(each, INT64_MAX)), pa.int64()) for each in (low, high)]
    return pc.and_(pc.greater_equal(numbers, bounds[0]), pc.less_equal(numbers, bounds[1]))
