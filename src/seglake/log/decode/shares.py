"""From fetched record batches to Arrow batches, in shares that threads decode side by side.

A share is consecutive batches of a chunk. A kernel decodes the batches one by one, so that a
decompressed batch stays in the processor's cache. The kernel copies the records of the window into
the columns of an Arrow batch. Batches that the kernel cannot decode go the long way: numpy decodes
a few of them at a time.
"""

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seglake.format.batch import LEAST_RECORD_BYTES, BatchTable
from seglake.format.decode import Decoded, Within
from seglake.format.records import Int32s, take_rows
from seglake.format.sought_kernels import SoughtKeys
from seglake.log.chunk import Chunk
from seglake.log.decode.column_kernels import bytes_of_batches, wanted_batches
from seglake.log.decode.columns import Columns
from seglake.log.decode.direct import Direct
from seglake.log.segment import LogSegment

Share = Iterator[tuple[pa.RecordBatch, int]]
"""Arrow batches, each with the bytes of the record batches that hold the records."""

_SHARE_BYTES = 96 * 1024  # of a log; a smaller share costs another thread more than it gains
_CACHED_SHARE_BYTES = 256 * 1024  # the same where the payloads are cached
_LARGEST_SHARE_BYTES = 384 * 1024  # of a log; the rest of a larger share may wait for the caller
_PART_BYTES = 256 * 1024  # decompressed at a time
COLUMN_BYTES = 2 * 2**20  # of keys or values in an Arrow batch, unless one record batch has more

_THREAD = threading.local()


def shares_of(
    chunk: Chunk, schema: pa.Schema, limit_bytes: int, count: int, keys: SoughtKeys
) -> Iterator[Share]:
    """At most `count` shares, in order, which together have the wanted records of a chunk.

    If there are `keys`, only records with one of them are wanted.

    The columns of an Arrow batch take about `limit_bytes`, or the bytes of one record batch.
    """
    limits = np.array([piece.window.limits() for piece in chunk.pieces])
    rows = np.empty(len(chunk.table), np.int64)
    rows = rows[: wanted_batches(chunk.table, chunk.owner_of, limits, rows)]
    table, owner_of = take_rows(chunk.table, rows), chunk.owner_of[rows]
    for first, last in pairwise(_cuts(table["size"], count, chunk.cached is not None)):
        within = Within(limits, owner_of[first:last], keys)
        yield _share(chunk, table[first:last], within, schema, limit_bytes)


def _cuts(sizes: npt.NDArray[np.int32], count: int, cached: bool) -> list[int]:
    """Where to cut batches of these sizes into shares."""
    ends = sizes.cumsum(dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    shares = min(count, total // (_CACHED_SHARE_BYTES if cached else _SHARE_BYTES))
    shares = max(shares, total // _LARGEST_SHARE_BYTES)
    inner = ends.searchsorted(np.arange(1, shares) * total // shares).tolist() if shares > 1 else []
    return [0, *inner, len(sizes)]


def _share(
    chunk: Chunk, rows: BatchTable, within: Within, schema: pa.Schema, limit_bytes: int
) -> Share:
    """The wanted records of the batches `rows`."""
    segments = [piece.segment for piece in chunk.pieces]
    borrow = partial(borrowed, schema, segments, within.window_of)
    columns, direct = borrow(limit_bytes), Direct(chunk, rows, within)
    while not columns.fill(direct, limit_bytes) and len(columns):
        yield taken(columns), direct.matching_bytes()
        columns = borrow(limit_bytes)
    direct.keep()
    matching, first = direct.matching_bytes(), direct.row
    for part, decoded in _decoded(chunk, rows, within, first, limit_bytes):
        if not columns.append(decoded, first, limit_bytes):
            if len(columns):
                yield taken(columns), matching
            matching, size = 0, max(limit_bytes, len(decoded.records.values.data))
            columns = borrow(size)
            columns.append(decoded, first, size)
        matching += bytes_of_batches(part, decoded.batch)
        first += len(part)
    if len(columns):
        yield taken(columns), matching
    else:
        _give_back(columns)


def _decoded(
    chunk: Chunk, rows: BatchTable, within: Within, first: int, limit_bytes: int
) -> Iterator[tuple[BatchTable, Decoded]]:
    """The batches from `first` on, which the kernel cannot decode, some at a time."""
    if first < len(rows):
        rest = within._replace(window_of=within.window_of[first:])
        yield from chunk.decode_in_parts(rows[first:], min(_PART_BYTES, limit_bytes), rest)


def borrowed(
    schema: pa.Schema, segments: Sequence[LogSegment], owner_of: Int32s, size_bytes: int
) -> Columns:
    """This thread's columns if they fit, else new columns. The caller must give them back."""
    columns: Columns | None = _THREAD.__dict__.pop("columns", None)
    if columns is None or columns.schema is not schema or columns.size_bytes < size_bytes:
        columns = Columns(schema, size_bytes // LEAST_RECORD_BYTES, size_bytes)
    columns.begin(segments, owner_of)
    return columns


def taken(columns: Columns) -> pa.RecordBatch:
    """Take the records from borrowed columns, and give the columns back."""
    batch = columns.take()
    _give_back(columns)
    return batch


def _give_back(columns: Columns) -> None:
    if columns.size_bytes <= COLUMN_BYTES:
        _THREAD.columns = columns
