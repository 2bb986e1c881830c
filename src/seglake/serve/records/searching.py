"""The records with one key as a fetch takes them: whole batches, within a time.

A search goes from group to group of blocks. It ends when there is no room, at the end of the log,
or when its time is over. An empty batch then says how far it came, and a client goes on from there.
What was searched is remembered, so a client that asks again from the same offset gets further, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

from seglake.errors import CorruptData
from seglake.format.batch import OVERHEAD
from seglake.format.filter import blank
from seglake.limits import INT32_MAX
from seglake.log.byte_cache import ByteCache
from seglake.log.segment import LogRanges, LogSegment
from seglake.serve.api import in_turns
from seglake.serve.records.sought import Matches, Sought, held_bytes
from seglake.serve.records.stretches import Bytes
from seglake.serve.records.taking import Taken

_log = logging.getLogger(__name__)

_THREADS = 2  # so that searches leave those of other fetches alone
_FOUND_BYTES = 32 * 2**20  # of batches that were encoded again, and of what was found to be empty
_GROUPS_BYTES = 16 * 2**20  # of lists of groups
_DAMAGE_BYTES = 1000
_LINGER_S = 0.05  # of a search that has found something, for more


class Room(NamedTuple):
    """What a fetch has room for: `limit` bytes, the first batch whole even if it is larger.

    A search goes on until the time `until` of the event loop, or until it `is_hurried`.
    """

    limit: int
    whole_first: bool
    until: float
    is_hurried: Callable[[], bool] = lambda: False


class _Step(NamedTuple):
    """All below `first` was searched; below `end` there is no more than `matches`."""

    first: int
    end: int
    matches: Matches | None = None
    fresh: bool = False  # it took work


class Searcher:
    """Takes the records with a key. For the event loop alone."""

    def __init__(self, damaged: Callable[[], None] = lambda: None) -> None:
        self._damaged = damaged
        self._found, self._groups = ByteCache(_FOUND_BYTES), ByteCache(_GROUPS_BYTES)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="seglake-search")

    def close(self) -> None:
        """End its threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def forget(self) -> None:
        """Let go of all bytes: logs may be gone."""
        self._found.clear()
        self._groups.clear()

    async def take(self, sought: Sought, offset: int, end: int, room: Room) -> Taken:
        """The batches with sought records from `offset` on that lie below `end`.

        If none is found, an empty batch stands for the offsets that were searched. Raises
        CorruptData if the first block is damaged, StoreError, and VersionExpired.
        """
        taking = _Taking(offset, end, room)
        try:
            async with aclosing(self._steps(sought, offset, end)) as steps:
                async for step in steps:
                    if not taking.go_on(step):
                        break
                else:
                    taking.offset = end
        except CorruptData:
            if not taking.parts and taking.offset == offset:
                raise
        taking.fill_gap()
        size = sum(map(len, taking.parts))
        has_records = bool(taking.parts) and not taking.is_gap
        return Taken(taking.parts, size, taking.offset, has_records, taking.is_unfinished)

    async def _steps(self, sought: Sought, offset: int, end: int) -> AsyncGenerator[_Step]:
        if sought.is_elsewhere:
            return
        for segment in sought.blocks.segments_from(offset):
            if segment.base_offset >= end:
                return
            groups, fresh = await self._groups_of(sought, segment)
            yield _Step(segment.base_offset, segment.base_offset, fresh=fresh)
            async for group in in_turns(groups):
                first, stop = int(group.first_offsets[0]), int(group.end_offsets[-1])
                if first >= end:
                    return
                if stop > offset:
                    yield _Step(first, first)
                    async for step in self._searched(sought, segment, group, offset):
                        yield step

    async def _searched(
        self, sought: Sought, segment: LogSegment, group: LogRanges, offset: int
    ) -> AsyncIterator[_Step]:
        """The steps of a group: one, or that of each block if one is damaged."""
        blocks = list[LogRanges]()
        try:
            yield await self._step(sought, segment, group)
        except CorruptData:
            blocks = await self._run(partial(sought.single_blocks, segment, group))
            if len(blocks) == 1:
                raise
        for block in blocks:
            if int(block.end_offsets[0]) > offset:
                first = int(block.first_offsets[0])
                yield _Step(first, first)
                yield await self._step(sought, segment, block)

    async def _step(self, sought: Sought, segment: LogSegment, group: LogRanges) -> _Step:
        first, stop = int(group.first_offsets[0]), int(group.end_offsets[-1])
        name = (sought.name_of(segment), first, stop)
        found: Matches | CorruptData | None = self._found.get(name)
        if fresh := found is None:
            found = await self._matches(sought, segment, group, name)
        if isinstance(found, CorruptData):
            raise found
        return _Step(first, stop, found, fresh)

    async def _matches(
        self, sought: Sought, segment: LogSegment, group: LogRanges, name: Hashable
    ) -> Matches | CorruptData:
        """What a group holds; its damage is told once, by the block that has it."""
        try:
            found: Matches = await self._run(partial(sought.matches, segment, group))
        except CorruptData as damage:
            self._found.put(name, damage, _DAMAGE_BYTES)
            place = ("damage", damage.file, damage.position)
            if self._found.get(place) is None:
                self._found.put(place, damage, _DAMAGE_BYTES)
                self._damaged()
                _log.error("damaged: %s", damage)
            return damage
        self._found.put(name, found, found.held_bytes)
        return found

    async def _groups_of(self, sought: Sought, segment: LogSegment) -> tuple[list[LogRanges], bool]:
        """The groups of a segment, and whether they had to be found."""
        name = sought.name_of(segment)
        groups: list[LogRanges] | None = self._groups.get(name)
        if groups is not None:
            return groups, False
        groups = await self._run(partial(sought.groups, segment))
        self._groups.put(name, groups, held_bytes(groups))
        return groups, True

    async def _run(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


class _Taking:
    """What one fetch has by now; all below `offset` was searched."""

    def __init__(self, asked: int, end: int, room: Room) -> None:
        self.offset = self._asked = asked
        self._end, self._room, self._left = end, room, room.limit
        self.parts, self.is_gap, self.is_unfinished = list[Bytes](), False, False
        self._worked, self._now = False, asyncio.get_running_loop().time
        self._started = self._now()

    def go_on(self, step: _Step) -> bool:
        """Take what a step found; False once nothing more is wanted."""
        self.offset = max(self.offset, min(step.first, self._end))
        if step.matches is not None and not self._add(step.matches):
            return False
        self.offset = max(self.offset, min(step.end, self._end))
        self._worked |= step.fresh
        has_come_on = bool(self.parts) or self.offset > self._asked
        self.is_unfinished = self._worked and has_come_on and self._is_late()
        return not self.is_unfinished

    def _add(self, found: Matches) -> bool:
        """Take batches; whether there was room for all."""
        first = int(found.newest.searchsorted(self.offset))
        last = min(len(found.newest), int(found.base_offsets.searchsorted(self._end)))
        if first >= last:
            return True
        room = int(found.positions[first]) + self._left
        stop = min(last, int(found.positions.searchsorted(room, "right")) - 1)
        if stop <= first and not self.parts and self._room.whole_first:
            stop = first + 1
        if stop > first:
            start, end = int(found.positions[first]), int(found.positions[stop])
            self.parts.append(memoryview(found.data)[start:end])
            self._left -= end - start
            self.offset = int(found.last_offsets[stop - 1]) + 1
        else:
            self.offset = max(self.offset, int(found.base_offsets[first]))
        return stop >= last

    def _is_late(self) -> bool:
        now, room = self._now(), self._room
        lingered = bool(self.parts) and now >= self._started + _LINGER_S
        return lingered or now >= room.until or room.is_hurried()

    def fill_gap(self) -> None:
        """An empty batch for the offsets that were searched, if no batch has one of them."""
        last = min(self.offset - 1, self._asked + INT32_MAX)
        fits = self._room.whole_first or self._room.limit > OVERHEAD
        if not self.parts and last >= self._asked and fits:
            self.parts.append(blank(self._asked, last).data.data)
            self.is_gap, self.offset = True, last + 1
