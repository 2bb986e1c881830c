"""Cache the decompressed batches of small reads, between a fetch and its reader.

This saves work because callers repeat windows, and because windows overlap.

Decompression is most of the cost of a small window; waiting for storage is the rest. If the cache
has all wanted batches of a piece, the piece is not fetched. If the cache has some of the batches,
the piece is fetched, and only the other batches are decompressed.

A batch from an object store is cached when it is first read. A batch from a local disk is cached
when it is read the third time: most batches are read once, and caching a batch costs about as much
as decompressing it twice (decision 16).

An entry of the cache contains the batches of a log that one read decompressed. The oldest entry is
evicted first. Indexes of batches are arrays: an object for each batch would keep the garbage
collector busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, pairwise
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.compile.locks import fork_safe_lock
from seglake.format.batch import TABLE, BatchTable
from seglake.format.codecs.payload import Payload
from seglake.format.records import Bytes, Int32s, Int64s, copy_rows, fixed, join_tables, take_rows
from seglake.log.fetch import FETCH_BYTES, Chunk, Fetch
from seglake.log.fetch_kernels import SEEN_SLOTS, covering, mark_seen
from seglake.log.segment import Piece

_ENTRY_BYTES = 1024  # overhead of an entry, in addition to its arrays
_BATCH_BYTES = TABLE.itemsize + 5 * 8  # size of a batch in an index
_SWEEP_EVERY = 512  # entries
_LARGEST_SHARE = 32  # a read of more than 1/32 of the cache bypasses it, or would evict too much
_NOTHING: Bytes = np.empty(0, np.uint8)

_LOG_KEY = attrgetter("segment.log_key")

ABSENT = -1  # the entry of a batch whose records are not cached


class CachedRecords(NamedTuple):
    """Addresses of cached records: records of batch i are data[entries[i]][starts[i] : ends[i]].

    entries[i] is `ABSENT` if the records of batch i are not cached.
    """

    entries: Int64s
    starts: Int64s
    ends: Int64s
    data: Sequence[Bytes]

    @staticmethod
    def joined(parts: Sequence[CachedRecords]) -> CachedRecords:
        """Return the addresses of all parts, one part after another."""
        entries, data = list[Int64s](), list[Bytes]()
        for part in parts:
            entries.append(np.where(part.entries == ABSENT, ABSENT, part.entries + len(data)))
            data += part.data
        starts, ends = (np.concatenate([part[column] for part in parts]) for column in (1, 2))
        return CachedRecords(np.concatenate(entries), starts, ends, data)

    def take(self, rows: Any) -> CachedRecords:
        """Return the addresses for the batches at `rows`."""
        return CachedRecords(self.entries[rows], self.starts[rows], self.ends[rows], self.data)

    def alike(self) -> int:
        """Count the leading batches that are in the entry of the first batch.

        If the first batch has no entry, count the leading batches without an entry.
        """
        others = np.flatnonzero(self.entries != self.entries[0])
        return int(others[0]) if len(others) else len(self.entries)

    def payload(self, limit_bytes: int) -> Payload:
        """Return the records of the leading batches that share an entry.

        They end with the batch that reaches `limit_bytes`. The records of the first batch must be
        cached.
        """
        stop = self.alike()
        sizes = np.cumsum(self.ends[:stop] - self.starts[:stop])
        stop = min(stop, 1 + int(sizes.searchsorted(limit_bytes)))
        return Payload(self.data[self.entries[0]], self.starts[:stop], self.ends[:stop])


_Batches = tuple[BatchTable, CachedRecords]


class _BatchIndex(NamedTuple):
    """The cached batches of a log, sorted by position, and where each batch is in the cache.

    Batch i is bytes [positions[i], stops[i]) of the log. Its records are bytes [starts[i], ends[i])
    of entry entries[i]. If only the header of the batch is cached, starts[i] is `ABSENT`.
    """

    positions: Int64s
    stops: Int64s
    table: BatchTable
    entries: Int64s
    starts: Int64s
    ends: Int64s

    @staticmethod
    def from_batch(number: int, table: BatchTable, payload: Payload | None) -> _BatchIndex:
        """Return the index of one entry."""
        positions, entries = table["position"].astype(np.int64), np.full(len(table), number)
        stops, absent = positions + table["size"], np.full(len(table), ABSENT)
        if payload is None:
            return _BatchIndex(positions, stops, table, entries, absent, absent)
        return _BatchIndex(positions, stops, table, entries, payload.starts, payload.ends)

    def plus(self, later: Sequence[_BatchIndex]) -> _BatchIndex:
        """Return this index merged with later ones. For a batch in several, the last one counts."""
        joined = _BatchIndex(*(join_tables(column) for column in zip(self, *later, strict=True)))
        order = joined.positions.argsort(kind="stable")
        positions = joined.positions[order]
        return joined.take(order[np.append(positions[1:] != positions[:-1], True)])

    def take(self, numbers: Any) -> _BatchIndex:
        columns: Any = self
        return _BatchIndex(*(take_rows(column, numbers) for column in columns))

    def covering(self, piece: Piece) -> Any:
        """Return the numbers of the batches that fill a piece, or None if a batch is missing."""
        numbers = np.empty(len(self.positions), np.int64)
        columns = self.positions, self.stops, piece.starts, piece.ends
        positions, stops, starts, ends = map(fixed, columns)
        count = covering(positions, stops, starts, ends, numbers)
        if count < 0:
            return None
        first = int(numbers[0]) if count else 0
        whole = count and numbers[count - 1] - first == count - 1
        return slice(first, first + count) if whole else numbers[:count]


class _CacheEntry(NamedTuple):
    data: Bytes
    size_bytes: int


def runs(owner_of: Int32s) -> Iterator[tuple[int, slice]]:
    """Yield each owner and the slice of its rows. The rows of an owner must be adjacent."""
    cuts = (np.flatnonzero(np.diff(owner_of)) + 1).tolist()
    edges = [0, *cuts, len(owner_of)] if len(owner_of) else []
    for first, stop in pairwise(edges):
        yield int(owner_of[first]), slice(first, stop)


_INT64S: Int64s = np.empty(0, np.int64)
_EMPTY = _BatchIndex(_INT64S, _INT64S, np.empty(0, TABLE), _INT64S, _INT64S, _INT64S)


class RecordCache:
    """A cache of decompressed batches of at most `limit_bytes`, with an index for each log."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self._entries: dict[int, _CacheEntry] = {}  # by number; the numbers are consecutive
        self._oldest = self._next = 0  # numbers of the oldest entry and of the next one
        self._indexes: dict[str, _BatchIndex] = {}
        self._new_indexes: dict[str, list[_BatchIndex]] = {}
        self._lock = fork_safe_lock()
        self.seen = np.zeros(SEEN_SLOTS, np.uint64)  # marks of batches that were read, by kernels

    def mostly_seen(self, pieces: Sequence[Piece], owner_of: Int32s, positions: Int64s) -> bool:
        """Record a read of batches. Return whether most of them were read twice or more before.

        Batch b is at positions[b] of the log of pieces[owner_of[b]]. The cache remembers about
        65,000 batches, and rarely confuses two of them.
        """
        logs = np.array([*map(hash, map(_LOG_KEY, pieces))])
        return 2 * int(mark_seen(self.seen, logs, owner_of, positions)) > len(positions)

    def put(self, log_key: str, table: BatchTable, payload: Payload | None) -> None:
        """Cache batches of a log. Positions in `table` are positions in the log.

        The cache keeps the array of the payload, so the caller must not write to it afterwards.
        Without a payload, only the headers are cached. A payload that is larger than the cache is
        ignored.
        """
        data = _NOTHING if payload is None else payload.data
        memory: Any = data if data.base is None else data.base
        size = int(memory.nbytes) + _ENTRY_BYTES + _BATCH_BYTES * len(table)
        if size > self.limit_bytes:
            return
        with self._lock:
            number = self._add(_CacheEntry(data, size))
            new = self._new_indexes.setdefault(log_key, [])
            new.append(_BatchIndex.from_batch(number, table, payload))
        if number % _SWEEP_EVERY == _SWEEP_EVERY - 1:
            self._sweep()

    def _add(self, entry: _CacheEntry) -> int:
        """Add an entry, evict the oldest ones to make room, and return the number of the entry."""
        while self.size_bytes + entry.size_bytes > self.limit_bytes:
            self._drop()
        number, self._next = self._next, self._next + 1
        self._entries[number] = entry
        self.size_bytes += entry.size_bytes
        return number

    def _drop(self) -> None:
        """Evict the oldest entry."""
        self.size_bytes -= self._entries.pop(self._oldest).size_bytes
        self._oldest += 1

    def clear(self) -> None:
        """Drop all entries and indexes."""
        with self._lock:
            while self._entries:
                self._drop()
            self._indexes, self._new_indexes = {}, {}

    def all_in(self, pieces: Sequence[Piece]) -> list[_Batches | None]:
        """Return all batches of each piece, or None if a wanted batch of the piece is missing."""
        found = list[_Batches | None]()
        for piece in pieces:
            log_key, starts = piece.segment.log_key, piece.starts
            is_new = log_key in self._new_indexes
            index = self._index_of(log_key) if is_new else self._indexes.get(log_key, _EMPTY)
            at = index.positions.searchsorted(starts[:1]).tolist()
            # Usually false for a new window.
            begins = at and at[0] < len(index.positions) and index.positions[at[0]] == starts[0]
            found.append(self._all_in(piece, index) if begins else None)
        return found

    def _all_in(self, piece: Piece, index: _BatchIndex) -> _Batches | None:
        """Return all batches of a piece; None if one is not cached. `index` has its first batch."""
        numbers = index.covering(piece)
        if numbers is None:
            return None
        batches = index.take(numbers)
        places, here = self._places_of(batches)
        in_time = batches.table["max_timestamp"] >= piece.window.start_ms
        lost = ~here | (in_time & (places.entries == ABSENT))
        return None if lost.any() else (batches.table, places)

    def at(self, log_key: str, positions: Int64s) -> tuple[CachedRecords, npt.NDArray[np.bool_]]:
        """Return the addresses of the records of the batches at `positions`, and a mask.

        The mask is true for cached batches. A batch may be cached without its records.
        """
        index = self._index_of(log_key)
        numbers = index.positions.searchsorted(positions)
        cached = np.append(index.positions, ABSENT)[numbers] == positions
        places, starts, ends = (np.full(len(cached), ABSENT) for _ in range(3))
        if not cached.any():
            return CachedRecords(places, starts, ends, []), cached
        batches, here = self._places_of(index.take(numbers[cached]))
        places[cached], starts[cached], ends[cached] = batches[:3]
        cached[cached] = here
        return CachedRecords(places, starts, ends, batches.data), cached

    def _places_of(self, index: _BatchIndex) -> tuple[CachedRecords, npt.NDArray[np.bool_]]:
        """Return the addresses of the records of indexed batches, and a mask of cached batches."""
        numbers, entry_of = np.unique(index.entries, return_inverse=True)
        entries = [self._entries.get(number) for number in numbers.tolist()]
        present = np.array([entry is not None for entry in entries], bool)
        here: npt.NDArray[np.bool_] = present[entry_of]
        places = (present.cumsum() - 1)[entry_of]
        places[~here | (index.starts == ABSENT)] = ABSENT
        data = [entry.data for entry in entries if entry is not None]
        return CachedRecords(places, index.starts, index.ends, data), here

    def _index_of(self, log_key: str) -> _BatchIndex:
        """Return the index of a log, with the batches of all its entries."""
        if log_key not in self._new_indexes:
            return self._indexes.get(log_key, _EMPTY)
        with self._lock:
            index = self._indexes.get(log_key, _EMPTY)
            if new := self._new_indexes.pop(log_key, None):
                index = self._indexes[log_key] = index.plus(new)
        return index

    def _sweep(self) -> None:
        """Remove batches of evicted entries from the indexes."""
        for log_key in {*self._indexes, *self._new_indexes}:
            self._index_of(log_key)
            with self._lock:
                index = self._indexes.pop(log_key, _EMPTY)
                index = index.take(index.entries >= self._oldest)
                if len(index.positions):
                    self._indexes[log_key] = index


class CachedFetch:
    """A fetch that caches the batches of another fetch. Only the other fetch is pickled.

    Before it gets a chunk, it calls `look`, which clears the cache if logs were deleted. Methods of
    `Log` check for deletions, but a plan is read without calling any of these methods.
    """

    def __init__(
        self, fetch: Fetch, cache: RecordCache, look: Callable[[], None] = lambda: None
    ) -> None:
        self._fetch, self.cache, self._look = fetch, cache, look
        self.gap_bytes = fetch.gap_bytes
        self._largest_bytes = cache.limit_bytes // _LARGEST_SHARE

    def __reduce__(self) -> tuple[Any, ...]:
        return copy, (self._fetch,)

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
        fetch = partial(self._fetch.chunks, fetch_bytes=fetch_bytes, ahead_bytes=ahead_bytes)
        size, small, rest = 0, list[Piece](), iter(pieces)
        for piece in rest:
            small.append(piece)
            size += sum(piece.ends.tolist()) - sum(piece.starts.tolist())
            if size > self._largest_bytes:
                return fetch(chain(small, rest))
        parts, found, first = list[Iterable[Chunk]](), self.cache.all_in(small), 0
        for cached, group in groupby(map(bool, found)):
            part = slice(first, first + len([*group]))
            first = part.stop
            if cached:
                batches = [*filter(None, found[part])]
                parts.append([_cached_chunk(small[part], batches, self.cache)])
            else:
                parts.append(map(self._caching, fetch(small[part])))
        return chain.from_iterable(parts)

    def _caching(self, chunk: Chunk) -> Chunk:
        """Return the chunk with its cached records, as a chunk that caches the other ones.

        The records of batches before the window are never decompressed, so only the headers of
        these batches are cached, by this method. The chunk is returned unchanged if caching its
        batches would not pay.
        """
        if not len(chunk.table) or not (
            self.gap_bytes  # of an object store
            or self.cache.mostly_seen(chunk.pieces, chunk.owner_of, chunk.log_positions)
        ):
            return chunk
        parts = list[CachedRecords]()
        for owner, rows in runs(chunk.owner_of):
            piece, batches = chunk.pieces[owner], _in_log(chunk, rows)
            log_key = piece.segment.log_key
            places, cached = self.cache.at(log_key, batches["position"])
            parts.append(places)
            early = (batches["max_timestamp"] < piece.window.start_ms) & ~cached
            if early.any():
                self.cache.put(log_key, batches[early], None)
        return CachedChunk(
            chunk.data, chunk.table, chunk.owner_of, chunk.log_positions, chunk.pieces,
            chunk.requests, chunk.fetched_bytes, cached=CachedRecords.joined(parts),
            cache=self.cache,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CachedChunk(Chunk):
    """A chunk with the decompressed records of some of its batches.

    `data` may omit these batches. Other batches are cached when they are decompressed.
    """

    is_cached = True
    cached: CachedRecords
    cache: RecordCache

    def decompress(self, rows: BatchTable, limit_bytes: int) -> Payload:
        """Return records, see `Chunk.decompress`.

        The result ends earlier if the records of the next batch are not in the same entry of the
        cache, or if only one of the two batches is cached.
        """
        cached = self.cached.take(self.table["position"].searchsorted(rows["position"]))
        if cached.entries[0] != ABSENT:
            return cached.payload(limit_bytes)
        payload = super().decompress(rows[: cached.alike()], limit_bytes)
        numbers = self.table["position"].searchsorted(rows["position"][: len(payload.ends)])
        for owner, own in runs(self.owner_of[numbers]):  # an entry has batches of one log
            records = Payload(payload.data, payload.starts[own], payload.ends[own])
            log_key = self.pieces[owner].segment.log_key
            self.cache.put(log_key, _in_log(self, numbers[own]), records.copy())
        return payload

    def payload(self, rows: BatchTable, limit_bytes: int) -> Payload:
        """Return the decompressed records of the first batches of `rows`."""
        return self.decompress(rows, limit_bytes)


def _in_log(chunk: Chunk, rows: Any) -> BatchTable:
    """Return the batches `rows` of a chunk, with their positions in their logs."""
    table = copy_rows(take_rows(chunk.table, rows))
    table["position"] = chunk.log_positions[rows]
    return table


def _cached_chunk(pieces: Sequence[Piece], found: Sequence[_Batches], cache: RecordCache) -> Chunk:
    """Return a chunk of cached batches, without data. Batch positions are 0, 1, 2 and so on."""
    table = join_tables([batches for batches, _ in found])
    log_positions = table["position"].copy()
    table["position"] = np.arange(len(table))
    counts = [len(batches) for batches, _ in found]
    owner_of = np.repeat(np.arange(len(pieces), dtype=np.int32), counts)
    places = CachedRecords.joined([part for _, part in found])
    return CachedChunk(b"", table, owner_of, log_positions, pieces, cached=places, cache=cache)
