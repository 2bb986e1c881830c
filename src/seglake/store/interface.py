"""The interface of every store, and the errors that all stores raise."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
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

_TRIES, _AT_MOST_S = 8, 120
_REPEATED = re.compile(r"after (\d+) retries")
_PASSING = re.compile(  # a connection that ended, and answers of S3 that ask for a repetition
    "HTTP error|body error|response body|end of file before|IncompleteBody|"
    "InternalError|SlowDown|ServiceUnavailable|RequestTimeout",
    re.I,
)
_DENIED = os.strerror(errno.EACCES)
_NO_ROOM = "make room there, then run again"
_REMEDIES = {
    errno.EPERM: "give this user the right to do that, or run as a user who has it",
    errno.EROFS: "mount that file system for writing, or name another folder",
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.ENOTDIR: "a file stands where a folder is needed: name another folder",
}
# A machine was asked for a role of AWS that it has not; Azure's and Google's have the same address.
_NO_KEYS = re.compile(r"S3 error.*169\.254\.169\.254|IMDS session token")
_SET_KEYS = (
    "no credentials of AWS: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine "
    "a role that may use the bucket"
)
_Answer = TypeVar("_Answer")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # delta-rs colours its messages


class Stat(NamedTuple):
    """Size, modification time and etag of an object. The etag, if any, changes with the content."""

    size: int
    modified_ms: int
    etag: str | None


class Listed(NamedTuple):
    """One object of a listing; `etag` is None if the listing has none, as on a local disk."""

    key: str
    size: int
    modified_ms: int
    etag: str | None = None


class Writer(Protocol):
    """A stream into one object."""

    def write(self, data: Data) -> None:
        """Append `data` to the object. Raises StoreError if storage fails."""


class Reader(Protocol):
    """Objects below `uri`, to be read. Every method raises StoreError or MissingObject.

    Errors name the object. `storage_options` are all options that the store was opened with; they
    stay in this process. If `remote`, a read waits for a network, so concurrent reads save time.
    """

    uri: str
    storage_options: dict[str, str]
    remote: bool

    def size(self, key: str) -> int:
        """Length of the object in bytes."""

    def read(self, key: str, start: int, end: int) -> Buffer:
        """The bytes [start, end) of the object; a range beyond the object is an error."""

    def read_ranges(self, key: str, starts: Sequence[int], ends: Sequence[int]) -> list[Buffer]:
        """Like `read` for every pair.

        An object store joins ascending ranges with gaps of at most `GAP_BYTES` in one request.
        """

    def read_all(self, key: str) -> Buffer:
        """The whole object."""


class Store(Reader, Protocol):
    """Objects below `uri`, to be read and written. Every method raises as those of `Reader`.

    `public_options` are the options without credentials, which other processes may see.
    """

    public_options: dict[str, str]

    def stat(self, key: str) -> Stat:
        """Length, modification time and etag of the object."""

    def put(self, key: str, data: Data) -> None:
        """Write the object atomically; replaces an object of this key."""

    def put_if_absent(self, key: str, data: Data) -> bool:
        """Write the object atomically unless its key exists. Returns whether it was written.

        After a lost reply, an object store returns False for an object that this call wrote.
        """

    def writer(self, key: str, *, durable: bool = True) -> AbstractContextManager[Writer]:
        """Stream an object of any size in constant memory.

        The object appears if the block ends without an exception and every write succeeded;
        otherwise the store discards all parts. Unless `durable`, a loss of power may lose it.
        """

    def sync(self, key: str) -> None:
        """Make an object, or the names in a folder, survive a loss of power.

        That is for what another process may have written just before it died.
        """

    def list(self, prefix: str = "") -> Iterator[Listed]:
        """Every object below the folder `prefix`, or nothing if the folder does not exist."""

    def delete(self, keys: Iterable[str]) -> None:
        """Remove the objects; a missing object is not an error."""


def check_key(uri: str, key: str) -> None:
    """Raise StoreError for a key that could leave the root."""
    if "\0" in key or not {"", ".", ".."}.isdisjoint(key.split("/")):
        raise StoreError(f"{uri}: {key!r} is not a key")


@contextlib.contextmanager
def store_errors(uri: str, key: str, failure: type[Exception] = OSError) -> Iterator[None]:
    """Turn exceptions of the system, and a library's `failure`, into errors that name the object.

    A library's exception does not become the cause: its text may hold a session token (`reason`).
    """
    try:
        yield
    except FileNotFoundError as error:
        raise MissingObject(f"{uri}/{key}: no such object") from error
    except (OSError, ValueError, OverflowError, failure) as error:
        cause = error if failure is OSError else None
        if isinstance(error, NotADirectoryError) and Path(uri).is_file():
            raise StoreError(f"{uri}{_remedy(error)}") from cause
        if getattr(error, "errno", None) == errno.EACCES:
            raise StoreError(f"{uri}/{key}: {_DENIED}; {lacking(uri, key)}") from cause
        if link := _loop(error):
            raise StoreError(
                f"{uri}: the link {link} leads to a folder above it: remove it"
            ) from cause
        raise StoreError(f"{uri}/{key}: {reason(error)}{_remedy(error)}") from cause


def _loop(error: Exception) -> Path | None:
    """The link that a walk followed again and again."""
    if getattr(error, "errno", None) != errno.ELOOP:
        return None
    path = Path(getattr(error, "filename", None) or "")
    return next((each for each in (*reversed(path.parents), path) if each.is_symlink()), None)


def _remedy(error: Exception) -> str:
    """What helps against an error of the system, to stand behind its message; may be empty."""
    remedy = _REMEDIES.get(getattr(error, "errno", None) or 0)
    return f"; {remedy}" if remedy else ""


def reason(error: Exception) -> str:
    """The message of a storage library's exception, on one line.

    Debugging output is left out, and so is the answer of an S3 server but for its code and message:
    the answer repeats the headers of a refused request, with the session token.
    """
    text = _COLOURS.sub("", str(error)).partition("\n\nDebug source")[0]
    message, *answer = re.split(r"<\?xml|<Error>", text, maxsplit=1)
    facts = re.findall(r"<(?:Code|Message)>([^<]*)<", "".join(answer))
    told = " ".join(" ".join([message, *facts]).split()) or type(error).__name__
    return f"{_SET_KEYS} ({told})" if _NO_KEYS.search(told) else told


def may_ask_again(error: Exception, failures: int) -> bool:
    """Whether a request failed by the way, not for a reason; if so, after a pause.

    The libraries repeat most requests themselves, but not one whose connection is reset, or whose
    reply begins well and ends early, if it writes, deletes or lists. `failures` counts those
    without progress, this one included; those of the library, which its error tells, count too.
    """
    failures += sum(map(int, _REPEATED.findall(str(error))))
    if failures >= _TRIES or not _PASSING.search(str(error)):
        return False
    sleep(min(0.05 * 2**failures, 2))
    return True


def asked(request: Callable[[], _Answer], *failure: type[Exception]) -> _Answer:
    """The answer to a request that is safe to repeat: eight tries in all, in about two minutes."""
    begun = monotonic()
    for failures in count(1):
        try:
            return request()
        except failure as error:
            if monotonic() - begun > _AT_MOST_S or not may_ask_again(error, failures):
                raise
    raise AssertionError


def view(data: Data) -> memoryview:
    """The bytes of any contiguous buffer."""
    return memoryview(cast("Buffer", data)).cast("B")


def check_length(uri: str, key: str, data: Buffer, start: int, end: int) -> None:
    """Raise StoreError unless `data` is as long as the range [start, end) it was read from."""
    size = view(data).nbytes
    if size != end - start:
        raise StoreError(f"{uri}/{key}: short read of [{start}, {end}): {size} bytes came back")


# ---------------- rights
# What a user lacks whom a local disk refuses a file of a lake, which may lie deep in it.


def lacking(root: str, key: str) -> str:
    """Who may not read or write what, and what helps, to stand behind "Permission denied"."""
    path = Path(root, key)
    found = next(each for each in (path, *path.parents) if _is_seen(each))
    folder = root if _is_seen(Path(root)) else found
    user, owner = _name(os.geteuid()), _name(found.stat().st_uid)
    right, wanted = ("write", "read and write") if _may_read(found) else ("read", "read")
    remedy = f"give {user} the right to {wanted} everything in {folder}"
    other = f", or run as {owner}, its owner" if owner != user else ""
    return f"user {user} may not {right} {'it' if found == path else found}: {remedy}{other}"


def _is_seen(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110  a folder above it may forbid the look


def _may_read(path: Path) -> bool:
    return os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0))


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:  # as in many containers
        return str(user)
