"""Batches of a chunk as arguments of the kernel `fill`, which decodes them into columns."""

from __future__ import annotations

import threading

import numpy as np

from seglake.format.batch import MAX_BATCH_BYTES, OVERHEAD, BatchTable
from seglake.format.codecs import codec_kernels, native
from seglake.format.codecs.payload import Payload
from seglake.format.decode import Within
from seglake.format.records import Bytes, Int64s, fixed, read_only, take_rows
from seglake.log.chunk import Chunk
from seglake.log.decode.column_kernels import (
    ARENA_BYTES,
    LOG_BYTES,
    ROW,
    STATES,
    UNKNOWN,
    Arena,
    Buffers,
    FetchedBatches,
    fill,
)

_ARENA_BYTES = 2**20  # a batch that may need more goes the long way, see `shares`

_THREAD = threading.local()


class Direct:
    """Some batches of a chunk, of which only some records are wanted."""

    def __init__(self, chunk: Chunk, rows: BatchTable, within: Within) -> None:
        self._chunk, self._rows, self._keys = chunk, fixed(rows), within.keys
        self._batches = FetchedBatches(
            read_only(chunk.data), self._rows, fixed(within.window_of), fixed(within.windows),
            *chunk.cached_places(rows),
        )  # fmt: skip
        self._place, self._sizes = np.zeros(STATES, np.int64), np.empty(2, np.int64)
        self._arena: Bytes | None = None
        self._ends = _NO_ENDS
        if chunk.keeps:
            self._arena, self._ends = self._own_arena()

    @property
    def row(self) -> int:
        """The number of the next batch: the first that is not in columns yet."""
        return int(self._place[ROW])

    def fill(self, columns: Buffers) -> int:
        """Call the kernel `fill` with these batches."""
        addresses = native.addresses()
        if not addresses.any():
            return UNKNOWN
        keeps = self._arena is not None
        data = arena_of_thread() if self._arena is None else self._arena
        arena = Arena(addresses, MAX_BATCH_BYTES, data, keeps, self._ends, self._sizes)
        return int(fill(self._batches, arena, self._place, columns, self._keys))

    def matching_bytes(self) -> int:
        """The bytes of the batches with a wanted record, counted since the last call."""
        size, self._place[LOG_BYTES] = int(self._place[LOG_BYTES]), 0
        return size

    def keep(self) -> None:
        """Let the chunk cache the decompressed records, if it does."""
        size = int(self._place[ARENA_BYTES])
        if self._arena is None or not size:
            return
        fresh = np.flatnonzero(self._batches.cached_at[: self.row] == 0)
        data, ends = self._arena[:size], self._ends[fresh]
        if size < len(self._arena) // 4 * 3:
            data = data.copy()
        payload = Payload(fixed(data), np.append(0, ends[:-1]), ends)
        self._chunk.keep(take_rows(self._rows, fresh), payload)

    def _own_arena(self) -> tuple[Bytes, Int64s]:
        """Room for the records of batches that are not cached, and for the end of each batch."""
        rows, bounds = self._rows, np.zeros(len(self._rows), np.int64)
        starts, ends = rows["position"] + OVERHEAD, rows["position"] + rows["size"]
        codec_kernels.payload_bounds(
            self._batches.log, starts, ends, rows["attributes"].copy(), native.addresses(),
            MAX_BATCH_BYTES, bounds,
        )  # fmt: skip
        room = int(np.maximum(bounds, 0)[self._batches.cached_at == 0].sum())
        return np.empty(room, np.uint8), np.zeros(len(rows), np.int64)


_NO_ENDS: Int64s = np.zeros(0, np.int64)


def arena_of_thread() -> Bytes:
    """The memory into which this thread decompresses one batch at a time."""
    arena: Bytes | None = getattr(_THREAD, "arena", None)
    if arena is None:
        arena = _THREAD.arena = np.empty(_ARENA_BYTES, np.uint8)
    return arena
