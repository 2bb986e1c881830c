"""The last step of a lookup: from one block to one record, through a cache of decoded batches.

What is kept of a batch is what a lookup searches in, its offsets and timestamps; keys and values
are kept only of batches that records were fetched from.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seglake.format.batch import Table
from seglake.format.decode import Decoded
from seglake.format.records import Int64s
from seglake.read.cache import ByteCache
from seglake.read.fetch import Chunk, read_chunk
from seglake.read.segments import LogSegment, Ranges
from seglake.read.zones import Block
from seglake.store import Store


class OffsetAndTimestamp(NamedTuple):
    """Where a timestamp lookup leads: a record's offset, and its timestamp in milliseconds."""

    offset: int
    timestamp: int


class _Heads(NamedTuple):
    """The batches of one block."""

    table: Table  # positions in the file
    last_offsets: Int64s
    highest: Int64s  # running maximum of their max timestamps


class _Times(NamedTuple):
    """The records of one batch."""

    offsets: Int64s
    timestamps: Int64s
    highest: Int64s  # running maximum of the timestamps


class BatchReader:
    """Searches blocks of a lake's logs. Everything raises CorruptData and StoreError."""

    def __init__(self, store: Store, cache: ByteCache) -> None:
        self._store, self._cache = store, cache

    def first_reaching(
        self, segment: LogSegment, block: Block, timestamp: int, from_offset: int
    ) -> OffsetAndTimestamp | None:
        """The block's first record at `timestamp` or later with an offset >= `from_offset`."""
        heads, chunk = self._heads(segment, block)
        row = int(heads.highest.searchsorted(timestamp))
        while row < len(heads.highest):
            found = _first(self._times(segment, heads, row, chunk), timestamp, from_offset)
            if found is not None:
                return found
            later = np.flatnonzero(heads.table["max_timestamp"][row + 1 :] >= timestamp)
            row = row + 1 + int(later[0]) if len(later) else len(heads.highest)
        return None

    def batch_of(self, segment: LogSegment, block: Block, offset: int) -> Decoded | None:
        """The block's first batch that ends at `offset` or above, or None."""
        heads, chunk = self._heads(segment, block)
        row = int(heads.last_offsets.searchsorted(offset))
        if row == len(heads.last_offsets):
            return None
        key = (segment.log_key, int(heads.table["position"][row]), "records")
        decoded: Decoded | None = self._cache.get(key)
        if decoded is None:
            decoded = self._decode(segment, heads, row, chunk)
            size = 64 * len(decoded.offsets) + len(decoded.records.values.data) + 1024
            self._cache.put(key, decoded, size)
        return decoded

    def _heads(self, segment: LogSegment, block: Block) -> tuple[_Heads, Chunk | None]:
        key = (segment.log_key, block.position)
        heads: _Heads | None = self._cache.get(key)
        if heads is not None:
            return heads, None
        chunk = read_chunk(self._store, segment, block.ranges)
        table = chunk.table.copy()
        table["position"] += block.position
        highest = np.maximum.accumulate(table["max_timestamp"])
        heads = _Heads(table, table["last_offset"].copy(), highest)
        self._cache.put(key, heads, table.nbytes + 16 * len(table) + 512)
        return heads, chunk

    def _times(self, segment: LogSegment, heads: _Heads, row: int, chunk: Chunk | None) -> _Times:
        key = (segment.log_key, int(heads.table["position"][row]), "times")
        times: _Times | None = self._cache.get(key)
        if times is None:
            decoded = self._decode(segment, heads, row, chunk)
            timestamps = decoded.records.timestamps
            times = _Times(decoded.offsets, timestamps, np.maximum.accumulate(timestamps))
            self._cache.put(key, times, 24 * len(timestamps) + 512)
        return times

    def _decode(self, segment: LogSegment, heads: _Heads, row: int, chunk: Chunk | None) -> Decoded:
        if chunk is None:
            known = heads.table[row]
            start, end = int(known["position"]), int(known["position"] + known["size"])
            offsets = int(known["base_offset"]), int(known["last_offset"]) + 1
            chunk = read_chunk(self._store, segment, Ranges.of(start, end, *offsets))
            row = 0
        return chunk.decode(chunk.table[row : row + 1])


def _first(times: _Times, timestamp: int, from_offset: int) -> OffsetAndTimestamp | None:
    offsets = times.offsets
    if not len(offsets):
        return None
    if offsets[0] >= from_offset:
        row = int(times.highest.searchsorted(timestamp))
    else:
        first = int(offsets.searchsorted(from_offset))
        reaching = times.timestamps[first:] >= timestamp
        row = first + int(reaching.argmax()) if reaching.any() else len(offsets)
    if row == len(offsets):
        return None
    return OffsetAndTimestamp(int(offsets[row]), int(times.timestamps[row]))
