"""Reads of an object store: what is asked before its turn, how much of it, and in which order."""

import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seglake
from seglake.errors import StoreError
from seglake.format.index import IndexPolicy
from seglake.limits import GAP_BYTES, REQUESTS
from seglake.log.execute import DECODERS, SCHEMA, ReadStats, execute, map_side_by_side
from seglake.log.fetch import LogFetch, run_ahead
from seglake.log.segment import Window
from seglake.store import open_store
from tests.harness.object_server import ObjectServer, object_server
from tests.makers.lakes import Event, LakeMaker, Shape, T
from tests.makers.logs import MadeLog, Shelf, made
from tests.unit.read.test_costs import READ

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

    found = run_ahead(iter([(1, lambda: 1), (1, fail), (1, lambda: 3)]), 10)
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
        came.extend(map_side_by_side(items(), work))
    assert [(item, made[0]) for item, made in came] == [(n, 10 * n) for n in range(8)]
    others = {name for _, (_, name) in came} - {threading.current_thread().name}
    assert bool(others) == (DECODERS > 1)


# Windows of many small blocks far apart, read from an object store: bytes, requests, memory.


WINDOW = Window(T, T + 1000)
BLOCK_BYTES = 2_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ObjectServer]:
    with object_server(tmp_path) as running:
        yield running


def scattered(blocks: int, gap_bytes: int, shape: Shape) -> list[Event]:
    """Blocks in the window, each followed by a record outside of it."""
    noise = np.random.default_rng(3).bytes(max(gap_bytes, BLOCK_BYTES))
    inside = [Event(T + i, b"k", noise[:BLOCK_BYTES]) for i in range(blocks)]
    outside = Event(T + 100_000, b"k", noise[:gap_bytes])
    return [row for each in inside for row in (each, outside)]


def stored(folder: Path, log: MadeLog) -> MadeLog:
    path = folder / log.segment.log_key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(log.data)
    return log


@pytest.mark.parametrize("gap_bytes", [200, GAP_BYTES // 4, GAP_BYTES - 100, GAP_BYTES, 150_000])
@pytest.mark.parametrize("memory_bytes", [2**16, 2**25])
def test_what_is_counted_is_what_was_sent(
    server: ObjectServer, gap_bytes: int, memory_bytes: int
) -> None:
    shape = Shape("none", batch_bytes=1)
    log = stored(server.folder, made(scattered(60, gap_bytes, shape), shape))
    piece, stats = log.piece(WINDOW), ReadStats()
    assert len(piece.starts) == 60
    fetch = LogFetch(open_store(server.root, server.options))
    batches = execute(fetch, [piece], SCHEMA, memory_bytes=memory_bytes, stats=stats)
    assert sum(map(len, batches)) == 60
    assert stats.bytes_fetched == sum(server.sent)
    assert stats.requests == len(server.asked)
    joined = gap_bytes < GAP_BYTES  # a batch is a little longer than its value
    assert piece.size_bytes <= stats.bytes_fetched
    assert stats.bytes_fetched == piece.size_bytes or joined
    starts, ends = piece.spans(GAP_BYTES)
    assert len(starts) == (1 if joined else 60)
    if memory_bytes == 2**25:
        assert stats.requests == len(starts)
        assert stats.bytes_fetched == (ends - starts).sum()
    else:
        assert max(server.sent) <= 2**16 // 16


def test_a_plan_says_what_will_be_sent(server: ObjectServer) -> None:
    maker = LakeMaker(server.folder)
    shape = Shape("none", batch_bytes=1, policy=IndexPolicy(1))
    maker.run({0: scattered(160, 150_000, shape) + scattered(50, 10_000, shape)}, shape)
    log = seglake.open(server.root, storage_options=server.options).topic("events")
    plan, stats = log.plan_range(WINDOW.start_ms, WINDOW.end_ms), ReadStats()
    server.asked.clear()
    server.sent.clear()
    assert len(plan.execute(stats=stats).read_all()) == 210
    assert plan.size_bytes == stats.bytes_fetched == sum(server.sent)
    assert plan.ranges == stats.requests == len(server.asked) == 161
    assert stats.amplification < 3


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the peak of its memory")
def test_what_lies_between_blocks_takes_no_memory(server: ObjectServer) -> None:
    """90 MB of gaps, each under a MiB, in a window of 200 kB."""
    shape = Shape("none", batch_bytes=1)
    log = stored(server.folder, made(scattered(100, 900_000, shape), shape))
    store, memory_bytes = open_store(server.root, server.options), 2**24
    sent = pickle.dumps((store, [log.piece(WINDOW)]))
    code = READ.replace("pieces[:1]", "[pieces[0].take(slice(1))]")
    done = subprocess.run(
        [sys.executable, "-c", code, str(memory_bytes)],
        input=sent, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    records, _, grown = map(int, done.stdout.split())
    assert records == 100
    assert grown < memory_bytes, grown
