"""The last step of a lookup: from one index block to one record, through a cache.

The cache has the offsets and timestamps of batches that lookups by time searched, and the keys and
values only of batches from which a record was read.
"""

from bisect import bisect_left
from itertools import accumulate
from typing import Any, NamedTuple

from seglake.errors import CorruptData, StoreError
from seglake.format.decode import (
    Decoded,
    Head,
    decode_batches,
    decode_times,
    intact_heads,
    scan_batches,
)
from seglake.format.records import Int64s
from seglake.read.fetch.byte_cache import ByteCache
from seglake.read.fetch.log_fetch import LogFetch
from seglake.read.fetch.log_segment import LogRanges, LogSegment
from seglake.read.zones.search import Block


class OffsetAndTimestamp(NamedTuple):
    """The answer of a lookup by time: a record's offset, and its timestamp in ms."""

    offset: int
    timestamp: int


class _Times(NamedTuple):
    """The records of one batch."""

    offsets: Int64s
    timestamps: Int64s
    highest: Int64s  # running maximum of the timestamps


class _Batches:
    """The batches of one index block, and the times of those that were searched."""

    __slots__ = ("heads", "highest", "last_offsets", "position", "size", "times")

    def __init__(self, position: int, heads: list[Head]) -> None:
        self.position, self.heads = position, heads
        self.last_offsets = [head.last_offset for head in heads]
        self.highest = list(accumulate((head.max_timestamp for head in heads), max))
        self.times: list[_Times | None] = [None] * len(heads)
        self.size = 1024 + 512 * len(heads)

    def next_reaching(self, timestamp: int, row: int) -> int:
        """The first batch behind `row` that reaches `timestamp`; if none does, their count."""
        behind = range(row + 1, len(self.heads))
        rows = (row for row in behind if self.heads[row].max_timestamp >= timestamp)
        return next(rows, len(self.heads))


class BlockSearch:
    """Searches index blocks of a lake's logs. Every method raises CorruptData and StoreError."""

    def __init__(self, fetch: LogFetch, cache: ByteCache) -> None:
        self._fetch, self._cache = fetch, cache

    def first_reaching(
        self, segment: LogSegment, block: Block, timestamp: int, from_offset: int
    ) -> OffsetAndTimestamp | None:
        """The block's first record at `timestamp` or later with an offset >= `from_offset`."""
        batches, data = self._open(segment, block)
        size = batches.size if data is None else 0
        row, found = bisect_left(batches.highest, timestamp), None
        while row < len(batches.heads):
            times = batches.times[row]
            if times is None:
                times = batches.times[row] = self._times(segment, batches, row, data)
                batches.size += 512 + 24 * len(times.offsets)
            found = _first(times, timestamp, from_offset)
            if found is not None:
                break
            row = batches.next_reaching(timestamp, row)
        if batches.size != size:
            self._cache.put(_name(segment, block), batches, batches.size)
        return found

    def batch_of(self, segment: LogSegment, block: Block, offset: int) -> Decoded | None:
        """The block's first batch that ends at `offset` or above, or None."""
        batches, data = self._open(segment, block)
        if data is not None:
            self._cache.put(_name(segment, block), batches, batches.size)
        row = bisect_left(batches.last_offsets, offset)
        if row == len(batches.heads):
            return None
        key = (segment.log_key, batches.position + batches.heads[row].position, "records")
        decoded: Decoded | None = self._cache.get(key)
        if decoded is None:
            decoded = self._records(segment, batches, row, data)
            self._cache.put(key, decoded, _size_of(decoded))
        return decoded

    def _open(self, segment: LogSegment, block: Block) -> tuple[_Batches, Any]:
        """The batches of the block, and its bytes if they had to be read."""
        batches: _Batches | None = self._cache.get(_name(segment, block))
        if batches is not None:
            return batches, None
        (data,) = self._fetch.read(segment, [block.position], [block.end])
        heads = intact_heads(data)
        if heads is None or not _ascend(heads, block):
            self._fetch.chunk_of(segment, block.ranges)  # raises the damage and its position
            raise StoreError(f"{segment.log_key}: two reads of the same bytes differ")
        return _Batches(block.position, heads), data

    def _times(self, segment: LogSegment, batches: _Batches, row: int, data: Any) -> _Times:
        head, batch = batches.heads[row], self._bytes_of(segment, batches, row, data)
        try:
            return _Times(*decode_times(batch, head._replace(position=0)))
        except CorruptData as damage:
            raise damage.within(segment.log_key, batches.position + head.position) from damage

    def _records(self, segment: LogSegment, batches: _Batches, row: int, data: Any) -> Decoded:
        batch = bytes(self._bytes_of(segment, batches, row, data))  # of the block, no more
        try:
            return decode_batches(batch, scan_batches(batch), check_crc=False)
        except CorruptData as damage:
            start = batches.position + batches.heads[row].position
            raise damage.within(segment.log_key, start) from damage

    def _bytes_of(self, segment: LogSegment, batches: _Batches, row: int, data: Any) -> Any:
        """The bytes of one batch, from those of its block or else fetched again."""
        head = batches.heads[row]
        if data is not None:
            return memoryview(data)[head.position : head.position + head.size]
        start = batches.position + head.position
        ranges = LogRanges.one(start, start + head.size, head.base_offset, head.last_offset + 1)
        return self._fetch.chunk_of(segment, ranges).data


def _name(segment: LogSegment, block: Block) -> tuple[str, int, int]:
    """The block's key in the cache, with its end: a re-index may move that in the same log."""
    return segment.log_key, block.position, block.end


def _size_of(decoded: Decoded) -> int:
    headers = decoded.records.headers
    items = 0 if headers is None else len(headers.keys)
    return 1024 + 64 * len(decoded.offsets) + 24 * items + len(decoded.records.values.data)


def _ascend(heads: list[Head], block: Block) -> bool:
    """Whether the offsets of the batches ascend, and are those of the block."""
    last = block.first_offset - 1
    for head in heads:
        if head.base_offset <= last:
            return False
        last = head.last_offset
    return last < block.end_offset


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
