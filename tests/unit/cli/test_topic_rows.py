"""The sizes and times that `seglake topics` shows are those of the records that are there."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.cli.inspect import segment_rows, topic_rows
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.strategies import examples


def test_a_lost_log_hides_no_listing(tmp_path: Path) -> None:
    """They are for who looks for damage, too: the oldest time is that of the whole segment."""
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(time, b"k", b"value") for time in (5, 6, 7)]})
    maker.delete_records(0, 1)
    for log in tmp_path.rglob("*.log"):
        log.unlink()
    lake = seglake.open(str(tmp_path))
    (row,), (segment,) = topic_rows(lake).rows, segment_rows(lake.topic("events"), 0).rows
    assert (row["min_timestamp"], segment["min_timestamp"], segment["record_count"]) == (5, 5, 2)


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
