"""Blobs as byte strings (why not Arrow IPC: docs/decisions, number 8).

Sort columns and timestamps are stored as differences, and all integers byte plane by byte plane:
first the lowest byte of each integer, then the next. So the high bytes of small numbers stand
together and compress to almost nothing.
"""

import struct
from typing import Any

import lz4.block
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seglake.errors import CorruptData
from seglake.format.batch import TABLE
from seglake.format.encode import Batches, Bodies
from seglake.format.records import Int64s, Spans
from seglake.text.spans import to_arrow
from seglake.write.spool.sorted_records import SortedRecords

_REJECTS: dict[str, pa.DataType] = {
    "split": pa.int64(),
    "line": pa.int64(),
    "reason": pa.int8(),  # a code of Reason
    "raw": pa.large_binary(),
}
REJECTS_SCHEMA = pa.schema(_REJECTS)
_LARGEST_RATIO = 255  # of LZ4, by its format
_HEAD = struct.Struct("<qBBxxxxxx")  # records; sort keys are the timestamps; tie-breakers present


def pack_records(records: SortedRecords) -> bytes:
    """Records as one string; their bodies must stand in order, without gaps."""
    count = len(records)
    by_time = records.by_time
    columns = [records.timestamps] + ([] if by_time else [records.sort_keys])
    columns += [] if records.tie_breakers is None else [records.tie_breakers]
    first = int(records.bodies.starts[0]) if count else 0
    size = int(records.bodies.sizes.sum())
    parts: list[Any] = [_HEAD.pack(count, by_time, records.tie_breakers is not None)]
    parts += [_pack_integers(np.diff(column, prepend=0)) for column in columns]
    parts += [_pack_integers(records.bodies.sizes), records.bodies.data[first : first + size].data]
    return b"".join(parts)


def unpack_records(data: Any) -> SortedRecords:
    """The inverse of `pack_records`, over the same bytes. Raises CorruptData."""
    raw = memoryview(data)
    _require(len(raw) >= _HEAD.size)
    count, by_time, has_ties = _HEAD.unpack_from(raw)
    at, column_bytes, column_count = _HEAD.size, 8 * count, 1 + (not by_time) + has_ties
    _require(count >= 0 and at + column_bytes * (column_count + 1) <= len(raw))
    columns = []
    for _ in range(column_count):
        columns.append(np.cumsum(_unpack_integers(raw, at, count)))
        at += column_bytes
    sizes = _unpack_integers(raw, at, count)
    at += column_bytes
    _require(sizes.min(initial=0) >= 0 and sizes.max(initial=0) <= len(raw))  # no sum overflows
    _require(sizes.sum() == len(raw) - at)
    bodies = Bodies(np.cumsum(sizes) - sizes, sizes, np.frombuffer(raw, np.uint8, -1, at))
    sort_keys = columns[0] if by_time else columns[1]
    return SortedRecords(sort_keys, columns[-1] if has_ties else None, columns[0], bodies)


def _pack_integers(values: Int64s) -> bytes:
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1, 8).T.tobytes()


def _unpack_integers(raw: memoryview, at: int, count: int) -> Int64s:
    planes = np.frombuffer(raw, np.uint8, 8 * count, at).reshape(8, count)
    return np.ascontiguousarray(planes.T).view(np.int64).reshape(-1)


def pack_batches(batches: Batches) -> bytes:
    """Finished record batches as one string; uncompressed record batches are compressed here."""
    table = squeeze(batches.table.tobytes())
    data = batches.data.tobytes()
    plain = not (batches.table["attributes"] & 7).any()
    if plain:
        data = squeeze(data)
    return struct.pack("<qq", len(table), plain) + table + data


def unpack_batches(data: Any) -> Batches:
    """The inverse of `pack_batches`. Raises CorruptData."""
    view = memoryview(data)
    _require(len(view) >= 16)
    size, plain = struct.unpack_from("<qq", view)
    _require(0 <= size <= len(view) - 16)
    rows, rest = expand(view[16 : 16 + size]), view[16 + size :]
    _require(len(rows) % TABLE.itemsize == 0)
    raw = expand(rest) if plain else rest
    table = np.frombuffer(rows, TABLE)
    _require(table["size"].sum(dtype=np.int64) == len(raw))
    return Batches(np.frombuffer(raw, np.uint8), table)


def pack_rejects(split: int, lines: Int64s, reasons: npt.NDArray[np.int8], raw: Spans) -> bytes:
    """Rejects of one split as an Arrow stream; `lines` count from the first line of the split."""
    columns = [
        pa.array(np.full(len(lines), split)),
        pa.array(lines),
        pa.array(reasons),
        to_arrow(raw).view(pa.large_binary()),
    ]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, REJECTS_SCHEMA, options=options) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=REJECTS_SCHEMA))
    return sink.getvalue().to_pybytes()


def unpack_rejects(data: Any) -> pa.Table:
    """The inverse of `pack_rejects`: rows of REJECTS_SCHEMA."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


def squeeze(raw: bytes) -> bytes:
    """The same compressed, with the size in front."""
    # LZ4: a blob is deleted after the run, so speed counts more than size
    packed: bytes = lz4.block.compress(raw)
    return packed


def expand(data: Any) -> bytes:
    """The inverse of `squeeze`. Raises CorruptData."""
    size = int.from_bytes(memoryview(data)[:4], "little")
    _require(size <= _LARGEST_RATIO * len(data))
    try:
        raw: bytes = lz4.block.decompress(data)
    except (lz4.block.LZ4BlockError, ValueError):
        _require(sound=False)
    return raw


def _require(sound: bool | np.bool_) -> None:
    if not sound:
        raise CorruptData("a blob between map and reduce is damaged; run again")
