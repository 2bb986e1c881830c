"""Read and write objects of an object store through obstore (the Rust object_store).

obstore repeats some failed requests. `retry_request` repeats the other requests that are safe to
repeat.

Credentials come from the environment, an instance's identity, or the storage options, which have
the names that `deltalake` uses. A pickled store has no credentials, so a worker must find its own.
"""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from itertools import chain, islice, pairwise, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    InvalidPathError,
    UnknownConfigurationKeyError,
)
from obstore.store import from_url

from seglake.cached import cached_property
from seglake.credentials import from_environment, has_credentials, is_private
from seglake.errors import ConfigError, MissingObject, StoreError
from seglake.limits import GAP_BYTES
from seglake.store.forks import ThreadedLibrary
from seglake.store.interface import (
    RETRY_S,
    TRIES,
    Listed,
    RefusedKey,
    Stat,
    Store,
    Writer,
    check_key,
    check_length,
    may_retry,
    reason,
    retry_request,
    store_errors,
    view,
)

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from typing_extensions import Buffer

    from seglake.store.interface import Data

_Answer = TypeVar("_Answer")
_Range = tuple[int, int]

# S3 allows 10,000 parts, which is enough for every segment. The spool divides its objects.
_PART_BYTES = 8 * 1024 * 1024
_PARTS_IN_FLIGHT = 4
_REQUESTS_OF_A_CALL = 10  # concurrent requests of obstore for the ranges of one call
# Measured with 55 ranges at 40 ms: 340 ms with 2 calls, 270 ms with 4, 290 ms with 6.
_CALLS_AT_ONCE = 4
_CONTROLS = re.compile(r"[\0-\x1f\x7f]")
_INVALID_PATH = re.compile(r'Path "(.*?)"(?: contained|: Encountered)', re.DOTALL)
_BEGINS_ANYWHERE = ("s3:", "s3a:", "gs:", "memory:")  # on Azure, obstore lists from the start
_EXPRESS = re.compile(r"s3a?://[^/]*--x-s3(?:/|$)")
_OBSTORE = ThreadedLibrary("obstore")
_RETRIES: Any = {"max_retries": TRIES, "retry_timeout": timedelta(seconds=RETRY_S)}
_CLIENT = {"timeout": f"{RETRY_S}s", "connect_timeout": "10s"}  # limits of one request
_CLIENT_OPTIONS = re.compile(
    "(?:aws_|azure_|google_)?"
    "(allow_http|allow_invalid_certificates|connect_timeout|default_content_type|pool_idle_timeout|"
    "pool_max_idle_per_host|proxy_url|proxy_ca_certificate|proxy_excludes|randomize_addresses|"
    "read_timeout|root_certificate|timeout|user_agent)"
)


def object_store(uri: str, storage_options: dict[str, str]) -> Store:
    """Return a store of the objects below `uri`, a prefix of a bucket.

    Each `memory:` store has separate objects. Raises ConfigError for credentials in an endpoint,
    because error messages would show them.
    """
    for name, value in storage_options.items():
        if "endpoint" in name.lower() and has_credentials(value):
            raise ConfigError(f"storage option {name} must not contain credentials")
    return _ObjectStore(uri, storage_options)


def _parts(ranges: Sequence[_Range]) -> list[Sequence[_Range]]:
    """Divide ranges into groups that need at most `_REQUESTS_OF_A_CALL` requests each.

    Ranges that are less than `GAP_BYTES` apart need one request. obstore sends all requests of a
    group concurrently.
    """
    pairs = enumerate(pairwise(ranges), 1)
    apart = [at for at, (one, next_) in pairs if next_[0] - one[1] > GAP_BYTES]
    cuts = [0, *apart[_REQUESTS_OF_A_CALL - 1 :: _REQUESTS_OF_A_CALL], len(ranges)]
    return [ranges[start:end] for start, end in pairwise(cuts) if start < end]


class _ObjectStore:
    """The objects below a prefix of a bucket, or in memory."""

    remote = True

    def __init__(self, uri: str, storage_options: dict[str, str]) -> None:
        self.uri, self.storage_options = uri, storage_options
        self.public_options = {k: v for k, v in storage_options.items() if not is_private(k, v)}

    def __repr__(self) -> str:
        return f"open_store({self.uri!r})"

    def __reduce__(self) -> tuple[object, ...]:
        if self.uri.startswith("memory:"):
            raise StoreError(
                "a store in memory exists only in its own process. Use a folder or an object store"
            )
        return _ObjectStore, (self.uri, self.public_options)

    @property
    def client(self) -> Any:
        """Return obstore's client. Raises UsageError in a forked process that must not use it."""
        _OBSTORE.use(self)
        return self._client

    @cached_property
    def _client(self) -> Any:
        if self.uri.startswith("memory:"):
            return from_url("memory:///")
        config: Any = dict(self.storage_options)
        client: Any = dict(_CLIENT)
        # obstore reads the environment itself, but not if client options are passed.
        for name, value in (from_environment() | self.storage_options).items():
            if option := _CLIENT_OPTIONS.fullmatch(name.lower()):
                client[option[1]] = value
                config.pop(name, None)
        try:
            return from_url(self.uri, config=config, client_options=client, retry_config=_RETRIES)
        except UnknownConfigurationKeyError as error:
            raise ConfigError(f"wrong storage options of {self.uri}: {reason(error)}") from None

    def _request(self, key: str, request: Callable[[], _Answer]) -> _Answer:
        """Return the result of a request for an object. It must be safe to repeat."""
        with _object_errors(self.uri, key):
            return retry_request(request, GenericError)

    def size(self, key: str) -> int:
        return self.stat(key).size

    def stat(self, key: str) -> Stat:
        meta = self._request(key, lambda: obstore.head(self.client, key))
        return Stat(meta["size"], modified_ms(meta), meta["e_tag"])

    def read(self, key: str, start: int, end: int) -> Buffer:
        if start == end:
            return b""
        data = self._request(key, lambda: obstore.get_range(self.client, key, start=start, end=end))
        check_length(self.uri, key, data, start, end)
        return data

    def read_ranges(self, key: str, starts: Sequence[int], ends: Sequence[int]) -> list[Buffer]:
        pairs = list(zip(starts, ends, strict=True))
        parts = _parts([pair for pair in pairs if pair[0] < pair[1]])
        data_of: dict[_Range, Buffer] = {}
        if len(parts) == 1:
            data_of |= self._read_part(key, parts[0])
        elif parts:
            with ThreadPoolExecutor(min(len(parts), _CALLS_AT_ONCE)) as pool:
                for part in pool.map(partial(self._read_part, key), parts):
                    data_of |= part
        for pair in pairs:
            check_length(self.uri, key, data_of.setdefault(pair, b""), *pair)
        return [data_of[pair] for pair in pairs]

    def _read_part(self, key: str, ranges: Sequence[_Range]) -> dict[_Range, Buffer]:
        """Read ranges that are not empty in one call of obstore."""
        starts, ends = map(list, zip(*ranges, strict=True))
        get = partial(obstore.get_ranges, starts=starts, ends=ends, coalesce=GAP_BYTES)
        buffers = self._request(key, lambda: get(self.client, key))
        return dict(zip(ranges, buffers, strict=True))

    def read_all(self, key: str) -> Buffer:
        return self._request(key, lambda: obstore.get(self.client, key).bytes())

    def put(self, key: str, data: Data) -> None:
        put = partial(obstore.put, chunk_size=_PART_BYTES)
        self._request(key, lambda: put(self.client, key, view(data)))

    def put_if_absent(self, key: str, data: Data) -> bool:
        # After a lost reply this returns False, see `Store`.
        return self._request(key, lambda: self._create(key, data))

    def _create(self, key: str, data: Data) -> bool:
        with contextlib.suppress(AlreadyExistsError):
            obstore.put(self.client, key, view(data), mode="create")
            return True
        return False

    def writer(self, key: str, *, durable: bool = True) -> AbstractContextManager[Writer]:
        del durable  # every object is durable
        return _ObjectWriter(self, key)

    def sync(self, key: str) -> None:
        """Do nothing, because an object store syncs every object itself."""

    def list(self, prefix: str = "", after: str = "") -> Iterator[Listed]:
        # S3's directory buckets, whose names end with --x-s3, cannot start a listing after a key.
        cuts = self.uri.startswith(_BEGINS_ANYWHERE) and not _EXPRESS.match(self.uri)
        with store_errors(self.uri, prefix, BaseError):
            try:
                yield from ObjectListing(self.client, prefix.rstrip("/"), cuts=cuts, after=after)
            except InvalidPathError as error:  # obstore refuses the whole page
                key = next(iter(_INVALID_PATH.findall(str(error))), "")
                raise RefusedKey(self.uri, key, "nothing next to it can be listed") from None

    def delete(self, keys: Iterable[str]) -> None:
        names = list(keys)
        with store_errors(self.uri, ", ".join(names[:1]), BaseError):
            try:
                retry_request(lambda: obstore.delete(self.client, names), GenericError)
            except FileNotFoundError:
                # Some stores stop at a missing object, so delete the objects one by one.
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        request = partial(obstore.delete, self.client, name)
                        retry_request(request, GenericError)


def _object_errors(uri: str, key: str) -> AbstractContextManager[None]:
    check_key(uri, key)
    if _CONTROLS.search(key):
        raise RefusedKey(uri, key)
    return store_errors(uri, key, BaseError)


class _ObjectWriter:
    """A stream that writes one object by a multipart upload, or by a put if it is small.

    All requests of an upload are safe to repeat. obstore repeats the requests that write a part.
    The request that begins an upload can fail when the first part is written, so this part is kept
    in memory until then. If the reply to the last request is lost, the object shows whether the
    upload succeeded. That request is not repeated, because some servers forget an upload that has
    ended.
    """

    def __init__(self, store: _ObjectStore, key: str) -> None:
        self._store, self._key, self._failed = store, key, False
        self._buffer, self._bytes = bytearray(), 0
        self._stream: Any = None
        self._before: Stat | None = None  # the object that the upload replaces

    def __enter__(self) -> _ObjectWriter:
        check_key(self._store.uri, self._key)
        return self

    def write(self, data: Data) -> None:
        with _object_errors(self._store.uri, self._key):
            try:
                _OBSTORE.use(self._store)
                self._write(view(data))
            except BaseException:
                self._failed = True
                raise

    def _write(self, data: memoryview) -> None:
        self._bytes += data.nbytes
        if self._stream is not None:
            self._stream.write(data)
            return
        self._buffer += data
        if len(self._buffer) > _PART_BYTES:
            self._before = self._stat()
            self._stream = retry_request(self._begin_upload, GenericError)
            self._buffer = bytearray()

    def _begin_upload(self) -> Any:
        """Begin an upload with the bytes in the buffer."""
        stream = obstore.open_writer(
            self._store.client, self._key, buffer_size=_PART_BYTES, max_concurrency=_PARTS_IN_FLIGHT
        )
        stream.write(self._buffer)
        return stream

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if (kind is not None or self._failed) and self._stream is not None:
            # This discards the parts. If it fails, the bucket's lifecycle rules discard them.
            with contextlib.suppress(BaseError, OSError):
                self._stream.__exit__(kind or StoreError, None, None)
        with _object_errors(self._store.uri, self._key):
            if kind is None and self._failed:
                raise OSError("not published, since a write to it failed")
            if kind is None:
                self._publish()

    def _publish(self) -> None:
        if self._stream is None:
            self._store.put(self._key, self._buffer)
            return
        try:
            self._stream.close()
        except (OSError, BaseError):
            stat = self._stat()
            if stat is None or stat == self._before or stat.size != self._bytes:
                raise

    def _stat(self) -> Stat | None:
        try:
            return self._store.stat(self._key)
        except MissingObject:
            return None


# ---------------- listing
# A long listing of an object store is divided into parts, which are listed concurrently.
#
# A page has 1,000 objects, and the next page begins after its last key, so one stream waits for one
# page after another. For a long listing, folders are found by a delimiter, and more streams begin
# after some of these folders.

_ALONE = 10_000  # objects that the first stream lists before other streams begin
_STREAMS = 8
_AT_ONCE = 20_000  # objects of a part that are in memory: 6 MB
_ENOUGH = 64  # folders; if there are fewer, the folders in them are used instead
_PARTS = 256  # the largest number of parts; each may need one page more


class _Part(NamedTuple):
    """The part of a listing from `after` (exclusive) to `until` (inclusive). None sets no bound."""

    after: str | None
    until: str | None


class ObjectListing:
    """An iterable of the objects below a prefix, in the order in which the store lists them.

    `cuts` is whether the store can start a listing at a key without listing earlier keys. If it
    cannot, or if its keys do not ascend, one stream lists all objects.
    """

    def __init__(self, client: Any, prefix: str, *, cuts: bool, after: str = "") -> None:
        self._client, self._prefix, self._cuts, self._after = client, prefix, cuts, after

    def __iter__(self) -> Iterator[Listed]:
        objects, key, count, ascends = self._behind(self._after or None), "", 0, self._cuts
        for count, listed in enumerate(islice(objects, _ALONE), 1):  # noqa: B007  used after it
            ascends &= key < listed.key
            key = listed.key
            yield listed
        if ascends and count == _ALONE:
            yield from self._side_by_side(key)
        else:
            yield from objects

    def _side_by_side(self, after: str) -> Iterator[Listed]:
        """Yield the objects after a key, from concurrent streams of bounded memory."""
        running = deque[Future[tuple[list[Listed], _Part | None]]]()
        with ThreadPoolExecutor(_STREAMS) as pool:
            parts = iter(self._parts(after, pool))
            while True:
                new = islice(parts, _STREAMS - len(running))
                running.extend(pool.submit(self._some, part) for part in new)
                if not running:
                    return
                some, rest = running.popleft().result()
                if rest:
                    running.appendleft(pool.submit(self._some, rest))
                yield from some

    def _some(self, part: _Part) -> tuple[list[Listed], _Part | None]:
        """Return the first objects of a part, and the part that remains to be listed, or None."""
        behind = self._behind(part.after)
        until = part.until
        mine = behind if until is None else takewhile(lambda each: each.key <= until, behind)
        some = list(islice(mine, _AT_ONCE))
        return some, part._replace(after=some[-1].key) if len(some) == _AT_ONCE else None

    def _parts(self, after: str, pool: ThreadPoolExecutor) -> Sequence[_Part]:
        """Divide the keys after `after` into parts at folders."""
        folders = self._folders(after, pool)
        cuts = folders[:: -(-len(folders) // _PARTS) or 1]
        return [_Part(*ends) for ends in pairwise([after, *cuts, None])]

    def _folders(self, after: str, pool: ThreadPoolExecutor) -> list[str]:
        """Return folders after the key `after`, without folders inside other returned folders."""
        # Search no deeper than the folder of `after`, because that would list every file there.
        folders = [self._prefix]
        for _ in range(after.removeprefix(f"{self._prefix}/").count("/")):
            found = sorted(chain.from_iterable(pool.map(self._below, folders)))
            folders = [each for each in found if each > after or after.startswith(f"{each}/")]
            if len(folders) >= _ENOUGH:
                break
        return [each for each in folders if each > after]

    def _below(self, folder: str) -> Sequence[str]:
        """Return the folders directly below a folder."""
        ask = partial(obstore.list_with_delimiter, self._client, folder or None)
        return retry_request(ask, GenericError)["common_prefixes"]

    def _behind(self, last: str | None, failures: int = 0) -> Iterator[Listed]:
        """Yield the objects after `last`. `failures` counts failures since the last object."""
        pages = obstore.list(self._client, self._prefix or None, offset=last)
        try:
            for meta in chain.from_iterable(pages):
                last, failures = meta["path"], 0
                yield Listed(last, meta["size"], modified_ms(meta), meta["e_tag"])
        except BaseError as error:
            if not may_retry(error, failures + 1):
                raise
            yield from self._behind(last, failures + 1)


def modified_ms(meta: ObjectMeta) -> int:
    """Return the time (ms) when an object was written."""
    return int(meta["last_modified"].timestamp() * 1000)
