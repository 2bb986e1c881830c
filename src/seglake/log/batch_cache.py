"""Cache the decompressed record batches of small reads, because windows are repeated and overlap.

Decompression is most of the cost of a small window; waiting for storage is the rest. If the cache
has all wanted batches of a piece, the piece is not fetched. If the cache has some of the batches,
the piece is fetched, and only the other batches are decompressed.

A batch from an object store is cached when it is first read. A batch from a local disk is cached
when it is read the third time: most batches are read once, and caching a batch costs about as much
as decompressing it twice (decision 16).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any

import numpy as np

from seglake.format.batch import BatchTable
from seglake.format.codecs.payload import Payload
from seglake.format.records import copy_rows, join_tables, take_rows
from seglake.log.chunk import FETCH_BYTES, Chunk, Fetch
from seglake.log.piece import Cost, Piece
from seglake.log.slabs import ABSENT, CachedRecords, SlabCache, runs

_LARGEST_SHARE = 32  # a read of more than 1/32 of the cache bypasses it, or would evict too much

_Batches = tuple[BatchTable, CachedRecords]


class BatchCache:
    """A fetch that caches the batches of another fetch. Only the other fetch is pickled.

    Before it gets a chunk, it calls `look`, which clears the cache if logs were deleted: a plan is
    read without a call of a method of `Log`, which would check for deletions.
    """

    def __init__(
        self, fetch: Fetch, slabs: SlabCache, look: Callable[[], None] = lambda: None
    ) -> None:
        self._fetch, self.slabs, self._look = fetch, slabs, look

    def __reduce__(self) -> tuple[Any, ...]:
        return copy, (self._fetch,)

    @property
    def gap_bytes(self) -> int:
        """Return the `gap_bytes` of the other fetch."""
        return self._fetch.gap_bytes

    @property
    def largest_bytes(self) -> int:
        """Return the largest read, in bytes of logs, that uses the cache."""
        return self.slabs.limit_bytes // _LARGEST_SHARE

    def chunks(
        self, pieces: Iterable[Piece], *, fetch_bytes: int = FETCH_BYTES, ahead_bytes: int = 0
    ) -> Iterator[Chunk]:
        """Yield chunks, see `Fetch.chunks`. Chunks of cached batches have no data."""
        self._look()
        for chunk in self._chunks(pieces, fetch_bytes, ahead_bytes):
            yield chunk
            self._look()

    def _chunks(
        self, pieces: Iterable[Piece], fetch_bytes: int, ahead_bytes: int
    ) -> Iterator[Chunk]:
        small, pieces = self._measured(pieces)
        if not small:
            yield from self._fetch.chunks(pieces, fetch_bytes=fetch_bytes, ahead_bytes=ahead_bytes)
            return
        pairs = [(piece, self._batches_of(piece)) for piece in pieces]
        for cached, group in groupby(pairs, key=lambda pair: pair[1] is not None):
            if cached:
                yield _cached_chunk([(piece, batches) for piece, batches in group if batches])
                continue
            missing = [piece for piece, _ in group]
            for chunk in self._fetch.chunks(
                missing, fetch_bytes=fetch_bytes, ahead_bytes=ahead_bytes
            ):
                yield self._caching(chunk)

    def _measured(self, pieces: Iterable[Piece]) -> tuple[bool, Iterable[Piece]]:
        """Return whether the pieces together are small enough for the cache, and the pieces."""
        limit, first, rest = self.largest_bytes, list[Piece](), iter(pieces)
        for piece in rest:
            first.append(piece)
            limit -= piece.size_bytes
            if limit < 0:
                return False, chain(first, rest)
        return True, first

    def _batches_of(self, piece: Piece) -> _Batches | None:
        """Return all batches of a piece, or None if a wanted batch is not cached."""
        batches = self.slabs.all_in(piece.segment.log_key, piece.ranges)
        if batches is None:
            return None
        table, places = batches
        in_time = table["max_timestamp"] >= piece.window.start_ms
        return None if (in_time & (places.slabs == ABSENT)).any() else batches

    def _caching(self, chunk: Chunk) -> Chunk:
        """Return the chunk with its cached records. It caches what it decompresses.

        A batch from before the window is never decompressed, so its header is cached here.
        """
        if not len(chunk.table) or not (self.gap_bytes or self._again(chunk)):
            return chunk
        parts = list[CachedRecords]()
        for owner, rows in runs(chunk.owner_of):
            piece, batches = chunk.pieces[owner], _in_log(chunk, rows)
            log_key = piece.segment.log_key
            places, cached = self.slabs.at(log_key, batches["position"])
            parts.append(places)
            early = (batches["max_timestamp"] < piece.window.start_ms) & ~cached
            if early.any():
                self.slabs.put(log_key, batches[early], None)
        return _CachingChunk(
            chunk.data, chunk.table, chunk.owner_of, chunk.log_positions, chunk.pieces,
            CachedRecords.joined(parts), chunk.cost, self.slabs,
        )  # fmt: skip

    def _again(self, chunk: Chunk) -> bool:
        """Return whether most batches of the chunk were read twice before."""
        keys = [piece.segment.log_key for piece in chunk.pieces]
        return self.slabs.mostly_seen(keys, chunk.owner_of, chunk.log_positions)


@dataclass(frozen=True)
class _CachingChunk(Chunk):
    """A fetched chunk that caches the batches that it decompresses."""

    slabs: SlabCache

    def fresh(self, rows: BatchTable, limit_bytes: int) -> Payload:
        payload = super().fresh(rows, limit_bytes)
        numbers = self.table["position"].searchsorted(rows["position"][: len(payload.ends)])
        for owner, own in runs(self.owner_of[numbers]):  # a slab has batches of one log
            records = Payload(payload.data, payload.starts[own], payload.ends[own])
            log_key = self.pieces[owner].segment.log_key
            self.slabs.put(log_key, _in_log(self, numbers[own]), records.copy())
        return payload


def _in_log(chunk: Chunk, rows: Any) -> BatchTable:
    """Return batches of a chunk, with their positions in their logs."""
    table = copy_rows(take_rows(chunk.table, rows))
    table["position"] = chunk.log_positions[rows]
    return table


def _cached_chunk(pieces: Sequence[tuple[Piece, _Batches]]) -> Chunk:
    """Return a chunk of cached batches, whose positions are numbers, as it has no data."""
    table = join_tables([batches for _, (batches, _) in pieces])
    log_positions = table["position"].copy()
    table["position"] = np.arange(len(table))
    counts = [len(batches) for _, (batches, _) in pieces]
    owner_of = np.repeat(np.arange(len(pieces), dtype=np.int32), counts)
    places = CachedRecords.joined([part for _, (_, part) in pieces])
    return Chunk(
        b"", table, owner_of, log_positions, [piece for piece, _ in pieces], places, Cost()
    )
