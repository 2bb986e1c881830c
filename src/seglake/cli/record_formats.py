"""Format records as JSON lines and CSV rows, a whole Arrow batch at a time."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seglake.format.batch import TIMESTAMP_TYPES
from seglake.format.records import Spans
from seglake.log.execute import SCHEMA
from seglake.text.json import base64, quote_texts
from seglake.text.spans import (
    constant,
    decimal_text,
    from_arrow,
    join_rows,
    nulls_as,
    to_arrow,
    where_null,
)
from seglake.text.utf8 import invalid_utf8

_LEAST_MS, _MOST_MS = -62_135_596_800_000, 253_402_300_799_999  # years 1 to 9999


def iso_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of `iso_batches` for batches with the given schema."""
    kinds = [pa.string() if pa.types.is_timestamp(kind) else kind for kind in schema.types]
    return pa.schema([*zip(schema.names, kinds, strict=True)])


def iso_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Convert times to ISO 8601 in UTC, as `format_ms` does. A missing timestamp becomes null."""
    for batch in batches:
        schema = iso_schema(batch.schema)
        columns = [_iso(*each) for each in zip(schema.names, batch.columns, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _iso(name: str, column: Any) -> Any:
    if not pa.types.is_timestamp(column.type):
        return column
    times = column.cast(pa.timestamp("ms", "UTC"), safe=False)
    numbers = times.cast(pa.int64())
    ms = numbers.fill_null(0).to_numpy()
    dates = pc.strftime(times, format="%Y-%m-%dT%H:%M:%SZ")
    texts = pc.if_else((ms >= _LEAST_MS) & (ms <= _MOST_MS), dates, numbers.cast(pa.string()))
    return pc.if_else(ms == -1, None, texts) if name == "timestamp" else texts


def json_lines(batch: pa.RecordBatch) -> bytes:
    """Return a line for each record, with a member for each column, in the order of columns.

    Bytes that are not UTF-8 become {"base64": …}. Times are milliseconds.
    """
    count = len(batch)
    if not count:
        return b""
    parts: list[Spans] = []
    for name in batch.schema.names:
        opening = "," if parts else "{"
        label = json.dumps(name, ensure_ascii=False)
        parts += [constant(f"{opening}{label}:".encode(), count), _json_of(name, batch[name])]
    lines = join_rows([*parts, constant(b"}\n", count)])
    return lines.data[: int(lines.starts[-1] + lines.lengths[-1])].tobytes()


def _json_of(name: str, column: Any) -> Spans:
    """Return the JSON of each item in a column of a log or of a field."""
    kind = column.type
    if name == "timestamp_type" and kind == SCHEMA.field(name).type:
        names: Any = pa.array([f'"{each}"' for each in TIMESTAMP_TYPES])
        return from_arrow(names.take(column))
    if kind == SCHEMA.field("headers").type:
        return _json_headers(column)
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return _json_text(column)
    if pa.types.is_integer(column.type) and not column.null_count:
        return decimal_text(column.to_numpy())
    return nulls_as(from_arrow(column.cast(pa.string())), b"null")


def _json_text(array: Any) -> Spans:
    """Return the JSON of each item: a string, an object with base64, or null."""
    spans = from_arrow(array)
    invalid = invalid_utf8(*spans)
    texts = quote_texts(where_null(spans, invalid))
    if not invalid.any():
        return nulls_as(texts, b"null")
    texts = join_rows([nulls_as(texts, b""), _in_base64(spans, invalid)])
    return nulls_as(where_null(texts, spans.lengths < 0), b"null")


def _in_base64(spans: Spans, chosen: npt.NDArray[np.bool_]) -> Spans:
    """Return the JSON {"base64": …} of each chosen item, and null for other items."""
    count, encoded = len(spans), base64(where_null(spans, ~chosen))
    wrapped = join_rows([constant(b'{"base64":"', count), encoded, constant(b'"}', count)])
    return where_null(wrapped, ~chosen)


def _json_headers(lists: Any) -> Spans:
    """Return the headers of each record as a JSON list of objects."""
    firsts = lists.offsets.to_numpy().astype(np.int64)
    items = lists.values.slice(firsts[0], firsts[-1] - firsts[0])
    count, firsts = len(items), firsts - firsts[0]
    if not count:
        return constant(b"[]", len(lists))
    keys, values = _json_text(items.field("key")), _json_text(items.field("value"))
    labels = constant(b',{"key":', count), constant(b',"value":', count), constant(b"}", count)
    texts = join_rows([labels[0], keys, labels[1], values, labels[2]])
    ends = np.append(texts.starts, texts.starts[-1] + texts.lengths[-1])
    starts, stops = ends[firsts[:-1]], ends[firsts[1:]]
    comma = starts < stops  # this comma is in front of a record's first item
    inner = Spans(texts.data, starts + comma, (stops - starts - comma).astype(np.int32))
    return join_rows([constant(b"[", len(lists)), inner, constant(b"]", len(lists))])


def csv_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns as numbers and texts, for a CSV writer.

    Headers, and bytes that are not UTF-8, are JSON like in JSON lines. Times are in milliseconds.
    A null is an empty field without quotes.
    """
    names = batch.schema.names
    columns = [_csv_column(name, batch[name]) for name in names]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _csv_column(name: str, column: Any) -> Any:
    kind = column.type
    if name == "timestamp_type" and kind == SCHEMA.field(name).type:
        types: Any = pa.array(TIMESTAMP_TYPES, pa.large_string())
        return types.take(column)
    if kind == SCHEMA.field("headers").type:
        return to_arrow(_json_headers(column))
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64())
    return _csv_text(column) if pa.types.is_binary(kind) else column


def _csv_text(array: Any) -> Any:
    spans = from_arrow(array)
    invalid = invalid_utf8(*spans)
    if not invalid.any():
        return to_arrow(spans)
    plain, encoded = nulls_as(where_null(spans, invalid), b""), _in_base64(spans, invalid)
    return to_arrow(where_null(join_rows([plain, encoded]), spans.lengths < 0))
