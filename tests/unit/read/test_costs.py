"""What lookups and windows cost: requests, bytes, memory."""

import gc
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.catalog.version.segments import ATTEMPT, DETAILS, AttemptIds, Segments
from seglake.catalog.version.snapshot import PartitionView
from seglake.format import zonemap
from seglake.format.encode import encode_batches, encode_bodies
from seglake.format.index import IndexPolicy
from seglake.format.segment import choose_indexed
from seglake.format.zonemap import ZoneMap
from seglake.log import reads
from seglake.log.caches import ByteCache
from seglake.log.execute import ReadStats
from seglake.log.reads import PartitionReader, SharedReads
from seglake.log.segment import Window
from seglake.log.zone_maps import ZoneSearch
from seglake.read.lake import Lake
from seglake.read.log import Log
from seglake.store import open_store
from tests.harness.counting import CountingStore
from tests.judges.described import describe
from tests.makers.lakes import Event, LakeMaker, Shape, T, records_of
from tests.makers.logs import made
from tests.makers.strategies import event_lists, examples
from tests.makers.zones import ZoneBytes

BLOCK_LIMIT = 1500  # of the small segments
BLOCKS, BLOCK_BYTES, BLOCK_RECORDS = 262_144, 4096, 30  # 1 GiB with an entry every 4096 bytes

USE = f"""
import sys, seglake
log = seglake.open(sys.argv[1]).topic("t")
assert len(log.offsets_for_times({{0: {T}, 1: {T}}})) == 2
assert log.read_range({T}, {T + 9}).read_all().num_rows == 36
heavy = "pandas", "numba.typed.typeddict", "pydantic", "pyspark"
print([name for name in heavy if name in sys.modules])
"""


def block(number: int) -> bytes:
    """The batch that is block `number`: 30 records in exactly 4096 bytes."""
    for last_size in range(60, 500):
        sizes = [120] * (BLOCK_RECORDS - 1) + [last_size]
        first = T + number * BLOCK_RECORDS
        rows = [Event(first + i, b"", bytes(size)) for i, size in enumerate(sizes)]
        records = records_of(rows)
        bodies = encode_bodies(records, np.arange(len(rows)))
        encoding = Shape(batch_bytes=2 * BLOCK_BYTES).encoding
        batches = encode_batches(
            records.timestamps, bodies, encoding, base_offset=number * BLOCK_RECORDS
        )
        if len(batches.data) == BLOCK_BYTES:
            return batches.data.tobytes()
    raise AssertionError("no size of the last value fits")


def write_large(
    tmp_path: Path, number: int, blocks: int = BLOCKS
) -> tuple[PartitionReader, CountingStore]:
    """A segment of as many blocks, of which only block `number` is on the disk."""
    numbers = np.arange(blocks, dtype=np.int64)
    low = T + numbers * BLOCK_RECORDS
    starts = numbers * BLOCK_BYTES
    highs = low + BLOCK_RECORDS - 1
    zones = ZoneMap(numbers * BLOCK_RECORDS, starts, starts + BLOCK_BYTES, low, highs)
    details = np.zeros(1, DETAILS)
    data = zonemap.encode(zones)
    details["sizes"] = [[blocks * BLOCK_BYTES, 0, 0, len(data), 0]]
    details["record_count"] = blocks * BLOCK_RECORDS
    segments = Segments(
        np.array([0]), np.array([blocks * BLOCK_RECORDS]), low[:1], highs[-1:], details,
        AttemptIds(np.zeros(1, ATTEMPT)),
    )  # fmt: skip
    view = PartitionView("events", 0, segments)
    store = CountingStore(open_store(str(tmp_path)))
    store.put(view.segment(0).key("zonemap"), data)
    path = tmp_path / view.segment(0).key("log")
    with path.open("wb") as log:
        log.truncate(blocks * BLOCK_BYTES)
        log.seek(number * BLOCK_BYTES)
        log.write(block(number))
    store.counts.requests = store.counts.bytes_read = 0
    return PartitionReader(view, SharedReads(store)), store


@pytest.mark.parametrize("number", [0, 511, 512, 123_456, BLOCKS - 1])
def test_a_cold_time_lookup_in_a_segment_of_1_gib(tmp_path: Path, number: int) -> None:
    reader, store = write_large(tmp_path, number)
    wanted = number * BLOCK_RECORDS + 7
    assert reader.offset_for_time(T + wanted) == (wanted, T + wanted)
    assert store.counts.requests <= 3
    assert store.counts.bytes_read <= 128 * 1024
    before = store.counts.bytes_read
    assert reader.offset_for_time(T + wanted + 1) == (wanted + 1, T + wanted + 1)
    assert store.counts.bytes_read == before  # now it is warm


@pytest.mark.parametrize("number", [0, 262_000])
def test_a_cold_offset_lookup_in_a_segment_of_1_gib(tmp_path: Path, number: int) -> None:
    reader, store = write_large(tmp_path, number)
    wanted = number * BLOCK_RECORDS + 29
    batch, row = reader.batch_at(wanted)
    assert batch.offsets[row] == wanted
    assert store.counts.requests <= 3
    assert store.counts.bytes_read <= 128 * 1024


@pytest.mark.parametrize("span", [0, 16, 512])
@pytest.mark.parametrize("blocks", [2_720, 2_735, 9_600, 2**14 - 40, 2**14 + 40, 2**16, 2**17])
def test_a_cold_lookup_fetches_few_fences_and_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int, span: int
) -> None:
    """For its size; files whose fences have other spans cost a request more, at most."""
    with monkeypatch.context() as patch:
        if span:
            patch.setattr(zonemap, "span_of", lambda _: span)
        reader, store = write_large(tmp_path, number=blocks // 2, blocks=blocks)
    wanted = blocks // 2 * BLOCK_RECORDS + 7
    assert reader.offset_for_time(T + wanted) == (wanted, T + wanted)
    assert store.counts.requests <= (4 if span == 16 else 3)
    index = store.counts.bytes_read - BLOCK_BYTES
    if not span:
        least = 2 * (zonemap.FENCE.itemsize * zonemap.ENTRY.itemsize * blocks) ** 0.5
        assert index <= max(1.7 * least, zonemap.SMALL_BYTES if blocks < 2_730 else 0)


def counted(maker: LakeMaker) -> tuple[Lake, CountingStore]:
    store = CountingStore(open_store(str(maker.root)))
    return Lake(store), store


@pytest.mark.parametrize(
    ("every_ms", "lateness_ms", "limit"), [(1, 0, 1.2), (1, 200, 2.0), (4, 5_000, 2.0)]
)
def test_a_window_reads_few_bytes_outside(
    tmp_path: Path, every_ms: int, lateness_ms: int, limit: float
) -> None:
    rng = np.random.default_rng(5)
    times = T + np.arange(20_000) * every_ms - rng.integers(0, lateness_ms + 1, 20_000)
    maker = LakeMaker(tmp_path)
    rows = [Event(time, b"key", b"x" * 40) for time in times.tolist()]
    maker.run({0: rows}, Shape(batch_bytes=600, policy=IndexPolicy(BLOCK_LIMIT)))
    lake, store = counted(maker)
    log, stats = lake.topic("events"), ReadStats()
    start, end = T + 10_000 * every_ms, T + 15_000 * every_ms
    plan = log.plan_range(start, end)
    store.counts.bytes_read = 0
    table = plan.execute(stats=stats).read_all()
    assert len(table) == int(((times >= start) & (times < end)).sum()) == stats.records
    assert store.counts.bytes_read == stats.bytes_fetched == plan.size_bytes
    assert stats.bytes_fetched > 100 * BLOCK_LIMIT
    assert stats.amplification <= limit
    by_offsets, exact = kafka_reads(maker, times, start, end)
    assert exact == (not lateness_ms)
    if exact:  # else its bytes are fewer because it loses records
        assert stats.bytes_fetched <= by_offsets + 2 * BLOCK_LIMIT


def kafka_reads(
    maker: LakeMaker, times: npt.NDArray[Any], start: int, end: int
) -> tuple[int, bool]:
    """The bytes of the batches from the offset of one time to that of another, and if all is there.

    Kafka finds the first by reading on from an index entry, which is not counted.
    """
    first, last = (int(np.argmax(times >= time)) for time in (start, end))
    (file,) = maker.files("log")
    table = describe(file.read_bytes())
    some = table[(table["last_offset"] >= first) & (table["base_offset"] < last)]
    wanted = np.flatnonzero((times >= start) & (times < end))
    exact = np.array_equal(wanted, np.arange(first, last))
    return int(some["size"].sum()), exact


@given(event_lists(min_size=2), st.integers(-5, 60), st.integers(1, 60), st.integers(0, 900))
@examples(30)
def test_no_block_is_read_that_does_not_meet_the_window(
    rows: list[Event], start: int, length: int, interval: int
) -> None:
    shape, policy = Shape(batch_bytes=150), IndexPolicy(interval)
    log = made(rows, shape)
    begins = np.flatnonzero(choose_indexed(log.table, policy) | (log.table["position"] == 0))
    low, high = max(T + start, 0), T + start + length
    wanted = set()
    for first, last in pairwise([*begins.tolist(), len(log.table)]):
        block = log.table[first:last]
        if block["max_timestamp"].max() >= low and block["min_timestamp"].min() < high:
            wanted |= set(block["position"].tolist())
    zones = zonemap.encode(zonemap.build(0, log.table, choose_indexed(log.table, policy)))
    segment = log.segment._replace(zonemap_bytes=len(zones))
    found = ZoneSearch(segment, ZoneBytes(zones))
    piece = found.within(Window(low, high))
    positions = log.table["position"].tolist()
    taken = [
        at
        for begin, end in zip(piece.starts.tolist(), piece.ends.tolist(), strict=True)
        for at in positions
        if begin <= at < end
    ]
    assert set(taken) == wanted
    assert len(taken) == len(wanted)
    assert np.all(piece.starts[1:] > piece.ends[:-1])  # neighbours are one range
    assert piece.records_at_most >= sum(low <= row.timestamp < high for row in log.records)


def test_a_whole_segment_needs_no_zone_map(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(T + i) for i in range(100)]})
    for file in maker.files("zonemap"):
        file.unlink()
    assert len(seglake.open(str(tmp_path)).topic("events").read_range(T, T + 100).read_all()) == 100


@pytest.mark.parametrize("order", ["offset", "time"])
def test_memory_is_bounded_whatever_is_read(tmp_path: Path, order: str) -> None:
    maker = LakeMaker(tmp_path, partitions=2)
    rng = np.random.default_rng(6)
    for _ in range(2):
        times = rng.integers(T, T + 1000, 1_000).tolist()
        rows = [Event(time, None, bytes(100)) for time in times]
        maker.run({0: rows, 1: rows}, Shape("zstd", batch_bytes=4000, policy=IndexPolicy()))
    log = seglake.open(str(tmp_path)).topic("events")
    memory_bytes, seen = 200_000, 0
    for batch in log.read_range(T, T + 1000, order=order, memory_bytes=memory_bytes):
        assert batch.nbytes <= memory_bytes
        seen += len(batch)
    assert seen == 4_000


def test_reading_a_few_records_does_not_read_the_log(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path)
    rows = [Event(T + i, None, bytes(100)) for i in range(15_000)]
    maker.run({0: rows}, Shape(batch_bytes=2000))
    lake, store = counted(maker)
    log = lake.topic("events")
    store.counts.bytes_read = 0
    assert log.read(0, 9_000, max_records=3)["offset"].to_pylist() == [9_000, 9_001, 9_002]
    assert store.counts.bytes_read < 200_000


class TestCache:
    def test_keeps_at_most_its_limit(self) -> None:
        cache = ByteCache(100)
        for key in range(50):
            cache.put(key, str(key), 30)
            assert cache.size_bytes <= 100
        assert cache.get(49) == "49"
        assert len(cache._entries) == 3

    def test_what_is_used_stays(self) -> None:
        cache = ByteCache(100)
        for key in range(3):
            cache.put(key, key, 30)
        for key in range(3, 20):
            assert cache.get(0) == 0
            cache.put(key, key, 30)

    def test_a_value_too_large_is_not_kept(self) -> None:
        cache = ByteCache(100)
        cache.put("small", 1, 10)
        cache.put("large", 2, 101)
        assert cache.get("large") is None
        assert cache.get("small") == 1

    def test_putting_again_changes_the_size(self) -> None:
        cache = ByteCache(100)
        cache.put("a", 1, 90)
        cache.put("a", 2, 10)
        assert (cache.get("a"), cache.size_bytes) == (2, 10)


def test_a_process_that_only_reads_imports_neither_pandas_nor_what_a_compiler_needs(
    tmp_path: Path,
) -> None:
    maker = LakeMaker(tmp_path / "lake", "t", partitions=2)
    for headers in ((), (("h", b"1"),)):
        rows = [Event(T + i, b"k", b"v", headers) for i in range(9)]
        maker.run({0: rows, 1: rows})
    for last in (False, True):  # the first process may compile kernels
        command = [sys.executable, "-c", USE, str(tmp_path / "lake")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout == "[]\n" or not last


# What a process needs to read much more than its memory setting.
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


# What readers share: caches that count what they hold, readers under threads.


SHAPE = Shape(batch_bytes=100, policy=IndexPolicy(1))


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
