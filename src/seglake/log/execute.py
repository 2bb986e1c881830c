"""Execute a read: fetch the byte ranges of pieces, decode them, select the window's records.

Records are returned as Arrow batches in offset order, a few MiB at a time, with only the columns of
a schema.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seglake.errors import CorruptData, UsageError
from seglake.format.batch import LEAST_RECORD_BYTES, BatchTable
from seglake.format.codecs import native
from seglake.format.codecs.payload import StoredRecords
from seglake.format.decode import damage_of, headers_of
from seglake.format.records import Headers, Int32s, Int64s, Spans, fixed, take_rows
from seglake.format.sought_kernels import EVERY_KEY, SoughtKeys
from seglake.log.column_kernels import (
    ALONE,
    COUNT,
    FULL,
    HEADERS,
    KEYS,
    NULL_KEYS,
    NULL_VALUES,
    STATES,
    VALUES,
    Buffers,
    DecodeRoom,
    Wanted,
    fill,
    wanted_batches,
)
from seglake.log.fetch import Chunk, Fetch
from seglake.log.segment import LogSegment, Piece
from seglake.log.threads import DECODERS, side_by_side, take_spare
from seglake.text.simd import PADDING

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

_SHARED_ROWS = 2**14  # columns of one value with at most this many rows share their buffers
_LEAST_LENT, _MOST_SPARE = 256 * 1024, 3  # bytes of a buffer that is lent; lent buffers per column

Array = Any  # a pa.Array: pyarrow's stubs require the type of its items


def schema_of(columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of these columns, in this order. None selects all columns.

    Raises UsageError for an unknown column, and for a column that is named twice.
    """
    return SCHEMA if columns is None else _schema_of(tuple(columns))


@lru_cache(64)
def _schema_of(names: tuple[str, ...]) -> pa.Schema:
    unknown = [name for name in names if name not in SCHEMA.names]
    if unknown:
        raise UsageError(f"unknown column {unknown[0]!r}. Use {', '.join(SCHEMA.names)}")
    if len(set(names)) < len(names):
        raise UsageError(f"a column is requested twice: {', '.join(names)}. Remove one")
    return pa.schema([SCHEMA.field(name) for name in names])


class Columns:
    """Buffers for the columns of an Arrow batch, which are reused.

    There is space for `records` records, `size_bytes` bytes of keys and `size_bytes` bytes of
    values. `take` copies small buffers: new memory costs more than a copy from memory in use.
    `take` lends large buffers of keys or values to the caller. Their memory is reused after the
    caller has released it.
    """

    def __init__(self, schema: pa.Schema, records: int, size_bytes: int) -> None:
        self.schema, self.size_bytes = schema, size_bytes
        self.fields = sum(flag for name, flag in _FLAGS.items() if name in schema.names)
        self._numbers = _Numbers.allocate(records, self.fields & HEADERS)
        self._keys, self._values = (
            _Items(records, size_bytes) if self.fields & flag else _Items(0, 0)
            for flag in (KEYS, VALUES)
        )
        self._headers = _HeaderLists()
        self._state = np.zeros(STATES, np.int64)
        self._segments: Sequence[LogSegment] = ()
        self._owner_of: Int32s = np.empty(0, np.int32)

    def __len__(self) -> int:
        return int(self._state[COUNT])

    def begin(self, segments: Sequence[LogSegment], owner_of: Int32s) -> None:
        """Prepare for records of these batches: batch b belongs to segments[owner_of[b]]."""
        self._segments, self._owner_of, self._state[:] = segments, owner_of, 0

    def fill(
        self, table: BatchTable, stored: StoredRecords, base: int, first: int, wanted: Wanted,
        limit_bytes: int, room: DecodeRoom,
    ) -> tuple[int, int, int]:  # fmt: skip
        """Append wanted records of batches while there is space.

        Keys, values and headers together take at most `limit_bytes`. For arguments and results see
        the kernel `fill`; the reason is 0, `FULL` or `ALONE`. Raises CorruptData with the position
        of a damaged batch.
        """
        before, keys, values = int(self._state[COUNT]), self._keys, self._values
        buffers = Buffers(
            self.fields, min(limit_bytes, self.size_bytes) - self._headers.used_bytes,
            self._state, *self._numbers, keys.ends, keys.data, keys.valid,
            values.ends, values.data, values.valid,
        )  # fmt: skip
        stop, size, reason = fill(
            table, stored, base, first, wanted, buffers, room, native.addresses()
        )
        if reason > 0 and stored.codecs[stop]:
            reason = ALONE  # the decompressed size is part of the error
        elif reason > 0:
            records = int(stored.ends[stop] - stored.starts[stop])
            raise damage_of(table[base + stop], reason, records)
        if self.fields & HEADERS:
            numbers, new = self._numbers, slice(before, int(self._state[COUNT]))
            headers = headers_of(
                room.records if stored.codecs[first] else stored.data,
                numbers.header_counts[new], numbers.header_starts[new],
                numbers.header_ends[new], lambda record: table[numbers.batches[before + record]],
            )  # fmt: skip
            self._headers.append(before, headers)
        return stop, size, reason

    def take(self) -> pa.RecordBatch:
        """Return the appended records. Afterwards the columns are empty."""
        count, arrays = int(self._state[COUNT]), list[Array]()
        for name in self.schema.names:
            if name in _NUMBERS:
                number, kind = _NUMBERS[name]
                data: Any = self._numbers[number][:count].astype(kind)  # a copy
                buffers = [None, pa.py_buffer(data)]
                arrays.append(pa.Array.from_buffers(_FIELDS[name], count, buffers))
            else:
                arrays.append(_ARRAYS[name](self, count))
        self._state[:] = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def partitions(self, count: int) -> Array:
        """Return the partition of each record. Here and below, `count` is the record count."""
        numbers = [segment.partition for segment in self._segments]
        if len(set(numbers)) == 1:
            return _constant(numbers[0], count)
        return _array(pa.int32(), count, None, np.array(numbers, np.int32)[self._owners(count)])

    def topics(self, count: int) -> Array:
        """Return the topic of each record."""
        names = [segment.topic for segment in self._segments]
        if len(set(names)) == 1:
            return _constant(names[0], count)
        return pa.array(names, pa.string()).take(self._owners(count))

    def keys(self, count: int) -> Array:
        """Return the key of each record, or null."""
        return self._keys.take(count, int(self._state[NULL_KEYS]))

    def values(self, count: int) -> Array:
        """Return the value of each record, or null."""
        return self._values.take(count, int(self._state[NULL_VALUES]))

    def headers(self, count: int) -> Array:
        """Return the list of headers of each record."""
        return self._headers.take(count)

    def _owners(self, count: int) -> npt.NDArray[Any]:
        """Return the position in `_segments` of each record's segment."""
        return self._owner_of[self._numbers.batches[:count]]


_ARRAYS: dict[str, Callable[[Columns, int], Array]] = {
    "topic": Columns.topics,
    "partition": Columns.partitions,
    "key": Columns.keys,
    "value": Columns.values,
    "headers": Columns.headers,
}
_NUMBERS: dict[str, tuple[int, type[np.int64 | np.int32]]] = {  # the position in `_Numbers`
    "offset": (0, np.int64),
    "timestamp": (1, np.int64),
    "timestamp_type": (2, np.int32),
}
_FLAGS = {"key": KEYS, "value": VALUES, "headers": HEADERS}


class _Numbers(NamedTuple):
    """The arrays of `Buffers` that have one integer for each record."""

    offsets: Int64s
    timestamps: Int64s
    timestamp_types: npt.NDArray[np.int8]
    batches: Int32s
    header_counts: Int32s
    header_starts: Int64s
    header_ends: Int64s

    @staticmethod
    def allocate(records: int, with_headers: int) -> _Numbers:
        """Reserve space for `records` records."""
        offsets, timestamps = np.empty((2, records), np.int64)
        types, batches = np.empty(records, np.int8), np.empty(records, np.int32)
        some = records if with_headers else 0
        starts, ends = np.empty((2, some), np.int64)
        return _Numbers(offsets, timestamps, types, batches, np.empty(some, np.int32), starts, ends)


class _Items:
    """Buffers for `count` byte strings with at most `size_bytes` bytes in total.

    `ends` are the ends of the items in `data`, preceded by 0. `valid` is 0 for a null, else 1.
    """

    def __init__(self, count: int, size_bytes: int) -> None:
        self.ends, self.valid = np.zeros(1 + count, np.int32), np.empty(count, np.uint8)
        self.data = np.empty(size_bytes, np.uint8)
        self._spare = list[tuple[npt.NDArray[np.uint8], ref[npt.NDArray[np.uint8]]]]()

    def take(self, count: int, nulls: int) -> Array:
        """Return the first `count` items as an Arrow array. Later items do not change the array."""
        bits = np.packbits(self.valid[:count], bitorder="little") if nulls else None
        end = int(self.ends[count])
        self.data[end : end + PADDING] = 0  # with zeros after the items, `from_arrow` copies less
        data = self.data[: end + PADDING]
        data = self._lend(data) if len(data) >= _LEAST_LENT else data.copy()
        return _array(pa.binary(), count, bits, self.ends[: count + 1].copy(), data)

    def _lend(self, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Lend the memory to the caller, and replace it by new memory or memory that came back."""
        let_go = (at for at, (_, lent) in enumerate(self._spare) if lent() is None)
        free = next(let_go, None)  # an Arrow buffer keeps a reference to the lent view
        self._spare.append((self.data, ref(data)))
        self.data = np.empty_like(self.data) if free is None else self._spare.pop(free)[0]
        del self._spare[:-_MOST_SPARE]
        return data


class _HeaderLists:
    """The column of headers: a list for each record. Most logs have no headers."""

    def __init__(self) -> None:
        self._lists: list[Array] = []
        self._count = self.used_bytes = 0

    def append(self, at: int, headers: Headers | None) -> None:
        """Append the headers of records after the first `at` records."""
        if headers is not None:
            self._skip(at)
            self._lists.append(_lists_of(headers))
            self._count += len(self._lists[-1])
            self.used_bytes += self._lists[-1].nbytes

    def _skip(self, at: int) -> None:
        """Append empty lists for the records up to number `at`."""
        if at > self._count or not self._lists:
            ends = np.zeros(at - self._count + 1, np.int32)
            self._lists.append(_lists(ends, pa.nulls(0, HEADER)))
            self._count = at

    def take(self, count: int) -> Array:
        """Return the lists of `count` records."""
        if not self._lists and count <= _SHARED_ROWS:
            return _no_headers()[:count]
        self._skip(count)
        lists, self._lists, self._count, self.used_bytes = self._lists, [], 0, 0
        return pa.concat_arrays(lists) if len(lists) > 1 else lists[0]


@lru_cache(1)
def _no_headers() -> Array:
    """Return empty lists for `_SHARED_ROWS` records."""
    return _lists(np.zeros(_SHARED_ROWS + 1, np.int32), pa.nulls(0, HEADER))


def _constant(value: int | str, count: int) -> Array:
    """Return a column of one value. Columns of at most `_SHARED_ROWS` rows share buffers."""
    return _repeated(value, count) if count > _SHARED_ROWS else _shared(value)[:count]


@lru_cache(8)
def _shared(value: int | str) -> Array:
    return _repeated(value, _SHARED_ROWS)


def _repeated(value: int | str, count: int) -> Array:
    """Return `count` copies of an int32 or a string. `pa.repeat` would import pandas."""
    if isinstance(value, int):
        return _array(pa.int32(), count, None, np.full(count, value, np.int32))
    text = value.encode()
    ends = np.arange(count + 1, dtype=np.int32) * len(text)
    return _array(pa.string(), count, None, ends, np.frombuffer(text * count, np.uint8))


def _array(
    kind: Any,
    count: int,
    valid: npt.NDArray[Any] | None,
    *parts: npt.NDArray[Any],
    children: list[Any] | None = None,
) -> Array:
    """Return `count` items with these buffers. Bit i of `valid` is 0 if item i is null."""
    arrays: Any = parts  # numpy arrays are buffers, typed so only from Python 3.12 on
    bits: Any = valid
    buffers = [None if bits is None else pa.py_buffer(bits), *map(pa.py_buffer, arrays)]
    return pa.Array.from_buffers(kind, count, buffers, children=children)


def _lists_of(headers: Headers) -> Array:
    keys, values = _binary(headers.keys), _binary(headers.values)
    structs = pa.StructArray.from_arrays([_strings(keys), values], fields=list(HEADER))
    return _lists(headers.firsts.astype(np.int32), structs)


def _lists(ends: npt.NDArray[np.int32], items: Array) -> Array:
    return _array(_FIELDS["headers"], len(ends) - 1, None, ends, children=[items])


def _binary(spans: Spans) -> Array:
    """Convert ascending items to an Arrow array."""
    # Items and the bytes between them alternate; every second one is taken.
    edges = np.empty((len(spans), 2), np.int32)
    edges[:, 0], edges[:, 1] = spans.starts, spans.starts + np.maximum(spans.lengths, 0)
    valid = np.packbits(spans.lengths >= 0, bitorder="little")
    numbers = _array(pa.int64(), len(spans), valid, np.arange(0, 2 * len(spans), 2))
    return _array(pa.binary(), max(0, edges.size - 1), None, edges, spans.data).take(numbers)


def _strings(keys: Array) -> Array:
    """Decode header keys. Bytes that are not UTF-8 become replacement characters, as in Java."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        distinct = keys.dictionary_encode()
        different: list[Any] = distinct.dictionary.to_pylist()
        texts = [key.decode(errors="replace") for key in different]
        return pa.array(texts, pa.string()).take(distinct.indices)


Share = Iterator[tuple[pa.RecordBatch, int]]
"""Arrow batches, each with the bytes of the record batches that hold the records."""

_SHARE_BYTES = 96 * 1024  # bytes of log; a smaller share costs more than a thread gains
_CACHED_SHARE_BYTES = 256 * 1024  # the limit instead, if the payloads are cached
_LARGEST_SHARE_BYTES = 384 * 1024  # bytes of log; a larger share may wait for the caller
_PART_BYTES = 512 * 1024  # decompressed at a time for a cache
MEMORY_BYTES = 32 * 2**20
COLUMN_BYTES = 2 * 2**20  # keys or values in an Arrow batch, unless one record batch has more

_SPARE: deque[Columns] = deque(maxlen=8)
_SPARE_ROOM: deque[DecodeRoom] = deque(maxlen=8)
"""Memory that no share uses now: new memory costs more than memory that was used before."""


@dataclass
class ReadStats:
    """Counts of what a read requested from the logs. Index data is cached and does not count.

    `requests` counts requests to storage. `bytes_fetched` counts their bytes, also between joined
    ranges. `records` counts the records of the result, and `bytes_matching` the bytes of batches
    with such a record. A search for keys counts the records with one of the keys.
    `misfits` counts, by field, the values that a column's type cannot hold, if fields are read.
    """

    requests: int = 0
    bytes_fetched: int = 0
    bytes_matching: int = 0
    records: int = 0
    misfits: Counter[str] = field(default_factory=Counter)

    @property
    def amplification(self) -> float:
        """Return the bytes fetched per byte of a matching batch, or 1.0 if nothing was fetched."""
        return self.bytes_fetched / max(1, self.bytes_matching) if self.bytes_fetched else 1.0


def execute(
    fetch: Fetch,
    pieces: Iterable[Piece],
    schema: pa.Schema,
    *,
    memory_bytes: int = MEMORY_BYTES,
    stats: ReadStats | None = None,
    threads: int = DECODERS,
    keys: SoughtKeys = EVERY_KEY,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the pieces as Arrow batches. No batch is empty.

    With `keys`, yield only the records with one of the keys. Other records are compared, but not
    copied.

    About `memory_bytes` are in use at any time, whatever the size of the read. A quarter is for
    bytes that are fetched ahead. A sixteenth is for the columns of each of `threads` threads, and
    another sixteenth for the columns that the caller takes. A larger record batch is still read.
    Raises CorruptData and StoreError.
    """
    stats = stats or ReadStats()
    part_bytes = memory_bytes // 16
    chunks = fetch.chunks(pieces, fetch_bytes=max(4096, part_bytes), ahead_bytes=memory_bytes // 4)
    shares = _shares_of(chunks, schema, min(part_bytes, COLUMN_BYTES), threads, keys, stats)
    for batch, matching in side_by_side(shares, threads):
        stats.bytes_matching += matching
        stats.records += len(batch)
        yield batch


def records_of(chunk: Chunk, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Return the records of a chunk that are in the windows of its pieces."""
    shares = _shares_of([chunk], schema, COLUMN_BYTES, 1, EVERY_KEY, ReadStats())
    return (batch for batch, _ in chain.from_iterable(shares))


def _shares_of(
    chunks: Iterable[Chunk], schema: pa.Schema, limit_bytes: int, count: int, keys: SoughtKeys,
    stats: ReadStats,
) -> Iterator[Share]:  # fmt: skip
    """Yield shares: iterators of the wanted records of a part of a chunk, as Arrow batches.

    A chunk has about `count` shares or fewer. With `keys`, only records with one of the keys are
    wanted. An Arrow batch has about `limit_bytes`, or one record batch. `stats` counts requests.
    """
    for chunk in chunks:
        stats.requests += chunk.requests
        stats.bytes_fetched += chunk.fetched_bytes
        limits = fixed(np.array([piece.window.limits() for piece in chunk.pieces]))
        rows = np.empty(len(chunk.table), np.int64)
        rows = rows[: wanted_batches(chunk.table, chunk.owner_of, limits, rows)]
        table, owner_of = take_rows(chunk.table, rows), chunk.owner_of[rows]
        for first, last in pairwise(_cuts(table["size"], count, chunk.cached is not None)):
            wanted = Wanted(limits, fixed(owner_of[first:last]), keys)
            yield _share(chunk, fixed(table[first:last]), wanted, schema, limit_bytes)


def _cuts(sizes: npt.NDArray[np.int32], count: int, cached: bool) -> list[int]:
    """Return the positions at which to cut batches of these sizes into shares, with both ends."""
    ends = sizes.cumsum(dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    shares = min(count, total // (_CACHED_SHARE_BYTES if cached else _SHARE_BYTES))
    shares = max(shares, total // _LARGEST_SHARE_BYTES)
    inner = ends.searchsorted(np.arange(1, shares) * total // shares).tolist() if shares > 1 else []
    return [0, *inner, len(sizes)]


def _share(
    chunk: Chunk, rows: BatchTable, wanted: Wanted, schema: pa.Schema, limit_bytes: int
) -> Share:
    """Yield the wanted records of the batches `rows`."""
    columns, matching, base, alone = None, 0, 0, False
    room = take_spare(_SPARE_ROOM) or DecodeRoom.new()
    while base < len(rows):
        try:
            most_bytes, done = limit_bytes, 0
            if alone:
                stored = chunk.decompress(rows[base : base + 1], 1).stored()
                most_bytes = max(most_bytes, int(stored.ends[0] - stored.starts[0]))
            else:
                stored = chunk.stored(rows[base:], min(_PART_BYTES, limit_bytes))
            alone = False
            while done < len(stored.ends) and not alone:
                if columns is None:
                    columns = _empty(schema, most_bytes, chunk, wanted)
                done, size, reason = columns.fill(
                    rows, stored, base, done, wanted, most_bytes, room
                )
                matching += size
                if reason == FULL and len(columns):
                    yield _taken(columns), matching
                    columns, matching = None, 0
                elif reason == FULL:  # one batch has more than the columns take
                    columns, alone = None, most_bytes == limit_bytes
                else:
                    alone = reason == ALONE
        except CorruptData as damage:
            raise chunk.in_file(damage) from damage
        base += done
    _SPARE_ROOM.append(room)
    if columns is not None and len(columns):
        yield _taken(columns), matching
    elif columns is not None:
        _SPARE.append(columns)


def _empty(schema: pa.Schema, size_bytes: int, chunk: Chunk, wanted: Wanted) -> Columns:
    """Return spare columns if they fit, else new ones, for records of a chunk."""
    columns = take_spare(_SPARE)
    if columns is None or columns.schema is not schema or columns.size_bytes < size_bytes:
        columns = Columns(schema, size_bytes // LEAST_RECORD_BYTES, size_bytes)
    columns.begin([piece.segment for piece in chunk.pieces], wanted.window_of)
    return columns


def _taken(columns: Columns) -> pa.RecordBatch:
    """Take the records from the columns. Keep small columns for reuse."""
    batch = columns.take()
    if columns.size_bytes <= COLUMN_BYTES:
        _SPARE.append(columns)
    return batch
