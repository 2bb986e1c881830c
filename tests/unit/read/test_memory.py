"""What a process needs to read much more than its memory setting."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from seglake.log.segment import Window
from seglake.store import open_store
from tests.makers.lakes import Event, Shape
from tests.makers.logs import made

T = 1_700_000_000_000
MEMORY_BYTES = 24 * 2**20
LOGS = 12

READ = """
import pickle, sys
from seglake.log.execute import SCHEMA
from seglake.log.fetch import LogFetch
from seglake.log.execute import execute
store, pieces = pickle.load(sys.stdin.buffer)
def peak():  # of this program; ru_maxrss would count what its parent was when it forked
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
for first in execute(LogFetch(store), pieces[:2], SCHEMA, memory_bytes=2**16):
    pass  # loads code, and gives threads what they keep
before, records, size = peak(), 0, 0
for batch in execute(LogFetch(store), pieces, SCHEMA, memory_bytes=int(sys.argv[1])):
    records, size = records + len(batch), size + batch.nbytes
print(records, size, peak() - before)
"""


@pytest.mark.rest
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the peak of its memory")
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_window_far_larger_than_its_memory_streams(tmp_path: Path, codec: str) -> None:
    """About 400 MB of columns; the allocator and the threads may keep as much again as is set."""
    noise = np.random.default_rng(2).bytes(1_000)
    rows = [Event(T + i, b"%d" % i, noise + bytes(3_000)) for i in range(8_000)]
    log = made(rows, Shape(codec, batch_bytes=16_384))
    store, pieces = open_store(str(tmp_path)), []
    for partition in range(LOGS):
        segment = log.segment._replace(partition=partition, log_key=f"{partition}.log")
        store.put(segment.log_key, log.data)
        piece = log.piece(Window(0))
        pieces.append(piece._replace(segment=segment))
    done = subprocess.run(
        [sys.executable, "-c", READ, str(MEMORY_BYTES)],
        input=pickle.dumps((store, pieces)), capture_output=True, check=True,
    )  # fmt: skip
    records, size, grown = map(int, done.stdout.split())
    assert records == LOGS * len(rows)
    assert size > 15 * MEMORY_BYTES
    assert grown < 2 * MEMORY_BYTES
