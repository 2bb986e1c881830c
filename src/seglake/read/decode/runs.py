"""From fetched record batches to Arrow record batches, in runs for threads side by side.

A run decompresses a few batches at a time, little enough to stay in the processor's cache, and
takes of them what is in the window, straight into the columns of the Arrow record batch it fills.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seglake.format.batch import LEAST_RECORD_BYTES, BatchTable
from seglake.format.decode import Within
from seglake.read.decode.columns import Columns
from seglake.read.fetch.chunks import Chunk
from seglake.read.kernels import bytes_of_batches, wanted_batches

Run = Iterator[tuple[pa.RecordBatch, int]]
"""Arrow record batches, and how many bytes those record batches have that they come from."""

_RUN_BYTES = 96 * 1024  # of a log, below which another thread costs more than it gains
_KNOWN_RUN_BYTES = 256 * 1024  # the same where nothing is decompressed
_PART_BYTES = 256 * 1024  # decompressed at a time
_KEPT_BYTES = 2 * 2**20  # of keys or values in one Arrow record batch, unless a batch has more

_THREAD = threading.local()


def runs_of(
    chunk: Chunk,
    windows: npt.NDArray[np.int64],
    schema: pa.Schema,
    limit_bytes: int,
    count: int,
) -> Iterator[Run]:
    """At most `count` runs that make the records of a chunk, in order.

    `windows` has a row for each extent: smallest and largest timestamp, smallest and largest
    offset. Columns take about `limit_bytes`, or what one record batch needs.
    """
    rows = np.empty(len(chunk.table), np.int64)
    rows = rows[: wanted_batches(chunk.table, chunk.owner_of, windows, rows)]
    if chunk.keep is not None and len(rows) < len(chunk.table):
        chunk.keep(np.delete(chunk.table, rows), None)
    table, owner_of = chunk.table[rows], chunk.owner_of[rows]
    for first, last in pairwise(_cuts(table["size"], count, bool(chunk.known))):
        within = Within(windows, owner_of[first:last])
        limit = min(limit_bytes, _KEPT_BYTES)
        yield _run(chunk, table[first:last], within, schema, limit)


def _cuts(sizes: npt.NDArray[np.int32], count: int, known: bool) -> list[int]:
    """Where to cut batches of these sizes into runs."""
    ends = sizes.cumsum(dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    runs = min(count, total // (_KNOWN_RUN_BYTES if known else _RUN_BYTES))
    inner = ends.searchsorted(np.arange(1, runs) * total // runs).tolist() if runs > 1 else []
    return [0, *inner, len(sizes)]


def _run(
    chunk: Chunk,
    rows: BatchTable,
    within: Within,
    schema: pa.Schema,
    limit_bytes: int,
) -> Run:
    """The records of the batches `rows` that are `within`."""
    segments = [extent.segment for extent in chunk.extents]
    part_bytes = min(_PART_BYTES, limit_bytes)
    columns, matching, first = _borrow(schema, limit_bytes), 0, 0
    for part, decoded in chunk.decode_in_parts(rows, part_bytes, within):
        if len(decoded.offsets):
            owners = within.window_of[first:]
            if not columns.append(decoded, segments, owners, limit_bytes):
                if len(columns):
                    yield _taken(columns), matching
                matching, size = 0, max(limit_bytes, len(decoded.records.values.data))
                columns = _borrow(schema, size)
                columns.append(decoded, segments, owners, size)
            matching += bytes_of_batches(part, decoded.batch)
        first += len(part)
    if len(columns):
        yield _taken(columns), matching
    else:
        _give_back(columns)


def _borrow(schema: pa.Schema, size_bytes: int) -> Columns:
    """This thread's columns, if they are fit for it; until they are given back nobody else's."""
    columns: Columns | None = _THREAD.__dict__.pop("columns", None)
    if columns is None or columns.schema is not schema or columns.size_bytes < size_bytes:
        return Columns(schema, size_bytes // LEAST_RECORD_BYTES, size_bytes)
    return columns


def _taken(columns: Columns) -> pa.RecordBatch:
    batch = columns.take()
    _give_back(columns)
    return batch


def _give_back(columns: Columns) -> None:
    if columns.size_bytes <= _KEPT_BYTES:
        _THREAD.columns = columns
