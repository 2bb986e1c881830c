"""Ctrl-C ends a command with one line and exit code 130, at whatever moment it comes.

Python swallows the exception of a Ctrl-C that comes in a finalizer or a callback of C, as there are
many while libraries are imported and compiled: it prints it, and goes on. Here it comes again.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from seglake.cli.terminal.errors import tell_error

EXIT_CODE = 130  # as shells have it: 128 + SIGINT
_AGAIN_S = 0.05  # by then the finalizer is over

_is_printed = False


def tell_stopped(more: str = "") -> None:
    """Say on standard error that the command is stopped, and what that leaves; only once."""
    global _is_printed  # noqa: PLW0603  # one for the process, which ends
    if not _is_printed:
        _is_printed = True
        tell_error("Stopped", f"stopped{more and f'; {more}'}", EXIT_CODE)


@contextmanager
def ends_by_interrupt() -> Iterator[None]:
    """In the block, a program runs that Ctrl-C ends with a line and `EXIT_CODE`."""
    shown, sys.unraisablehook = sys.unraisablehook, _again
    try:
        yield
    except KeyboardInterrupt:
        _end()
    except SystemExit as end:  # a command has made it of the interrupt
        if end.code == EXIT_CODE:
            _end()
        raise
    finally:
        sys.unraisablehook = shown


def _end() -> None:
    tell_stopped()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second one ends what threads still do
    sys.exit(EXIT_CODE)


def _again(swallowed: Any) -> None:
    """Let a Ctrl-C come again that was swallowed; show any other exception as Python does."""
    if not issubclass(swallowed.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(swallowed)
        return
    timer = threading.Timer(_AGAIN_S, _interrupt_main)
    timer.daemon = True
    timer.start()


def _interrupt_main() -> None:
    """Send the signal to the main thread, whose system call it ends."""
    main = threading.main_thread().ident
    if main is not None:
        signal.pthread_kill(main, signal.SIGINT)
