"""Batch ranges of logs: consecutive record batches that were checked, so that they may be sent.

A batch range has about 1 MiB. A thread reads and checks it when one of its bytes is first
requested. After that, the positions of its batches are kept in memory. From a local disk its bytes
are sent by sendfile. From an object store its bytes are cached, and later fetched and checked
again. Objects never change, so batch ranges are valid in newer versions too.

A damaged batch is a separate batch range. Each request for it raises the damage, but all batches
before and after it can be read.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from seglake.errors import CorruptData, MissingObject, SeglakeError
from seglake.format.decode import check_crcs, scan
from seglake.format.records import Int64s
from seglake.log.caches import ByteCache
from seglake.log.fetch import Chunk, LogFetch
from seglake.log.reads import SharedReads
from seglake.log.segment import LogSegment, Piece
from seglake.serve.api import ServerCounts
from seglake.store import OpenFile, close_unused_files, local_file

# ---------------- files
# Bytes of an open log file on a local disk. The kernel sends them without a copy.


class FileSpan(NamedTuple):
    """Bytes [start, start + size) of an open file, and the key of its object."""

    key: str
    file: OpenFile
    start: int
    size: int


_log = logging.getLogger(__name__)

BATCH_RANGE_BYTES = 2**20
_THREADS = 8
_AHEAD_BYTES = 4 * 2**20  # bytes that a reader of an object store requests ahead
_STREAMS = 16  # limit of the readers that request ahead
_CACHE_BYTES = 64 * 2**20  # cached bytes of logs on an object store
_FILTERED_BYTES = 32 * 2**20  # cached bytes of batches that were encoded again
_MOST_RANGES = 32_768  # known ranges, without their bytes: 32 GiB of logs

Bytes = memoryview | FileSpan
_Result = TypeVar("_Result")


class BatchRange(NamedTuple):
    """Whole batches of a log, in order: batch i has bytes positions[i] to positions[i + 1].

    Its offsets are base_offsets[i] to last_offsets[i], inclusive. It has a record if filled[i]. A
    batch range with `damage` is never sent. Such a range is one damaged batch, or an index block in
    which the batches cannot be told apart.
    """

    positions: Int64s
    base_offsets: Int64s
    last_offsets: Int64s
    filled: npt.NDArray[np.bool_]
    damage: CorruptData | None = None

    @property
    def start(self) -> int:
        """Return the position of its first byte."""
        return int(self.positions[0])

    @property
    def end(self) -> int:
        """Return the position after its last byte."""
        return int(self.positions[-1])

    @property
    def last_offset(self) -> int:
        """Return the last offset of its last batch."""
        return int(self.last_offsets[-1])

    def key(self, segment: LogSegment) -> tuple[str, int, int]:
        """Return the key of its bytes in the cache.

        It contains the end, because a later batch range may begin at the same byte and end
        elsewhere.
        """
        return segment.log_key, self.start, self.end


class _LogBatchRanges:
    """The known batch ranges of one log, in order, and the base offset of each."""

    def __init__(self) -> None:
        self.firsts = list[int]()  # base offsets
        self.batch_ranges = list[BatchRange]()

    def before(self, offset: int) -> BatchRange | None:
        """Return the last batch range that begins at or below the offset."""
        at = bisect_right(self.firsts, offset)
        return self.batch_ranges[at - 1] if at else None

    def after(self, position: int) -> BatchRange | None:
        """Return the first batch range at or after this byte."""
        at = bisect_right(self.batch_ranges, position - 1, key=lambda each: each.start)
        return self.batch_ranges[at] if at < len(self.batch_ranges) else None

    def add(self, batch_range: BatchRange) -> bool:
        """Add a batch range, unless it overlaps a known one. Return whether it was added."""
        at = bisect_right(self.batch_ranges, batch_range.start, key=lambda each: each.start)
        after = self.batch_ranges[at] if at < len(self.batch_ranges) else None
        overlaps = (at and self.batch_ranges[at - 1].end > batch_range.start) or (
            after is not None and batch_range.end > after.start
        )
        if not overlaps:
            self.batch_ranges.insert(at, batch_range)
            self.firsts.insert(at, int(batch_range.base_offsets[0]))
        return not overlaps


class BatchRanges:
    """The batch ranges of a lake's logs. Its methods are for the event loop."""

    def __init__(self, reads: SharedReads, counts: ServerCounts) -> None:
        self._fetch, self._zones, self._counts = reads.fetch, reads.zone_maps.open, counts
        self._store = reads.store
        self._data = ByteCache(_CACHE_BYTES)
        self.filtered = ByteCache(_FILTERED_BYTES)  # see `BatchReader`
        self._logs = OrderedDict[str, _LogBatchRanges]()
        self._count = 0
        self._loading = dict[tuple[str, int], asyncio.Future[BatchRange]]()
        self._streams = _StoreReaders(reads.fetch) if reads.store.remote else None
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="seglake-serve")
        self._waiting = ThreadPoolExecutor(_THREADS, thread_name_prefix="seglake-waiting")

    def close(self) -> None:
        """End the threads that read logs."""
        for pool in (self._threads, self._waiting):
            pool.shutdown(wait=False, cancel_futures=True)

    def forget(self) -> None:
        """Close all files and drop all bytes, because logs may have been deleted."""
        self._data.clear()
        self.filtered.clear()
        close_unused_files(self._store)
        if self._streams is not None:
            self._streams.forget()

    async def run(self, work: Callable[[], _Result], *, waits: bool = False) -> _Result:
        """Run blocking work on a thread, and return its result.

        Work with `waits` runs on a second pool of threads, so that a slow bucket outside the lake
        does not block reads of the lake.
        """
        pool = self._waiting if waits else self._threads
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    async def find(self, segment: LogSegment, offset: int) -> BatchRange | None:
        """Return the batch range of the first batch that ends at or after `offset`, or None.

        Raises CorruptData if that batch is damaged, StoreError, and VersionExpired.
        """
        log, start = self._log(segment), -1
        while True:
            batch_range = self._lookup(log, offset, start)
            if batch_range is None:
                if start < 0:
                    start, low = await self._beginning(log, segment, offset)
                if start >= segment.log_bytes:
                    return None
                batch_range = await self._load(segment, start, low)
            if batch_range.last_offset >= offset:
                break
            start, low = batch_range.end, batch_range.last_offset + 1
        if batch_range.damage is not None:
            raise batch_range.damage
        self._read_ahead(log, segment, batch_range)
        return batch_range

    def _log(self, segment: LogSegment) -> _LogBatchRanges:
        log = self._logs.get(segment.log_key)
        if log is None:
            log = self._logs[segment.log_key] = _LogBatchRanges()
        else:
            self._logs.move_to_end(segment.log_key)
        while self._count > _MOST_RANGES and len(self._logs) > 1:
            _, oldest = self._logs.popitem(last=False)
            self._count -= len(oldest.batch_ranges)
        return log

    def _lookup(self, log: _LogBatchRanges, offset: int, start: int) -> BatchRange | None:
        """Return a known batch range that has the offset, or that begins at byte `start`."""
        batch_range = log.before(offset)
        if batch_range is not None and batch_range.last_offset >= offset:
            return batch_range
        batch_range = log.after(start) if start >= 0 else None
        return batch_range if batch_range is not None and batch_range.start == start else None

    async def _beginning(
        self, log: _LogBatchRanges, segment: LogSegment, offset: int
    ) -> tuple[int, int]:
        """Return the byte where the search for an offset begins, and the smallest offset there."""
        before = log.before(offset)
        if before is not None and before.last_offset + 1 == offset:
            return before.end, offset
        if before is None and offset <= segment.base_offset:
            return 0, segment.base_offset
        block = await self.run(
            lambda: self._zones(segment).block_at(offset), waits=segment.is_external
        )
        if block is None:
            return segment.log_bytes, segment.end_offset
        if before is not None and before.end > block.position:
            return before.end, before.last_offset + 1
        return block.position, block.first_offset

    # loading

    async def _load(self, segment: LogSegment, start: int, low: int) -> BatchRange:
        """Read and check the batch range that begins at byte `start` with an offset >= `low`.

        Requests for the same batch range share one read of it.
        """
        key = (segment.log_key, start)
        waiting = self._loading.get(key)
        if waiting is None:
            waiting = asyncio.ensure_future(self._loaded(segment, start, low))
            self._loading[key] = waiting
            waiting.add_done_callback(lambda _: self._loading.pop(key, None))
        return await asyncio.shield(waiting)

    async def _loaded(self, segment: LogSegment, start: int, low: int) -> BatchRange:
        log = self._log(segment)
        following = log.after(start + 1)
        end = segment.log_bytes if following is None else following.start
        high = segment.end_offset if following is None else int(following.base_offsets[0])
        piece = segment.part(start, end, low, high)
        before = log.before(low)
        sequential = before is not None and before.end == start
        read = partial(self._read, piece, ahead=sequential)
        batch_range, data = await self.run(read, waits=segment.is_external)
        if batch_range.damage is not None:
            self._counts.damaged_batches += 1
            _log.error("damaged: %s", batch_range.damage)
        if self._streams is not None and batch_range.damage is None:
            self._data.put(batch_range.key(segment), data, memoryview(data).nbytes)
        # The log may have been forgotten during the read.
        if log.add(batch_range) and self._logs.get(segment.log_key) is log:
            self._count += 1
        return batch_range

    def _read(self, piece: Piece, *, ahead: bool) -> tuple[BatchRange, Any]:
        """Return the first batch range of a piece, and its bytes. Runs on a thread."""
        try:
            if self._streams is not None:
                chunk = self._streams.next(piece, ahead=ahead)
            else:
                chunk = next(self._fetch.chunks([piece], fetch_bytes=BATCH_RANGE_BYTES))
            self._check_end(piece.segment, batch_range := _range_from_chunk(chunk))
        except CorruptData as damage:
            if damage.file != piece.segment.log_key:
                raise
            return self._in_block(piece)
        return batch_range, chunk.data

    def _check_end(self, segment: LogSegment, batch_range: BatchRange) -> None:
        """Raise CorruptData if the zone map has the last batch at another position.

        No checksum covers that batch's base offset, and no later batch bounds its offsets.
        """
        block = self._zones(segment).block_at(batch_range.last_offset)
        last = int(batch_range.positions[-2])
        if block is None or not block.position <= last < block.end:
            end = batch_range.last_offset
            what = f"the record batch ends at offset {end}, which is impossible here"
            raise CorruptData(what, file=segment.log_key, position=last)

    def _in_block(self, piece: Piece) -> tuple[BatchRange, Any]:
        """Return the first batch range of a damaged index block: intact batches, or a damaged one.

        A batch with a wrong checksum is a separate batch range. Any other damage cannot be assigned
        to batches, so the index block is one batch range.
        """
        segment, _, *ranges, _ = piece
        start, stop, low, high = (int(column[0]) for column in ranges)
        block = self._zones(segment).block_at(low)
        if block is not None and block.position <= start < block.end:
            stop, high = min(stop, block.end), min(high, block.end_offset)
        data = self._fetch.read(segment, start, stop)
        table, _ = scan(data)
        try:
            check_crcs(data, table)
        except CorruptData as damage:
            row = int(table["position"].searchsorted(damage.position))
            if row:
                stop, high = start + damage.position, int(table[row - 1]["last_offset"]) + 1
            elif low <= table[0]["base_offset"] <= table[0]["last_offset"] < high:
                named, end = damage.within(segment.log_key, start), start + int(table[0]["size"])
                return _damaged(named, start, end, low, int(table[0]["last_offset"]))
        try:
            chunk = self._fetch.chunk_of(segment.part(start, stop, low, high))
        except CorruptData as damage:
            return _damaged(damage, start, stop, low, high - 1)
        return _range_from_chunk(chunk), chunk.data

    def _read_ahead(
        self, log: _LogBatchRanges, segment: LogSegment, batch_range: BatchRange
    ) -> None:
        """Load the next batch range if the log is read in order."""
        before = log.before(int(batch_range.base_offsets[0]) - 1)
        following = log.after(batch_range.end)
        sequential = batch_range.start == (0 if before is None else before.end)
        has_next = following is not None and following.start == batch_range.end
        if sequential and not has_next and batch_range.end < segment.log_bytes:
            load = self._load(segment, batch_range.end, batch_range.last_offset + 1)
            asyncio.ensure_future(load).add_done_callback(_drop_exception)

    # bytes

    async def read(self, segment: LogSegment, batch_range: BatchRange) -> memoryview:
        """Return all bytes of a batch range, in memory."""
        data = self._data.get(batch_range.key(segment))
        if data is None:
            first, end = int(batch_range.base_offsets[0]), batch_range.last_offset + 1
            piece = segment.part(batch_range.start, batch_range.end, first, end)
            read = partial(self._fetch.chunk_of, piece)
            data = (await self.run(read, waits=segment.is_external)).data
            self._data.put(batch_range.key(segment), data, memoryview(data).nbytes)
        return memoryview(data)

    async def bytes_of(
        self, segment: LogSegment, batch_range: BatchRange, first: int, stop: int
    ) -> Bytes:
        """Return the batches `first` to `stop` (exclusive) of a batch range, to be sent."""
        start, end = int(batch_range.positions[first]), int(batch_range.positions[stop])
        try:
            file = None if segment.is_external else local_file(self._store, segment.log_key)
        except MissingObject as error:
            await self.run(partial(self._fetch.explain, segment, error))
            raise
        if file is not None:
            return FileSpan(segment.log_key, file, start, end - start)
        data = await self.read(segment, batch_range)
        return data[start - batch_range.start : end - batch_range.start]


class _StoreReaders:
    """Readers of an object store that continue where they ended, with requests ahead."""

    def __init__(self, fetch: LogFetch) -> None:
        self._fetch = fetch
        self._open = OrderedDict[tuple[str, int], Iterator[Chunk]]()

    def forget(self) -> None:
        """Drop all readers. Later reads start new ones."""
        self._open.clear()

    def next(self, piece: Piece, *, ahead: bool) -> Chunk:
        """Return the first chunk of a piece. With `ahead`, the next one is requested already."""
        log_key, start = piece.segment.log_key, int(piece.starts[0])
        chunks = self._open.pop((log_key, start), None)
        if chunks is None:
            more = _AHEAD_BYTES if ahead else 0
            chunks = self._fetch.chunks([piece], fetch_bytes=BATCH_RANGE_BYTES, ahead_bytes=more)
        chunk = next(chunks)
        end = start + int(chunk.table["size"].sum(dtype=np.int64))
        if ahead and end < int(piece.ends[0]):
            self._open[log_key, end] = chunks
            while len(self._open) > _STREAMS:
                self._open.popitem(last=False)
        return chunk


def _range_from_chunk(chunk: Chunk) -> BatchRange:
    table = chunk.table
    start = int(chunk.log_positions[0])
    positions = np.append(0, np.cumsum(table["size"], dtype=np.int64)) + start
    firsts, lasts = table["base_offset"].astype(np.int64), table["last_offset"].astype(np.int64)
    return BatchRange(positions, firsts, lasts, table["count"] > 0)


def _damaged(
    damage: CorruptData, start: int, end: int, low: int, last_offset: int
) -> tuple[BatchRange, Any]:
    """Return a damaged batch range of bytes [start, end), with offsets `low` to `last_offset`."""
    places = np.array([start, end], np.int64)
    offsets = np.array([[low], [last_offset]], np.int64)
    return BatchRange(places, offsets[0], offsets[1], np.ones(1, np.bool_), damage), b""


def _drop_exception(task: asyncio.Future[BatchRange]) -> None:
    """Drop an error of reading ahead. A request that needs the bytes gets the error again."""
    if not task.cancelled():
        with suppress(SeglakeError):
            task.result()
