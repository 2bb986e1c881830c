"""Short windows in one call: equal to what planning, fetching and decoding give, errors too."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

import seglake
from seglake.errors import SeglakeError
from seglake.format.codecs import codec_kernels, native
from seglake.format.records import Int64s
from seglake.log.decode.column_kernels import DONE
from seglake.log.decode.columns import SCHEMA
from seglake.log.execute import ReadStats
from seglake.log.short import slots
from seglake.log.short import windows as short
from seglake.log.short.share_kernels import FINISHED, REASON, SHARE, SLOT_FIELDS, WAKES
from seglake.read.log import Log
from tests.harness.tiers import rest_but
from tests.makers.gaps import Loss
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.strategies import T, examples
from tests.makers.versions import Run, cuts, lake_of, lost, runs

COLUMNS = ["key", "value", "timestamp"]
EVERYTHING = (0, T + 1000)
names = st.lists(st.sampled_from(SCHEMA.names), unique=True, min_size=1)
KERNELS = """
import sys
import seglake
from seglake.log.blocks.search_kernels import first_reaching
from seglake.log.short.share_kernels import help_readers, read_shares
from seglake.log.short.window_kernels import choose, plan_stretches

def loaded():
    kernels = choose, plan_stretches, read_shares, help_readers
    return [len(kernel.signatures) for kernel in kernels]

print(loaded())
log = seglake.open(sys.argv[1]).topic("events")
print(loaded())
log.plan_range(0, 2**62)
print(loaded())
print(log.read_range(0, 2**62).read_all().num_rows)
print(loaded())
log.offsets_for_times({0: 0})
print(len(first_reaching.signatures))
"""
windows = st.lists(
    st.tuples(st.integers(T - 60, T + 200), st.integers(0, 200)), min_size=1, max_size=4
)


@contextmanager
def counted() -> Iterator[list[bool]]:
    """Whether each share that the kernel was asked for was one for it."""
    answers, read = list[bool](), slots.read

    def count(shares: Int64s) -> None:
        read(shares)
        answers.extend((shares[:, REASON] == DONE).tolist())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots, "read", count)
        yield answers


def long_way(log: Log, window: tuple[int, int], columns: list[str], **options: Any) -> pa.Table:
    """The records as planned, fetched and decoded, without a cache of batches."""
    plan = log.plan_range(*window, columns=columns)
    return replace(plan, fetch=log._origin.reads.fetch).execute(**options).read_all()


@given(runs, cuts, st.booleans(), lost, windows, names, st.sampled_from([1, 5_000, 2**25]))
@examples(60)
def test_both_ways_are_equal(
    generated: list[Run],
    cut: float,
    log_append: bool,
    loss: Loss | None,
    asked: list[tuple[int, int]],
    columns: list[str],
    memory_bytes: int,
) -> None:
    with lake_of(generated, cut, log_append, loss) as (log, _maker):
        for number, (start, length) in enumerate(asked):
            window, stats, expected_stats = (start, start + length), ReadStats(), ReadStats()
            expected = long_way(
                log, window, columns, memory_bytes=memory_bytes, stats=expected_stats
            )
            with counted() as answers:
                found = log.read_range(
                    *window, columns=columns, memory_bytes=memory_bytes, stats=stats
                ).read_all()
            assert found.equals(expected)
            assert stats.records == expected_stats.records
            if not number and (any(answers) or not expected_stats.requests):
                assert stats == expected_stats  # later on, some of it may be cached


def test_a_small_cache_forgets(tmp_path: Path) -> None:
    """What leaves the cache is decompressed again, and leaves memory."""
    made(tmp_path)
    log = seglake.open(str(tmp_path), cache_bytes=100_000).topic("events")
    slabs: Any = log._origin.reads.cached_fetch.slabs
    with counted() as answers:
        for start in [*range(T, T + 600, 20)] * 6:
            for _ in range(4):
                found = log.read_range(start, start + 15, columns=COLUMNS).read_all()
                assert found.equals(long_way(log, (start, start + 15), COLUMNS))
    assert slabs.dropped_bytes
    assert all(answers)
    assert slabs.size_bytes <= slabs.limit_bytes
    held = dict(slabs._slabs)
    for shelved in slabs._shelved.values():
        held |= shelved.slabs
    assert sum(slab.size_bytes for slab in held.values()) <= slabs.limit_bytes * 17 / 16 + 50_000


def made(root: Path, codec: str = "zstd", headers: bool = False, **shape: Any) -> LakeMaker:
    maker = LakeMaker(root, partitions=2)
    with_headers = (("h", b"1"),) if headers else ()
    rows = {
        p: [Event(T + i, b"k%d" % i, b"v%d" % i * 3, with_headers) for i in range(p, 600, 2)]
        for p in range(2)
    }
    maker.run(rows, Shape(codec, batch_bytes=400, **shape))
    return maker


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_usual_windows_go_the_short_way(tmp_path: Path, codec: str) -> None:
    made(tmp_path, codec)
    log = seglake.open(str(tmp_path)).topic("events")
    with counted() as answers:
        for start in range(T, T + 600, 50):
            expected = long_way(log, (start, start + 20), COLUMNS)
            found = log.read_range(start, start + 20, columns=COLUMNS).read_all()
            assert found.num_rows == 20
            assert found.equals(expected)
        assert log.read_range(0, T + 600, columns=COLUMNS).read_all().num_rows == 600
    assert answers == [True] * 13


def test_neighbours_share_batches_and_are_not_cached(tmp_path: Path) -> None:
    """Of a window most batches are new, though its first ones are the last of the one before."""
    made(tmp_path)
    log = seglake.open(str(tmp_path)).topic("events")
    log.plan_range(T + 1, T + 2)
    with counted() as answers:
        for start in range(T, T + 600, 60):
            expected = long_way(log, (start, start + 60), COLUMNS)
            found = log.read_range(start, start + 60, columns=COLUMNS).read_all()
            assert found.equals(expected)
    assert answers == [True] * 10
    assert log._origin.reads.cached_fetch.slabs.size_bytes == 0


def test_a_window_that_comes_again_is_cached(tmp_path: Path) -> None:
    made(tmp_path)
    log = seglake.open(str(tmp_path)).topic("events")
    log.plan_range(T + 100, T + 120)
    stats = [ReadStats() for _ in range(4)]
    with counted() as answers:
        tables = [log.read_range(T + 100, T + 120, stats=each).read_all() for each in stats]
    assert answers == [True] * 4
    assert [each.requests for each in stats] == [2, 2, 2, 0]
    assert all(table.equals(tables[0]) for table in tables)


@pytest.mark.parametrize("cache_bytes", [0, 10_000])
def test_what_is_too_large_for_the_cache_is_not_remembered(
    tmp_path: Path, cache_bytes: int
) -> None:
    made(tmp_path)
    lake = seglake.open(str(tmp_path), cache_bytes=cache_bytes)
    log = lake.topic("events")
    assert log.read_range(0, T + 600).read_all().num_rows == 600  # all of each segment: no zone map
    assert not log._origin.reads.cached_fetch.slabs.seen.any()


def test_headers_are_left_to_others_from_the_first_on(tmp_path: Path) -> None:
    made(tmp_path, headers=True)
    log = seglake.open(str(tmp_path)).topic("events")
    with counted() as answers:
        for start in (T, T + 100, T + 200):
            expected = long_way(log, (start, start + 9), SCHEMA.names)
            assert log.read_range(start, start + 9).read_all().equals(expected)
        assert answers == [False]
        log.read_range(T + 300, T + 309, columns=COLUMNS).read_all()
    assert answers == [False, True]


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_other_codecs_are_left_to_others_from_the_first_on(tmp_path: Path, codec: str) -> None:
    made(tmp_path, codec)
    log = seglake.open(str(tmp_path)).topic("events")
    with counted() as answers:
        for start in (T, T + 100, T + 200):
            for columns in (COLUMNS, SCHEMA.names):
                expected = long_way(log, (start, start + 9), columns)
                found = log.read_range(start, start + 9, columns=columns).read_all()
                assert found.equals(expected)
    assert answers == [False]


def test_more_bytes_than_there_is_room_for(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(T + i, None, b"%d" % i * 25_000) for i in range(100)]}, Shape("none"))
    log = seglake.open(str(tmp_path)).topic("events")
    with counted() as answers:
        table = log.read_range(T, T + 100).read_all()
        assert table.equals(long_way(log, (T, T + 100), SCHEMA.names))
    assert not answers


@pytest.mark.parametrize(("codec", "mebibytes"), [("none", 3), ("lz4", 2), ("zstd", 1)])
def test_more_than_one_share_holds_is_shared_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, mebibytes: int
) -> None:
    """On a single thread."""
    monkeypatch.setattr(short, "READERS", nullcontext(1))
    random = np.random.default_rng(1)
    events = [Event(T + i, None, random.bytes(500) * 2) for i in range(mebibytes * 1000)]
    parts = {0: events[::3], 1: events[1::3], 2: events[2::3]}
    LakeMaker(tmp_path, partitions=3).run(parts, Shape(codec, batch_bytes=16_384))
    log, window = seglake.open(str(tmp_path)).topic("events"), (T + 150, T + len(events))
    log.read_range(T, T + 3).read_all()  # then zone maps are in memory
    log.read_range(T + 60, T + 63).read_all()  # and the codec is known
    with counted() as answers:
        table = log.read_range(*window).read_all()
    assert table.equals(long_way(log, window, SCHEMA.names))
    assert answers in ([True, True], [True] * 3)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_window_of_one_log_partition_is_shared_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    """Its one stretch of the log is cut between index blocks, new and, the fourth time, cached."""
    monkeypatch.setattr(short, "READERS", nullcontext(2))
    monkeypatch.setattr(short, "_LEAST_CACHED", 2**16)
    random = np.random.default_rng(1)
    events = [Event(T + i, None, random.bytes(200)) for i in range(3000)]
    LakeMaker(tmp_path).run({0: events}, Shape(codec, batch_bytes=16_384))
    log, window = seglake.open(str(tmp_path)).topic("events"), (T + 100, T + 2900)
    log.read_range(T, T + 3).read_all()  # then its zone map is in memory
    for requests in ({2, 3}, {2, 3}, {2, 3}, {0}):
        stats = ReadStats()
        with counted() as answers:
            table = log.read_range(*window, stats=stats).read_all()
        assert table.equals(long_way(log, window, SCHEMA.names))
        assert answers == [True, True]
        assert stats.requests in requests


def test_a_log_that_is_compressed_well_has_shorter_windows(tmp_path: Path) -> None:
    """What does not fit the columns of an Arrow batch is tried a few times, then no more."""
    maker = LakeMaker(tmp_path)
    shape = Shape("zstd", batch_bytes=16_384)
    maker.run({0: [Event(T + i, None, b"%d" % i * 3000) for i in range(400)]}, shape)
    log = seglake.open(str(tmp_path), cache_bytes=0).topic("events")
    with counted() as answers:
        for _ in range(20):
            assert log.read_range(T, T + 400).read_all().num_rows == 400
    assert 0 < len(answers) < 10
    assert not any(answers)


@pytest.fixture
def shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any window of two batches has two shares, however many are read at once."""
    monkeypatch.setattr(short, "READERS", nullcontext(4))
    monkeypatch.setattr(slots, "DECODERS", 4)
    monkeypatch.setattr(slots, "_slots", np.zeros((0, SLOT_FIELDS), np.int64))
    monkeypatch.setattr(short, "_LEAST_BYTES", dict.fromkeys(range(5), 1))


@pytest.mark.usefixtures("shared_out")
def test_large_windows_are_shared_out(tmp_path: Path) -> None:
    made(tmp_path)
    log = seglake.open(str(tmp_path)).topic("events")
    stats = ReadStats()
    with counted() as answers:
        found = log.read_range(0, T + 600, columns=COLUMNS, stats=stats).read_all()
    assert found.equals(long_way(log, (0, T + 600), COLUMNS))
    assert answers == [True, True]  # one for each of two segments
    assert stats.records == 600
    assert stats.requests == 2


@pytest.mark.usefixtures("shared_out")
def test_helpers_read_shares_that_are_put_into_their_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker, random = LakeMaker(tmp_path), np.random.default_rng(1)
    events = [Event(T + i, None, random.bytes(150)) for i in range(2000)]
    maker.run({0: events[::2]}, Shape("zstd", batch_bytes=4_000))
    maker.run({0: events[1::2]}, Shape("zstd", batch_bytes=4_000))
    log = seglake.open(str(tmp_path), cache_bytes=0).topic("events")
    helped, read = [0], slots.read

    def count(shares: Int64s) -> None:
        read(shares)
        helped[0] += int(shares[1:, FINISHED].sum())

    monkeypatch.setattr(slots, "read", count)
    expected = long_way(log, (T, T + 2000), COLUMNS)
    for _ in range(2_000):  # a helper may not be awake when all else is done
        assert log.read_range(T, T + 2000, columns=COLUMNS).read_all().equals(expected)
        if helped[0] > 100:
            return
    raise AssertionError(f"helped {helped[0]} times")


@pytest.mark.usefixtures("shared_out")
@pytest.mark.parametrize("busy", [False, True])
def test_without_a_helper_a_share_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    """One who never wakes, and one whose slot has the share of another reader."""
    made(tmp_path)
    log = seglake.open(str(tmp_path), cache_bytes=0).topic("events")
    those = np.zeros((3, SLOT_FIELDS), np.int64)
    ends = os.pipe()
    those[:, WAKES], those[:, SHARE] = ends[1], 12345 if busy else 0
    monkeypatch.setattr(slots, "_slots", those)
    for _ in range(3):
        found = log.read_range(*EVERYTHING, columns=COLUMNS).read_all()
        assert found.equals(long_way(log, EVERYTHING, COLUMNS))
    assert (those[:, SHARE] == (12345 if busy else 0)).all()
    os.close(ends[1])
    assert bool(os.read(ends[0], 100)) != busy  # a byte for each share that was put there
    os.close(ends[0])


@pytest.mark.usefixtures("shared_out")
def test_a_forked_process_has_helpers_of_its_own(tmp_path: Path) -> None:
    made(tmp_path)
    log = seglake.open(str(tmp_path), cache_bytes=0).topic("events")
    expected = long_way(log, EVERYTHING, COLUMNS)
    before = log.read_range(*EVERYTHING, columns=COLUMNS).read_all()
    assert len(slots._slots) == 3
    child = os.fork()
    if not child:
        right = not len(slots._slots)
        for _ in range(100):
            found = log.read_range(*EVERYTHING, columns=COLUMNS).read_all()
            right = right and bool(found.equals(expected))
        os._exit(0 if right and len(slots._slots) == 3 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert before.equals(log.read_range(*EVERYTHING, columns=COLUMNS).read_all())


@given(st.lists(st.integers(0, 100), min_size=1, max_size=12), st.integers(1, 5))
def test_cuts_are_within(sizes: list[int], shares: int) -> None:
    starts = [0, *itertools.accumulate(sizes)]
    cuts = short._cuts(starts, shares)
    assert (cuts[0], cuts[-1]) == (0, len(sizes))
    assert cuts == sorted(set(cuts))
    assert len(cuts) <= shares + 1


def every_state(log: bytes) -> Iterator[bytes | None]:
    """A log with a flipped bit here and there, cut off, longer, empty, gone."""
    for at in range(0, len(log), 5):
        changed = bytearray(log)
        changed[at] ^= 1 << at % 8
        yield bytes(changed)
    yield from (log[: len(log) // 2], log[:-1], log + log[:100], b"", None)


@pytest.mark.parametrize("codec", rest_but(["none", "lz4", "zstd"], "zstd"))
def test_damage_has_the_same_words(tmp_path: Path, codec: str) -> None:
    made(tmp_path, codec, segment_bytes=1200)
    path = min(tmp_path.rglob("*.log"))
    window, different = (T + 3, T + 17), 0
    for state in every_state(path.read_bytes()):
        path.unlink()
        if state is not None:
            path.write_bytes(state)
        log = seglake.open(str(tmp_path)).topic("events")
        log.plan_range(*window)
        with counted() as answers:
            found = outcome(partial(log.read_range, *window, columns=COLUMNS))
        assert len(answers) == (state is not None)
        assert found == outcome(partial(long_way, log, window, COLUMNS))
        different += isinstance(found, tuple)
    assert different > 50


def outcome(read: Callable[[], Any]) -> Any:
    """The records, or the kind of error and its words."""
    try:
        found = read()
        return found if isinstance(found, pa.Table) else found.read_all()
    except SeglakeError as error:
        return type(error), str(error)


@pytest.mark.usefixtures("shared_out")
@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_many_threads_share_the_helpers(tmp_path: Path, codec: str) -> None:
    made(tmp_path, codec)
    log = seglake.open(str(tmp_path)).topic("events")

    def ask(number: int) -> None:
        at = T + 7 * number % 580
        found = log.read_range(at, at + 10, columns=["timestamp"]).read_all()["timestamp"]
        expected = np.arange(at, min(at + 10, T + 600))
        assert np.array_equal(np.sort(found.cast(pa.int64()).to_numpy()), expected)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(ask, range(600)))


def test_nothing_to_read(tmp_path: Path) -> None:
    made(tmp_path)
    log = seglake.open(str(tmp_path)).topic("events")
    for window in ((T, T), (0, 5), (T + 600, T + 10_000)):
        assert log.read_range(*window).read_all().num_rows == 0
    assert log.read_range(T, T + 5, partitions=[]).read_all().num_rows == 0
    assert log.read_range(T, T + 4, partitions=[0, 0]).read_all().num_rows == 4


def test_without_native_libraries_there_is_no_short_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path)
    log = seglake.open(str(tmp_path)).topic("events")
    monkeypatch.setattr(native, "addresses", lambda: np.zeros(codec_kernels.ADDRESSES, np.int64))
    with counted() as answers:
        assert log.read_range(T, T + 20, columns=COLUMNS).read_all().num_rows == 20
    assert not answers


def test_a_page_stays_where_it_is(tmp_path: Path) -> None:
    """A kernel on one thread may be using it when another thread brings it again."""
    made(tmp_path)
    log = seglake.open(str(tmp_path)).topic("events")
    log.plan_range(T, T + 10)
    reader = log.reader(0)
    zones: Any = log._origin.reads.zone_maps.cached(reader.segment(0))
    before = zones.pages.copy()
    (page,) = zones._load(np.arange(1))
    zones._add(0, page.blocks.copy())
    assert np.array_equal(zones.pages, before)


@pytest.mark.slow
def test_no_window_waits_for_kernels_that_are_compiled(tmp_path: Path) -> None:
    """A process has them when it has planned one, not when it has opened the log.

    So it is with the kernel of later lookups after the first one.
    """
    LakeMaker(tmp_path / "lake").run({0: [Event(T), Event(T)]})
    for last in (False, True):  # the first process may compile them
        command = [sys.executable, "-c", KERNELS, str(tmp_path / "lake")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        none, all_of_them = [0] * 4, [1] * 4
        right = [none, none, all_of_them, 2, all_of_them, 1]
        assert done.stdout.splitlines() == list(map(str, right)) or not last
