"""The times in events, read as milliseconds since the epoch.

There are three readers, each one kernel over all items: for numbers, for ISO 8601, and for strptime
patterns, which are compiled to a table of steps. Common rules:

- a time is rounded down to a millisecond;
- the result must lie in 1970 to 9999, else the reason is "timestamp out of range": Kafka refuses
  negative timestamps;
- a second of 60 (a leap second) is the first second of the next minute, as POSIX counts;
- a value without a zone is local time in `timestamp.zone` (see `zones`).
"""

from typing import NamedTuple

import numpy as np

from seglake.errors import ConfigError
from seglake.format.records import Flags, Int64s, Spans
from seglake.times.grammar import EPOCH_POWERS, ISO, TimeFormat
from seglake.times.patterns import NAMES, compile_pattern
from seglake.times.time_kernels import (
    MAX_MS,
    OUT_OF_RANGE,
    READ,
    Codes,
    read_iso,
    read_numbers,
    read_pattern,
)
from seglake.times.zones import read_local


class Times(NamedTuple):
    """Times in milliseconds since the epoch, and a code for each, READ for those that were read.

    The milliseconds of a time that is not READ have no meaning. `local` says which of the READ ones
    named no zone; numbers need none.
    """

    ms: Int64s
    codes: Codes
    local: Flags


def read_times(texts: Spans, form: TimeFormat) -> Times:
    """Read texts in the format `form`; null is UNREADABLE. `texts.data` is padded."""
    if form.text is None:
        raise ConfigError("timestamp.format is missing; the field does not have an Arrow time type")
    if form.text in EPOCH_POWERS:
        ms, codes = read_numbers(*texts, EPOCH_POWERS[form.text])
        return in_range(ms, codes, np.zeros(len(ms), np.bool_))
    if form.text == ISO:
        ms, codes, local = read_iso(*texts)
    else:
        year = -1 if form.year is None else form.year
        ms, codes, local = read_pattern(*texts, compile_pattern(form.text), NAMES, year)
    local &= codes == READ
    return in_range(read_local(ms, codes, local, form), codes, local)


def in_range(ms: Int64s, codes: Codes, local: Flags) -> Times:
    """The times, with OUT_OF_RANGE for those outside 1970 to 9999."""
    outside = (codes == READ) & ((ms < 0) | (ms > MAX_MS))
    codes = np.where(outside, np.int8(OUT_OF_RANGE), codes)
    return Times(ms, codes, local & (codes == READ))
