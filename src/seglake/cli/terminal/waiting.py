"""A sign of life while a command has nothing to say yet."""

# ruff: noqa: PLC0415  # rich takes time to import

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.live import Live

_AFTER_S = 1.0


@contextmanager
def sign_of_life(what: str) -> Iterator[None]:
    """In the block, show `what` beside a spinner, on a terminal, until something is written.

    It comes after a second. Whatever is written to standard output or standard error ends it.
    """
    if not sys.stderr.isatty():
        yield
        return
    spinner, out, err = _Spinner(what, sys.stderr), sys.stdout, sys.stderr
    heard: list[Any] = [_Heard(stream, spinner.end) for stream in (out, err)]
    sys.stdout, sys.stderr = heard
    try:
        yield
    finally:
        spinner.end()
        sys.stdout, sys.stderr = out, err


class _Spinner:
    """A spinner that begins in a while, unless it ends before."""

    def __init__(self, what: str, file: TextIO) -> None:
        self._what, self._file = what, file
        self._lock, self._is_over = Lock(), False
        self._live: Live | None = None
        self._timer = Timer(_AFTER_S, self._begin)
        self._timer.daemon = True
        self._timer.start()

    def _begin(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        with self._lock:
            if self._is_over:
                return
            self._live = Live(
                Spinner("dots", self._what), console=Console(file=self._file), transient=True,
                redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self._live.start()

    def end(self) -> None:
        """Take it away, if it is there, for good."""
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            if self._live is not None:
                self._live.stop()
                self._live = None


class _Heard:
    """A stream; `heard` is called before anything is written to it."""

    def __init__(self, stream: TextIO, heard: Callable[[], None]) -> None:
        self._stream, self._heard = stream, heard

    def write(self, text: str) -> int:
        """As the stream does."""
        self._heard()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        if name in ("buffer", "writelines"):
            self._heard()
        return getattr(self._stream, name)
