"""The arrays for a share of a short window, and their addresses in the form that kernels take."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seglake.format.batch import CODEC_MASK, LEAST_RECORD_BYTES, MAX_BATCH_BYTES, TABLE
from seglake.format.codecs import native
from seglake.format.codecs.payload import Payload
from seglake.format.records import Int64s, copy_rows, take_rows
from seglake.log.decode.column_kernels import DONE, LOG_BYTES, STATES
from seglake.log.decode.columns import Columns
from seglake.log.segment import LogSegment
from seglake.log.short import share_kernels as words
from seglake.log.short.window_kernels import ALL, COSTS, KEPT, REQUESTS, SIZE
from seglake.log.slabs import SlabCache

LOG_ROOM_BYTES = 2 * 2**20  # room for the bytes of a log in one share
MOST_BATCHES = 2048  # of a share
_ARENA_BYTES = 2 * 2**20  # room for decompressed records; a share that may need more is not read


class ShareContext(NamedTuple):
    """What the shares of a window have in common. `words` has the `places` of the arrays."""

    segments: Sequence[LogSegment]
    words: list[int]
    schema: pa.Schema
    column_bytes: int
    caches: bool
    keeps: object  # stays in memory: the objects to which addresses in the arrays point


class Done(NamedTuple):
    """The result of a share. If `reason` is `DONE`, its records are in the columns of its room."""

    reason: int
    requests: int
    size_bytes: int
    matching_bytes: int
    codec: int  # of the first batch


def places(*arrays: npt.NDArray[Any]) -> list[int]:
    """The address and the size of each array."""
    pairs = ((array.__array_interface__["data"][0], array.size) for array in arrays)
    return list(chain.from_iterable(pairs))


class ShareRoom:
    """Room for one share at a time. The words `share` tell the kernels where the arrays are."""

    def __init__(self, share: Int64s) -> None:
        self._share, count = share, MOST_BATCHES
        self._place, self._costs = np.zeros(STATES, np.int64), np.zeros(COSTS, np.int64)
        self._table, self._window_of = np.zeros(count, TABLE), np.empty(count, np.int32)
        self._positions, self._cached_at, self._ends = np.zeros((3, count), np.int64)
        self._arena = np.empty(_ARENA_BYTES, np.uint8)
        self._attributes = self._table["attributes"]
        self._arrays = (
            np.empty(LOG_ROOM_BYTES, np.uint8), self._table, np.empty(count, np.int32),
            self._positions, np.empty(count, np.int64), self._window_of, self._cached_at,
            np.zeros(count, np.int64), self._arena, self._ends, np.empty(2, np.int64),
            self._place, self._costs,
        )  # fmt: skip
        share[words.LOG : words.STATE] = places(*self._arrays)
        share[words.MAX_BYTES] = MAX_BATCH_BYTES
        self._made: Columns | None = None
        self._moves = 0  # `Columns.moves` when the words got the places of the columns
        self._renew()

    def begin(self, context: ShareContext, first: int, last: int) -> None:
        """Prepare for the stretches [first, last) of a window."""
        self.columns(context).begin(context.segments, self._window_of)
        self._share[words.SEGMENTS : words.LIBRARIES] = context.words
        numbers = first, last, context.caches, context.column_bytes
        self._share[words.FIRST : words.FIELDS] = numbers

    def done(self) -> Done:
        """The result of the share."""
        reason, costs = int(self._share[words.REASON]), self._costs.tolist()
        if reason != DONE:
            self._renew()
        matching, codec = int(self._place[LOG_BYTES]), int(self._attributes[0]) & CODEC_MASK
        return Done(reason, costs[REQUESTS], costs[SIZE], matching, codec)

    def keep(self, context: ShareContext, slabs: SlabCache) -> None:
        """Cache the batches of the share, if most of them were read twice before."""
        count, total = self._costs[[KEPT, ALL]].tolist()
        if not total:
            return
        table, owners = copy_rows(self._table[:total]), self._window_of[:total].copy()
        table["position"] = self._positions[:total]
        keys = [segment.log_key for segment in context.segments]
        fresh = np.flatnonzero(self._cached_at[:count] == 0)
        ends = self._ends[fresh]
        payload = Payload(self._arena, np.append(0, ends)[:-1], ends)
        slabs.put_lent(keys, owners[fresh], take_rows(table, fresh), payload)
        slabs.put_headers(keys, owners[count:], table[count:])

    def columns(self, context: ShareContext) -> Columns:
        """The columns for the records of the window; their places are in the words."""
        columns, size = self._made, context.column_bytes
        if columns is None or columns.schema is not context.schema or columns.size_bytes < size:
            columns = self._made = Columns(context.schema, size // LEAST_RECORD_BYTES, size)
            self._moves = -1
        if columns.moves != self._moves:
            buffers: Any = columns.for_kernel(size)
            self._share[words.FIELDS] = buffers.fields
            self._share[words.STATE : words.FIRST] = places(*buffers[2:])  # after `limit_bytes`
            self._moves = columns.moves
        return columns

    def _renew(self) -> None:
        """Make new contexts of the codecs, because lz4's context is unusable after damaged data."""
        self._libraries = native.new_addresses()
        self._share[words.LIBRARIES : words.LOG] = places(self._libraries)
