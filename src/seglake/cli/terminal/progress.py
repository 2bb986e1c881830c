"""How far a command is: a bar or a spinner in a terminal, log lines elsewhere."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from seglake.cli.terminal.interrupt import tell_stopped
from seglake.cli.terminal.output import handled, log_lines
from seglake.cli.terminal.waiting import sign_of_life
from seglake.extras import extra
from seglake.terminal.progress import interval_s, line_every
from seglake.terminal.wording import short_bytes

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from seglake.cli.terminal.job import Job

_Batch = TypeVar("_Batch")
_OF_CUT_CALLS = " while sending command.", " while shutting down connection"


@contextmanager
def bar(what: str, job: Job | None = None) -> Iterator[Callable[[int, int], None]]:
    """A function of (bytes done, bytes in all) that shows progress: as a bar, or as log lines.

    The bar goes away in the end: what the command prints says what was done.
    """
    from seglake.log.tasks import logged

    if job is not None:
        yield logged
        return
    if not sys.stderr.isatty():
        with log_lines():
            yield logged
        return
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    columns = TextColumn(what), *byte_columns()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def byte_columns() -> list[ProgressColumn]:
    """A bar of bytes, how many they are, how many a second, and the time left."""
    from rich.progress import BarColumn, DownloadColumn, ProgressColumn, Task, TimeRemainingColumn
    from rich.text import Text

    class Speed(ProgressColumn):  # rich's own has units of 1,000
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            shown = "?" if speed is None else f"{short_bytes(int(speed))}/s"
            return Text(shown, style="progress.data.speed")

    return [BarColumn(), DownloadColumn(binary_units=True), Speed(), TimeRemainingColumn()]


@contextmanager
def counted(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function of (done, in all) that shows a bar; without a terminal, lines now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        if console.is_terminal:
            yield lambda done, total: progress.update(task, completed=done, total=total)
            return
        console.print(f"{what} …")
        tell = _now_and_then()

        def count(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)
            if done < total:
                tell(f"{what}: {done} of {total}")

        yield count
    console.print(f"{what}: {progress.tasks[0].completed:.0f} are ready")


@contextmanager
def on_spark(job: Job | None = None) -> Iterator[Callable[[str], None]]:
    """A function that tells of a step. A session that the program starts in the block ends with it.

    If its JVM ended only with the process, Python workers could print tracebacks.
    """
    if job is not None:  # the session is spark-submit's
        yield job.tell
        return
    with extra("spark", "an ingest without --local"):
        from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    try:
        with _told_if_stopped(), _no_py4j_traces(), _steps() as progress:
            yield progress
    finally:
        started = SparkSession.getActiveSession()
        if running is None and started is not None:
            with _told_if_stopped(), _no_py4j_traces():
                started.stop()


@contextmanager
def in_threads(job: Job | None = None) -> Iterator[Callable[[str], None]]:
    """A function that tells of a step of work in this process."""
    if job is not None:
        yield job.tell
        return
    with _told_if_stopped(), _steps() as progress:
        yield progress


@contextmanager
def _no_py4j_traces() -> Iterator[None]:
    """In the block, Py4J logs no traceback of a call that Ctrl-C cuts: it raises an error, too."""

    def other(record: logging.LogRecord) -> bool:
        return not record.getMessage().endswith(_OF_CUT_CALLS)

    loggers = [logging.getLogger(name) for name in (None, "py4j.clientserver")]
    for logger in loggers:
        logger.addFilter(other)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(other)


@contextmanager
def _told_if_stopped() -> Iterator[None]:
    """Say on standard error what Ctrl-C in the block leaves."""
    try:
        yield
    except KeyboardInterrupt:
        tell_stopped(
            "nothing is half done: run it again, with the same run id if it had one, and what was "
            "not committed is ingested then"
        )
        raise


@contextmanager
def _steps() -> Iterator[Callable[[str], None]]:
    """A function that shows a step beside a spinner; without a terminal there are log lines."""
    from seglake.write.driver.report import silent

    if not sys.stderr.isatty():
        with log_lines():
            yield silent
        return
    from rich.console import Console

    with Console(stderr=True).status("reading the settings") as status:
        spinner = _Spinner(status.update)
        with handled(spinner), line_every(1.0):
            yield spinner.step


@contextmanager
def step_display(first: str) -> Iterator[Callable[[str], None]]:
    """A function that shows a step of a look at a lake; `first` is shown until then.

    A step has a spinner; without a terminal, one that begins has a line if none came for a while.
    """
    if not sys.stderr.isatty():
        yield _now_and_then()
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(first) as status:
        yield lambda step: status.update(Text(step))


def awaited(batches: Iterable[_Batch], what: str) -> Iterator[_Batch]:
    """The batches; on a terminal `what` is shown until the first one comes, and in long waits."""
    left = iter(batches)
    with step_display(what):
        batch = next(left, None)
    while batch is not None:
        yield batch
        with sign_of_life(what):
            batch = next(left, None)


def _now_and_then() -> Callable[[str], None]:
    """A function that prints a text, unless one came in the last `interval_s`."""
    last_line_s = time.monotonic()

    def tell(text: str) -> None:
        nonlocal last_line_s
        if time.monotonic() >= last_line_s + interval_s():
            last_line_s = time.monotonic()
            print(text, file=sys.stderr)

    return tell


class _Spinner(logging.Handler):
    """Shows the name of a step, how far its tasks are, and the time left."""

    def __init__(self, update: Callable[[str], None]) -> None:
        super().__init__()
        self._update, self._step = update, ""

    def step(self, name: str) -> None:
        """Show that a step begins."""
        self._step = name
        self._update(name)

    def emit(self, record: logging.LogRecord) -> None:
        """Show how far the engine is."""
        self._update(f"{self._step}: {record.getMessage()}")
