"""Which bytes of which segments a read needs, as a value to look at before it is executed.

Planning reads zone maps and nothing else. A segment that lies in the window as a whole needs not
even that. Executing fetches the planned ranges, keeps the records inside the window and no other,
and hands them on in offset order, a few MiB at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seglake.format.batch import CONTROL, Decoded, Table
from seglake.read.arrow import record_batch
from seglake.read.fetch import Chunk, read_chunks
from seglake.read.lookup import PartitionReader
from seglake.read.segments import LogSegment, Ranges
from seglake.read.zones import Blocks, Zones
from seglake.store import Store

Mask = npt.NDArray[np.bool_]

MEMORY_BYTES = 32 * 2**20


class Window(NamedTuple):
    """What a read wants of a partition: records inside both ranges, whose ends are exclusive."""

    start_ms: int = -(2**63)
    end_ms: int = 2**63 - 1
    start_offset: int = 0
    end_offset: int = 2**63 - 1

    def batches(self, table: Table) -> Mask:
        """Which batches may have such a record, as far as their headers tell."""
        keep: Mask = (table["attributes"] & CONTROL) == 0
        keep &= table["max_timestamp"] >= self.start_ms
        keep &= table["last_offset"] >= self.start_offset
        keep &= table["base_offset"] < self.end_offset
        return keep

    def records(self, decoded: Decoded) -> Mask:
        """Which records are such records."""
        timestamps, offsets = decoded.records.timestamps, decoded.offsets
        keep = (timestamps >= self.start_ms) & (timestamps < self.end_ms)
        keep &= (offsets >= self.start_offset) & (offsets < self.end_offset)
        return keep


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
    view = partition.view
    bases, ends, lows, highs, details = view.segments[:5]
    start = max(window.start_offset, view.log_start_offset)
    window = window._replace(start_offset=start)
    meets = (highs >= window.start_ms) & (lows < window.end_ms)
    meets &= (ends > start) & (bases < window.end_offset)
    inside = (lows >= window.start_ms) & (highs < window.end_ms)
    inside &= (bases >= start) & (ends <= window.end_offset)
    for index in np.flatnonzero(meets).tolist():
        segment = partition.segment(index)
        if inside[index]:
            yield Piece(segment, window, segment.log, int(details["record_count"][index]))
        else:
            piece = _partial(segment, window, partition.ask(segment, Zones.select, *window))
            if len(piece.ranges.starts):
                yield piece


def _partial(segment: LogSegment, window: Window, blocks: Blocks) -> Piece:
    first = np.maximum(blocks.first_offsets, window.start_offset)
    most = np.minimum(blocks.end_offsets, window.end_offset) - first
    return Piece(segment, window, blocks.ranges(), int(most.sum()))


def execute(
    store: Store,
    pieces: Iterable[Piece],
    schema: pa.Schema,
    *,
    memory_bytes: int = MEMORY_BYTES,
    stats: ReadStats | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of the pieces as Arrow record batches; empty ones are left out.

    At any time about `memory_bytes` are in use, however much is read: an eighth each for what was
    fetched and for what was decompressed, and the columns made of it. One batch always fits.
    """
    part_bytes = memory_bytes // 8
    stats = stats or ReadStats()
    for piece in pieces:
        for chunk in read_chunks(store, piece.segment, piece.ranges, fetch_bytes=part_bytes):
            stats.bytes_fetched += memoryview(chunk.data).nbytes
            yield from _matching(piece, chunk, schema, part_bytes, stats)


def _matching(
    piece: Piece, chunk: Chunk, schema: pa.Schema, part_bytes: int, stats: ReadStats
) -> Iterator[pa.RecordBatch]:
    table = chunk.table[piece.window.batches(chunk.table)]
    for part, decoded in chunk.decode_in_parts(table, part_bytes):
        keep = piece.window.records(decoded)
        if not keep.any():
            continue
        rows = np.flatnonzero(keep)
        stats.records += len(rows)
        stats.bytes_matching += int(part["size"][np.unique(decoded.batch[rows])].sum())
        yield record_batch(piece.segment, decoded, rows, schema)


@dataclass(frozen=True)
class Plan:
    """A read of one topic in one version of the lake, not yet executed. Can be pickled."""

    version: int
    pieces: tuple[Piece, ...]
    schema: pa.Schema = field(repr=False)
    store: Store = field(repr=False)

    @property
    def size_bytes(self) -> int:
        """Bytes that executing will fetch."""
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
        batches = execute(
            self.store, self.pieces, self.schema, memory_bytes=memory_bytes, stats=stats
        )
        return pa.RecordBatchReader.from_batches(self.schema, batches)
