"""Summarise the times of a file's records, to detect times that were parsed wrongly.

Seconds that are parsed as milliseconds are in January 1970, and so are milliseconds that are parsed
as microseconds. Times without a year go back by more than half a year where a new year begins.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seglake.format.records import Int64s

FEBRUARY_MS = 31 * 86_400_000  # 1970-02-01; epoch seconds are smaller until 2054
HALF_A_YEAR_MS = 183 * 86_400_000


class FileTimes(NamedTuple):
    """A summary of the times of consecutive records of a file, in ms. Missing times are -1.

    `records` is the number of records, and `early` the number with a time in January 1970.
    `first_ms` and `last_ms` are the times of the first and the last record. `from_ms` and `to_ms`
    are the two consecutive times with the largest step back, both -1 if times never go back.
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
        step = (int(timestamps[at]), int(timestamps[at + 1])) if goes_back else (-1, -1)
        early = int(((timestamps >= 0) & (timestamps < FEBRUARY_MS)).sum())
        newest, first, last = int(timestamps.max()), int(timestamps[0]), int(timestamps[-1])
        return FileTimes(newest, early, len(timestamps), first, last, *step)

    def merge(self, later: FileTimes) -> FileTimes:
        """Return the summary of these records followed by the records of `later`."""
        if not self.records or not later.records:
            return self if self.records else later
        steps = [(self.from_ms, self.to_ms), (later.from_ms, later.to_ms)]
        if later.first_ms < self.last_ms:
            steps.append((self.last_ms, later.first_ms))
        largest = max(steps, key=lambda step: step[0] - step[1])
        newest, records = max(self.newest_ms, later.newest_ms), self.records + later.records
        early = self.early + later.early
        return FileTimes(newest, early, records, self.first_ms, later.last_ms, *largest)
