"""A store for dry runs: what a command writes does not reach the storage.

A dry run does the work of the command on such a store, mostly without the commit, so its figures
are those of the command. Files of segments are read by nobody before a commit: they are counted
where they are made, and kept nowhere, unless a later part of the run shall read them. Everything
else, such as the blobs between two passes, waits in a folder of this machine.
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
def dry(store: Store) -> Iterator[DryStore]:
    """In the block, a store that reads what `store` has, and writes nothing to it."""
    with tempfile.TemporaryDirectory(prefix="seglake-dry-run-") as folder:
        yield DryStore(store, local_store(folder, {}))


@contextlib.contextmanager
def keeping_segments(store: Store) -> Iterator[None]:
    """In the block, a `DryStore` keeps the files of segments; other stores always do."""
    if not isinstance(store, DryStore):
        yield
        return
    store.keeps_segments = True
    try:
        yield
    finally:
        store.keeps_segments = False


class DryStore:
    """The objects of a store, and those that were written to this one, which has them in `scratch`.

    Every method does what it does in `Store`. An object of the store below is never deleted. While
    `keeps_segments` is set, files of segments are kept, too.
    """

    def __init__(self, store: Store, scratch: Store) -> None:
        self._store, self._scratch, self.keeps_segments = store, scratch, False
        self.uri, self.remote = store.uri, store.remote
        self.storage_options, self.public_options = store.storage_options, store.public_options

    def _drops(self, key: str) -> bool:
        return not self.keeps_segments and key.startswith(f"{TOPICS}/")

    def _having(self, key: str) -> Store:
        """The store that has the object."""
        try:
            self._scratch.size(key)
        except MissingObject:
            return self._store
        return self._scratch

    def size(self, key: str) -> int:
        """Of either store."""
        return self._having(key).size(key)

    def stat(self, key: str) -> Stat:
        """Of either store."""
        return self._having(key).stat(key)

    def read(self, key: str, start: int, end: int) -> Buffer:
        """Of either store."""
        return self._having(key).read(key, start, end)

    def read_ranges(self, key: str, starts: Sequence[int], ends: Sequence[int]) -> list[Buffer]:
        """Of either store."""
        return self._having(key).read_ranges(key, starts, ends)

    def read_all(self, key: str) -> Buffer:
        """Of either store."""
        return self._having(key).read_all(key)

    def put(self, key: str, data: Data) -> None:
        """To the scratch, or nowhere."""
        if not self._drops(key):
            self._scratch.put(key, data)

    def put_if_absent(self, key: str, data: Data) -> bool:
        """To the scratch, or nowhere."""
        with contextlib.suppress(MissingObject):
            self.size(key)
            return False
        self.put(key, data)
        return True

    @contextlib.contextmanager
    def writer(self, key: str, *, durable: bool = True) -> Iterator[Writer]:
        """To the scratch, or nowhere."""
        if self._drops(key):
            yield NullSink()
            return
        with self._scratch.writer(key, durable=durable) as stream:
            yield stream

    def sync(self, key: str) -> None:
        """Nothing: a loss of power may lose it."""

    def list(self, prefix: str = "") -> Iterator[Listed]:
        """Of both stores."""
        return itertools.chain(self._store.list(prefix), self._scratch.list(prefix))

    def delete(self, keys: Iterable[str]) -> None:
        """Of the scratch alone."""
        self._scratch.delete(keys)


class NullSink:
    """A stream that drops its bytes. The code that writes them counts them."""

    def write(self, data: Data) -> None:
        """Do nothing."""
