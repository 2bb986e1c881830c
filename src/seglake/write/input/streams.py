"""Read the bytes of an input file as a seekable stream."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from seglake.errors import InputError, StoreError
from seglake.store import Store
from seglake.store.interface import s3_remedy
from seglake.write.input.files import SourceFile

if TYPE_CHECKING:
    from typing_extensions import Buffer


# Sizes of requests. The first request is smaller, because some files need no other.
FIRST_BYTES, PART_BYTES = 2**18, 2**20
AHEAD = 4  # parts that are requested ahead of their use


class ByteStream(Protocol):
    """A stream of bytes that is read forward."""

    def readinto(self, target: memoryview, /) -> int:
        """Read bytes into the beginning of `target`. Return their number, 0 at the end."""


class RawFile(io.RawIOBase):
    """An input file as a seekable binary file. It ends at the size that the file had when listed.

    A local file is read directly into the caller's memory, because `Store.read` would make a copy.
    `head` has the first bytes of a file in a bucket if they were already read.
    """

    def __init__(
        self, file: SourceFile, store: Store, key: str, start: int = 0, head: bytes = b""
    ) -> None:
        self._file, self._store, self._key = file, store, key
        self._position, self._head = start, head
        with self._errors():
            self._local = None if store.remote else io.FileIO(file.path)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError, StoreError) as problem:
            remedy = "Check whether another process changed the file, and run again"
            if isinstance(problem, PermissionError):
                remedy = "Give this user the right to read it"
            path = self._file.path
            text = f"{problem}" if s3_remedy(str(problem)) else f"{problem}. {remedy}"
            raise InputError(f"{path} cannot be read: {text}") from problem

    def close(self) -> None:
        """Close a local file."""
        if not self.closed and self._local is not None:
            self._local.close()
        super().close()

    def readable(self) -> bool:
        """Return True; see io."""
        return True

    def seekable(self) -> bool:
        """Return True; see io."""
        return True

    def tell(self) -> int:
        """Return the position in the file of the next byte to read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a byte position, and return it; see io."""
        origin = (0, self._position, self._file.size)[whence]
        self._position = origin + offset
        return self._position

    def readinto(self, target: Buffer) -> int:
        """Read bytes into the beginning of `target`, and return their number; see io."""
        view = memoryview(target).cast("B")
        end = min(self._position + len(view), self._file.size)
        if end <= self._position:
            return 0
        with self._errors():
            size = self._read(view[: end - self._position])
        self._position += size
        return size

    def _read(self, view: memoryview) -> int:
        """Read bytes at the current position into the beginning of `view`. Return their number."""
        if self._local is not None:
            size = os.preadv(self._local.fileno(), [view], self._position)
            if size == 0:
                raise EOFError(f"the file ends at byte {self._position}")
            return size
        end = self._position + len(view)
        known = self._head[self._position : end]
        part = memoryview(known or self._store.read(self._key, self._position, end))
        view[: len(part)] = part
        return len(part)

    @property
    def remote(self) -> bool:
        """Return whether the file is in a bucket, so that each read is a request."""
        return self._local is None

    def part(self, start: int, end: int) -> bytes:
        """Return the bytes [start, end), in at most one request. Several threads may call this.

        Raises InputError.
        """
        end = min(end, self._file.size)
        if end <= len(self._head):
            return self._head[start:end]
        with self._errors():
            return bytes(self._store.read(self._key, start, end))

    def ranges_left(self) -> Iterator[tuple[int, int]]:
        """Yield the byte ranges [start, end) in which the rest of the file is requested."""
        at, size = self._position, FIRST_BYTES
        while at < self._file.size:
            yield at, at + size
            at, size = at + size, PART_BYTES


class ReadAhead(io.RawIOBase):
    """A stream of the rest of a file in a bucket, which requests parts ahead of their use.

    The first part is requested without any others, because some callers read only the beginning
    of a file. At most `AHEAD` + 1 parts are in memory.
    """

    def __init__(self, file: RawFile) -> None:
        self._file, self._ranges = file, file.ranges_left()
        self._coming = deque[Future[bytes]]()
        # Never shut down: its threads end when it is garbage-collected.
        self._pool: ThreadPoolExecutor | None = None
        self._part = memoryview(b"")

    def readable(self) -> bool:
        """Return True; see io."""
        return True

    def readinto(self, target: Buffer) -> int:
        """Read bytes into the beginning of `target`, and return their number; see io.

        Raises InputError.
        """
        view = memoryview(target).cast("B")
        if not self._part:
            self._part = memoryview(self._next())
        size = min(len(view), len(self._part))
        view[:size], self._part = self._part[:size], self._part[size:]
        return size

    def _next(self) -> bytes:
        """Return the next part of the file, or b"" at the end."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(AHEAD)
            first = next(self._ranges, None)
            return b"" if first is None else self._file.part(*first)
        while len(self._coming) < AHEAD and (following := next(self._ranges, None)):
            self._coming.append(self._pool.submit(self._file.part, *following))
        return self._coming.popleft().result() if self._coming else b""
