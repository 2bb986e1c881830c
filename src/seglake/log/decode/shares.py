"""Decode fetched record batches to Arrow batches, in shares that threads decode concurrently.

A share is consecutive batches of a chunk. Its batches are decompressed a part at a time, so that
the records are still in the processor's cache when a kernel copies the records of the window into
the columns of an Arrow batch.
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
from seglake.format.records import Bytes, fixed, take_rows
from seglake.format.sought_kernels import SoughtKeys
from seglake.log.chunk import Chunk
from seglake.log.decode.column_kernels import Wanted, wanted_batches
from seglake.log.decode.columns import Columns

_Item = TypeVar("_Item")

Share = Iterator[tuple[pa.RecordBatch, int]]
"""Arrow batches, each with the bytes of the record batches that hold the records."""

_SHARE_BYTES = 96 * 1024  # bytes of log; a smaller share costs more than a thread gains
_CACHED_SHARE_BYTES = 256 * 1024  # the limit instead, if the payloads are cached
_LARGEST_SHARE_BYTES = 384 * 1024  # bytes of log; a larger share may wait for the caller
_PART_BYTES = 512 * 1024  # decompressed at a time
_ROOM_BYTES = 2 * _PART_BYTES  # reused memory for a part; larger batches get new memory
COLUMN_BYTES = 2 * 2**20  # keys or values in an Arrow batch, unless one record batch has more

_SPARE: deque[Columns] = deque(maxlen=8)
_SPARE_ROOM: deque[Bytes] = deque(maxlen=8)
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
    columns, matching, base, part_bytes = None, 0, 0, min(_PART_BYTES, limit_bytes)
    room = _spare(_SPARE_ROOM)
    if room is None:
        room = np.empty(_ROOM_BYTES, np.uint8)
    while base < len(rows):
        try:
            payload, done = chunk.decompress(rows[base:], part_bytes, room), 0
            most_bytes = limit_bytes
            while done < len(payload.ends):
                if columns is None:
                    columns = _empty(schema, most_bytes, chunk, wanted)
                before, count = done, len(columns)
                done, size = columns.fill(rows, payload, base, done, wanted, most_bytes)
                matching += size
                if done < len(payload.ends) and len(columns):
                    yield _taken(columns), matching
                    columns, matching, most_bytes = None, 0, limit_bytes
                elif done == before and not count:  # one batch has more than the columns take
                    columns, most_bytes = None, int(payload.ends[done] - payload.starts[done])
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
