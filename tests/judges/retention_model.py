"""Kafka's retention, written down from its source in the plainest way.

`UnifiedLog.deleteOldSegments`, `deletableSegments` and `LogSegment.largestTimestamp` of
apache/kafka 4.2. The log's last segment is the active one, which is empty here: all others are
closed.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Closed(NamedTuple):
    """A closed segment; `timestamp` is -1 if no record has one, `modified` that of its file."""

    base: int
    end: int
    timestamp: int
    modified: int
    size: int

    @property
    def largest_timestamp(self) -> int:
        return self.timestamp if self.timestamp >= 0 else self.modified


class KafkaLog:
    """The segments of a partition, and its log start."""

    def __init__(self, segments: Sequence[Closed], log_start: int, end: int) -> None:
        active = Closed(end, end, -1, 2**62, 0)
        self.segments, self.log_start = [*segments, active], log_start

    def retain(self, policy: str, retention_ms: int, retention_bytes: int, now: int) -> None:
        """One pass of deleteOldSegments."""
        self._delete(
            lambda _, following: following is not None and following.base <= self.log_start
        )
        if "delete" not in policy:
            return
        size = sum(each.size for each in self.segments)
        if 0 <= retention_bytes <= size:
            left = [size - retention_bytes]
            self._delete(lambda each, _: _takes(left, each.size))
        if retention_ms >= 0:
            self._delete(lambda each, _: now - each.largest_timestamp > retention_ms)

    def _delete(self, goes: Callable[[Closed, Closed | None], bool]) -> None:
        deletable = 0
        for number, each in enumerate(self.segments):
            following = self.segments[number + 1] if number + 1 < len(self.segments) else None
            empty_and_last = following is None and each.size == 0
            if not goes(each, following) or empty_and_last:
                break
            deletable += 1
        if deletable:
            self.log_start = max(self.log_start, self.segments[deletable].base)
            del self.segments[:deletable]


def _takes(left: list[int], size: int) -> bool:
    if left[0] - size < 0:
        return False
    left[0] -= size
    return True
