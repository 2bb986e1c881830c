"""Every lookup and every read against the plain list of records, over generated lakes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.errors import OffsetNotFound, OffsetOutOfRange
from seglake.format.index import IndexPolicy
from seglake.read.log import Log
from tests.lakes import Event, LakeMaker, Shape, Written
from tests.strategies import examples
from tests.unit.read.oracle import as_written

T = 1_700_000_000_000
FAR = T + 10**12

timestamps = st.one_of(
    st.integers(T, T + 40),  # total disorder, many equal
    st.integers(T, T + 40),
    st.sampled_from([0, 1, T, FAR, -1]),
)
texts = st.one_of(st.none(), st.binary(max_size=12))
headers = st.lists(st.tuples(st.text(max_size=3), texts), max_size=2).map(tuple)
events = st.builds(
    Event, timestamps, texts, texts, st.one_of(st.just(()), headers), st.sampled_from([0] * 9 + [3])
)


def many(seed: int, count: int, slope: int, spread: int) -> list[Event]:
    """More events than are drawn one by one; times rise or fall, with disorder up to `spread`."""
    rng = np.random.default_rng(seed)
    rising = T + np.arange(count) * 40 // count
    times = rising[::slope] + rng.integers(-spread, spread + 1, count)
    odd = rng.random(count)
    times = np.select([odd < 0.002, odd < 0.004, odd < 0.006], [-1, FAR, 0], np.maximum(times, T))
    gaps = np.where(rng.random(count) < 0.05, rng.integers(1, 9, count), 0)
    return [
        Event(time, None, b"%d" % time, (), gap)
        for time, gap in zip(times.tolist(), gaps.tolist(), strict=True)
    ]


rows = st.one_of(
    st.lists(events, max_size=20),
    st.builds(
        many,
        seed=st.integers(0, 999),
        count=st.sampled_from([30, 100, 250]),
        slope=st.sampled_from([1, -1]),
        spread=st.sampled_from([0, 3, 40]),
    ),
)
shapes = st.builds(
    lambda codec, sizes, policy: Shape(codec, *sizes, policy),
    codec=st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
    sizes=st.sampled_from(
        [(64, 700), (150, 2000), (400, 2000), (64, 2**30), (400, 2**30), (16384, 2**30)]
    ),
    policy=st.sampled_from(
        [
            IndexPolicy("bytes", 0),
            IndexPolicy("bytes", 300),
            IndexPolicy("bytes", 4096),
            IndexPolicy("records", 5),
            IndexPolicy("ms", 10),
        ]
    ),
)
runs = st.lists(
    st.tuples(st.lists(rows, min_size=2, max_size=2), shapes),
    min_size=1,
    max_size=3,
)


def versions_of(root: Path, generated, cut: float, log_append: bool = False) -> Iterator[LakeMaker]:
    """A lake, after each of its commits."""
    maker = LakeMaker(root, partitions=2)
    for number, (partitions, shape) in enumerate(generated):
        at = T + number * 7 if log_append else None
        stored = Shape(shape.codec, shape.batch_bytes, shape.segment_bytes, shape.policy, at)
        maker.run(dict(enumerate(partitions)), stored)
        yield maker
    end = maker.catalog.snapshot().partition("events", 0).end_offset
    if cut and end:
        maker.delete_records(0, int(end * cut))
        yield maker


@contextmanager
def lake_of(generated, cut: float, log_append: bool = False) -> Iterator[tuple[Log, LakeMaker]]:
    with tempfile.TemporaryDirectory() as folder:
        *_, maker = versions_of(Path(folder), generated, cut, log_append)
        yield seglake.open(folder).topic("events"), maker


def first_reaching(records: list[Written], time: int) -> tuple[int, int] | None:
    return next(((r.offset, r.timestamp) for r in records if r.timestamp >= time), None)


def in_window(records: list[Written], start: int, end: int) -> list[Written]:
    return [r for r in records if max(start, 0) <= r.timestamp < end]


times = st.one_of(st.integers(T - 1, T + 42), st.sampled_from([0, 1, FAR, FAR + 1]))
cuts = st.sampled_from([0, 0, 0.2, 0.5, 1])


@given(runs, cuts, st.booleans(), st.lists(times, min_size=1, max_size=60))
@examples(60)
def test_times(generated, cut, log_append, wanted) -> None:
    with lake_of(generated, cut, log_append) as (log, maker):
        for partition in log.partitions():
            check_times(log, partition, maker.records(partition), wanted)


@given(st.integers(0, 999), st.sampled_from([0, 3, 40]), shapes, st.floats(0.05, 0.95))
@examples(25)
def test_deleted_records_do_not_vouch(seed, spread, shape, cut) -> None:
    """Times fall, so what was deleted is newer than what is left, in segments and in blocks."""
    events = [*many(seed, 100, -1, spread), Event(FAR)]
    with lake_of([([events, []], shape)], cut) as (log, maker):
        wanted = [*range(T - 1, T + 82, 2), FAR, 0]
        check_times(log, 0, maker.records(0), wanted)


def check_times(log: Log, partition: int, records: list[Written], wanted: list[int]) -> None:
    expected = [first_reaching(records, time) for time in wanted]
    assert [log.offsets_for_times({partition: t})[partition] for t in wanted] == expected
    offsets, stamps = log.offsets_for_times_array(partition, np.array(wanted))
    pairs = list(zip(offsets.tolist(), stamps.tolist(), strict=True))
    assert pairs == [answer or (-1, -1) for answer in expected]
    largest = max((r.timestamp for r in records), default=-1)
    newest = first_reaching(records, largest) if largest >= 0 else None
    assert log.max_timestamps([partition])[partition] == newest


@given(runs, cuts, st.booleans())
@examples(40)
def test_offsets(generated, cut, log_append) -> None:
    with lake_of(generated, cut, log_append) as (log, maker):
        for partition in log.partitions():
            records = {r.offset: r for r in maker.records(partition)}
            start = log.beginning_offsets()[partition]
            end = log.end_offsets()[partition]
            assert start == maker.starts.get(("events", partition), 0)
            assert all(start <= offset < end for offset in records)
            for offset in [
                *range(max(0, start - 2), end + 3, 1 + end // 40),
                end - 1,
                end,
                end + 1,
            ]:
                check_offset(log, partition, offset, records, start, end)


def check_offset(log, partition, offset, records, start, end) -> None:
    if offset < 0:
        return
    if not start <= offset < end:
        with pytest.raises(OffsetOutOfRange):
            log.record_at(partition, offset)
    elif offset in records:
        assert log.record_at(partition, offset)[1:] == records[offset]
    else:
        with pytest.raises(OffsetNotFound):
            log.record_at(partition, offset)
    if start <= offset <= end:
        rest = [r for at, r in records.items() if at >= offset]
        assert as_written(log.read(partition, offset, max_records=7)) == rest[:7]
    else:
        with pytest.raises(OffsetOutOfRange):
            log.read(partition, offset)


@given(runs, cuts, st.booleans(), times, times, st.sampled_from([2**20, 4096]))
@examples(50)
def test_windows(generated, cut, log_append, one, other, memory_bytes) -> None:
    start, end = sorted((one, other))
    with lake_of(generated, cut, log_append) as (log, maker):
        expected = in_window(maker.records(), start, end)
        plan = log.plan_range(start, end)
        found = as_written(plan.execute(memory_bytes=memory_bytes).read_all())
        assert found == expected
        assert plan.records_at_most >= len(expected)
        ordered = log.read_range(start, end, order="time", memory_bytes=memory_bytes).read_all()
        assert as_written(ordered) == sorted(expected, key=lambda r: (r.timestamp, *r[:2]))
        some = log.read_range(start, end, partitions=[1], columns=["value", "offset"]).read_all()
        assert some.column_names == ["value", "offset"]
        assert some["offset"].to_pylist() == [r.offset for r in expected if r.partition == 1]


@given(runs, cuts, times, times)
@examples(25)
def test_an_older_version_answers_as_it_did(generated, cut, one, other) -> None:
    start, end = sorted((one, other))
    with tempfile.TemporaryDirectory() as folder:
        past = [
            (maker.versions[-1], maker.records())
            for maker in versions_of(Path(folder), generated, cut)
        ]
        for version, records in past:
            log = seglake.open(folder, version).topic("events")
            found = as_written(log.read_range(start, end).read_all())
            assert found == in_window(records, start, end)
            for partition in log.partitions():
                there = [record for record in records if record.partition == partition]
                check_times(log, partition, there, [one, other])


@given(runs, cuts, st.integers(0, 500), st.integers(0, 500))
@examples(30)
def test_offset_ranges(generated, cut, one, other) -> None:
    start, end = sorted((one, other))
    with lake_of(generated, cut) as (log, maker):
        found = log.plan_offsets({1: (start, end), 0: (start, end)}).execute().read_all()
        expected = [r for p in (1, 0) for r in maker.records(p) if start <= r.offset < end]
        assert as_written(found) == expected


@given(runs, cuts, st.booleans(), st.integers(0, 40), st.integers(0, 40), st.integers(0, 5))
@examples(40)
def test_nothing_is_lost_in_translation(generated, cut, log_append, one, other, skew_ms) -> None:
    """The other log holds the same records in another order, its clock off by at most the skew."""
    with lake_of(generated, cut, log_append) as (log, maker):
        rows: dict[int, list[Event]] = {0: [], 1: []}
        for record in sorted(maker.records(), key=lambda r: (r.timestamp * 31 + r.offset * 7) % 97):
            late = record.timestamp + skew_ms if record.timestamp >= 0 else -1
            rows[record.partition].append(Event(late, record.key, str(record.offset).encode()))
        maker.topic = "mirror"
        maker.run(rows)
        committed = {
            p: min(log.end_offsets()[p], log.beginning_offsets()[p] + n)
            for p, n in ((0, one), (1, other))
        }
        to = seglake.open(str(maker.root)).topic("mirror")
        start = log.translate(committed, to, skew_ms=skew_ms)
        for partition, offset in committed.items():
            unread = {r.offset for r in maker.records(partition, "events") if r.offset >= offset}
            there = maker.records(partition, "mirror")
            assert unread <= {int(r.value or b"") for r in there if r.offset >= start[partition]}
            lag = log.lag({partition: offset})[partition]
            assert lag.records == log.end_offsets()[partition] - offset
            assert lag.milliseconds >= 0


def test_a_block_that_lost_what_it_promised_does_not_hide_the_next(tmp_path) -> None:
    """The first block's maximum is deleted; the answer stands in a block that no time points to."""
    maker = LakeMaker(tmp_path)
    times = [T + 100, T + 10, T + 50, T + 20, T + 200, T + 200]
    shape = Shape(batch_bytes=100, policy=IndexPolicy("records", 2))
    maker.run({0: [Event(time, None, b"x" * 50) for time in times]}, shape)
    maker.delete_records(0, 1)
    log = seglake.open(str(tmp_path)).topic("events")
    check_times(log, 0, maker.records(0), [T + 30, T + 60, T + 150])
