"""Records as rows of CSV, a whole Arrow batch at a time."""

from typing import Any

import pyarrow as pa

from seglake.cli.terminal.json_lines import in_base64, json_headers
from seglake.format.batch import TIMESTAMP_TYPES
from seglake.log.decode.columns import SCHEMA
from seglake.text.spans import from_arrow, join_rows, nulls_as, to_arrow, where_null
from seglake.text.utf8 import invalid_utf8


def csv_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of `csv_rows` for batches with the columns `schema`."""
    return pa.schema([(field.name, _csv_type(field.name, field.type)) for field in schema])


def csv_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns as numbers and texts, for a CSV writer.

    Bytes that are not UTF-8 and headers are JSON, as they are in JSON lines, and times are
    milliseconds. A null is an empty field without quotes.
    """
    schema = csv_schema(batch.schema)
    columns = [_column(name, batch[name]) for name in batch.schema.names]
    cast = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def _csv_type(name: str, kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if name == "timestamp_type" or not pa.types.is_primitive(kind):
        return pa.large_string()
    return kind


def _column(name: str, column: Any) -> Any:
    kind = column.type
    if name == "timestamp_type" and kind == SCHEMA.field(name).type:
        types: Any = pa.array(TIMESTAMP_TYPES, pa.large_string())
        return types.take(column)
    if kind == SCHEMA.field("headers").type:
        return to_arrow(json_headers(column))
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64())
    return _text(column) if pa.types.is_binary(kind) else column


def _text(array: Any) -> Any:
    spans = from_arrow(array)
    invalid = invalid_utf8(*spans)
    if not invalid.any():
        return to_arrow(spans)
    plain, encoded = nulls_as(where_null(spans, invalid), b""), in_base64(spans, invalid)
    return to_arrow(where_null(join_rows([plain, encoded]), spans.lengths < 0))
