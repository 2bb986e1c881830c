"""Fetch byte ranges of logs as checked record batches, a few MiB at a time.

Reads use only the interface `Fetch`, which returns chunks. `LogFetch` implements it over a store.

Ranges are cut and grouped into calls of about the same size; the store joins near ranges. Several
calls run ahead on an object store, each on its own thread, as far as the reader has memory for the
bytes. On a local disk, calls run one after another. Results are returned in order. All reads of a
process share the threads, which start when they are first needed. A forked process starts its own.

The CRC of every fetched batch is checked, even if the header shows that no record of the batch is
wanted. Every `CorruptData` names the log and the byte.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numba.core.compiler_lock import global_compiler_lock

from seglake.errors import CorruptData, MissingObject, SeglakeError
from seglake.format.batch import (
    CONTROL,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAX_BATCH_BYTES,
    OVERHEAD,
    BatchTable,
)
from seglake.format.codecs.payload import Payload, payload_of
from seglake.format.decode import Damage, Decoded, check_crcs, decode, scan
from seglake.format.records import Int32s, Int64s, read_only
from seglake.limits import GAP_BYTES, REQUESTS
from seglake.log.fetch_kernels import BAD_OFFSETS, place_batches
from seglake.log.links import LINKED, LakeLogs
from seglake.log.segment import LogSegment, Piece
from seglake.store import Reader

FETCH_BYTES = 4 * 2**20

T = TypeVar("T")


@dataclass(frozen=True)
class Chunk:
    """Complete record batches of one or more pieces. Their checksums and offsets were checked.

    The positions in `table` are positions in `data`. Batch i belongs to pieces[owner_of[i]], and
    begins at byte log_positions[i] of its log. `requests` counts the requests to storage that no
    earlier chunk has counted, and `fetched_bytes` the bytes that they transferred. A repeated
    request counts once.
    """

    is_cached = False  # see `CachedChunk`

    data: Any
    table: BatchTable
    owner_of: Int32s
    log_positions: Int64s
    pieces: Sequence[Piece]
    requests: int = 0
    fetched_bytes: int = 0

    @property
    def record_batches(self) -> BatchTable:
        """Return the table without control batches, which are transaction markers."""
        batches: BatchTable = self.table[(self.table["attributes"] & CONTROL) == 0]
        return batches

    def decode_in_parts(
        self, rows: BatchTable, limit_bytes: int
    ) -> Iterator[tuple[BatchTable, Decoded]]:
        """Yield the records of the batches `rows` in parts. Control batches are decoded, too.

        A part ends with the batch that reaches `limit_bytes` of decompressed records. Raises
        CorruptData.
        """
        return self.in_parts(rows, limit_bytes, lambda part, payload: (part, decode(part, payload)))

    def in_parts(
        self, rows: BatchTable, limit_bytes: int, work: Callable[[BatchTable, Payload], T]
    ) -> Iterator[T]:
        """Yield `work(part, payload of the part)` for the batches `rows`, see `decode_in_parts`.

        `work` may raise CorruptData with the position of a batch of the part.
        """
        first = 0
        while first < len(rows):
            try:
                payload = self.decompress(rows[first:], limit_bytes)
                part = rows[first : first + len(payload.ends)]
                result = work(part, payload)
            except CorruptData as damage:
                raise self.in_file(damage) from damage
            yield result
            first += len(part)

    def decompress(self, rows: BatchTable, limit_bytes: int) -> Payload:
        """Return the records of `rows` from the first row up to the batch that reaches the limit.

        The result may end earlier, but has at least one batch.
        """
        return payload_of(read_only(self.data), rows, enough_bytes=limit_bytes)

    def payload(self, rows: BatchTable, _limit_bytes: int) -> Payload:
        """Return the records of the first batches of `rows`, as they are stored.

        A cached chunk decompresses them up to `_limit_bytes`, see `decompress`.
        """
        positions = rows["position"]
        return Payload(read_only(self.data), positions + OVERHEAD, positions + rows["size"])

    def in_file(self, damage: CorruptData) -> CorruptData:
        """Return the same error with the key of the log, and with the position in the log."""
        row = int(self.table["position"].searchsorted(damage.position))
        key = self.pieces[self.owner_of[row]].segment.log_key
        return CorruptData(damage.what, file=key, position=int(self.log_positions[row]))


class Fetch(Protocol):
    """An object that fetches the record batches of pieces."""

    gap_bytes: int
    """The largest gap, in bytes, between ranges that are fetched in one request.

    The bytes of such a gap cost less than another request.
    """

    def chunks(
        self, pieces: Iterable[Piece], *, fetch_bytes: int = FETCH_BYTES, ahead_bytes: int = 0
    ) -> Iterator[Chunk]:
        """Yield the batches of the pieces, in order, about `fetch_bytes` at a time.

        At most `ahead_bytes` are requested from an object store before they are needed. Raises
        CorruptData and StoreError.
        """


Meaning = Callable[[LogSegment], SeglakeError | None]
"""Why the log of a segment does not exist: the error to raise, or None if the file was lost."""


class LogFetch:
    """Fetches from the logs of a store, and follows links. Raises CorruptData and StoreError.

    If a log does not exist, `missing` is called, unless it is None. If it returns an error, that
    error is raised; otherwise the store's MissingObject is raised.
    """

    def __init__(self, store: Reader, missing: Meaning | None = None) -> None:
        self._store, self._links, self._missing = store, LakeLogs(store), missing
        self.gap_bytes = GAP_BYTES if store.remote else 0  # see `Fetch.gap_bytes`

    def chunks(
        self, pieces: Iterable[Piece], *, fetch_bytes: int = FETCH_BYTES, ahead_bytes: int = 0
    ) -> Iterator[Chunk]:
        """Yield chunks, see `Fetch.chunks`. Small ranges share a chunk; large ranges are cut."""
        fetched, size, least, requested, transferred = list[_Fetched](), 0, fetch_bytes, 0, 0
        piece, last_offset, begun = None, -1, list[_Request]()
        requests, store = _requests(pieces, fetch_bytes, self.gap_bytes), self._store
        results: Iterator[_Fetched] = map(self._fetch, requests, repeat(begun))
        if store.remote and ahead_bytes:
            calls = ((each.transferred_bytes, partial(self._fetch, each)) for each in requests)
            results = ahead(calls, ahead_bytes)
        for request, data in results:
            fetched.append((request, data))
            size += len(data)
            requested += request.requests
            transferred += request.transferred_bytes
            if size < least:
                continue
            last = last_offset if fetched[0][0].piece is piece else -1
            chunk, rest = self._chunk_of(fetched, last, requested, transferred)
            if len(chunk.table):
                piece = chunk.pieces[chunk.owner_of[-1]]
                last_offset, requested, transferred = int(chunk.table[-1]["last_offset"]), 0, 0
                yield chunk
            fetched, size, least = [], 0, fetch_bytes
            if rest is not None:
                least = max(least, rest.size)
                if store.remote:
                    fetched, size = [(rest.begun, rest.data)], len(rest.data)
                else:
                    # The next request reads the beginning of the batch again. This reads a few KiB
                    # twice, while joining the parts would copy all fetched bytes.
                    begun.append(rest.begun)
        if fetched:
            last = last_offset if fetched[0][0].piece is piece else -1
            yield self._chunk_of(fetched, last, requested, transferred)[0]

    def chunk_of(self, piece: Piece) -> Chunk:
        """Return the batches of a piece as one chunk."""
        starts, ends, size = piece.starts.tolist(), piece.ends.tolist(), piece.size_bytes
        request = _Request(piece, range(len(starts)), starts, ends, ends[-1], len(starts), size)
        return self._chunk_of([self._fetch(request)], -1, len(starts), size)[0]

    def _chunk_of(
        self, fetched: Sequence[_Fetched], last_offset: int, requests: int, transferred_bytes: int
    ) -> tuple[Chunk, _Rest | None]:
        """Check the data. Return a chunk of its whole batches, and the beginning of a cut batch.

        `last_offset` is the last offset of the preceding batch in the same piece, or -1. For damage
        in a linked log, the error also names the outside object.
        """
        data = fetched[0][1] if len(fetched) == 1 else b"".join(map(itemgetter(1), fetched))
        table, damage = scan(data)
        stretches = _DataStretches.from_fetched(fetched)
        try:
            # CRCs first, because a wrong length is only noticed at the end of the batch.
            check_crcs(data, table)
            owner_of, log_positions = _placed(table, stretches, last_offset)
            rest = damage and _rest(data, stretches, fetched[-1][0], damage)
        except CorruptData as error:
            raise self._links.located(stretches.in_file(error)) from error
        pieces = stretches.pieces
        chunk = Chunk(data, table, owner_of, log_positions, pieces, requests, transferred_bytes)
        return chunk, rest

    def _fetch(self, request: _Request, begun: list[_Request] | None = None) -> _Fetched:
        if begun:
            request = request.going_on(begun.pop())
        (segment, *_), starts, ends = request.piece, request.starts, request.ends
        store = self._links if segment.log_key.endswith(LINKED) else self._store
        try:
            if len(starts) == 1:
                return request, store.read(segment.log_key, starts[0], ends[0])
            return request, b"".join(store.read_ranges(segment.log_key, starts, ends))
        except MissingObject as error:
            self.explain(segment, error)
            raise

    def read(self, segment: LogSegment, start: int, end: int) -> Any:
        """Return the bytes [start, end) of a log, unchecked."""
        try:
            return self._links.read(segment.log_key, start, end)
        except MissingObject as error:
            self.explain(segment, error)
            raise

    def forget(self) -> None:
        """Drop the cached links, so that they are read again."""
        self._links.forget()

    def explain(self, segment: LogSegment, error: MissingObject) -> None:
        """Raise the error that `missing` returns for this missing log, unless it returns None."""
        if self._missing is not None and (meaning := self._missing(segment)):
            raise meaning from error


class _Request(NamedTuple):
    """Bytes of a piece that are fetched together: [starts[i], ends[i]) in its range ranges[i].

    The last range extends to byte `until`: the next request fetches the rest. The fetch makes
    `requests` requests to storage, which transfer `transferred_bytes`, gaps included.
    """

    piece: Piece
    ranges: Sequence[int]
    starts: Sequence[int]
    ends: Sequence[int]
    until: int
    requests: int
    transferred_bytes: int

    def going_on(self, begun: _Request) -> _Request:
        """Return this request, but from the beginning of the batch that `begun` has a part of."""
        again = self.transferred_bytes + begun.ends[0] - begun.starts[0]
        starts = [begun.starts[0], *self.starts[1:]]
        return self._replace(starts=starts, transferred_bytes=again)


_Fetched = tuple[_Request, Any]  # the bytes of a request


class _Rest(NamedTuple):
    """The beginning of a batch of `size` bytes. The next request fetches the end of the batch."""

    begun: _Request
    data: memoryview
    size: int


def _requests(pieces: Iterable[Piece], limit: int, gap_bytes: int) -> Iterator[_Request]:
    """Yield the ranges of the pieces, cut and grouped into requests of at most `limit` bytes.

    Ranges that are at most `gap_bytes` apart are joined, with the bytes between them.
    """
    for piece in pieces:
        numbers, starts, ends, asked, size = list[int](), list[int](), list[int](), 0, 0
        ranges = zip(piece.starts.tolist(), piece.ends.tolist(), strict=True)
        for number, (start, end) in enumerate(ranges):
            at = start
            if ends and at - ends[-1] <= gap_bytes and size + at - ends[-1] < limit:
                size += at - ends[-1]
            elif ends and at - ends[-1] <= gap_bytes:
                yield _Request(piece, numbers, starts, ends, ends[-1], asked, size)
                numbers, starts, ends, asked, size = [], [], [], 1, 0
            else:
                asked += 1
            while at < end:
                stop = min(end, at + limit - size)
                numbers.append(number)
                starts.append(at)
                ends.append(stop)
                at, size = stop, size + stop - at
                if size == limit:
                    yield _Request(piece, numbers, starts, ends, end, asked, size)
                    numbers, starts, ends, asked, size = [], [], [], int(at < end), 0
        if starts:
            yield _Request(piece, numbers, starts, ends, ends[-1], asked, size)


class _DataStretches(NamedTuple):
    """Maps fetched data to logs, by stretches. A stretch is data that is contiguous in one log.

    Stretch i begins at starts[i] of the data, and at starts[i] + shifts[i] of the log of
    pieces[owners[i]]. Its batches have offsets first_offsets[i] to end_offsets[i], exclusive.
    """

    pieces: Sequence[Piece]
    owners: Int64s
    starts: Int64s
    shifts: Int64s
    first_offsets: Int64s
    end_offsets: Int64s

    @staticmethod
    def from_fetched(fetched: Iterable[_Fetched]) -> _DataStretches:
        pieces, at, last = list[Piece](), 0, -1
        rows = list[tuple[int, int, int, int, int]]()
        for (piece, numbers, starts, ends, *_), _ in fetched:
            if not pieces or pieces[-1] is not piece:
                pieces.append(piece)
                last = -1
            owner = len(pieces) - 1
            for number, start, end in zip(numbers, starts, ends, strict=True):
                if start != last:
                    low, high = piece.first_offsets[number], piece.end_offsets[number]
                    rows.append((owner, at, start - at, int(low), int(high)))
                at, last = at + end - start, end
        return _DataStretches(pieces, *np.array(rows, np.int64).T.copy())

    def number_at(self, position: int) -> int:
        """Return the stretch that contains this byte of the data."""
        return int(self.starts.searchsorted(position, "right")) - 1

    def log_position(self, position: int) -> int:
        """Return the position in its log of the byte at `position` of the data."""
        return position + int(self.shifts[self.number_at(position)])

    def in_file(self, damage: CorruptData) -> CorruptData:
        """Return the error with the log file and the position in it, not in the fetched data."""
        segment = self.pieces[self.owners[self.number_at(damage.position)]].segment
        position = self.log_position(damage.position)
        return CorruptData(damage.what, file=segment.log_key, position=position)


def _placed(
    table: BatchTable, stretches: _DataStretches, last_offset: int
) -> tuple[Int32s, Int64s]:
    """Return, for each batch, the number of its piece and its position in the log.

    Raises CorruptData if a batch has wrong offsets, which the CRC does not cover.
    """
    owner_of, log_positions = np.empty(len(table), np.int32), np.empty(len(table), np.int64)
    _, owners, starts, shifts, lows, highs = stretches
    row, problem = place_batches(
        table, starts, shifts, owners, lows, highs, last_offset, owner_of, log_positions
    )
    if not problem:
        return owner_of, log_positions
    batch = table[row]
    what = "the record batch is longer than its part of the log"
    if problem == BAD_OFFSETS:
        number = stretches.number_at(batch["position"])
        what = (
            f"the record batch has offsets {batch['base_offset']} to {batch['last_offset']}, but "
            f"the index allows {max(lows[number], last_offset + 1)} to {highs[number] - 1} here"
        )
    raise CorruptData(what, position=int(batch["position"]))


def _rest(data: Any, stretches: _DataStretches, last: _Request, damage: Damage) -> _Rest:
    """Return the bytes after the last whole batch, if the next request fetches the batch's end.

    Otherwise raise `damage`.
    """
    position = damage.error.position
    start, tail = stretches.log_position(position), memoryview(data)[position:]
    length = int.from_bytes(tail[LENGTH_AT:LOG_OVERHEAD], "big")
    size = length + LOG_OVERHEAD if len(tail) >= LOG_OVERHEAD else 0
    goes_on = last.until > last.ends[-1] and position >= stretches.starts[-1]
    if not damage.cut_short or not goes_on or start + size > last.until:
        raise damage.error
    if size > MAX_BATCH_BYTES + OVERHEAD:
        raise CorruptData(
            f"the record batch has {size} bytes, more than a reader accepts", position=position
        )
    begun = _Request(last.piece, last.ranges[-1:], [start], last.ends[-1:], last.until, 0, 0)
    return _Rest(begun, tail, size)


_pools: dict[str, ThreadPoolExecutor] = {}


def ahead(calls: Iterable[tuple[int, Callable[[], T]]], limit: int) -> Iterator[T]:
    """Yield the results of the calls, in order. Each call has a weight.

    Calls run on the threads that wait for storage. A call starts early if its weight, plus the
    weights of all calls whose results were not taken yet, is at most `limit`.
    """
    pool, weight = thread_pool("seglake-request", REQUESTS), 0
    waiting: deque[tuple[int, Future[T]]] = deque()
    try:
        for own, call in calls:
            while waiting and weight + own > limit:
                yield waiting[0][1].result()
                weight -= waiting.popleft()[0]
            waiting.append((own, pool.submit(call)))
            weight += own
        while waiting:
            yield waiting.popleft()[1].result()
    finally:
        for _, future in waiting:
            future.cancel()


def after(first: Callable[[], object], then: Callable[..., T]) -> Callable[..., T]:
    """Start `first` now on another thread, and return `then`, which waits for it first.

    An error of `first` is raised when the returned function is called.
    """
    done = thread_pool("seglake-beside", REQUESTS).submit(first)

    def call(*args: object) -> T:
        done.result()
        return then(*args)

    return call


def thread_pool(name: str, workers: int) -> ThreadPoolExecutor:
    """Return the threads with this name. The first call starts at most `workers` of them."""
    pool = _pools.get(name)
    if pool is None:
        pool = _pools.setdefault(name, ThreadPoolExecutor(workers, thread_name_prefix=name))
    return pool


os.register_at_fork(after_in_child=_pools.clear)

# A fork waits until no thread compiles or loads a kernel. Otherwise the child would wait forever
# for a lock that a thread of its parent held.
os.register_at_fork(
    before=global_compiler_lock.acquire,
    after_in_parent=global_compiler_lock.release,
    after_in_child=global_compiler_lock.release,
)
