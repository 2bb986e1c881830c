"""Records as Spark's Kafka source gives them: its column names, its types, its nulls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from seglake.datasource.options import COLUMNS
from seglake.errors import UsageError
from seglake.read.decode.columns import HEADER, SCHEMA, schema_of

_READ_AS = dict.fromkeys(COLUMNS) | {"timestampType": "timestamp_type"}
_TYPES: dict[str, Any] = {
    "timestamp": pa.timestamp("us", tz="UTC"),
    "headers": pa.list_(pa.field("element", HEADER)),
}
_LEAST_ROWS, _MOST_ROWS = 16_384, 65_536  # of a batch; between them, Spark is equally fast
_ENOUGH_BYTES = 4 * 2**20


def read_schema(columns: Sequence[str]) -> pa.Schema:
    """What to read so that `in_spark` can make the columns."""
    return schema_of([_READ_AS[name] or name for name in columns])


def spark_schema(columns: Sequence[str]) -> pa.Schema:
    """What Spark demands of every batch, to the letter."""
    return pa.schema(
        [(name, _TYPES.get(name) or SCHEMA.field(_READ_AS[name] or name).type) for name in columns]
    )


def in_spark(
    batches: Iterable[pa.RecordBatch], columns: Sequence[str], kept: int = 0
) -> Iterator[pa.RecordBatch]:
    """The records in batches of `spark_schema`: small ones are put together, large ones divided.

    The first `kept` columns of a batch are the caller's own and stay what they are.
    """
    for batch in _joined(batches):
        own = batch.columns[:kept]
        arrays = [_converted(batch.column(kept + i), name) for i, name in enumerate(columns)]
        schema = pa.schema([*list(batch.schema)[:kept], *spark_schema(columns)])
        whole = pa.RecordBatch.from_arrays([*own, *arrays], schema=schema)
        for start in range(0, len(whole), _MOST_ROWS):
            yield whole.slice(start, _MOST_ROWS)


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + len(batch), size + batch.nbytes
        if rows >= _LEAST_ROWS or size >= _ENOUGH_BYTES:
            yield _one(held)
            held, rows, size = [], 0, 0
    if held:
        yield _one(held)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    arrow: Any = pa
    return batches[0] if len(batches) == 1 else arrow.concat_batches(batches)


def _converted(array: Any, name: str) -> Any:
    if name == "timestamp":
        return _microseconds(array)
    return _without_empty(array) if name == "headers" else array


def _microseconds(timestamps: Any) -> Any:
    try:
        return timestamps.cast(_TYPES["timestamp"])
    except pa.ArrowInvalid:
        largest = int(np.abs(timestamps.cast(pa.int64()).to_numpy()).max())
        raise UsageError(
            f"a record has timestamp {largest} ms, which Spark's timestamps cannot hold: leave out"
            " the column timestamp with option columns"
        ) from None


def _without_empty(headers: Any) -> Any:
    """The lists, with null for an empty one: that is how Spark shows a record without headers."""
    offsets = headers.offsets.to_numpy()
    empty = pa.array(offsets[1:] == offsets[:-1])
    lists: Any = pa.ListArray
    own = pa.array(offsets)  # those of a part of a batch are a slice, which takes no mask
    return lists.from_arrays(own, headers.values, type=_TYPES["headers"], mask=empty)
