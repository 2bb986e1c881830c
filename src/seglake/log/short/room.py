"""The arrays of a share of a short window, and their addresses as the kernels have them."""

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
from seglake.log.decode.columns import Columns
from seglake.log.decode.kernels import DONE, LOG_BYTES, STATES
from seglake.log.segment import LogSegment
from seglake.log.short import share_kernels as words
from seglake.log.short.kernels import ALL, COSTS, KEPT, REQUESTS, SIZE
from seglake.log.slabs import SlabCache

LOG_ROOM_BYTES = 2 * 2**20  # of a log, for one share
MOST_BATCHES = 2048  # of a share
_ARENA_BYTES = 2 * 2**20  # what may need more is decompressed elsewhere


class Wanted(NamedTuple):
    """What the shares of a window have in common. `words` has `places` of its arrays."""

    segments: Sequence[LogSegment]
    words: list[int]
    schema: pa.Schema
    column_bytes: int
    caches: bool
    keeps: object  # in memory: what those arrays name by address


class Done(NamedTuple):
    """What came of a share: records in the columns of its room, if the reason is `DONE`."""

    reason: int
    requests: int
    size_bytes: int
    matching_bytes: int
    codec: int  # of the first batch


def places(*arrays: npt.NDArray[Any]) -> list[int]:
    """The address and the size of each array."""
    pairs = ((each.__array_interface__["data"][0], each.size) for each in arrays)
    return list(chain.from_iterable(pairs))


class Room:
    """Room for one share at a time, which the kernels find by the row `share` of words."""

    def __init__(self, share: Int64s) -> None:
        self._share, count = share, MOST_BATCHES
        self._place, self._costs = np.zeros(STATES, np.int64), np.zeros(COSTS, np.int64)
        self._table, self._window_of = np.zeros(count, TABLE), np.empty(count, np.int32)
        self._positions, self._held, self._ends = np.zeros((3, count), np.int64)
        self._arena = np.empty(_ARENA_BYTES, np.uint8)
        self._attributes = self._table["attributes"]
        self._arrays = (
            np.empty(LOG_ROOM_BYTES, np.uint8), self._table, np.empty(count, np.int32),
            self._positions, np.empty(count, np.int64), self._window_of, self._held,
            np.zeros(count, np.int64), self._arena, self._ends, np.empty(2, np.int64),
            self._place, self._costs,
        )  # fmt: skip
        share[words.LOG : words.STATE] = places(*self._arrays)
        share[words.MAX_BYTES] = MAX_BATCH_BYTES
        self._made: Columns | None = None
        self._moves = 0  # of the columns, whose places the words have
        self._renew()

    def begin(self, wanted: Wanted, first: int, last: int) -> None:
        """Be ready for the stretches [first, last) of a window."""
        self.columns(wanted).begin(wanted.segments, self._window_of)
        self._share[words.SEGMENTS : words.LIBRARIES] = wanted.words
        numbers = first, last, wanted.caches, wanted.column_bytes
        self._share[words.FIRST : words.WANTED] = numbers

    def done(self) -> Done:
        """What came of the share."""
        reason, costs = int(self._share[words.REASON]), self._costs.tolist()
        if reason != DONE:
            self._renew()
        matching, codec = int(self._place[LOG_BYTES]), int(self._attributes[0]) & CODEC_MASK
        return Done(reason, costs[REQUESTS], costs[SIZE], matching, codec)

    def keep(self, wanted: Wanted, slabs: SlabCache) -> None:
        """Cache the batches of the share if most of them were read before."""
        count, total = self._costs[[KEPT, ALL]].tolist()
        if not total:
            return
        table, owners = copy_rows(self._table[:total]), self._window_of[:total].copy()
        table["position"] = self._positions[:total]
        keys = [segment.log_key for segment in wanted.segments]
        fresh = np.flatnonzero(self._held[:count] == 0)
        ends = self._ends[fresh]
        payload = Payload(self._arena, np.append(0, ends)[:-1], ends)
        slabs.put_lent(keys, owners[fresh], take_rows(table, fresh), payload)
        slabs.put_headers(keys, owners[count:], table[count:])

    def columns(self, wanted: Wanted) -> Columns:
        """The columns for what is wanted."""
        columns, size = self._made, wanted.column_bytes
        if columns is None or columns.schema is not wanted.schema or columns.size_bytes < size:
            columns = self._made = Columns(wanted.schema, size // LEAST_RECORD_BYTES, size)
            self._moves = -1
        if columns.moves != self._moves:
            self._share[words.WANTED], _, *buffers = columns.for_kernel(size)
            self._share[words.STATE : words.FIRST] = places(*buffers)
            self._moves = columns.moves
        return columns

    def _renew(self) -> None:
        """Have new contexts of the codecs: after damaged data, lz4's is of no more use."""
        self._libraries = native.new_addresses()
        self._share[words.LIBRARIES : words.LOG] = places(self._libraries)
