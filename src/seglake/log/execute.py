"""Execute a read: fetch the byte ranges of pieces, decode them, select the window's records.

Records are returned as Arrow batches in offset order, a few MiB at a time, with only the columns of
a schema.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any, TypeVar
from weakref import ref

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seglake.cached import cached_property
from seglake.errors import CorruptData, SeglakeError, UsageError
from seglake.format.batch import CODEC_MASK, LEAST_RECORD_BYTES, BatchTable
from seglake.format.codecs import native
from seglake.format.codecs.payload import Payload
from seglake.format.decode import damage_of, headers_of
from seglake.format.records import Bytes, Headers, Int32s, Spans, take_rows
from seglake.format.sought_kernels import EVERY_KEY, SoughtKeys
from seglake.log import column_kernels as kernels
from seglake.log.fetch import Chunk, Fetch, thread_pool
from seglake.log.segment import Piece, window_limits
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
Windows = npt.NDArray[np.int64]  # of shape (m, 4): a row of `window_limits` for each window


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


_Lent = list[tuple[npt.NDArray[np.uint8], ref[npt.NDArray[np.uint8]]]]
"""Memory of keys or values, each with a view that the caller has, or had."""


class Columns:
    """Buffers for the columns of an Arrow batch, which are reused.

    There is space for `records` records, `size_bytes` bytes of keys and `size_bytes` bytes of
    values. `take` copies small buffers: new memory costs more than a copy from memory in use.
    `take` lends large buffers of keys or values to the caller. Their memory is reused after the
    caller has released it.
    """

    def __init__(self, schema: pa.Schema, records: int, size_bytes: int) -> None:
        self.schema, self.size_bytes = schema, size_bytes
        fields = sum(flag for name, flag in _FLAGS.items() if name in schema.names)
        self._buffers = kernels.Buffers.allocate(fields, records, size_bytes)
        self._lent: dict[str, _Lent] = {"keys": [], "values": []}
        self._headers = _HeaderLists()
        self._state = self._buffers.state

    def fill(
        self, table: BatchTable, payload: Payload, as_stored: bool, first: int, windows: Windows,
        window_of: Int32s, keys: SoughtKeys, limit_bytes: int, room: kernels.DecodeRoom,
    ) -> tuple[int, int, int]:  # fmt: skip
        """Append wanted records of batches while there is space.

        Keys, values and headers together take at most `limit_bytes`. For arguments and results see
        the kernel `fill`; the reason is 0, `FULL` or `ALONE`. Raises CorruptData with the position
        of a damaged batch.
        """
        (before, _, _, headers), buffers = self._state.tolist(), self._buffers
        done, size, reason = kernels.fill(
            table, payload, as_stored, first, windows, window_of, keys, buffers,
            min(limit_bytes, self.size_bytes) - self._headers.used_bytes, room, native.addresses(),
        )  # fmt: skip
        if reason > 0 and as_stored and table[first + done]["attributes"] & CODEC_MASK:
            reason = kernels.ALONE  # the decompressed size is part of the error
        elif reason > 0:
            records = int(payload.ends[done] - payload.starts[done])
            raise damage_of(table[first + done], reason, records)
        if self._state[kernels.ALL_HEADERS] > headers:
            new = slice(before, int(self._state[kernels.COUNT]))
            compressed = as_stored and table[first]["attributes"] & CODEC_MASK
            found = headers_of(
                room.records if compressed else payload.data,
                buffers.header_counts[new], buffers.header_starts[new],
                buffers.header_ends[new], lambda record: table[buffers.batches[before + record]],
            )  # fmt: skip
            if found is not None:
                self._headers.append(before, found)
        return done, size, reason

    def take(self, pieces: Sequence[Piece], owner_of: Int32s) -> pa.RecordBatch:
        """Return the appended records. Afterwards the columns are empty.

        The records are of batches of `pieces`: batch b belongs to pieces[owner_of[b]].
        """
        count, arrays = int(self._state[kernels.COUNT]), list[Array]()
        for name in self.schema.names:
            if name in _NUMBERS:
                numbers, kind = _NUMBERS[name]
                data: Any = getattr(self._buffers, numbers)[:count].astype(kind)  # a copy
                buffers = [None, pa.py_buffer(data)]
                arrays.append(pa.Array.from_buffers(_FIELDS[name], count, buffers))
            elif name in _ITEMS:
                arrays.append(self._items(count, *_ITEMS[name]))
            elif name == "headers":
                arrays.append(self._headers.take(count))
            else:
                owners = owner_of[self._buffers.batches[:count]]
                arrays.append(_of_segments(name, pieces, owners))
        self._state[:] = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _items(self, count: int, name: str, ends: str, valid: str, nulls: int) -> Array:
        """Return the first `count` keys or values. Later items do not change the array."""
        items: Bytes = getattr(self._buffers, name)
        item_ends: Int32s = getattr(self._buffers, ends)[: count + 1].copy()
        flags = getattr(self._buffers, valid)[:count] if self._state[nulls] else None
        bits = None if flags is None else np.packbits(flags, bitorder="little")
        end = int(item_ends[count]) + PADDING
        items[end - PADDING : end] = 0  # with zeros after the items, `from_arrow` copies less
        data = items[:end]
        data = self._lend(name, items, data) if len(data) >= _LEAST_LENT else data.copy()
        return _array(pa.binary(), count, bits, item_ends, data)

    def _lend(self, name: str, memory: Bytes, data: Bytes) -> Bytes:
        """Lend the memory to the caller, and replace it by new memory or memory that came back."""
        lent = self._lent[name]
        let_go = (at for at, (_, view) in enumerate(lent) if view() is None)
        free = next(let_go, None)  # an Arrow buffer keeps a reference to the lent view
        lent.append((memory, ref(data)))
        other: Any = {name: np.empty_like(memory) if free is None else lent.pop(free)[0]}
        self._buffers = self._buffers._replace(**other)
        del lent[:-_MOST_SPARE]
        return data


_NUMBERS: dict[str, tuple[str, type[np.int64 | np.int32]]] = {  # the names in `Buffers`
    "offset": ("offsets", np.int64),
    "timestamp": ("timestamps", np.int64),
    "timestamp_type": ("timestamp_types", np.int32),
}
_ITEMS = {  # the names in `Buffers`, and the position of the number of nulls in its state
    "key": ("keys", "key_ends", "key_valid", kernels.NULL_KEYS),
    "value": ("values", "value_ends", "value_valid", kernels.NULL_VALUES),
}
_FLAGS = {"key": kernels.KEYS, "value": kernels.VALUES, "headers": kernels.HEADERS}


class _HeaderLists:
    """The column of headers: a list for each record. Most logs have no headers."""

    def __init__(self) -> None:
        self._lists: list[Array] = []
        self._count = self.used_bytes = 0

    def append(self, at: int, headers: Headers) -> None:
        """Append the headers of records after the first `at` records."""
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


def _of_segments(name: str, pieces: Sequence[Piece], owners: Int32s) -> Array:
    """Return the column `name`, "topic" or "partition". Record i is of pieces[owners[i]].

    Columns of one value with at most `_SHARED_ROWS` rows share their buffers.
    """
    values, count = [*map(attrgetter(f"segment.{name}"), pieces)], len(owners)
    if len(set(values)) == 1:
        return _repeated(values[0], count) if count > _SHARED_ROWS else _shared(values[0])[:count]
    if name == "topic":
        return pa.array(values, pa.string()).take(owners)
    return _array(pa.int32(), count, None, np.array(values, np.int32)[owners])


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

_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
DECODERS = min(4, _CORES)  # threads of one read

_WINDOW = attrgetter("window")
_SPARE: deque[Columns] = deque(maxlen=8)
_SPARE_ROOM: deque[kernels.DecodeRoom] = deque(maxlen=8)
"""Memory that no share uses now: new memory costs more than memory that was used before."""


@dataclass
class ReadStats:
    """Counts of what a read requested from the logs. Index data is cached and does not count.

    `requests` counts requests to storage. `bytes_fetched` counts their bytes, also between joined
    ranges. `records` counts the records of the result, and `bytes_matching` the bytes of batches
    with such a record. A search for keys counts the records with one of the keys.
    """

    requests: int = 0
    bytes_fetched: int = 0
    bytes_matching: int = 0
    records: int = 0

    @cached_property
    def misfits(self) -> Counter[str]:
        """Return, by field, the number of values that the column's type cannot hold."""
        return Counter()

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
    """Cut each chunk into about `count` shares, or fewer. Yield the wanted records of each share.

    A share is decoded by one thread. Its Arrow batches have about `limit_bytes`, or the records of
    one larger record batch. With `keys`, only records with one of the keys are wanted. `stats`
    counts the requests of the chunks.
    """
    for chunk in chunks:
        stats.requests += chunk.requests
        stats.bytes_fetched += chunk.fetched_bytes
        table, owner_of, rows = chunk.table, chunk.owner_of, np.empty(len(chunk.table), np.int64)
        limits = np.array([*map(window_limits, map(_WINDOW, chunk.pieces))])
        found = kernels.wanted_batches(table, owner_of, limits, rows)
        if found < len(table):
            table, owner_of = take_rows(table, rows[:found]), owner_of[rows[:found]]
        for first, last in pairwise(_cuts(table["size"], count, chunk.is_cached)):
            share, owners = table[first:last], owner_of[first:last]
            yield _share(chunk, share, limits, owners, keys, schema, limit_bytes)


def _cuts(sizes: npt.NDArray[np.int32], count: int, cached: bool) -> list[int]:
    """Return the positions at which to cut batches of these sizes into shares, with both ends."""
    ends = sizes.cumsum(dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    shares = min(count, total // (_CACHED_SHARE_BYTES if cached else _SHARE_BYTES))
    shares = max(shares, total // _LARGEST_SHARE_BYTES)
    inner = ends.searchsorted(np.arange(1, shares) * total // shares).tolist() if shares > 1 else []
    return [0, *inner, len(sizes)]


def _share(
    chunk: Chunk, rows: BatchTable, limits: Windows, owner_of: Int32s, keys: SoughtKeys,
    schema: pa.Schema, limit_bytes: int,
) -> Share:  # fmt: skip
    """Yield the wanted records of the batches `rows`."""
    columns, matching, first, alone = None, 0, 0, False
    room = take_spare(_SPARE_ROOM) or kernels.DecodeRoom.new()
    while first < len(rows):
        try:
            most_bytes = limit_bytes
            if alone:
                payload = chunk.decompress(rows[first : first + 1], 1)
                most_bytes = max(most_bytes, int(payload.ends[0] - payload.starts[0]))
            else:
                payload = chunk.payload(rows[first:], min(_PART_BYTES, limit_bytes))
            as_stored, alone = not (alone or chunk.is_cached), False
            while len(payload.ends) and not alone:
                if columns is None:
                    columns = _empty(schema, most_bytes)
                done, size, reason = columns.fill(
                    rows, payload, as_stored, first, limits, owner_of, keys, most_bytes, room
                )
                first, matching = first + done, matching + size
                payload = Payload(payload.data, payload.starts[done:], payload.ends[done:])
                if reason == kernels.FULL and matching:
                    yield _taken(columns, chunk, owner_of), matching
                    columns, matching = None, 0
                elif reason == kernels.FULL:  # one batch has more than the columns take
                    columns, alone = None, most_bytes == limit_bytes
                else:
                    alone = reason == kernels.ALONE
        except CorruptData as damage:
            raise chunk.in_file(damage) from damage
    _SPARE_ROOM.append(room)
    if columns is not None and matching:
        yield _taken(columns, chunk, owner_of), matching
    elif columns is not None:
        _SPARE.append(columns)


def _empty(schema: pa.Schema, size_bytes: int) -> Columns:
    """Return spare columns if they fit, else new ones."""
    columns = take_spare(_SPARE)
    if columns is None or columns.schema is not schema or columns.size_bytes < size_bytes:
        columns = Columns(schema, size_bytes // LEAST_RECORD_BYTES, size_bytes)
    return columns


def _taken(columns: Columns, chunk: Chunk, owner_of: Int32s) -> pa.RecordBatch:
    """Take the records of the chunk from the columns. Keep small columns for reuse."""
    batch = columns.take(chunk.pieces, owner_of)
    if columns.size_bytes <= COLUMN_BYTES:
        _SPARE.append(columns)
    return batch


_Item = TypeVar("_Item")
_Given = TypeVar("_Given")
_READING = list[None]()  # an item for each thread that reads now, and does not wait for its caller
os.register_at_fork(after_in_child=_READING.clear)  # in a forked process no other thread reads


def side_by_side(shares: Iterator[Iterator[_Item]], threads: int) -> Iterator[_Item]:
    """Run iterators (`shares`) on several threads. Yield their items, one share after another.

    While the caller takes the items of one share, the next `threads` shares make their first item
    on other threads. That is one share more than there are spare threads, because one share may
    finish early. With one share or one thread, or while other readers keep all cores busy, every
    share runs on the caller's thread. An error of a share is raised in the order of the shares.
    """
    items = _side_by_side(shares, threads if threads > 1 else 0)
    while True:
        _READING.append(None)
        try:
            item = next(items, None)
        finally:
            _READING.pop()
        if item is None:
            return
        yield item


def _side_by_side(shares: Iterator[Iterator[_Item]], others: int) -> Iterator[_Item]:
    waiting: deque[tuple[Iterator[_Item], Future[_Item | None]]] = deque()
    own = _next(shares)
    try:
        while own is not None:
            _start(shares, others, waiting)
            yield from own
            if waiting:
                share, future = waiting.popleft()
                _start(shares, others, waiting)
                first = future.result()
                own = share if first is None else chain([first], share)
            else:
                own = _next(shares)
    finally:
        for _, future in waiting:
            future.cancel()


def map_side_by_side(
    items: Iterator[_Given], work: Callable[[_Given], _Item]
) -> Iterator[tuple[_Given, _Item]]:
    """Yield each item with the result of `work`, in order, concurrently like `side_by_side`.

    An error of `items` is raised after the items that precede it.
    """

    def share(item: _Given) -> Iterator[tuple[_Given, _Item]]:
        yield item, work(item)

    return _side_by_side(map(share, items), DECODERS if DECODERS > 1 else 0)


def take_spare(items: deque[_Item]) -> _Item | None:
    """Take an item, or return None. Other threads may take items at the same time."""
    try:
        return items.pop()
    except IndexError:
        return None


def _start(
    shares: Iterator[Iterator[_Item]],
    count: int,
    waiting: deque[tuple[Iterator[_Item], Future[_Item | None]]],
) -> None:
    if 2 * len(_READING) > _CORES:  # the readers keep all cores busy
        return
    while len(waiting) < count and (share := _next(shares)) is not None:
        waiting.append((share, thread_pool("seglake-decode", DECODERS).submit(next, share, None)))


def _next(shares: Iterator[Iterator[_Item]]) -> Iterator[_Item] | None:
    try:
        return next(shares, None)
    except SeglakeError as error:
        return _raising(error)


def _raising(error: SeglakeError) -> Iterator[_Item]:
    raise error
    yield
