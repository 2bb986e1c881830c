"""Short windows of a local lake: one kernel goes from zone maps to Arrow columns.

A window of some ten KiB is read in less time than Python takes to plan, fetch and decode it piece
by piece. So what is usual is done in one call. Where anything is not usual, nothing has happened,
and the window is read as any other is; so errors, too, come from there alone.
"""

from __future__ import annotations

import ctypes
import os
import threading
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seglake.errors import SeglakeError
from seglake.format.batch import MAX_BATCH_BYTES, TABLE
from seglake.format.codecs import native
from seglake.format.records import Int64s, read_only
from seglake.read.decode.columns import Columns
from seglake.read.decode.direct import arena_of_thread
from seglake.read.decode.kernels import DONE, HEADERS, LOG_BYTES, STATES, UNKNOWN
from seglake.read.decode.shares import SHARE_BYTES, borrowed, give_back, taken
from seglake.read.fetch.log_segment import LogSegment
from seglake.read.fetch.piece import Window
from seglake.read.lookup.partition import PartitionReader
from seglake.read.lookup.shared_reads import SharedReads
from seglake.read.window.execute import ReadStats, bytes_fetched, bytes_of_columns
from seglake.read.window.kernels import COSTS, RANGES, REQUESTS, SIZE, STRETCHES, read_window
from seglake.read.zones.bounds import Bounds
from seglake.read.zones.search import ZoneSearch
from seglake.store import OpenFile, Store, local_file

_MOST_BYTES = 2 * SHARE_BYTES  # of a log; more is decoded by several threads
_MOST_SEGMENTS, _MOST_RANGES, _MOST_BATCHES = 64, 8192, 2048
_MOST_ROWS = 2**16  # of the catalog, which are looked through
_CHOICES = 8  # of partitions, remembered


class ShortWindows:
    """The short windows of one log. Safe for threads."""

    def __init__(self, reads: SharedReads) -> None:
        self._reads, self._has_headers = reads, False
        self._choice = lru_cache(_CHOICES)(_Choice)

    def read(
        self,
        readers: tuple[PartitionReader, ...],
        window: Window,
        schema: pa.Schema,
        memory_bytes: int,
        stats: ReadStats,
    ) -> list[pa.RecordBatch] | None:
        """The records of a window as at most one Arrow batch; None if it is to be read otherwise.

        That is so for a window of many bytes, one that was read before (others cache it), and one
        with anything that is not usual. `memory_bytes` and `stats` are those of `execute`.
        """
        parts = self._parts(readers, window)
        if not parts:
            return None if parts is None else []
        segments = [part.segment for part in parts]
        columns = borrowed(schema, segments, _ROOM.window_of, bytes_of_columns(memory_bytes))
        if not self._fill(columns, parts, memory_bytes):
            give_back(columns)
            return None
        stats.requests += int(_ROOM.costs[REQUESTS])
        stats.bytes_fetched += int(_ROOM.costs[SIZE])
        stats.bytes_matching += int(_ROOM.place[LOG_BYTES])
        stats.records += len(columns)
        return [taken(columns)] if len(columns) else []

    def _parts(self, readers: tuple[PartitionReader, ...], window: Window) -> list[_Part] | None:
        """What has a part of the window; None if that is too much, or not all at hand."""
        found = self._choice(readers).meeting(window) if _is_possible() else None
        if found is None:
            return None
        parts = list[_Part]()
        for reader, index, whole in found:
            part = self._part(reader, index, window, whole)
            if part is None:
                return None
            parts.append(part)
        return parts

    def _part(
        self, reader: PartitionReader, index: int, window: Window, whole: bool
    ) -> _Part | None:
        segment, start = reader.segment(index), reader.view.log_start_offset
        whole = whole and segment.base_offset >= start
        zones = None if whole else self._reads.zone_maps.known(segment)
        file = None if segment.is_external else _opened(self._reads.store, segment.log_key)
        if file is None or not (whole or zones):
            return None
        return _Part(segment, window.above(start), file, zones)

    def _fill(self, columns: Columns, parts: list[_Part], memory_bytes: int) -> bool:
        """Append the records to the columns, if that can be done."""
        with_headers = bool(columns.wanted & HEADERS)
        if with_headers and self._has_headers:
            return False
        segments = np.array([part.row() for part in parts], np.int64)
        slabs = self._reads.cached_fetch.slabs
        reason = read_window(
            segments, _pread(), slabs.seen, self._reads.cached_fetch.largest_bytes,
            native.addresses(), MAX_BATCH_BYTES, *_ROOM.arguments(bytes_fetched(memory_bytes)),
            *columns.for_kernel(bytes_of_columns(memory_bytes)),
        )  # fmt: skip
        self._has_headers |= with_headers and reason == UNKNOWN
        return bool(reason == DONE)


class _Part(NamedTuple):
    """A segment with a part of a window; all of it without `zones`."""

    segment: LogSegment
    window: Window
    file: OpenFile
    zones: ZoneSearch | None

    def row(self) -> tuple[int, ...]:
        """What the kernel knows of it."""
        segment, zones = self.segment, self.zones
        return (
            self.file.fd, hash(segment.log_key), segment.base_offset, segment.end_offset,
            0 if zones else segment.log_bytes, *(zones.place if zones else (0, 0)),
            *self.window.limits(),
        )  # fmt: skip


class _Choice:
    """The segments of some log partitions, one behind another."""

    def __init__(self, readers: tuple[PartitionReader, ...]) -> None:
        self._readers = readers
        counts = [len(reader.view.segments.base_offsets) for reader in readers]
        self._firsts, self._count = np.cumsum([0, *counts]), sum(counts)
        self._columns = list[Int64s]()
        if 0 < self._count <= _MOST_ROWS:
            extents = [reader.view.extents for reader in readers]
            self._columns = [np.concatenate(column) for column in zip(*extents, strict=True)]

    def meeting(self, window: Window) -> list[tuple[PartitionReader, int, bool]] | None:
        """The segments that can hold a record of the window; None if there are too many.

        Each comes with its partition's reader, its index there, and whether it lies in the window.
        """
        if not self._columns:
            return None
        bases, ends, lows, highs = self._columns
        numbers, whole = Bounds.of(window).meet(lows, highs, bases, ends)
        if len(numbers) > _MOST_SEGMENTS:
            return None
        owners = self._firsts.searchsorted(numbers, "right") - 1
        indexes = (numbers - self._firsts[owners]).tolist()
        rows = zip(owners.tolist(), indexes, whole.tolist(), strict=True)
        return [(self._readers[owner], index, bool(all_of_it)) for owner, index, all_of_it in rows]


class _Room(threading.local):
    """The arrays of a thread for what the kernel finds on its way."""

    def __init__(self) -> None:
        count = _MOST_BATCHES
        self._log = read_only(np.empty(_MOST_BYTES, np.uint8))
        self.window_of, self.costs = np.empty(count, np.int32), np.zeros(COSTS, np.int64)
        self.place = np.zeros(STATES, np.int64)
        self._arrays = (
            np.empty((RANGES, _MOST_RANGES), np.int64), np.empty((STRETCHES, count), np.int64),
            np.empty(count, TABLE), np.empty(count, np.int32), *np.empty((2, count), np.int64),
            self.window_of, *np.zeros((2, count), np.int64), arena_of_thread(),
            np.empty(0, np.int64), np.empty(2, np.int64), self.place, self.costs,
        )  # fmt: skip

    def arguments(self, size_bytes: int) -> tuple[Any, ...]:
        """The arrays as the kernel takes them, with room for so many bytes of a log."""
        return self._log[:size_bytes], *self._arrays


_ROOM = _Room()


def _opened(store: Store, key: str) -> OpenFile | None:
    try:
        return local_file(store, key)
    except SeglakeError:
        return None


def _is_possible() -> bool:
    """Whether there is a C library to read with, and others to check and decompress with."""
    return bool(_pread() and native.addresses().any())


@cache
def _pread() -> int:
    """The address of the C function `pread`; 0 where there is none."""
    found = getattr(ctypes.CDLL(None), "pread", None) if os.name == "posix" else None
    return ctypes.cast(found, ctypes.c_void_p).value or 0 if found else 0
