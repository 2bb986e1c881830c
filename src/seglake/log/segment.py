"""Describe a segment for readers: keys and sizes of its files, and the offsets that it covers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.catalog.schema import SegmentRow
from seglake.catalog.version.snapshot import PartitionView
from seglake.format.records import Int64s
from seglake.layout import LINK


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

    `record_count` is -1 if the count is unknown. `keyindex_bytes` is 0 without a key index, and
    `keyindex_kinds` has a bit for each kind of its subjects.
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
    def of_row(row: SegmentRow) -> LogSegment:
        """Return the segment of a row of the catalog."""
        return LogSegment(
            row.topic, row.partition, row.key("log"), row.key("zonemap"),
            row.base_offset, row.end_offset, row.log_bytes, row.zonemap_bytes,
        )  # fmt: skip

    @staticmethod
    def of(view: PartitionView, index: int) -> LogSegment:
        """Return the segment at position `index` of `view`, counted from 0."""
        row = view.segment(index)
        return LogSegment(
            row.topic, row.partition, row.key("log"), row.key("zonemap"),
            row.base_offset, row.end_offset, row.sizes["log"], row.sizes["zonemap"],
            row.record_count, row.key("keyindex"), row.sizes.get("keyindex", 0),
            row.keyindex_kinds,
        )  # fmt: skip
