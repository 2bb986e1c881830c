"""Decoded records as Arrow batches, with the columns of a schema and no other."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seglake.errors import CorruptData, UsageError
from seglake.format.decode import Decoded
from seglake.format.records import Headers, Int32s, Int64s, Records, Spans
from seglake.limits import INT32_MAX
from seglake.read.decode.kernels import append_items
from seglake.read.fetch.log_segment import LogSegment

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


def schema_of(columns: Sequence[str] | None) -> pa.Schema:
    """The schema of these columns, in this order; None means all. UsageError for a wrong name."""
    return SCHEMA if columns is None else _schema_of(tuple(columns))


@lru_cache(64)
def _schema_of(names: tuple[str, ...]) -> pa.Schema:
    unknown = [name for name in names if name not in SCHEMA.names]
    if unknown:
        raise UsageError(f"unknown column {unknown[0]!r}; columns are {', '.join(SCHEMA.names)}")
    if len(set(names)) < len(names):
        raise UsageError(f"a column is asked for twice: {', '.join(names)}")
    return pa.schema([SCHEMA.field(name) for name in names])


def record_batch(
    segment: LogSegment, decoded: Decoded, rows: Int64s | None, schema: pa.Schema
) -> pa.RecordBatch:
    """The records at the positions `rows` (None: all) with the columns of `schema`.

    Raises CorruptData if their bytes are too many for one Arrow batch.
    """
    chosen = decoded if rows is None else decoded.take(rows)
    size = len(chosen.records.values.data)
    if size > INT32_MAX:
        what = f"{size} bytes of records for one record batch"
        raise CorruptData(what, file=segment.log_key)
    columns = Columns(schema, len(chosen.offsets), size)
    columns.append(chosen, [segment], np.zeros(len(chosen.offsets), np.int32))
    return columns.take()


class Columns:
    """Buffers for the columns of an Arrow batch, filled again and again.

    There is room for `records` records, and for `size_bytes` bytes of keys and as many of values.
    `take` copies: new memory costs more than a copy from memory in use.
    """

    def __init__(self, schema: pa.Schema, records: int, size_bytes: int) -> None:
        self.schema, self.size_bytes, self._records = schema, size_bytes, records
        self._columns = [_COLUMNS[name](records, size_bytes) for name in schema.names]
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(
        self,
        decoded: Decoded,
        segments: Sequence[LogSegment],
        owner_of: Int32s,
        limit_bytes: int | None = None,
    ) -> bool:
        """Append records; batch b is of segments[owner_of[b]].

        Returns False and appends nothing if there is no room for all of them, or if keys, values
        and headers together might then take more than `limit_bytes`.
        """
        used = sum(column.used_bytes for column in self._columns)
        used += len(decoded.records.values.data)  # at least as much as is copied
        limit = self.size_bytes if limit_bytes is None else limit_bytes
        if self._count + len(decoded.offsets) > self._records or used > limit:
            return False
        added = _Added(decoded, segments, owner_of)
        for column in self._columns:
            column.append(self._count, added)
        self._count += len(decoded.offsets)
        return True

    def take(self) -> pa.RecordBatch:
        """The appended records; afterwards there is room for as many again."""
        arrays = [column.take(self._count) for column in self._columns]
        self._count = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class _Added(NamedTuple):
    """Records to append; batch b is of segments[owner_of[b]]."""

    decoded: Decoded
    segments: Sequence[LogSegment]
    owner_of: Int32s

    def owners(self) -> Int32s:
        """The position in `segments` of each record's segment."""
        return self.owner_of[self.decoded.batch]


class _Column(ABC):
    used_bytes = 0  # of items of variable length

    @abstractmethod
    def append(self, at: int, added: _Added) -> None:
        """Copy the records behind the first `at` ones."""

    @abstractmethod
    def take(self, count: int) -> Array:
        """A copy of the first `count` items; afterwards the column is empty."""


class _Numbers(_Column):
    """One number for each record."""

    def __init__(
        self, records: int, kind: Any, values_of: Callable[[_Added], npt.ArrayLike]
    ) -> None:
        self._values, self._kind = np.empty(records, _DTYPES[kind.bit_width]), kind
        self._values_of = values_of

    def append(self, at: int, added: _Added) -> None:
        self._values[at : at + len(added.decoded.offsets)] = self._values_of(added)

    def take(self, count: int) -> Array:
        return _array(self._kind, count, [None, self._values[:count].copy()])


class _Topics(_Numbers):
    """The names of the records' topics, nearly always the same one."""

    def __init__(self, records: int) -> None:
        super().__init__(records, pa.int32(), self._codes)
        self._names: dict[str, int] = {}

    def _codes(self, added: _Added) -> npt.ArrayLike:
        codes = [self._names.setdefault(each.topic, len(self._names)) for each in added.segments]
        return codes[0] if len(self._names) == 1 else np.array(codes)[added.owners()]

    def take(self, count: int) -> Array:
        names, self._names = list(self._names), {}
        if len(names) == 1:
            return pa.repeat(pa.scalar(names[0], pa.string()), count)
        return pa.array(names, pa.string()).take(super().take(count))


class _Bytes(_Column):
    """A byte string for each record, or null."""

    def __init__(self, records: int, size_bytes: int, spans_of: Callable[[Records], Spans]) -> None:
        self._items, self._spans_of = _Items(records, size_bytes), spans_of

    def append(self, at: int, added: _Added) -> None:
        self.used_bytes = self._items.append(at, self._spans_of(added.decoded.records))

    def take(self, count: int) -> Array:
        self.used_bytes = 0
        return self._items.take(count)


class _Items:
    """Buffers for `count` byte strings of `size_bytes` together."""

    def __init__(self, count: int, size_bytes: int) -> None:
        self._offsets, self._data = np.zeros(1 + count, np.int32), np.empty(size_bytes, np.uint8)
        self._valid, self._nulls = np.empty(count, np.uint8), 0

    def append(self, at: int, spans: Spans) -> int:
        """Copy items behind the first `at` ones; returns the bytes of all."""
        self._nulls += append_items(*spans, at, self._offsets, self._data, self._valid)
        return int(self._offsets[at + len(spans)])

    def take(self, count: int) -> Array:
        """A copy of the first `count` items as an array; afterwards there is room again."""
        bits = np.packbits(self._valid[:count], bitorder="little") if self._nulls else None
        self._nulls = 0
        data = self._data[: self._offsets[count]].copy()
        return _array(pa.binary(), count, [bits, self._offsets[: count + 1].copy(), data])


class _Headers(_Column):
    """The lists of headers; most logs have none."""

    def __init__(self) -> None:
        self._lists: list[Array] = []
        self._empty = 0  # records without headers since the last list

    def append(self, _at: int, added: _Added) -> None:
        headers = added.decoded.records.headers
        if headers is None:
            self._empty += len(added.decoded.offsets)
        else:
            self._flush()
            self._lists.append(_lists_of(headers))
            self.used_bytes += self._lists[-1].nbytes

    def _flush(self) -> None:
        if self._empty or not self._lists:
            nothing: Any = pa.array([], HEADER)
            lists: Any = pa.ListArray
            self._lists.append(lists.from_arrays(np.zeros(self._empty + 1, np.int32), nothing))
            self._empty = 0

    def take(self, _count: int) -> Array:
        self._flush()
        lists, self._lists, self.used_bytes = self._lists, [], 0
        return pa.concat_arrays(lists) if len(lists) > 1 else lists[0]


_DTYPES: dict[int, Any] = {32: np.int32, 64: np.int64}
_COLUMNS: dict[str, Callable[[int, int], _Column]] = {
    "topic": lambda n, _: _Topics(n),
    "partition": lambda n, _: _Numbers(n, pa.int32(), _partitions),
    "offset": lambda n, _: _Numbers(n, pa.int64(), lambda added: added.decoded.offsets),
    "timestamp": lambda n, _: _Numbers(
        n, _FIELDS["timestamp"], lambda added: added.decoded.records.timestamps
    ),
    "timestamp_type": lambda n, _: _Numbers(
        n, pa.int32(), lambda added: added.decoded.timestamp_types
    ),
    "key": lambda n, size: _Bytes(n, size, lambda records: records.keys),
    "value": lambda n, size: _Bytes(n, size, lambda records: records.values),
    "headers": lambda _n, _size: _Headers(),
}


def _partitions(added: _Added) -> npt.ArrayLike:
    partitions = np.array([each.partition for each in added.segments])
    return partitions[0] if len(partitions) == 1 else partitions[added.owners()]


def _array(kind: Any, count: int, parts: Sequence[npt.NDArray[Any] | None]) -> Array:
    arrays: list[Any] = list(parts)  # numpy arrays are buffers, but typed so only from 3.12 on
    buffers: list[Any] = [None if part is None else pa.py_buffer(part) for part in arrays]
    return pa.Array.from_buffers(kind, count, buffers)


def _lists_of(headers: Headers) -> Array:
    keys, values = _binary(headers.keys), _binary(headers.values)
    structs = pa.StructArray.from_arrays([_strings(keys), values], fields=list(HEADER))
    lists: Any = pa.ListArray
    return lists.from_arrays(headers.firsts.astype(np.int32), structs)


def _binary(spans: Spans) -> Array:
    items = _Items(len(spans), int(np.maximum(spans.lengths, 0).sum(dtype=np.int64)))
    items.append(0, spans)
    return items.take(len(spans))


def _strings(keys: Array) -> Array:
    """Header keys as text; bytes that are not UTF-8 become replacement characters, as in Java."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        distinct = keys.dictionary_encode()
        different: list[Any] = distinct.dictionary.to_pylist()
        texts = [key.decode(errors="replace") for key in different]
        return pa.array(texts, pa.string()).take(distinct.indices)
