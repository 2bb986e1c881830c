"""Run all groups of a server: their state machines, timers and committed offsets."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

from seglake.clock import now_ms
from seglake.errors import StoreError
from seglake.limits import INT64_MAX
from seglake.serve.api import ServerCounts
from seglake.serve.codes import Code
from seglake.serve.groups.group import Group, JoinRequest, JoinResponse, SyncRequest, SyncResponse
from seglake.serve.groups.offsets import CommittedOffset, OffsetStore, Where
from seglake.serve.settings import Groups

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


class GroupListing(NamedTuple):
    """A group in a list. `group` is None if it has committed offsets but no members."""

    group_id: str
    group: Group | None
    kind: str  # the protocol type that its members had when they committed last

    @property
    def state(self) -> str:
        """Return Kafka's name for the state of the group."""
        return "Empty" if self.group is None else self.group.state

    @property
    def protocol_type(self) -> str:
        """Return the protocol type of its members, now or at their last commit, or ""."""
        return (self.group and self.group.protocol_type) or self.kind


class Coordinator:
    """Answers the requests of groups. All calls must come from one event loop.

    A storage error is logged and answered with COORDINATOR_NOT_AVAILABLE, after which clients try
    again.
    """

    def __init__(self, store: OffsetStore, settings: Groups, counts: ServerCounts) -> None:
        self._store, self._settings, self._counts = store, settings, counts
        self._groups: dict[str, Group] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._thread = ThreadPoolExecutor(1, "seglake-offsets")  # SQLite waits for the disk

    def release(self) -> None:
        """Answer the requests that wait, because the server stops. Clients then reconnect."""
        for group in self._groups.values():
            for member in group.members.values():
                member.answer_all(Code.COORDINATOR_NOT_AVAILABLE)

    def close(self) -> None:
        """Cancel all timers, and close the file after the last commit is written."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._thread.submit(self._store.close).result()
        self._thread.shutdown()

    # ---------------------------------------------------------------- members

    async def join(self, group_id: str, ask: JoinRequest) -> JoinResponse:
        """Join a member, and wait for the rebalance."""
        group = self._groups.get(group_id)
        if not group_id:
            return JoinResponse(Code.INVALID_GROUP_ID, member_id=ask.member_id)
        if group is None and ask.member_id:
            return JoinResponse(Code.UNKNOWN_MEMBER_ID, member_id=ask.member_id)
        if group is None:
            if len(self._groups) >= (most := self._settings.max_groups):
                _log.warning(
                    "group %.80r refused, because there are max_groups = %d groups", group_id, most
                )
                return JoinResponse(Code.COORDINATOR_NOT_AVAILABLE)
            group = self._groups[group_id] = Group(group_id, self._settings)
        future = asyncio.get_running_loop().create_future()
        group.join(ask, _clock_ms(), _answering(future))
        self._after(group)
        joined: JoinResponse = await future
        return joined

    async def sync(self, group_id: str, ask: SyncRequest) -> SyncResponse:
        """Wait for the leader's assignment, and return it."""
        group = self._groups.get(group_id)
        if group is None:
            return SyncResponse(Code.UNKNOWN_MEMBER_ID)
        future = asyncio.get_running_loop().create_future()
        group.sync(ask, _clock_ms(), _answering(future))
        self._after(group)
        synced: SyncResponse = await future
        return synced

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> Code:
        """Extend the session of a member. After REBALANCE_IN_PROGRESS it must join again."""
        group = self._groups.get(group_id)
        if group is None:
            return Code.UNKNOWN_MEMBER_ID
        code = group.heartbeat(member_id, instance_id, generation, _clock_ms())
        self._after(group)
        return code

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> Code:
        """Remove one member from a group, by its id or by its instance id."""
        group = self._groups.get(group_id)
        if group is None:
            return Code.UNKNOWN_MEMBER_ID
        code = group.leave(member_id, instance_id, _clock_ms())
        if code is Code.NONE:
            _log.info("group %.80r: member %.80r left", group_id, member_id or instance_id)
            self._after(group)
        return code

    # ---------------------------------------------------------------- offsets

    def may_commit(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> Code:
        """Return NONE if a member may commit in this generation, else the error."""
        group = self._groups.get(group_id)
        if not group_id:
            return Code.INVALID_GROUP_ID
        if group is None:
            return Code.NONE if generation < 0 else Code.ILLEGAL_GENERATION
        code = group.may_commit(member_id, instance_id, generation, _clock_ms())
        self._after(group)
        return code

    async def commit(self, group_id: str, offsets: Mapping[Where, CommittedOffset]) -> Code:
        """Commit all of these offsets, or none."""
        if not offsets:
            return Code.NONE
        group = self._groups.get(group_id)
        kind = "" if group is None else group.protocol_type
        commit = partial(self._store.commit, group_id, offsets, now_ms(), kind)
        failed = await self._stored(commit)
        self._counts.offset_commits += not failed
        return failed or Code.NONE

    async def committed(self, group_id: str) -> dict[Where, CommittedOffset] | Code:
        """Return all offsets that a group committed."""
        return await self._stored(lambda: self._store.group_offsets(group_id))

    async def forget(self, group_id: str, wheres: Collection[Where] | None) -> Code:
        """Delete some offsets of a group, or all if `wheres` is None.

        A group with members is refused. A broker also deletes offsets of a group with members, for
        topics to which no member subscribes.
        """
        group = self._groups.get(group_id)
        if group is not None and not group.idle:
            return Code.NON_EMPTY_GROUP
        offsets = await self.committed(group_id)
        if isinstance(offsets, Code):
            return offsets
        if not offsets:
            return Code.GROUP_ID_NOT_FOUND
        return await self._stored(partial(self._store.delete, group_id, wheres)) or Code.NONE

    # ---------------------------------------------------------------- administration

    async def listed(self) -> list[GroupListing] | Code:
        """Return every group that has members or committed offsets."""
        kinds = await self._stored(self._store.groups)
        if isinstance(kinds, Code):
            return kinds
        return [
            GroupListing(name, self._groups.get(name), kinds.get(name, ""))
            for name in sorted({*kinds, *self._groups})
        ]

    # ---------------------------------------------------------------- inside

    async def _stored(self, work: Callable[[], _Answer]) -> _Answer | Code:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except StoreError as error:
            # The message has the cause, so a traceback would not help.
            _log.error("cannot read or write committed offsets: %s", error)
            return Code.COORDINATOR_NOT_AVAILABLE

    def _after(self, group: Group) -> None:
        """Log the change of a group. Then drop an idle group, or set the timer of any other."""
        name = group.group_id
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()
        if group.generation != group.logged_generation:
            group.logged_generation = group.generation
            self._counts.rebalances += 1
            many = len(group.members)
            _log.info("group %.80r: generation %d has %d members", name, group.generation, many)
        if group.idle:
            del self._groups[name]
            self._counts.group_members.pop(name, None)
            return
        self._counts.group_members[name] = len(group.members)
        if group.deadline_ms < INT64_MAX:
            delay_s = max(0, group.deadline_ms - _clock_ms()) / 1000
            loop = asyncio.get_running_loop()
            self._timers[name] = loop.call_later(delay_s, self._advance, group)

    def _advance(self, group: Group) -> None:
        """Run the timer of a group. After any error it runs again a second later."""
        try:
            before = set(group.members)
            group.advance(_clock_ms())
            for member_id in before - set(group.members):
                _log.info("group %.80r: member %.80r timed out", group.group_id, member_id)
            self._after(group)
        except Exception:  # The timer must continue after any error.
            _log.exception(
                "group %.80r: its timer failed, and continues in a second", group.group_id
            )
            later = asyncio.get_running_loop().call_later(1, self._advance, group)
            self._timers[group.group_id] = later


def _clock_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _answering(future: asyncio.Future[_Answer]) -> Callable[[_Answer], None]:
    def reply(answer: _Answer) -> None:
        if not future.done():
            future.set_result(answer)

    return reply
