"""Decompressed record batches in memory, in slabs: those of a log that were decompressed at once.

A slab leaves the cache as a whole. A shelf says which slabs have which batches of a log. Both are
arrays, and no objects for each batch: those would keep Python's garbage collector busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seglake.forks import Lock
from seglake.format.batch import TABLE, BatchTable
from seglake.format.codecs.payload import Payload
from seglake.format.records import Bytes, Int64s
from seglake.read.fetch.byte_cache import ByteCache
from seglake.read.fetch.log_segment import LogRanges

ABSENT = -1  # the slab of a batch whose records are not here
_SLAB_BYTES, _SHELF_BYTES = 1024, 32  # of a slab beside its arrays, and of a batch on its shelf
_SWEEP_EVERY = 512  # slabs


class Held(NamedTuple):
    """Where the records of some batches are: in data[slabs[i]][starts[i] : ends[i]] those of i."""

    slabs: Int64s
    starts: Int64s
    ends: Int64s
    data: Sequence[Bytes]

    @staticmethod
    def joined(parts: Sequence[Held]) -> Held:
        """Some batches, one after another."""
        slabs, data = list[Int64s](), list[Bytes]()
        for part in parts:
            slabs.append(np.where(part.slabs == ABSENT, ABSENT, part.slabs + len(data)))
            data += part.data
        starts, ends = (np.concatenate([part[column] for part in parts]) for column in (1, 2))
        return Held(np.concatenate(slabs), starts, ends, data)

    def take(self, rows: Any) -> Held:
        """The batches at `rows`."""
        return Held(self.slabs[rows], self.starts[rows], self.ends[rows], self.data)

    def alike(self) -> int:
        """How many batches from the first on are in one slab, or in none."""
        others = np.flatnonzero(self.slabs != self.slabs[0])
        return int(others[0]) if len(others) else len(self.slabs)

    def payload(self, limit_bytes: int) -> Payload:
        """The records of the first batches, as many as one slab has, up to `limit_bytes`.

        The batch that reaches the limit is the last one. The first one's records are here.
        """
        stop = self.alike()
        sizes = np.cumsum(self.ends[:stop] - self.starts[:stop])
        stop = min(stop, 1 + int(sizes.searchsorted(limit_bytes)))
        return Payload(self.data[self.slabs[0]], self.starts[:stop], self.ends[:stop])


class _Slab(NamedTuple):
    """Batches, by position in their log; `payload` is None if only their headers were wanted."""

    table: BatchTable
    payload: Payload | None

    @property
    def size_bytes(self) -> int:
        own = len(self.table) * (TABLE.itemsize + 16 + _SHELF_BYTES) + _SLAB_BYTES
        if self.payload is None:
            return own
        data: Any = self.payload.data
        return own + int((data if data.base is None else data.base).nbytes)


class _Shelf(NamedTuple):
    """Cached batches of a log, by position: row rows[i] of slab slabs[i] is one of them."""

    positions: Int64s
    ends: Int64s
    slabs: Int64s
    rows: Int64s

    def take(self, numbers: Any) -> _Shelf:
        return _Shelf(*(column[numbers] for column in self))

    def plus(self, slabs: Sequence[tuple[int, BatchTable]]) -> _Shelf:
        """The shelf with other slabs, whose batches take the places of those that are here."""
        parts = [self, *(_Shelf.of(number, table) for number, table in slabs)]
        joined = _Shelf(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        order = joined.positions.argsort(kind="stable")
        positions = joined.positions[order]
        return joined.take(order[np.append(positions[1:] != positions[:-1], True)])

    @staticmethod
    def of(number: int, table: BatchTable) -> _Shelf:
        positions, rows = table["position"].astype(np.int64), np.arange(len(table))
        return _Shelf(positions, positions + table["size"], np.full(len(table), number), rows)

    def covering(self, ranges: LogRanges) -> Int64s | None:
        """The numbers of the batches that fill the ranges; None if one is not on the shelf."""
        firsts, stops = self.positions.searchsorted(ranges[:2])
        counts = stops - firsts
        if not counts.all():
            return None
        begins = np.cumsum(counts) - counts
        numbers = np.arange(counts.sum()) + np.repeat(firsts - begins, counts)
        expected = np.append(np.zeros(1, np.int64), self.ends[numbers[:-1]])
        expected[begins] = ranges.starts
        whole = np.array_equal(self.positions[numbers], expected)
        return numbers if whole and np.array_equal(self.ends[stops - 1], ranges.ends) else None


_EMPTY = _Shelf(*np.empty((4, 0), np.int64))


class SlabCache:
    """Slabs, at most `limit_bytes` of them together."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._slabs = ByteCache(limit_bytes)
        self._shelves: dict[str, _Shelf] = {}
        self._unshelved: dict[str, list[tuple[int, BatchTable]]] = {}
        self._numbers, self._lock = count(1), Lock()

    @property
    def size_bytes(self) -> int:
        """What the slabs and their rows on the shelves take."""
        return self._slabs.size_bytes

    def put(self, log_key: str, table: BatchTable, payload: Payload | None) -> None:
        """Keep batches of a log; their positions in `table` are those there.

        The array of the payload is kept, and never written to again.
        """
        slab, number = _Slab(table, payload), next(self._numbers)
        self._slabs.put(number, slab, slab.size_bytes)
        with self._lock:
            self._unshelved.setdefault(log_key, []).append((number, table))
        if number % _SWEEP_EVERY == 0:
            self._sweep()

    def all_in(self, log_key: str, ranges: LogRanges) -> tuple[BatchTable, Held] | None:
        """All batches in some ranges of a log, or None if one is not here."""
        shelf = self._shelf(log_key)
        numbers = shelf.covering(ranges)
        if numbers is None:
            return None
        table, held, here = self._found(shelf.take(numbers))
        return (table, held) if here.all() else None

    def at(self, log_key: str, positions: Int64s) -> tuple[Held, npt.NDArray[np.bool_]]:
        """Where the records of the batches at some positions of a log are, and which are here.

        Of some that are here, only the headers may be.
        """
        shelf = self._shelf(log_key)
        numbers = shelf.positions.searchsorted(positions)
        known = np.append(shelf.positions, -1)[numbers] == positions
        places, (starts, ends) = np.full(len(known), ABSENT), np.zeros((2, len(known)), np.int64)
        if not known.any():
            return Held(places, starts, ends, []), known
        _, found, here = self._found(shelf.take(numbers[known]))
        places[known], starts[known], ends[known] = found[:3]
        known[known] = here
        return Held(places, starts, ends, found.data), known

    def _shelf(self, log_key: str) -> _Shelf:
        """The shelf of a log, with all slabs of it."""
        shelf = self._shelves.get(log_key, _EMPTY)
        if log_key not in self._unshelved:
            return shelf
        with self._lock:
            if slabs := self._unshelved.pop(log_key, None):
                shelf = self._shelves[log_key] = self._shelves.get(log_key, _EMPTY).plus(slabs)
        return shelf

    def _found(self, shelf: _Shelf) -> tuple[BatchTable, Held, npt.NDArray[np.bool_]]:
        """Batches of a shelf: their headers, their records, and which of them are here still."""
        size, data = len(shelf.rows), list[Bytes]()
        table, here, places = np.empty(size, TABLE), np.zeros(size, bool), np.full(size, ABSENT)
        starts, ends = np.zeros((2, size), np.int64)
        for number in sorted(set(shelf.slabs.tolist())):
            slab: _Slab | None = self._slabs.get(number)
            if slab is None:
                continue
            own = np.flatnonzero(shelf.slabs == number)
            rows = shelf.rows[own]
            table[own], here[own] = slab.table[rows], True
            if slab.payload is not None:
                places[own] = len(data)
                starts[own], ends[own] = slab.payload.starts[rows], slab.payload.ends[rows]
                data.append(slab.payload.data)
        return table, Held(places, starts, ends, data), here

    def _sweep(self) -> None:
        """Take from the shelves what has left the cache."""
        for log_key in {*self._shelves, *self._unshelved}:
            self._shelf(log_key)
            with self._lock:
                shelf = self._shelves.pop(log_key, _EMPTY)
                shelf = shelf.take([number in self._slabs for number in shelf.slabs.tolist()])
                if len(shelf.rows):
                    self._shelves[log_key] = shelf
