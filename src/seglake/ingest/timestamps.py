"""Times as they are written in events, to milliseconds since the epoch.

Three readers, each one kernel over all items: numbers, ISO 8601, and strptime patterns, which are
compiled to a table of steps. Common rules:

- what is finer than a millisecond is cut off towards the past;
- the result must lie in 1970 to 9999, else the reason is "timestamp out of range": Kafka refuses
  negative timestamps;
- a second of 60 (a leap second) is the first second of the next minute, as POSIX counts;
- a value without a zone is local time in `timestamp.zone`. Of a time that clocks show twice the
  earlier instant is meant; one that they skip is the first instant after the gap.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from seglake.config import EPOCH_FORMATS, Timestamp
from seglake.errors import ConfigError
from seglake.format.records import Int64s, Spans
from seglake.ingest.time_kernels import (
    MAX_MS,
    NAMES,
    OUT_OF_RANGE,
    READ,
    Codes,
    compile_pattern,
    read_iso,
    read_numbers,
    read_pattern,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_DAY = datetime(9999, 12, 30, tzinfo=UTC)  # of which every zone can tell the time
_SECOND = timedelta(seconds=1)
_WEEK_SECONDS = 7 * 86_400
_DAY_MS = 86_400_000
_POWERS = {"epoch_s": 3, "epoch_ms": 0, "epoch_us": -3, "epoch_ns": -6}


class Times(NamedTuple):
    """n times: milliseconds since the epoch, and READ, UNREADABLE or OUT_OF_RANGE for each.

    The milliseconds of a time that was not READ have no meaning.
    """

    ms: Int64s
    codes: Codes


def read_times(texts: Spans, settings: Timestamp) -> Times:
    """Read texts as `timestamp.format` says; a null is UNREADABLE. `texts.data` is padded."""
    form = settings.format
    if form is None:
        raise ConfigError("timestamp.format is missing; the field holds no Arrow time type")
    if form in EPOCH_FORMATS:
        ms, codes = read_numbers(texts.data, texts.starts, texts.lengths, _POWERS[form])
        return in_range(ms, codes)
    if form == "iso8601":
        ms, codes, local = read_iso(texts.data, texts.starts, texts.lengths)
    else:
        steps = compile_pattern(form)
        year = -1 if settings.year is None else settings.year
        spans = (texts.data, texts.starts, texts.lengths)
        ms, codes, local = read_pattern(*spans, steps, NAMES, year)
    return in_range(to_utc(ms, local & (codes == READ), settings.zone), codes)


def in_range(ms: Int64s, codes: Codes) -> Times:
    """Times outside 1970 to 9999 are OUT_OF_RANGE."""
    outside = (codes == READ) & ((ms < 0) | (ms > MAX_MS))
    return Times(ms, np.where(outside, np.int8(OUT_OF_RANGE), codes))


def to_utc(ms: Int64s, local: npt.NDArray[np.bool_], zone: str) -> Int64s:
    """Turn the times that are `local` to `zone` into UTC."""
    if zone in {"UTC", "Etc/UTC"} or not local.any():
        return ms
    clock = np.clip(ms[local], -_DAY_MS, MAX_MS)
    years = np.unique(clock.astype("datetime64[ms]").astype("datetime64[Y]").astype(int)) + 1970
    near = sorted({year + step for year in years.tolist() for step in (-1, 0, 1)} - {10_000})
    changes = np.concatenate([_changes(zone, year) for year in near])
    instants, before, after = changes.T
    last = np.searchsorted(instants + before, clock, side="right") - 1
    result = ms.copy()
    utc = np.maximum(clock - after[last], instants[last])
    result[local] = np.where(clock == ms[local], utc, ms[local])  # what is out of range remains it
    return result


@cache  # at most a row of years for each zone
def _changes(zone: str, year: int) -> Int64s:
    """The beginning of a year and the changes of a zone's offset in it, in UTC.

    Rows of (instant, offset before, offset after) in milliseconds; in the first row both are the
    same. Offsets are compared week by week, since some zones change twice within a month.
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
