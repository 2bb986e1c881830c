"""Search the zone map of one segment: which blocks can contain an offset, a time or a window."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.compile.locks import fork_safe_lock
from seglake.errors import CorruptData, MissingObject, StoreError
from seglake.format import zonemap
from seglake.format.batch import TABLE
from seglake.format.decode import with_extremes
from seglake.format.index import IndexPolicy
from seglake.format.records import Flags, Int64s, end_to_end, fixed, join_tables
from seglake.format.segment import choose_indexed
from seglake.limits import INT64_MAX
from seglake.log.caches import ByteCache
from seglake.log.fetch import LogFetch
from seglake.log.segment import LogSegment, Piece, Window, window_limits
from seglake.log.zone_kernels import (
    HIGH,
    LOW,
    NOT_LOADED,
    OFFSET,
    OFFSET_END,
    PAGE_END,
    PAGE_ROWS,
    Zones,
    block_before,
    blocks_within,
    meeting,
    next_block,
)
from seglake.store import Store

NO_WINDOWS = np.empty((2, 0), np.int64)
"""Windows of time as kernels take them: window i has timestamps windows[0, i] to windows[1, i].

Both are inclusive, in ms. The windows ascend, and neither overlap nor touch. Without a window, all
timestamps are wanted.
"""


def meet(
    window: Window, windows: Int64s, lows: Int64s, highs: Int64s, firsts: Int64s, ends: Int64s,
    base: int = 0,
) -> Int64s:  # fmt: skip
    """Return the items that can contain a wanted record, and if all their records are wanted.

    A record is wanted if it is in `window` and in one of `windows`, see `NO_WINDOWS`. Item i has
    timestamps lows[i] to highs[i] (inclusive), and offsets base + firsts[i] to base + ends[i]
    (exclusive). The result has two rows: the numbers of the items, and 1 if all records of an item
    are wanted, else 0.
    """
    rows = np.empty((2, len(lows)), np.int64)
    count = meeting(lows, highs, firsts, ends, base, window_limits(window), windows, rows)
    return rows[:, :count]


def union(starts: Int64s, lasts: Int64s) -> Int64s:
    """Return the windows that the intervals starts[i] to lasts[i] cover together.

    Starts and lasts must ascend; starts are not negative, and no interval is empty.
    """
    begins = np.append(True, starts[1:] - 1 > lasts[:-1])[: len(starts)]
    finishes = np.append(begins[1:], True)[: len(starts)]
    return np.array([starts[begins], lasts[finishes]])


_ALL_BLOCKS = fixed(np.empty(0, np.bool_))
_RANGES = 64  # ranges of one segment for which there is space at first
_OWN_BYTES = 3000  # memory of a zone map's objects, without its arrays

ReadRanges = Callable[[Sequence[tuple[int, int]]], list[Any]]
Marked = Callable[[int, int, int], Flags | None]


class Block(NamedTuple):
    """An index block: its number, bytes [position, end), offsets [first_offset, end_offset)."""

    number: int
    position: int
    end: int
    first_offset: int
    end_offset: int

    def as_piece(self, segment: LogSegment) -> Piece:
        """Return the block as a piece of its segment."""
        return segment.part(*self[1:])


class Blocks(NamedTuple):
    """Blocks in order. Block i has offsets first_offsets[i] to end_offsets[i], exclusive."""

    positions: Int64s
    ends: Int64s
    first_offsets: Int64s
    end_offsets: Int64s
    min_timestamps: Int64s
    max_timestamps: Int64s

    def __len__(self) -> int:
        return len(self.positions)

    def take(self, rows: npt.NDArray[Any]) -> Blocks:
        """Return the blocks at the positions `rows`, or where the mask `rows` is true."""
        return Blocks(*(column[rows] for column in self))

    def as_piece(self, segment: LogSegment, window: Window) -> Piece:
        """Return the blocks as a piece of their segment, limited to the records in `window`."""
        records = int((self.end_offsets - self.first_offsets).sum())
        starts, ends, firsts, stops, _, _ = self
        return Piece(segment, window, starts, ends, firsts, stops, records).joined()


class _State(NamedTuple):
    """A zone map: its entries and pages in memory, and a function that reads the rest of its file.

    Rows of `zones.entries` after the first `used` ones are free.
    """

    zones: Zones
    fences: zonemap.Fences
    read: ReadRanges
    used: int


class ZoneSearch:
    """The zone map of `segment`. It reads the entries that a lookup needs, and keeps them.

    Entries are read in pages of one fence each. If the file is missing or damaged, the object
    rebuilds the zone map from the log. Its blocks then differ, but the results do not. Safe for
    threads: two threads may load a page at the same time, with the same result. Methods raise
    CorruptData and StoreError.
    """

    def __init__(self, segment: LogSegment, source: ZoneMapCache) -> None:
        self._segment, self._source = segment, source
        self._lock = fork_safe_lock()
        self.as_written = True  # False if rebuilt: then the blocks may differ from the file
        try:
            self._state = self._opened(*source.head(segment))
        except (CorruptData, MissingObject) as damage:
            self._remake(damage)

    def _opened(self, head: Any, read: ReadRanges | None) -> _State:
        fences = zonemap.decode_fences(head)
        if fences.log_bytes != self._segment.log_bytes:
            raise CorruptData(f"the zone map describes a log of {fences.log_bytes} bytes")
        if read and fences.size_bytes != self._segment.zonemap_bytes:  # before memory is reserved
            raise CorruptData(f"the zone map should have {self._segment.zonemap_bytes} bytes")
        end_offset = self._segment.end_offset - self._segment.base_offset
        zones = Zones(
            np.empty(0, zonemap.ENTRY), fixed(_pages_of(fences, end_offset)),
            np.full(len(fences.rows), -1), fences.block_count, fences.fence_span,
            self._segment.base_offset,
        )  # fmt: skip
        state = _State(zones, fences, read or _ranges_of(head), 0)
        if read is None:
            state = _with_pages(state, _read(state, np.arange(len(fences.rows))))
            fences = replace(fences, rows=fences.rows.copy())  # the others are a view of `head`
            state = state._replace(read=_nothing_left, fences=fences)
        self.size_bytes = _size(state)
        return state

    def _remake(self, damage: Exception) -> None:
        self._state = self._opened(self._source.remake(self._segment, damage), None)
        self.as_written = False

    # blocks

    def block_at(self, offset: int) -> Block | None:
        """Return the last block that begins at or before `offset`, else the first block or None."""
        return self._block(block_before, offset)

    def next_reaching(self, timestamp: int, after: int = 0) -> Block | None:
        """Return the first block with max timestamp >= `timestamp` that ends above byte `after`.

        `after` is a byte and not a block number, because a rebuilt zone map numbers other blocks.
        """
        return self._block(next_block, after, timestamp)

    def _block(self, kernel: Callable[..., tuple[int, ...]], *arguments: int) -> Block | None:
        while (found := kernel(self._state.zones, *arguments))[0] == NOT_LOADED:
            self._load(np.array([found[1]]))
        return None if found[0] < 0 else Block(*found)

    # many blocks

    def within(
        self, window: Window, windows: Int64s = NO_WINDOWS, *, marks: Flags = _ALL_BLOCKS,
        most_bytes: int = INT64_MAX, most_records: int = INT64_MAX,
    ) -> Piece:  # fmt: skip
        """Return the blocks that can contain a record that is wanted, see `meet`.

        Adjacent blocks become one range of at most `most_bytes`, or of one block. `records_at_most`
        of the piece counts the offsets in `window`, up to `most_records`. For `marks` see `among`.
        The piece is empty if `marks` is of another number of blocks.
        """
        width, limits = _RANGES, window_limits(window)
        while True:
            ranges = np.empty((4, width), np.int64)
            count, records = blocks_within(
                self._state.zones, limits, windows, marks, most_bytes, ranges
            )
            if records == NOT_LOADED:
                self._load(ranges[0, :count].copy())
            elif count > width:
                width = count
            else:
                starts, ends, firsts, stops = ranges[:, :count].copy()
                records = min(records, most_records)
                return Piece(self._segment, window, starts, ends, firsts, stops, records)

    def among(
        self, marked: Marked, window: Window, windows: Int64s, most_records: int, *, joined: bool
    ) -> Piece | None:
        """Return the marked blocks that can contain a wanted record, see `within`.

        `marked(count, first, stop)` returns which of `count` blocks from `first` to `stop`
        (exclusive) are marked. Its values for other blocks are ignored. Returns None if `marked`
        returns None, or if the zone map was rebuilt, because it then has other blocks. If `joined`,
        adjacent blocks become one range.
        """
        pages, span = self._state.zones.pages, self._state.fences.fence_span
        numbers, _ = meet(
            window, windows, pages[LOW], pages[HIGH], pages[OFFSET], pages[OFFSET_END],
            self._state.zones.base,
        )  # fmt: skip
        if not len(numbers):
            return self._segment.whole(window).take(slice(0))
        blocks = self._state.fences.block_count
        first, stop = int(numbers[0]) * span, min((int(numbers[-1]) + 1) * span, blocks)
        marks = marked(blocks, first, stop) if self.as_written else None
        if marks is None:
            return None
        most_bytes = INT64_MAX if joined else 0
        found = self.within(
            window, windows, marks=fixed(marks), most_bytes=most_bytes, most_records=most_records
        )
        return found if self.as_written else None

    def reaching(self, timestamps: Int64s) -> tuple[Blocks, Int64s]:
        """Return candidate blocks, and the first block that reaches each ascending timestamp.

        A block is given by its position in the returned blocks. If no block reaches the timestamp,
        the position is the number of blocks.
        """

        def pages(zones: Zones) -> Int64s:
            highs = np.maximum.accumulate(zones.pages[HIGH])
            numbers = distinct(highs.searchsorted(timestamps))
            return numbers[numbers < len(highs)]

        _, blocks = self._blocks(pages)
        return blocks, np.maximum.accumulate(blocks.max_timestamps).searchsorted(timestamps)

    def holding(self, offsets: Int64s) -> tuple[Blocks, Int64s]:
        """Return candidate blocks, and the last block that begins at or before each offset.

        Offsets ascend. A block is given by its position in the returned blocks, or -1 if there is
        no such block.
        """

        def pages(zones: Zones) -> Int64s:
            firsts = zones.pages[OFFSET] + zones.base
            numbers = distinct(firsts.searchsorted(offsets, "right") - 1)
            return numbers[numbers >= 0]

        _, blocks = self._blocks(pages)
        return blocks, blocks.first_offsets.searchsorted(offsets, "right") - 1

    def times(self) -> tuple[Int64s, Int64s, Int64s]:
        """Return, for each block, the number of offsets, the smallest and the largest timestamp."""
        _, blocks = self._blocks(lambda zones: np.arange(len(zones.rows)))
        counts = blocks.end_offsets - blocks.first_offsets
        return counts, blocks.min_timestamps, blocks.max_timestamps

    def min_timestamps_after(self, position: int, *, dated: bool = False) -> Int64s:
        """Return lower bounds of the timestamps of the blocks that end above byte `position`.

        One bound may cover many blocks. `dated` asserts that every record of the segment has a
        timestamp. Then a block with the timestamp -1 has no records, and is left out.
        """

        def first_page(zones: Zones) -> int:
            return int(zones.pages[PAGE_END].searchsorted(position, "right"))

        def pages(zones: Zones) -> Int64s:
            others = np.arange(first_page(zones), len(zones.rows))
            return (
                others[:1]
                if not dated
                else others[(others == others[:1]) | (zones.pages[LOW, others] < 0)]
            )

        zones, blocks = self._blocks(pages)
        own = blocks.min_timestamps[blocks.ends > position]
        lows = np.append(own, zones.pages[LOW, first_page(zones) + 1 :])
        return lows[lows >= 0] if dated else lows

    def _blocks(self, pages: Callable[[Zones], Int64s]) -> tuple[Zones, Blocks]:
        """Load the pages that `pages` selects. Return the zone map and all blocks of these pages.

        `pages` is called again if the zone map was rebuilt, because its pages differ.
        """
        while True:
            zones = self._state.zones
            numbers = pages(zones)
            missing = numbers[zones.rows[numbers] < 0]
            if not len(missing):
                return zones, _columns(zones, numbers)
            self._load(missing)

    # pages

    def _load(self, numbers: Int64s) -> None:
        """Load the pages with these ascending numbers. If one is damaged, rebuild the map."""
        state = self._state
        try:
            pages = _read(state, numbers)
        except (CorruptData, MissingObject) as damage:
            self._remake(damage)
        else:
            with self._lock:
                if self._state.fences is state.fences:  # no other thread rebuilt it
                    self._state = _with_pages(self._state, pages)
                    self.size_bytes = _size(self._state)
        self._source.grown(self._segment, self)


_Pages = list[tuple[int, npt.NDArray[np.void]]]  # the number of the first page, the blocks


def _read(state: _State, numbers: Int64s) -> _Pages:
    """Read pages. Adjacent pages are read together."""
    groups = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    edges = [(int(group[0]), int(group[-1])) for group in groups if len(group)]
    found = state.read([state.fences.entries_range(*edge) for edge in edges]) if edges else []
    return [
        (edge[0], zonemap.checked_entries(data, state.fences, *edge))
        for edge, data in zip(edges, found, strict=True)
    ]


def _with_pages(state: _State, pages: _Pages) -> _State:
    """Return a state with more pages. Kernels may still use the old state, so keep its rows."""
    zones, used = state.zones, state.used
    need = used + sum(len(blocks) for _, blocks in pages)
    entries, rows = zones.entries, zones.rows.copy()
    if need > len(entries):
        room = need if not used else min(max(need, 2 * used), max(need, zones.blocks))
        entries = np.concatenate([entries[:used], np.empty(room - used, zonemap.ENTRY)])
    for first, blocks in pages:
        entries[used : used + len(blocks)] = blocks
        last = first - (-len(blocks) // zones.span)
        rows[first:last] = used + zones.span * np.arange(last - first)
        used += len(blocks)
    return state._replace(zones=zones._replace(entries=entries, rows=rows), used=used)


def _size(state: _State) -> int:
    """Return the bytes that a zone map takes in memory."""
    zones = state.zones
    return _OWN_BYTES + zones.entries.nbytes + zones.pages.nbytes + 40 * len(zones.rows)


def _columns(zones: Zones, pages: Int64s) -> Blocks:
    """Return the blocks of these ascending pages, which must be loaded."""
    lengths = np.minimum(zones.span, zones.blocks - pages * zones.span)
    stops = lengths.cumsum()
    entries = zones.entries[
        np.arange(lengths.sum()) + np.repeat(zones.rows[pages] - stops + lengths, lengths)
    ]
    positions, firsts, lows, highs = (entries[name].astype(np.int64) for name in _NAMES)
    ends, end_offsets = np.append(positions[1:], 0), np.append(firsts[1:], 0)
    ends, end_offsets = ends[: len(entries)], end_offsets[: len(entries)]
    ends[stops - 1], end_offsets[stops - 1] = (
        zones.pages[PAGE_END, pages],
        zones.pages[OFFSET_END, pages],
    )
    return Blocks(positions, ends, firsts + zones.base, end_offsets + zones.base, lows, highs)


_NAMES = "position", "relative_offset", "min_timestamp", "max_timestamp"


def _nothing_left(_ranges: Sequence[tuple[int, int]]) -> list[Any]:
    raise AssertionError("every page is loaded")


def _ranges_of(head: Any) -> ReadRanges:
    view = memoryview(head).cast("B")
    return lambda ranges: [view[start:end] for start, end in ranges]


def _pages_of(fences: zonemap.Fences, end_offset: int) -> Int64s:
    """Return the pages in the form that kernels take.

    The last page ends at `end_offset`, relative to the base offset.
    """
    pages = np.zeros((PAGE_ROWS, len(fences.rows)), np.int64)
    pages[OFFSET], pages[PAGE_END] = fences.rows["relative_offset"], fences.log_bytes
    pages[OFFSET_END, :-1], pages[OFFSET_END, -1:] = pages[OFFSET, 1:], end_offset
    pages[LOW], pages[HIGH] = fences.rows["min_timestamp"], fences.rows["max_timestamp"]
    pages[PAGE_END, :-1] = fences.rows["position"][1:]
    return pages


def distinct(ascending: Int64s) -> Int64s:
    """Return each value once. Faster than `np.unique`, because the values are sorted."""
    values: Int64s = ascending[np.append(True, ascending[1:] != ascending[:-1])[: len(ascending)]]
    return values


_PART_BYTES = 2**20  # decompressed at a time

_log = logging.getLogger(__name__)


class ZoneMapCache:
    """The zone maps of a lake's segments."""

    def __init__(self, store: Store, cache: ByteCache, fetch: LogFetch) -> None:
        self._store, self._cache, self._fetch = store, cache, fetch

    def open(self, segment: LogSegment) -> ZoneSearch:
        """Return the zone map of a segment. Raises CorruptData, StoreError."""
        zones: ZoneSearch | None = self._cache.get(segment.zonemap_key)
        if zones is None:
            zones = ZoneSearch(segment, self)
            self.grown(segment, zones)
        return zones

    def grown(self, segment: LogSegment, zones: ZoneSearch) -> None:
        """Cache a zone map with its current size."""
        self._cache.put(segment.zonemap_key, zones, zones.size_bytes)

    def head(self, segment: LogSegment) -> tuple[Any, ReadRanges | None]:
        """Return the beginning of the file, up to its last fence, and a function to read the rest.

        The function is None if the beginning is the whole file.
        """
        size = end = segment.zonemap_bytes
        if large := size > zonemap.SMALL_BYTES:
            end = zonemap.head_bytes_at_most(size)
        (head,) = self._read(segment, [(0, end)])
        if end < (more := min(zonemap.head_bytes(head), size)):  # a zone map with smaller fences
            (head,) = self._read(segment, [(0, more)])
        return head, partial(self._read, segment) if large else None

    def _read(self, segment: LogSegment, ranges: Sequence[tuple[int, int]]) -> list[Any]:
        """Read ranges of the zone map. Raise CorruptData if the file has another size."""
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
        try:
            return self._store.read_ranges(segment.zonemap_key, starts, ends) if ranges else []
        except MissingObject:
            raise
        except StoreError:
            size = self._store.size(segment.zonemap_key)
            if size == segment.zonemap_bytes:
                raise
            what = f"{size} bytes instead of {segment.zonemap_bytes} bytes"
            raise CorruptData(what, file=segment.zonemap_key) from None

    def remake(self, segment: LogSegment, damage: Exception) -> bytes:
        """Rebuild a zone map from the log. Any index policy gives the same results."""
        _log.warning(
            "%s cannot be used, so a zone map is built from the log in memory: %s",
            segment.zonemap_key,
            damage,
        )
        tables = [np.empty(0, TABLE)]
        for chunk in self._fetch.chunks([segment.whole()]):
            for part, decoded in chunk.decode_in_parts(chunk.table, _PART_BYTES):
                tables.append(with_extremes(part, decoded))
        table = end_to_end(join_tables(tables))
        zones = zonemap.build(segment.base_offset, table, choose_indexed(table, IndexPolicy()))
        return zonemap.encode(zones)
