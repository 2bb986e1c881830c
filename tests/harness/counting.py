"""A store that counts its requests and bytes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seglake.store import Listed, Stat, Store, Writer
from seglake.store.interface import view

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from seglake.store.interface import Data


@dataclass
class RequestCounts:
    """Requests and bytes of a `CountingStore`. A range is one request, even if ranges share one."""

    requests: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


class CountingStore:
    """Any store. `counts` has its requests and bytes.

    A listing is one request for any number of pages, a deletion one for any number of objects.
    """

    def __init__(self, store: Store) -> None:
        self._store, self.uri, self.remote = store, store.uri, store.remote
        self.storage_options, self.public_options = store.storage_options, store.public_options
        self.counts = RequestCounts()
        self._lock = threading.Lock()
        self.sync = store.sync  # an object store has nothing to do

    def __repr__(self) -> str:
        return f"CountingStore({self._store!r})"

    def _count(self, *read: Buffer, requests: int = 1, written: int = 0) -> None:
        with self._lock:
            self.counts.requests += requests
            self.counts.bytes_read += sum(view(data).nbytes for data in read)
            self.counts.bytes_written += written

    def size(self, key: str) -> int:
        self._count()
        return self._store.size(key)

    def stat(self, key: str) -> Stat:
        self._count()
        return self._store.stat(key)

    def read(self, key: str, start: int, end: int) -> Buffer:
        data = self._store.read(key, start, end)
        self._count(data)
        return data

    def read_ranges(self, key: str, starts: Sequence[int], ends: Sequence[int]) -> list[Buffer]:
        buffers = self._store.read_ranges(key, starts, ends)
        self._count(*buffers, requests=len(buffers))
        return buffers

    def read_all(self, key: str) -> Buffer:
        data = self._store.read_all(key)
        self._count(data)
        return data

    def put(self, key: str, data: Data) -> None:
        self._count(written=view(data).nbytes)
        self._store.put(key, data)

    def put_if_absent(self, key: str, data: Data) -> bool:
        self._count(written=view(data).nbytes)
        return self._store.put_if_absent(key, data)

    @contextlib.contextmanager
    def writer(self, key: str, *, durable: bool = True) -> Iterator[Writer]:
        self._count()
        with self._store.writer(key, durable=durable) as stream:
            yield _CountingWriter(stream, lambda size: self._count(requests=0, written=size))

    def list(self, prefix: str = "", after: str = "") -> Iterator[Listed]:
        self._count()
        return self._store.list(prefix, after)

    def delete(self, keys: Iterable[str]) -> None:
        self._count()
        self._store.delete(keys)


class _CountingWriter:
    def __init__(self, stream: Writer, count: Callable[[int], None]) -> None:
        self._stream, self._count = stream, count

    def write(self, data: Data) -> None:
        self._stream.write(data)
        self._count(view(data).nbytes)
