"""Lookups in one log partition: which record is at this offset, which is the first at this time.

Kafka's meaning (`UnifiedLog.fetchOffsetByTimestamp`, `LogSegment.findOffsetByTimestamp`) with one
difference: where Kafka gives up after the first segment that looks right, these go on to the next.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from seglake.catalog.version.snapshot import PartitionView
from seglake.errors import OffsetNotFound, OffsetOutOfRange
from seglake.format.decode import Decoded
from seglake.format.records import Int64s
from seglake.limits import ALL_TIMES
from seglake.read.fetch.byte_cache import ByteCache
from seglake.read.fetch.chunks import read_chunk
from seglake.read.fetch.log_segment import LogSegment
from seglake.read.lookup.block_search import BlockSearch, OffsetAndTimestamp
from seglake.read.window.batch_cache import KeptBatches
from seglake.read.zones.maps import ZoneMaps
from seglake.read.zones.search import Block, Zones
from seglake.store import Store

CACHE_BYTES = 256 * 2**20
_SEGMENTS_HELD = 4096


class SharedReads:
    """What all reads of a lake share: its store, and a cache of zone maps and decoded batches."""

    def __init__(self, store: Store, cache_bytes: int = CACHE_BYTES) -> None:
        self.store, self.cache_bytes = store, cache_bytes
        cache = ByteCache(cache_bytes // 2)
        self.zone_maps, self.batches = ZoneMaps(store, cache), BlockSearch(store, cache)
        self.kept = KeptBatches(ByteCache(cache_bytes - cache_bytes // 2))


class PartitionReader:
    """Lookups in one log partition, in one version of the lake."""

    def __init__(self, view: PartitionView, reader: SharedReads) -> None:
        self.view, self._reader = view, reader
        self._held: dict[int, LogSegment] = {}
        self.ask, self.store, self.kept = reader.zone_maps.ask, reader.store, reader.kept
        bases, self._highs = view.segments.base_offsets, view.segments.max_timestamps
        # a first segment that lost records must not vouch for timestamps it may no longer have
        self._cut = 1 if len(bases) and bases[0] < view.log_start_offset else 0
        self._highest = (
            np.maximum.accumulate(self._highs[1:]) if self._cut else view.running_max_timestamps
        )

    def segment(self, index: int) -> LogSegment:
        """The segment at a position, counted from 0."""
        held = self._held.get(index)
        if held is None:
            if len(self._held) >= _SEGMENTS_HELD:
                self._held.pop(next(iter(self._held)), None)
            held = self._held[index] = LogSegment.of(self.view, index)
        return held

    # times

    def offset_for_time(self, timestamp: int) -> OffsetAndTimestamp | None:
        """The first record in offset order at `timestamp` (ms, not negative) or later, if any."""
        if self._cut and self._highs[0] >= timestamp:
            found = self._first_in(0, timestamp)
            if found is not None:
                return found
        index = self._cut + int(self._highest.searchsorted(timestamp))
        while index < len(self._highs):
            found = self._first_in(index, timestamp)
            if found is not None:
                return found
            later = np.flatnonzero(self._highs[index + 1 :] >= timestamp)
            index = index + 1 + int(later[0]) if len(later) else len(self._highs)
        return None

    def segments_reaching(self, timestamps: Int64s) -> Int64s:
        """For each of the timestamps the first segment that promises one at or above it."""
        indexes = self._cut + self._highest.searchsorted(timestamps)
        return np.where(timestamps <= self._highs[0], 0, indexes) if self._cut else indexes

    def _first_in(self, index: int, timestamp: int) -> OffsetAndTimestamp | None:
        segment, start = self.segment(index), self.view.log_start_offset
        for block in self._blocks_reaching(segment, timestamp, start):
            found = self._reader.batches.first_reaching(segment, block, timestamp, start)
            if found is not None:
                return found
        return None

    def _blocks_reaching(self, segment: LogSegment, timestamp: int, start: int) -> Iterator[Block]:
        ask, after = self.ask, -1
        if segment.base_offset < start:
            first = ask(segment, Zones.block_at, start)
            if first is not None:
                yield first
                after = first.number
        while (block := ask(segment, Zones.next_reaching, timestamp, after)) is not None:
            yield block
            after = block.number

    def max_timestamp(self) -> OffsetAndTimestamp | None:
        """The first record with the largest timestamp (KIP-734); None without timestamps."""
        low, high, newest = -1, int(self._highs.max(initial=-1)), None
        middle = high  # which is it, unless the segments promise what was deleted since
        while low < high:
            found = self.offset_for_time(middle)
            if found is None:
                high = middle - 1
            else:
                low, newest = found.timestamp, found
            middle = (low + high + 1) // 2
        return newest

    def unread_since(self, offset: int) -> int:
        """A time that no record at `offset` or above lies before; just after all if there is none.

        Negative if a record without a timestamp may be among them.
        """
        offset = max(offset, self.view.log_start_offset)
        newest = self.max_timestamp()
        after = newest.timestamp + 1 if newest else 0
        if offset >= self.view.end_offset or not len(self._highs):
            return after
        index = self.view.index_of(offset)
        segment = self.segment(index)
        blocks = self.ask(segment, Zones.select, *ALL_TIMES, offset, segment.end_offset)
        lows = self.view.segments.min_timestamps[index + 1 :], blocks.min_timestamps[1:]
        unread = np.concatenate([*lows, self._timestamps_since(segment, offset)])
        return int(unread.min(initial=after))

    def offset_from(self, time: int) -> int:
        """From which offset on all records at `time` or later stand; the end if there is none."""
        if time < 0:
            return self.view.log_start_offset
        found = self.offset_for_time(time)
        return self.view.end_offset if found is None else found.offset

    def _timestamps_since(self, segment: LogSegment, offset: int) -> Int64s:
        """The timestamps in the block of `offset`, from `offset` on."""
        block = self.ask(segment, Zones.block_at, offset)
        if block is None:
            return np.empty(0, np.int64)
        chunk = read_chunk(self.store, segment, block.ranges)
        decoded = chunk.decode(chunk.table)
        return decoded.records.timestamps[decoded.offsets >= offset]

    # offsets

    def batch_at(self, offset: int) -> tuple[Decoded, int]:
        """The batch that holds the record at `offset`, and the record's row in it.

        Raises OffsetOutOfRange below the log start and at or above the end, OffsetNotFound in a
        gap.
        """
        self.require(offset, self.view.end_offset - 1)
        segment = self.segment(self.view.index_of(offset))
        block = self.ask(segment, Zones.block_at, offset)
        batch = self._reader.batches.batch_of(segment, block, offset) if block else None
        row = int(batch.offsets.searchsorted(offset)) if batch else 0
        if batch is None or row == len(batch.offsets) or batch.offsets[row] != offset:
            raise self.not_found(offset)
        return batch, row

    def not_found(self, offset: int) -> OffsetNotFound:
        """The error for an offset in a gap."""
        return OffsetNotFound(f"{self._name} has no record at offset {offset}, which lies in a gap")

    def require(self, offset: int, last: int) -> None:
        """Raise OffsetOutOfRange unless log start <= offset <= last."""
        start = self.view.log_start_offset
        if not start <= offset <= last:
            raise OffsetOutOfRange(
                f"{self._name} has no offset {offset}: its log starts at {start} "
                f"and ends before {self.view.end_offset}"
            )

    def bytes_of(self, records: int) -> int:
        """About how many bytes of the log so many records take, and not less than a few batches."""
        details = self.view.segments.details[-1:]
        count = max(1, int(details["record_count"].sum()))
        return 64 * 1024 + int(details["sizes"][:, 0].sum()) * min(records, 2**31) // count

    @property
    def _name(self) -> str:
        return f"{self.view.topic}-{self.view.partition}"
