"""Executing a read: fetch the byte ranges of pieces, decode them, keep the records of the window.

Records come as Arrow batches in offset order, a few MiB at a time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from seglake.log.chunk import Chunk, Fetch
from seglake.log.decode.shares import COLUMN_BYTES, Share, shares_of
from seglake.log.piece import Piece
from seglake.log.threads import DECODERS, side_by_side

MEMORY_BYTES = 32 * 2**20


@dataclass
class ReadStats:
    """What a read did to the logs; index data, which is cached, does not count.

    `requests` and `bytes_fetched` are what storage was asked for, the bytes between joined ranges
    included. `bytes_matching` counts the batches that had a record for the caller.
    """

    requests: int = 0
    bytes_fetched: int = 0
    bytes_matching: int = 0
    records: int = 0

    @property
    def amplification(self) -> float:
        """Bytes fetched for each byte of a matching batch; 1.0 if nothing was fetched."""
        return self.bytes_fetched / max(1, self.bytes_matching) if self.bytes_fetched else 1.0


def execute(
    fetch: Fetch,
    pieces: Iterable[Piece],
    schema: pa.Schema,
    *,
    memory_bytes: int = MEMORY_BYTES,
    stats: ReadStats | None = None,
    threads: int = DECODERS,
) -> Iterator[pa.RecordBatch]:
    """The records of the pieces as Arrow batches, none of them empty.

    About `memory_bytes` are in use at any time, however much is read: a quarter for what is fetched
    ahead, and an eighth for the columns of each of `threads` threads and of one more share. One
    record batch always fits. Raises CorruptData and StoreError.
    """
    stats = stats or ReadStats()
    fetched = bytes_fetched(memory_bytes)
    chunks = fetch.chunks(pieces, fetch_bytes=fetched, ahead_bytes=memory_bytes // 4)
    shares = _shares(chunks, schema, bytes_of_columns(memory_bytes), threads, stats)
    for batch, matching in side_by_side(shares, threads):
        stats.bytes_matching += matching
        stats.records += len(batch)
        yield batch


def bytes_fetched(memory_bytes: int) -> int:
    """How much a read with this memory fetches at a time."""
    return max(4096, memory_bytes // 16)


def bytes_of_columns(memory_bytes: int) -> int:
    """How large the keys, values and headers of an Arrow batch of such a read may be."""
    return min(memory_bytes // 8, COLUMN_BYTES)


def _shares(
    chunks: Iterable[Chunk], schema: pa.Schema, limit_bytes: int, count: int, stats: ReadStats
) -> Iterator[Share]:
    for chunk in chunks:
        stats.requests += chunk.cost.requests
        stats.bytes_fetched += chunk.cost.size_bytes
        yield from shares_of(chunk, schema, limit_bytes, count)
