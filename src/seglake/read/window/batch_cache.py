"""Decompressed record batches that reads keep for the next: windows come again, and overlap.

Decompressing is most of what a small window costs, and waiting for storage the rest. Where all
that is wanted of a piece is kept, its log is not asked; where some is, that is not decompressed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seglake.format.batch import TABLE, BatchTable
from seglake.read.fetch.byte_cache import ByteCache
from seglake.read.fetch.chunks import Chunk, chunks
from seglake.store import Store

if TYPE_CHECKING:
    from seglake.read.window.plan import Piece

_OVERHEAD_BYTES = 400  # of an entry: its objects, its key
_LARGEST_SHARE = 32  # of the cache that the logs of one read may have; more would only push out
_EXTENT_SHIFT = 32  # positions in a log are below 2 GiB


class _Batch(NamedTuple):
    row: bytes  # of a batch table, with the position in the log
    size: int
    max_timestamp: int
    records: bytes | None  # None if no read wanted them


class KeptBatches:
    """The batches in `cache`, by log and position."""

    def __init__(self, cache: ByteCache) -> None:
        self._cache = cache

    def if_small(self, pieces: Iterable[Piece]) -> tuple[Iterable[Piece], KeptBatches | None]:
        """The pieces, and this if they are few enough to be kept, or else None."""
        limit, taken, rest = self._cache.limit_bytes // _LARGEST_SHARE, [], iter(pieces)
        for piece in rest:
            taken.append(piece)
            limit -= piece.size_bytes
            if limit < 0:
                return chain(taken, rest), None
        return taken, self

    def chunks(
        self, store: Store, pieces: Iterable[Piece], *, fetch_bytes: int, ahead_bytes: int
    ) -> Iterator[Chunk]:
        """As `fetch.chunks`: without data where all is kept, and keeping what is decompressed."""
        pairs = ((piece, self._all_of(piece)) for piece in pieces)
        for kept, group in groupby(pairs, key=lambda pair: pair[1] is not None):
            if kept:
                yield _chunk_of([(piece, batches or []) for piece, batches in group])
                continue
            missing = (piece for piece, _ in group)
            for chunk in chunks(store, missing, fetch_bytes=fetch_bytes, ahead_bytes=ahead_bytes):
                yield chunk._replace(known=self._known(chunk), keep=partial(self._keep, chunk))

    def _known(self, chunk: Chunk) -> dict[int, Any]:
        positions = chunk.table["position"].tolist()
        found = zip(positions, map(self._cache.get, _keys(chunk, chunk.table)), strict=True)
        return {at: batch.records for at, batch in found if batch and batch.records is not None}

    def _keep(self, chunk: Chunk, rows: BatchTable, parts: Sequence[Any] | None) -> None:
        """Keep some batches of the chunk with their records, or without if these are not wanted."""
        keys, table = _keys(chunk, rows), rows.copy()
        table["position"] = [position for _, position in keys]
        whole, width = table.tobytes(), TABLE.itemsize
        sizes, times = table["size"].tolist(), table["max_timestamp"].tolist()
        for number, key in enumerate(keys):
            records = None
            if parts is not None:
                records = bytes(parts[number])  # a copy of what is a part of all that was fetched
            elif self._cache.get(key) is not None:
                continue
            row = whole[number * width : (number + 1) * width]
            batch = _Batch(row, sizes[number], times[number], records)
            self._cache.put(key, batch, len(records or b"") + _OVERHEAD_BYTES)

    def _all_of(self, piece: Piece) -> list[_Batch] | None:
        """All batches of a piece, or None if one that is wanted is missing."""
        get, key, found = self._cache.get, piece.segment.log_key, list[_Batch]()
        low = piece.window.start_ms
        for start, end in zip(*(each.tolist() for each in piece.ranges[:2]), strict=True):
            at = start
            while at < end:
                batch: _Batch | None = get((key, at))
                if batch is None or (batch.records is None and batch.max_timestamp >= low):
                    return None
                found.append(batch)
                at += batch.size
        return found


def _chunk_of(pieces: list[tuple[Piece, list[_Batch]]]) -> Chunk:
    """A chunk of nothing but what is kept, its data only imagined: log after log, far apart."""
    batches = [batch for _, each in pieces for batch in each]
    table = np.frombuffer(bytearray().join([batch.row for batch in batches]), TABLE)
    numbers = np.arange(len(pieces), dtype=np.int64)
    owner_of = np.repeat(numbers, [len(each) for _, each in pieces])
    table["position"] += owner_of << _EXTENT_SHIFT
    places = zip(table["position"].tolist(), batches, strict=True)
    known = {position: batch.records for position, batch in places}
    starts, extents = numbers << _EXTENT_SHIFT, [piece for piece, _ in pieces]
    return Chunk(b"", table, owner_of.astype(np.int32), extents, numbers, starts, -starts, known)


def _keys(chunk: Chunk, rows: BatchTable) -> list[tuple[str, int]]:
    """The log and the position in it of each batch."""
    stretches = chunk.starts.searchsorted(rows["position"], "right") - 1
    positions = (rows["position"] + chunk.shifts[stretches]).tolist()
    names = [extent.segment.log_key for extent in chunk.extents]
    owners = chunk.owners[stretches].tolist()
    return [(names[owner], position) for owner, position in zip(owners, positions, strict=True)]
