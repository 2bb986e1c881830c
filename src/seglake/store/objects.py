"""A store on an object store, through obstore (the Rust object_store), which repeats requests.

It does not repeat all that are safe to repeat; `asked` does the others.

Credentials come from the environment, an instance's identity, or the storage options, which have
the names that `deltalake` uses. A pickled store carries no credentials: a worker finds its own.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    UnknownConfigurationKeyError,
)
from obstore.store import from_url

from seglake.cached import cached_property
from seglake.credentials import from_environment, has_credentials, is_private
from seglake.errors import ConfigError, MissingObject, StoreError
from seglake.limits import GAP_BYTES
from seglake.store.forks import ThreadedLibrary
from seglake.store.interface import (
    Listed,
    Stat,
    Store,
    Writer,
    asked,
    check_key,
    check_length,
    reason,
    store_errors,
    view,
)
from seglake.store.listing import Listing, modified_ms

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from seglake.store.interface import Data

_Answer = TypeVar("_Answer")
_Range = tuple[int, int]

_PART_BYTES = 8 * 1024 * 1024  # of S3's 10,000 no segment needs more; the spool divides its objects
_PARTS_IN_FLIGHT = 4
_REQUESTS_OF_A_CALL = 10  # that obstore makes at once for the ranges of one call
_CALLS_AT_ONCE = 4  # 55 ranges at 40 ms: 340 ms with 2, 270 with 4, 290 with 6
_BEGINS_ANYWHERE = ("s3:", "s3a:", "gs:", "memory:")  # of Azure, obstore lists all from the start
_EXPRESS = re.compile(r"s3a?://[^/]*--x-s3(?:/|$)")
_OBSTORE = ThreadedLibrary("obstore")
_RETRIES: Any = {"max_retries": 8, "retry_timeout": timedelta(minutes=2)}
_CLIENT = {"timeout": "120s", "connect_timeout": "10s"}  # for one request
_CLIENT_OPTIONS = re.compile(
    "(?:aws_|azure_|google_)?"
    "(allow_http|allow_invalid_certificates|connect_timeout|default_content_type|pool_idle_timeout|"
    "pool_max_idle_per_host|proxy_url|proxy_ca_certificate|proxy_excludes|randomize_addresses|"
    "read_timeout|root_certificate|timeout|user_agent)"
)


def object_store(uri: str, storage_options: dict[str, str]) -> Store:
    """The objects below `uri`, a prefix of a bucket. Each `memory:` store has its own objects.

    Raises ConfigError for credentials in an endpoint, because error messages would show them.
    """
    for name, value in storage_options.items():
        if "endpoint" in name.lower() and has_credentials(value):
            raise ConfigError(f"storage option {name} must not hold credentials")
    return _ObjectStore(uri, storage_options)


def _parts(ranges: Sequence[_Range]) -> list[Sequence[_Range]]:
    """The ranges of each call, which makes all its requests at once."""
    pairs = enumerate(pairwise(ranges), 1)
    apart = [at for at, (one, next_) in pairs if next_[0] - one[1] > GAP_BYTES]
    cuts = [0, *apart[_REQUESTS_OF_A_CALL - 1 :: _REQUESTS_OF_A_CALL], len(ranges)]
    return [ranges[start:end] for start, end in pairwise(cuts) if start < end]


class _ObjectStore:
    """Objects below a prefix of a bucket, or in memory."""

    remote = True

    def __init__(self, uri: str, storage_options: dict[str, str]) -> None:
        self.uri, self.storage_options = uri, storage_options
        self.public_options = {k: v for k, v in storage_options.items() if not is_private(k, v)}

    def __repr__(self) -> str:
        return f"open_store({self.uri!r})"

    def __reduce__(self) -> tuple[object, ...]:
        if self.uri.startswith("memory:"):
            raise StoreError("a store in memory cannot be sent to another process")
        return _ObjectStore, (self.uri, self.public_options)

    @property
    def _begins_anywhere(self) -> bool:
        """Whether a listing that begins behind a key costs nothing for those in front of it.

        S3's directory buckets, whose names end with --x-s3, cannot begin there.
        """
        return self.uri.startswith(_BEGINS_ANYWHERE) and not _EXPRESS.match(self.uri)

    @property
    def client(self) -> Any:
        """Obstore's client; UsageError in a forked process that must not use it."""
        _OBSTORE.use(self)
        return self._client

    @cached_property
    def _client(self) -> Any:
        if self.uri.startswith("memory:"):
            return from_url("memory:///")
        config: Any = dict(self.storage_options)
        client: Any = dict(_CLIENT)
        # obstore reads the environment itself, but only if it is given no client option
        for name, value in (from_environment() | self.storage_options).items():
            if option := _CLIENT_OPTIONS.fullmatch(name.lower()):
                client[option[1]] = value
                config.pop(name, None)
        try:
            return from_url(self.uri, config=config, client_options=client, retry_config=_RETRIES)
        except UnknownConfigurationKeyError as error:
            raise ConfigError(f"storage options of {self.uri}: {reason(error)}") from None

    def size(self, key: str) -> int:
        return self.stat(key).size

    def stat(self, key: str) -> Stat:
        with _object_errors(self.uri, key):
            meta = _asked(lambda: obstore.head(self.client, key))
        return Stat(meta["size"], modified_ms(meta), meta["e_tag"])

    def read(self, key: str, start: int, end: int) -> Buffer:
        if start == end:
            return b""
        with _object_errors(self.uri, key):
            data = _asked(lambda: obstore.get_range(self.client, key, start=start, end=end))
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
        """The bytes of some ranges, none of which is empty, by one call."""
        starts, ends = map(list, zip(*ranges, strict=True))
        with _object_errors(self.uri, key):
            buffers = _asked(
                lambda: obstore.get_ranges(
                    self.client, key, starts=starts, ends=ends, coalesce=GAP_BYTES
                )
            )
        return dict(zip(ranges, buffers, strict=True))

    def read_all(self, key: str) -> Buffer:
        with _object_errors(self.uri, key):
            return _asked(lambda: obstore.get(self.client, key).bytes())

    def put(self, key: str, data: Data) -> None:
        with _object_errors(self.uri, key):
            _asked(lambda: obstore.put(self.client, key, view(data), chunk_size=_PART_BYTES))

    def put_if_absent(self, key: str, data: Data) -> bool:
        with _object_errors(self.uri, key):
            return _asked(lambda: self._create(key, data))  # see `Store` on lost replies

    def _create(self, key: str, data: Data) -> bool:
        with contextlib.suppress(AlreadyExistsError):
            obstore.put(self.client, key, view(data), mode="create")
            return True
        return False

    def writer(self, key: str, *, durable: bool = True) -> AbstractContextManager[Writer]:
        del durable  # every object is durable
        return _ObjectWriter(self, key)

    def sync(self, key: str) -> None:
        """An object store syncs every object itself."""

    def list(self, prefix: str = "") -> Iterator[Listed]:
        with store_errors(self.uri, prefix, BaseError):
            yield from Listing(self.client, prefix.rstrip("/"), cuts=self._begins_anywhere)

    def delete(self, keys: Iterable[str]) -> None:
        names = list(keys)
        with store_errors(self.uri, ", ".join(names[:1]), BaseError):
            try:
                _asked(lambda: obstore.delete(self.client, names))
            except FileNotFoundError:  # some stores stop at a missing object
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        _asked(partial(obstore.delete, self.client, name))


def _asked(request: Callable[[], _Answer]) -> _Answer:
    return asked(request, GenericError)


def _object_errors(uri: str, key: str) -> AbstractContextManager[None]:
    check_key(uri, key)
    return store_errors(uri, key, BaseError)


class _ObjectWriter:
    """A multipart upload, or a single put if one part holds it all.

    A part, and what begins or ends an upload, is safe to repeat. obstore repeats parts itself. What
    begins the upload fails with the first part, so that part is held until then. An end whose reply
    was lost shows in the object: some servers no longer know the upload if it ends again.
    """

    def __init__(self, store: _ObjectStore, key: str) -> None:
        self._store, self._key, self._failed = store, key, False
        self._buffer, self._bytes = bytearray(), 0
        self._stream: Any = None
        self._before: Stat | None = None  # what the upload replaces

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
            self._stream, self._buffer = _asked(self._begun), bytearray()

    def _begun(self) -> Any:
        """An upload that begins with the buffer."""
        stream = obstore.open_writer(
            self._store.client, self._key, buffer_size=_PART_BYTES, max_concurrency=_PARTS_IN_FLIGHT
        )
        stream.write(self._buffer)
        return stream

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if (kind is not None or self._failed) and self._stream is not None:
            with contextlib.suppress(BaseError, OSError):  # then the bucket's lifecycle discards
                self._stream.__exit__(kind or StoreError, None, None)  # discards the parts
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
