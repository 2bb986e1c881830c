"""Describe segments for readers, and the part of a read that one segment answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.catalog.schema import SegmentRow
from seglake.catalog.version.snapshot import PartitionView
from seglake.format.records import Int64s
from seglake.layout import LINK
from seglake.limits import INT64_MAX, INT64_MIN, NO_END


class Window(NamedTuple):
    """A range of times and a range of offsets, both with exclusive ends.

    A record is in the window if it is in both ranges. `Window()` contains every record. Its end
    offset, INT64_MAX, is above the largest possible offset of a record. `end_ms` may be
    NO_END, which does not fit into int64, so arrays have the inclusive bounds of `window_limits`.
    """

    start_ms: int = INT64_MIN
    end_ms: int = NO_END
    start_offset: int = 0
    end_offset: int = INT64_MAX

    @staticmethod
    def from_times(start_ms: int, end_ms: int) -> Window:
        """Return the window of records with start_ms <= timestamp < end_ms.

        A record without a timestamp (-1) is in no window of times, however long the window is.
        """
        return Window(max(start_ms, 0), max(end_ms, 0))

    def above(self, offset: int) -> Window:
        """Return the window without the offsets below `offset`."""
        return self if self.start_offset >= offset else self._replace(start_offset=offset)


def window_limits(windows: Iterable[Window]) -> Int64s:
    """Return a row for each window: the smallest and largest timestamp and offset, inclusive."""
    rows = [(start, end - 1, first, last - 1) for start, end, first, last in windows]
    return np.array(rows, np.int64).reshape(-1, 4)


class LogRanges(NamedTuple):
    """Ascending byte ranges [starts[i], ends[i]) of a log. Each range has only complete batches.

    The batches in range i have offsets first_offsets[i] to end_offsets[i], exclusive. A fetch
    checks base offsets against these bounds, because base offsets are outside a batch's checksum.
    """

    starts: Int64s
    ends: Int64s
    first_offsets: Int64s
    end_offsets: Int64s

    @staticmethod
    def one(start: int, end: int, first_offset: int, end_offset: int) -> LogRanges:
        """Return a single range."""
        return LogRanges(*np.array([[start], [end], [first_offset], [end_offset]], np.int64))

    def take(self, rows: slice | npt.NDArray[np.bool_]) -> LogRanges:
        """Return the ranges that `rows` (a slice or a mask) selects."""
        return LogRanges(*(column[rows] for column in self))

    def joined(self) -> LogRanges:
        """Join adjacent ranges. The bytes do not change."""
        count = len(self.starts)
        begins = np.append(True, self.starts[1:] != self.ends[:-1])[:count]
        finishes = np.append(begins[1:], True)[:count]
        return LogRanges(
            self.starts[begins], self.ends[finishes],
            self.first_offsets[begins], self.end_offsets[finishes],
        )  # fmt: skip


class LogSegment(NamedTuple):
    """One segment of a log partition. It covers offsets `base_offset` to `end_offset`, exclusive.

    `record_count` is -1 if the count is unknown. `keyindex_bytes` is 0 without a key index.
    `keyindex_kinds` has a bit for each kind of subject in the key index.
    """

    topic: str
    partition: int
    log_key: str
    zonemap_key: str
    base_offset: int
    end_offset: int
    log_bytes: int
    zonemap_bytes: int
    record_count: int = -1
    keyindex_key: str = ""
    keyindex_bytes: int = 0
    keyindex_kinds: int = 0

    @property
    def log(self) -> LogRanges:
        """Return the whole log as one range."""
        return LogRanges.one(0, self.log_bytes, self.base_offset, self.end_offset)

    @property
    def is_external(self) -> bool:
        """Return whether the log is outside the lake, and the lake has a link to it."""
        return self.log_key.endswith(f".{LINK}")

    @staticmethod
    def from_row(row: SegmentRow) -> LogSegment:
        """Return the segment of a row of the catalog."""
        return LogSegment(
            row.topic, row.partition, row.key("log"), row.key("zonemap"),
            row.base_offset, row.end_offset, row.log_bytes, row.zonemap_bytes,
        )  # fmt: skip

    @staticmethod
    def from_view(view: PartitionView, index: int) -> LogSegment:
        """Return the segment at position `index` of `view`, counted from 0."""
        row = view.segment(index)
        return LogSegment(
            row.topic, row.partition, row.key("log"), row.key("zonemap"),
            row.base_offset, row.end_offset, row.sizes["log"], row.sizes["zonemap"],
            row.record_count, row.key("keyindex"), row.sizes.get("keyindex", 0),
            row.keyindex_kinds,
        )  # fmt: skip


class Piece(NamedTuple):
    """The part of a read that is in one segment. With `Window()`, all its records are wanted."""

    segment: LogSegment
    window: Window
    ranges: LogRanges
    records_at_most: int

    @staticmethod
    def from_ranges(segment: LogSegment, ranges: LogRanges) -> Piece:
        """Return a piece with all records in these ranges of a segment's log."""
        offsets = int((ranges.end_offsets - ranges.first_offsets).sum())
        return Piece(segment, Window(), ranges, offsets)

    @property
    def size_bytes(self) -> int:
        """Return the number of bytes in the ranges."""
        starts, ends, _, _ = self.ranges
        size: int = sum(ends.tolist()) - sum(starts.tolist())
        return size

    def spans(self, gap_bytes: int) -> tuple[Int64s, Int64s]:
        """Return the starts and ends of the byte ranges to request, joined across small gaps.

        Ranges that are at most `gap_bytes` apart are joined.
        """
        starts, ends = self.ranges[:2]
        if len(starts) == 1:
            return starts, ends
        apart = starts[1:] - ends[:-1] > gap_bytes
        first, last = np.append(True, apart), np.append(apart, True)
        return starts[first[: len(starts)]], ends[last[: len(ends)]]
