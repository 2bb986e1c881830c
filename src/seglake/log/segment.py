"""Describe segments for readers, and the part of a read that one segment answers."""

from __future__ import annotations

from functools import lru_cache
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


ALL_RECORDS = Window()


@lru_cache(64)
def window_limits(window: Window) -> Int64s:
    """Return the smallest and largest timestamp and offset of a window, inclusive, for kernels."""
    start, end, first, last = window
    return np.array([start, end - 1, first, last - 1], np.int64)


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

    def part(self, start: int, end: int, first_offset: int, end_offset: int) -> Piece:
        """Return the piece with all records in bytes [start, end) of the log.

        They have offsets `first_offset` to `end_offset`, exclusive.
        """
        columns = np.array([[start], [end], [first_offset], [end_offset]], np.int64)
        starts, ends, firsts, stops = columns
        return Piece(self, ALL_RECORDS, starts, ends, firsts, stops, end_offset - first_offset)

    def whole(self, window: Window = ALL_RECORDS) -> Piece:
        """Return the piece with the whole log, limited to the records in `window`."""
        piece = self.part(0, self.log_bytes, self.base_offset, self.end_offset)
        return piece._replace(window=window, records_at_most=self.record_count)

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
            row.record_count, row.key("keyindex"), row.sizes["keyindex"],
            row.keyindex_kinds,
        )  # fmt: skip


class Piece(NamedTuple):
    """The part of a read that is in one segment: byte ranges of its log, and a window.

    The ranges [starts[i], ends[i]) ascend. Each range has only complete batches, with offsets
    first_offsets[i] to end_offsets[i], exclusive. A fetch checks base offsets against these bounds,
    because base offsets are outside a batch's checksum. With `ALL_RECORDS`, all records of the
    ranges are wanted. `records_at_most` is -1 if the number is unknown.
    """

    segment: LogSegment
    window: Window
    starts: Int64s
    ends: Int64s
    first_offsets: Int64s
    end_offsets: Int64s
    records_at_most: int

    @property
    def size_bytes(self) -> int:
        """Return the number of bytes in the ranges."""
        size: int = sum(self.ends.tolist()) - sum(self.starts.tolist())
        return size

    def take(self, rows: slice | npt.NDArray[np.bool_]) -> Piece:
        """Return the piece with the ranges that `rows` (a slice or a mask) selects."""
        return self._replace(
            starts=self.starts[rows], ends=self.ends[rows],
            first_offsets=self.first_offsets[rows], end_offsets=self.end_offsets[rows],
        )  # fmt: skip

    def joined(self) -> Piece:
        """Join adjacent ranges. The bytes do not change."""
        count = len(self.starts)
        begins = np.append(True, self.starts[1:] != self.ends[:-1])[:count]
        finishes = np.append(begins[1:], True)[:count]
        return self._replace(
            starts=self.starts[begins], ends=self.ends[finishes],
            first_offsets=self.first_offsets[begins], end_offsets=self.end_offsets[finishes],
        )  # fmt: skip

    def spans(self, gap_bytes: int) -> tuple[Int64s, Int64s]:
        """Return the starts and ends of the byte ranges to request, joined across small gaps.

        Ranges that are at most `gap_bytes` apart are joined.
        """
        if len(self.starts) == 1:
            return self.starts, self.ends
        apart = self.starts[1:] - self.ends[:-1] > gap_bytes
        first, last = np.append(True, apart), np.append(apart, True)
        return self.starts[first[: len(self.starts)]], self.ends[last[: len(self.ends)]]
