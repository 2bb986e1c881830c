"""Represent records as columns. All modules exchange records in this form.

Seglake has no object per record. Variable-length bytes are `Spans`: positions in a shared buffer. A
raw line of an input file, a key in that line and a value in a decompressed batch are all spans, so
nothing is copied before it is encoded or passed to Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

NULL = -1  # the length of a null item, as in Kafka's encoding

AnyArray = TypeVar("AnyArray", bound="npt.NDArray[Any]")


def fixed(array: AnyArray) -> AnyArray:
    """Return the array as a contiguous read-only view, so that a kernel sees one array type.

    For each combination of writable, read-only and strided arguments, numba compiles a kernel
    again, which takes seconds.
    """
    view: Any = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    same: AnyArray = view
    return same


def read_only(data: Any) -> Bytes:
    """Return a read-only view of a buffer, as the array type for which kernels are compiled."""
    return np.frombuffer(memoryview(data).toreadonly(), np.uint8)


def take_rows(table: AnyArray, rows: Any) -> AnyArray:
    """Return `table[rows]`, copied row by row. NumPy's copy by fields takes ten times as long."""
    return table[rows] if table.dtype.names is None else _structures(_opaque(table)[rows], table)


def copy_rows(table: AnyArray) -> AnyArray:
    """Return `table.copy()`, copied row by row like in `take_rows`."""
    return _structures(_opaque(table).copy(), table)


def join_tables(tables: Sequence[AnyArray]) -> AnyArray:
    """Concatenate one or more arrays of the same type, copied row by row like in `take_rows`."""
    if tables[0].dtype.names is None:
        return cast("AnyArray", np.concatenate(tables))
    return _structures(np.concatenate([_opaque(table) for table in tables]), tables[0])


def end_to_end(table: AnyArray) -> AnyArray:
    """Set the positions of batches that follow each other from byte 0 on. Return their table."""
    sizes: Int64s = table["size"].astype(np.int64)
    table["position"] = sizes.cumsum() - sizes
    return table


def _opaque(table: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return table.view(_opaque_type(table.itemsize))


@cache  # NumPy joins arrays quickly only if they share one type object
def _opaque_type(size_bytes: int) -> np.dtype[np.void]:
    return np.dtype((np.void, size_bytes))


def _structures(opaque: npt.NDArray[Any], like: AnyArray) -> AnyArray:
    table: Any = np.ndarray(opaque.shape, like.dtype, opaque)
    same: AnyArray = table
    return same


class Spans(NamedTuple):
    """n byte strings. Item i is data[starts[i] : starts[i] + lengths[i]], or null for length -1.

    Spans may overlap, repeat and be in any order. `data` may be read-only.
    """

    data: Bytes
    starts: Int64s
    lengths: Int32s

    def __len__(self) -> int:
        return len(self.starts)

    @staticmethod
    def nulls(count: int) -> Spans:
        """Return `count` null items."""
        starts = np.zeros(count, np.int64)
        return Spans(np.empty(0, np.uint8), starts, np.full(count, NULL, np.int32))

    @staticmethod
    def from_list(items: list[bytes | None]) -> Spans:
        """Copy a small list of byte strings into one buffer, and return their spans."""
        lengths = np.array([NULL if item is None else len(item) for item in items], np.int32)
        ends = np.cumsum(np.maximum(lengths, 0), dtype=np.int64)
        data = np.frombuffer(b"".join(item or b"" for item in items), np.uint8)
        return Spans(data, ends - np.maximum(lengths, 0), lengths)

    def take(self, order: Int64s) -> Spans:
        """Return the items at the positions `order`, over the same buffer."""
        return Spans(self.data, self.starts[order], self.lengths[order])

    def fixed(self) -> Spans:
        """Return these spans with `fixed` arrays, for kernels."""
        return Spans(fixed(self.data), fixed(self.starts), fixed(self.lengths))

    def tolist(self) -> list[bytes | None]:
        """Return the items as Python bytes, for display and error messages."""
        data = self.data.data  # copy only the items, not the whole buffer
        pairs = zip(self.starts.tolist(), self.lengths.tolist(), strict=True)
        return [None if n < 0 else data[start : start + n].tobytes() for start, n in pairs]


class Headers(NamedTuple):
    """The headers of n records. Record i has the headers firsts[i] to firsts[i + 1], exclusive.

    Header keys are never null, because Kafka forbids that. Header values may be null.
    """

    firsts: Int64s  # n + 1 entries
    keys: Spans
    values: Spans

    def take(self, order: Int64s) -> Headers:
        """Return the headers of the records at the positions `order`, over the same buffers."""
        counts = np.diff(self.firsts)[order]
        firsts = np.append(0, np.cumsum(counts)).astype(np.int64)
        items = np.arange(firsts[-1]) + np.repeat(self.firsts[order] - firsts[:-1], counts)
        return Headers(firsts, self.keys.take(items), self.values.take(items))


@dataclass(frozen=True)
class Records:
    """n records as columns. Timestamps are ms since the epoch. -1 is a missing timestamp."""

    timestamps: Int64s
    keys: Spans
    values: Spans
    headers: Headers | None = None

    def __len__(self) -> int:
        return len(self.timestamps)


def concatenate(parts: Sequence[Records]) -> Records:
    """Return the records of all parts, in order. Each column of the result has one buffer."""
    headers = None
    if any(part.headers is not None for part in parts):
        headers = _join_headers([part.headers or _no_headers(len(part)) for part in parts])
    return Records(
        np.concatenate([part.timestamps for part in parts]),
        _join_spans([part.keys for part in parts]),
        _join_spans([part.values for part in parts]),
        headers,
    )


def _no_headers(count: int) -> Headers:
    return Headers(np.zeros(count + 1, np.int64), Spans.nulls(0), Spans.nulls(0))


def _join_headers(parts: list[Headers]) -> Headers:
    counts = np.concatenate([np.diff(part.firsts) for part in parts])
    firsts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    keys, values = [part.keys for part in parts], [part.values for part in parts]
    return Headers(firsts, _join_spans(keys), _join_spans(values))


def _join_spans(parts: list[Spans]) -> Spans:
    shifts = np.cumsum([0] + [len(part.data) for part in parts[:-1]])
    starts = [part.starts + shift for part, shift in zip(parts, shifts, strict=True)]
    lengths = np.concatenate([part.lengths for part in parts])
    return Spans(np.concatenate([part.data for part in parts]), np.concatenate(starts), lengths)
