"""Logs with gaps: what they cost, where they end, and that nothing vouches for what is gone.

The answers over gaps of every kind are those of test_oracle.py and test_lookup_service.py.
"""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.errors import OffsetNotFound, OffsetOutOfRange
from seglake.format.index import IndexPolicy
from seglake.format.zonemap import FENCE_SPAN
from seglake.layout import SUFFIXES
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.verify import verify
from seglake.read.lake import Lake
from seglake.read.log import Log
from seglake.store import open_store
from tests.harness.counting import CountingStore
from tests.judges.oracle import as_written, check_offset, check_times
from tests.makers.gaps import Loss, emptied, lose, losses
from tests.makers.lakes import Event, LakeMaker, Shape, Written
from tests.makers.strategies import examples
from tests.makers.versions import Run, T, cuts, first_reaching, in_window, lake_of, runs, times
from tests.stored.independent_reader import Lake as IndependentLake

GIANT = 2**31  # the most offsets of one segment
TAIL_GOES = Loss(seed=0, single=0, whole=0, stretch=1, tail=0.5, joined=1, headers=0, dated=False)


def small(root: Path, count: int = 100) -> LakeMaker:
    """Segments of about ten records, batches of about five."""
    maker = LakeMaker(root)
    shape = Shape(batch_bytes=120, segment_bytes=300, policy=IndexPolicy(300))
    maker.run({0: [Event(T + i, b"%d" % (i % 7), b"") for i in range(count)]}, shape)
    return maker


def opened(maker: LakeMaker) -> Log:
    return seglake.open(str(maker.root)).topic(maker.topic)


# ------------------------------------------------------------------------------------ the files


@pytest.mark.rest
@given(runs, cuts, losses, st.sampled_from([IndexPolicy(0), IndexPolicy(180)]))
@examples(12)
def test_logs_with_gaps_are_sound_and_indexed_again_byte_for_byte(
    generated: list[Run], cut: float, loss: Loss, policy: IndexPolicy
) -> None:
    with lake_of(generated, cut, loss=loss) as (_, maker):
        for deep in (False, True):
            assert verify(str(maker.root), deep=deep).findings == []
        before = _index_files(maker)
        for each in (None, policy):
            if before:
                reindex(str(maker.root), "events", each)
            assert each or _index_files(maker) == before
        assert verify(str(maker.root), deep=True).findings == []


def _index_files(maker: LakeMaker) -> list[bytes]:
    rows = maker.catalog.rows.segments(maker.catalog.snapshot(), "events")
    return [bytes(maker.store.read_all(row.key(each))) for row in rows for each in SUFFIXES[1:]]


@given(runs, cuts, losses, st.lists(times, min_size=1, max_size=9))
@examples(20)
def test_zone_maps_that_are_gone_are_made_again_from_logs_with_gaps(
    generated: list[Run], cut: float, loss: Loss, wanted: list[int]
) -> None:
    logging.disable(logging.WARNING)
    try:
        with lake_of(generated, cut, loss=loss) as (log, maker):
            for path in maker.files("zonemap"):
                path.unlink()
            for partition, end in log.end_offsets().items():
                records = maker.records(partition)
                check_times(log, partition, records, wanted)
                start = log.beginning_offsets()[partition]
                by_offset = {record.offset: record for record in records}
                for offset in range(start, end + 1, 1 + (end - start) // 9):
                    check_offset(log, partition, offset, by_offset, start, end)
    finally:
        logging.disable(logging.NOTSET)


@given(runs, cuts, losses, times, times)
@examples(15)
def test_a_reader_that_shares_no_code_agrees(
    generated: list[Run], cut: float, loss: Loss, one: int, other: int
) -> None:
    start, end = sorted((one, other))
    with lake_of(generated, cut, loss=loss) as (log, maker):
        lake = IndependentLake(maker.root)
        window = [(p, record.offset) for p, record in lake.window("events", max(start, 0), end)]
        assert window == [record[:2] for record in in_window(maker.records(), start, end)]
        for partition, bounds in log.end_offsets().items():
            records = maker.records(partition)
            assert lake.bounds("events", partition) == (log.beginning_offsets()[partition], bounds)
            for time in (one, other):
                found = lake.offset_for_time("events", partition, time)
                assert found == first_reaching(records, time)
            for offset in (0, bounds // 2, bounds):
                rest = [record.offset for record in lake.read("events", partition, offset)]
                assert rest == [record.offset for record in records if record.offset >= offset]


@pytest.fixture(scope="module")
def with_gaps(tmp_path_factory: pytest.TempPathFactory) -> LakeMaker:
    maker = small(tmp_path_factory.mktemp("lake"))
    lose(maker, Loss(3, 0.3, 0.3, 10, tail=0.8, joined=2, headers=0.5, dated=False))
    return maker


@given(st.data())
@examples(40)
def test_a_flipped_bit_in_a_log_with_gaps_is_found(
    with_gaps: LakeMaker, data: st.DataObject
) -> None:
    """Which batch it is stays open where its offsets leave room: they are outside its checksum."""
    snapshot = with_gaps.catalog.snapshot()
    rows = with_gaps.catalog.rows.segments(snapshot, "events")
    row = data.draw(st.sampled_from(sorted(rows, key=lambda row: row.base_offset)))
    path = with_gaps.root / row.key(data.draw(st.sampled_from(SUFFIXES)))
    good = path.read_bytes()
    if not good:
        return
    bad, at = bytearray(good), data.draw(st.integers(0, len(good) - 1))
    bad[at] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(bad)
    try:
        for deep in (False, True):
            findings = verify(str(with_gaps.root), deep=deep).findings
            assert [with_gaps.root / finding.file for finding in findings] == [path]
    finally:
        path.write_bytes(good)


# ------------------------------------------------------------------------------------ the end


def consumed(log: Log, partition: int, offset: int) -> list[Written]:
    """What a consumer sees that goes on behind the last record it got, until it gets none."""
    found = list[Written]()
    while batch := as_written(log.read(partition, offset, max_records=7)):
        found += batch
        offset = batch[-1].offset + 1
    return found


@given(runs, cuts, losses)
@examples(20)
def test_a_consumer_comes_to_the_end(generated: list[Run], cut: float, loss: Loss) -> None:
    with lake_of(generated, cut, loss=loss) as (log, maker):
        for partition, start in log.beginning_offsets().items():
            assert consumed(log, partition, start) == maker.records(partition)


@pytest.mark.parametrize("count", [1, 1000, GIANT, GIANT + 5])
def test_a_tail_without_records(tmp_path: Path, count: int) -> None:
    maker = small(tmp_path)
    emptied(maker, 0, count)
    log, records = opened(maker), maker.records()
    assert log.end_offsets() == {0: 100 + count}
    by_offset = {record.offset: record for record in records}
    for offset in (0, 99, 100, 100 + count // 2, 100 + count - 1, 100 + count, 101 + count):
        check_offset(log, 0, offset, by_offset, 0, 100 + count)
    check_times(log, 0, records, [T, T + 50, T + 99, T + 100])
    assert log.lag({0: 100})[0] == (count, 0)
    assert log.lag({0: 99})[0] == (count + 1, 0)
    assert log.plan_offsets({0: (100, 2**62)}).pieces == ()
    maker.run({0: [Event(T + 7, b"", b"")]})
    log = opened(maker)
    assert [r.offset for r in consumed(log, 0, 98)] == [98, 99, 100 + count]
    assert log.offsets_for_times({0: T + 99})[0] == (99, T + 99)
    assert log.lag({0: 100})[0] == (count + 1, 92)


def test_a_log_that_lost_every_record(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(T + i) for i in range(30)]}, Shape(batch_bytes=64, segment_bytes=360))
    for headers in (1, 0):
        lose(maker, Loss(0, 1, 1, 1, 0, 2, headers, False))
        log = opened(maker)
        assert (log.beginning_offsets(), log.end_offsets()) == ({0: 0}, {0: 30})
        assert (log.max_timestamps(), log.offsets_for_times({0: 0})) == ({0: None}, {0: None})
        assert log.read(0, 0).num_rows == log.read_range(0, T * 2).read_all().num_rows == 0
        assert log.lag({0: 4}) == {0: (26, 0)}
        assert log.translate({0: 4}, log) == {0: 30}
        with pytest.raises(OffsetNotFound, match="offset 4"):
            log.record_at(0, 4)
        with pytest.raises(OffsetOutOfRange):
            log.record_at(0, 30)
        assert verify(str(maker.root), deep=True).findings == []


# ------------------------------------------------------------------------------------ failover


def test_failover_behind_a_gap_of_many_pages_of_the_zone_map(tmp_path: Path) -> None:
    """A fence sums up blocks, of which some lost their records: they are looked at."""
    maker = LakeMaker(tmp_path)
    count = 3 * FENCE_SPAN
    rows = [Event(T + i, None, b"") for i in range(count)]
    maker.run({0: rows}, Shape(batch_bytes=1, policy=IndexPolicy(0)))
    lose(maker, Loss(0, 0.5, 0, 1, 1, 1, 1, False))
    maker.topic = "mirror"
    maker.run({0: rows})
    lake, left = seglake.open(str(tmp_path)), maker.records(0, "events")
    for committed in (0, 5, FENCE_SPAN, count - 9):
        first = next(record.offset for record in left if record.offset >= committed)
        found = lake.topic("events").translate({0: committed}, lake.topic("mirror"))
        assert found == {0: first}


# ------------------------------------------------------------------------------------ costs


def test_a_gap_of_many_segments_costs_no_request(tmp_path: Path) -> None:
    maker = small(tmp_path, 1000)
    lose(maker, TAIL_GOES)
    maker.run({0: [Event(T + 5000, b"", b"")]})
    store = CountingStore(open_store(str(tmp_path)))
    log = Lake(store).topic("events")
    assert (log.reader(0).view.segments.details["record_count"] == 0).sum() > 30
    spent = list[int]()
    asked: list[Callable[[], bool]] = [
        lambda: [r.offset for r in as_written(log.read(0, 500))] == [1000],
        lambda: log.offsets_for_times({0: T + 600})[0] == (1000, T + 5000),
        lambda: log.lag({0: 501})[0] == (500, 0),
        lambda: log.read_range(T + 500, T + 6000).read_all()["offset"].to_pylist() == [1000],
        lambda: log.read_range(T + 499, T + 6000, order="time").read_all().num_rows == 2,
    ]
    for ask in asked:
        before = store.counts.requests
        assert ask()
        spent.append(store.counts.requests - before)
    assert max(spent) <= 8
    assert log.plan_offsets({0: (490, 2**62)}).records_at_most <= 11
