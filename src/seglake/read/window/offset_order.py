"""The records of a window partition after partition, each in offset order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from seglake.log.chunk import Fetch
from seglake.log.execute import ReadStats, execute
from seglake.log.piece import Window
from seglake.log.segment_lookup import PartitionReader
from seglake.log.short.windows import ShortWindows
from seglake.read.window.plan import pieces_of


@dataclass(frozen=True)
class OffsetOrder:
    """Reads a window: a short one in one call, any other piece by piece."""

    fetch: Fetch
    short: ShortWindows

    def __call__(
        self, readers: Sequence[PartitionReader], window: Window, schema: pa.Schema,
        memory_bytes: int, stats: ReadStats,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """The records of the window in all partitions."""
        short = self.short.read(tuple(readers), window, schema, memory_bytes, stats)
        if short is not None:
            yield from short
            return
        # Pieces come one by one; a Plan would keep all of them in memory.
        pieces = pieces_of([(reader, window) for reader in readers])
        yield from execute(self.fetch, pieces, schema, memory_bytes=memory_bytes, stats=stats)
