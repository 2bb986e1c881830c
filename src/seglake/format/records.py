"""Records as columns: the one shape in which events travel between the layers.

No object per record exists anywhere in Seglake. Variable-length bytes are `Spans`: positions in a
shared buffer. A raw line of an input file, a key cut out of it and a value inside a decompressed
batch are all spans, so nothing is copied before it is encoded or handed to Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

NULL = -1  # the length of a null item, as in Kafka's own encoding


AnyArray = TypeVar("AnyArray", bound="npt.NDArray[Any]")


def fixed(array: AnyArray) -> AnyArray:
    """The array as a contiguous read-only view, so that every caller's looks alike to a kernel.

    numba compiles a kernel anew, for seconds, for each mix of writable, read-only and strided
    arguments.
    """
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return cast("AnyArray", view)


class Spans(NamedTuple):
    """n byte strings: item i is data[starts[i] : starts[i] + lengths[i]], null if lengths[i] is -1.

    Spans may overlap, repeat, and stand in any order. `data` may be read-only.
    """

    data: Bytes
    starts: Int64s
    lengths: Int32s

    def __len__(self) -> int:
        return len(self.starts)

    @staticmethod
    def nulls(count: int) -> Spans:
        """`count` null items."""
        starts = np.zeros(count, np.int64)
        return Spans(np.empty(0, np.uint8), starts, np.full(count, NULL, np.int32))

    @staticmethod
    def of(items: list[bytes | None]) -> Spans:
        """Spans over the given byte strings; for small lists and tests."""
        lengths = np.array([NULL if item is None else len(item) for item in items], np.int32)
        ends = np.cumsum(np.maximum(lengths, 0), dtype=np.int64)
        data = np.frombuffer(b"".join(item or b"" for item in items), np.uint8)
        return Spans(data, ends - np.maximum(lengths, 0), lengths)

    def take(self, order: Int64s) -> Spans:
        """The items at the positions `order`, over the same buffer."""
        return Spans(self.data, self.starts[order], self.lengths[order])

    def fixed(self) -> Spans:
        """The same items in arrays that are `fixed`."""
        return Spans(fixed(self.data), fixed(self.starts), fixed(self.lengths))

    def tolist(self) -> list[bytes | None]:
        """The items as Python bytes; for display, errors and tests."""
        data = self.data.tobytes()
        pairs = zip(self.starts.tolist(), self.lengths.tolist(), strict=True)
        return [None if length < 0 else data[start : start + length] for start, length in pairs]


class Headers(NamedTuple):
    """Headers of n records: record i owns items firsts[i] to firsts[i + 1] of `keys` and `values`.

    Keys are never null (Kafka forbids it); values may be.
    """

    firsts: Int64s  # n + 1 entries
    keys: Spans
    values: Spans


@dataclass(frozen=True)
class Records:
    """n records: timestamps in ms since the epoch (-1: none), keys, values, headers if any."""

    timestamps: Int64s
    keys: Spans
    values: Spans
    headers: Headers | None = None

    def __len__(self) -> int:
        return len(self.timestamps)


def concatenate(parts: Sequence[Records]) -> Records:
    """The records of several parts, one after another, over one buffer per column."""
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
