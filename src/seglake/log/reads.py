"""Share the store and the caches among all reads of a lake, and look up records.

A lookup in one log partition is by offset, or for the first record at or after a time.
Results are like Kafka's (`UnifiedLog.fetchOffsetByTimestamp`, `LogSegment.findOffsetByTimestamp`),
with one difference: Kafka stops at the first segment that may have the record. If that segment has
no such record, these lookups search the next one.

`BlockSearch` finds the record in one index block, the last step of a lookup, through a cache. The
cache has the batch headers of a block. It has the offsets and timestamps of a batch if a lookup by
time searched the batch. It has the keys and values of a batch if a record of the batch was read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from seglake.catalog.deletions import DeletionMonitor
from seglake.catalog.version.snapshot import PartitionView
from seglake.compile.fallback import load
from seglake.errors import CorruptData, OffsetNotFound, OffsetOutOfRange, UsageError
from seglake.format.batch import CONTROL, BatchTable
from seglake.format.codecs import native
from seglake.format.decode import Decoded, decode_batches, scan_batches
from seglake.format.records import Bytes, Int64s, read_only
from seglake.log import block_kernels as kernels
from seglake.log.caches import ByteCache
from seglake.log.execute import take_spare
from seglake.log.fetch import Chunk, ExplainMissing, LogFetch
from seglake.log.key_indexes import KeyIndexes
from seglake.log.record_cache import CachedFetch, RecordCache
from seglake.log.segment import LogSegment
from seglake.log.zone_maps import Block, ZoneMapCache
from seglake.store import Store, close_unused_files

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
        """Read and search a block. Return its outline (see `block_kernels`), and the answer."""
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
        chunk = self._fetch.chunk_of(block.as_piece(segment))
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
            outline = self._outline_in(segment, block, read_only(data))
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

    def _outline_in(self, segment: LogSegment, block: Block, data: Bytes) -> Int64s:
        """Return the outline of a block with these bytes, without times."""
        room = take_spare(_SPARE_ROOMS) or kernels.LookupRoom.new()
        addresses = native.addresses()
        if kernels.put_outline(data, block.first_offset, block.end_offset, addresses, room.outline):
            outline = room.outline[: room.outline[kernels.USED]].copy()
            _SPARE_ROOMS.append(room)
            return outline
        return _outline_of(self._fetch.chunk_of(block.as_piece(segment)).table)

    def _records(self, segment: LogSegment, batch: Int64s, position: int, data: Any) -> Decoded:
        """Decode one batch. `data` are the bytes of its block, or None to fetch the batch."""
        start, size = batch[[kernels.POSITION, kernels.SIZE]].tolist()
        if data is None:
            first, last = batch[[kernels.BASE_OFFSET, kernels.LAST_OFFSET]].tolist()
            piece = segment.part(position, position + size, first, last + 1)
            data, start = self._fetch.chunk_of(piece).data, 0
        own = bytes(memoryview(data)[start : start + size])  # a copy releases the block's bytes
        try:
            return decode_batches(own, scan_batches(own), check_crc=False)
        except CorruptData as damage:
            raise damage.within(segment.log_key, position) from damage


def _name(segment: LogSegment, block: Block) -> tuple[str, int, int]:
    """Return the cache key of a block. It contains the block's end, which a reindex may move."""
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


_MOST_SEGMENTS = 4096  # segments that a reader caches


class PartitionReader:
    """Lookups in one log partition, in one version of the lake."""

    def __init__(self, view: PartitionView, reads: SharedReads) -> None:
        self.view, self.store, self._blocks = view, reads.store, reads.blocks
        self.fetch, self.cached_fetch, self.zones = (
            reads.fetch, reads.cached_fetch, reads.zone_maps.open,
        )  # fmt: skip
        self.key_index = reads.key_indexes.open
        # Return the segment at a position, counted from 0.
        self.segment = lru_cache(_MOST_SEGMENTS)(partial(LogSegment.from_view, view))
        bases, self._highs = view.segments.base_offsets, view.segments.max_timestamps
        # If records of the first segment were deleted, its largest timestamp may be gone.
        self._cut = 1 if len(bases) and bases[0] < view.log_start_offset else 0
        self._highest = (
            np.maximum.accumulate(self._highs[1:]) if self._cut else view.running_max_timestamps
        )

    # times

    def offset_for_time(self, timestamp: int) -> OffsetAndTimestamp | None:
        """Return the first record by offset at or after `timestamp` (ms, not negative), or None."""
        if self._cut and self._highs[0] >= timestamp:
            record = self._first_in(0, timestamp)
            if record is not None:
                return record
        index = self._cut + int(self._highest.searchsorted(timestamp))
        while index < len(self._highs):
            record = self._first_in(index, timestamp)
            if record is not None:
                return record
            later = np.flatnonzero(self._highs[index + 1 :] >= timestamp)
            index = index + 1 + int(later[0]) if len(later) else len(self._highs)
        return None

    def segments_reaching(self, timestamps: Int64s) -> Int64s:
        """Return, for each timestamp, the first segment with an equal or larger timestamp."""
        indexes = self._cut + self._highest.searchsorted(timestamps)
        return np.where(timestamps <= self._highs[0], 0, indexes) if self._cut else indexes

    def _first_in(self, index: int, timestamp: int) -> OffsetAndTimestamp | None:
        segment, start = self.segment(index), self.view.log_start_offset
        block: Block | None = None
        if segment.base_offset < start:  # the log starts in this block, or after it
            block = self.zones(segment).block_at(start)
        block = block or self.zones(segment).next_reaching(timestamp)
        while block is not None:
            record = self._blocks.first_reaching(segment, block, timestamp, start)
            if record is not None:
                return record
            block = self.zones(segment).next_reaching(timestamp, block.end)
        return None

    def max_timestamp(self) -> OffsetAndTimestamp | None:
        """Return the first record with the largest timestamp (KIP-734), or None."""
        low, high, newest = -1, int(self._highs.max(initial=-1)), None
        middle = high  # the result, unless the record with this timestamp was deleted
        while low < high:
            record = self.offset_for_time(middle)
            if record is None:
                high = middle - 1
            else:
                low, newest = record.timestamp, record
            middle = (low + high + 1) // 2
        return newest

    # offsets

    def batch_at(self, offset: int) -> tuple[Decoded, int]:
        """Return the batch that contains the record at `offset`, and the record's row in the batch.

        Raises OffsetOutOfRange below the log start and at or above the end, OffsetNotFound in a
        gap.
        """
        self.require(offset, self.view.end_offset - 1)
        segment = self.segment(self.view.index_of(offset))
        block = self.zones(segment).block_at(offset)
        batch = self._blocks.batch_of(segment, block, offset) if block else None
        row = int(batch.offsets.searchsorted(offset)) if batch else 0
        if batch is None or row == len(batch.offsets) or batch.offsets[row] != offset:
            raise self.not_found(offset)
        return batch, row

    def not_found(self, offset: int) -> OffsetNotFound:
        """Return the error for an offset in a gap."""
        return OffsetNotFound(
            f"{self._name} has no record at offset {offset}: compaction, a "
            f"transaction or an undo left a gap there"
        )

    def require(self, offset: int, last: int) -> None:
        """Raise OffsetOutOfRange unless log start <= offset <= last.

        Raise UsageError if the offset is not an integer.
        """
        if not isinstance(offset, int | np.integer):
            raise UsageError(f"{offset!r} is not an offset. Write a number, without quotes")
        start = self.view.log_start_offset
        if not start <= offset <= last:
            raise OffsetOutOfRange(
                f"{self._name} has no offset {offset}. Its log starts at {start} and ends before "
                f"{self.view.end_offset}"
            )

    def bytes_of(self, records: int) -> int:
        """Estimate how many bytes of log `records` records take, at least a few batches."""
        details = self.view.segments.details[-1:]
        count = max(1, int(details["record_count"].sum()))
        return 64 * 1024 + int(details["sizes"][:, 0].sum()) * min(records, 2**31) // count

    @property
    def _name(self) -> str:
        return f"{self.view.topic}-{self.view.partition}"


CACHE_BYTES = 256 * 2**20


class SharedReads:
    """A lake's store, and caches of at most `cache_bytes`.

    Half of the bytes are for zone maps, key indexes and the batches of lookups, the other half for
    the batches of windows. `fetch` gets batches from logs; `cached_fetch` gets them through the
    cache of windows. `missing` returns why a log does not exist, see `LogFetch`. `deletions`
    empties the caches when logs were deleted.
    """

    def __init__(
        self, store: Store, cache_bytes: int = CACHE_BYTES, missing: ExplainMissing | None = None
    ) -> None:
        self.store, self.cache_bytes = store, cache_bytes
        cache = ByteCache(cache_bytes // 2)
        self.fetch = LogFetch(store, missing)
        self.deletions = DeletionMonitor(store, self.forget)
        records = RecordCache(cache_bytes - cache_bytes // 2)
        self.cached_fetch = CachedFetch(self.fetch, records, self.deletions.check_if_due)
        self.zone_maps = ZoneMapCache(store, cache, self.fetch)
        self.key_indexes = KeyIndexes(store, cache)
        self.blocks = BlockSearch(self.fetch, cache)
        self._cache, self.forgotten = cache, 0  # `forgotten` counts the calls of `forget`

    def forget(self) -> None:
        """Close all open files and empty all caches, because logs may have been deleted."""
        self.forgotten += 1
        close_unused_files(self.store)
        self.fetch.forget()
        self._cache.clear()
        self.cached_fetch.cache.clear()
