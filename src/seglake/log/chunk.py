"""Define a chunk, which is fetched and checked record batches, and `Fetch`, which returns chunks.

Reads use only the interface `Fetch`. `fetch` implements it over a store. `record_cache` wraps
another fetch and caches the batches that its chunks decompress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from seglake.errors import CorruptData
from seglake.format.batch import CONTROL, BatchTable
from seglake.format.codecs.payload import Payload, StoredRecords, payload_of
from seglake.format.decode import Decoded, decode
from seglake.format.records import Bytes, Int32s, Int64s, read_only
from seglake.log.piece import Piece

FETCH_BYTES = 4 * 2**20
ABSENT = -1  # the cache entry of a batch whose records are not cached

T = TypeVar("T")


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


@dataclass(frozen=True)
class Chunk:
    """Complete record batches of one or more pieces. Their checksums and offsets were checked.

    The positions in `table` are positions in `data`. Batch i belongs to pieces[owner_of[i]], and
    begins at byte log_positions[i] of its log. `cached` has the decompressed records of some
    batches of `table`. `data` may omit the cached batches. `requests` counts the requests to
    storage that no earlier chunk has counted, and `fetched_bytes` the bytes that they transferred.
    A repeated request counts once.
    """

    data: Any
    table: BatchTable
    owner_of: Int32s
    log_positions: Int64s
    pieces: Sequence[Piece]
    cached: CachedRecords | None
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
        """Yield the records of the batches `rows`, including control batches, in parts.

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

        They may end earlier: where cached and uncached batches, or two entries of the cache, meet.
        """
        if self.cached is None:
            return self.fresh(rows, limit_bytes)
        cached = self.cached.take(self.table["position"].searchsorted(rows["position"]))
        if cached.entries[0] != ABSENT:
            return cached.payload(limit_bytes)
        return self.fresh(rows[: cached.alike()], limit_bytes)

    def stored(self, rows: BatchTable, limit_bytes: int) -> StoredRecords:
        """Return the records of the first batches of `rows` for a kernel, at least of one batch.

        If the chunk uses a cache, they are decompressed and end as in `decompress`. Otherwise they
        are the stored records of all `rows`.
        """
        if self.cached is None:
            return StoredRecords.of(read_only(self.data), rows)
        return self.decompress(rows, limit_bytes).stored()

    def fresh(self, rows: BatchTable, limit_bytes: int) -> Payload:
        """Decompress batches that are not cached, up to the batch that reaches `limit_bytes`."""
        return payload_of(read_only(self.data), rows, enough_bytes=limit_bytes)

    def in_file(self, damage: CorruptData) -> CorruptData:
        """Convert damage at a position of the data to damage with the file and its position."""
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
