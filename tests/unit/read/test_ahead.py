"""Reads of an object store: what is asked before its turn, how much of it, and in which order."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from seglake.errors import StoreError
from seglake.limits import REQUESTS
from seglake.log import threads
from seglake.log.execute import SCHEMA, ReadStats, execute
from seglake.log.fetch import LogFetch
from seglake.log.segment import Window
from seglake.log.threads import ahead, worked
from tests.makers.lakes import Event, Shape
from tests.makers.logs import MadeLog, Shelf, made

T = 1_700_000_000_000
ALL = Window(0)


@pytest.fixture(scope="module")
def logs() -> list[MadeLog]:
    """Sixteen logs of about 60 KB that do not compress."""
    noise = np.random.default_rng(1).bytes(100_000)
    rows = [Event(T + i, None, noise[i * 300 : (i + 1) * 300]) for i in range(200)]
    shape = Shape("zstd", batch_bytes=2_000)
    return [made(rows, shape, partition) for partition in range(16)]


def read(store: Any, logs: list[MadeLog], memory_bytes: int, window: Window = ALL) -> list[int]:
    """The partition of each record, slowly taken."""
    found = list[Any]()
    pieces = [log.piece(window) for log in logs]
    for batch in execute(LogFetch(store), pieces, SCHEMA, memory_bytes=memory_bytes):
        found += batch["partition"].to_pylist()
    return found


def test_a_window_is_one_request_for_each_log_at_the_same_time(logs: list[MadeLog]) -> None:
    store: Any = Shelf(logs, remote=True, meet=REQUESTS)
    window = Window(T + 50, T + 60)
    assert read(store, logs, 2**25, window) == np.repeat(range(16), 10).tolist()
    assert len(store.requests) == 16
    assert store.most_under_way == REQUESTS
    assert store.bytes_read == sum(log.piece(window).size_bytes for log in logs)


def test_a_local_window_waits_for_nobody(logs: list[MadeLog]) -> None:
    store: Any = Shelf(logs, remote=False)
    read(store, logs, 2**25)
    assert store.most_under_way == 1
    assert {thread.name for thread in store.threads} == {threading.current_thread().name}


@pytest.mark.parametrize("memory_bytes", [2**17, 2**19, 2**21])
def test_bytes_under_way_are_bounded(logs: list[MadeLog], memory_bytes: int) -> None:
    store: Any = Shelf(logs, remote=True, wait_s=0.002)
    pieces, stats, waiting = [log.piece(ALL) for log in logs], ReadStats(), []
    for _ in execute(LogFetch(store), pieces, SCHEMA, memory_bytes=memory_bytes, stats=stats):
        time.sleep(0.002)  # so that all that may be asked is
        waiting.append(store.bytes_read - stats.bytes_fetched)
    fetch_bytes = memory_bytes // 16
    assert max(waiting) <= memory_bytes // 4 + 3 * fetch_bytes
    assert max(waiting) > memory_bytes // 8 or memory_bytes == 2**21  # and it is made use of
    assert stats.bytes_fetched == store.bytes_read


def test_a_large_log_takes_requests_of_one_size(logs: list[MadeLog]) -> None:
    store: Any = Shelf(logs, remote=True)
    memory_bytes = 2**17
    assert len(read(store, logs[:1], memory_bytes)) == 200
    sizes = [end - start for _, start, end in store.requests]
    assert sizes[:-1] == [memory_bytes // 16] * (len(sizes) - 1)
    assert sum(sizes) == len(logs[0].data)  # and nothing is asked twice


def test_nobody_waits_for_what_is_not_wanted_any_more(logs: list[MadeLog]) -> None:
    store: Any = Shelf(logs, remote=True, wait_s=0.01)
    batches: Any = execute(
        LogFetch(store), [log.piece(ALL) for log in logs], SCHEMA, memory_bytes=2**17
    )
    next(batches)
    batches.close()
    asked = len(store.requests)
    time.sleep(0.1)
    assert len(store.requests) <= asked + REQUESTS
    assert store.bytes_read < sum(len(log.data) for log in logs) / 2


def test_what_a_call_raises_comes_in_its_place() -> None:
    def fail() -> int:
        raise ValueError("no")

    found = ahead(iter([(1, lambda: 1), (1, fail), (1, lambda: 3)]), 10)
    assert next(found) == 1
    with pytest.raises(ValueError, match="no"):
        next(found)


def test_work_on_items_comes_in_their_order_and_an_error_after_what_came_before() -> None:
    def items() -> Iterator[int]:
        yield from range(8)
        raise StoreError("the ninth")

    def work(item: int) -> tuple[int, str]:
        time.sleep(0.02 * (item % 3 == 0))
        return 10 * item, threading.current_thread().name

    came = list[tuple[int, tuple[int, str]]]()
    with pytest.raises(StoreError, match="the ninth"):
        came.extend(worked(items(), work))
    assert [(item, made[0]) for item, made in came] == [(n, 10 * n) for n in range(8)]
    others = {name for _, (_, name) in came} - {threading.current_thread().name}
    assert bool(others) == (threads.DECODERS > 1)


def test_an_error_of_the_work_is_raised_at_its_turn() -> None:
    def work(item: int) -> int:
        return 6 // (3 - item)

    came = list[tuple[int, int]]()
    with pytest.raises(ZeroDivisionError):
        came.extend(worked(iter(range(9)), work))
    assert came == [(0, 2), (1, 3), (2, 6)]
