"""Write and read the spool, the storage where blobs wait between map tasks and reduce tasks.

A blob has packed records of one log partition: sorted records or, in arrival order, finished record
batches, which need no merge. The rejects of a split and the summary of a unit are blobs, too.
Sorted records are compressed here, except the first ones on a local disk: they are in the system's
cache, and copying them is faster than compressing and decompressing them.

A task writes its blobs one after another into an object below `attempts/<attempt>/blobs/`. It
begins another object before the size reaches the limit of an object store (`OBJECT_BYTES`). The
driver gets a SPOOLED row for each blob (packed, because there may be millions), and passes to each
reduce task the rows of the blobs that it reads. So no executor has to outlive its task, a reduce
task reads only the blobs of its pieces, and a DataFrame is evaluated only once. The objects are
deleted when the attempt ends.

With many log partitions, a unit has few records of each, and on an object store each byte range is
a request. So on an object store a task holds blobs back (`HOLD_BYTES`), and writes the blobs of a
log partition next to each other. Then one request fetches blobs that are read one after another.
"""

from __future__ import annotations

import io
import operator
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import crc32c
import lz4.block
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seglake.errors import CorruptData
from seglake.format.batch import TABLE
from seglake.format.encode import Bodies, EncodedBatches
from seglake.format.key_hashes import KeyHashes
from seglake.format.records import Int64s, Spans
from seglake.layout import blobs_folder, new_blobs_key
from seglake.store import Store
from seglake.text.spans import to_arrow
from seglake.write.spool.sorted_records import Place, PlacedRecords, SortedRecords

if TYPE_CHECKING:
    from typing_extensions import Buffer

RECORDS, BATCHES, REJECTS, SUMMARY, REFUSED = range(5)  # kinds
WITH_RECORDS = (RECORDS, BATCHES)

_COLUMNS: dict[str, pa.DataType] = {
    "kind": pa.int32(),
    "unit": pa.int64(),
    "partition": pa.int32(),
    "number": pa.int32(),
    "records": pa.int64(),
    "size_bytes": pa.int64(),
    "sort_key": pa.int64(),
    "tie_breaker": pa.int64(),
    "last_sort_key": pa.int64(),
    "last_tie_breaker": pa.int64(),
    "text": pa.string(),
    # The address of the blob's data.
    "object": pa.string(),
    "start": pa.int64(),
    "end": pa.int64(),
    "crc32c": pa.int64(),
    "squeezed": pa.bool_(),
}
SPOOLED = pa.schema(_COLUMNS)
OBJECT_BYTES = 64 * 2**30
"""The largest size of an object of the spool, so that an upload has enough parts.

S3 allows 10,000 parts. They have 8 MiB each (78 GiB in all), because obstore fixes the part size
when an upload begins, before the size of the object is known. Larger parts would need more memory.
"""

HOLD_BYTES = 64 * 2**20
"""Packed blobs that a task holds back on an object store."""

_ALONE_BYTES = 2**19  # a blob of at least this size is worth a separate request

_REQUEST_BYTES, _AHEAD_BYTES = 2 * 2**20, 8 * 2**20
_THREADS = 4  # number of concurrent requests to storage
_ROWS = 1024  # number of rows that are Python objects at a time


class Blob(NamedTuple):
    """The data of a blob, and the columns of its SPOOLED row that the map side fills in."""

    kind: int
    unit: int  # number of the input unit, in the order of the input list
    data: bytes | SortedRecords = b""
    partition: int = 0
    number: int = 0  # number of the blob within its unit, from 1
    records: int = 0
    size_bytes: int = 0  # size of uncompressed bodies or rejected rows, or of finished batches
    sort_key: int = 0  # sort key of the first record
    tie_breaker: int = 0
    last_sort_key: int = 0  # sort key of the last record
    last_tie_breaker: int = 0
    text: str = ""  # a unit's summary, or the split of refused rejects


class SpoolWriter(AbstractContextManager["SpoolWriter"]):
    """A writer of one task's blobs. After an error, `delete_blobs` deletes its objects.

    The first `plain_bytes` of a task's sorted records are not compressed. An object has at most
    `object_bytes`, or one larger blob. On an object store, the writer keeps about `hold_bytes` in
    memory before it writes them in the order of log partitions.
    """

    def __init__(
        self,
        store: Store,
        attempt_id: str,
        *,
        plain_bytes: int = 0,
        object_bytes: int = OBJECT_BYTES,
        hold_bytes: int = HOLD_BYTES,
    ) -> None:
        self._store, self._attempt_id = store, attempt_id
        self._plain_bytes, self._object_bytes = plain_bytes, object_bytes
        self._hold_bytes = hold_bytes if store.remote else 0
        self._held: list[tuple[dict[str, Any], Sequence[Buffer]]] = []
        self._held_bytes = 0
        self._rows: list[dict[str, Any]] = []
        self._objects = [new_blobs_key(attempt_id)]
        self._open = ExitStack()
        self._sink: Any = None
        self._end = 0  # end of the last object
        self._before = 0  # size of the other objects

    def add(self, blob: Blob) -> None:
        """Add a blob. Its data may be written later, together with other blobs."""
        data, squeezed = blob.data, False
        parts: Sequence[Buffer] = []
        if not isinstance(data, SortedRecords):
            parts = [data] if data else []
        elif self._before + self._end + packed_size(data) <= self._plain_bytes:
            parts = pack_records(data)
        else:
            parts, squeezed = [compress_records(data)], True
        row = blob._replace(data=b"")._asdict()  # so that the data can be freed
        row["squeezed"] = squeezed
        self._rows.append(row)
        if not self._hold_bytes or _size(parts) >= _ALONE_BYTES:
            self._put(row, parts)
            return
        self._held.append((row, parts))
        self._held_bytes += _size(parts)
        if self._held_bytes >= self._hold_bytes:
            self._release()

    def _release(self) -> None:
        """Write the blobs that were held back, in the order in which they will be read."""
        columns = operator.itemgetter("partition", "unit", "number")
        for row, parts in sorted(self._held, key=lambda held: columns(held[0])):
            self._put(row, parts)
        self._held, self._held_bytes = [], 0

    def _put(self, row: dict[str, Any], parts: Sequence[Any]) -> None:
        """Write the data of a blob, and set its address and checksum in its SPOOLED row."""
        if self._end and self._end + _size(parts) > self._object_bytes:
            self._open.close()  # publish the object, and begin another
            self._objects.append(new_blobs_key(self._attempt_id))
            self._before += self._end
            self._sink, self._end = None, 0
        row |= {"object": self._objects[-1], "start": self._end, "crc32c": 0}
        for part in parts:
            if self._sink is None:
                writer = self._store.writer(self._objects[-1], durable=False)
                self._sink = self._open.enter_context(writer)
            self._sink.write(part)
            self._end += len(part)
            row["crc32c"] = crc32c.crc32c(part, row["crc32c"])
        row["end"] = self._end

    def rows(self) -> pa.Table:
        """Return the SPOOLED rows of all blobs. Their data can be read after the `with` block."""
        return pa.Table.from_pylist(self._rows, SPOOLED)

    def __exit__(self, kind: Any, *error: Any) -> None:
        if kind is not None:
            self._open.__exit__(kind, *error)
            return
        with self._open:
            self._release()


def _size(parts: Sequence[Buffer]) -> int:
    return sum(memoryview(part).nbytes for part in parts)


class SpooledBlob(NamedTuple):
    """The SPOOLED row and the data of a blob that was read from the spool."""

    row: dict[str, Any]
    data: Buffer

    def records(self) -> SortedRecords:
        """Return the sorted records of a blob of the kind RECORDS. Raises CorruptData."""
        return (decompress_records if self.row["squeezed"] else unpack_records)(self.data)

    def placed(self) -> PlacedRecords:
        """Return `records` with the `Place` of the first record."""
        columns = ("sort_key", "tie_breaker", "unit", "number")
        return PlacedRecords(Place(*(self.row[name] for name in columns)), self.records())


def read_blobs(store: Store, rows: pa.Table) -> Iterator[SpooledBlob]:
    """Yield the blobs in the order of `rows`. Up to `_AHEAD_BYTES` are fetched ahead.

    Adjacent blobs of an object are fetched in one request of at most `_REQUEST_BYTES`. A larger
    blob has its own request. If all blobs are uncompressed records, they are in the system's cache,
    and each is read only when it is needed. Raises CorruptData or StoreError, whose messages name
    the object.
    """
    if not (rows["squeezed"].to_numpy() | (rows["kind"].to_numpy() != RECORDS)).any():
        for row in _each(rows):
            yield from _fetch(store, [row])
        return
    ahead = 0
    with ThreadPoolExecutor(_THREADS) as pool:
        coming = deque[tuple[int, Future[list[SpooledBlob]]]]()
        for request in _requests(rows):
            size = request[-1]["end"] - request[0]["start"]
            while coming and ahead + size > _AHEAD_BYTES:
                own, fetched = coming.popleft()
                yield from map(_detached, fetched.result())
                ahead -= own
            coming.append((size, pool.submit(_fetch, store, request)))
            ahead += size
        for _, fetched in coming:
            yield from map(_detached, fetched.result())


def _detached(blob: SpooledBlob) -> SpooledBlob:
    """Copy the data of uncompressed records, so that the buffer of the request can be freed."""
    own = blob.row["kind"] == RECORDS and not blob.row["squeezed"]
    return blob._replace(data=bytes(blob.data)) if own else blob


def _requests(rows: pa.Table) -> Iterator[list[dict[str, Any]]]:
    """Divide rows into lists. The blobs of one list are fetched in one request."""
    request = list[dict[str, Any]]()
    for row in _each(rows):
        if request and not (
            row["object"] == request[0]["object"]
            and row["start"] == request[-1]["end"]
            and row["end"] - request[0]["start"] <= _REQUEST_BYTES
        ):
            yield request
            request = []
        request.append(row)
    if request:
        yield request


def _each(rows: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in rows.to_batches(max_chunksize=_ROWS):
        yield from batch.to_pylist()


def filter_kinds(spooled: pa.Table, *kinds: int) -> pa.Table:
    """Return the SPOOLED rows whose kind is one of `kinds`."""
    return spooled.filter(pa.array(np.isin(spooled["kind"].to_numpy(), kinds)))


def intern_names(spooled: pa.Table) -> pa.Table:
    """Return the rows with each object name stored only once in memory."""
    encoded = spooled["object"].dictionary_encode()
    return spooled.set_column(SPOOLED.get_field_index("object"), "object", encoded)


def pack_rows(rows: pa.Table) -> bytes:
    """Compress SPOOLED rows for the driver, to about 20 bytes per row instead of 190.

    Spark aborts a job whose results are larger than `spark.driver.maxResultSize`.
    """
    return _arrow_stream(intern_names(rows))


def _arrow_stream(table: pa.Table) -> bytes:
    """Return a table as a compressed Arrow stream."""
    sink, options = io.BytesIO(), pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    return sink.getvalue()


def unpack_rows(parts: Iterable[bytes]) -> pa.Table:
    """Reverse `pack_rows` for all parts, with each object name stored only once in memory."""
    tables = (pa.ipc.open_stream(part).read_all() for part in parts)
    return pa.concat_tables([intern_names(SPOOLED.empty_table()), *tables])


def combine_chunks(spooled: pa.Table) -> pa.Table:
    """Copy a table to one Arrow chunk, and free the memory of the original chunks."""
    spooled = spooled.combine_chunks()
    pa.default_memory_pool().release_unused()
    return spooled


def rows_at(spooled: pa.Table, numbers: Int64s) -> pa.Table:
    """Return the rows at the positions `numbers`, with object names as plain strings."""
    return spooled.take(pa.array(numbers, pa.int64())).cast(SPOOLED)


def _fetch(store: Store, request: list[dict[str, Any]]) -> list[SpooledBlob]:
    first, last = request[0]["start"], request[-1]["end"]
    data = memoryview(store.read(request[0]["object"], first, last) if first < last else b"")
    parts = [data[row["start"] - first : row["end"] - first] for row in request]
    for row, part in zip(request, parts, strict=True):
        if crc32c.crc32c(part) != row["crc32c"]:
            raise CorruptData(
                "the blob differs from the blob that the map side wrote. Run again",
                file=f"{store.uri}/{row['object']}",
                position=row["start"],
            )
    return list(map(SpooledBlob, request, parts))


def delete_blobs(store: Store, attempt_id: str) -> None:
    """Delete all blobs of an attempt, even blobs of failed tasks. Raises StoreError."""
    store.delete([listed.key for listed in store.list(blobs_folder(attempt_id))])


# ---------------- packing
# Pack blobs as byte strings (why not Arrow IPC: docs/decisions/0002-blobs-wait-in-a-spool.md).
#
# Uncompressed records are their columns as in memory, followed by their bodies. Before records are
# compressed, sort columns and timestamps become differences, and all integers are written in byte
# planes: first the lowest byte of each integer, then the next byte of each. So the high bytes of
# small numbers are next to each other and compress to almost nothing.

_REJECTS: dict[str, pa.DataType] = {
    "split": pa.int64(),
    "line": pa.int64(),
    "reason": pa.int8(),  # a code of Reason
    "raw": pa.large_binary(),
    "member": pa.string(),  # null if the file is not an archive
    "member_line": pa.int64(),  # 0-based
}
REJECTS_SCHEMA = pa.schema(_REJECTS)
_LARGEST_RATIO = 255  # the largest ratio that the format of LZ4 can have
# Size of the table, size of the keys' hashes, whether the data was compressed here.
_BATCHES_HEAD = struct.Struct("<qqq")
# Number of records, whether sort keys are the timestamps, whether there are tie-breakers.
_HEAD = struct.Struct("<qBBxxxxxx")


def packed_size(records: SortedRecords) -> int:
    """Return the size in bytes of the result of `pack_records`."""
    columns = 2 + (not records.by_time) + (records.tie_breakers is not None)
    return _HEAD.size + 8 * columns * len(records) + int(records.bodies.sizes.sum())


def pack_records(records: SortedRecords) -> tuple[bytes, memoryview]:
    """Pack records without compression. Return the columns as bytes, and a view of the bodies.

    The bodies must be in order, without gaps.
    """
    return _packed(records, np.ascontiguousarray, np.ascontiguousarray)


def compress_records(records: SortedRecords) -> bytes:
    """Pack records as compressed bytes; see `decompress_records`."""
    return compress(b"".join(_packed(records, _differences, _planes)))


def unpack_records(data: Any) -> SortedRecords:
    """Reverse `pack_records` without copying `data`. Raises CorruptData."""
    return _unpacked(data, _integers, _integers)


def decompress_records(data: Any) -> SortedRecords:
    """Reverse `compress_records`. Raises CorruptData."""
    return _unpacked(decompress(data), _summed, _of_planes)


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


_Read = Callable[[memoryview, int, int], Int64s]  # buffer, first byte, number of integers


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
    """Pack finished record batches, and the hashes of their keys if present, as one byte string.

    Uncompressed record batches are compressed.
    """
    table = compress(batches.table.tobytes())
    data = batches.data.tobytes()
    plain = not (batches.table["attributes"] & 7).any()
    if plain:
        data = compress(data)
    keys = b"" if batches.keys is None else b"".join(column.tobytes() for column in batches.keys)
    return b"".join([_BATCHES_HEAD.pack(len(table), len(keys), plain), table, keys, data])


def unpack_batches(data: Any) -> EncodedBatches:
    """Reverse `pack_batches`. Raises CorruptData."""
    view, at = memoryview(data), _BATCHES_HEAD.size
    _require(len(view) >= at)
    size, keys_size, plain = _BATCHES_HEAD.unpack_from(view)
    _require(0 <= size <= len(view) - at and 0 <= keys_size <= len(view) - at - size)
    rows, rest = decompress(view[at : at + size]), view[at + size :]
    _require(len(rows) % TABLE.itemsize == 0)
    raw = decompress(rest[keys_size:]) if plain else rest[keys_size:]
    table = np.frombuffer(rows, TABLE)
    _require(table["size"].sum(dtype=np.int64) == len(raw))
    keys = _key_hashes(rest[:keys_size], table["count"]) if keys_size else None
    return EncodedBatches(np.frombuffer(raw, np.uint8), table, keys)


def _key_hashes(raw: memoryview, counts: npt.NDArray[np.int32]) -> KeyHashes:
    """Parse an 8-byte hash for each record's key, then a byte for each record: 1 if it has a key.

    `counts` has the number of records of each record batch.
    """
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
    """Pack rejects of one split as an Arrow stream. `lines` count from 0 at the split's first line.

    For rejects in an archive's member, `member` is (its name, the line where it begins).
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
    return _arrow_stream(pa.Table.from_arrays(columns, schema=REJECTS_SCHEMA))


def unpack_rejects(data: Any) -> pa.Table:
    """Reverse `pack_rejects`. Return a table with REJECTS_SCHEMA."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


def compress(raw: bytes) -> bytes:
    """Compress bytes with LZ4. The result begins with the uncompressed size, in 4 bytes."""
    # LZ4, because a blob is deleted after the run, so speed is more important than size.
    packed: bytes = lz4.block.compress(raw)
    return packed


def decompress(data: Any) -> bytes:
    """Reverse `compress`. Raises CorruptData."""
    size = int.from_bytes(memoryview(data)[:4], "little")
    _require(size <= _LARGEST_RATIO * len(data))
    try:
        raw: bytes = lz4.block.decompress(data)
    except (lz4.block.LZ4BlockError, ValueError):
        _require(sound=False)
    return raw


def _require(sound: bool | np.bool_) -> None:
    if not sound:
        raise CorruptData("a blob between map and reduce is damaged. Run again")
