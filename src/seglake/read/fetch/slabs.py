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

from seglake.format.batch import TABLE, BatchTable
from seglake.format.codecs.payload import Payload
from seglake.format.records import Bytes, Int32s, Int64s, fixed, join_tables, take_rows
from seglake.read.fetch.byte_cache import ByteCache
from seglake.read.fetch.kernels import SEEN_SLOTS, count_seen, covering, mark_seen
from seglake.read.fetch.log_segment import LogRanges
from seglake.store.forks import Lock

ABSENT = -1  # the slab of a batch whose records are not here
_SLAB_BYTES = 1024  # beside its arrays
_BATCH_BYTES = 2 * TABLE.itemsize + 9 * 8  # on the shelf, also as kernels take it
_SWEEP_EVERY = 512  # slabs
_NOTHING: Bytes = np.empty(0, np.uint8)


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

    def places(self) -> tuple[Int64s, Int64s]:
        """Where the records of each batch are in memory, and their bytes; 0 where they are not."""
        slabs = [0, *(slab.ctypes.data for slab in self.data)]
        here = self.slabs != ABSENT
        return np.where(
            here, np.array(slabs)[self.slabs + 1] + self.starts, 0
        ), self.ends - self.starts

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


class _Shelf(NamedTuple):
    """Cached batches of a log, by position, each with its slab and its place there.

    Batch i lies between positions[i] and stops[i] of the log. Its records are at starts[i] to
    ends[i] of slab slabs[i]; starts[i] is `ABSENT` if only its header was wanted.
    """

    positions: Int64s
    stops: Int64s
    table: BatchTable
    slabs: Int64s
    starts: Int64s
    ends: Int64s

    @staticmethod
    def of(number: int, table: BatchTable, payload: Payload | None) -> _Shelf:
        """A slab alone."""
        positions, slabs = table["position"].astype(np.int64), np.full(len(table), number)
        absent = np.full(len(table), ABSENT)
        places = (absent, absent) if payload is None else (payload.starts, payload.ends)
        return _Shelf(positions, positions + table["size"], table, slabs, *places)

    def plus(self, slabs: Sequence[_Shelf]) -> _Shelf:
        """The shelf with other slabs, whose batches take the places of those that are here."""
        joined = _Shelf(*(join_tables(each) for each in zip(self, *slabs, strict=True)))
        order = joined.positions.argsort(kind="stable")
        positions = joined.positions[order]
        return joined.take(order[np.append(positions[1:] != positions[:-1], True)])

    def take(self, numbers: Any) -> _Shelf:
        columns: Any = self
        return _Shelf(*(take_rows(column, numbers) for column in columns))

    def covering(self, ranges: LogRanges) -> Any:
        """The numbers of the batches that fill the ranges; None if one is not on the shelf."""
        numbers = np.empty(len(self.positions), np.int64)
        positions, stops, starts, ends = map(fixed, (*self[:2], *ranges[:2]))
        count = covering(positions, stops, starts, ends, numbers)
        if count < 0:
            return None
        first = int(numbers[0]) if count else 0
        whole = count and numbers[count - 1] - first == count - 1
        return slice(first, first + count) if whole else numbers[:count]


class Shelved(NamedTuple):
    """The cached batches of a log as kernels take them: `rows` see there, `table` with positions.

    `place` has the addresses of both, and how many batches there are. `data` keeps the slabs in
    memory, though they may have left the cache.
    """

    place: tuple[int, int, int]
    rows: Int64s
    table: BatchTable
    data: Sequence[Bytes]
    shelf: _Shelf
    dropped: int

    @staticmethod
    def of(shelf: _Shelf, held: Held, here: npt.NDArray[np.bool_], dropped: int) -> Shelved:
        """Those that are here; the cache had dropped so many values before."""
        columns = (shelf.positions, shelf.stops, *held.places())
        rows = np.array([column[here] for column in columns])
        table = take_rows(shelf.table, here)
        places = [each.__array_interface__["data"][0] for each in (rows, table)]
        return Shelved((places[0], places[1], len(table)), rows, table, held.data, shelf, dropped)


_INT64S: Int64s = np.empty(0, np.int64)
_EMPTY = _Shelf(_INT64S, _INT64S, np.empty(0, TABLE), _INT64S, _INT64S, _INT64S)


class SlabCache:
    """Slabs, at most `limit_bytes` of them together."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._slabs = ByteCache(limit_bytes)
        self._shelves: dict[str, _Shelf] = {}
        self._unshelved: dict[str, list[_Shelf]] = {}
        self._shelved: dict[str, Shelved] = {}
        self._numbers, self._lock = count(), Lock()
        self.seen = np.zeros(SEEN_SLOTS, np.uint64)  # as the kernels mark it

    @property
    def size_bytes(self) -> int:
        """What the slabs and their batches on the shelves take."""
        return self._slabs.size_bytes

    def mostly_seen(self, log_keys: Sequence[str], owner_of: Int32s, positions: Int64s) -> bool:
        """Whether this was asked before of most of the batches at these positions of their logs.

        Batch b is of log_keys[owner_of[b]]. The cache remembers some 65,000 batches, and may
        confuse two in a great while.
        """
        logs = np.array([hash(key) for key in log_keys])
        found = count_seen(self.seen, logs, owner_of, positions)
        mark_seen(self.seen, logs, owner_of, positions)
        return 2 * int(found) > len(positions)

    def shelved(self, log_key: str) -> Shelved | None:
        """What is here of a log, for kernels; None if there is nothing."""
        shelf = self._shelf(log_key)
        if not len(shelf.table):
            return None
        found, dropped = self._shelved.get(log_key), self._slabs.dropped
        if found is None or found.shelf is not shelf or found.dropped != dropped:
            found = Shelved.of(shelf, *self._held(shelf), dropped)
            self._shelved = {log_key: found, **self._with(dropped)}
        return found

    def _with(self, dropped: int) -> dict[str, Shelved]:
        """What was made for kernels since a value left; all else would keep slabs in memory."""
        shelved = self._shelved.items()
        return {log_key: found for log_key, found in shelved if found.dropped == dropped}

    def put(self, log_key: str, table: BatchTable, payload: Payload | None) -> None:
        """Keep batches of a log; their positions in `table` are those there.

        The array of the payload is kept, and never written to again. Without one, only the headers
        are kept.
        """
        number, data = next(self._numbers), _NOTHING if payload is None else payload.data
        memory: Any = data if data.base is None else data.base
        size = int(memory.nbytes) + _SLAB_BYTES + _BATCH_BYTES * len(table)
        self._slabs.put(number, data, size)
        with self._lock:
            slabs = self._unshelved.setdefault(log_key, [])
            slabs.append(_Shelf.of(number, table, payload))
        if number % _SWEEP_EVERY == _SWEEP_EVERY - 1:
            self._sweep()

    def all_in(self, log_key: str, ranges: LogRanges) -> tuple[BatchTable, Held] | None:
        """All batches in some ranges of a log, or None if one is not here."""
        shelf = self._shelf(log_key)
        numbers = shelf.covering(ranges) if len(shelf.table) else None
        if numbers is None:
            return None
        found = shelf.take(numbers)
        held, here = self._held(found)
        return (found.table, held) if here.all() else None

    def at(self, log_key: str, positions: Int64s) -> tuple[Held, npt.NDArray[np.bool_]]:
        """Where the records of the batches at some positions of a log are, and which are here.

        Of some that are here, only the headers may be.
        """
        shelf = self._shelf(log_key)
        numbers = shelf.positions.searchsorted(positions)
        known = np.append(shelf.positions, ABSENT)[numbers] == positions
        places, starts, ends = (np.full(len(known), ABSENT) for _ in range(3))
        if not known.any():
            return Held(places, starts, ends, []), known
        found, here = self._held(shelf.take(numbers[known]))
        places[known], starts[known], ends[known] = found[:3]
        known[known] = here
        return Held(places, starts, ends, found.data), known

    def _held(self, shelf: _Shelf) -> tuple[Held, npt.NDArray[np.bool_]]:
        """Where the records of a shelf's batches are, and which batches are here still."""
        numbers, slab_of = np.unique(shelf.slabs, return_inverse=True)
        slabs: list[Bytes | None] = [self._slabs.get(number) for number in numbers.tolist()]
        kept = np.array([slab is not None for slab in slabs], bool)
        here: npt.NDArray[np.bool_] = kept[slab_of]
        places = (kept.cumsum() - 1)[slab_of]
        places[~here | (shelf.starts == ABSENT)] = ABSENT
        data = [slab for slab in slabs if slab is not None]
        return Held(places, shelf.starts, shelf.ends, data), here

    def _shelf(self, log_key: str) -> _Shelf:
        """The shelf of a log, with all slabs of it."""
        if log_key not in self._unshelved:
            return self._shelves.get(log_key, _EMPTY)
        with self._lock:
            shelf = self._shelves.get(log_key, _EMPTY)
            if slabs := self._unshelved.pop(log_key, None):
                shelf = self._shelves[log_key] = shelf.plus(slabs)
        return shelf

    def _sweep(self) -> None:
        """Take from the shelves what has left the cache."""
        for log_key in {*self._shelves, *self._unshelved}:
            self._shelf(log_key)
            with self._lock:
                shelf = self._shelves.pop(log_key, _EMPTY)
                shelf = shelf.take([number in self._slabs for number in shelf.slabs.tolist()])
                if len(shelf.positions):
                    self._shelves[log_key] = shelf
