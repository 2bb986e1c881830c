"""What every store can do, and how all of them report failure."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from seglake.errors import MissingObject, StoreError

if TYPE_CHECKING:
    from typing import Any

    import numpy.typing as npt
    from typing_extensions import Buffer

    Data = Buffer | npt.NDArray[Any]  # an array is a buffer too, but numpy says so from 3.12 on

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # delta-rs colours its messages


class Stat(NamedTuple):
    """What a store knows of an object. `etag` changes with the content; None if there is none."""

    size: int
    modified_ms: int
    etag: str | None


class Listed(NamedTuple):
    """One object of a listing."""

    key: str
    size: int
    modified_ms: int


class Writer(Protocol):
    """A stream into one object."""

    def write(self, data: Data) -> None:
        """Append `data` to the object; StoreError if storage fails."""


class Store(Protocol):
    """Objects below `uri`. Every method raises StoreError, or MissingObject, naming the object.

    `public_options` are the storage options that may be told to another process: no credential.
    `remote` tells that a read waits for a network, so that several at once come sooner.
    """

    uri: str
    public_options: dict[str, str]
    remote: bool

    def size(self, key: str) -> int:
        """Length of the object in bytes."""

    def stat(self, key: str) -> Stat:
        """Length, modification time and etag of the object."""

    def read(self, key: str, start: int, end: int) -> Buffer:
        """Exactly the bytes start to end (exclusive); a range beyond the object is an error."""

    def read_ranges(self, key: str, starts: Sequence[int], ends: Sequence[int]) -> list[Buffer]:
        """Like `read` for every pair; an object store may fetch near neighbours in one request."""

    def read_all(self, key: str) -> Buffer:
        """The whole object."""

    def put(self, key: str, data: Data) -> None:
        """Write the object atomically, replacing what was there."""

    def put_if_absent(self, key: str, data: Data) -> bool:
        """Write the object atomically unless the key exists; False if it did.

        On an object store it may exist by this very call: a lost reply looks like a lost race.
        """

    def writer(self, key: str, *, durable: bool = True) -> AbstractContextManager[Writer]:
        """Stream an object of any size in constant memory.

        The object appears when the block ends without an exception and every write succeeded;
        otherwise nothing appears and what was uploaded is discarded. Unless `durable`, a store may
        lose it when the power fails.
        """

    def sync(self, key: str) -> None:
        """Let an object that another library wrote survive a loss of power from now on."""

    def list(self, prefix: str = "") -> Iterator[Listed]:
        """Every object below the folder `prefix`; nothing if there is no such folder."""

    def delete(self, keys: Iterable[str]) -> None:
        """Remove the objects; one that is already gone is not an error."""


def check_key(uri: str, key: str) -> str:
    """`key` itself, unless it could leave the root; then StoreError."""
    if "\0" in key or not {"", ".", ".."}.isdisjoint(key.split("/")):
        raise StoreError(f"{uri}: {key!r} is not a key")
    return key


@contextlib.contextmanager
def store_errors(uri: str, key: str, failure: type[Exception] = OSError) -> Iterator[None]:
    """Turns the system's exceptions, and a library's `failure`, into ours, naming the object.

    A library's exception is not kept as the cause: its text may hold a session token, see `reason`.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise MissingObject(f"{uri}/{key}: no such object") from error
    except (OSError, ValueError, OverflowError, failure) as error:
        cause = error if failure is OSError else None
        raise StoreError(f"{uri}/{key}: {reason(error)}") from cause


def reason(error: Exception) -> str:
    """What a storage library's exception says, on one line.

    Left out are its debugging output and, but for code and message, the answer of an S3 server: a
    refused request is repeated in there with its headers, an expired session token as it was.
    """
    text = _COLOURS.sub("", str(error)).partition("\n\nDebug source")[0]
    said, *answer = re.split(r"<\?xml|<Error>", text, maxsplit=1)
    told = re.findall(r"<(?:Code|Message)>([^<]*)<", "".join(answer))
    return " ".join(" ".join([said, *told]).split()) or type(error).__name__


def view(data: Data) -> memoryview:
    """The bytes of any contiguous buffer."""
    return memoryview(cast("Buffer", data)).cast("B")


def checked(uri: str, key: str, data: Buffer, start: int, end: int) -> Buffer:
    """`data` itself if it is as long as the range it was read from; else StoreError."""
    got = view(data).nbytes
    if got != end - start:
        raise StoreError(f"{uri}/{key}: short read of [{start}, {end}): {got} bytes came back")
    return data
