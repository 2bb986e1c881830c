"""Read the record batches of a fetch from a log partition: whole batches, as stored.

A log is a sequence of byte ranges of its segments. The batches of most ranges are sent as stored.
Only a window has byte ranges with outside records. The batches of such a range are encoded again
without these records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from seglake.errors import CorruptData
from seglake.format.batch import OVERHEAD, BatchTable
from seglake.format.decode import Decoded, decode_batches, scan_batches
from seglake.format.encode import EncodedBatches
from seglake.format.filter import blank, filter_batches
from seglake.format.records import Flags, Int64s
from seglake.limits import INT32_MAX, INT64_MAX
from seglake.log.segment import LogSegment, Window
from seglake.serve.records.batch_ranges import BatchRange, BatchRanges, Bytes, FileSpan
from seglake.serve.turns import give_way


class ByteRange(NamedTuple):
    """Bytes [start, end) of a segment's log, with offsets first_offset to end_offset (exclusive).

    With `window`, the range may have records outside it, which are not sent.
    """

    segment: LogSegment
    start: int
    end: int
    first_offset: int
    end_offset: int
    window: Window | None = None


class FetchResult(NamedTuple):
    """The result of a fetch from one partition: bytes to be sent, and their size.

    A result without records is empty, or has batches that lost their records, or the rest of the
    batch in which the fetch begins.
    """

    parts: Sequence[Bytes] = ()
    size: int = 0
    has_records: bool = False


@dataclass
class BatchReader:
    """Reads the batches of one fetch: from offset `begin` on, below `end`, at most `limit` bytes.

    With `whole_first`, the first batch is sent whole even if it is larger than `limit`. With
    `skip_empty`, batches are skipped until one has a record. With `only_filled`, all batches
    without a record are skipped.
    """

    batch_ranges: BatchRanges
    begin: int
    end: int
    limit: int
    whole_first: bool
    skip_empty: bool = False
    only_filled: bool = False

    async def read(self, byte_ranges: Iterable[ByteRange]) -> FetchResult:
        """Return the batches. The first of `byte_ranges` has the offset `begin`.

        If no batch remains before the end, an empty batch fills the gap. Raises CorruptData if the
        first batch is damaged, StoreError, and VersionExpired.
        """
        self._offset, self._has_begun = self.begin, False
        self._parts, self._size, self._has_records = list[Bytes](), 0, False
        try:
            for byte_range in byte_ranges:
                if not await self._add(byte_range):
                    break
            else:
                self._offset = max(self._offset, self.end)
            if self._offset >= self.end:
                self._fill_gap()
        except CorruptData:
            if not self._size:
                raise
        return FetchResult(self._parts, self._size, self._has_records)

    async def _add(self, byte_range: ByteRange) -> bool:
        """Add batches of a byte range; return False if no further range is needed."""
        self._offset = max(self._offset, byte_range.first_offset)
        while self._offset < min(byte_range.end_offset, self.end):
            if self._has_begun:
                await give_way()
            self._has_begun = True
            batch_range = await self.batch_ranges.find(byte_range.segment, self._offset)
            if batch_range is None or batch_range.start >= byte_range.end:
                break
            go_on = await (
                self._filter(byte_range, batch_range)
                if byte_range.window
                else self._copy(byte_range, batch_range)
            )
            if not go_on:
                return False
        self._move_to(byte_range.end_offset)
        return self._offset < self.end

    def _move_to(self, *offsets: int) -> None:
        """Move to the smallest of these offsets. Never move back, or beyond the end."""
        self._offset = max(self._offset, min(*offsets, self.end))

    async def _copy(self, byte_range: ByteRange, batch_range: BatchRange) -> bool:
        first = self._first(batch_range)
        last = int(batch_range.positions.searchsorted(byte_range.end, "right")) - 1  # of the range
        stop = min(last, self._stop(batch_range.positions, first))
        if last <= first:  # nothing of this batch range is sent
            self._move_to(batch_range.last_offset + 1, byte_range.end_offset)
            return True
        if stop <= first:
            return False
        full, stop = stop, self._filled_until(batch_range, first, stop)
        part = await self.batch_ranges.bytes_of(byte_range.segment, batch_range, first, stop)
        self._append(part)
        begun = int(batch_range.base_offsets.searchsorted(self.begin))
        self._has_records |= bool(batch_range.filled[max(first, begun) : stop].any())
        self._offset = int(batch_range.last_offsets[stop - 1]) + 1
        return stop < full or stop == last

    def _filled_until(self, batch_range: BatchRange, first: int, stop: int) -> int:
        """Return `stop`, or the first empty batch before it if empty batches are not sent."""
        filled = batch_range.filled[first:stop]
        return first + int(filled.argmin()) if self.only_filled and not filled.all() else stop

    def _first(self, batch_range: BatchRange) -> int:
        """Return the index of the first batch to send from a batch range."""
        first = int(batch_range.last_offsets.searchsorted(self._offset))
        if not self.only_filled and (self._parts or not self.skip_empty):
            return first
        filled = batch_range.filled[first:]
        return first + int(filled.argmax()) if filled.any() else len(batch_range.filled)

    async def _filter(self, byte_range: ByteRange, batch_range: BatchRange) -> bool:
        batches = await self._within(byte_range, batch_range)
        table, lasts = batches.table, batches.table["last_offset"]
        first = int(lasts.searchsorted(self._offset))
        last = min(len(table), int(table["base_offset"].searchsorted(self.end)))
        positions = np.append(table["position"], len(batches.data))
        stop = min(last, self._stop(positions, first))
        if stop > first:
            self._append(batches.data.data[int(positions[first]) : int(positions[stop])])
            self._has_records = True
            self._offset = int(lasts[stop - 1]) + 1
        if stop < last:
            return False
        self._move_to(batch_range.last_offset + 1, byte_range.end_offset)
        return True

    async def _within(self, byte_range: ByteRange, batch_range: BatchRange) -> EncodedBatches:
        """Return the batches in both ranges, with only the records of the window."""
        key = (batch_range.key(byte_range.segment), byte_range)
        batches: EncodedBatches | None = self.batch_ranges.filtered.get(key)
        if batches is None:
            data = await self.batch_ranges.read(byte_range.segment, batch_range)
            start = max(byte_range.start, batch_range.start)
            end = min(byte_range.end, batch_range.end)
            part = data[start - batch_range.start : end - batch_range.start]
            batches = await self.batch_ranges.run(partial(records_within, part, byte_range, start))
            held_bytes = 512 + len(batches.data) + batches.table.nbytes
            self.batch_ranges.filtered.put(key, batches, held_bytes)
        return batches

    def _stop(self, positions: Int64s, first: int) -> int:
        """Return the index after the last batch that fits into the limit."""
        if first >= len(positions) - 1:
            return first
        room = int(positions[first]) + self.limit - self._size
        stop = int(positions.searchsorted(room, "right")) - 1
        return first + 1 if stop <= first and not self._size and self.whole_first else stop

    def _append(self, part: Bytes) -> None:
        size = part.size if isinstance(part, FileSpan) else len(part)
        self._size += size
        before = self._parts[-1] if self._parts else None
        if (
            isinstance(part, FileSpan)
            and isinstance(before, FileSpan)
            and before.file is part.file
            and before.start + before.size == part.start
        ):
            self._parts[-1] = before._replace(size=before.size + size)
        else:
            self._parts.append(part)

    def _fill_gap(self) -> None:
        """Add an empty batch for the offsets up to the end, if no batch has one of them."""
        has_room = self.whole_first or self.limit > OVERHEAD
        if not self._parts and self.begin < self.end and has_room:
            last = min(self.end - 1, self.begin + INT32_MAX)
            self._append(blank(self.begin, last).data.data)
            self._offset = last + 1


def decode_byte_range(
    data: memoryview, byte_range: ByteRange, start: int
) -> tuple[BatchTable, Decoded, Flags]:
    """Decode batches that begin at byte `start` of the log of a byte range.

    Returns the batches, their records, and for each record whether it is in the window.
    Raises CorruptData.
    """
    window = byte_range.window or Window()
    try:
        table = scan_batches(data)
        decoded = decode_batches(data, table, check_crc=False)
    except CorruptData as damage:
        raise damage.within(byte_range.segment.log_key, start) from damage
    times, offsets = decoded.records.timestamps, decoded.offsets
    stays = (times >= window.start_ms) & (times < window.end_ms)
    stays &= (offsets >= window.start_offset) & (offsets < window.end_offset)
    return table, decoded, stays


def records_within(data: memoryview, byte_range: ByteRange, start: int) -> EncodedBatches:
    """Return the batches in `data` with only the records of the window of `byte_range`.

    Batches without such a record may be left out.
    """
    table, decoded, stays = decode_byte_range(data, byte_range, start)
    if not stays.any():
        return EncodedBatches(np.empty(0, np.uint8), table[:0])
    end = INT64_MAX if byte_range.window is None else byte_range.window.end_offset
    return filter_batches(data, table, decoded, stays, end_offset=end)
