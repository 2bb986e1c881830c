"""Coverage by intervals, compared with a set of covered points."""

from hypothesis import given
from hypothesis import strategies as st

from seglake.reporting.figures import coverage
from seglake.times.intervals import covers

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=12)


@given(INTERVALS, st.one_of(st.none(), st.integers(0, 70)))
def test_coverage_is_that_of_the_points(
    given_rows: list[tuple[int, int]], oldest: int | None
) -> None:
    intervals = [(start, start + length) for start, length in given_rows]
    points = {point for start, end in intervals for point in range(start, end)}
    found = coverage(intervals, oldest)
    assert {p for start, end in found.covered for p in range(start, end)} == points
    if not points:
        assert (found.holes, found.closed_until_ms, found.lag_ms(9)) == ([], None, None)
        return
    missing = set(range(min(points), max(points))) - points
    gone = {p for start, end in found.holes for p in range(start, end)}
    assert gone <= missing
    assert all(oldest is not None and p < oldest for p in missing - gone)
    closed = found.closed_until_ms
    assert closed is not None
    assert closed == min(gone, default=max(points) + 1)
    assert found.covered[-1][1] == max(points) + 1
    assert found.lag_ms(100) == 100 - closed
    if oldest is None:  # `Log.closed` says the same
        assert covers(intervals, min(points), closed)
        assert not covers(intervals, min(points), closed + 1)
