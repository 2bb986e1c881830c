"""A store on an object store, through obstore (the Rust object_store), which also retries.

Credentials come from the environment, an instance's identity, or the storage options, which have
the names that `deltalake` uses. A pickled store carries none of them: a worker finds its own.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    UnknownConfigurationKeyError,
)
from obstore.store import from_url

from seglake.errors import ConfigError, StoreError
from seglake.store.interface import (
    Listed,
    Stat,
    Store,
    Writer,
    check_key,
    checked,
    reason,
    store_errors,
    view,
)

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from typing_extensions import Buffer

    from seglake.store.interface import Data

_PART_BYTES = 8 * 1024 * 1024  # 10,000 parts of it, the limit of S3, are more than any segment
_PARTS_IN_FLIGHT = 4
_RETRIES: Any = {"max_retries": 8, "retry_timeout": timedelta(minutes=2)}
_CLIENT = {"timeout": "120s", "connect_timeout": "10s"}  # of one request
_CLIENT_OPTIONS = re.compile(
    "(?:aws_|azure_|google_)?"
    "(allow_http|allow_invalid_certificates|connect_timeout|default_content_type|pool_idle_timeout|"
    "pool_max_idle_per_host|proxy_url|proxy_ca_certificate|proxy_excludes|randomize_addresses|"
    "read_timeout|root_certificate|timeout|user_agent)"
)
_SECRET_WORDS = frozenset({"key", "secret", "token", "password", "sas", "proxy"})
_NOT_SECRET = ("_file", "token_service_url", "_enabled", "kms_key_id")


def object_store(uri: str, storage_options: dict[str, str]) -> Store:
    """The objects below `uri`, a prefix of a bucket; `memory:` is one store that nobody shares.

    Raises ConfigError for credentials in an endpoint: errors would tell them.
    """
    for name, value in storage_options.items():
        if "endpoint" in name.lower() and "@" in urlsplit(value).netloc:
            raise ConfigError(f"storage option {name} must not hold credentials")
    return _ObjectStore(uri, storage_options)


class _ObjectStore:
    """Objects below a prefix of a bucket, or in memory."""

    remote = True

    def __init__(self, uri: str, storage_options: dict[str, str]) -> None:
        self.uri, self._options = uri, storage_options
        self.public_options = {k: v for k, v in storage_options.items() if not _secret(k)}

    def __repr__(self) -> str:
        return f"open_store({self.uri!r})"

    def __reduce__(self) -> tuple[object, ...]:
        if self.uri.startswith("memory:"):
            raise StoreError("a store in memory cannot be sent to another process")
        return _ObjectStore, (self.uri, self.public_options)

    @cached_property
    def client(self) -> Any:
        if self.uri.startswith("memory:"):
            return from_url("memory:///")
        config: Any = dict(self._options)
        client: Any = dict(_CLIENT)
        for name, value in (_environment() | self._options).items():
            if known := _CLIENT_OPTIONS.fullmatch(name.lower()):
                client[known[1]] = value
                config.pop(name, None)
        try:
            return from_url(self.uri, config=config, client_options=client, retry_config=_RETRIES)
        except UnknownConfigurationKeyError as error:
            raise ConfigError(f"storage options of {self.uri}: {reason(error)}") from None

    def size(self, key: str) -> int:
        return self.stat(key).size

    def stat(self, key: str) -> Stat:
        with _naming(self.uri, key):
            found = obstore.head(self.client, key)
        return Stat(found["size"], _milliseconds(found), found["e_tag"])

    def read(self, key: str, start: int, end: int) -> Buffer:
        if start == end:
            return b""
        with _naming(self.uri, key):
            data = obstore.get_range(self.client, key, start=start, end=end)
        return checked(self.uri, key, data, start, end)

    def read_ranges(self, key: str, starts: Sequence[int], ends: Sequence[int]) -> list[Buffer]:
        pairs = list(zip(starts, ends, strict=True))
        some = [(start, end) for start, end in pairs if start < end]
        with _naming(self.uri, key):
            got = obstore.get_ranges(
                self.client, key, starts=[start for start, _ in some], ends=[end for _, end in some]
            )
        found = dict(zip(some, got, strict=True))
        return [checked(self.uri, key, found.get(pair, b""), *pair) for pair in pairs]

    def read_all(self, key: str) -> Buffer:
        with _naming(self.uri, key):
            return obstore.get(self.client, key).bytes()

    def put(self, key: str, data: Data) -> None:
        with _naming(self.uri, key):
            obstore.put(self.client, key, view(data), chunk_size=_PART_BYTES)

    def put_if_absent(self, key: str, data: Data) -> bool:
        with _naming(self.uri, key):
            try:
                return self._create(key, data)
            except GenericError:  # obstore repeats only what it may do twice: here a False is right
                return self._create(key, data)

    def _create(self, key: str, data: Data) -> bool:
        with contextlib.suppress(AlreadyExistsError):
            obstore.put(self.client, key, view(data), mode="create")
            return True
        return False

    def writer(self, key: str, *, durable: bool = True) -> AbstractContextManager[Writer]:
        del durable  # every object is
        return _ObjectWriter(self, key)

    def sync(self, key: str) -> None:
        """Every object is there for good once its writer knows of it."""

    def list(self, prefix: str = "") -> Iterator[Listed]:
        with store_errors(self.uri, prefix, BaseError):
            for chunk in obstore.list(self.client, prefix or None):
                for found in chunk:
                    yield Listed(found["path"], found["size"], _milliseconds(found))

    def delete(self, keys: Iterable[str]) -> None:
        names = list(keys)
        with store_errors(self.uri, ", ".join(names[:1]), BaseError):
            try:
                obstore.delete(self.client, names)
            except FileNotFoundError:  # some stores stop at an object that is gone
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        obstore.delete(self.client, name)


def _environment() -> dict[str, str]:
    """What obstore finds there itself, unless it is given any client option."""
    mine = ("AWS_", "AZURE_", "GOOGLE_")
    return {name: value for name, value in os.environ.items() if name.upper().startswith(mine)}


def _naming(uri: str, key: str) -> AbstractContextManager[None]:
    return store_errors(uri, check_key(uri, key), BaseError)


def _milliseconds(found: ObjectMeta) -> int:
    return int(found["last_modified"].timestamp() * 1000)


def _secret(option: str) -> bool:
    name = option.lower()
    return not name.endswith(_NOT_SECRET) and not _SECRET_WORDS.isdisjoint(name.split("_"))


class _ObjectWriter:
    """A multipart upload, or a single put if one part holds it all."""

    def __init__(self, store: _ObjectStore, key: str) -> None:
        self._store, self._key, self._failed = store, key, False

    def __enter__(self) -> _ObjectWriter:
        with _naming(self._store.uri, self._key):
            self._stream = obstore.open_writer(
                self._store.client,
                self._key,
                buffer_size=_PART_BYTES,
                max_concurrency=_PARTS_IN_FLIGHT,
            )
        return self

    def write(self, data: Data) -> None:
        with _naming(self._store.uri, self._key):
            try:
                self._stream.write(view(data))
            except BaseException:
                self._failed = True
                raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None or self._failed:
            with contextlib.suppress(BaseError, OSError):  # then the bucket's lifecycle does
                self._stream.__exit__(kind or StoreError, None, None)  # discards the parts
        with _naming(self._store.uri, self._key):
            if kind is None and self._failed:
                raise OSError("not published, since a write to it failed")
            if kind is None:
                self._stream.close()
