"""Summarise the times of a file's records, to detect times that are read wrongly.

Seconds that are read as milliseconds are in January 1970, and so are milliseconds that are read as
microseconds. Times without a year go back by more than half a year where a new year begins.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seglake.format.records import Int64s

FEBRUARY_MS = 31 * 86_400_000  # 1970-02-01; seconds of the years to 2054 are below it
HALF_A_YEAR_MS = 183 * 86_400_000


class FileTimes(NamedTuple):
    """The times of consecutive records of a file, in ms. Without records, all times are -1.

    `early` of the `records` have a time in January 1970. `from_ms` and `to_ms` are the times of the
    two neighbours with the largest step back, or -1 if no time is below the previous time.
    """

    newest_ms: int = -1
    early: int = 0
    records: int = 0
    first_ms: int = -1
    last_ms: int = -1
    from_ms: int = -1
    to_ms: int = -1

    @staticmethod
    def from_timestamps(timestamps: Int64s) -> FileTimes:
        """Summarise the timestamps of consecutive records, in the order of the file."""
        if not len(timestamps):
            return FileTimes()
        steps = np.diff(timestamps)
        at = int(steps.argmin()) if len(steps) else 0
        goes_back = len(steps) > 0 and steps[at] < 0
        return FileTimes(
            int(timestamps.max()),
            int(((timestamps >= 0) & (timestamps < FEBRUARY_MS)).sum()),
            len(timestamps),
            int(timestamps[0]),
            int(timestamps[-1]),
            *((int(timestamps[at]), int(timestamps[at + 1])) if goes_back else (-1, -1)),
        )

    def merge(self, later: FileTimes) -> FileTimes:
        """Return the times of these records followed by `later` ones."""
        if not self.records or not later.records:
            return self if self.records else later
        steps = [(self.from_ms, self.to_ms), (later.from_ms, later.to_ms)]
        if later.first_ms < self.last_ms:
            steps.append((self.last_ms, later.first_ms))
        return FileTimes(
            max(self.newest_ms, later.newest_ms),
            self.early + later.early,
            self.records + later.records,
            self.first_ms,
            later.last_ms,
            *max(steps, key=lambda step: step[0] - step[1]),
        )
