"""Execute a read: fetch the byte ranges of pieces, decode them, select the window's records.

Records are returned as Arrow batches in offset order, a few MiB at a time.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seglake.errors import CorruptData
from seglake.format.batch import LEAST_RECORD_BYTES, BatchTable
from seglake.format.records import fixed, take_rows
from seglake.format.sought_kernels import EVERY_KEY, SoughtKeys
from seglake.log.chunk import Chunk, Fetch
from seglake.log.column_kernels import ALONE, FULL, DecodeRoom, Wanted, wanted_batches
from seglake.log.columns import Columns
from seglake.log.piece import Piece
from seglake.log.threads import DECODERS, side_by_side, take_spare

Share = Iterator[tuple[pa.RecordBatch, int]]
"""Arrow batches, each with the bytes of the record batches that hold the records."""

_SHARE_BYTES = 96 * 1024  # bytes of log; a smaller share costs more than a thread gains
_CACHED_SHARE_BYTES = 256 * 1024  # the limit instead, if the payloads are cached
_LARGEST_SHARE_BYTES = 384 * 1024  # bytes of log; a larger share may wait for the caller
_PART_BYTES = 512 * 1024  # decompressed at a time for a cache
MEMORY_BYTES = 32 * 2**20
COLUMN_BYTES = 2 * 2**20  # keys or values in an Arrow batch, unless one record batch has more

_SPARE: deque[Columns] = deque(maxlen=8)
_SPARE_ROOM: deque[DecodeRoom] = deque(maxlen=8)
"""Memory that no share uses now: new memory costs more than memory that was used before."""


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

    About `memory_bytes` are in use at any time, whatever the size of the read: a quarter for bytes
    that are fetched ahead, a sixteenth for the columns of each of `threads` threads, and a
    sixteenth for one more share. A record batch that is larger is still read. Raises CorruptData
    and StoreError.
    """
    stats = stats or ReadStats()
    part_bytes = memory_bytes // 16
    chunks = fetch.chunks(pieces, fetch_bytes=max(4096, part_bytes), ahead_bytes=memory_bytes // 4)
    cut = partial(
        shares_of,
        schema=schema,
        limit_bytes=min(part_bytes, COLUMN_BYTES),
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


def _shares(
    chunks: Iterable[Chunk], cut: Callable[[Chunk], Iterable[Share]], stats: ReadStats
) -> Iterator[Share]:
    for chunk in chunks:
        stats.requests += chunk.requests
        stats.bytes_fetched += chunk.fetched_bytes
        yield from cut(chunk)


def shares_of(
    chunk: Chunk, schema: pa.Schema, limit_bytes: int, count: int, keys: SoughtKeys
) -> Iterator[Share]:
    """Yield at most `count` shares, in order, which together have the wanted records of a chunk.

    With `keys`, only records with one of the keys are wanted. The columns of an Arrow batch take
    about `limit_bytes`, or the bytes of one record batch.
    """
    limits = np.array([piece.window.limits() for piece in chunk.pieces])
    rows = np.empty(len(chunk.table), np.int64)
    rows = rows[: wanted_batches(chunk.table, chunk.owner_of, limits, rows)]
    table, owner_of = take_rows(chunk.table, rows), chunk.owner_of[rows]
    windows = fixed(limits)
    for first, last in pairwise(_cuts(table["size"], count, chunk.cached is not None)):
        wanted = Wanted(windows, fixed(owner_of[first:last]), keys)
        yield _share(chunk, fixed(table[first:last]), wanted, schema, limit_bytes)


def _cuts(sizes: npt.NDArray[np.int32], count: int, cached: bool) -> list[int]:
    """Return the positions at which batches of these sizes are cut into shares."""
    ends = sizes.cumsum(dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    shares = min(count, total // (_CACHED_SHARE_BYTES if cached else _SHARE_BYTES))
    shares = max(shares, total // _LARGEST_SHARE_BYTES)
    inner = ends.searchsorted(np.arange(1, shares) * total // shares).tolist() if shares > 1 else []
    return [0, *inner, len(sizes)]


def _share(
    chunk: Chunk, rows: BatchTable, wanted: Wanted, schema: pa.Schema, limit_bytes: int
) -> Share:
    """Yield the wanted records of the batches `rows`."""
    columns, matching, base, alone = None, 0, 0, False
    room = take_spare(_SPARE_ROOM) or DecodeRoom.new()
    while base < len(rows):
        try:
            most_bytes, done = limit_bytes, 0
            if alone:
                stored = chunk.decompress(rows[base : base + 1], 1).stored()
                most_bytes = max(most_bytes, int(stored.ends[0] - stored.starts[0]))
            else:
                stored = chunk.stored(rows[base:], min(_PART_BYTES, limit_bytes))
            alone = False
            while done < len(stored.ends) and not alone:
                if columns is None:
                    columns = _empty(schema, most_bytes, chunk, wanted)
                done, size, reason = columns.fill(
                    rows, stored, base, done, wanted, most_bytes, room
                )
                matching += size
                if reason == FULL and len(columns):
                    yield _taken(columns), matching
                    columns, matching = None, 0
                elif reason == FULL:  # one batch has more than the columns take
                    columns, alone = None, most_bytes == limit_bytes
                else:
                    alone = reason == ALONE
        except CorruptData as damage:
            raise chunk.in_file(damage) from damage
        base += done
    _SPARE_ROOM.append(room)
    if columns is not None and len(columns):
        yield _taken(columns), matching
    elif columns is not None:
        _SPARE.append(columns)


def _empty(schema: pa.Schema, size_bytes: int, chunk: Chunk, wanted: Wanted) -> Columns:
    """Return spare columns if they fit, else new ones, for records of a chunk."""
    columns = take_spare(_SPARE)
    if columns is None or columns.schema is not schema or columns.size_bytes < size_bytes:
        columns = Columns(schema, size_bytes // LEAST_RECORD_BYTES, size_bytes)
    columns.begin([piece.segment for piece in chunk.pieces], wanted.window_of)
    return columns


def _taken(columns: Columns) -> pa.RecordBatch:
    """Take the records from the columns. Keep small columns for reuse."""
    batch = columns.take()
    if columns.size_bytes <= COLUMN_BYTES:
        _SPARE.append(columns)
    return batch
