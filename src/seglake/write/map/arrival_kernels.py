"""Compute the lateness of the records of each log partition, for `seglake.write.map.unit`."""

from seglake.compile.jit import njit
from seglake.format.records import Int32s, Int64s


@njit(cache=True, nogil=True)
def add_times(times: Int64s, partitions: Int32s, low: Int64s, high: Int64s, late: Int64s) -> None:
    """Update the smallest time, the largest time and the lateness of each log partition, in ms.

    `times` and `partitions` have one item per record, in the order of arrival. `low`, `high`
    and `late` have one item per log partition.
    """
    for row in range(len(times)):
        partition, time = partitions[row], times[row]
        late[partition] = max(late[partition], high[partition] - time)
        high[partition] = max(high[partition], time)
        low[partition] = min(low[partition], time)
