"""The records of log partitions, in offset order, cut where they are due.

A record is due at the largest timestamp up to it in its partition. So event time orders the
partitions among each other, and never the records of one partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from seglake.format.records import Int64s
from seglake.limits import INT64_MAX


class PartitionStream:
    """What is left of one partition; `batches` are in offset order, and none is empty."""

    def __init__(self, partition: int, batches: Iterator[pa.RecordBatch]) -> None:
        self.partition = partition
        self._batches, self._highest = batches, -1
        self._batch: pa.RecordBatch | None = None
        self._due: Int64s = np.empty(0, np.int64)
        self._at = 0
        self._advance()

    @property
    def left(self) -> bool:
        """Whether there is another record."""
        return self._batch is not None

    @property
    def next_due_ms(self) -> int:
        """When the next record is due; INT64_MAX if there is none."""
        return INT64_MAX if self._batch is None else int(self._due[self._at])

    @property
    def known_until_ms(self) -> int:
        """When the last record that is in memory is due; INT64_MAX if none is left."""
        return INT64_MAX if self._batch is None else int(self._due[-1])

    def take(self, until_ms: int, at_most: int) -> pa.RecordBatch | None:
        """The next records that are due at `until_ms` or before; None if none is."""
        if self._batch is None:
            return None
        end = int(np.searchsorted(self._due, until_ms, "right"))
        end = min(end, self._at + at_most)
        if end <= self._at:
            return None
        taken = self._batch.slice(self._at, end - self._at)
        self._at = end
        if end == len(self._batch):
            self._advance()
        return taken

    def _advance(self) -> None:
        self._batch, self._at = next(self._batches, None), 0
        if self._batch is not None:
            times = self._batch["timestamp"].cast(pa.int64()).to_numpy()
            self._due = np.maximum(np.maximum.accumulate(times), self._highest)
            self._highest = int(self._due[-1])


def next_due_ms(streams: Sequence[PartitionStream]) -> int:
    """When the next record of any partition is due; INT64_MAX if none is left."""
    return min((stream.next_due_ms for stream in streams), default=INT64_MAX)


def due(
    streams: Sequence[PartitionStream], until_ms: int, at_most: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Partitions with records that are due at `until_ms` or before, each at most `at_most` records.

    No partition gets ahead of the records that the others have in memory, so all move on together.
    If a record is due, at least one comes.
    """
    horizon = min(until_ms, *(stream.known_until_ms for stream in streams))
    for stream in streams:
        while (batch := stream.take(horizon, at_most)) is not None:
            yield stream.partition, batch
