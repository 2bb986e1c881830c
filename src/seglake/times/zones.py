"""Convert local times to UTC.

A local time that clocks show twice is by default the earlier instant; see `TimeFormat.ambiguous`. A
local time that clocks skip is by default the first instant after the gap; see
`TimeFormat.nonexistent`, whose value "earliest" selects the last millisecond before the gap, as in
Arrow's `assume_timezone`. Offsets come from the IANA data of the system or of the package `tzdata`.
"""

import itertools
from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import numpy as np

from seglake.format.records import Flags, Int64s
from seglake.times.grammar import TimeFormat
from seglake.times.time_kernels import AMBIGUOUS, MAX_MS, NONEXISTENT, Codes

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_DAY = datetime(9999, 12, 30, tzinfo=UTC)  # the last day with a local datetime in every zone
_SECOND = timedelta(seconds=1)
_WEEK_SECONDS = 7 * 86_400
_DAY_MS = 86_400_000
_UTC = frozenset({"UTC", "Etc/UTC"})


def to_utc(
    ms: Int64s, local: Flags, zone: str, ambiguous: str = "earliest", nonexistent: str = "latest"
) -> Int64s:
    """Return the times in UTC. Times that are `local` are converted from `zone`."""
    if zone in _UTC or not local.any():
        return ms
    clock = np.clip(ms[local], -_DAY_MS, MAX_MS)
    instants, before, after = _changes_near(clock, zone)
    last = np.searchsorted(instants + before, clock, side="right") - 1
    utc = np.maximum(clock - after[last], instants[last])
    if ambiguous == "latest":
        following = np.minimum(last + 1, len(instants) - 1)
        again = (following > last) & (clock >= (instants + after)[following])
        utc[again] = (clock - after[following])[again]
    if nonexistent == "earliest":
        skipped = clock < (instants + after)[last]
        utc[skipped] = instants[last][skipped] - 1
    result = ms.copy()
    # Times out of range are kept, so that they are rejected later.
    result[local] = np.where(clock == ms[local], utc, ms[local])
    return result


def read_local(ms: Int64s, codes: Codes, local: Flags, form: TimeFormat) -> Int64s:
    """Return the times in UTC. Set the codes of ambiguous or skipped times that `form` rejects."""
    if "reject" in (form.ambiguous, form.nonexistent):
        first = to_utc(ms, local, form.zone)
        if form.ambiguous == "reject":
            codes[first != to_utc(ms, local, form.zone, ambiguous="latest")] = AMBIGUOUS
        if form.nonexistent == "reject":
            codes[first != to_utc(ms, local, form.zone, nonexistent="earliest")] = NONEXISTENT
    return to_utc(ms, local, form.zone, form.ambiguous, form.nonexistent)


def is_near_a_change(ms: Int64s, zone: str) -> bool:
    """Return whether any of the UTC times is within a day of a change of the zone's offset."""
    if zone in _UTC or not len(ms):
        return False
    times = np.clip(ms, 0, MAX_MS)
    instants, before, after = _changes_near(times, zone)
    changes = instants[before != after]
    first = np.searchsorted(changes, times - _DAY_MS)
    return bool((np.searchsorted(changes, times + _DAY_MS) > first).any())


def _changes_near(clock: Int64s, zone: str) -> Int64s:
    """Return the columns of `_changes` for the years of the times and the neighbouring years.

    The row for the beginning of a year is removed if the row before it has the same offset. Such a
    row could be in an hour that clocks show twice, where it would be out of order.
    """
    years = np.unique(clock.astype("datetime64[ms]").astype("datetime64[Y]").astype(int)) + 1970
    nearby = sorted({year + step for year in years.tolist() for step in (-1, 0, 1)} - {10_000})
    changes = np.concatenate([_changes(zone, year) for year in nearby])
    real = np.append(True, changes[1:, 2] != changes[:-1, 2]) | (changes[:, 1] != changes[:, 2])
    changes_near: Int64s = changes[real].T
    return changes_near


@cache  # one entry for each zone and year
def _changes(zone: str, year: int) -> Int64s:
    """Return the beginning of a year and the changes of a zone's offset in it, in UTC.

    Rows are (instant, offset before, offset after) in milliseconds. The first row has two equal
    offsets. Offsets are compared week by week, because some zones change twice in a month.
    """
    info = ZoneInfo(zone)

    def offset(second: int) -> int:
        there = (_EPOCH + timedelta(seconds=second)).astimezone(info)
        return (there.utcoffset() or timedelta()) // _SECOND

    end = _LAST_DAY if year == 9999 else datetime(year + 1, 1, 1, tzinfo=UTC)
    starts = [(at - _EPOCH) // _SECOND for at in (datetime(year, 1, 1, tzinfo=UTC), end)]
    probes = [*range(starts[0], starts[1], _WEEK_SECONDS), starts[1]]
    rows = [(starts[0], offset(starts[0]), offset(starts[0]))]
    for low, high in itertools.pairwise(probes):
        if offset(low) != offset(high):
            change = bisect_left(range(low, high), True, key=lambda s: offset(s) != offset(low))
            rows.append((low + change, offset(low), offset(high)))
    return np.array(rows, np.int64) * 1000
