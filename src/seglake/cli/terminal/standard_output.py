"""Standard output that cannot be written, as on a full disk, ends a command with one line."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from seglake.errors import StoreError


class _Output(io.FileIO):
    """A file whose first failed write is a StoreError; the rest goes nowhere, as no one gets it.

    A reader that has gone is none: its BrokenPipeError has an end of its own.
    """

    failure: StoreError | None = None

    def write(self, data: Any) -> int:
        if self.failure is not None:
            return len(data)
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            self.failure = StoreError(f"standard output: {error.strerror or error}")
            raise self.failure from error


@contextmanager
def checked_output() -> Iterator[None]:
    """In the block, which ends by SystemExit, a failed write of standard output is a StoreError.

    So it is at its end, where the last bytes are written, and where a library has caught it.
    """
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
        if raw.failure is not None:
            raise raw.failure from None
        raise
    except BaseException:
        with suppress(OSError, StoreError):  # it would hide the first error
            sys.stdout.flush()
        raise


def _text(raw: Any, like: Any) -> io.TextIOWrapper:
    """The text above a file, with the encoding and the buffer of another text."""
    return io.TextIOWrapper(
        raw if like.write_through else io.BufferedWriter(raw),
        encoding=like.encoding,
        errors=like.errors,
        line_buffering=like.line_buffering,
        write_through=like.write_through,
    )
