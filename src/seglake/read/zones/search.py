"""The zone map of one segment, searched: which blocks can hold an offset, a time, a window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.errors import CorruptData
from seglake.format import zonemap
from seglake.format.records import Int64s
from seglake.format.zonemap import ZoneMap
from seglake.read.fetch.log_segment import LogSegment, Ranges
from seglake.read.kernels import join_blocks, meeting
from seglake.times.intervals import Windows

ReadRanges = Callable[[Sequence[tuple[int, int]]], list[Any]]


class Block(NamedTuple):
    """One block of a segment: its number, its bytes [position, end), its offsets [first, end)."""

    number: int
    position: int
    end: int
    first_offset: int
    end_offset: int

    @property
    def ranges(self) -> Ranges:
        """Its bytes and offsets."""
        return Ranges.of(self.position, self.end, self.first_offset, self.end_offset)


class Blocks(NamedTuple):
    """Blocks in order; block i holds offsets from first_offsets[i] to end_offsets[i], exclusive."""

    positions: Int64s
    ends: Int64s
    first_offsets: Int64s
    end_offsets: Int64s
    min_timestamps: Int64s
    max_timestamps: Int64s

    def __len__(self) -> int:
        return len(self.positions)

    def take(self, rows: npt.NDArray[Any]) -> Blocks:
        """The blocks at the positions, or under the mask, `rows`."""
        return Blocks(*(column[rows] for column in self))

    def ranges(self) -> Ranges:
        """The bytes and offsets of the blocks, neighbours in one."""
        begins = np.append(True, self.positions[1:] != self.ends[:-1])[: len(self)]
        finishes = np.append(begins[1:], True)[: len(self)]
        return Ranges(
            self.positions[begins],
            self.ends[finishes],
            self.first_offsets[begins],
            self.end_offsets[finishes],
        )


class _Page(NamedTuple):
    zones: ZoneMap
    ends: Int64s  # relative offsets at which the blocks end
    highest: Int64s  # running maximum of their max timestamps


class Zones:
    """The zone map of `segment`, of which `head` holds at least the fences.

    `read` gives the bytes of ranges of the file. Entries are loaded when a question needs them, and
    kept. Safe for threads: what two of them load at once is the same. Everything raises CorruptData
    where the file is damaged.
    """

    def __init__(self, segment: LogSegment, head: Any, read: ReadRanges) -> None:
        fences = zonemap.decode_fences(head)
        if fences.log_bytes != segment.log_bytes:
            raise CorruptData(f"the zone map is of a log of {fences.log_bytes} bytes")
        self._base, self._read, self._fences = segment.base_offset, read, fences
        self._firsts = fences.rows["relative_offset"].astype(np.int64)
        self._ends = np.append(self._firsts[1:], segment.end_offset - self._base)
        self._lows = fences.rows["min_timestamp"].astype(np.int64)
        self._highs = fences.rows["max_timestamp"].astype(np.int64)
        self._highest = np.maximum.accumulate(self._highs)
        self._pages: list[_Page | None] = [None] * len(fences.rows)
        self.size_bytes = 1024 + 48 * len(self._pages)

    def block_at(self, offset: int) -> Block | None:
        """The last block that begins at or before `offset`, else the first; None without blocks."""
        if not self._pages:
            return None
        relative = offset - self._base
        number = max(0, int(self._firsts.searchsorted(relative, "right")) - 1)
        page = self._page(number)
        row = max(0, int(page.zones.relative_offsets.searchsorted(relative, "right")) - 1)
        return self._block(page, number, row)

    def next_reaching(self, timestamp: int, after: int = -1) -> Block | None:
        """The first block numbered above `after` with a max timestamp >= `timestamp`."""
        if after < 0:
            number = int(self._highest.searchsorted(timestamp))
        else:
            number, row = divmod(after, self._fences.fence_span)
            page = self._page(number)
            rows = np.flatnonzero(page.zones.max_timestamps[row + 1 :] >= timestamp)
            if len(rows):
                return self._block(page, number, row + 1 + int(rows[0]))
            later = np.flatnonzero(self._highs[number + 1 :] >= timestamp)
            number = number + 1 + int(later[0]) if len(later) else len(self._pages)
        if number >= len(self._pages):
            return None
        page = self._page(number)
        return self._block(page, number, int(page.highest.searchsorted(timestamp)))

    def reaching(self, timestamps: Int64s) -> tuple[Blocks, Int64s]:
        """Some blocks, and for each of the sorted `timestamps` the first that reaches it.

        That is its position in the returned blocks; their count stands for "none".
        """
        wanted = distinct(self._highest.searchsorted(timestamps))
        blocks = self._blocks(wanted[wanted < len(self._pages)])
        return blocks, np.maximum.accumulate(blocks.max_timestamps).searchsorted(timestamps)

    def holding(self, offsets: Int64s) -> tuple[Blocks, Int64s]:
        """Some blocks, and for each of the sorted `offsets` the last that begins at or before it.

        That is its position in the returned blocks; -1 stands for "none".
        """
        wanted = distinct(self._firsts.searchsorted(offsets - self._base, "right") - 1)
        blocks = self._blocks(wanted[wanted >= 0])
        return blocks, blocks.first_offsets.searchsorted(offsets, "right") - 1

    def select(self, start_ms: int, end_ms: int, start_offset: int, end_offset: int) -> Blocks:
        """The blocks that can hold a record in both [start_ms, end_ms) and the offset range."""
        pages = (self._highs >= start_ms) & (self._lows < end_ms)
        pages &= (self._ends + self._base > start_offset) & (self._firsts + self._base < end_offset)
        blocks = self._blocks(np.flatnonzero(pages))
        keep = (blocks.max_timestamps >= start_ms) & (blocks.min_timestamps < end_ms)
        keep &= (blocks.end_offsets > start_offset) & (blocks.first_offsets < end_offset)
        return blocks.take(keep)

    def within(
        self, low_time: int, high_time: int, low_offset: int, high_offset: int
    ) -> tuple[Ranges, int]:
        """The blocks that can hold a record within the bounds, which are inclusive.

        Neighbours share a range. With it comes how many such records there can be at most.
        """
        bounds = low_time, high_time, low_offset, high_offset
        rows = np.empty(max(len(self._pages), self._fences.fence_span), np.int64)
        sides = self._lows, self._highs, self._firsts, self._ends
        numbers = rows[: meeting(*sides, self._base, *bounds, rows)].copy()
        found, count, records = (
            np.empty((4, len(numbers) * self._fences.fence_span), np.int64),
            0,
            0,
        )
        for page in self._load(numbers):
            zones = page.zones
            sides = zones.min_timestamps, zones.max_timestamps, zones.relative_offsets, page.ends
            chosen = rows[: meeting(*sides, self._base, *bounds, rows)]
            places = zones.positions, zones.ends, zones.relative_offsets, page.ends
            count, more = join_blocks(*places, chosen, self._base, *bounds[2:], found, count)
            records += more
        return Ranges(*found[:, :count].copy()), records

    def meeting(self, windows: Windows, start_offset: int) -> Blocks:
        """The blocks that can hold a record at `start_offset` or above in any of the windows."""
        pages = windows.meet(self._lows, self._highs) & (self._ends + self._base > start_offset)
        blocks = self._blocks(np.flatnonzero(pages))
        keep = windows.meet(blocks.min_timestamps, blocks.max_timestamps)
        return blocks.take(keep & (blocks.end_offsets > start_offset))

    def _page(self, number: int) -> _Page:
        return self._pages[number] or self._load(np.array([number]))[0]

    def _load(self, numbers: Int64s) -> list[_Page]:
        """The pages with these ascending numbers; neighbours that are missing share one read."""
        held = [self._pages[number] for number in numbers.tolist()]
        if all(held):
            return [page for page in held if page]
        missing = np.array([n for n in numbers.tolist() if self._pages[n] is None], np.int64)
        runs = np.split(missing, np.flatnonzero(np.diff(missing) > 1) + 1) if len(missing) else []
        ranges = [self._fences.entries_range(int(run[0]), int(run[-1])) for run in runs]
        for run, data in zip(runs, self._read(ranges), strict=True):
            self._keep(run, zonemap.decode_entries(data, self._fences, int(run[0]), int(run[-1])))
        return [page for n in numbers.tolist() if (page := self._pages[n])]

    def _keep(self, numbers: Int64s, zones: ZoneMap) -> None:
        span = self._fences.fence_span
        for at, number in enumerate(numbers.tolist()):
            part = _part(zones, at * span, (at + 1) * span)
            ends = np.append(part.relative_offsets[1:], self._ends[number])
            self._pages[number] = _Page(part, ends, np.maximum.accumulate(part.max_timestamps))
        self.size_bytes += 56 * len(zones)

    def _block(self, page: _Page, number: int, row: int) -> Block:
        zones = page.zones
        return Block(
            number * self._fences.fence_span + row,
            int(zones.positions[row]),
            int(zones.ends[row]),
            int(zones.relative_offsets[row]) + self._base,
            int(page.ends[row]) + self._base,
        )

    def _blocks(self, numbers: Int64s) -> Blocks:
        """All blocks of some pages."""
        pages = self._load(numbers) or [_NOTHING]
        parts = [page.zones for page in pages]
        return Blocks(
            np.concatenate([part.positions for part in parts]),
            np.concatenate([part.ends for part in parts]),
            np.concatenate([part.relative_offsets for part in parts]) + self._base,
            np.concatenate([page.ends for page in pages]) + self._base,
            np.concatenate([part.min_timestamps for part in parts]),
            np.concatenate([part.max_timestamps for part in parts]),
        )


def distinct(ascending: Int64s) -> Int64s:
    """Each value once; for values in order far quicker than `np.unique`."""
    values: Int64s = ascending[np.append(True, ascending[1:] != ascending[:-1])[: len(ascending)]]
    return values


_NONE = np.empty(0, np.int64)
_NOTHING = _Page(ZoneMap(_NONE, _NONE, _NONE, _NONE, _NONE), _NONE, _NONE)


def _part(zones: ZoneMap, start: int, end: int) -> ZoneMap:
    rows = slice(start, end)
    return ZoneMap(
        zones.relative_offsets[rows], zones.positions[rows], zones.ends[rows],
        zones.min_timestamps[rows], zones.max_timestamps[rows],
    )  # fmt: skip
