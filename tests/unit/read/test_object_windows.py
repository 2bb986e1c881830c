"""Windows of many small blocks far apart, read from an object store: bytes, requests, memory."""

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import seglake
from seglake.format.index import IndexPolicy
from seglake.limits import GAP_BYTES
from seglake.log.execute import SCHEMA, ReadStats, execute
from seglake.log.fetch import LogFetch
from seglake.log.segment import Window
from seglake.store import open_store
from tests.harness.object_server import ObjectServer, object_server
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.logs import MadeLog, made
from tests.unit.read.test_costs import READ

T = 1_700_000_000_000
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
    assert len(piece.ranges.starts) == 60
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
    shape = Shape("none", batch_bytes=1, policy=IndexPolicy("bytes", 1))
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
    code = READ.replace(
        "pieces[:1]", "[pieces[0]._replace(ranges=pieces[0].ranges.take(slice(1)))]"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(memory_bytes)],
        input=sent, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    records, _, grown = map(int, done.stdout.split())
    assert records == 100
    assert grown < memory_bytes, grown
