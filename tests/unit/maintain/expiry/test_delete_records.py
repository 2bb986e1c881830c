"""delete-records moves the log start, and every reader sees it at once."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import time_ns
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.errors import (
    OffsetNotFound,
    OffsetOutOfRange,
    PolicyViolation,
    SeglakeError,
    UnknownTopic,
    UsageError,
)
from seglake.maintain import commit
from seglake.maintain.health.verify import verify
from seglake.maintain.vacuum import vacuum
from seglake.read.log import Log
from tests.makers.lakes import Event, LakeMaker, Shape, T, Written
from tests.makers.strategies import examples

DAY_MS = 86_400_000

events = st.lists(
    st.tuples(st.integers(T, T + 40), st.none() | st.binary(max_size=2), st.just(b"v" * 20)).map(
        lambda each: Event(*each)
    ),
    max_size=30,
)
shapes = st.builds(
    Shape,
    st.sampled_from(["none", "zstd"]),
    st.sampled_from([60, 250]),
    st.sampled_from([400, 700, 2**30]),
)


def lake_of(folder: Path | str, runs: Sequence[dict[int, list[Event]]], shape: Shape) -> LakeMaker:
    maker = LakeMaker(Path(folder), partitions=2)
    for rows in runs:
        maker.run(rows, shape)
    return maker


def log_of(maker: LakeMaker) -> Log:
    return seglake.open(str(maker.root)).topic("events")


def assert_reads(log: Log, partition: int, left: list[Written], start: int, end: int) -> None:
    """Whatever a reader asks, the records `left` are all that there is."""
    offsets = [each.offset for each in left]
    assert log.beginning_offsets()[partition] == start
    assert log.end_offsets()[partition] == end
    assert log.reader(partition).view.record_count == len(left)
    assert log.read(partition, start).column("offset").to_pylist() == offsets
    assert log.records_at(partition, offsets).column("offset").to_pylist() == offsets
    for offset in {start - 1, start, *offsets[1::5], end - 1, end, end + 1}:
        if offset in offsets:
            assert log.record_at(partition, offset).timestamp == left[offset - start].timestamp
            continue
        with pytest.raises(OffsetOutOfRange):
            log.record_at(partition, offset)
    window = (T + 5, T + 30)
    inside = [each.offset for each in left if window[0] <= each.timestamp < window[1]]
    for order in ("offset", "time"):
        found = log.read_range(*window, partitions=[partition], order=order).read_all()
        offsets_found: list[Any] = found["offset"].to_pylist()
        assert sorted(offsets_found) == inside
    plan = log.plan_range(*window, partitions=[partition])
    planned: list[Any] = plan.execute().read_all()["offset"].to_pylist()
    assert sorted(planned) == inside
    for time in range(T - 1, T + 42, 7):
        first = next((each for each in left if each.timestamp >= time), None)
        answer = log.offsets_for_times({partition: time})[partition]
        assert answer == (first and (first.offset, first.timestamp))
        found_at, _ = log.offsets_for_times_array(partition, [time])
        assert found_at.tolist() == [-1 if first is None else first.offset]
    newest = max((each.timestamp for each in left), default=None)
    most = log.max_timestamps()[partition]
    assert (most and most.timestamp) == newest
    behind = log.lag({partition: 0})[partition]
    assert behind.records == len(left)


@examples(12)
@given(st.lists(st.tuples(events, events), min_size=1, max_size=3), shapes, st.data())
def test_readers_see_what_is_left(
    runs: list[tuple[list[Event], list[Event]]], shape: Shape, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        maker = lake_of(folder, [dict(enumerate(each)) for each in runs], shape)
        before, pinned = maker.records(), log_of(maker)
        starts = [0, 0]
        for _ in range(2):
            ends = log_of(maker).end_offsets()
            chosen = data.draw(st.sets(st.integers(0, 1), min_size=1))
            asked = {p: data.draw(st.integers(-1, ends[p])) for p in chosen}
            report = seglake.delete_records(str(maker.root), "events", asked)
            old = list(starts)
            for p, offset in asked.items():
                starts[p] = max(starts[p], ends[p] if offset == -1 else offset)
            moves = [(each.partition, each.before, each.after) for each in report.moved]
            assert moves == [(p, old[p], starts[p]) for p in (0, 1) if old[p] != starts[p]]
            assert (report.version >= 0) == bool(moves)
            log = log_of(maker)
            for p in (0, 1):
                left = [each for each in maker.records(p) if each.offset >= starts[p]]
                assert_reads(log, p, left, starts[p], ends[p])
        found = [n for p in (0, 1) for n in pinned.read(p, 0)["offset"].to_pylist()]
        assert found == [each.offset for each in before]
        assert verify(folder, deep=True).findings == []


@examples(15)
@given(events, events, shapes, st.integers(T - 1, T + 42), st.sampled_from([None, [0], [1, 0]]))
def test_by_time_nothing_of_that_time_or_later_goes(
    zero: list[Event], one: list[Event], shape: Shape, time: int, partitions: list[int] | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        maker = lake_of(folder, [{0: zero, 1: one}], shape)
        seglake.delete_records(folder, "events", before_time=time, partitions=partitions)
        log = log_of(maker)
        for p in (0, 1):
            records = maker.records(p)
            late = [each.offset for each in records if each.timestamp >= time]
            asked = partitions is None or p in partitions
            start = (late[0] if late else len(records)) if asked else 0
            assert_reads(log, p, records[start:], start, len(records))


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    """Two partitions; the first has four segments."""
    rows = [Event(T + n, b"k", b"v" * 30) for n in range(60)]
    return lake_of(tmp_path, [{0: rows, 1: rows[:9]}], Shape(segment_bytes=1500))


@pytest.mark.parametrize(
    ("given_", "error", "words"),
    [
        ({"before_offsets": {0: 61}}, OffsetOutOfRange,
         "events-0: offset 61 is not in the log, which ends at 60. Give an offset from 0 to 60"),
        ({"before_offsets": {0: 61}}, OffsetOutOfRange, "or -1 for the end (OFFSET_OUT_OF_RANGE)"),
        ({"before_offsets": {1: 3, 0: -2}}, OffsetOutOfRange, "events-0: offset -2 is not in"),
        ({"before_offsets": {1: 3, 2: 0}}, UnknownTopic, "partitions 0 to 1, not 2"),
        ({"before_time": T + 9, "partitions": [5]}, UnknownTopic, "partitions 0 to 1, not 5"),
        ({"before_time": "2026-01-01"}, UsageError, "zone"),
        ({"before_time": -5}, UsageError, "before 1970"),
        ({"before_time": T // 1000}, UsageError, f"looks like seconds. Give milliseconds: {T}"),
        ({"before_time": T * 1000}, UsageError, f"looks like microseconds. Give milliseconds: {T}"),
        ({"before_time": T * 10**6}, UsageError, f"looks like nanoseconds. Give milliseconds: {T}"),
        ({"before_time": "9999-01-01T00:00Z"}, UsageError, "is later than now"),
        ({"before_time": "9999-01-01T00:00Z"}, UsageError, "-1 deletes all records"),
        ({"before_time": 2**63 - 1}, UsageError, "is later than now"),
        ({"before_time": 2**63 - 1, "dry_run": True}, UsageError, "is later than now"),
        ({"before_time": T, "before_offsets": {0: 1}}, UsageError, "offsets or a time"),
        ({}, UsageError, "offsets or a time"),
        ({"before_offsets": {0: 1}, "partitions": [0]}, UsageError, "already name the partitions"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_and_changes_nothing(
    maker: LakeMaker, given_: dict[str, Any], error: type[SeglakeError], words: str
) -> None:
    before = sorted(maker.root.rglob("*"))
    with pytest.raises(error) as caught:
        seglake.delete_records(str(maker.root), "events", **given_)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert sorted(maker.root.rglob("*")) == before


def test_the_clock_of_storage_counts_too(maker: LakeMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose commit is ahead by days cannot remove what is to come."""
    now = time_ns() // 1_000_000
    monkeypatch.setattr(commit, "storage_time_ms", lambda _: now - 2 * DAY_MS)
    with pytest.raises(UsageError, match="is later than now"):
        seglake.delete_records(str(maker.root), "events", before_time=now - DAY_MS)
    assert log_of(maker).beginning_offsets() == {0: 0, 1: 0}
    monkeypatch.undo()
    seglake.delete_records(str(maker.root), "events", before_time=now - DAY_MS)
    assert log_of(maker).beginning_offsets() == {0: 60, 1: 9}


def test_a_compacted_topic_keeps_its_records_unless_it_may_delete(maker: LakeMaker) -> None:
    root = str(maker.root)
    seglake.alter(root, "events", {"cleanup.policy": "compact"})
    problem = r"cleanup\.policy is compact \(POLICY_VIOLATION\)"
    with pytest.raises(PolicyViolation, match=f"{problem}.*`seglake alter {root} events "):
        seglake.delete_records(root, "events", {0: 5})
    assert log_of(maker).beginning_offsets()[0] == 0
    seglake.alter(root, "events", {"cleanup.policy": "compact,delete"})
    seglake.delete_records(root, "events", {0: 5})
    assert log_of(maker).beginning_offsets()[0] == 5


def test_whole_segments_go_in_the_same_commit_and_their_files_by_a_vacuum(maker: LakeMaker) -> None:
    first, second = maker.catalog.rows.segments(maker.catalog.snapshot(), "events")[:2]
    start = second.base_offset + 3
    report = seglake.delete_records(str(maker.root), "events", {0: start})
    (moved,) = report.moved
    assert (moved.segments, moved.records, moved.log_bytes) == (
        1, first.record_count, first.log_bytes,
    )  # fmt: skip
    live = maker.catalog.rows.segments(maker.catalog.snapshot(), "events")
    assert first not in live
    assert second in live
    assert (maker.root / first.key("log")).exists()
    vacuum(str(maker.root), dry_run=False, grace_hours=0, retention_hours=0)
    assert not (maker.root / first.key("log")).exists()
    assert log_of(maker).read(0, start).column("offset").to_pylist() == list(range(start, 60))


def test_a_gap_may_be_where_the_log_begins(tmp_path: Path) -> None:
    rows = [Event(T), Event(T + 1, gap=5), Event(T + 2)]
    maker = lake_of(tmp_path, [{0: rows, 1: []}], Shape(batch_bytes=40))
    seglake.delete_records(str(tmp_path), "events", {0: 3})
    log = log_of(maker)
    assert log.read(0, 3).column("offset").to_pylist() == [6, 7]
    with pytest.raises(OffsetNotFound):
        log.record_at(0, 3)
