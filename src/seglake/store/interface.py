"""Define the interface of all stores, convert errors of libraries, and decide what is retried."""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, cast

from seglake.errors import MissingObject, StoreError

if TYPE_CHECKING:
    from typing import Any

    import numpy.typing as npt
    from typing_extensions import Buffer

    Data = Buffer | npt.NDArray[Any]

# Limits of the tries of a request, including the tries that the library makes itself. A single try
# may take all of the time.
TRIES, RETRY_S = 8, 120
_REPEATED = re.compile(r"after (\d+) retries")
_PASSING = re.compile(  # errors of lost connections, and errors of S3 that ask for a retry
    "HTTP error|body error|response body|end of file before|IncompleteBody|"
    "InternalError|SlowDown|ServiceUnavailable|RequestTimeout",
    re.I,
)
_NO_RIGHT = "Give this user the right to do that, or run as a user who has it"
_NO_ROOM = "Free some space there, then run again"
_REMEDIES = {
    errno.EPERM: _NO_RIGHT,
    errno.EACCES: _NO_RIGHT,
    errno.EROFS: "Mount that file system for writing, or name another folder",
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.ELOOP: "Remove the link that leads to a folder above it",
    errno.ENOTDIR: "There is a file where a folder is needed. Name another folder",
}
# Causes and remedies, by a pattern of the message of S3. Most of these replies are a 403.
_S3_REMEDIES = {
    # This error comes from a machine without a role of AWS. Azure and Google use the same address.
    r"S3 error.*169\.254\.169\.254|IMDS session token": "AWS credentials are missing. Set "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role that may use the "
    "bucket",
    "InvalidObjectState": "the object is archived. Restore it, or leave it out with input.exclude",
    "RequestTimeTooSkewed": "the clock of this machine is wrong. Set it",
    r"\bKMS\.|\bkms:": "the KMS key of the object cannot be used. Enable it, and allow this "
    "user kms:Decrypt and, to write, kms:GenerateDataKey",
}
_Answer = TypeVar("_Answer")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # delta-rs colours its messages


class Stat(NamedTuple):
    """Size, modification time (ms) and etag of an object.

    The etag changes with the content. It is missing on stores without etags.
    """

    size: int
    modified_ms: int
    etag: str | None


class Listed(NamedTuple):
    """An object of a listing. Listings of a local disk have no `etag`."""

    key: str
    size: int
    modified_ms: int
    etag: str | None = None


class Writer(Protocol):
    """A stream that writes one object."""

    def write(self, data: Data) -> None:
        """Append `data` to the object. Raises StoreError if storage fails."""


class Reader(Protocol):
    """The objects below `uri`, for reading. Methods raise StoreError and MissingObject.

    Errors name the object. `storage_options` are all options that the store was opened with. They
    are never pickled. If `remote`, a read waits for a network, so concurrent reads save time.
    """

    uri: str
    storage_options: dict[str, str]
    remote: bool

    def size(self, key: str) -> int:
        """Return the size of the object in bytes."""

    def read(self, key: str, start: int, end: int) -> Buffer:
        """Read the bytes from `start` to `end` (exclusive).

        Raises StoreError for a range beyond the end of the object.
        """

    def read_ranges(self, key: str, starts: Sequence[int], ends: Sequence[int]) -> list[Buffer]:
        """Read several ranges, like `read`.

        An object store reads ascending ranges with gaps of at most `GAP_BYTES` in one request.
        """

    def read_all(self, key: str) -> Buffer:
        """Read the whole object."""


class Store(Reader, Protocol):
    """The objects below `uri`, for reading and writing. Methods raise what `Reader` methods raise.

    `public_options` are the options without credentials, which other processes may see.
    """

    public_options: dict[str, str]

    def stat(self, key: str) -> Stat:
        """Return the size, the modification time and the etag of the object."""

    def put(self, key: str, data: Data) -> None:
        """Write the object atomically. An existing object with this key is replaced."""

    def put_if_absent(self, key: str, data: Data) -> bool:
        """Write the object atomically unless its key exists. Return whether it was written.

        After a lost reply, an object store returns False although this call wrote the object.
        """

    def writer(self, key: str, *, durable: bool = True) -> AbstractContextManager[Writer]:
        """Stream an object of any size in constant memory.

        The object appears if the block ends without an exception and every write succeeded.
        Otherwise, the store discards all parts. Unless `durable`, a power loss may lose the object.
        """

    def sync(self, key: str) -> None:
        """Sync an object, or the names in a folder, so that they survive a power loss.

        A caller needs this if the process that wrote the object may have died before its own sync.
        """

    def list(self, prefix: str = "", after: str = "") -> Iterator[Listed]:
        """Yield every object below the folder `prefix`, which need not exist.

        With `after`, yield only objects whose keys are greater. An object store lists no others.
        """

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the objects. Missing objects are ignored."""


class RefusedKey(StoreError):
    """A key that cannot be used. The message contains the remedy."""

    def __init__(self, uri: str, key: str, effect: str = "it cannot be used") -> None:
        super().__init__(
            f"the key {key!r} in {uri} has an empty part, `.`, `..` or control characters, so "
            f"{effect}. Copy the object to another key and delete it"
        )


def check_key(uri: str, key: str) -> None:
    """Raise RefusedKey for a key that could lead outside the root."""
    if "\0" in key or not {"", ".", ".."}.isdisjoint(key.split("/")):
        raise RefusedKey(uri, key)


@contextlib.contextmanager
def store_errors(uri: str, key: str, failure: type[Exception] = OSError) -> Iterator[None]:
    """Convert exceptions of the system and of a library to errors that name the object.

    `failure` is the library's exception. It does not become the cause of the error, because its
    text may have a session token (see `reason`).
    """
    try:
        yield
    except FileNotFoundError as error:
        raise MissingObject(f"{uri}/{key} does not exist") from error
    except (OSError, ValueError, OverflowError, failure) as error:
        cause = error if failure is OSError else None
        if isinstance(error, NotADirectoryError) and Path(uri).is_file():
            raise StoreError(f"{uri} is a file, not a folder. Name another folder") from cause
        remedy = _REMEDIES.get(getattr(error, "errno", None) or 0)
        advice = f". {remedy}" if remedy else ""
        raise StoreError(f"{uri}/{key}: {reason(error)}{advice}") from cause


def reason(error: Exception) -> str:
    """Return the message of a storage library's exception, on one line.

    Debugging output is removed. From the reply of an S3 server, only the code, the message and
    the storage class are kept. The rest of the reply may repeat the headers of the request, which
    have the session token.
    """
    text = _COLOURS.sub("", str(error)).partition("\n\nDebug source")[0]
    message, *answer = re.split(r"<\?xml|<Error>", text, maxsplit=1)
    facts = re.findall(r"<(?:Code|Message|StorageClass)>([^<]*)<", "".join(answer))
    told = " ".join(" ".join([message, *facts]).split()) or type(error).__name__
    remedy = s3_remedy(told)
    return f"{remedy} ({told})" if remedy else told


def s3_remedy(message: str) -> str | None:
    """Return a sentence with cause and remedy of an S3 error, or None for an unknown error."""
    found = (text for pattern, text in _S3_REMEDIES.items() if re.search(pattern, message))
    return next(found, None)


def may_retry(error: Exception, failures: int) -> bool:
    """Return whether a failed request may be repeated. If so, pause first.

    obstore and delta-rs repeat most requests themselves. But they do not repeat a write, a deletion
    or a listing if the connection is reset, or if the reply ends early.

    Args:
        error: The error of the request. The library's retries in its text count as failures.
        failures: The number of failures without progress, including this failure.
    """
    failures += sum(map(int, _REPEATED.findall(str(error))))
    if failures >= TRIES or not _PASSING.search(str(error)):
        return False
    sleep(min(0.05 * 2**failures, 2))
    return True


def retry_request(request: Callable[[], _Answer], *failure: type[Exception]) -> _Answer:
    """Return the result of a request that is safe to repeat.

    There are at most `TRIES` tries in about `RETRY_S` seconds, including the tries that the library
    makes itself. Raises the last `failure`.
    """
    begun = monotonic()
    for failures in count(1):
        try:
            return request()
        except failure as error:
            if monotonic() - begun > RETRY_S or not may_retry(error, failures):
                raise
    raise AssertionError


def view(data: Data) -> memoryview:
    """Return the bytes of a contiguous buffer, without a copy."""
    return memoryview(cast("Buffer", data)).cast("B")


def check_length(uri: str, key: str, data: Buffer, start: int, end: int) -> None:
    """Raise StoreError unless `data` has the length of the range that was read."""
    size = view(data).nbytes
    if size != end - start:
        raise StoreError(
            f"{uri}/{key}: storage returned only {size} bytes for the range [{start}, {end})"
        )
