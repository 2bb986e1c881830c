"""Read logs that are outside the lake through links.

A link is a small object in the lake that stands for such a log. It is one JSON object. `format` is
1. `root` and `key` name the object outside. `start` is the byte of the log where the segment
   begins, and `log_bytes` is the size of the segment. `chunks` describes how the object contains
   the log, see `Chunks`: as it is, or in chunks that are zstd frames. Aiven's plugin for Kafka's
   tiered storage writes both forms (`SegmentManifestV1`, `ChunkIndex`). Code that deletes a
   segment's files deletes only the link. The object outside is only opened for reading.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import zstandard

from seglake.errors import CorruptData
from seglake.layout import LINK
from seglake.store import Reader, open_store

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAX_CHUNK_BYTES = 64 * 2**20  # a chunk is decompressed as a whole
_KEPT_CHUNKS = 8  # decompressed chunks per process: a reader continues in the last chunk


class Chunks(NamedTuple):
    """The layout of an object with a log of `log_bytes` bytes. Without `sizes`, it is the log.

    With `sizes`, the object is zstd frames. Frame i takes sizes[i] bytes of the object and contains
    `chunk_bytes` bytes of the log. The last frame may contain fewer.
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
        """Return the size of a log. Each method raises what that method of `ChunkedLog` raises."""
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


_FORMAT = 1
_OPEN_LINKS, _OPEN_STORES = 1024, 8
LINKED = f".{LINK}"  # the end of the key of a link


class Link(NamedTuple):
    """Bytes [start, start + log_bytes) of the log in the object `key` of the store at `root`."""

    root: str
    key: str
    start: int
    log_bytes: int
    chunks: Chunks

    @property
    def uri(self) -> str:
        """Return the URI of the object outside."""
        return f"{self.root}/{self.key}"

    def dump(self) -> bytes:
        """Return the content of the link's object."""
        return json.dumps(
            {"format": _FORMAT, **self._asdict(), "chunks": self.chunks._asdict()}
        ).encode()

    @staticmethod
    def load(data: Any, file: str) -> Link:
        """Parse the content of a link, the inverse of `dump`. Raises CorruptData with the file."""
        try:
            document: Mapping[str, Any] = json.loads(bytes(data))
            cut = {name: document["chunks"][name] for name in Chunks._fields}
            cut["sizes"] = tuple(map(int, cut["sizes"]))
            values = {name: document[name] for name in Link._fields}
            link = Link(**{**values, "chunks": Chunks(**cut)})
            sound = document["format"] == _FORMAT and link.is_sound
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptData(f"this is not a link: {error!r}", file=file) from error
        if not sound:
            raise CorruptData(f"this is not a valid link of format {_FORMAT}", file=file)
        return link

    @property
    def is_sound(self) -> bool:
        """Return whether the log has all bytes of the segment."""
        end = self.chunks.check().log_bytes
        return 0 <= self.start <= self.start + self.log_bytes <= end


class _LinkedLog:
    """The part of a log that a link refers to."""

    def __init__(self, store: Reader, link: Link) -> None:
        self._log, self._link = ChunkedLog(store, link.key, link.chunks), link

    def size(self) -> int:
        self._log.size()
        return self._link.log_bytes

    def place(self, position: int) -> str:
        """Describe, for a message, where a byte of the segment is outside the lake."""
        link = self._link
        inside = " of the log in it" if link.chunks.sizes else ""
        return f"byte {link.start + position}{inside}, {link.uri}"

    def read_ranges(self, starts: Sequence[int], ends: Sequence[int]) -> list[Buffer]:
        base, size = self._link.start, self._link.log_bytes
        if max(ends, default=0) > size:
            what = f"the log ends at byte {size}"
            raise CorruptData(what, file=self._log.uri, position=base + size)
        return self._log.read_ranges([base + at for at in starts], [base + at for at in ends])


class LakeLogs:
    """The objects of a lake, for reading only. Reading the key of a link reads the linked log.

    A link is read only once. Methods raise what the store's methods raise, and CorruptData for a
    bad link.
    """

    def __init__(self, store: Reader) -> None:
        self._store, self.remote = store, store.remote
        self._targets = lru_cache(_OPEN_LINKS)(self._target)
        self._stores = lru_cache(_OPEN_STORES)(self._outside)

    def __reduce__(self) -> tuple[object, ...]:
        return LakeLogs, (self._store,)

    def size(self, key: str) -> int:
        """Return the size of the object, or of the linked log, in bytes."""
        return self._targets(key).size() if key.endswith(LINKED) else self._store.size(key)

    def read(self, key: str, start: int, end: int) -> Buffer:
        """Return bytes [start, end)."""
        if key.endswith(LINKED):
            return self._targets(key).read_ranges([start], [end])[0]
        return self._store.read(key, start, end)

    def read_ranges(self, key: str, starts: Sequence[int], ends: Sequence[int]) -> list[Buffer]:
        """Return bytes [starts[i], ends[i]) for each i."""
        if key.endswith(LINKED):
            return self._targets(key).read_ranges(starts, ends)
        return self._store.read_ranges(key, starts, ends)

    def read_all(self, key: str) -> Buffer:
        """Return all bytes of the object, or of the linked log."""
        if key.endswith(LINKED):
            return self.read(key, 0, self.size(key))
        return self._store.read_all(key)

    def forget(self) -> None:
        """Drop all cached links, and all data that was read through them."""
        self._targets.cache_clear()
        self._stores.cache_clear()
        _chunk.cache_clear()

    def located(self, damage: CorruptData) -> CorruptData:
        """Return the damage. For a linked log, its message also names the outside object."""
        if not damage.file.endswith(LINKED):
            return damage
        place = self._targets(damage.file).place(damage.position)
        what = f"{damage.what}; stored outside the lake: {place}"
        return CorruptData(what, file=damage.file, position=damage.position)

    def _target(self, key: str) -> _LinkedLog:
        link = Link.load(self._store.read_all(key), key)
        return _LinkedLog(self._stores(link.root), link)

    def _outside(self, root: str) -> Reader:
        """Open the store of an outside bucket with the options with which the lake was opened."""
        return open_store(root, self._store.storage_options)
