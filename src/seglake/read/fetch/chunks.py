"""From byte ranges of logs to checked record batches, a few MiB at a time.

Ranges are cut and joined into requests of about one size. From an object store several requests are
made ahead, each on a thread of its own, and never more bytes than the reader has memory for; from a
local disk everything is read when its turn comes. What arrives is handed on in order.

Every batch that is fetched has its CRC checked, also one whose header says that nothing in it is
wanted. Every `CorruptData` names the log and the byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from seglake.errors import CorruptData
from seglake.format.batch import LENGTH_AT, LOG_OVERHEAD, MAX_BATCH_BYTES, OVERHEAD, BatchTable
from seglake.format.decode import (
    Damage,
    Decoded,
    Within,
    check_crcs,
    decode,
    decode_batches,
    decompress_batches,
    payload_of,
    scan,
)
from seglake.format.records import Int32s, Int64s
from seglake.read.fetch.log_segment import LogSegment, Ranges
from seglake.read.fetch.threads import ahead
from seglake.read.kernels import BAD_OFFSETS, place_batches
from seglake.store import Store

FETCH_BYTES = 4 * 2**20


Keep = Callable[[BatchTable, Sequence[Any] | None], None]
"""Takes batches and their records, or None for batches of which no records are wanted."""


class Extent(Protocol):
    """Some ranges of one log."""

    @property
    def segment(self) -> LogSegment:
        """The segment whose log it is."""

    @property
    def ranges(self) -> Ranges:
        """The ranges."""


class Chunk(NamedTuple):
    """Whole record batches out of one or several ranges of one or several logs.

    `table` has their positions in `data`, and `owner_of` the extent of each. Stretch i of the data
    begins at `starts[i]`, and in the log of extent `owners[i]` at `starts[i] + shifts[i]`. The
    extents are those that `chunks` was given. The records of batches in `known`, by position, need
    not be decompressed, and may be there without their bytes; `keep` is shown those that were.
    """

    data: Any
    table: BatchTable
    owner_of: Int32s
    extents: Sequence[Any]
    owners: Int64s
    starts: Int64s
    shifts: Int64s
    known: Mapping[int, Any] = MappingProxyType({})
    keep: Keep | None = None

    @property
    def segment(self) -> LogSegment:
        """The segment, where all is of one log."""
        segment: LogSegment = self.extents[0].segment
        return segment

    def decode(self, rows: BatchTable, *, control: bool = False) -> Decoded:
        """The records of some of its batches. Raises CorruptData."""
        try:
            return decode_batches(self.data, rows, check_crc=False, control=control)
        except CorruptData as damage:
            raise self.in_file(damage) from damage

    def decode_in_parts(
        self,
        rows: BatchTable,
        limit_bytes: int,
        within: Within | None = None,
    ) -> Iterator[tuple[BatchTable, Decoded]]:
        """The records of `rows`, control batches too, some `limit_bytes` decompressed at a time.

        A part is larger only if its last batch is what makes it so. Raises CorruptData.
        """
        first = 0
        while first < len(rows):
            try:
                left = rows[first:]
                parts = decompress_batches(
                    self.data, left, enough_bytes=limit_bytes, known=self.known
                )
                part = left[: len(parts)]
                stop = first + len(parts)
                wanted = within and within._replace(window_of=within.window_of[first:stop])
                decoded = decode(part, payload_of(parts), wanted)
            except CorruptData as damage:
                raise self.in_file(damage) from damage
            if self.keep is not None:
                self.keep(part, parts)
            yield part, decoded
            first = stop

    def file_position(self, position: int) -> int:
        """The byte of its file that stands at `position` of the data."""
        return position + int(self.shifts[self._stretch_at(position)])

    def in_file(self, damage: CorruptData) -> CorruptData:
        """The same damage, its position no longer that in the data."""
        segment = self.extents[self.owners[self._stretch_at(damage.position)]].segment
        position = self.file_position(damage.position)
        return CorruptData(damage.what, file=segment.log_key, position=position)

    def _stretch_at(self, position: int) -> int:
        return int(np.searchsorted(self.starts, position, "right")) - 1


def read_chunk(store: Store, segment: LogSegment, ranges: Ranges) -> Chunk:
    """The batches in some ranges of a segment's log, all at once. Raises CorruptData."""
    starts, ends = ranges.starts.tolist(), ranges.ends.tolist()
    whole = _Request(_Extent(segment, ranges), range(len(starts)), starts, ends, ends[-1])
    chunk, _rest = _chunk_of([_fetch(store, whole)], -1)
    return chunk


def read_chunks(
    store: Store, segment: LogSegment, ranges: Ranges, *, fetch_bytes: int = FETCH_BYTES
) -> Iterator[Chunk]:
    """`chunks` of one segment's log."""
    return chunks(store, [_Extent(segment, ranges)], fetch_bytes=fetch_bytes)


def chunks(
    store: Store, extents: Iterable[Extent], *, fetch_bytes: int = FETCH_BYTES, ahead_bytes: int = 0
) -> Iterator[Chunk]:
    """The batches of the extents in their order, about `fetch_bytes` at a time.

    Small ranges share a chunk; a range larger than `fetch_bytes` is read in several. At most
    `ahead_bytes` are asked of an object store before their turn. Raises CorruptData.
    """
    held, size, least, last = list[_Fetched](), 0, fetch_bytes, -1
    extent: Extent | None = None
    for fetched in _in_order(store, _requests(extents, fetch_bytes), ahead_bytes):
        held.append(fetched)
        size += fetched.request.size
        if size >= least:
            chunk, rest = _chunk_of(held, last if held[0].request.extent is extent else -1)
            if len(chunk.table):
                extent, last = (
                    chunk.extents[chunk.owner_of[-1]],
                    int(chunk.table[-1]["last_offset"]),
                )
                yield chunk
            held, size, least = [], 0, fetch_bytes
            if rest is not None:
                held, size, least = [rest.begun], rest.begun.request.size, max(least, rest.size)
    if held:
        yield _chunk_of(held, last if held[0].request.extent is extent else -1)[0]


class _Extent(NamedTuple):
    segment: LogSegment
    ranges: Ranges


class _Request(NamedTuple):
    """Bytes [starts[i], ends[i]) of the extent's ranges `numbers`, to be fetched together.

    The last of these ranges goes on to `until` in the next request.
    """

    extent: Extent
    numbers: Sequence[int]
    starts: Sequence[int]
    ends: Sequence[int]
    until: int

    @property
    def size(self) -> int:
        return sum(self.ends) - sum(self.starts)


class _Fetched(NamedTuple):
    request: _Request
    data: Any


class _Rest(NamedTuple):
    """The beginning of a batch of `size` bytes that goes on in the next request."""

    begun: _Fetched
    size: int


def _requests(extents: Iterable[Extent], limit: int) -> Iterator[_Request]:
    """The ranges of the extents, cut and joined to requests of at most `limit` bytes."""
    for extent in extents:
        numbers, starts, ends, size = list[int](), list[int](), list[int](), 0
        ranges = zip(extent.ranges.starts.tolist(), extent.ranges.ends.tolist(), strict=True)
        for number, (start, end) in enumerate(ranges):
            at = start
            while at < end:
                stop = min(end, at + limit - size)
                numbers.append(number)
                starts.append(at)
                ends.append(stop)
                at, size = stop, size + stop - at
                if size == limit:
                    yield _Request(extent, numbers, starts, ends, end)
                    numbers, starts, ends, size = [], [], [], 0
        if starts:
            yield _Request(extent, numbers, starts, ends, ends[-1])


def _in_order(store: Store, requests: Iterable[_Request], ahead_bytes: int) -> Iterator[_Fetched]:
    """What the requests bring; of an object store those are made ahead that `ahead_bytes` hold."""
    if store.remote and ahead_bytes:
        return ahead(((each.size, partial(_fetch, store, each)) for each in requests), ahead_bytes)
    return (_fetch(store, each) for each in requests)


def _fetch(store: Store, wanted: _Request) -> _Fetched:
    key, starts, ends = wanted.extent.segment.log_key, wanted.starts, wanted.ends
    if len(starts) == 1:
        return _Fetched(wanted, store.read(key, starts[0], ends[0]))
    return _Fetched(wanted, b"".join(store.read_ranges(key, starts, ends)))


def _chunk_of(held: Sequence[_Fetched], last_offset: int) -> tuple[Chunk, _Rest | None]:
    """All whole batches of what was fetched, checked, and what is left of a batch at its end.

    Before the first one stands a batch with `last_offset`.
    """
    data = held[0].data if len(held) == 1 else b"".join([each.data for each in held])
    table, damage = scan(data)
    extents, owners, starts, shifts, lows, highs = _stretches(held)
    chunk = Chunk(data, table, np.empty(len(table), np.int32), extents, owners, starts, shifts)
    try:
        check_crcs(data, table)  # first, as a wrong length is noticed only where the batch ends
        _check_places(chunk, lows, highs, last_offset)
        return chunk, damage and _rest(chunk, held[-1].request, damage)
    except CorruptData as found:
        raise chunk.in_file(found) from found


def _stretches(
    held: Sequence[_Fetched],
) -> tuple[list[Extent], Int64s, Int64s, Int64s, Int64s, Int64s]:
    """The extents, and for each stretch of the data: extent, start, shift, range of offsets."""
    extents, at, last = list[Extent](), 0, -1
    stretches = list[tuple[int, int, int, int, int]]()
    for (extent, numbers, starts, ends, _until), _data in held:
        if not extents or extents[-1] is not extent:
            extents.append(extent)
            last = -1
        ranges, owner = extent.ranges, len(extents) - 1
        for number, start, end in zip(numbers, starts, ends, strict=True):
            if start != last:
                low, high = ranges.first_offsets[number], ranges.end_offsets[number]
                stretches.append((owner, at, start - at, int(low), int(high)))
            at, last = at + end - start, end
    owners, begins, shifts, lows, highs = np.array(stretches, np.int64).T.copy()
    return extents, owners, begins, shifts, lows, highs


def _check_places(chunk: Chunk, lows: Int64s, highs: Int64s, last_offset: int) -> None:
    # base offsets are outside the CRC
    row, problem = place_batches(
        chunk.table, chunk.starts, chunk.owners, lows, highs, last_offset, chunk.owner_of
    )
    if not problem:
        return
    batch = chunk.table[row]
    what = "a record batch goes on behind the bytes that hold it"
    if problem == BAD_OFFSETS:
        which = int(chunk.starts.searchsorted(batch["position"], "right")) - 1
        what = (
            f"offsets {batch['base_offset']} to {batch['last_offset']} cannot stand here, among "
            f"those from {max(lows[which], last_offset + 1)} to {highs[which] - 1}"
        )
    raise CorruptData(what, position=int(batch["position"]))


def _rest(chunk: Chunk, last: _Request, damage: Damage) -> _Rest:
    """What follows the last whole batch, if its range goes on; otherwise it is the damage."""
    position = damage.error.position
    start = chunk.file_position(position)
    tail = memoryview(chunk.data)[position:]
    length = int.from_bytes(tail[LENGTH_AT:LOG_OVERHEAD], "big")
    size = length + LOG_OVERHEAD if len(tail) >= LOG_OVERHEAD else 0
    goes_on = last.until > last.ends[-1] and position >= chunk.starts[-1]
    if not damage.cut_short or not goes_on or start + size > last.until:
        raise damage.error
    if size > MAX_BATCH_BYTES + OVERHEAD:
        raise CorruptData(f"a record batch of {size} bytes is not read", position=position)
    begun = _Request(last.extent, last.numbers[-1:], [start], last.ends[-1:], last.until)
    return _Rest(_Fetched(begun, tail), size)
