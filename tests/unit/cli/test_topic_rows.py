"""The sizes and times that `seglake topics` shows are those of the records that are there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.cli.segments import segment_rows
from seglake.cli.topics import topic_rows
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.strategies import examples

TIMES = st.lists(st.integers(0, 500), min_size=1, max_size=60)


@given(TIMES, TIMES, st.data())
@examples(15)
def test_the_oldest_time_is_that_of_what_is_left(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[int],
    second: list[int],
    data: st.DataObject,
) -> None:
    maker = LakeMaker(tmp_path_factory.mktemp("lake"))
    for times in (first, second):
        maker.run({0: [Event(time, b"k", b"value") for time in times]}, Shape(batch_bytes=200))
    start = data.draw(st.integers(0, len(first) + len(second)))
    maker.delete_records(0, start)
    left = [*first, *second][start:]
    lake = seglake.open(str(maker.root))
    (row,) = topic_rows(lake).rows
    assert row["records"] == len(left)
    if left:
        assert row["min_timestamp"] == min(left)
    for segment in segment_rows(lake.topic("events"), 0).rows:
        ends = segment["end_offset"]
        mine = [*first, *second][max(start, segment["base_offset"]) : ends]
        assert segment["record_count"] == len(mine)
        assert segment["min_timestamp"] == min(mine, default=-1)
