"""Objects in memory, and the store through which a process of the world sees them.

An object appears and goes at once, with the time of storage's own clock. A listing is made in
parts, between which others write.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from seglake.errors import MissingObject
from seglake.layout import CHRONICLES
from seglake.store.interface import Listed, Stat, check_key, check_length, view
from tests.simulation.world import Process, World

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from seglake.store.interface import Data

SCHEME, INPUTS = "sim://", "files"
_LISTED_AT_ONCE = 12  # objects of a listing that are seen at one moment
DECIDING = ("/_delta_log/", "/success", "/fate", "/manifest")


class Object(NamedTuple):
    """An object, and the process that wrote it."""

    data: bytes
    modified_ms: int
    etag: str
    owner: Process | None


class Bucket:
    """All objects of a world by their URI without the scheme.

    `told` is called with each object of a Delta log, `listed` with who looks at
    input files.
    """

    def __init__(self, world: World) -> None:
        self.world, self.objects = world, dict[str, Object]()
        self.told: Callable[[str, bytes, Process | None], None] = lambda *_: None
        self.listed: Callable[[Process], None] = lambda _: None
        self._puts = 0

    def put(self, key: str, data: bytes, owner: Process | None) -> None:
        self._puts += 1
        etag = f"{int(self.world.now_ms):x}-{self._puts:x}"
        self.objects[key] = Object(data, int(self.world.now_ms), etag, owner)
        if "/_delta_log/" in key:
            self.told(key, data, owner)
        elif owner and key.endswith("/begun"):  # another attempt, which lists anew
            owner.about |= {"listed_ms": None, "begun_ms": self.world.now_ms}

    def keys(self, prefix: str) -> list[str]:
        """The keys that begin so, sorted."""
        return sorted([key for key in self.objects if key.startswith(prefix)])

    def delete(self, key: str) -> None:
        self.objects.pop(key, None)


class SimStore:
    """Implements `Store`. An object store unless it is a `disk`."""

    def __init__(self, bucket: Bucket, uri: str, *, disk: bool) -> None:
        self.uri, self.remote, self._bucket = uri, not disk, bucket
        self.storage_options, self.public_options = dict[str, str](), dict[str, str]()
        self._folder = uri.removeprefix(SCHEME).rstrip("/")

    def __repr__(self) -> str:
        return f"open_store({self.uri!r})"

    def full(self, key: str) -> str:
        return _full(self.uri, self._folder, key)

    def _call(
        self,
        what: str,
        key: str,
        effect: Callable[[], Any],
        *,
        writes: bool = False,
        tidies: bool = False,
    ) -> Any:
        process = self._bucket.world.running
        if process is None or threading.get_ident() != process.world.thread:
            return effect()  # Arrow reads Parquet on threads of its own
        if self._folder == INPUTS:
            self._bucket.listed(process)
        decides = writes and any(part in key for part in DECIDING)
        how: Any = {"writes": writes, "decides": decides + 5 * tidies}
        return process.call(f"{what} {key}", effect, place=f"{what} {self._folder}/{key}", **how)

    def _object(self, key: str) -> Object:
        try:
            return self._bucket.objects[self.full(key)]
        except KeyError:
            raise MissingObject(f"{self.uri}/{key} does not exist") from None

    def _stat(self, key: str) -> Stat:
        found = self._object(key)
        return Stat(len(found.data), found.modified_ms, found.etag)

    def size(self, key: str) -> int:
        return self.stat(key).size

    def stat(self, key: str) -> Stat:
        found: Stat = self._call("stat", key, lambda: self._stat(key))
        return found

    def read(self, key: str, start: int, end: int) -> Buffer:
        if start == end:
            return b""
        data: bytes = self._call("read", key, lambda: self._object(key).data[start:end])
        check_length(self.uri, key, data, start, end)
        return data

    def read_ranges(self, key: str, starts: Sequence[int], ends: Sequence[int]) -> list[Buffer]:
        def ranges() -> list[bytes]:
            data = self._object(key).data
            return [data[start:end] for start, end in zip(starts, ends, strict=True)]

        found: list[Buffer] = self._call("read", key, ranges)
        for data, start, end in zip(found, starts, ends, strict=True):
            check_length(self.uri, key, data, start, end)
        return found

    def read_all(self, key: str) -> Buffer:
        data: bytes = self._call("read", key, lambda: self._object(key).data)
        return data

    def put(self, key: str, data: Data) -> None:
        content, owner, full = view(data).tobytes(), self._bucket.world.running, self.full(key)
        self._call("put", key, lambda: self._bucket.put(full, content, owner), writes=True)

    def put_if_absent(self, key: str, data: Data) -> bool:
        content, owner, full = view(data).tobytes(), self._bucket.world.running, self.full(key)

        def create() -> bool:
            if full in self._bucket.objects:
                return False
            self._bucket.put(full, content, owner)
            return True

        tidies = b'"OPTIMIZE"' in content  # rare, and of no attempt
        done: bool = self._call("create", key, create, writes=True, tidies=tidies)
        return done

    def writer(self, key: str, *, durable: bool = True) -> AbstractContextManager[SimWriter]:
        del durable
        return SimWriter(self, key)

    def sync(self, key: str) -> None:
        """Everything is durable."""

    def list(self, prefix: str = "", after: str = "") -> Iterator[Listed]:
        folder = self.full(prefix.rstrip("/")) + "/" if prefix else f"{self._folder}/"
        if prefix == CHRONICLES and not self._bucket.keys(folder):
            return  # no call: most histories are as they were before there were any
        last = max(folder, f"{self._folder}/{after}")
        while True:
            page = partial(self._listed, folder, last)
            some: Sequence[Listed] = self._call("list", prefix, page)
            yield from some
            if len(some) < _LISTED_AT_ONCE:
                return
            last = f"{self._folder}/{some[-1].key}"

    def _listed(self, folder: str, last: str) -> Sequence[Listed]:
        keys = self._bucket.keys(folder)
        first = bisect.bisect_right(keys, last)
        own = len(self._folder) + 1
        found = ((key, self._bucket.objects[key]) for key in keys[first : first + _LISTED_AT_ONCE])
        return [Listed(key[own:], len(each.data), each.modified_ms) for key, each in found]

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            full = self.full(key)
            self._call("delete", key, partial(self._bucket.delete, full))


@lru_cache(50_000)
def _full(uri: str, folder: str, key: str) -> str:
    """The key within the bucket; the same keys come again and again."""
    check_key(uri, key)
    return f"{folder}/{key}"


class SimWriter:
    """A multipart upload: nothing is visible before its end."""

    def __init__(self, store: SimStore, key: str) -> None:
        self._store, self._key, self._parts, self._failed = store, key, list[bytes](), False

    def __enter__(self) -> SimWriter:
        return self

    def write(self, data: Data) -> None:
        self._parts.append(view(data).tobytes())

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is None and not self._failed:
            self._store.put(self._key, b"".join(self._parts))
