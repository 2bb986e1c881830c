"""Lateness: how far the time of an event lies below the largest time that arrived before it.

Events arrive in the order of file and position; each log partition counts on its own. Units are
read in parallel, so each unit gives a few numbers for every partition, and the driver joins them.
"""

from collections.abc import Iterable

import numpy as np

from seglake.format.records import Int32s, Int64s
from seglake.jit import njit
from seglake.limits import INT64_MAX

TimeRange = tuple[int, int, int, int]  # partition; in ms: smallest, largest time, lateness within


class Arrivals:
    """The times of consecutive records of `partitions` log partitions."""

    def __init__(self, partitions: int) -> None:
        self._low = np.full(partitions, INT64_MAX)
        self._high = np.full(partitions, -1)
        self._late = np.zeros(partitions, np.int64)

    def add(self, timestamps: Int64s, partitions: Int32s) -> None:
        """Add the records that come next."""
        _add(timestamps, partitions, self._low, self._high, self._late)

    def ranges(self) -> list[TimeRange]:
        """The range of each partition that has records, for `largest_lateness_ms`."""
        used = np.flatnonzero(self._low < INT64_MAX)
        columns = [used, self._low[used], self._high[used], self._late[used]]
        return list(zip(*(column.tolist() for column in columns), strict=True))


def largest_lateness_ms(units: Iterable[Iterable[TimeRange]]) -> int:
    """The lateness in ms of the latest event; `units` stand in the order of arrival."""
    highs: dict[int, int] = {}
    worst = 0
    for unit in units:
        for partition, low, high, late in unit:
            before = highs.get(partition, -1)
            worst = max(worst, late, before - low)
            highs[partition] = max(before, high)
    return worst


@njit(cache=True, nogil=True)
def _add(timestamps: Int64s, partitions: Int32s, low: Int64s, high: Int64s, late: Int64s) -> None:
    for row in range(len(timestamps)):
        partition, time = partitions[row], timestamps[row]
        late[partition] = max(late[partition], high[partition] - time)
        high[partition] = max(high[partition], time)
        low[partition] = min(low[partition], time)
