"""What consumers ask, against the plain list of records: lag, failover, completeness, many at once.

And the same answers from many threads, after a fork, and out of a pickle.
"""

import multiprocessing
import pickle
import random
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core.compiler_lock import global_compiler_lock

import seglake
from seglake.compile.locks import fork_safe_lock
from seglake.errors import OffsetNotFound, OffsetOutOfRange, UsageError
from seglake.format.index import IndexPolicy
from seglake.read.log import Log
from seglake.times.intervals import covers
from tests.judges.oracle import as_written, check_offset, check_times
from tests.makers.gaps import Loss
from tests.makers.lakes import Event, LakeMaker, Shape, Written
from tests.makers.strategies import examples
from tests.makers.versions import (
    FAR,
    Run,
    T,
    cuts,
    first_reaching,
    lake_of,
    lost,
    many,
    runs,
    shapes,
)

# ------------------------------------------------------------------------------- consumers


@given(runs, cuts, st.booleans(), lost)
@examples(30)
def test_lag(generated: list[Run], cut: float, log_append: bool, loss: Loss | None) -> None:
    with lake_of(generated, cut, log_append, loss) as (log, maker):
        for p, end in log.end_offsets().items():
            records = maker.records(p)
            for committed in range(0, end + 1, 1 + end // 10):
                assert log.lag({p: committed}) == {p: lag_of(records, committed, log, p)}
            with pytest.raises(OffsetOutOfRange):
                log.lag({p: end + 1})


def lag_of(records: list[Written], committed: int, log: Log, partition: int) -> tuple[int, int]:
    behind = log.end_offsets()[partition] - max(committed, log.beginning_offsets()[partition])
    unread = [record.timestamp for record in records if record.offset >= committed]
    if not unread or unread[0] < 0:
        return behind, 0
    return behind, max(record.timestamp for record in records) - unread[0]


def drifting(seed: int, count: int, spread: int, odd: tuple[int, int] | None) -> list[Event]:
    """Events that are nearly in order, one of them with a time of its own."""
    rng = np.random.default_rng(seed)
    times = T + np.arange(count) + rng.integers(-spread, spread + 1, count)
    if odd is not None and count:
        times[odd[0] % count] = odd[1]
    gaps = np.where(rng.random(count) < 0.05, 4, 0)
    return [Event(time, None, b"", (), gap) for time, gap in zip(times.tolist(), gaps, strict=True)]


odd_ones = st.tuples(st.sampled_from([0, 0, 5, 90]), st.sampled_from([FAR, -1, 0]))
drifts = st.builds(
    drifting,
    seed=st.integers(0, 999),
    count=st.sampled_from([0, 40, 120]),
    spread=st.sampled_from([0, 3, 30]),
    odd=st.one_of(st.none(), st.none(), odd_ones),
)


@contextmanager
def mirrored(
    rows: Sequence[list[Event]], shape: Shape, cut: float, partitions: int,
    loss: Loss | None = None,
) -> Iterator[tuple[Log, Log, LakeMaker]]:  # fmt: skip
    """A log of two runs, and a mirror with its records in another order and other partitions."""
    halves = [[row[: len(row) // 2] for row in rows], [row[len(row) // 2 :] for row in rows]]
    with lake_of([(half, shape) for half in halves], cut, loss=loss) as (_, maker):
        events: dict[int, list[Event]] = {p: [] for p in range(partitions)}
        for record in sorted(maker.records(), key=lambda r: (r.offset // 9, r.timestamp % 7)):
            events[record.partition % partitions].append(Event(record.timestamp))
        for own in events.values():
            own.append(Event(T + 10_000))  # which did not come here yet
        maker.topic, maker.partitions = "mirror", partitions
        maker.run(events)
        lake = seglake.open(str(maker.root))
        yield lake.topic("events"), lake.topic("mirror"), maker


shares = st.sampled_from([0, 0.02, 0.3, 0.5, 0.9, 1])


@given(
    st.tuples(drifts, drifts), shapes, cuts, lost, st.sampled_from([1, 2, 2, 2, 3]),
    st.tuples(shares, shares), st.sampled_from([0, 0, 1, 7, 10**13]),
)  # fmt: skip
@examples(25)
def test_failover_starts_at_the_first_record_that_may_be_unread(
    rows: Sequence[list[Event]], shape: Shape, cut: float, loss: Loss | None, partitions: int,
    read: tuple[float, float], skew_ms: int,
) -> None:  # fmt: skip
    """Neither later, which would lose, nor earlier, which would repeat."""
    plain = loss and loss._replace(dated=False)
    with mirrored(rows, shape, cut, partitions, plain) as (log, mirror, maker):
        ends = log.end_offsets()
        committed = {p: int(ends[p] * share) for p, share in enumerate(read)}
        since = {p: unread_since(maker.records(p, "events"), n) for p, n in committed.items()}
        if partitions != 2:
            since = dict.fromkeys(range(partitions), min(since.values()))
        expected = {}
        for p, time in since.items():
            found = first_reaching(maker.records(p, "mirror"), time - skew_ms)
            expected[p] = found[0] if found else mirror.end_offsets()[p]
        assert log.translate(committed, mirror, skew_ms=skew_ms) == expected


def test_failover_from_every_offset_of_a_log_of_many_blocks() -> None:
    """Its first record, the newest of all, is deleted: where all is read it must not count."""
    rows = [Event(FAR), *drifting(5, 60, 20, None)]
    shape = Shape(batch_bytes=64, policy=IndexPolicy(180))
    with mirrored([rows, []], shape, 0.02, 2) as (log, mirror, maker):
        assert log.beginning_offsets()[0] == 1
        there = maker.records(0, "mirror")
        for committed in range(log.end_offsets()[0] + 1):
            found = first_reaching(there, unread_since(maker.records(0, "events"), committed))
            start = found[0] if found else mirror.end_offsets()[0]
            assert log.translate({0: committed}, mirror) == {0: start}


def unread_since(records: list[Written], committed: int) -> int:
    unread = [record.timestamp for record in records if record.offset >= committed]
    return min(unread) if unread else max((r.timestamp for r in records), default=-1) + 1


# ---------------------------------------------------------------------------- completeness

moments = st.integers(0, 14)
intervals = st.lists(st.tuples(moments, moments).map(sorted).map(tuple), max_size=8)


def open_times(declared: list[tuple[int, int]], start: int, end: int) -> list[int]:
    return [t for t in range(start, end) if not any(low <= t < high for low, high in declared)]


@given(intervals, moments, moments)
def test_intervals_cover_every_moment_or_not(
    declared: list[tuple[int, int]], one: int, other: int
) -> None:
    start, end = sorted((one, other))
    assert covers(declared, start, end) == (not open_times(declared, start, end))


@given(st.lists(st.one_of(st.none(), st.tuples(moments, moments)), max_size=4), moments, moments,
       st.integers(0, 4))  # fmt: skip
@examples(25)
def test_closed_windows_are_those_that_runs_declared(
    declared: list[tuple[int, int] | None], one: int, other: int, lateness_ms: int
) -> None:
    start, end = sorted((one, other))
    given = [each and (T + min(each), T + max(each)) for each in declared]
    with tempfile.TemporaryDirectory() as folder:
        maker = LakeMaker(Path(folder))
        maker.run({0: []})
        for interval in given:
            maker.run({0: []}, interval=interval)
        log = seglake.open(folder).topic("events")
        left = open_times([each for each in given if each], T + start, T + end + lateness_ms)
        assert log.closed(T + start, T + end, lateness_ms) == (not left)
        assert pickle.loads(pickle.dumps(log)).closed(T + start, T + end, lateness_ms) == (not left)


# ---------------------------------------------------------------------------- many offsets


@given(runs, cuts, st.booleans(), lost, st.randoms(use_true_random=False))
@examples(25)
def test_many_offsets_at_once(
    generated: list[Run], cut: float, log_append: bool, loss: Loss | None, chance: random.Random
) -> None:
    with lake_of(generated, cut, log_append, loss) as (log, maker):
        for partition in log.partitions():
            records = {record.offset: record for record in maker.records(partition)}
            wanted = chance.choices(list(records), k=min(60, 2 * len(records))) if records else []
            found = log.records_at(partition, np.array(wanted, np.int64))
            assert as_written(found) == [records[offset] for offset in wanted]
            start, end = log.beginning_offsets()[partition], log.end_offsets()[partition]
            for outside in (start - 1, end):
                with pytest.raises(OffsetOutOfRange):
                    log.records_at(partition, [*wanted, outside])
            gaps = [offset for offset in range(start, end) if offset not in records]
            if gaps:
                gap = chance.choice(gaps)
                with pytest.raises(OffsetNotFound, match=f"offset {gap}: "):
                    log.records_at(partition, [*wanted, gap])


def test_what_is_no_array_of_offsets_is_refused(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(T), Event(T + 1)]})
    log = seglake.open(str(tmp_path)).topic("events")
    for wrong in ([0.5], [[0]], ["0"]):
        with pytest.raises(UsageError, match="one-dimensional array of integers"):
            log.records_at(0, wrong)
    assert log.records_at(0, [], columns=["value"]).column_names == ["value"]
    assert log.records_at(0, [1, 0, 1], columns=["offset"])["offset"].to_pylist() == [1, 0, 1]


# ------------------------------------------------------------ threads, forks, other processes


class Growing:
    """A lake that grows while others ask it, and what each version must answer."""

    def __init__(self, root: Path) -> None:
        self.maker = LakeMaker(root, partitions=2)
        self.grow(0)

    def grow(self, seed: int) -> None:
        shape = Shape("zstd", 200, 5_000, IndexPolicy(400))
        self.maker.run({p: many(seed + p, 150, 1, 9) for p in (0, 1)}, shape)

    def check(self, log: Log, seed: int) -> None:
        """A few random questions to a log of any version, which it must answer for that one."""
        chance = random.Random(seed)
        partition, ends = chance.choice((0, 1)), log.end_offsets()
        records = [r for r in self.maker.records() if r.offset < ends[r.partition]]
        own = [record for record in records if record.partition == partition]
        check_times(log, partition, own, [chance.randint(T, T + 45), FAR, 0])
        by_offset = {record.offset: record for record in own}
        at, end = chance.randint(0, ends[partition] - 1), ends[partition]
        check_offset(log, partition, at, by_offset, 0, end)
        start = chance.randint(T, T + 40)
        window = log.read_range(start, start + 5, memory_bytes=2**16).read_all()
        assert as_written(window) == [r for r in records if start <= r.timestamp < start + 5]


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    return Growing(tmp_path)


def test_threads_share_a_lake_that_moves_on(growing: Growing) -> None:
    """The cache is so small that threads take from each other what they are about to use."""
    lake = seglake.open(str(growing.maker.root), cache_bytes=20_000)

    def ask(seed: int) -> None:
        growing.check(lake.topic("events") if seed % 3 else lake.refresh().topic("events"), seed)

    with ThreadPoolExecutor(6) as threads:
        asked = [threads.submit(ask, seed) for seed in range(60)]
        for seed in range(3):
            growing.grow(10 * seed)
            asked += [threads.submit(ask, 100 + 20 * seed + n) for n in range(20)]
        for each in asked:
            each.result()
    assert lake.refresh().version == growing.maker.versions[-1]


def exit_code_of(child: BaseProcess) -> int | None:
    """None if it does not end by itself."""
    child.start()
    child.join(60)
    if child.is_alive():
        child.kill()
        return None
    return child.exitcode


@contextmanager
def held_elsewhere(lock: Any, seconds: float) -> Iterator[None]:
    """Another thread holds the lock, and lets go of it after a while."""
    held = threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            time.sleep(seconds)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    yield
    thread.join()


def test_a_fork_waits_for_a_thread_that_compiles() -> None:
    """The child would inherit a lock that nobody ever lets go."""
    child = multiprocessing.get_context("fork").Process(target=global_compiler_lock.acquire)
    with held_elsewhere(global_compiler_lock, 0.2):
        assert exit_code_of(child) == 0


def test_a_forked_lock_is_free() -> None:
    lock = fork_safe_lock()
    child = multiprocessing.get_context("fork").Process(target=lock.__enter__)
    with held_elsewhere(lock, 0.5):
        assert exit_code_of(child) == 0


def test_a_log_out_of_a_pickle_is_the_same_version(growing: Growing) -> None:
    lake = seglake.open(str(growing.maker.root), cache_bytes=20_000)
    sent = pickle.dumps(lake.topic("events"))
    growing.grow(7)
    again = pickle.loads(sent)
    twice = pickle.loads(pickle.dumps(again))
    for seed in range(5):
        growing.check(again, seed)
        growing.check(twice, seed)
    assert again.version == twice.version == lake.version < growing.maker.versions[-1]
    assert again.settings == lake.topic("events").settings
    assert pickle.loads(pickle.dumps(lake)).version == lake.version
