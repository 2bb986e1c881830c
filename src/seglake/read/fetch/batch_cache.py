"""Decompressed record batches of small reads, cached: windows are read again, and overlap.

Decompression is most of the cost of a small window; waiting for storage is the rest. If the cache
has all wanted batches of a piece, nothing of it is fetched. If it has some of them, the piece is
fetched, but these batches are not decompressed again.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, NamedTuple

import numpy as np

from seglake.format.batch import TABLE, BatchTable
from seglake.format.codecs.payload import Payload
from seglake.format.records import Int64s
from seglake.read.fetch.byte_cache import ByteCache
from seglake.read.fetch.chunk import FETCH_BYTES, Chunk, Fetch
from seglake.read.fetch.piece import Cost, Piece

_OVERHEAD_BYTES = 400  # of an entry: its objects and its key
_LARGEST_SHARE = 32  # a read of more than 1/32 of the cache bypasses it, or would evict too much


class _Batch(NamedTuple):
    row: bytes  # of a batch table, with the position in the log
    size: int
    max_timestamp: int
    payload: bytes | None  # None if no read has wanted its records


class BatchCache:
    """Another fetch, with a cache in front of it. Pickled, it is the other fetch alone."""

    def __init__(self, fetch: Fetch, cache: ByteCache) -> None:
        self._fetch, self._cache = fetch, cache

    def __reduce__(self) -> tuple[Any, ...]:
        return copy, (self._fetch,)

    @property
    def gap_bytes(self) -> int:
        """As that of the other fetch."""
        return self._fetch.gap_bytes

    def chunks(
        self, pieces: Iterable[Piece], *, fetch_bytes: int = FETCH_BYTES, ahead_bytes: int = 0
    ) -> Iterator[Chunk]:
        """As `Fetch.chunks`; chunks of cached batches have no data."""
        small, pieces = self._measured(pieces)
        if not small:
            yield from self._fetch.chunks(pieces, fetch_bytes=fetch_bytes, ahead_bytes=ahead_bytes)
            return
        pairs = ((piece, self._batches_of(piece)) for piece in pieces)
        for cached, group in groupby(pairs, key=lambda pair: pair[1] is not None):
            if cached:
                yield _cached_chunk([(piece, batches or []) for piece, batches in group])
                continue
            missing = (piece for piece, _ in group)
            for chunk in self._fetch.chunks(
                missing, fetch_bytes=fetch_bytes, ahead_bytes=ahead_bytes
            ):
                yield self._caching(chunk)

    def _measured(self, pieces: Iterable[Piece]) -> tuple[bool, Iterable[Piece]]:
        """Whether the pieces together are small enough to be cached, and the pieces."""
        limit, first, rest = self._cache.limit_bytes // _LARGEST_SHARE, list[Piece](), iter(pieces)
        for piece in rest:
            first.append(piece)
            limit -= piece.size_bytes
            if limit < 0:
                return False, chain(first, rest)
        return True, first

    def _batches_of(self, piece: Piece) -> list[_Batch] | None:
        """All batches of a piece, or None if the cache lacks one that is wanted."""
        get, key, batches = self._cache.get, piece.segment.log_key, list[_Batch]()
        start_ms = piece.window.start_ms
        for start, end in zip(*(each.tolist() for each in piece.ranges[:2]), strict=True):
            at = start
            while at < end:
                batch: _Batch | None = get((key, at))
                if batch is None or (batch.payload is None and batch.max_timestamp >= start_ms):
                    return None
                batches.append(batch)
                at += batch.size
        return batches

    def _caching(self, chunk: Chunk) -> Chunk:
        """The chunk with the payloads that the cache has; what it decompresses is cached.

        Batches from before the window are never decompressed; their headers are cached here.
        """
        cached = list(map(self._cache.get, _keys(chunk, slice(None))))
        pairs = zip(chunk.table["position"].tolist(), cached, strict=True)
        payloads = {at: batch.payload for at, batch in pairs if batch and batch.payload is not None}
        starts = np.array([piece.window.start_ms for piece in chunk.pieces])
        early = chunk.table["max_timestamp"] < starts[chunk.owner_of]
        early &= np.array([batch is None for batch in cached], bool)
        rows = np.flatnonzero(early)
        self.put(chunk, rows, [None] * len(rows))
        return _CachingChunk(
            chunk.data, chunk.table, chunk.owner_of, chunk.log_positions, chunk.pieces, payloads,
            chunk.cost, self,
        )  # fmt: skip

    def put(self, chunk: Chunk, rows: Int64s, payloads: Sequence[bytes | None]) -> None:
        """Cache the batches at `rows` of the chunk with their payloads."""
        table = chunk.table[rows]
        table["position"] = chunk.log_positions[rows]
        whole, width = table.tobytes(), TABLE.itemsize
        batches = zip(table["size"].tolist(), table["max_timestamp"].tolist(), strict=True)
        places = zip(_keys(chunk, rows), batches, payloads, strict=True)
        for number, (key, (size, max_timestamp), payload) in enumerate(places):
            row = whole[number * width : (number + 1) * width]
            batch = _Batch(row, size, max_timestamp, payload)
            self._cache.put(key, batch, len(payload or b"") + _OVERHEAD_BYTES)


@dataclass(frozen=True)
class _CachingChunk(Chunk):
    """A fetched chunk that caches what it decompresses."""

    cache: BatchCache

    def decompress(self, rows: BatchTable, limit_bytes: int) -> Payload:
        payload = super().decompress(rows, limit_bytes)
        numbers = self.table["position"].searchsorted(rows["position"][: len(payload.ends)])
        # a copy of each: a payload may be a view of all that was fetched
        self.cache.put(self, numbers, [bytes(part) for part in payload.parts()])
        return payload


def _cached_chunk(pieces: list[tuple[Piece, list[_Batch]]]) -> Chunk:
    """A chunk of cached batches alone; without data, their positions are their numbers."""
    batches = [batch for _, each in pieces for batch in each]
    table = np.frombuffer(bytearray().join([batch.row for batch in batches]), TABLE)
    log_positions = table["position"].copy()
    table["position"] = np.arange(len(table))
    owner_of = np.repeat(np.arange(len(pieces), dtype=np.int32), [len(each) for _, each in pieces])
    payloads = {number: batch.payload for number, batch in enumerate(batches)}
    own = [piece for piece, _ in pieces]
    return Chunk(b"", table, owner_of, log_positions, own, payloads, Cost())


def _keys(chunk: Chunk, rows: Int64s | slice) -> list[tuple[str, int]]:
    """The log and the position in it of each batch at `rows`."""
    names = [piece.segment.log_key for piece in chunk.pieces]
    owners, positions = chunk.owner_of[rows].tolist(), chunk.log_positions[rows].tolist()
    return [(names[owner], position) for owner, position in zip(owners, positions, strict=True)]
