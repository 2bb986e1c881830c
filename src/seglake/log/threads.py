"""Share threads among all reads of a process: some wait for storage, the others decode.

The threads start when they are first needed. A forked process starts its own threads.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import TypeVar

from numba.core.compiler_lock import global_compiler_lock

from seglake.errors import SeglakeError
from seglake.limits import REQUESTS

_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
DECODERS = min(4, _CORES)

_pools: dict[str, ThreadPoolExecutor] = {}
_READING = list[None]()  # an item for each thread that reads now, and does not wait for its caller
_Item = TypeVar("_Item")
_Given = TypeVar("_Given")


def ahead(calls: Iterable[tuple[int, Callable[[], _Item]]], limit: int) -> Iterator[_Item]:
    """Yield the results of the calls, in order. Each call has a weight.

    Calls run on the threads that wait for storage. A call starts early if its weight, plus the
    weights of all calls whose results were not taken yet, is at most `limit`.
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


def after(first: Callable[[], object], then: Callable[..., _Item]) -> Callable[..., _Item]:
    """Start `first` now on another thread, and return `then`, which waits for it first.

    An error of `first` is raised when the returned function is called.
    """
    done = _pool("seglake-beside", REQUESTS).submit(first)

    def call(*args: object) -> _Item:
        done.result()
        return then(*args)

    return call


def side_by_side(shares: Iterator[Iterator[_Item]], threads: int) -> Iterator[_Item]:
    """Run iterators (`shares`) on several threads. Yield their items, one share after another.

    While the caller takes the items of one share, the next `threads` shares make their first item
    on other threads. That is one share more than there are spare threads, because one share may
    finish early. With one share or one thread, or while other readers keep all cores busy, every
    share runs on the caller's thread. An error of a share is raised in the order of the shares.
    """
    items = _side_by_side(shares, threads if threads > 1 else 0)
    while True:
        _READING.append(None)
        try:
            item = next(items, None)
        finally:
            _READING.pop()
        if item is None:
            return
        yield item


def _side_by_side(shares: Iterator[Iterator[_Item]], others: int) -> Iterator[_Item]:
    waiting: deque[tuple[Iterator[_Item], Future[_Item | None]]] = deque()
    own = _next(shares)
    try:
        while own is not None:
            _start(shares, others, waiting)
            yield from own
            if waiting:
                share, future = waiting.popleft()
                _start(shares, others, waiting)
                first = future.result()
                own = share if first is None else chain([first], share)
            else:
                own = _next(shares)
    finally:
        for _, future in waiting:
            future.cancel()


def worked(
    items: Iterator[_Given], work: Callable[[_Given], _Item]
) -> Iterator[tuple[_Given, _Item]]:
    """Yield each item with the result of `work`, in order, concurrently like `side_by_side`.

    An error of `items` is raised after the items that precede it.
    """

    def share(item: _Given) -> Iterator[tuple[_Given, _Item]]:
        yield item, work(item)

    return _side_by_side(map(share, items), DECODERS if DECODERS > 1 else 0)


def take_spare(items: deque[_Item]) -> _Item | None:
    """Take an item, or return None. Other threads may take items at the same time."""
    try:
        return items.pop()
    except IndexError:
        return None


def _start(
    shares: Iterator[Iterator[_Item]],
    count: int,
    waiting: deque[tuple[Iterator[_Item], Future[_Item | None]]],
) -> None:
    if 2 * len(_READING) > _CORES:  # the readers keep all cores busy
        return
    while len(waiting) < count and (share := _next(shares)) is not None:
        waiting.append((share, _pool("seglake-decode", DECODERS).submit(next, share, None)))


def _next(shares: Iterator[Iterator[_Item]]) -> Iterator[_Item] | None:
    try:
        return next(shares, None)
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
os.register_at_fork(after_in_child=_READING.clear)  # in a forked process no other thread reads

# A fork waits until no thread compiles or loads a kernel. Otherwise the child would wait forever
# for a lock that a thread of its parent held.
os.register_at_fork(
    before=global_compiler_lock.acquire,
    after_in_parent=global_compiler_lock.release,
    after_in_child=global_compiler_lock.release,
)
