"""A segment as readers carry it about: its keys spelled once, its sizes, the offsets it covers."""

from __future__ import annotations

from typing import NamedTuple

from seglake.catalog.snapshot import PartitionView


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
