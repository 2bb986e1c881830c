"""Format lines of progress with the amount done, the rate, and the time left.

By default, a line is due every 30 s. `line_every` changes the interval, for example for a terminal.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from seglake.terminal.wording import short_bytes

EVERY_S = 30.0
WAITED_S = 5.0

_every_s = EVERY_S


@contextmanager
def line_every(seconds: float) -> Iterator[None]:
    """Set the interval between two lines of progress in this process, inside the block."""
    global _every_s  # noqa: PLW0603  # one interval for the process, like its log
    before, _every_s = _every_s, seconds
    try:
        yield
    finally:
        _every_s = before


def interval_s() -> float:
    """Return the interval between two lines of progress in seconds."""
    return _every_s


@contextmanager
def periodically(call: Callable[[], None], every_s: float = EVERY_S) -> Iterator[None]:
    """Call a function in a thread every `every_s`, or at the interval of `line_every` if shorter.

    The thread ends with the block. If the function raises, it is not called again.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(min(every_s, _every_s)):
            try:
                call()
            # The libraries that do the work may raise any exception.
            except Exception:
                return

    thread = threading.Thread(target=watch, name="seglake progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=1)


@contextmanager
def report_wait(what: str, tell: Callable[[str], None]) -> Iterator[None]:
    """In the block, call `tell` every `WAITED_S` seconds with a line like "Spark starts, 10 s"."""
    begun = time.monotonic()
    with periodically(lambda: tell(f"{what}, {time.monotonic() - begun:.0f} s"), WAITED_S):
        yield


class Pace:
    """Formats the progress of one piece of work, which is counted in `unit`. Not thread-safe.

    A unit is, for example, "records" or "bytes of log". Bytes are shown as KiB, MiB and so on.
    """

    def __init__(self, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        of_bytes = unit.startswith("bytes")
        self._format = short_bytes if of_bytes else _number
        self._unit = unit.removeprefix("bytes") if of_bytes else f" {unit}"
        self._clock = clock
        self._begun = self._last_line = clock()

    def line(self, done: int, total: int) -> str | None:
        """Return a line, such as "3 of 12 MiB done, 0.1 MiB/s, 90 s left", or None if not due."""
        now = self._clock()
        if now - self._last_line < interval_s():
            return None
        self._last_line = now
        return self.text(done, total)

    def text(self, done: int, total: int) -> str:
        """Return a line about the work. If `done` is 0, the line has no rate."""
        spent = self._clock() - self._begun
        # A rate of 0 would look as if the work had stopped.
        if not done:
            return f"{self._format(total)}{self._unit} to do, {_span(spent)} so far"
        rate = done / spent
        left = f", {_span((total - done) / rate)} left" if rate and done < total else ""
        amount = f"{self._format(done)} of {self._format(total)}{self._unit}"
        return f"{amount} done, {self._format(rate)}/s{left}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
