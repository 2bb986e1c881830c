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
from itertools import count, starmap
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
from seglake.log.fetch_kernels import BAD_OFFSETS, STRETCH, Stretches, place_batches
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


ExplainMissing = Callable[[LogSegment], SeglakeError | None]
"""Why the log of a segment does not exist: the error to raise, or None if the file was lost."""


class LogFetch:
    """Fetches from the logs of a store, and follows links. Raises CorruptData and StoreError.

    If a log does not exist, `missing` is called, unless it is None. If it returns an error, that
    error is raised; otherwise the store's MissingObject is raised.
    """

    def __init__(self, store: Reader, missing: ExplainMissing | None = None) -> None:
        self._store, self._links, self._missing = store, LakeLogs(store), missing
        self.gap_bytes = GAP_BYTES if store.remote else 0  # see `Fetch.gap_bytes`

    def chunks(
        self, pieces: Iterable[Piece], *, fetch_bytes: int = FETCH_BYTES, ahead_bytes: int = 0
    ) -> Iterator[Chunk]:
        """Yield chunks, see `Fetch.chunks`. Small ranges share a chunk; large ranges are cut."""
        fetched, size, least, requested, transferred = list[_Fetched](), 0, fetch_bytes, 0, 0
        piece, last_offset, begun = None, -1, list[int]()
        parts, store = _cut(pieces, fetch_bytes, self.gap_bytes), self._store
        results: Iterator[_Fetched] = starmap(partial(self._fetch, begun=begun), parts)
        if store.remote and ahead_bytes:
            calls = ((self._cost(part[1])[1], partial(self._fetch, *part)) for part in parts)
            results = run_ahead(calls, ahead_bytes)
        for result in results:
            fetched.append(result)
            owner, ranges, data = result
            size += len(data)
            requests, transferred_bytes = self._cost(ranges)
            requested, transferred = requested + requests, transferred + transferred_bytes
            if size < least:
                continue
            last = last_offset if fetched[0][0] is piece else -1
            chunk, rest = self._chunk_of(fetched, last, requested, transferred)
            if len(chunk.table):
                piece = chunk.pieces[chunk.owner_of[-1]]
                last_offset, requested, transferred = int(chunk.table[-1]["last_offset"]), 0, 0
                yield chunk
            fetched, size, least = [], 0, fetch_bytes
            if rest is not None:
                least = max(least, rest.size)
                if store.remote:
                    fetched, size = [(owner, [rest.begun], rest.data)], len(rest.data)
                else:
                    # The next request reads the beginning of the batch again. This reads a few KiB
                    # twice, while joining the parts would copy all fetched bytes.
                    begun.append(rest.begun[1])
        if fetched:
            last = last_offset if fetched[0][0] is piece else -1
            yield self._chunk_of(fetched, last, requested, transferred)[0]

    def chunk_of(self, piece: Piece) -> Chunk:
        """Return the batches of a piece as one chunk."""
        fetched = self._fetch(piece, [*zip(count(), piece.starts.tolist(), piece.ends.tolist())])
        return self._chunk_of([fetched], -1, *self._cost(fetched[1]))[0]

    def _cost(self, ranges: Sequence[_Range]) -> tuple[int, int]:
        """Return how many requests fetch the ranges of a part, and how many bytes they transfer."""
        requests, transferred_bytes, at = 0, 0, ranges[0][1]
        for _, start, end in ranges:
            joined = requests > 0 and start - at <= self.gap_bytes
            requests += not joined
            transferred_bytes += end - (at if joined else start)
            at = end
        return requests, transferred_bytes

    def _chunk_of(
        self, fetched: Sequence[_Fetched], last_offset: int, requests: int, transferred_bytes: int
    ) -> tuple[Chunk, _Rest | None]:
        """Check the data. Return a chunk of its whole batches, and the beginning of a cut batch.

        `last_offset` is the last offset of the preceding batch in the same piece, or -1. For damage
        in a linked log, the error also names the outside object.
        """
        data = fetched[0][2] if len(fetched) == 1 else b"".join(map(itemgetter(2), fetched))
        table, damage = scan(data)
        pieces, stretches = _stretches_of(fetched)
        try:
            # CRCs first, because a wrong length is only noticed at the end of the batch.
            check_crcs(data, table)
            owner_of, log_positions = _placed(table, stretches, last_offset)
            rest = damage and _rest(data, stretches, *fetched[-1][:2], damage)
        except CorruptData as error:
            owner, _, shift, *_ = _stretch_at(stretches, error.position).item()
            log_key = pieces[owner].segment.log_key
            raise self._links.located(error.within(log_key, shift)) from error
        chunk = Chunk(data, table, owner_of, log_positions, pieces, requests, transferred_bytes)
        return chunk, rest

    def _fetch(
        self, piece: Piece, ranges: Sequence[_Range], begun: list[int] | None = None
    ) -> _Fetched:
        """Fetch a part. It begins at the position in `begun`, if there is one."""
        segment = piece.segment
        if begun:
            ranges = [(ranges[0][0], begun.pop(), ranges[0][2]), *ranges[1:]]
        store = self._links if segment.log_key.endswith(LINKED) else self._store
        _, starts, ends = zip(*ranges, strict=True)
        try:
            if len(starts) == 1:
                return piece, ranges, store.read(segment.log_key, starts[0], ends[0])
            return piece, ranges, b"".join(store.read_ranges(segment.log_key, starts, ends))
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


_Range = tuple[int, int, int]
"""Bytes to fetch of one range of a piece: the number of the range, and the first and end byte."""

_Fetched = tuple[Piece, Sequence[_Range], Any]
"""A part of a piece that is fetched at once: ranges or parts of ranges, and their bytes."""


class _Rest(NamedTuple):
    """The beginning of a batch of `size` bytes. The next part has the end of the batch."""

    begun: _Range
    data: memoryview
    size: int


def _cut(
    pieces: Iterable[Piece], limit: int, gap_bytes: int
) -> Iterator[tuple[Piece, Sequence[_Range]]]:
    """Cut pieces into parts of at most `limit` bytes.

    Ranges that are at most `gap_bytes` apart are requested together, with the bytes between them.
    """
    for piece in pieces:
        part, size = list[_Range](), 0
        for number, start, end in zip(count(), piece.starts.tolist(), piece.ends.tolist()):
            if part and (gap := start - part[-1][2]) <= gap_bytes:
                size += gap
                if size >= limit:
                    yield piece, part
                    part, size = [], 0
            at = start
            while at < end:
                stop = min(end, at + limit - size)
                part.append((number, at, stop))
                at, size = stop, size + stop - at
                if size == limit:
                    yield piece, part
                    part, size = [], 0
        if part:
            yield piece, part


def _stretches_of(fetched: Iterable[_Fetched]) -> tuple[list[Piece], Stretches]:
    """Return the pieces of fetched data, and the stretches of the data, see `STRETCH`."""
    pieces, at, last = list[Piece](), 0, -1
    rows = list[tuple[int, int, int, int, int]]()
    for piece, ranges, _ in fetched:
        if not pieces or pieces[-1] is not piece:
            pieces.append(piece)
            last = -1
        owner = len(pieces) - 1
        for number, start, end in ranges:
            if start != last:
                low, high = piece.first_offsets[number], piece.end_offsets[number]
                rows.append((owner, at, start - at, int(low), int(high)))
            at, last = at + end - start, end
    return pieces, np.array(rows, STRETCH)


def _stretch_at(stretches: Stretches, position: int) -> Any:
    """Return the stretch that contains the byte at `position` of the data."""
    return stretches[stretches["start"].searchsorted(position, "right") - 1]


def _placed(table: BatchTable, stretches: Stretches, last_offset: int) -> tuple[Int32s, Int64s]:
    """Return, for each batch, the number of its piece and its position in the log.

    Raises CorruptData if a batch has wrong offsets, which the CRC does not cover.
    """
    owner_of, log_positions = np.empty(len(table), np.int32), np.empty(len(table), np.int64)
    row, problem = place_batches(table, stretches, last_offset, owner_of, log_positions)
    if not problem:
        return owner_of, log_positions
    batch = table[row]
    what = "the record batch is longer than its part of the log"
    if problem == BAD_OFFSETS:
        stretch = _stretch_at(stretches, batch["position"])
        what = (
            f"the record batch has offsets {batch['base_offset']} to {batch['last_offset']}, but "
            f"the index allows {max(stretch['first_offset'], last_offset + 1)} to "
            f"{stretch['end_offset'] - 1} here"
        )
    raise CorruptData(what, position=int(batch["position"]))


def _rest(
    data: Any, stretches: Stretches, piece: Piece, ranges: Sequence[_Range], damage: Damage
) -> _Rest:
    """Return the bytes after the last whole batch, if the next part has the end of the batch.

    Otherwise raise `damage`. `piece` and `ranges` are of the last part in the data.
    """
    position = damage.error.position
    start = position + int(_stretch_at(stretches, position)["shift"])
    tail = memoryview(data)[position:]
    length = int.from_bytes(tail[LENGTH_AT:LOG_OVERHEAD], "big")
    size = length + LOG_OVERHEAD if len(tail) >= LOG_OVERHEAD else 0
    number, _, end = ranges[-1]
    until = int(piece.ends[number])
    goes_on = until > end and position >= stretches[-1]["start"]
    if not damage.cut_short or not goes_on or start + size > until:
        raise damage.error
    if size > MAX_BATCH_BYTES + OVERHEAD:
        raise CorruptData(
            f"the record batch has {size} bytes, more than a reader accepts", position=position
        )
    return _Rest((number, start, end), tail, size)


_pools: dict[str, ThreadPoolExecutor] = {}


def run_ahead(calls: Iterable[tuple[int, Callable[[], T]]], limit: int) -> Iterator[T]:
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


def run_after(first: Callable[[], object], then: Callable[..., T]) -> Callable[..., T]:
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
