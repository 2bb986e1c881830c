"""Decode fetched record batches to Arrow batches, in shares that threads decode concurrently.

A share is consecutive batches of a chunk. A kernel decompresses them and copies the records of the
window into the columns of an Arrow batch. A batch that the kernel cannot decompress is decompressed
alone, by the package of its codec.
"""

from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seglake.errors import CorruptData
from seglake.format.batch import LEAST_RECORD_BYTES, BatchTable
from seglake.format.records import fixed, take_rows
from seglake.format.sought_kernels import SoughtKeys
from seglake.log.chunk import Chunk
from seglake.log.decode.column_kernels import ALONE, FULL, DecodeRoom, Wanted, wanted_batches
from seglake.log.decode.columns import Columns

_Item = TypeVar("_Item")

Share = Iterator[tuple[pa.RecordBatch, int]]
"""Arrow batches, each with the bytes of the record batches that hold the records."""

_SHARE_BYTES = 96 * 1024  # bytes of log; a smaller share costs more than a thread gains
_CACHED_SHARE_BYTES = 256 * 1024  # the limit instead, if the payloads are cached
_LARGEST_SHARE_BYTES = 384 * 1024  # bytes of log; a larger share may wait for the caller
_PART_BYTES = 512 * 1024  # decompressed at a time for a cache
COLUMN_BYTES = 2 * 2**20  # keys or values in an Arrow batch, unless one record batch has more

_SPARE: deque[Columns] = deque(maxlen=8)
_SPARE_ROOM: deque[DecodeRoom] = deque(maxlen=8)
"""Memory that no share uses now: new memory costs more than memory that was used before."""


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
    """Return where to cut batches of these sizes into shares."""
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
    room = _spare(_SPARE_ROOM) or DecodeRoom.new()
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
    columns = _spare(_SPARE)
    if columns is None or columns.schema is not schema or columns.size_bytes < size_bytes:
        columns = Columns(schema, size_bytes // LEAST_RECORD_BYTES, size_bytes)
    columns.begin([piece.segment for piece in chunk.pieces], wanted.window_of)
    return columns


def _spare(items: deque[_Item]) -> _Item | None:
    """Take an item, or return None. Other threads may take items at the same time."""
    try:
        return items.pop()
    except IndexError:
        return None


def _taken(columns: Columns) -> pa.RecordBatch:
    """Take the records from columns, and keep the columns as spare ones."""
    batch = columns.take()
    if columns.size_bytes <= COLUMN_BYTES:
        _SPARE.append(columns)
    return batch
