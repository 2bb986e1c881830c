"""Read logs that are outside the lake through links.

A link is a small object in the lake that stands for such a log. It is one JSON object. `format` is
1. `root` and `key` name the object outside. `start` is the byte of the log where the segment
   begins, and `log_bytes` is the size of the segment. `chunks` describes how the object contains
   the log, see `Chunks`. Code that deletes a segment's files deletes only the link. The object
   outside is only opened for reading.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from seglake.errors import CorruptData
from seglake.layout import LINK
from seglake.log import chunked_log
from seglake.log.chunked_log import ChunkedLog, Chunks
from seglake.store import Reader, open_store

if TYPE_CHECKING:
    from typing_extensions import Buffer

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
        chunked_log.forget()

    def located(self, damage: CorruptData) -> CorruptData:
        """Return the damage. For a linked log, its message also names the outside object."""
        if not damage.file.endswith(LINKED):
            return damage
        place = self._targets(damage.file).place(damage.position)
        what = f"{damage.what}; outside the lake this is {place}"
        return CorruptData(what, file=damage.file, position=damage.position)

    def _target(self, key: str) -> _LinkedLog:
        link = Link.load(self._store.read_all(key), key)
        return _LinkedLog(self._stores(link.root), link)

    def _outside(self, root: str) -> Reader:
        """Open the store of an outside bucket with the options with which the lake was opened."""
        return open_store(root, self._store.storage_options)
