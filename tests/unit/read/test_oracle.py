"""Every lookup and every read against the plain list of records, over generated lakes."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.format.index import IndexPolicy
from tests.judges.oracle import as_written, check_offset, check_times
from tests.makers.gaps import Loss
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.strategies import examples
from tests.makers.versions import (
    FAR,
    Run,
    T,
    cuts,
    in_window,
    lake_of,
    lost,
    many,
    runs,
    shapes,
    times,
    versions_of,
)


@given(runs, cuts, st.booleans(), lost, st.lists(times, min_size=1, max_size=60))
@examples(30)
def test_times(
    generated: list[Run], cut: float, log_append: bool, loss: Loss | None, wanted: list[int]
) -> None:
    with lake_of(generated, cut, log_append, loss) as (log, maker):
        for partition in log.partitions():
            check_times(log, partition, maker.records(partition), wanted)


@given(st.integers(0, 999), st.sampled_from([0, 3, 40]), shapes, st.floats(0.05, 0.95))
@examples(25)
def test_deleted_records_do_not_vouch(seed: int, spread: int, shape: Shape, cut: float) -> None:
    """Times fall, so what was deleted is newer than what is left, in segments and in blocks."""
    events = [*many(seed, 100, -1, spread), Event(FAR)]
    with lake_of([([events, []], shape)], cut) as (log, maker):
        wanted = [*range(T - 1, T + 82, 2), FAR, 0]
        check_times(log, 0, maker.records(0), wanted)


@given(runs, cuts, st.booleans(), lost)
@examples(30)
def test_offsets(generated: list[Run], cut: float, log_append: bool, loss: Loss | None) -> None:
    with lake_of(generated, cut, log_append, loss) as (log, maker):
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


@given(runs, cuts, st.booleans(), lost, times, times, st.sampled_from([2**20, 4096]))
@examples(25)
def test_windows(
    generated: list[Run], cut: float, log_append: bool, loss: Loss | None, one: int, other: int,
    memory_bytes: int,
) -> None:  # fmt: skip
    start, end = sorted((one, other))
    with lake_of(generated, cut, log_append, loss) as (log, maker):
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


@given(runs, cuts, lost, times, times)
@examples(25)
def test_an_older_version_answers_as_it_did(
    generated: list[Run], cut: float, loss: Loss | None, one: int, other: int
) -> None:
    start, end = sorted((one, other))
    with tempfile.TemporaryDirectory() as folder:
        past = [
            (maker.versions[-1], maker.records())
            for maker in versions_of(Path(folder), generated, cut, loss=loss)
        ]
        for version, records in past:
            log = seglake.open(folder, version).topic("events")
            found = as_written(log.read_range(start, end).read_all())
            assert found == in_window(records, start, end)
            for partition in log.partitions():
                there = [record for record in records if record.partition == partition]
                check_times(log, partition, there, [one, other])


@given(runs, cuts, lost, st.integers(0, 500), st.integers(0, 500))
@examples(20)
def test_offset_ranges(
    generated: list[Run], cut: float, loss: Loss | None, one: int, other: int
) -> None:
    start, end = sorted((one, other))
    with lake_of(generated, cut, loss=loss) as (log, maker):
        plan = log.plan_offsets({1: (start, end), 0: (start, end)})
        expected = [r for p in (1, 0) for r in maker.records(p) if start <= r.offset < end]
        assert as_written(plan.execute().read_all()) == expected
        assert plan.records_at_most >= len(expected)


def test_a_range_below_the_first_live_offset_reads_nothing(tmp_path: Path) -> None:
    """The range lies within a block that also has live records; it has none of them."""
    maker = LakeMaker(tmp_path)
    shape = Shape(batch_bytes=64, policy=IndexPolicy(4096))
    maker.run({0: [Event(T + i) for i in range(30)]}, shape)
    maker.delete_records(0, 6)
    log = seglake.open(str(tmp_path)).topic("events")
    for window in ((0, 1), (0, 6), (3, 3), (9, 9)):
        plan = log.plan_offsets({0: window})
        assert (plan.records_at_most, plan.size_bytes, plan.pieces) == (0, 0, ())
    assert log.plan_offsets({0: (0, 7)}).records_at_most == 1


def test_a_block_that_lost_what_it_promised_does_not_hide_the_next(tmp_path: Path) -> None:
    """The first block's maximum is deleted; the answer stands in a block that no time points to."""
    maker = LakeMaker(tmp_path)
    times = [T + 100, T + 10, T + 50, T + 20, T + 200, T + 200]
    shape = Shape(batch_bytes=100, policy=IndexPolicy(120))
    maker.run({0: [Event(time, None, b"x" * 50) for time in times]}, shape)
    maker.delete_records(0, 1)
    log = seglake.open(str(tmp_path)).topic("events")
    check_times(log, 0, maker.records(0), [T + 30, T + 60, T + 150])
