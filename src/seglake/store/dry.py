"""Run a command on a lake without writing to the lake.

A dry run does the work of a command on a dry store, usually without the commit, so it reports the
figures that the command would report. The dry store drops the files of segments, unless a later
part of the run reads them. The code that writes them counts their bytes. Other objects, such as the
blobs between two passes, are kept in a temporary local folder.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from seglake.errors import MissingObject
from seglake.layout import TOPICS
from seglake.store.interface import Listed, Stat, Store, Writer
from seglake.store.local import local_store

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from seglake.store.interface import Data


@contextlib.contextmanager
def dry_store(store: Store) -> Iterator[DryStore]:
    """Make a dry store on top of `store` for a `with` block."""
    with tempfile.TemporaryDirectory(prefix="seglake-dry-run-") as folder:
        yield DryStore(store, local_store(folder, {}))


@contextlib.contextmanager
def keeping_segments(store: Store) -> Iterator[None]:
    """Make a `DryStore` keep segment files in a `with` block. Other stores always keep them."""
    if not isinstance(store, DryStore):
        yield
        return
    store.keeps_segments = True
    try:
        yield
    finally:
        store.keeps_segments = False


class DryStore:
    """A `Store` of the objects of `store` and of the objects that a dry run writes to `scratch`.

    Objects of `store` are never replaced or deleted. Files of segments are dropped unless
    `keeps_segments` is set.
    """

    def __init__(self, store: Store, scratch: Store) -> None:
        self._store, self._scratch, self.keeps_segments = store, scratch, False
        self.uri, self.remote = store.uri, store.remote
        self.storage_options, self.public_options = store.storage_options, store.public_options

    def _drops(self, key: str) -> bool:
        return not self.keeps_segments and key.startswith(f"{TOPICS}/")

    def _having(self, key: str) -> Store:
        """Return the scratch store if it has the object, else the store of the lake."""
        try:
            self._scratch.size(key)
        except MissingObject:
            return self._store
        return self._scratch

    def size(self, key: str) -> int:
        """Return the size in bytes, from the store that has the object."""
        return self._having(key).size(key)

    def stat(self, key: str) -> Stat:
        """Return size, modification time and etag, from the store that has the object."""
        return self._having(key).stat(key)

    def read(self, key: str, start: int, end: int) -> Buffer:
        """Read the bytes from `start` to `end` (exclusive), from the store that has the object."""
        return self._having(key).read(key, start, end)

    def read_ranges(self, key: str, starts: Sequence[int], ends: Sequence[int]) -> list[Buffer]:
        """Read several ranges, from the store that has the object."""
        return self._having(key).read_ranges(key, starts, ends)

    def read_all(self, key: str) -> Buffer:
        """Read the whole object, from the store that has it."""
        return self._having(key).read_all(key)

    def put(self, key: str, data: Data) -> None:
        """Write the object to the scratch store, or drop it if it is a segment's file."""
        if not self._drops(key):
            self._scratch.put(key, data)

    def put_if_absent(self, key: str, data: Data) -> bool:
        """Write the object like `put`, unless either store has it. Return whether it was absent."""
        with contextlib.suppress(MissingObject):
            self.size(key)
            return False
        self.put(key, data)
        return True

    @contextlib.contextmanager
    def writer(self, key: str, *, durable: bool = True) -> Iterator[Writer]:
        """Stream an object to the scratch store, or drop it if it is a segment's file."""
        if self._drops(key):
            yield NullSink()
            return
        with self._scratch.writer(key, durable=durable) as stream:
            yield stream

    def sync(self, key: str) -> None:
        """Do nothing, because a dry run need not survive a power loss."""

    def list(self, prefix: str = "", after: str = "") -> Iterator[Listed]:
        """Yield the objects of both stores below a folder."""
        return itertools.chain(self._store.list(prefix, after), self._scratch.list(prefix, after))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the objects only from the scratch store."""
        self._scratch.delete(keys)


class NullSink:
    """A stream that drops its bytes. The code that writes to it counts them."""

    def write(self, data: Data) -> None:
        """Drop `data`."""
