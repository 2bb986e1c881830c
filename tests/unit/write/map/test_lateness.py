"""Lateness of events in order of arrival, against one pass over all of them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seglake.write.map.unit import Arrivals, largest_lateness_ms

PARTITIONS = 3
events = st.tuples(st.integers(0, PARTITIONS - 1), st.integers(-1, 50) | st.integers(0, 2**60))
units = st.lists(st.lists(st.lists(events, max_size=5), max_size=3), max_size=5)


@given(units)
def test_units_joined_are_one_pass(units: list[list[list[tuple[int, int]]]]) -> None:
    noted = []
    for unit in units:
        arrivals = Arrivals(PARTITIONS)
        for chunk in unit:
            columns = np.array(chunk, np.int64).reshape(-1, 2)
            arrivals.add(columns[:, 1], columns[:, 0].astype(np.int32))
        noted.append(arrivals.ranges())
    worst, largest = 0, [-1] * PARTITIONS
    for partition, time in (event for unit in units for chunk in unit for event in chunk):
        worst = max(worst, largest[partition] - time)
        largest[partition] = max(largest[partition], time)
    assert largest_lateness_ms(noted) == worst
