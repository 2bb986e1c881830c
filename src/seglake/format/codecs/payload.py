"""Decompress the records of many batches into one array.

Kernels handle batches that are uncompressed, zstd or lz4. All other batches, and damaged ones, are
decompressed one by one by `compression`, which raises the errors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from seglake.errors import CorruptData
from seglake.format.batch import CODEC_MASK, MAX_BATCH_BYTES, OVERHEAD, BatchTable
from seglake.format.codecs import codec_kernels, compression, native
from seglake.format.records import Bytes, Int64s, fixed, read_only
from seglake.limits import INT64_MAX


class Payload(NamedTuple):
    """The decompressed records of batches. Batch b has the records data[starts[b] : ends[b]]."""

    data: Bytes
    starts: Int64s
    ends: Int64s

    def copy(self) -> Payload:
        """Return a copy whose array has only the bytes from the first batch to the last batch."""
        first, stop = self.starts[0], self.ends[-1]
        data = fixed(self.data[first:stop].copy())
        return Payload(data, self.starts - first, self.ends - first)


def payload_of(
    data: Bytes,
    table: BatchTable,
    *,
    max_bytes: int = MAX_BATCH_BYTES,
    enough_bytes: int = INT64_MAX,
) -> Payload:
    """Decompress the batches of `table` in order, at least one, until they yield `enough_bytes`.

    Raises CorruptData, with the position, for a batch that is damaged, or that would decompress to
    more than `max_bytes`.
    """
    table, bounds = fixed(table), np.empty(len(table), np.int64)
    codecs = codec_kernels.payload_bounds(data, table, native.addresses(), max_bytes, bounds)
    if not codecs and len(table):
        plain = _plain(data, table, enough_bytes)
        if len(plain.data) < 2 * (plain.ends - plain.starts).sum():  # few other bytes
            return plain
    return _Decompression(data, table, bounds, max_bytes, max(1, enough_bytes)).payload()


def _plain(data: Bytes, table: BatchTable, enough_bytes: int) -> Payload:
    """Return the payload of uncompressed batches: a view, which also contains their headers."""
    starts, ends = table["position"] + OVERHEAD, table["position"] + table["size"]
    count = 1 + int(np.searchsorted(np.cumsum(ends - starts), enough_bytes))
    starts, ends = starts[:count], ends[:count]
    return Payload(data[starts[0] : ends[-1]], starts - starts[0], ends - starts[0])


class _Decompression:
    """Batches that are decompressed into one array, `out`, where batch b ends at ends[b].

    bounds[b] is the result of `payload_bounds` for batch b.
    """

    def __init__(
        self, data: Bytes, table: BatchTable, bounds: Int64s, max_bytes: int, enough_bytes: int
    ) -> None:
        self._data, self._table, self._bounds = data, table, bounds
        self._max_bytes, self._enough_bytes = max_bytes, enough_bytes
        self._ends, self._sizes = np.empty(len(table), np.int64), np.empty(2, np.int64)
        size = int(np.maximum(bounds, 0).sum())
        if size > enough_bytes:
            size = min(size, enough_bytes + int(bounds.max()))
        self._out = np.empty(size, np.uint8)

    def payload(self) -> Payload:
        """Decompress batches until they yield `enough_bytes`, and return their payload."""
        row = at = 0
        while row < len(self._ends) and at < self._enough_bytes:
            stop = codec_kernels.decompress(
                self._data, self._table, self._bounds, native.addresses(), self._out, row,
                self._enough_bytes, self._ends, self._sizes,
            )  # fmt: skip
            if stop == row:
                self._put(row, at, self._alone(row))
                stop += 1
            row, at = stop, int(self._ends[stop - 1])
        starts = np.zeros(row, np.int64)
        starts[1:] = self._ends[: max(row - 1, 0)]
        return Payload(fixed(self._out[:at]), starts, self._ends[:row])

    def _alone(self, row: int) -> Any:
        """Return the decompressed records of one batch, without the kernels."""
        position, size, attributes = (
            int(self._table[name][row]) for name in ("position", "size", "attributes")
        )
        if self._bounds[row] >= 0:
            native.renew()  # the batch is damaged, or has several frames
        part, codec = self._data[position + OVERHEAD : position + size], attributes & CODEC_MASK
        try:
            return compression.decompress(codec, part, self._max_bytes) if codec else part
        except CorruptData as error:
            raise error.within("", position) from error

    def _put(self, row: int, at: int, part: Any) -> None:
        """Write the records of one batch at `at`."""
        end = self._ends[row] = at + len(part)
        if end > len(self._out):
            grown = np.empty(max(2 * len(self._out), end), np.uint8)
            grown[:at] = self._out[:at]
            self._out = grown
        self._out[at:end] = read_only(part)
