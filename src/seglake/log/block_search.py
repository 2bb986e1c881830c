"""Find one record in one index block, the last step of a lookup, through a cache.

The cache has the batch headers of a block. It has the offsets and timestamps of a batch if a lookup
by time searched the batch. It has the keys and values of a batch if a record of the batch was read.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seglake.compile.fallback import load
from seglake.errors import CorruptData
from seglake.format.batch import CONTROL, BatchTable
from seglake.format.codecs import native
from seglake.format.decode import Decoded, decode_batches, scan_batches
from seglake.format.records import Bytes, Int64s, read_only
from seglake.log import block_kernels as kernels
from seglake.log.byte_cache import ByteCache
from seglake.log.chunk import Chunk
from seglake.log.fetch import LogFetch
from seglake.log.segment import LogRanges, LogSegment
from seglake.log.threads import take_spare
from seglake.log.zone_maps import Block

_OWN_BYTES = 600  # memory of a cached array and its key, without the numbers in the array
_SPARE_ROOMS = deque[kernels.LookupRoom](maxlen=8)  # memory that no lookup uses now
_COLUMNS = {
    "position": kernels.POSITION, "size": kernels.SIZE, "attributes": kernels.ATTRIBUTES,
    "base_offset": kernels.BASE_OFFSET, "last_offset": kernels.LAST_OFFSET,
    "base_timestamp": kernels.BASE_TIMESTAMP, "max_timestamp": kernels.MAX_TIMESTAMP,
    "count": kernels.RECORDS,
}  # fmt: skip
_NOTHING: Int64s = np.zeros(0, np.int64)
_UNREAD = (kernels.UNREAD, 0, 0)


class OffsetAndTimestamp(NamedTuple):
    """The result of a lookup by time: a record's offset, and its timestamp in ms."""

    offset: int
    timestamp: int


class BlockSearch:
    """Searches index blocks of a lake's logs. Every method raises CorruptData and StoreError."""

    def __init__(self, fetch: LogFetch, cache: ByteCache) -> None:
        self._fetch, self._cache = fetch, cache

    def first_reaching(
        self, segment: LogSegment, block: Block, timestamp: int, from_offset: int
    ) -> OffsetAndTimestamp | None:
        """Return the block's first record at or after `timestamp` and at or after `from_offset`."""
        name = _name(segment, block)
        outline: Int64s | None = self._cache.get(name)
        answer: Sequence[int] = _UNREAD
        if outline is not None:
            answer = kernels.first_reaching(outline, timestamp, from_offset)
        if answer[0] == kernels.UNREAD:
            before = _NOTHING if outline is None else outline
            outline, answer = self._read(segment, block, before, timestamp, from_offset)
            self._cache.put(name, outline, outline.nbytes + _OWN_BYTES)
        state, offset, record_time = answer
        return OffsetAndTimestamp(offset, record_time) if state == kernels.FOUND else None

    def _read(
        self, segment: LogSegment, block: Block, outline: Int64s, timestamp: int, from_offset: int
    ) -> tuple[Int64s, Sequence[int]]:
        """Read a block and search it. Return the outline of the block, and the answer."""
        data = self._fetch.read(segment, block.position, block.end)
        room = take_spare(_SPARE_ROOMS) or kernels.LookupRoom.new()
        load(kernels.first_reaching, room.outline, timestamp, from_offset)  # rather now than later
        *answer, used = kernels.read_first_reaching(
            read_only(data), outline, timestamp, from_offset, block.first_offset, block.end_offset,
            room, native.addresses(),
        )  # fmt: skip
        outline = room.outline[:used].copy()
        _SPARE_ROOMS.append(room)
        if answer[0] != kernels.UNKNOWN:
            return outline, answer
        chunk = self._fetch.chunk_of(segment, block.ranges)
        outline = _outline_of(chunk.table)
        while (answer := kernels.first_reaching(outline, timestamp, from_offset))[
            0
        ] == kernels.UNREAD:
            outline = _with_times(outline, answer[1], chunk)
        return outline, answer

    def batch_of(self, segment: LogSegment, block: Block, offset: int) -> Decoded | None:
        """Return the block's first batch that ends at or above `offset`, or None."""
        name, data = _name(segment, block), None
        outline: Int64s | None = self._cache.get(name)
        if outline is None:
            data = self._fetch.read(segment, block.position, block.end)
            outline = self._surveyed(segment, block, read_only(data))
            self._cache.put(name, outline, outline.nbytes + _OWN_BYTES)
        batches = _batches_of(outline)
        row = int(batches[:, kernels.LAST_OFFSET].searchsorted(offset))
        if row == len(batches):
            return None
        position = block.position + int(batches[row, kernels.POSITION])
        key = (segment.log_key, position, "records")
        decoded: Decoded | None = self._cache.get(key)
        if decoded is None:
            decoded = self._records(segment, batches[row], position, data)
            self._cache.put(key, decoded, _size_of(decoded))
        return decoded

    def _surveyed(self, segment: LogSegment, block: Block, data: Bytes) -> Int64s:
        """Return the outline of a block with these bytes, without times."""
        room = take_spare(_SPARE_ROOMS) or kernels.LookupRoom.new()
        addresses = native.addresses()
        if kernels.survey(data, block.first_offset, block.end_offset, addresses, room.outline):
            outline = room.outline[: room.outline[kernels.USED]].copy()
            _SPARE_ROOMS.append(room)
            return outline
        return _outline_of(self._fetch.chunk_of(segment, block.ranges).table)

    def _records(self, segment: LogSegment, batch: Int64s, position: int, data: Any) -> Decoded:
        """Return the records of one batch, from its block's bytes `data`, or fetched if None."""
        start, size = batch[[kernels.POSITION, kernels.SIZE]].tolist()
        if data is None:
            first, last = batch[[kernels.BASE_OFFSET, kernels.LAST_OFFSET]].tolist()
            ranges = LogRanges.one(position, position + size, first, last + 1)
            data, start = self._fetch.chunk_of(segment, ranges).data, 0
        own = bytes(memoryview(data)[start : start + size])  # a copy releases the block's bytes
        try:
            return decode_batches(own, scan_batches(own), check_crc=False)
        except CorruptData as damage:
            raise damage.within(segment.log_key, position) from damage


def _name(segment: LogSegment, block: Block) -> tuple[str, int, int]:
    """Return the block's key in the cache, with the block's end, because a reindex may move it."""
    return segment.log_key, block.position, block.end


def _size_of(decoded: Decoded) -> int:
    headers = decoded.records.headers
    items = 0 if headers is None else len(headers.keys)
    return 2048 + 64 * len(decoded.offsets) + 24 * items + len(decoded.records.values.data)


def _outline_of(table: BatchTable) -> Int64s:
    """Return the outline of a block with these batches, without times."""
    batches = np.zeros((len(table), kernels.FIELDS), np.int64)
    for name, field in _COLUMNS.items():
        batches[:, field] = table[name]
    return np.append([len(table), kernels.FIRST + batches.size], batches)


def _batches_of(outline: Int64s) -> Int64s:
    """Return a row of fields for each batch of the outline."""
    end = kernels.FIRST + int(outline[kernels.BATCHES]) * kernels.FIELDS
    return outline[kernels.FIRST : end].reshape(-1, kernels.FIELDS)


def _with_times(outline: Int64s, place: int, chunk: Chunk) -> Int64s:
    """Return a copy of `outline` with the times of the batch whose fields begin at `place`."""
    number = (place - kernels.FIRST) // kernels.FIELDS
    batch, times = chunk.table[number : number + 1], np.empty((3, 0), np.int64)
    if not batch["attributes"][0] & CONTROL:
        for _, decoded in chunk.decode_in_parts(batch, 1):
            stamps = decoded.records.timestamps
            times = np.array([decoded.offsets, stamps, np.maximum.accumulate(stamps)])
    more = np.append(outline, times)
    more[place + kernels.TIMES], more[place + kernels.RECORDS] = len(outline), times.shape[1]
    more[kernels.USED] = len(more)
    return more
