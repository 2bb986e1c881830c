"""The records with one key as a fetch takes them: whole batches, within a time.

A search goes from group to group of blocks. It ends when there is no room, at the end of the log,
or when its time is over. An empty batch then says how far it came, and a client goes on from there.
What was searched is remembered, so a client that asks again from the same offset gets further, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple, TypeVar

from seglake.errors import CorruptData
from seglake.format.batch import OVERHEAD
from seglake.format.filter import blank
from seglake.limits import INT32_MAX
from seglake.log.blocks.search import OffsetAndTimestamp
from seglake.log.byte_cache import ByteCache
from seglake.log.segment import LogRanges, LogSegment
from seglake.serve.api import in_turns
from seglake.serve.records.sought import Matches, SoughtRecords, held_bytes, newest_of
from seglake.serve.records.stretches import Bytes
from seglake.serve.records.taking import Taken

_log = logging.getLogger(__name__)
_Item = TypeVar("_Item")

_THREADS = 2  # so that searches leave those of other fetches alone
_REQUESTS = 8  # the same, and ahead of a search, where they wait for an object store
_OUTCOMES_BYTES = 32 * 2**20  # of batches that were encoded again, and of empty answers
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


class _CachedCall(NamedTuple):
    """What a thread does, and where its result is kept: under a name that says all of it."""

    name: tuple[Any, ...]
    cache: ByteCache
    call: Callable[[], Any]
    size_of: Callable[[Any], int]


class Searcher:
    """Takes the records with a key. For the event loop alone.

    `is_far`: logs are in an object store, so that several requests are under way at once.
    """

    def __init__(self, *, is_far: bool, damaged: Callable[[], None] = lambda: None) -> None:
        self._damaged = damaged
        self._outcomes, self._groups = ByteCache(_OUTCOMES_BYTES), ByteCache(_GROUPS_BYTES)
        self._forgotten = 0  # how often
        self._loading = dict[Hashable, asyncio.Future[Any]]()
        self._ahead = _REQUESTS - 1 if is_far else 0
        threads = _REQUESTS if is_far else _THREADS
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="seglake-search")

    def close(self) -> None:
        """End its threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def forget(self) -> None:
        """Let go of all bytes: logs may be gone."""
        self._forgotten += 1
        self._outcomes.clear()
        self._groups.clear()

    async def take(self, sought: SoughtRecords, offset: int, end: int, room: Room) -> Taken:
        """The batches with sought records from `offset` on that lie below `end`.

        If none is found, an empty batch stands for the offsets that were searched. Raises
        CorruptData if the first block is damaged, StoreError, and VersionExpired.
        """
        taking = _SearchAnswer(offset, end, room)
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

    async def first(
        self, sought: SoughtRecords, start: int, end: int, is_gone: Callable[[], bool]
    ) -> OffsetAndTimestamp | None:
        """The first sought record at an offset of [start, end); raises as `take`."""
        async for matches in self._all(sought, start, end, is_gone):
            if matches.first is not None:
                return matches.first
        return None

    async def newest(
        self, sought: SoughtRecords, start: int, end: int, is_gone: Callable[[], bool]
    ) -> OffsetAndTimestamp | None:
        """The first of them with the largest timestamp; raises as `take`."""
        newest: OffsetAndTimestamp | None = None
        async for matches in self._all(sought, start, end, is_gone):
            newest = newest_of([newest, matches.newest])
        return newest

    async def _all(
        self, sought: SoughtRecords, start: int, end: int, is_gone: Callable[[], bool]
    ) -> AsyncGenerator[Matches]:
        """All that is sought, unless whoever asks `is_gone` meanwhile."""
        async with aclosing(self._steps(sought, start, end)) as steps:
            async for step in steps:
                if step.matches is not None:
                    yield step.matches
                if is_gone():
                    return

    async def _steps(self, sought: SoughtRecords, offset: int, end: int) -> AsyncGenerator[_Step]:
        if sought.is_elsewhere:
            return
        segments = sought.blocks.segments_from(offset)
        async for segment, later in _with_next(segments, self._ahead):
            if segment.base_offset >= end:
                return
            for each in later:
                self._begin(self._plan(sought, each))
            groups, fresh = await self._taken(self._plan(sought, segment))
            yield _Step(segment.base_offset, segment.base_offset, fresh=fresh)
            async for group, following in _with_next(groups, self._ahead):
                first, stop = int(group.first_offsets[0]), int(group.end_offsets[-1])
                if first >= end:
                    return
                if stop > offset:
                    for each in following:
                        self._begin(self._search(sought, segment, each))
                    yield _Step(first, first)
                    async for step in self._searched(sought, segment, group, offset):
                        yield step

    async def _searched(
        self, sought: SoughtRecords, segment: LogSegment, group: LogRanges, offset: int
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

    async def _step(self, sought: SoughtRecords, segment: LogSegment, group: LogRanges) -> _Step:
        outcome, fresh = await self._taken(self._search(sought, segment, group))
        if isinstance(outcome, CorruptData):
            self._tell(outcome)
            raise outcome
        return _Step(int(group.first_offsets[0]), int(group.end_offsets[-1]), outcome, fresh)

    def _tell(self, damage: CorruptData) -> None:
        """Tell of damage, once by the block that has it."""
        place = (damage.file, damage.position)
        if place not in self._outcomes:
            self._outcomes.put(place, damage, _DAMAGE_BYTES)
            self._damaged()
            _log.error("damaged: %s", damage)

    # work, which is shared and remembered

    def _plan(self, sought: SoughtRecords, segment: LogSegment) -> _CachedCall:
        """Of a segment: its groups."""
        name = (sought.name_of(segment),)
        return _CachedCall(name, self._groups, partial(sought.groups, segment), held_bytes)

    def _search(self, sought: SoughtRecords, segment: LogSegment, group: LogRanges) -> _CachedCall:
        """Of a group: what it holds, or its damage."""
        place = int(group.first_offsets[0]), int(group.end_offsets[-1])
        name = (sought.name_of(segment), *place)
        return _CachedCall(
            name, self._outcomes, partial(_outcome, sought, segment, group), _size_of
        )

    async def _taken(self, work: _CachedCall) -> tuple[Any, bool]:
        """The result, and whether it was not remembered."""
        result = work.cache.get(work.name)
        if result is not None:
            return result, False
        return await asyncio.shield(self._begun(work)), True

    def _begin(self, work: _CachedCall) -> None:
        """Do work ahead. What it raises is met again by whoever needs it."""
        if work.name not in work.cache:
            self._begun(work)

    def _begun(self, work: _CachedCall) -> asyncio.Future[Any]:
        begun = self._loading.get(work.name)
        if begun is None:
            begun = self._loading[work.name] = asyncio.ensure_future(self._done(work))
            begun.add_done_callback(partial(self._ended, work.name))
        return begun

    def _ended(self, name: Hashable, done: asyncio.Future[Any]) -> None:
        self._loading.pop(name, None)
        if not done.cancelled():
            done.exception()  # heard, also if nobody waits for it any more

    async def _done(self, work: _CachedCall) -> Any:
        forgotten = self._forgotten
        result = await self._run(work.call)
        if forgotten == self._forgotten:
            work.cache.put(work.name, result, work.size_of(result))
        return result

    async def _run(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _outcome(sought: SoughtRecords, segment: LogSegment, group: LogRanges) -> Matches | CorruptData:
    """What a group holds, or its damage. On a thread."""
    try:
        return sought.matches(segment, group)
    except CorruptData as damage:
        return damage


def _size_of(outcome: Matches | CorruptData) -> int:
    return _DAMAGE_BYTES if isinstance(outcome, CorruptData) else outcome.held_bytes


async def _with_next(
    items: Iterable[_Item], count: int
) -> AsyncGenerator[tuple[_Item, Sequence[_Item]]]:
    """Each item, and the items that follow it, at most `count`."""
    following = deque[_Item]()
    async for item in in_turns(items):
        following.append(item)
        if len(following) > count:
            yield following.popleft(), following
    while following:
        yield following.popleft(), following


class _SearchAnswer:
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

    def _add(self, matches: Matches) -> bool:
        """Take batches; whether there was room for all."""
        first = int(matches.ends.searchsorted(self.offset))
        last = min(len(matches.ends), int(matches.base_offsets.searchsorted(self._end)))
        if first >= last:
            return True
        room = int(matches.positions[first]) + self._left
        stop = min(last, int(matches.positions.searchsorted(room, "right")) - 1)
        if stop <= first and not self.parts and self._room.whole_first:
            stop = first + 1
        if stop > first:
            start, end = int(matches.positions[first]), int(matches.positions[stop])
            self.parts.append(memoryview(matches.data)[start:end])
            self._left -= end - start
            self.offset = int(matches.last_offsets[stop - 1]) + 1
        else:
            self.offset = max(self.offset, int(matches.base_offsets[first]))
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
