"""Consecutive records of a run's total order, in columns: blobs carry them, merges join them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seglake.format.encode import Bodies
from seglake.format.records import Int64s

COLUMN_BYTES = 32  # per record: sort key, timestamp or tie-breaker, start and size of its body


@dataclass(frozen=True)
class SortedRecords:
    """Records in total order (`seglake.write.spool.merge_order`): sort columns, timestamps, bodies.

    Timestamps are in ms. If the event time is the sort key, both are one array. `tie_breakers` is
    None if the position decides among equal sort keys.
    """

    sort_keys: Int64s
    tie_breakers: Int64s | None
    timestamps: Int64s
    bodies: Bodies

    def __len__(self) -> int:
        return len(self.sort_keys)

    def part(self, start: int, end: int) -> SortedRecords:
        """Records `start` to `end`, exclusive, over the same buffers."""
        chosen = slice(start, end)
        ties = None if self.tie_breakers is None else self.tie_breakers[chosen]
        sort_keys = self.sort_keys[chosen]
        timestamps = sort_keys if self.by_time else self.timestamps[chosen]
        return SortedRecords(sort_keys, ties, timestamps, self.bodies.take(chosen))

    def taken(self, order: Int64s) -> SortedRecords:
        """The records at the positions `order`, over the same buffers."""
        ties = None if self.tie_breakers is None else self.tie_breakers[order]
        sort_keys = self.sort_keys[order]
        timestamps = sort_keys if self.by_time else self.timestamps[order]
        return SortedRecords(sort_keys, ties, timestamps, self.bodies.take(order))

    @property
    def by_time(self) -> bool:
        """Whether the timestamps are the sort keys."""
        return self.timestamps is self.sort_keys

    @property
    def size_bytes(self) -> int:
        """Bytes of the bodies and columns; the buffers that they share may be larger."""
        return int(self.bodies.sizes.sum()) + COLUMN_BYTES * len(self)

    def detached(self) -> SortedRecords:
        """A copy of the records, so that the larger buffers they share can be freed."""
        sort_keys = self.sort_keys.copy()
        ties = None if self.tie_breakers is None else self.tie_breakers.copy()
        timestamps = sort_keys if self.by_time else self.timestamps.copy()
        return SortedRecords(sort_keys, ties, timestamps, self.bodies.detached())


def joined(parts: Sequence[SortedRecords]) -> SortedRecords:
    """The records of the parts as they stand, one part after another; bodies are not copied."""
    if len(parts) == 1:
        return parts[0]
    sort_keys = np.concatenate([part.sort_keys for part in parts])
    ties = [part.tie_breakers for part in parts if part.tie_breakers is not None]
    by_time = all(part.by_time for part in parts)
    return SortedRecords(
        sort_keys,
        np.concatenate(ties) if ties else None,
        sort_keys if by_time else np.concatenate([part.timestamps for part in parts]),
        Bodies.joined([part.bodies for part in parts]),
    )
