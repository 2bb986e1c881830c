"""Read a log from another program's object, which is the log or its chunks as zstd frames.

Aiven's plugin for Kafka's tiered storage writes both forms (`SegmentManifestV1`, `ChunkIndex`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import zstandard

from seglake.errors import CorruptData
from seglake.store import Reader

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAX_CHUNK_BYTES = 64 * 2**20  # a chunk is decompressed as a whole
_KEPT_CHUNKS = 8  # decompressed chunks per process: a reader continues in the last chunk


class Chunks(NamedTuple):
    """The layout of an object with a log of `log_bytes` bytes. Without `sizes`, it is the log.

    With `sizes`, the object is zstd frames. Frame i takes sizes[i] bytes of the object and contains
    `chunk_bytes` bytes of the log. The last frame contains the rest.
    """

    log_bytes: int
    chunk_bytes: int = 0
    sizes: tuple[int, ...] = ()

    @property
    def object_bytes(self) -> int:
        """Return the size of the object in bytes."""
        return sum(self.sizes) if self.sizes else self.log_bytes

    def check(self) -> Chunks:
        """Return these chunks. Raises ValueError if they cannot contain the log."""
        count = -(-self.log_bytes // self.chunk_bytes) if self.chunk_bytes > 0 else 0
        whole = len(self.sizes) == count and min(self.sizes, default=1) > 0
        if self.log_bytes < 0 or (self.sizes and not whole):
            raise ValueError(f"{len(self.sizes)} chunks cannot hold {self.log_bytes} bytes")
        return self


class ChunkedLog:
    """The log in one object of a store, for reading only."""

    def __init__(self, store: Reader, key: str, chunks: Chunks) -> None:
        self._store, self._key, self._chunks = store, key, chunks
        self._starts = [0, *accumulate(chunks.sizes)]

    @property
    def uri(self) -> str:
        """Return the URI of the object."""
        return f"{self._store.uri}/{self._key}"

    def size(self) -> int:
        """Return the size of the log. Raises CorruptData if the object has another size."""
        size, expected = self._store.size(self._key), self._chunks.object_bytes
        if size != expected:
            what = f"the object has {size} bytes, not {expected}"
            raise CorruptData(what, file=self.uri, position=min(size, expected))
        return self._chunks.log_bytes

    def read_ranges(self, starts: Sequence[int], ends: Sequence[int]) -> list[Buffer]:
        """Return bytes [starts[i], ends[i]) of the log.

        Raises CorruptData, StoreError and MissingObject.
        """
        if not self._chunks.sizes:
            if len(starts) == 1:
                return [self._store.read(self._key, starts[0], ends[0])]
            return self._store.read_ranges(self._key, starts, ends)
        return [self._read(start, end) for start, end in zip(starts, ends, strict=True)]

    def _read(self, start: int, end: int) -> Buffer:
        if start >= end:
            return b""
        size = self._chunks.chunk_bytes
        first, last = start // size, (end - 1) // size
        parts = [memoryview(_chunk(self, number)) for number in range(first, last + 1)]
        parts[-1] = parts[-1][: end - last * size]
        parts[0] = parts[0][start - first * size :]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def decompressed(self, number: int) -> bytes:
        """Return the bytes of the log in chunk `number`. Raises what `read_ranges` raises."""
        begin, end = self._starts[number : number + 2]
        data, size = bytes(self._store.read(self._key, begin, end)), self._bytes_of(number)
        try:
            declared = zstandard.frame_content_size(data)
            if declared != size:  # prevent a frame from decompressing to more than a chunk
                raise self._damage(number, f"its header has a size of {declared} bytes, not {size}")
            return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise self._damage(number, str(error)) from error

    def _bytes_of(self, number: int) -> int:
        chunks = self._chunks
        return min(chunks.chunk_bytes, chunks.log_bytes - number * chunks.chunk_bytes)

    def _damage(self, number: int, why: str) -> CorruptData:
        what = f"chunk {number} is not a zstd frame of the log: {why}"
        return CorruptData(what, file=self.uri, position=self._starts[number])


@lru_cache(_KEPT_CHUNKS)
def _chunk(log: ChunkedLog, number: int) -> bytes:
    return log.decompressed(number)


def forget() -> None:
    """Drop all decompressed chunks of this process, and their logs."""
    _chunk.cache_clear()


class ChunkedLogs:
    """Logs in objects of a store, by object key, for reading only."""

    def __init__(self, store: Reader, chunks: Mapping[str, Chunks]) -> None:
        self.uri, self.remote, self.storage_options = store.uri, store.remote, store.storage_options
        self.chunks = chunks
        self._store = store
        self._logs = {key: ChunkedLog(store, key, layout) for key, layout in chunks.items()}

    def __reduce__(self) -> tuple[object, ...]:
        return ChunkedLogs, (self._store, self.chunks)

    def size(self, key: str) -> int:
        """Return the size of a log. Every method raises what the method of `ChunkedLog` raises."""
        return self._logs[key].size()

    def read(self, key: str, start: int, end: int) -> Buffer:
        """Return bytes [start, end) of a log."""
        return self._logs[key].read_ranges([start], [end])[0]

    def read_ranges(self, key: str, starts: Sequence[int], ends: Sequence[int]) -> list[Buffer]:
        """Return bytes [starts[i], ends[i]) of a log, for each i."""
        return self._logs[key].read_ranges(starts, ends)

    def read_all(self, key: str) -> Buffer:
        """Return a whole log."""
        return self.read(key, 0, self.chunks[key].log_bytes)
