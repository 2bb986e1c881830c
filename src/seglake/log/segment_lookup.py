"""Look up records in one log partition: by offset, or the first record at or after a time.

The results are like Kafka's (`UnifiedLog.fetchOffsetByTimestamp`,
`LogSegment.findOffsetByTimestamp`), with one difference: Kafka stops at the first segment that may
have the record. If that segment has no such record, these lookups search the next one.
"""

from functools import lru_cache, partial

import numpy as np

from seglake.catalog.version.snapshot import PartitionView
from seglake.errors import OffsetNotFound, OffsetOutOfRange, UsageError
from seglake.format.decode import Decoded
from seglake.format.records import Int64s
from seglake.log.block_search import OffsetAndTimestamp
from seglake.log.reads import SharedReads
from seglake.log.segment import LogSegment
from seglake.log.zone_maps import Block

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
        self.segment = lru_cache(_MOST_SEGMENTS)(partial(LogSegment.of, view))
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
        """Return, for each timestamp, the first segment whose largest timestamp is not below it."""
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
        """Estimate the bytes of log of `records` records: at least the size of a few batches."""
        details = self.view.segments.details[-1:]
        count = max(1, int(details["record_count"].sum()))
        return 64 * 1024 + int(details["sizes"][:, 0].sum()) * min(records, 2**31) // count

    @property
    def _name(self) -> str:
        return f"{self.view.topic}-{self.view.partition}"
