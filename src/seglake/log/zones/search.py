"""Searches in the zone map of one segment: which blocks can hold an offset, a time, a window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.errors import CorruptData
from seglake.format import zonemap
from seglake.format.records import Flags, Int64s
from seglake.limits import INT64_MAX
from seglake.log.segment import LogRanges, LogSegment
from seglake.log.zones.bounds import Bounds
from seglake.log.zones.zone_kernels import (
    BLOCKS,
    FENCE_ROWS,
    HIGH,
    LOW,
    OFFSET,
    OFFSET_END,
    PAGE,
    PAGE_END,
    block_before,
    first_at_least,
    join_marked,
    join_meeting,
    next_block,
)

# Bytes in memory: of a zone map's objects, of a page's objects, and of the objects of one read.
_OWN_BYTES, _PAGE_BYTES, _READ_BYTES = 2500, 400, 430

ReadRanges = Callable[[Sequence[tuple[int, int]]], list[Any]]
Marked = Callable[[int, int, int], Flags | None]


class Block(NamedTuple):
    """An index block: its number, bytes [position, end), offsets [first_offset, end_offset)."""

    number: int
    position: int
    end: int
    first_offset: int
    end_offset: int

    @property
    def ranges(self) -> LogRanges:
        """The bytes and offsets of the block, as one range."""
        return LogRanges.one(self.position, self.end, self.first_offset, self.end_offset)


class Blocks(NamedTuple):
    """Blocks in order; block i has offsets first_offsets[i] to end_offsets[i], exclusive."""

    positions: Int64s
    ends: Int64s
    first_offsets: Int64s
    end_offsets: Int64s
    max_timestamps: Int64s

    def __len__(self) -> int:
        return len(self.positions)

    def take(self, rows: npt.NDArray[Any]) -> Blocks:
        """The blocks at the positions `rows`, or where the mask `rows` is true."""
        return Blocks(*(column[rows] for column in self))

    def ranges(self) -> LogRanges:
        """The bytes and offsets of the blocks; neighbours become one range."""
        return LogRanges(*self[:4]).joined()


class _BlockPage(NamedTuple):
    """The blocks of one fence. The last block ends at `end_offset` (relative), `end_position`."""

    blocks: npt.NDArray[np.void]  # of `zonemap.ENTRY`
    end_offset: int
    end_position: int

    def columns(self) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
        """For each block: position, end position, relative offset, end offset, max timestamp."""
        names = ("position", "relative_offset", "max_timestamp")
        positions, offsets, highs = (self.blocks[name].astype(np.int64) for name in names)
        ends = np.append(positions[1:], self.end_position)[: len(positions)]
        return positions, ends, offsets, np.append(offsets[1:], self.end_offset)[: len(ends)], highs


class ZoneSearch:
    """The zone map of `segment`. `head` is the beginning of the file, with all its fences.

    `read` reads ranges of the file. A search loads the pages that it needs; pages stay in memory.
    Safe for threads: two threads may load a page at once, with the same result. Every method raises
    CorruptData if the file is damaged. `pages` has the pages in the form that kernels take
    (`FENCE_ROWS`). `place` has the address of `pages` and the number of pages.
    """

    def __init__(self, segment: LogSegment, head: Any, read: ReadRanges) -> None:
        fences = zonemap.decode_fences(head)
        if fences.log_bytes != segment.log_bytes:
            raise CorruptData(f"the zone map is of a log of {fences.log_bytes} bytes")
        self._base, self._read, self._fences = segment.base_offset, read, fences
        self.as_written = True  # False: made again, so blocks may be other ones
        self.pages = _pages_of(fences, segment.end_offset - self._base)
        self._firsts, self._ends, self._lows, self._highs = self.pages[: HIGH + 1]
        self.place = self.pages.__array_interface__["data"][0], len(fences.rows)
        self._loaded: dict[int, _BlockPage] = {}
        self.size_bytes = _OWN_BYTES + memoryview(head).nbytes + 64 * len(fences.rows)

    def load(self) -> None:
        """Load all pages at once, which costs less than one by one. `head` has their bytes."""
        size = self.size_bytes
        self._load(np.arange(len(self._lows)))
        self.size_bytes = size + _PAGE_BYTES * len(self._lows)

    def block_at(self, offset: int) -> Block | None:
        """The last block that begins at or before `offset`, or the first; None without blocks."""
        if not len(self._lows):
            return None
        relative = max(offset - self._base, -1)
        number = max(0, int(self._firsts.searchsorted(relative, "right")) - 1)
        return self._block(number, block_before(*self._page(number), relative))

    def next_reaching(self, timestamp: int, after: int = -1) -> Block | None:
        """The first block numbered above `after` with a max timestamp >= `timestamp`."""
        number, row = divmod(after + 1, self._fences.fence_span)
        while number < len(self._lows):
            if row == 0:
                number = first_at_least(self._highs, number, timestamp)
                if number == len(self._lows):
                    return None
            page = self._page(number)
            block = next_block(page.blocks, row, page.end_offset, page.end_position, timestamp)
            if block[0] >= 0:
                return self._block(number, block)
            number, row = number + 1, 0
        return None

    def min_timestamps_after(self, number: int, *, dated: bool = False) -> Int64s:
        """Smallest timestamps of the blocks numbered above `number`; one may stand for many blocks.

        `dated` says that every record of the segment has a timestamp. Then a block with the
        timestamp -1 has no records, and is left out.
        """
        fence, row = divmod(number, self._fences.fence_span)
        own = self._page(fence).blocks["min_timestamp"][row + 1 :].astype(np.int64)
        fences = self._lows[fence + 1 :]
        if not dated:
            return np.append(own, fences)
        pages = self._load(fence + 1 + np.flatnonzero(fences < 0))
        lows = np.concatenate([own, fences, *(page.blocks["min_timestamp"] for page in pages)])
        return lows[lows >= 0]

    def reaching(self, timestamps: Int64s) -> tuple[Blocks, Int64s]:
        """Some blocks, and for each of the ascending `timestamps` the first block that reaches it.

        The block is given by its position in the returned blocks; their count stands for "none".
        """
        pages = distinct(np.maximum.accumulate(self._highs).searchsorted(timestamps))
        blocks = self._blocks(pages[pages < len(self._lows)])
        return blocks, np.maximum.accumulate(blocks.max_timestamps).searchsorted(timestamps)

    def holding(self, offsets: Int64s) -> tuple[Blocks, Int64s]:
        """Some blocks, and for each of the ascending `offsets` the last block that begins by then.

        That block begins at the offset or before it. The block is given by its position in the
        returned blocks; -1 stands for "none".
        """
        pages = distinct(self._firsts.searchsorted(offsets - self._base, "right") - 1)
        blocks = self._blocks(pages[pages >= 0])
        return blocks, blocks.first_offsets.searchsorted(offsets, "right") - 1

    def times(self) -> tuple[Int64s, Int64s, Int64s]:
        """For each block: the number of offsets, the smallest and the largest timestamp."""
        pages = self._load(np.arange(len(self._lows))) or [_NO_PAGE]
        _, _, firsts, ends, highs = _joined(pages)
        lows = np.concatenate([page.blocks["min_timestamp"] for page in pages])
        return ends - firsts, lows, highs

    def within(self, bounds: Bounds) -> tuple[LogRanges, int]:
        """The blocks that can hold a wanted record, and at most how many wanted records they have.

        Neighbouring blocks become one range. The number counts the offsets within the bounds.
        """
        numbers, _ = bounds.meet(self._lows, self._highs, self._firsts, self._ends, self._base)
        ranges = np.empty((4, len(numbers) * self._fences.fence_span), np.int64)
        count = records = 0
        for page in self._load(numbers):
            count, more = join_meeting(*page, self._base, *bounds[1:], INT64_MAX, ranges, count)
            records += more
        return LogRanges(*ranges[:, :count].copy()), records

    def among(
        self, marked: Marked, bounds: Bounds, *, joined: bool
    ) -> tuple[LogRanges, int] | None:
        """The `marked` blocks that can hold a wanted record, and at most how many they hold.

        `marked` says which of so many blocks, from a first to a last one (exclusive), are marked;
        of the others it may say anything. None if it knows nothing of them. If `joined`,
        neighbouring blocks become one range.
        """
        numbers, _ = bounds.meet(self._lows, self._highs, self._firsts, self._ends, self._base)
        if not len(numbers):
            return _NO_RANGES, 0
        span, blocks = self._fences.fence_span, self._fences.block_count
        first, stop = int(numbers[0]) * span, min((int(numbers[-1]) + 1) * span, blocks)
        marks = marked(blocks, first, stop) if self.as_written else None
        if marks is None:
            return None
        rows = np.flatnonzero(marks[first:stop]) + first
        some = np.intersect1d(numbers, distinct(rows // span), assume_unique=True)
        ranges, count, records = np.empty((4, len(rows)), np.int64), 0, 0
        for number, page in zip(some.tolist(), self._load(some), strict=True):
            own = marks[number * span : (number + 1) * span]
            count, more = join_marked(
                *page, own, self._base, *bounds[1:], INT64_MAX if joined else 0, ranges, count
            )
            records += more
        return LogRanges(*ranges[:, :count].copy()), records

    def _page(self, number: int) -> _BlockPage:
        page = self._loaded.get(number)
        if page is None:
            (data,) = self._read([self._fences.entries_range(number, number)])
            self._add(number, zonemap.checked_entries(data, self._fences, number, number))
            page = self._loaded[number]
        return page

    def _load(self, numbers: Int64s) -> list[_BlockPage]:
        """The pages with these ascending numbers. One read loads neighbours that are missing."""
        asked, loaded = numbers.tolist(), self._loaded
        missing = np.array([number for number in asked if number not in loaded], np.int64)
        if len(missing):
            groups = np.split(missing, np.flatnonzero(np.diff(missing) > 1) + 1)
            ranges = [self._fences.entries_range(int(group[0]), int(group[-1])) for group in groups]
            for group, data in zip(groups, self._read(ranges), strict=True):
                first, last = int(group[0]), int(group[-1])
                self._add(first, zonemap.checked_entries(data, self._fences, first, last))
        return [loaded[number] for number in asked]

    def _add(self, first: int, blocks: npt.NDArray[np.void]) -> None:
        """Keep the pages from `first` on, which have these blocks, in memory.

        A page that another thread has added meanwhile stays: kernels may use its memory.
        """
        span = self._fences.fence_span
        for number, at in enumerate(range(0, len(blocks), span), first):
            own = _BlockPage(
                blocks[at : at + span], *self.pages[[OFFSET_END, PAGE_END], number].tolist()
            )
            page = self._loaded.setdefault(number, own)
            self.pages[BLOCKS, number] = len(page.blocks)
            self.pages[PAGE, number] = page.blocks.__array_interface__["data"][0]
            self.size_bytes += _PAGE_BYTES
        self.size_bytes += blocks.nbytes + _READ_BYTES

    def _block(self, page: int, block: tuple[int, int, int, int, int]) -> Block:
        """The block that a kernel found in a page."""
        row, position, end, first, stop = block
        number = page * self._fences.fence_span + row
        return Block(number, position, end, first + self._base, stop + self._base)

    def _blocks(self, numbers: Int64s) -> Blocks:
        """All blocks of some pages."""
        positions, ends, firsts, stops, highs = _joined(self._load(numbers) or [_NO_PAGE])
        return Blocks(positions, ends, firsts + self._base, stops + self._base, highs)


def _pages_of(fences: zonemap.Fences, end_offset: int) -> Int64s:
    """The pages in the form that kernels take, with no blocks in memory.

    The last page ends at `end_offset`, relative to the base offset.
    """
    pages = np.zeros((FENCE_ROWS, len(fences.rows)), np.int64)
    pages[OFFSET], pages[PAGE_END] = fences.rows["relative_offset"], fences.log_bytes
    pages[OFFSET_END, :-1], pages[OFFSET_END, -1:] = pages[OFFSET, 1:], end_offset
    pages[LOW], pages[HIGH] = fences.rows["min_timestamp"], fences.rows["max_timestamp"]
    pages[PAGE_END, :-1] = fences.rows["position"][1:]
    return pages


def _joined(pages: Sequence[_BlockPage]) -> list[Int64s]:
    """The columns of some pages."""
    return [np.concatenate(column) for column in zip(*map(_BlockPage.columns, pages), strict=True)]


def distinct(ascending: Int64s) -> Int64s:
    """Each value once. Faster than `np.unique`, because the values are sorted."""
    values: Int64s = ascending[np.append(True, ascending[1:] != ascending[:-1])[: len(ascending)]]
    return values


_NO_RANGES = LogRanges(*np.empty((4, 0), np.int64))
_NO_PAGE = _BlockPage(np.empty(0, zonemap.ENTRY), 0, 0)
