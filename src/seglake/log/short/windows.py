"""Short windows of a local lake: kernels go from zone maps to Arrow columns in one call.

A window of some ten KiB is read in less time than Python takes to plan, fetch and decode it piece
by piece. So one call does all of it in the usual case, and other threads help. In any other case
the call has no effect, and the window is read piece by piece, as a long window is. Only that way of
reading raises errors.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seglake.errors import SeglakeError
from seglake.format.codecs import native
from seglake.format.codecs.codec_kernels import CRC32C
from seglake.format.records import Int64s
from seglake.limits import INT64_MAX
from seglake.log.decode.column_kernels import DONE, FULL, UNKNOWN
from seglake.log.execute import ReadStats, bytes_of_columns
from seglake.log.piece import Window
from seglake.log.reads import SharedReads
from seglake.log.segment import LogSegment
from seglake.log.segment_lookup import PartitionReader
from seglake.log.short import slots
from seglake.log.short.room import (
    LOG_ROOM_BYTES,
    MOST_BATCHES,
    Done,
    ShareContext,
    ShareRoom,
    places,
)
from seglake.log.short.share_kernels import WORDS
from seglake.log.short.window_kernels import (
    CHOSEN,
    LIMITS,
    RANGES,
    SEGMENT_FIELDS,
    SHELF,
    START,
    STOP,
    STRETCHES,
    choose,
    plan_stretches,
)
from seglake.log.slabs import Shelved, SlabCache
from seglake.log.threads import READERS
from seglake.log.zones.search import ZoneSearch
from seglake.meanwhile import load
from seglake.store import OpenFile, Store, is_local, local_file

# Bytes of a log in a share, by codec: the least that are worth a thread, and the most that fit an
# Arrow batch.
_LEAST_BYTES = {0: 2**18, 3: 64 * 1024, 4: 24 * 1024}
_MOST_BYTES = {0: LOG_ROOM_BYTES, 3: 3 * 2**18, 4: 3 * 2**17}
_LEAST_CACHED, _MOST_CACHED = 512 * 1024, 3 * 2**19  # the same, of decompressed bytes in the cache
_MOST_SEGMENTS, _MOST_RANGES, _MOST_SHARES = 64, 8192, 4
_MOST_ROWS = 2**16  # segments in the catalog that are searched for one window
_CHOICES = 8  # sets of partitions that are remembered


class ShortWindows:
    """The short windows of one log. Safe for threads."""

    def __init__(self, reads: SharedReads) -> None:
        self._reads, self._halved = reads, 0  # how often a share was too large for an Arrow batch
        self._seen = places(reads.cached_fetch.slabs.seen)
        self._codec = 0  # of the batches that were read last
        self._unusual = set[bool]()  # True: windows with headers are unusual; False: without, too
        self._choice = lru_cache(_CHOICES)(_SegmentChoice)
        if is_local(reads.store) and _is_possible():
            _load_kernels(reads.cached_fetch.slabs.seen)

    def read(
        self,
        readers: tuple[PartitionReader, ...],
        window: Window,
        schema: pa.Schema,
        memory_bytes: int,
        stats: ReadStats,
    ) -> list[pa.RecordBatch] | None:
        """The records of a window in a few Arrow batches, or None.

        Returns None for a window of many bytes and in an unusual case. Then the caller reads the
        window with `execute`. `memory_bytes` and `stats` are those of `execute`.
        """
        with_headers = "headers" in schema.names
        if not _is_possible() or with_headers in self._unusual:
            return None
        parts = self._parts(readers, window)
        if not parts:
            return None if parts is None else []
        with READERS as threads:
            context, cuts = self._shares(parts, schema, memory_bytes, threads)
            slabs = self._reads.cached_fetch.slabs
            done, batches = _OWN.read(context, cuts, slabs) if cuts else ([], [])
        if not batches:
            self._learn(done, with_headers)
            return None
        self._codec = done[0].codec
        stats.requests += sum(share.requests for share in done)
        stats.bytes_fetched += sum(share.size_bytes for share in done)
        stats.bytes_matching += sum(share.matching_bytes for share in done)
        stats.records += sum(map(len, batches))
        return [batch for batch in batches if len(batch)]

    def _parts(
        self, readers: tuple[PartitionReader, ...], window: Window
    ) -> list[_WindowPart] | None:
        """The segments with a part of the window.

        None if there are too many, or if a file or a zone map is not at hand.
        """
        segments = self._choice(readers).meeting(window)
        if segments is None:
            return None
        parts = list[_WindowPart]()
        for reader, index, whole in segments:
            part = self._part(reader, index, window, whole)
            if part is None:
                return None
            parts.append(part)
        return parts

    def _part(
        self, reader: PartitionReader, index: int, window: Window, whole: bool
    ) -> _WindowPart | None:
        segment, start = reader.segment(index), reader.view.log_start_offset
        whole = whole and segment.base_offset >= start
        zones = None if whole else self._reads.zone_maps.cached(segment)
        file = None if segment.is_external else _opened(self._reads.store, segment.log_key)
        if file is None or not (whole or zones):
            return None
        return _WindowPart(segment, file, zones, window.above(start).limits())

    def _shares(
        self, parts: list[_WindowPart], schema: pa.Schema, memory_bytes: int, threads: int
    ) -> tuple[ShareContext, list[int]]:
        """The common part of the shares, and where to cut the stretches into shares.

        There are no cuts if the window has too many bytes or stretches.
        """
        segments, shelves = _OWN.segments[: len(parts)], list[Shelved | None]()
        segments[:] = [part.row() for part in parts]
        count, fresh, cached, again = self._planned(segments)
        if again:  # nothing of a new window is cached, so only a repeated one needs the shelves
            shelves = self._shelve(parts, segments)
            count, fresh, cached, _ = self._planned(segments)
        shares = self._share_count(fresh, cached, threads)
        if 0 < count < shares:  # a window of one log partition may be one stretch: cut it
            count, *_ = self._planned(segments, _ends(count)[-1] // shares)
            shares = max(self._share_count(fresh, cached, 1), min(shares, count))
        ends = _ends(count)
        caches = ends[-1] <= self._reads.cached_fetch.largest_bytes
        too_much = shares > min(_MOST_SHARES, count) or fresh > memory_bytes // 8
        context = ShareContext(
            [part.segment for part in parts], _OWN.words(segments, self._seen), schema,
            bytes_of_columns(memory_bytes), caches, (parts, shelves),
        )  # fmt: skip
        return context, [] if count < 1 or too_much else _cuts(ends, shares)

    def _shelve(self, parts: list[_WindowPart], segments: Int64s) -> list[Shelved | None]:
        """Tell the kernels which batches are cached. Returns the shelves, which must stay alive."""
        slabs = self._reads.cached_fetch.slabs
        shelves = [slabs.shelved(part.segment.log_key) for part in parts]
        segments[:, SHELF:LIMITS] = [shelf.place if shelf else (0, 0, 0) for shelf in shelves]
        return shelves

    def _share_count(self, fresh: int, cached: int, threads: int) -> int:
        """How many shares `fresh` bytes of logs and `cached` decompressed bytes make."""
        work = fresh // _LEAST_BYTES.get(self._codec, LOG_ROOM_BYTES) + cached // _LEAST_CACHED
        most = max(1, _MOST_BYTES.get(self._codec, LOG_ROOM_BYTES) >> self._halved)
        least = max(-(-fresh // most), -(-cached // _MOST_CACHED))
        return max(1, least, min(threads, work))

    def _planned(self, segments: Int64s, most_bytes: int = INT64_MAX) -> tuple[int, int, int, bool]:
        """The result of `plan_stretches` for these segments."""
        own, seen = _OWN, self._reads.cached_fetch.slabs.seen
        plan: tuple[int, int, int, bool]
        plan = plan_stretches(segments, own.ranges, own.stretches, seen, most_bytes)
        return plan

    def _learn(self, done: list[Done], with_headers: bool) -> None:
        """Remember what makes windows of this log unusual."""
        codec, reasons = done[0].codec if done else self._codec, {share.reason for share in done}
        if FULL in reasons and codec == self._codec:
            self._halved += 1  # the log compresses well, so a share must have fewer of its bytes
        if UNKNOWN in reasons:  # the log has headers, or a codec that the kernels do not know
            self._unusual |= {True, with_headers}
        self._codec = codec


class _WindowPart(NamedTuple):
    """A segment with a part of a window. Without `zones`, all its records are wanted."""

    segment: LogSegment
    file: OpenFile
    zones: ZoneSearch | None
    limits: tuple[int, int, int, int]

    def row(self) -> tuple[int, ...]:
        """The segment as the kernels take it, without its shelf."""
        segment, zones = self.segment, self.zones
        return (
            self.file.fd, hash(segment.log_key), segment.base_offset, segment.end_offset,
            0 if zones else segment.log_bytes, *(zones.place if zones else (0, 0)),
            0, 0, 0, *self.limits,
        )  # fmt: skip


class _SegmentChoice:
    """The segments of some log partitions, one partition after another."""

    def __init__(self, readers: tuple[PartitionReader, ...]) -> None:
        self._readers = readers
        counts = [len(reader.view.segments.base_offsets) for reader in readers]
        self._firsts, self._extents = np.cumsum([0, *counts]), np.empty((4, 0), np.int64)
        if sum(counts) <= _MOST_ROWS:
            columns = [np.array(reader.view.extents) for reader in readers]
            self._extents = np.concatenate([self._extents, *columns], axis=1)

    def meeting(self, window: Window) -> list[tuple[PartitionReader, int, bool]] | None:
        """The segments that can hold a record of the window; None if there are too many.

        Returns for each segment the reader of its partition, its index there, and whether the
        window holds all its records.
        """
        limits, chosen = np.array(window.limits()), _OWN.chosen
        count = choose(self._extents, self._firsts, limits, chosen)
        if count < 0 or not self._extents.size:
            return None
        rows = zip(*chosen[:, :count].tolist(), strict=True)
        return [(self._readers[owner], index, bool(whole)) for owner, index, whole in rows]


class _Own(threading.local):
    """The arrays of a thread, which the kernels fill."""

    def __init__(self) -> None:
        self.chosen = np.empty((CHOSEN, _MOST_SEGMENTS), np.int64)
        self.ranges = np.empty((RANGES, _MOST_RANGES), np.int64)
        self.stretches = np.empty((STRETCHES, MOST_BATCHES), np.int64)
        self.segments = np.empty((_MOST_SEGMENTS, SEGMENT_FIELDS), np.int64)
        self._places = places(self.segments, self.stretches)
        self._shares, self._rooms = np.zeros((_MOST_SHARES, WORDS), np.int64), list[ShareRoom]()

    def words(self, segments: Int64s, seen: list[int]) -> list[int]:
        """The places of the first arrays of a share: `segments`, `seen`, and the stretches."""
        return [self._places[0], segments.size, *seen, *self._places[2:]]

    def read(
        self, context: ShareContext, cuts: list[int], slabs: SlabCache
    ) -> tuple[list[Done], list[pa.RecordBatch]]:
        """The results of the shares, and the records of each share if all shares are done.

        Batches that were read twice before are cached in `slabs`.
        """
        count = len(cuts) - 1
        while len(self._rooms) < count:
            self._rooms.append(ShareRoom(self._shares[len(self._rooms)]))
        rooms = self._rooms[:count]
        for room, (first, last) in zip(rooms, pairwise(cuts), strict=True):
            room.begin(context, first, last)
        slots.read(self._shares[:count])
        done = [room.done() for room in rooms]
        if any(share.reason != DONE for share in done):
            return done, []
        for room in rooms:
            room.keep(context, slabs)
        return done, [room.columns(context).take() for room in rooms]


_OWN = _Own()


def _load_kernels(seen: npt.NDArray[np.uint64]) -> None:
    """Load what is compiled: else the first window of a process waits for that, some 70 ms."""
    extents, limits = np.empty((4, 0), np.int64), np.array(Window().limits())
    load(choose, extents, np.zeros(1, np.int64), limits, _OWN.chosen)
    load(plan_stretches, _OWN.segments, _OWN.ranges, _OWN.stretches, seen, INT64_MAX)
    slots.load_kernels()


def _ends(count: int) -> list[int]:
    """Where the planned stretches end if they are put one after another; the first item is 0."""
    starts, stops = _OWN.stretches[START, : max(count, 0)], _OWN.stretches[STOP, : max(count, 0)]
    return [0, *accumulate((stops - starts).tolist())]


def _cuts(starts: list[int], shares: int) -> list[int]:
    """Where to cut items that begin at `starts`, so that the shares are as equal as possible."""
    inner = [
        min(range(len(starts)), key=lambda i: abs(starts[i] * shares - starts[-1] * number))
        for number in range(1, shares)
    ]
    return sorted({0, *inner, len(starts) - 1})


def _opened(store: Store, key: str) -> OpenFile | None:
    try:
        return local_file(store, key)
    except SeglakeError:
        return None


def _is_possible() -> bool:
    """Whether the functions of C to read with, and one to compute checksums with, are there."""
    return bool(len(slots.functions()) and native.addresses()[CRC32C])
