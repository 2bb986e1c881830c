"""The progress of work as a log line now and then: how much is done, how fast, and the time left.

A line is due 30 s after the work began, and every 30 s from then on. `line_every` changes the
interval, for a terminal that shows the lines as they come.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from seglake.terminal.wording import short_bytes

EVERY_S = 30.0
WAITED_S = 5.0
SOON_S = 2.0
_OF_TIME = 0.1  # of the time that work took so far

_every_s = EVERY_S


@contextmanager
def line_every(seconds: float) -> Iterator[None]:
    """In the block, a line is due every so many seconds."""
    global _every_s  # noqa: PLW0603  # one for the process, like its log
    before, _every_s = _every_s, seconds
    try:
        yield
    finally:
        _every_s = before


def interval_s() -> float:
    """Seconds between two lines."""
    return _every_s


@contextmanager
def waited(what: str, tell: Callable[[str], None]) -> Iterator[None]:
    """In the block, a thread gives `tell` a line such as "Spark starts, 10 s" each `WAITED_S`.

    It is for a wait that nobody can measure; a shorter interval between lines holds here, too.
    """
    begun = time.monotonic()

    def watch(over: threading.Event) -> None:
        while not over.wait(min(interval_s(), WAITED_S)):
            tell(f"{what}, {time.monotonic() - begun:.0f} s")

    with _beside(watch):
        yield


@contextmanager
def told_soon(what: str, tell: Callable[[str], None]) -> Iterator[None]:
    """`tell` gets a line about the block after `SOON_S`, unless the block has ended by then."""

    def watch(over: threading.Event) -> None:
        if not over.wait(min(interval_s(), SOON_S)):
            tell(what)

    with _beside(watch):
        yield


class Pace:
    """The pace of one piece of work; not for several threads at once.

    It is counted in `unit`, as "records" or "bytes of log". Bytes are shown as KiB, MiB and so on.
    """

    def __init__(self, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        of_bytes = unit.startswith("bytes")
        self._look = short_bytes if of_bytes else _number
        self._unit = unit.removeprefix("bytes") if of_bytes else f" {unit}"
        self._clock = clock
        self._begun = self._last_line = clock()

    def line(self, done: int, total: int) -> str | None:
        """A line about the work, if one is due: "3 of 12 MiB done, 0.1 MiB/s, 90 s left".

        Before any part of it is done, it says only how much there is to do, and the time.
        """
        now = self._clock()
        if now - self._last_line < interval_s():
            return None
        self._last_line = now
        return self.text(done, total)

    def text(self, done: int, total: int) -> str:
        """A line about the work, due or not."""
        spent = self._clock() - self._begun
        if not done:  # no unit of it is, and a rate of nothing would say that it stands still
            return f"{self._look(total)}{self._unit} to do, {_span(spent)} so far"
        rate = done / spent
        left = f", {_span((total - done) / rate)} left" if rate and done < total else ""
        amount = f"{self._look(done)} of {self._look(total)}{self._unit}"
        return f"{amount} done, {self._look(rate)}/s{left}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@contextmanager
def watched(
    unit: str, total: int, done: Callable[[], int], tell: Callable[[str], None]
) -> Iterator[None]:
    """In the block, a thread calls `done` now and then, and gives `tell` each line that is due.

    If `done` raises, no further line comes; the work goes on.
    """

    def watch(over: threading.Event) -> None:
        pace = Pace(unit)
        while not over.wait(interval_s()):
            try:
                line = pace.line(done(), total)
            except Exception:  # whatever the watched work's library raises
                return
            if line:
                tell(line)

    with _beside(watch):
        yield


@contextmanager
def told_in_time(
    done: Callable[[], int], line: Callable[[int], str], tell: Callable[[str], None]
) -> Iterator[None]:
    """In the block, a thread gives `tell` the `line` of what is `done`, if it is more than before.

    The first time is `SOON_S` after the beginning. Lines come seldom in long work: after a tenth of
    the time so far.
    """

    def watch(over: threading.Event) -> None:
        before, begun = 0, time.monotonic()
        while not over.wait(max(SOON_S, (time.monotonic() - begun) * _OF_TIME)):
            now = done()
            if now > before:
                tell(line(now))
            before = now

    with _beside(watch):
        yield


@contextmanager
def _beside(watch: Callable[[threading.Event], None]) -> Iterator[None]:
    """In the block, a thread watches, until the event that it gets is set."""
    over = threading.Event()
    thread = threading.Thread(target=watch, args=(over,), name="seglake pace", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=1)
