"""A segment as readers carry it about: its keys spelled once, its sizes, the offsets it covers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.catalog.version.snapshot import PartitionView
from seglake.format.records import Int64s


class Ranges(NamedTuple):
    """Ascending byte ranges [starts, ends) of a log, each of whole batches.

    What stands in range i has offsets from first_offsets[i] to end_offsets[i], exclusive. Base
    offsets are outside a batch's checksum, so readers hold them against these.
    """

    starts: Int64s
    ends: Int64s
    first_offsets: Int64s
    end_offsets: Int64s

    @staticmethod
    def of(start: int, end: int, first_offset: int, end_offset: int) -> Ranges:
        """One range."""
        return Ranges(*np.array([[start], [end], [first_offset], [end_offset]], np.int64))

    def take(self, rows: slice | npt.NDArray[np.bool_]) -> Ranges:
        """Some of the ranges."""
        return Ranges(*(column[rows] for column in self))


class LogSegment(NamedTuple):
    """One segment of a log partition; it covers offsets base_offset to end_offset (exclusive)."""

    topic: str
    partition: int
    log_key: str
    zonemap_key: str
    base_offset: int
    end_offset: int
    log_bytes: int
    zonemap_bytes: int

    @property
    def log(self) -> Ranges:
        """The whole log as one range."""
        return Ranges.of(0, self.log_bytes, self.base_offset, self.end_offset)

    @staticmethod
    def of(view: PartitionView, index: int) -> LogSegment:
        """The segment at a position of `view`, counted from 0."""
        found = view.segment(index)
        return LogSegment(
            found.topic,
            found.partition,
            found.key("log"),
            found.key("zonemap"),
            found.base_offset,
            found.end_offset,
            found.sizes["log"],
            found.sizes["zonemap"],
        )
