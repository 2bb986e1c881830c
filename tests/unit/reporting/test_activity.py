"""Records over time, compared with a count of one record after another."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seglake.reporting.figures import DAY_MS, HOUR_MS, Bins, TimeSpans, spread_records, usual_range

SPAN = st.tuples(
    st.integers(0, 2), st.integers(0, 50), st.integers(0, 10**6), st.integers(0, 10**6)
)


def spans_of(rows: list[tuple[int, int, int, int]]) -> TimeSpans:
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    return TimeSpans(columns[0], columns[1], columns[2], columns[2] + columns[3])


@given(st.lists(SPAN, min_size=1, max_size=30), st.integers(1, 300))
def test_records_are_spread_over_the_time_of_their_span(
    rows: list[tuple[int, int, int, int]], most: int
) -> None:
    spans = spans_of(rows)
    bins = Bins.covering(int(spans.lows.min()), int(spans.highs.max()), most)
    wanted = [[Fraction(0)] * bins.length for _ in range(3)]
    edges = [bins.start_ms + number * bins.width_ms for number in range(bins.length + 1)]
    for partition, records, low, more in rows:
        for number in range(bins.length):
            inside = min(edges[number + 1], low + more + 1) - max(edges[number], low)
            wanted[partition][number] += records * Fraction(max(0, inside), more + 1)
    found = spread_records(spans, bins, 3)
    assert np.allclose(found, np.array(wanted, float), atol=1e-6)
    assert np.isclose(found.sum(), spans.records.sum())


@given(st.integers(1000, 200_000), st.lists(st.integers(2, 400), min_size=1, max_size=12))
def test_a_steady_stream_has_no_dip_where_segments_meet(gap_ms: int, counts: list[int]) -> None:
    firsts = np.cumsum([0, *counts[:-1]])
    rows = [
        (0, n, 7 + int(at) * gap_ms, (n - 1) * gap_ms) for at, n in zip(firsts, counts, strict=True)
    ]
    spans = spans_of(rows)
    bins = Bins.covering(int(spans.lows.min()), int(spans.highs.max()), 200)
    widened = spans.with_gaps(bins)
    assert bins.bin_numbers(widened.lows).min() >= 0
    assert widened.lows.min() >= bins.start_ms
    assert widened.highs.max() < bins.end_ms
    (found,) = spread_records(widened, bins, 1)
    assert np.isclose(found.sum(), sum(counts))
    steady = bins.width_ms / gap_ms
    assert np.all(np.abs(found[1:-1] - steady) < 0.03 * steady + 2 / min(counts))


@given(st.integers(0, 2**42), st.integers(0, 2**42), st.integers(1, 500))
def test_bins_hold_both_times(low: int, more: int, most: int) -> None:
    bins = Bins.covering(low, low + more, most)
    assert bins.start_ms <= low
    assert low + more < bins.start_ms + bins.length * bins.width_ms
    assert bins.start_ms + bins.width_ms > low
    assert bins.length <= max(most, more // (365 * DAY_MS) + 2)
    assert bins.bin_numbers(np.array([low, low + more])).tolist() == [0, bins.length - 1]


def test_stray_times_are_not_usual() -> None:
    now = 1_780_272_000_000
    rows = [(0, 1000, now - day * DAY_MS, HOUR_MS) for day in range(1, 6)]
    stray = [(0, 1, now + 3 * HOUR_MS, 0), (1, 1, 0, 0), (0, 9, -1, 0)]
    found = usual_range(spans_of(rows + stray), now)
    assert found == (now - 5 * DAY_MS, now - DAY_MS + HOUR_MS)
    assert usual_range(spans_of(stray[:1]), now) is None
