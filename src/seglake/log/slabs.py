"""Cache decompressed record batches. A slab is the batches of a log that one read decompressed.

Slabs are evicted whole, the oldest slab first. The shelf of a log maps batches to slabs. Slabs and
shelves are arrays: an object for each batch would keep Python's garbage collector busy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.compile.locks import Lock
from seglake.format.batch import TABLE, BatchTable
from seglake.format.codecs.payload import Payload
from seglake.format.records import Bytes, Int32s, Int64s, fixed, join_tables, take_rows
from seglake.log.fetch_kernels import SEEN_SLOTS, count_seen, covering, mark_seen
from seglake.log.segment import LogRanges

ABSENT = -1  # the slab of a batch whose records are not cached
_SLAB_BYTES = 1024  # overhead of a slab, in addition to its arrays
_BATCH_BYTES = TABLE.itemsize + 5 * 8  # size of a batch on the shelf
_SWEEP_EVERY = 512  # slabs
_NOTHING: Bytes = np.empty(0, np.uint8)


class CachedRecords(NamedTuple):
    """Where records are cached: the records of batch i are data[slabs[i]][starts[i] : ends[i]]."""

    slabs: Int64s
    starts: Int64s
    ends: Int64s
    data: Sequence[Bytes]

    @staticmethod
    def joined(parts: Sequence[CachedRecords]) -> CachedRecords:
        """Return the batches of all parts, one part after another."""
        slabs, data = list[Int64s](), list[Bytes]()
        for part in parts:
            slabs.append(np.where(part.slabs == ABSENT, ABSENT, part.slabs + len(data)))
            data += part.data
        starts, ends = (np.concatenate([part[column] for part in parts]) for column in (1, 2))
        return CachedRecords(np.concatenate(slabs), starts, ends, data)

    def take(self, rows: Any) -> CachedRecords:
        """Return the batches at `rows`."""
        return CachedRecords(self.slabs[rows], self.starts[rows], self.ends[rows], self.data)

    def alike(self) -> int:
        """Count the leading batches in the slab of the first batch, or those without a slab."""
        others = np.flatnonzero(self.slabs != self.slabs[0])
        return int(others[0]) if len(others) else len(self.slabs)

    def payload(self, limit_bytes: int) -> Payload:
        """Return the records of the first batches that share a slab, up to `limit_bytes`.

        The batch that reaches the limit is the last one. The records of the first batch must be
        cached.
        """
        stop = self.alike()
        sizes = np.cumsum(self.ends[:stop] - self.starts[:stop])
        stop = min(stop, 1 + int(sizes.searchsorted(limit_bytes)))
        return Payload(self.data[self.slabs[0]], self.starts[:stop], self.ends[:stop])


class _BatchIndex(NamedTuple):
    """The cached batches of a log, by position, each with its slab and its position in the slab.

    Batch i is bytes [positions[i], stops[i]) of the log. Its records are bytes [starts[i], ends[i])
    of slab slabs[i]. If only the header of the batch is cached, starts[i] is `ABSENT`.
    """

    positions: Int64s
    stops: Int64s
    table: BatchTable
    slabs: Int64s
    starts: Int64s
    ends: Int64s

    @staticmethod
    def of(number: int, table: BatchTable, payload: Payload | None) -> _BatchIndex:
        """Return a shelf with the batches of only one slab."""
        positions, slabs = table["position"].astype(np.int64), np.full(len(table), number)
        stops, absent = positions + table["size"], np.full(len(table), ABSENT)
        if payload is None:
            return _BatchIndex(positions, stops, table, slabs, absent, absent)
        return _BatchIndex(positions, stops, table, slabs, payload.starts, payload.ends)

    def plus(self, slabs: Sequence[_BatchIndex]) -> _BatchIndex:
        """Merge shelves. A batch of a later shelf replaces the same batch of an earlier one."""
        joined = _BatchIndex(*(join_tables(column) for column in zip(self, *slabs, strict=True)))
        order = joined.positions.argsort(kind="stable")
        positions = joined.positions[order]
        return joined.take(order[np.append(positions[1:] != positions[:-1], True)])

    def take(self, numbers: Any) -> _BatchIndex:
        columns: Any = self
        return _BatchIndex(*(take_rows(column, numbers) for column in columns))

    def covering(self, ranges: LogRanges) -> Any:
        """Return the numbers of the batches that fill the ranges, or None if one is missing."""
        numbers = np.empty(len(self.positions), np.int64)
        positions, stops, starts, ends = map(fixed, (*self[:2], *ranges[:2]))
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
    """Yield each owner with its rows. The rows of an owner must be adjacent."""
    cuts = (np.flatnonzero(np.diff(owner_of)) + 1).tolist()
    edges = [0, *cuts, len(owner_of)] if len(owner_of) else []
    for first, stop in pairwise(edges):
        yield int(owner_of[first]), slice(first, stop)


_INT64S: Int64s = np.empty(0, np.int64)
_EMPTY = _BatchIndex(_INT64S, _INT64S, np.empty(0, TABLE), _INT64S, _INT64S, _INT64S)


class SlabCache:
    """A cache of slabs and shelves of at most `limit_bytes` in total."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self._slabs: dict[int, _CacheEntry] = {}  # by number; the numbers are consecutive
        self._oldest = self._next = 0  # numbers of the oldest slab and of the next one
        self._shelves: dict[str, _BatchIndex] = {}
        self._unshelved: dict[str, list[_BatchIndex]] = {}
        self._lock = Lock()
        self.seen = np.zeros(SEEN_SLOTS, np.uint64)  # marks of batches that were read, by kernels

    def mostly_seen(self, log_keys: Sequence[str], owner_of: Int32s, positions: Int64s) -> bool:
        """Return whether most of these batches were passed in two earlier calls.

        Batch b is at positions[b] of the log log_keys[owner_of[b]]. The cache records about 65,000
        batches, and rarely confuses two of them.
        """
        logs = np.array([hash(key) for key in log_keys])
        count = count_seen(self.seen, logs, owner_of, positions)
        mark_seen(self.seen, logs, owner_of, positions)
        return 2 * int(count) > len(positions)

    def put(self, log_key: str, table: BatchTable, payload: Payload | None) -> None:
        """Cache batches of a log. Positions in `table` are positions in the log.

        The cache keeps the array of the payload, so the caller must not write to it afterwards.
        Without a payload, only the headers are cached. A payload that is larger than the cache is
        ignored.
        """
        data = _NOTHING if payload is None else payload.data
        memory: Any = data if data.base is None else data.base
        size = int(memory.nbytes) + _SLAB_BYTES + _BATCH_BYTES * len(table)
        if size > self.limit_bytes:
            return
        with self._lock:
            number = self._add(_CacheEntry(data, size))
            slabs = self._unshelved.setdefault(log_key, [])
            slabs.append(_BatchIndex.of(number, table, payload))
        if number % _SWEEP_EVERY == _SWEEP_EVERY - 1:
            self._sweep()

    def _add(self, slab: _CacheEntry) -> int:
        """Add a slab, and evict the oldest slabs to make room. Return the number of the slab."""
        while self.size_bytes + slab.size_bytes > self.limit_bytes:
            self._drop()
        number, self._next = self._next, self._next + 1
        self._slabs[number] = slab
        self.size_bytes += slab.size_bytes
        return number

    def _drop(self) -> None:
        """Evict the oldest slab."""
        self.size_bytes -= self._slabs.pop(self._oldest).size_bytes
        self._oldest += 1

    def clear(self) -> None:
        """Drop all slabs and shelves."""
        with self._lock:
            while self._slabs:
                self._drop()
            self._shelves, self._unshelved = {}, {}

    def all_in(self, log_key: str, ranges: LogRanges) -> tuple[BatchTable, CachedRecords] | None:
        """Return all batches in some ranges of a log, or None if a batch is not cached."""
        if log_key not in self._shelves and log_key not in self._unshelved:
            return None
        shelf = self._shelf(log_key)
        begins = shelf.positions.searchsorted(ranges.starts[:1])
        if not len(begins) or begins[0] == len(shelf.positions):
            return None
        if shelf.positions[begins[0]] != ranges.starts[0]:  # the usual case for a new window
            return None
        numbers = shelf.covering(ranges)
        if numbers is None:
            return None
        batches = shelf.take(numbers)
        places, here = self._places_of(batches)
        return (batches.table, places) if here.all() else None

    def at(self, log_key: str, positions: Int64s) -> tuple[CachedRecords, npt.NDArray[np.bool_]]:
        """Return where the records of the batches at some positions are, and which are cached.

        A batch may be cached without its records.
        """
        shelf = self._shelf(log_key)
        numbers = shelf.positions.searchsorted(positions)
        cached = np.append(shelf.positions, ABSENT)[numbers] == positions
        places, starts, ends = (np.full(len(cached), ABSENT) for _ in range(3))
        if not cached.any():
            return CachedRecords(places, starts, ends, []), cached
        batches, here = self._places_of(shelf.take(numbers[cached]))
        places[cached], starts[cached], ends[cached] = batches[:3]
        cached[cached] = here
        return CachedRecords(places, starts, ends, batches.data), cached

    def _places_of(self, shelf: _BatchIndex) -> tuple[CachedRecords, npt.NDArray[np.bool_]]:
        """Return where the records of a shelf's batches are, and which batches are still cached."""
        numbers, slab_of = np.unique(shelf.slabs, return_inverse=True)
        slabs = [self._slabs.get(number) for number in numbers.tolist()]
        present = np.array([slab is not None for slab in slabs], bool)
        here: npt.NDArray[np.bool_] = present[slab_of]
        places = (present.cumsum() - 1)[slab_of]
        places[~here | (shelf.starts == ABSENT)] = ABSENT
        data = [slab.data for slab in slabs if slab is not None]
        return CachedRecords(places, shelf.starts, shelf.ends, data), here

    def _shelf(self, log_key: str) -> _BatchIndex:
        """Return the shelf of a log, with the batches of all its slabs."""
        if log_key not in self._unshelved:
            return self._shelves.get(log_key, _EMPTY)
        with self._lock:
            shelf = self._shelves.get(log_key, _EMPTY)
            if slabs := self._unshelved.pop(log_key, None):
                shelf = self._shelves[log_key] = shelf.plus(slabs)
        return shelf

    def _sweep(self) -> None:
        """Remove batches of evicted slabs from the shelves."""
        for log_key in {*self._shelves, *self._unshelved}:
            self._shelf(log_key)
            with self._lock:
                shelf = self._shelves.pop(log_key, _EMPTY)
                shelf = shelf.take(shelf.slabs >= self._oldest)
                if len(shelf.positions):
                    self._shelves[log_key] = shelf
