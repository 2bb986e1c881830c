"""The standard streams of a command: closed, full, or of another encoding than UTF-8.

A command that committed has done its work, so its exit code does not depend on its output. For a
command that did not commit, output that cannot be written is a StoreError.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from seglake.errors import StoreError

_ESCAPE = "seglake.escape"
_CLOSED = "it is closed"


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Write characters that an encoding lacks as the escapes that JSON has for them."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = (units[at : at + 2].hex() for at in range(0, len(units), 2))
    return "".join(f"\\u{pair}" for pair in pairs), error.end


codecs.register_error(_ESCAPE, _escape)


class _Output(io.FileIO):
    """Standard output. Its first failed write is a StoreError, and later writes do nothing.

    After a commit the failed write raises nothing. A BrokenPipeError is raised as it is.
    """

    failure: StoreError | None = None

    def write(self, data: Any) -> int:
        if self.failure is not None:
            return len(data)
        try:
            return super().write(data)
        except OSError as error:
            if isinstance(error, BrokenPipeError) and not _has_committed():
                raise
            why = _CLOSED if error.errno == errno.EBADF else error.strerror or error
            self.failure = StoreError(f"standard output: {why}")
            if _has_committed():
                return len(data)
            raise self.failure from error


class _Errors(io.FileIO):
    """Standard error, where a failed write is no failure of the command."""

    def write(self, data: Any) -> int:
        with suppress(OSError):
            return super().write(data)
        return len(data)


def _has_committed() -> bool:
    """Whether this process committed to a catalog; the module is imported only when needed."""
    table = sys.modules.get("seglake.catalog.table")
    return table is not None and table.COMMITTED.is_set()


@contextmanager
def checked_output() -> Iterator[None]:
    """In the block, which ends by SystemExit, a failed write of standard output is a StoreError.

    So it is at its end, where the last bytes are written, and where a library has caught it. After
    a commit of this process it is one line on standard error. Characters that the encoding of
    standard output lacks are written as escapes. Closed streams are replaced.
    """
    _replace_closed()
    errors = sys.__stderr__
    if errors is not None and sys.stderr is errors:
        sys.stderr = _text(_Errors(errors.fileno(), "wb", closefd=False), errors)
    given = sys.__stdout__
    if given is None or sys.stdout is not given:
        yield
        return
    raw = _Output(given.fileno(), "wb", closefd=False)
    sys.stdout = _text(raw, given)
    try:
        yield
    except SystemExit:
        with suppress(BrokenPipeError):
            sys.stdout.flush()
        if raw.failure is None:
            raise
        if not _has_committed():
            raise raw.failure from None
        print(f"seglake: {raw.failure}; what was committed is complete", file=sys.stderr)
        raise
    except BaseException:
        with suppress(OSError, StoreError):  # it would hide the first error
            sys.stdout.flush()
        raise


def _replace_closed() -> None:
    """Open closed standard streams, so that no other file gets their number.

    Standard output is opened for reading: a write fails, as it did before.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
        if number:
            stream = io.TextIOWrapper(
                io.BufferedWriter(io.FileIO(number, "wb", closefd=False)),
                encoding="utf-8",
                line_buffering=number > 1,
            )
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def _text(raw: Any, like: Any) -> io.TextIOWrapper:
    """The text above a file, with the encoding and the buffer of another text."""
    is_strict = like.errors in ("strict", "surrogateescape")
    return io.TextIOWrapper(
        raw if like.write_through else io.BufferedWriter(raw),
        encoding=like.encoding,
        errors=_ESCAPE if is_strict else like.errors,
        line_buffering=like.line_buffering,
        write_through=like.write_through,
    )
