"""Handle errors, Ctrl-C, and closed or full standard streams for every command.

A SeglakeError ends a command with one line on standard error, or with a JSON object if the command
prints JSON. Ctrl-C ends it with one line and exit code 130. But Python swallows a Ctrl-C in a
finalizer or in a C callback, which are frequent while libraries are imported and compiled: it
prints the exception and continues. So `exit_on_interrupt` sends the signal again.

A command that committed has done its work, so its exit code does not depend on its output. If a
command did not commit, output that cannot be written is a StoreError.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from json import dumps
from typing import Any

from seglake.errors import CorruptData, MissingObject, SeglakeError, StoreError

_LOG = re.compile(r"\btopics/\S+\.log\b")


def wants_json() -> bool:
    """Return whether the command line has `--json`, even if the rest of it is wrong."""
    return "--json" in sys.argv[1:]


def log_remedy(error: SeglakeError) -> str:
    """Return the remedy for a lost or damaged log, or "" for other errors."""
    if not (isinstance(error, (CorruptData, MissingObject)) and _LOG.search(str(error))):
        return ""
    return (
        ". Restore that log from a copy, or `seglake undo` its run and ingest the input again "
        "(`seglake verify` lists all damaged files)"
    )


def print_error(kind: str, message: str, exit_code: int) -> None:
    """Print an error as the last line on standard error, or as JSON. `kind` is its class name."""
    if wants_json():
        error = {"kind": kind, "message": message, "exit_code": exit_code}
        print(dumps({"error": error}, ensure_ascii=False), file=sys.stderr)
    else:
        print(f"seglake: {message}", file=sys.stderr)


EXIT_CODE = 130  # as shells have it: 128 + SIGINT
_AGAIN_S = 0.05  # delay until the signal is sent again, after the finalizer has ended

_is_printed = False


def print_stopped(more: str = "") -> None:
    """Print once on standard error that the command was stopped, and what to do next."""
    global _is_printed  # noqa: PLW0603  # the process ends after this
    if not _is_printed:
        _is_printed = True
        print_error("Stopped", f"stopped{more and f'. {more}'}", EXIT_CODE)


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """End the program with one line and `EXIT_CODE` after a Ctrl-C inside the block."""
    shown, sys.unraisablehook = sys.unraisablehook, _repeat
    try:
        yield
    except KeyboardInterrupt:
        _end()
    except SystemExit as end:  # typer converts the interrupt to an exit
        if end.code == EXIT_CODE:
            _end()
        raise
    finally:
        sys.unraisablehook = shown


def _end() -> None:
    print_stopped()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C ends threads that still run
    sys.exit(EXIT_CODE)


def _repeat(swallowed: Any) -> None:
    """Send a swallowed Ctrl-C again. Print any other exception as Python does."""
    if not issubclass(swallowed.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(swallowed)
        return
    # A signal to the main thread also interrupts a system call there.
    main = [threading.main_thread().ident, signal.SIGINT]
    while True:
        timer = threading.Timer(_AGAIN_S, signal.pthread_kill, main)
        timer.daemon = True
        try:
            timer.start()
        except KeyboardInterrupt:  # a busy machine delivers it before this function ends
            continue
        return


_ESCAPE = "seglake.escape"
_CLOSED = "it is closed"


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Return (JSON escapes of the characters that cannot be encoded, end of these characters)."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = (units[at : at + 2].hex() for at in range(0, len(units), 2))
    return "".join(f"\\u{pair}" for pair in pairs), error.end


codecs.register_error(_ESCAPE, _escape)


class _Output(io.FileIO):
    """Standard output. Its first failed write raises StoreError, and later writes do nothing.

    After a commit, a failed write raises nothing. Before a commit, BrokenPipeError is not replaced.
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
    """Standard error. A failed write raises nothing."""

    def write(self, data: Any) -> int:
        with suppress(OSError):
            return super().write(data)
        return len(data)


def _has_committed() -> bool:
    """Return whether this process committed to a catalog. Do not import the catalog for this."""
    commits = sys.modules.get("seglake.catalog.commits")
    return commits is not None and commits.COMMITTED.is_set()


@contextmanager
def checked_output() -> Iterator[None]:
    """Raise StoreError for a failed write to standard output inside the block.

    The block must end with SystemExit. Then the buffered output is written, and a failure raises
    StoreError even if a library has caught the first exception. If this process has committed, a
    failure is only one line on standard error. Characters that the encoding of standard output does
    not have are written as escapes. Closed standard streams are replaced.
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
        print(f"seglake: {raw.failure}. Everything that was committed is complete", file=sys.stderr)
        raise
    except BaseException:
        with suppress(OSError, StoreError):  # another error would hide the first one
            sys.stdout.flush()
        raise


def _replace_closed() -> None:
    """Open closed standard streams, so that no other file gets their descriptors.

    Standard output is opened for reading, so that a write to it still fails.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
        if number:
            by_line = 1 if name == "stderr" else -1
            stream = os.fdopen(number, "w", by_line, "utf-8", closefd=False)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def _text(raw: Any, like: Any) -> io.TextIOWrapper:
    """Return a text stream for a file, with the encoding and buffering of `like`."""
    is_strict = like.errors in ("strict", "surrogateescape")
    return io.TextIOWrapper(
        raw if like.write_through else io.BufferedWriter(raw),
        encoding=like.encoding,
        errors=_ESCAPE if is_strict else like.errors,
        line_buffering=like.line_buffering,
        write_through=like.write_through,
    )
