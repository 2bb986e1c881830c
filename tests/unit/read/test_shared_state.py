"""What readers share: caches that count what they hold, readers under threads."""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seglake
from seglake.format.index import IndexPolicy
from seglake.log import reads
from seglake.read.log import Log
from tests.makers.lakes import Event, LakeMaker, Shape

T = 1_700_000_000_000
SHAPE = Shape(batch_bytes=100, policy=IndexPolicy("bytes", 1))


def lake(root: Path, events: int, segment_bytes: int) -> LakeMaker:
    maker = LakeMaker(root)
    shape = Shape(batch_bytes=100, policy=SHAPE.policy, segment_bytes=segment_bytes)
    maker.run({0: [Event(T + i, b"k", b"v" * 40) for i in range(events)]}, shape)
    return maker


# --------------------------------------------------------------------------------------- threads


@pytest.mark.rest
def test_a_reader_under_threads_forgets_segments_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "_MOST_SEGMENTS", 4)
    reader = seglake.open(str(lake(tmp_path, 1500, 1000).root)).topic("events").reader(0)
    count = len(reader.view.segments.base_offsets)
    assert count > 30

    def ask(seed: int) -> None:
        for index in np.random.default_rng(seed).integers(0, count, 3000).tolist():
            assert reader.segment(index).base_offset == reader.view.segments.base_offsets[index]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(16) as threads:
            for done in [threads.submit(ask, seed) for seed in range(16)]:
                done.result()
    finally:
        sys.setswitchinterval(interval)


# ---------------------------------------------------------------------------------------- caches


def by_offset(log: Log, step: int) -> None:
    for offset in range(0, log.end_offsets()[0], step):
        log.record_at(0, offset)


def by_time(log: Log, step: int) -> None:
    for offset in range(0, log.end_offsets()[0], step):
        log.offsets_for_times({0: T + offset})


def one_of_each_segment(log: Log, _step: int) -> None:
    reader = log.reader(0)
    for base in reader.view.segments.base_offsets.tolist():
        reader.batch_at(base)


def windows(log: Log, step: int) -> None:
    for offset in range(0, log.end_offsets()[0], step):
        log.read_range(T + offset, T + offset + 3).read_all()


@pytest.mark.parametrize("ask", [by_offset, by_time, one_of_each_segment, windows])
@pytest.mark.parametrize(("events", "segment_bytes"), [(1500, 2**11), (9000, 2**30)])
def test_caches_hold_about_what_they_count(
    tmp_path: Path, ask: Callable[[Log, int], None], events: int, segment_bytes: int
) -> None:
    root = str(lake(tmp_path, events, segment_bytes).root)
    ask(seglake.open(root).topic("events"), 97)  # loads code, and what threads keep
    log = seglake.open(root).topic("events")
    for index in range(len(log.reader(0).view.segments.base_offsets)):
        log.reader(0).segment(index)
    reads = log._origin.reads
    caches: list[Any] = [reads.zone_maps._cache, reads.cached_fetch.cache]
    gc.collect()
    tracemalloc.start()
    try:
        ask(log, 97)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    counted = sum(cache.size_bytes for cache in caches)
    assert held < 1.3 * counted + 20_000
    assert counted < 1.6 * held
