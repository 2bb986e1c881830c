"""Records over time: how many of each log partition lie in each bin of a time line.

A segment, or an index block, tells its number of records and its smallest and largest timestamp;
its records count as spread evenly between them. No record is read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.format.records import Int64s

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
_WIDTHS_MS = (
    1000, 10_000, MINUTE_MS, 5 * MINUTE_MS, 15 * MINUTE_MS, HOUR_MS, 3 * HOUR_MS, 6 * HOUR_MS,
    DAY_MS, 7 * DAY_MS, 30 * DAY_MS, 365 * DAY_MS,
)  # fmt: skip


class TimeSpans(NamedTuple):
    """Segments or index blocks: their log partitions, counts of records, and timestamps.

    Timestamps are in ms, both inclusive; item i is in partition partitions[i].
    """

    partitions: Int64s
    records: Int64s
    lows: Int64s
    highs: Int64s

    def take(self, which: npt.NDArray[np.bool_]) -> TimeSpans:
        """The items under a mask."""
        return TimeSpans(*(column[which] for column in self))

    def with_gaps(self, bins: Bins) -> TimeSpans:
        """The items with half of the usual gap between their records on each side, inside the bins.

        So a steady stream has no dip where two segments meet.
        """
        gaps = (self.highs - self.lows) / np.maximum(self.records - 1, 1)
        half = (gaps / 2).astype(np.int64)
        lows = np.maximum(self.lows - half, np.minimum(self.lows, bins.start_ms))
        highs = np.minimum(self.highs + half, np.maximum(self.highs, bins.end_ms - 1))
        return self._replace(lows=lows, highs=highs)


class Bins(NamedTuple):
    """Consecutive times of one width: bin i is [start + i * width, start + (i + 1) * width)."""

    start_ms: int
    width_ms: int
    length: int

    @staticmethod
    def over(low_ms: int, high_ms: int, most: int) -> Bins:
        """At most `most` bins that hold both times; if that is too few, as many of a year each."""
        fits = (w for w in _WIDTHS_MS if high_ms // w - low_ms // w < most)
        width = next(fits, _WIDTHS_MS[-1])
        return Bins(low_ms // width * width, width, high_ms // width - low_ms // width + 1)

    @property
    def end_ms(self) -> int:
        """The end of the last bin, exclusive."""
        return self.start_ms + self.length * self.width_ms

    def of(self, times: Int64s) -> Int64s:
        """The bin of each time; of one outside, the nearest bin."""
        return np.clip((times - self.start_ms) // self.width_ms, 0, self.length - 1)


def spread(spans: TimeSpans, bins: Bins, partitions: int) -> npt.NDArray[np.float64]:
    """Records by partition and bin; all spans must lie within the bins.

    A bin gets as large a share of a span's records as of its time.
    """
    first, last = bins.of(spans.lows), bins.of(spans.highs)
    row = spans.partitions * (bins.length + 1)
    rate = spans.records / (spans.highs - spans.lows + 1)
    one = first == last
    begins = bins.start_ms + (first + 1) * bins.width_ms - spans.lows  # ms within the first bin
    finishes = spans.highs + 1 - (bins.start_ms + last * bins.width_ms)
    size = partitions * (bins.length + 1)

    def add(at: Int64s, weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.bincount(row + at, weights, size).astype(np.float64, copy=False)

    parts = add(first, np.where(one, spans.records, rate * begins))
    parts += add(last, np.where(one, 0, rate * finishes))
    full = np.where(one, 0, rate * bins.width_ms)  # of each bin between the first and the last
    between = add(np.where(one, first, first + 1), full) - add(last, full)
    shape = partitions, bins.length + 1
    counts = parts.reshape(shape) + np.cumsum(between.reshape(shape), axis=1)
    return np.maximum(counts[:, :-1], 0)


def wide(spans: TimeSpans, bins: Bins) -> npt.NDArray[np.bool_]:
    """Which spans lie in more than one bin."""
    several: npt.NDArray[np.bool_] = bins.of(spans.lows) != bins.of(spans.highs)
    return several


class Usual(NamedTuple):
    """The time in which nearly all records lie, in ms, both inclusive."""

    low_ms: int
    high_ms: int

    def inside(self, spans: TimeSpans) -> npt.NDArray[np.bool_]:
        """Which spans lie wholly in it."""
        inside: npt.NDArray[np.bool_] = (spans.lows >= self.low_ms) & (spans.highs <= self.high_ms)
        return inside


def usual(spans: TimeSpans, now_ms: int) -> Usual | None:
    """The time of all records but stray ones; None without a record that has a usual timestamp.

    A record is stray if it lies more than an hour in the future, or if it lies before the first
    hundredth of the records by more than 30 days and more than three times the span of the others.
    """
    dated = spans.take((spans.records > 0) & (spans.lows >= 0) & (spans.highs <= now_ms + HOUR_MS))
    if not len(dated.records):
        return None
    low, high = _quantile(dated.lows, dated.records, 0.01), int(dated.highs.max())
    margin = max(30 * DAY_MS, 3 * (high - low))
    return Usual(int(dated.lows[dated.lows >= low - margin].min()), high)


def _quantile(values: Int64s, weights: Int64s, share: float) -> int:
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    return int(values[order][np.searchsorted(below, share * below[-1])])
