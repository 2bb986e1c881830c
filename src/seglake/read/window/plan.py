"""Which bytes of which segments a read needs, as a value to look at before it is executed.

Planning reads zone maps and nothing else. A segment that lies in the window as a whole needs not
even that. Executing fetches the planned ranges, keeps the records inside the window and no other,
and hands them on in offset order, a few MiB at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seglake.format.records import fixed
from seglake.limits import INT64_MAX, INT64_MIN, REQUESTS
from seglake.read.decode.runs import Run, runs_of
from seglake.read.fetch.chunks import Chunk, chunks
from seglake.read.fetch.log_segment import LogSegment, Ranges
from seglake.read.fetch.threads import DECODERS, ahead, side_by_side
from seglake.read.kernels import meeting
from seglake.read.lookup.partition import PartitionReader
from seglake.read.window.batch_cache import KeptBatches
from seglake.read.zones.search import Zones
from seglake.store import Store

MEMORY_BYTES = 32 * 2**20


class Window(NamedTuple):
    """What a read wants of a partition: records inside both ranges, whose ends are exclusive."""

    start_ms: int = INT64_MIN
    end_ms: int = INT64_MAX
    start_offset: int = 0
    end_offset: int = INT64_MAX

    def bounds(self) -> tuple[int, int, int, int]:
        """Smallest and largest timestamp, smallest and largest offset of what is wanted."""
        return self.start_ms, self.end_ms - 1, self.start_offset, self.end_offset - 1


class Piece(NamedTuple):
    """The part of a read that one segment answers."""

    segment: LogSegment
    window: Window
    ranges: Ranges
    records_at_most: int

    @property
    def size_bytes(self) -> int:
        """Bytes to fetch."""
        return int((self.ranges.ends - self.ranges.starts).sum())


@dataclass
class ReadStats:
    """What a read did; `bytes_matching` are the batches that had a record for the caller."""

    bytes_fetched: int = 0
    bytes_matching: int = 0
    records: int = 0

    @property
    def amplification(self) -> float:
        """Bytes fetched for each byte of a matching batch; 1.0 if nothing was fetched."""
        return self.bytes_fetched / max(1, self.bytes_matching) if self.bytes_fetched else 1.0


def pieces_in(partition: PartitionReader, window: Window) -> Iterator[Piece]:
    """The pieces of a read of one log partition, in offset order."""
    return pieces_of([(partition, window)])


def pieces_of(wanted: Sequence[tuple[PartitionReader, Window]]) -> Iterator[Piece]:
    """The pieces of a read of some log partitions, in their order.

    Zone maps on an object store are asked for several pieces at a time.
    """
    calls = (call for partition, window in wanted for call in _calls(partition, window))
    if any(partition.store.remote for partition, _ in wanted):
        found = ahead(((1, call) for call in calls), REQUESTS)
    else:
        found = (call() for call in calls)
    return (piece for piece in found if len(piece.ranges.starts))


def _calls(partition: PartitionReader, window: Window) -> Iterator[Callable[[], Piece]]:
    """What makes the pieces of a log partition, some of them empty."""
    view = partition.view
    window = window._replace(start_offset=max(window.start_offset, view.log_start_offset))
    bounds = low_time, high_time, low_offset, high_offset = window.bounds()
    bases, ends, lows, highs = map(fixed, view.segments[:4])
    rows = np.empty(len(bases), np.int64)
    count = meeting(lows, highs, bases, ends, 0, *bounds, rows)
    for index in rows[:count].tolist():
        segment = partition.segment(index)
        if (lows[index] >= low_time and highs[index] <= high_time
                and bases[index] >= low_offset and ends[index] <= high_offset + 1):  # fmt: skip
            records = int(view.segments.details["record_count"][index])
            yield partial(Piece, segment, window, segment.log, records)
        else:
            yield partial(_partial, partition, segment, window)


def _partial(partition: PartitionReader, segment: LogSegment, window: Window) -> Piece:
    ranges, records = partition.ask(segment, Zones.within, *window.bounds())
    return Piece(segment, window, ranges, records)


def execute(
    store: Store,
    pieces: Iterable[Piece],
    schema: pa.Schema,
    *,
    memory_bytes: int = MEMORY_BYTES,
    stats: ReadStats | None = None,
    threads: int = DECODERS,
    kept: KeptBatches | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of the pieces as Arrow record batches; empty ones are left out.

    What is `kept` is neither fetched nor decompressed, and what was decompressed is then kept.

    At any time about `memory_bytes` are in use, however much is read: a quarter for what is fetched
    ahead, and an eighth for the columns that each of `threads` threads makes. One batch always
    fits.
    """
    stats = stats or ReadStats()
    found = (chunks if kept is None else kept.chunks)(
        store, pieces, fetch_bytes=max(4096, memory_bytes // 16), ahead_bytes=memory_bytes // 4
    )
    runs = _runs(found, schema, memory_bytes // 8, threads, stats)
    for batch, matching in side_by_side(runs, threads):
        stats.bytes_matching += matching
        stats.records += len(batch)
        yield batch


def _runs(
    found: Iterable[Chunk], schema: pa.Schema, limit_bytes: int, count: int, stats: ReadStats
) -> Iterator[Run]:
    for chunk in found:
        stats.bytes_fetched += int(chunk.table["size"].sum()) if len(chunk.data) else 0
        windows = np.array([piece.window.bounds() for piece in chunk.extents])
        yield from runs_of(chunk, windows, schema, limit_bytes, count)


@dataclass(frozen=True)
class Plan:
    """A read of one topic in one version of the lake, not yet executed. Can be pickled."""

    version: int
    pieces: tuple[Piece, ...]
    schema: pa.Schema = field(repr=False)
    store: Store = field(repr=False)
    kept: KeptBatches | None = field(default=None, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Plan, (self.version, self.pieces, self.schema, self.store)

    @property
    def size_bytes(self) -> int:
        """Bytes that executing will fetch; less, where decompressed batches are kept."""
        return sum(piece.size_bytes for piece in self.pieces)

    @property
    def records_at_most(self) -> int:
        """No more records than this will come."""
        return sum(piece.records_at_most for piece in self.pieces)

    @property
    def ranges(self) -> int:
        """How many byte ranges will be fetched, where none is larger than a fetch."""
        return sum(len(piece.ranges.starts) for piece in self.pieces)

    def execute(
        self, *, memory_bytes: int = MEMORY_BYTES, stats: ReadStats | None = None
    ) -> pa.RecordBatchReader:
        """The records, partition by partition in offset order; `stats` counts along.

        Raises CorruptData and StoreError from the reader, where they occur.
        """
        pieces, kept = (self.pieces, None) if self.kept is None else self.kept.if_small(self.pieces)
        batches = execute(
            self.store, pieces, self.schema, memory_bytes=memory_bytes, stats=stats, kept=kept
        )
        return pa.RecordBatchReader.from_batches(self.schema, batches)
