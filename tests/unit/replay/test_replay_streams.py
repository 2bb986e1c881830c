"""Streams of a replay: nothing lost, offset order kept, and nobody ahead of the others."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from seglake.limits import INT64_MAX
from seglake.replay.run import PartitionStream, Tempo, next_due_ms, take_due
from tests.makers.strategies import examples

TIMES = st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=7), max_size=4)
PARTITIONS = st.lists(TIMES, min_size=1, max_size=4)


def batches(times: Sequence[Sequence[int]]) -> Iterator[pa.RecordBatch]:
    """Batches with these timestamps; offsets count on."""
    offset = 0
    for each in times:
        offsets = pa.array(range(offset, offset + len(each)), pa.int64())
        stamps = pa.array(each, pa.timestamp("ms", tz="UTC"))
        yield pa.RecordBatch.from_arrays([offsets, stamps], names=["offset", "timestamp"])
        offset += len(each)


def opened(partitions: Sequence[Sequence[Sequence[int]]]) -> list[PartitionStream]:
    made = [PartitionStream(number, batches(times)) for number, times in enumerate(partitions)]
    return [stream for stream in made if stream.has_next]


@examples(300)
@given(PARTITIONS, st.lists(st.integers(0, 70), max_size=20), st.integers(1, 5))
def test_every_record_comes_once_in_order_and_when_it_is_due(
    partitions: list[list[list[int]]], clock: list[int], at_most: int
) -> None:
    streams, got = opened(partitions), dict[int, list[int]]()
    due_at = {
        number: np.maximum.accumulate([time for each in times for time in each] or [0])
        for number, times in enumerate(partitions)
    }
    for now in [*sorted(clock), *[INT64_MAX] * 200]:
        if not streams:
            break
        waiting = next_due_ms(streams)
        count = 0
        for partition, batch in take_due(streams, now, at_most):
            assert 0 < len(batch) <= at_most
            offsets: list[Any] = batch["offset"].to_pylist()
            assert all(due_at[partition][offset] <= now for offset in offsets)
            got.setdefault(partition, []).extend(offsets)
            count += len(batch)
        assert bool(count) == (waiting <= now)  # nothing comes only if nothing is due
        streams = [stream for stream in streams if stream.has_next]
    assert streams == []
    for number, times in enumerate(partitions):
        assert got.get(number, []) == list(range(sum(map(len, times))))


@examples(200)
@given(PARTITIONS)
def test_no_partition_gets_ahead_of_what_is_known_of_the_others(
    partitions: list[list[list[int]]],
) -> None:
    streams = opened(partitions)
    while streams:
        horizon = min(stream.known_until_ms for stream in streams)
        list(take_due(streams, INT64_MAX, 3))
        assert all(stream.next_due_ms >= horizon for stream in streams)
        streams = [stream for stream in streams if stream.has_next]


class Clock:
    """Time that passes only in sleep."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


@examples(100)
@given(st.floats(0.01, 1000), st.integers(1, 10**12), st.integers(0, 10**6))
def test_event_time_passes_at_the_speed(speed: float, first_ms: int, later_ms: int) -> None:
    clock = Clock()
    tempo = Tempo(speed, clock=clock, sleep=clock.sleep)
    tempo.start(first_ms)
    assert tempo.now_ms() == first_ms
    clock.now += later_ms / 1000 / speed
    assert abs(tempo.now_ms() - first_ms - later_ms) <= 1 + speed / 1000
    assert tempo.seconds_until(first_ms + later_ms) < 1e-3


def test_without_a_speed_everything_is_due() -> None:
    tempo = Tempo()
    tempo.start(5)
    assert tempo.now_ms() == INT64_MAX
    assert tempo.seconds_until(10**15) == 0


def test_a_long_wait_is_made_of_short_ones() -> None:
    clock = Clock()
    tempo = Tempo(1.0, clock=clock, sleep=clock.sleep)
    tempo.start(0)
    tempo.wait_for(3_600_000)
    assert clock.now == 100.5
