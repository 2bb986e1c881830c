"""Sets of intervals, against sets of whole numbers."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from seglake.times.intervals import Interval, common, covers, united, without

INTERVALS = st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), max_size=8)


def points(intervals: Iterable[Interval]) -> set[int]:
    return {point for low, high in intervals for point in range(low, high)}


def assert_set(intervals: list[Interval], wanted: set[int]) -> None:
    """Disjoint, in order, and apart: so there is one way to write a set."""
    assert points(intervals) == wanted
    assert all(low < high for low, high in intervals)
    ends = [bound for interval in intervals for bound in interval]
    assert ends == sorted(set(ends))


@given(INTERVALS)
def test_united(intervals: list[Interval]) -> None:
    assert_set(united(intervals), points(intervals))


@given(INTERVALS, INTERVALS)
def test_common(left: list[Interval], right: list[Interval]) -> None:
    assert_set(common(united(left), united(right)), points(left) & points(right))


@given(INTERVALS, INTERVALS)
def test_without(left: list[Interval], right: list[Interval]) -> None:
    assert_set(without(united(left), united(right)), points(left) - points(right))


@given(INTERVALS, st.integers(-25, 25), st.integers(0, 30))
def test_a_set_covers_what_its_intervals_cover(
    intervals: list[Interval], start: int, length: int
) -> None:
    whole = set(range(start, start + length)) <= points(intervals)
    real = [interval for interval in intervals if interval[0] < interval[1]]
    assert covers(real, start, start + length) == whole
    assert covers(united(intervals), start, start + length) == whole
