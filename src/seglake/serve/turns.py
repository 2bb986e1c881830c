"""Turns: large answers are planned and sent in pieces, one piece for each poll of the sockets.

Without turns, some busy clients delay all others:

    1. 300 clients request 50 MB each. Each of their sockets takes up to 4 MB at a time.
    2. The loop finds 300 sockets ready, and sends 1.2 GB before it polls its sockets again.
    3. A small request of another client needs several polls, so it waits for seconds.

A small answer needs no turn. Turns go alternately to requests that have had few of them and to the
others. So short answers overtake long ones, and long ones still proceed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import ContextVar
from time import perf_counter

TURN_BYTES = 512 * 1024  # limit of the bytes that an answer sends in one turn
# Limit of the time to plan an answer in one turn. Between two polls, it also limits the planning of
# all requests that had no turn yet.
_TURN_S = 0.0005
_FEW = 8  # a request with fewer turns is in the queue of short answers


class Turns:
    """The turns of one event loop. Between two polls of its sockets, one request gets a turn."""

    def __init__(self) -> None:
        self._few = deque[asyncio.Future[None]]()  # requests that have had few turns
        self._many = deque[asyncio.Future[None]]()
        self._queues = [self._few, self._many]
        self._is_scheduled, self._until = False, 0.0

    async def wait(self, had: int) -> None:
        """Wait for the next turn of a request that has had `had` turns."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._few if had < _FEW else self._many).append(mine)
        self._schedule()
        await mine

    def free_until(self) -> float:
        """Return the time up to which requests are planned immediately, before the next poll."""
        if not self._until:
            self._until = perf_counter() + _TURN_S
            self._schedule()
        return self._until

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Begin the next turn. Runs once between two polls."""
        self._is_scheduled, self._until = False, 0.0
        self._queues.reverse()
        if queue := self._queues[0] or self._queues[1]:
            mine = queue.popleft()
            if not mine.done():  # A client that closed its connection loses its turn.
                mine.set_result(None)
            self._schedule()


class RequestTurns:
    """The turns of one request."""

    def __init__(self, turns: Turns) -> None:
        self._turns, self._had, self._until = turns, 0, 0.0

    async def next(self) -> None:
        """Wait for the next turn of this request."""
        await self._turns.wait(self._had)
        self._had, self._until = self._had + 1, perf_counter() + _TURN_S

    async def give_way(self) -> None:
        """Wait for a turn if planning took too long since the last one."""
        if perf_counter() > (self._until or self._turns.free_until()):
            await self.next()


_current: ContextVar[RequestTurns | None] = ContextVar("turns", default=None)


def begin_request(turns: Turns) -> RequestTurns:
    """Return the turns of a request, and use them for `give_way` in this task."""
    request = RequestTurns(turns)
    _current.set(request)
    return request


async def give_way() -> None:
    """Let other requests proceed if the current one was planned for long."""
    if (request := _current.get()) is not None:
        await request.give_way()
