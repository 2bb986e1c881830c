"""Records as rows of CSV, a whole Arrow batch at a time."""

from typing import Any

import pyarrow as pa

from seglake.cli.terminal.json_lines import in_base64, json_headers
from seglake.format.batch import TIMESTAMP_TYPES
from seglake.text.spans import from_arrow, join_rows, nulls_as, to_arrow, where_null
from seglake.text.utf8 import invalid_utf8

_NUMBERS: dict[str, pa.DataType] = {
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.int64(),
}
_NAMES = ("topic", *_NUMBERS, "timestamp_type", "key", "value", "headers")
SCHEMA = pa.schema([(name, _NUMBERS.get(name, pa.large_string())) for name in _NAMES])


def csv_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The fields of a record's JSON line as numbers and texts, for a CSV writer.

    Bytes that are not UTF-8 and headers are JSON, as they are there. A null is an empty field
    without quotes.
    """
    types: Any = pa.array(TIMESTAMP_TYPES, pa.large_string())
    columns = {
        "timestamp": batch["timestamp"].cast(pa.int64()),
        "timestamp_type": types.take(batch["timestamp_type"]),
        "key": _text(batch["key"]),
        "value": _text(batch["value"]),
        "headers": to_arrow(json_headers(batch["headers"])),
    }
    values = [columns[name] if name in columns else batch[name] for name in SCHEMA.names]
    cast = [value.cast(field.type) for value, field in zip(values, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=SCHEMA)


def _text(array: Any) -> Any:
    spans = from_arrow(array)
    invalid = invalid_utf8(*spans)
    if not invalid.any():
        return to_arrow(spans)
    plain, encoded = nulls_as(where_null(spans, invalid), b""), in_base64(spans, invalid)
    return to_arrow(where_null(join_rows([plain, encoded]), spans.lengths < 0))
