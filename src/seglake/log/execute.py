"""Execute a read: fetch the byte ranges of pieces, decode them, select the window's records.

Records are returned as Arrow batches in offset order, a few MiB at a time.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import pyarrow as pa

from seglake.format.sought_kernels import EVERY_KEY, SoughtKeys
from seglake.log.chunk import Chunk, Fetch
from seglake.log.decode.shares import COLUMN_BYTES, Share, shares_of
from seglake.log.piece import Piece
from seglake.log.threads import DECODERS, side_by_side

MEMORY_BYTES = 32 * 2**20


@dataclass
class ReadStats:
    """Counts of what a read requested from the logs. Index data is cached and does not count.

    `requests` and `bytes_fetched` count requests to storage, including the bytes between joined
    ranges. `bytes_matching` counts the bytes of the batches that contain a record of the result,
    and `records` these records. A search for keys counts the records with one of the keys.
    `misfits` counts, by field, the values that a column's type cannot hold, if fields are read.
    """

    requests: int = 0
    bytes_fetched: int = 0
    bytes_matching: int = 0
    records: int = 0
    misfits: Counter[str] = field(default_factory=Counter)

    @property
    def amplification(self) -> float:
        """Return the bytes fetched per byte of a matching batch, or 1.0 if nothing was fetched."""
        return self.bytes_fetched / max(1, self.bytes_matching) if self.bytes_fetched else 1.0


def execute(
    fetch: Fetch,
    pieces: Iterable[Piece],
    schema: pa.Schema,
    *,
    memory_bytes: int = MEMORY_BYTES,
    stats: ReadStats | None = None,
    threads: int = DECODERS,
    keys: SoughtKeys = EVERY_KEY,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the pieces as Arrow batches. No batch is empty.

    With `keys`, yield only the records with one of the keys. Other records are compared, but not
    copied.

    About `memory_bytes` are in use at any time, however much is read. A quarter of them is for
    bytes that are fetched ahead. A sixteenth is for the columns of each of `threads` threads, and
    another sixteenth for the columns of one more share. One record batch always fits. Raises
    CorruptData and StoreError.
    """
    stats = stats or ReadStats()
    fetched = bytes_fetched(memory_bytes)
    chunks = fetch.chunks(pieces, fetch_bytes=fetched, ahead_bytes=memory_bytes // 4)
    cut = partial(
        shares_of,
        schema=schema,
        limit_bytes=bytes_of_columns(memory_bytes),
        count=threads,
        keys=keys,
    )
    shares = _shares(chunks, cut, stats)
    for batch, matching in side_by_side(shares, threads):
        stats.bytes_matching += matching
        stats.records += len(batch)
        yield batch


def records_of(chunk: Chunk, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Return the records of a chunk that are in the windows of its pieces."""
    shares = shares_of(chunk, schema, COLUMN_BYTES, 1, EVERY_KEY)
    return (batch for batch, _ in chain.from_iterable(shares))


def bytes_fetched(memory_bytes: int) -> int:
    """Return how many bytes a read with this memory fetches at a time."""
    return max(4096, memory_bytes // 16)


def bytes_of_columns(memory_bytes: int) -> int:
    """Return the most bytes of keys, values and headers in an Arrow batch, for this memory."""
    return min(memory_bytes // 16, COLUMN_BYTES)


def _shares(
    chunks: Iterable[Chunk], cut: Callable[[Chunk], Iterable[Share]], stats: ReadStats
) -> Iterator[Share]:
    for chunk in chunks:
        stats.requests += chunk.cost.requests
        stats.bytes_fetched += chunk.cost.size_bytes
        yield from cut(chunk)
