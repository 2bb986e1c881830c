"""Convert records to the columns of Spark's Kafka source: names, types and nulls."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from seglake.datasource.options import COLUMNS
from seglake.errors import UsageError
from seglake.log.execute import HEADER, SCHEMA, schema_of

_READ_AS = dict.fromkeys(COLUMNS) | {"timestampType": "timestamp_type"}
_TYPES: dict[str, Any] = {
    "timestamp": pa.timestamp("us", tz="UTC"),
    "headers": pa.list_(pa.field("element", HEADER)),
}
_LEAST_ROWS, _MOST_ROWS = 8_192, 65_536  # limits of a batch: Spark is equally fast between them
_ENOUGH_BYTES = 2 * 2**20  # batches of this size are not joined, because that copies them


def choose_columns(columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return `columns`, by default all except headers. Raises UsageError for an unknown column."""
    unknown = [name for name in columns or () if name not in COLUMNS]
    if unknown:
        raise UsageError(f"unknown column {unknown[0]!r}. The columns are {', '.join(COLUMNS)}")
    return COLUMNS[:-1] if columns is None else tuple(columns)


def read_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of the log columns that `to_spark_batches` converts to these columns."""
    return schema_of([_READ_AS[name] or name for name in columns])


def spark_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the exact schema that Spark requires of every batch."""
    return pa.schema(
        [(name, _TYPES.get(name) or SCHEMA.field(_READ_AS[name] or name).type) for name in columns]
    )


def to_spark_batches(
    batches: Iterable[pa.RecordBatch], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the records in batches of `spark_schema`. Join small batches and split large ones.

    The first columns of a batch are `columns`; the rest are fields of values.
    """
    for batch in _joined(batches):
        arrays = [_converted(array) for array in batch.columns]
        named = list(zip(batch.schema.names, arrays, strict=True))[len(columns) :]
        fields = [pa.field(name, array.type) for name, array in named]
        schema = pa.schema([*spark_schema(columns), *fields])
        whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
        for start in range(0, len(whole), _MOST_ROWS):
            yield whole.slice(start, _MOST_ROWS)


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + len(batch), size + batch.nbytes
        if rows >= _LEAST_ROWS or size >= _ENOUGH_BYTES:
            yield _one(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    arrow: Any = pa
    return batches[0] if len(batches) == 1 else arrow.concat_batches(batches)


def _converted(array: Any) -> Any:
    if pa.types.is_timestamp(array.type):
        return _microseconds(array)
    return _without_empty(array) if pa.types.is_list(array.type) else array


def _microseconds(timestamps: Any) -> Any:
    try:
        return timestamps.cast(_TYPES["timestamp"])
    except pa.ArrowInvalid:
        ends: Any = pc.min_max(timestamps.cast(pa.int64()))
        largest = max(ends.as_py().values(), key=abs)
        raise UsageError(
            f"a record has timestamp {largest} ms, which Spark's timestamps cannot hold. Leave out"
            " the column timestamp with option columns"
        ) from None


def _without_empty(headers: Any) -> Any:
    """Replace empty lists by null, as in Spark's Kafka source for records without headers."""
    offsets = headers.offsets.to_numpy()
    empty = pa.array(offsets[1:] == offsets[:-1])
    lists: Any = pa.ListArray
    own = pa.array(offsets)  # a copy: the offsets of a sliced batch cannot have a mask
    return lists.from_arrays(own, headers.values, type=_TYPES["headers"], mask=empty)
