"""Decoded records as Arrow record batches; only the columns asked for are built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from seglake.errors import CorruptData, UsageError
from seglake.format.batch import Decoded
from seglake.format.encode_kernels import put_bytes
from seglake.format.records import Bytes, Headers, Int32s, Int64s, Spans
from seglake.read.segments import LogSegment

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_FIELDS: dict[str, Any] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
    "timestamp_type": pa.int32(),  # 0 CreateTime, 1 LogAppendTime
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(HEADER),
}
SCHEMA = pa.schema(_FIELDS)

Array = Any  # a pa.Array: pyarrow's stubs ask for the type of its items

_MAX_BYTES = 2**31 - 1  # of one column in an Arrow array with 32-bit offsets


def schema_of(columns: Sequence[str] | None) -> pa.Schema:
    """The schema of the columns asked for, in the order asked; None means all of them."""
    names = SCHEMA.names if columns is None else list(columns)
    unknown = [name for name in names if name not in SCHEMA.names]
    if unknown:
        raise UsageError(f"unknown column {unknown[0]!r}; columns are {', '.join(SCHEMA.names)}")
    if len(set(names)) < len(names):
        raise UsageError(f"a column is asked for twice: {', '.join(names)}")
    return pa.schema([SCHEMA.field(name) for name in names])


def record_batch(
    segment: LogSegment, decoded: Decoded, rows: Int64s | None, schema: pa.Schema
) -> pa.RecordBatch:
    """The records at the positions `rows` (None: all) with the columns of `schema`."""
    chosen = np.arange(len(decoded.offsets)) if rows is None else rows
    arrays = [_BUILD[name](segment, decoded, chosen) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _topic(segment: LogSegment, _decoded: Decoded, rows: Int64s) -> Array:
    return pa.repeat(pa.scalar(segment.topic, pa.string()), len(rows))


def _partition(segment: LogSegment, _decoded: Decoded, rows: Int64s) -> Array:
    return pa.array(np.full(len(rows), segment.partition, np.int32))


def _offset(_segment: LogSegment, decoded: Decoded, rows: Int64s) -> Array:
    return pa.array(decoded.offsets[rows])


def _timestamp(_segment: LogSegment, decoded: Decoded, rows: Int64s) -> Array:
    return pa.array(decoded.records.timestamps[rows]).view(SCHEMA.field("timestamp").type)


def _timestamp_type(_segment: LogSegment, decoded: Decoded, rows: Int64s) -> Array:
    return pa.array(decoded.timestamp_types[rows].astype(np.int32))


def _key(segment: LogSegment, decoded: Decoded, rows: Int64s) -> Array:
    return _binary(segment, decoded.records.keys, rows)


def _value(segment: LogSegment, decoded: Decoded, rows: Int64s) -> Array:
    return _binary(segment, decoded.records.values, rows)


def _headers(segment: LogSegment, decoded: Decoded, rows: Int64s) -> Array:
    headers = decoded.records.headers
    lists: Any = pa.ListArray
    if headers is None:
        return lists.from_arrays(np.zeros(len(rows) + 1, np.int32), pa.array([], HEADER))
    offsets, items = _items(headers, rows)
    keys = _strings(_binary(segment, headers.keys, items))
    values = _binary(segment, headers.values, items)
    structs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER))
    return lists.from_arrays(offsets, structs)


_BUILD = {
    "topic": _topic,
    "partition": _partition,
    "offset": _offset,
    "timestamp": _timestamp,
    "timestamp_type": _timestamp_type,
    "key": _key,
    "value": _value,
    "headers": _headers,
}


def _items(headers: Headers, rows: Int64s) -> tuple[Any, Int64s]:
    """Where each record's headers begin in a list of all of them, and which headers these are."""
    counts = headers.firsts[rows + 1] - headers.firsts[rows]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    shifts = np.repeat(headers.firsts[rows] - offsets[:-1], counts)
    return offsets.astype(np.int32), np.arange(offsets[-1]) + shifts


def _binary(segment: LogSegment, spans: Spans, rows: Int64s) -> Array:
    lengths = spans.lengths[rows]
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
    if offsets[-1] > _MAX_BYTES:
        what = f"{offsets[-1]} bytes in a column of one record batch"
        raise CorruptData(what, file=segment.log_key)
    data = np.empty(offsets[-1], np.uint8)
    _gather(spans.data, spans.starts, spans.lengths, rows, offsets, data)
    nulls = lengths < 0
    bitmap: Any = np.packbits(~nulls, bitorder="little") if nulls.any() else None
    buffers: list[Any] = [bitmap, offsets.astype(np.int32), data]
    buffers = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    return pa.Array.from_buffers(pa.binary(), len(rows), buffers)


@njit(cache=True, nogil=True)
def _gather(
    data: Bytes, starts: Int64s, lengths: Int32s, rows: Int64s, offsets: Int64s, out: Bytes
) -> None:
    """Copy the items at the positions `rows` to `offsets` in `out`."""
    for i in range(len(rows)):
        row = rows[i]
        put_bytes(out, offsets[i], data, starts[row], np.int64(lengths[row]))


def _strings(keys: Array) -> Array:
    """Header keys as text; as in Java, bytes that are not UTF-8 become replacement characters."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        distinct = keys.dictionary_encode()
        keys_found: list[Any] = distinct.dictionary.to_pylist()
        texts = [key.decode(errors="replace") for key in keys_found]
        return pa.array(texts, pa.string()).take(distinct.indices)
