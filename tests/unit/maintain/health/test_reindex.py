"""Index files made anew are those of the policy, and change no answer."""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.catalog.commits import CatalogCommits
from seglake.catalog.schema import SegmentRow
from seglake.errors import CorruptData, StoreError, UnknownTopic
from seglake.format.index import IndexPolicy
from seglake.format.segment import rebuild
from seglake.layout import SUFFIXES
from seglake.maintain.health.reindex import reindex
from tests.harness.meanwhile import before_first
from tests.judges.described import describe
from tests.makers.catalog_rows import commit_rows
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.strategies import event_lists, examples
from tests.unit.maintain.refused import refuse

POLICIES = st.builds(IndexPolicy, st.sampled_from([0, 1, 300, 900, 4096]))
SHAPES = st.builds(
    Shape,
    codec=st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
    batch_bytes=st.sampled_from([100, 256, 2000]),
    segment_bytes=st.sampled_from([400_000, 2**30]),
    policy=POLICIES,
    append_time_ms=st.sampled_from([None, None, 1_700_000_000_123]),
)


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    """Two partitions, two runs, several segments each."""
    maker = LakeMaker(tmp_path, partitions=2)
    for run in range(2):
        rows = [Event(1000 * run + i * 7 % 50, b"k", b"v" * 30) for i in range(60)]
        maker.run({0: rows, 1: rows[:20]}, Shape(codec="zstd", segment_bytes=500))
    return maker


def _rows(maker: LakeMaker) -> list[SegmentRow]:
    return maker.catalog.rows.segments(maker.catalog.snapshot(), maker.topic)


def _read(maker: LakeMaker, key: str) -> bytes:
    return (maker.root / key).read_bytes()


def _answers(maker: LakeMaker, version: int | None = None) -> Any:
    log = seglake.open(str(maker.root), version).topic(maker.topic)
    windows = [log.read_range(start, start + 20) for start in (0, 5, 40, 1010)]
    return (
        [window.read_all().to_pylist() for window in windows],
        [log.offsets_for_times(dict.fromkeys(log.partitions(), time)) for time in (0, 9, 1030)],
    )


@given(event_lists(max_size=120), SHAPES, POLICIES)
@examples(25)
def test_files__are_those_of_the_policy(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event], shape: Shape, policy: IndexPolicy
) -> None:
    maker = LakeMaker(tmp_path_factory.mktemp("lake"))
    events = [event._replace(gap=0) for event in events]
    maker.run({0: events}, shape)
    before = _rows(maker)
    assert reindex(str(maker.root), "events").segments == len(before)
    for old, new in zip(before, _rows(maker), strict=True):
        assert new.index_attempt_id != old.index_attempt_id
        assert dataclasses.replace(new, index_attempt_id=old.index_attempt_id) == old
        for suffix in SUFFIXES:
            assert _read(maker, new.key(suffix)) == _read(maker, old.key(suffix))
    reindex(str(maker.root), "events", policy)
    for row in _rows(maker):
        table = describe(_read(maker, row.key("log")))
        files = rebuild(row.base_offset, table, policy).files
        for suffix in row.suffixes[1:]:
            assert _read(maker, row.key(suffix)) == files[suffix]
            assert row.size(suffix) == len(files[suffix])
        assert row.index_interval == policy.interval


def test_answers__stay_the_same_in_old_and_new_versions(maker: LakeMaker) -> None:
    before, version = _answers(maker), maker.versions[-1]
    logs = [row.key("log") for row in _rows(maker)]
    report = reindex(str(maker.root), "events", IndexPolicy(0))
    assert report.version == version + 1
    assert report.index_bytes > report.index_bytes_before > 0
    assert [row.key("log") for row in _rows(maker)] == logs
    assert _answers(maker) == _answers(maker, version) == before


def test_partitions__that_are_not_chosen_stay_as_they_are(maker: LakeMaker) -> None:
    before = _rows(maker)
    report = reindex(str(maker.root), "events", IndexPolicy(0), partitions=[1])
    after = _rows(maker)
    assert [row for row in before if row.partition == 0] == [
        row for row in after if row.partition == 0
    ]
    renewed = {row.index_attempt_id for row in after if row.partition == 1}
    assert renewed == {report.attempt_id}
    with pytest.raises(UnknownTopic, match="partitions 0 to 1"):
        reindex(str(maker.root), "events", partitions=[2])
    with pytest.raises(UnknownTopic, match="nope"):
        reindex(str(maker.root), "nope")


def test_a_topic_without_segments__needs_no_commit(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path)
    maker.run({})
    report = reindex(str(tmp_path), "events")
    assert (report.version, report.segments) == (-1, 0)


def test_segments_removed_meanwhile__do_not_come_back(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = len(_rows(maker))
    start = next(row.end_offset for row in _rows(maker) if row.partition == 0)
    act = partial(maker.delete_records, 0, start)
    before_first(monkeypatch, CatalogCommits, "make", act)
    report = reindex(str(maker.root), "events")
    assert (report.segments, report.skipped) == (count - 1, 1)
    assert len(_rows(maker)) == count - 1


def test_segments_indexed_meanwhile__are_left_to_the_winner(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, dense = len(_rows(maker)), IndexPolicy(0)
    act = partial(reindex, str(maker.root), "events", dense)
    before_first(monkeypatch, CatalogCommits, "make", act)
    report = reindex(str(maker.root), "events", IndexPolicy(540))
    assert (report.version, report.segments, report.skipped) == (-1, 0, count)
    assert {row.index_interval for row in _rows(maker)} == {0}


def test_a_log_that_storage_refuses__is_no_damage(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, maker, _rows(maker)[2].key("log"))
    with pytest.raises(StoreError, match="403 Forbidden"):
        reindex(str(maker.root), "events")
    assert maker.catalog.snapshot().version == maker.versions[-1]


def test_a_log_that_contradicts_its_row__is_not_indexed(maker: LakeMaker) -> None:
    base = maker.catalog.snapshot()
    row = _rows(maker)[0]
    liar = dataclasses.replace(row, max_timestamp=row.max_timestamp + 1)
    place = [(row.partition, row.base_offset)]
    attempt = seglake.layout.new_attempt()
    commit_rows(maker.catalog, [liar], base=base, attempt_id=attempt, replaced=place)
    with pytest.raises(CorruptData, match=r"max_timestamp is \d+, but the catalog has"):
        reindex(str(maker.root), "events")
