"""Blobs as byte strings (why not Arrow IPC: docs/decisions/0008-packing-of-blobs.md).

Records that stay plain are columns as they stand in memory, and their bodies. Before they are
compressed, sort columns and timestamps become differences, and all integers stand byte plane by
byte plane: first the lowest byte of each integer, then the next. So the high bytes of small numbers
stand together and compress to almost nothing.
"""

import struct
from collections.abc import Callable
from typing import Any

import lz4.block
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seglake.errors import CorruptData
from seglake.format.batch import TABLE
from seglake.format.encode import Bodies, EncodedBatches
from seglake.format.key_hashes import KeyHashes
from seglake.format.records import Int64s, Spans
from seglake.text.spans import to_arrow
from seglake.write.spool.sorted_records import SortedRecords

_REJECTS: dict[str, pa.DataType] = {
    "split": pa.int64(),
    "line": pa.int64(),
    "reason": pa.int8(),  # a code of Reason
    "raw": pa.large_binary(),
    "member": pa.string(),  # of an archive; null elsewhere
    "member_line": pa.int64(),  # 0-based
}
REJECTS_SCHEMA = pa.schema(_REJECTS)
_LARGEST_RATIO = 255  # of LZ4, by its format
_BATCHES_HEAD = struct.Struct("<qqq")  # bytes of the table, of the keys' hashes; data is squeezed
_HEAD = struct.Struct("<qBBxxxxxx")  # records; sort keys are the timestamps; tie-breakers present


def packed_bytes(records: SortedRecords) -> int:
    """The bytes that `pack_records` makes of records."""
    columns = 2 + (not records.by_time) + (records.tie_breakers is not None)
    return _HEAD.size + 8 * columns * len(records) + int(records.bodies.sizes.sum())


def pack_records(records: SortedRecords) -> tuple[bytes, memoryview]:
    """Records as their columns, and their bodies, which are to stand behind these.

    The bodies are not copied. They must stand in order, without gaps.
    """
    return _packed(records, np.ascontiguousarray, np.ascontiguousarray)


def squeeze_records(records: SortedRecords) -> bytes:
    """The same compressed."""
    return squeeze(b"".join(_packed(records, _differences, _planes)))


def unpack_records(data: Any) -> SortedRecords:
    """The inverse of `pack_records`, over the same bytes. Raises CorruptData."""
    return _unpacked(data, _integers, _integers)


def expand_records(data: Any) -> SortedRecords:
    """The inverse of `squeeze_records`. Raises CorruptData."""
    return _unpacked(expand(data), _summed, _of_planes)


_Write = Callable[[Int64s], npt.NDArray[Any]]


def _packed(records: SortedRecords, column: _Write, sizes: _Write) -> tuple[bytes, memoryview]:
    count, bodies, ties = len(records), records.bodies, records.tie_breakers
    columns = [records.timestamps] if records.by_time else [records.timestamps, records.sort_keys]
    columns += [] if ties is None else [ties]
    head = _HEAD.pack(count, records.by_time, ties is not None)
    first = int(bodies.starts[0]) if count else 0
    data = bodies.data[first : first + int(bodies.sizes.sum())]
    arrays = [*map(column, columns), sizes(bodies.sizes)]
    return b"".join([head, *(array.tobytes() for array in arrays)]), data.data


_Read = Callable[[memoryview, int, int], Int64s]  # of a buffer, from a byte on, so many integers


def _unpacked(data: Any, column: _Read, sizes: _Read) -> SortedRecords:
    raw = memoryview(data)
    _require(len(raw) >= _HEAD.size)
    count, by_time, has_ties = _HEAD.unpack_from(raw)
    at, column_bytes, column_count = _HEAD.size, 8 * count, 1 + (not by_time) + has_ties
    _require(count >= 0 and at + column_bytes * (column_count + 1) <= len(raw))
    columns = [column(raw, at + number * column_bytes, count) for number in range(column_count)]
    at += column_count * column_bytes
    lengths = sizes(raw, at, count)
    at += column_bytes
    _require(lengths.min(initial=0) >= 0 and lengths.max(initial=0) <= len(raw))  # no sum overflows
    _require(lengths.sum() == len(raw) - at)
    bodies = Bodies(np.cumsum(lengths) - lengths, lengths, np.frombuffer(raw, np.uint8, -1, at))
    sort_keys = columns[0] if by_time else columns[1]
    return SortedRecords(sort_keys, columns[-1] if has_ties else None, columns[0], bodies)


def _differences(values: Int64s) -> npt.NDArray[Any]:
    return _planes(np.diff(values, prepend=0))


def _summed(raw: memoryview, at: int, count: int) -> Int64s:
    return np.cumsum(_of_planes(raw, at, count))


def _planes(values: Int64s) -> npt.NDArray[Any]:
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1, 8).T


def _of_planes(raw: memoryview, at: int, count: int) -> Int64s:
    planes = np.frombuffer(raw, np.uint8, 8 * count, at).reshape(8, count)
    return np.ascontiguousarray(planes.T).view(np.int64).reshape(-1)


def _integers(raw: memoryview, at: int, count: int) -> Int64s:
    return np.frombuffer(raw, np.int64, count, at)


def pack_batches(batches: EncodedBatches) -> bytes:
    """Finished record batches and the hashes of their keys, if they come with some, as one string.

    Uncompressed record batches are compressed here.
    """
    table = squeeze(batches.table.tobytes())
    data = batches.data.tobytes()
    plain = not (batches.table["attributes"] & 7).any()
    if plain:
        data = squeeze(data)
    keys = b"" if batches.keys is None else b"".join(column.tobytes() for column in batches.keys)
    return b"".join([_BATCHES_HEAD.pack(len(table), len(keys), plain), table, keys, data])


def unpack_batches(data: Any) -> EncodedBatches:
    """The inverse of `pack_batches`. Raises CorruptData."""
    view, at = memoryview(data), _BATCHES_HEAD.size
    _require(len(view) >= at)
    size, keys_size, plain = _BATCHES_HEAD.unpack_from(view)
    _require(0 <= size <= len(view) - at and 0 <= keys_size <= len(view) - at - size)
    rows, rest = expand(view[at : at + size]), view[at + size :]
    _require(len(rows) % TABLE.itemsize == 0)
    raw = expand(rest[keys_size:]) if plain else rest[keys_size:]
    table = np.frombuffer(rows, TABLE)
    _require(table["size"].sum(dtype=np.int64) == len(raw))
    keys = _key_hashes(rest[:keys_size], table["count"]) if keys_size else None
    return EncodedBatches(np.frombuffer(raw, np.uint8), table, keys)


def _key_hashes(raw: memoryview, counts: npt.NDArray[np.int32]) -> KeyHashes:
    """A hash of 8 bytes for each record, then for each a byte that says whether it has a key."""
    count = int(counts.sum(dtype=np.int64))
    _require(counts.min(initial=0) >= 0 and len(raw) == 9 * count)
    flags = np.frombuffer(raw, np.uint8, count, 8 * count)
    _require(flags.max(initial=0) <= 1)
    return KeyHashes(np.frombuffer(raw, np.uint64, count), flags.view(np.bool_))


def pack_rejects(
    split: int,
    lines: Int64s,
    reasons: npt.NDArray[np.int8],
    raw: Spans,
    member: tuple[str, int] | None = None,
) -> bytes:
    """Rejects of one split as an Arrow stream; `lines` count from the first line of the split.

    `member` is the name of the archive's member that they stand in, and the line where it begins.
    """
    name, begin = member or (None, 0)
    columns = [
        pa.array(np.full(len(lines), split)),
        pa.array(lines),
        pa.array(reasons),
        to_arrow(raw).view(pa.large_binary()),
        pa.repeat(pa.scalar(name, pa.string()), len(lines)),
        pa.nulls(len(lines), pa.int64()) if member is None else pa.array(lines - begin),
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
