"""The threads that all reads of a process share: some wait for storage, some decode.

Both kinds are started when first needed. A forked process starts its own.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import TypeVar

from numba.core.compiler_lock import global_compiler_lock

from seglake.errors import SeglakeError
from seglake.limits import REQUESTS

DECODERS = min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)

_pools: dict[str, ThreadPoolExecutor] = {}
_Item = TypeVar("_Item")


def ahead(calls: Iterable[tuple[int, Callable[[], _Item]]], limit: int) -> Iterator[_Item]:
    """What the calls return, in order; each comes with its weight.

    They wait for storage on threads for that. Calls are made before their turn as long as the
    weights of those whose results were not taken yet add up to `limit` at most.
    """
    pool, weight = _pool("seglake-request", REQUESTS), 0
    waiting: deque[tuple[int, Future[_Item]]] = deque()
    try:
        for own, call in calls:
            while waiting and weight + own > limit:
                yield waiting[0][1].result()
                weight -= waiting.popleft()[0]
            waiting.append((own, pool.submit(call)))
            weight += own
        while waiting:
            yield waiting.popleft()[1].result()
    finally:
        for _, future in waiting:
            future.cancel()


def side_by_side(runs: Iterator[Iterator[_Item]], threads: int) -> Iterator[_Item]:
    """The items of the runs, one run after another.

    While those of one are handed on, the next runs make their first item on other threads, so that
    `threads` runs are under way. A single run, or one thread, never leaves the caller's thread.
    What a run raises comes in its place.
    """
    waiting: deque[tuple[Iterator[_Item], Future[_Item | None]]] = deque()
    own = _next(runs)
    try:
        while own is not None:
            _start(runs, threads - 1, waiting)
            yield from own
            if waiting:
                run, future = waiting.popleft()
                _start(runs, threads - 1, waiting)
                first = future.result()
                own = run if first is None else chain([first], run)
            else:
                own = _next(runs)
    finally:
        for _, future in waiting:
            future.cancel()


def _start(
    runs: Iterator[Iterator[_Item]],
    count: int,
    waiting: deque[tuple[Iterator[_Item], Future[_Item | None]]],
) -> None:
    while len(waiting) < count and (run := _next(runs)) is not None:
        waiting.append((run, _pool("seglake-decode", DECODERS).submit(next, run, None)))


def _next(runs: Iterator[Iterator[_Item]]) -> Iterator[_Item] | None:
    try:
        return next(runs, None)
    except SeglakeError as error:
        return _raising(error)


def _raising(error: SeglakeError) -> Iterator[_Item]:
    raise error
    yield


def _pool(name: str, workers: int) -> ThreadPoolExecutor:
    pool = _pools.get(name)
    if pool is None:
        pool = _pools.setdefault(name, ThreadPoolExecutor(workers, thread_name_prefix=name))
    return pool


os.register_at_fork(after_in_child=_pools.clear)

# A fork waits until no thread compiles or loads a kernel: the child would wait for that for ever.
os.register_at_fork(
    before=global_compiler_lock.acquire,
    after_in_parent=global_compiler_lock.release,
    after_in_child=global_compiler_lock.release,
)
