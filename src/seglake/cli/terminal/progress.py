"""Show the progress of a command: a bar on a terminal, otherwise a line every 30 s."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from seglake.cli.terminal.frame import print_stopped
from seglake.cli.terminal.output import handled, log_lines
from seglake.extras import extra
from seglake.terminal.progress import Pace, interval_s, line_every

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.table import Table


_SILENCE_S = 1.0  # time without output after which a command shows a sign of life
# The ends of the lines that Py4J logs about calls that Ctrl-C interrupts.
_OF_CUT_CALLS = " while sending command.", " while shutting down connection"

_log = logging.getLogger(__name__)


class Job(NamedTuple):
    """The `obj` of a command's context if the command runs as a job. The program sets no `obj`."""

    name: str

    def session(self) -> SparkSession:
        """Return the Spark session of spark-submit. Raises ConfigError without a session."""
        from seglake.session import spark_session

        return spark_session(f"seglake {self.name}")

    def log(self, step: str) -> None:
        """Log a step of the work."""
        logging.getLogger(f"seglake.{self.name}").info("%s", step)


class Display(logging.Handler):
    """A log handler that shows the step of a command, with its progress or the newest log line.

    `draw` is called with a line, the amount that is done, and the total or None. `spark` is the
    session of a job.
    """

    def __init__(self, step: str, unit: str, draw: Callable[[str, int, int | None], None]) -> None:
        super().__init__()
        self._step, self._draw, self._pace = step, draw, Pace(unit)
        self.spark: SparkSession | None = None

    def step(self, name: str) -> None:
        """Show the name of a step that begins."""
        self._step = name
        self._draw(name, 0, None)

    def amount(self, done: int, total: int) -> None:
        """Show how much of the step is done."""
        self._draw(f"{self._step}: {self._pace.text(done, total)}", done, total)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a log line next to the step."""
        self._draw(f"{self._step}: {record.getMessage()}", 0, None)


@contextmanager
def display(
    step: str, job: Job | None = None, *, unit: str = "bytes of log", logs: bool = False
) -> Iterator[Display]:
    """Show a step and later steps on standard error. Remove the bar when the block ends.

    Without a terminal, print at most one line per `interval_s()` seconds. A job logs these lines.
    With `logs`, a terminal also shows log lines about progress. Raises ConfigError for a job
    without a Spark session.
    """
    if job is not None:
        shown = Display(step, unit, _when_due(partial(_log.info, "%s")))
        shown.spark = job.session()
        yield shown
        return
    if not sys.stderr.isatty():
        with log_lines():
            yield Display(step, unit, _when_due(partial(print, file=sys.stderr)))
        return
    from rich.console import Console
    from rich.live import Live

    with Live(_bar(step), console=Console(stderr=True), transient=True) as live:
        shown = Display(step, unit, lambda *what: live.update(_bar(*what)))
        with ExitStack() as stack:
            if logs:
                stack.enter_context(handled(shown))
                stack.enter_context(line_every(1.0))
            yield shown


def _bar(line: str, done: int = 0, total: int | None = None) -> Table:
    """Return a line with a bar, which moves back and forth if the total is unknown."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    row = Table.grid(padding=(0, 1))
    row.add_row(Text(line), ProgressBar(total, done, width=20))
    return row


def _when_due(tell: Callable[[str], None]) -> Callable[[str, int, int | None], None]:
    """Return a function that passes lines to `tell`, at most one per `interval_s()` seconds."""
    last_s = time.monotonic()

    def draw(line: str, _done: int, _total: int | None) -> None:
        nonlocal last_s
        if time.monotonic() >= last_s + interval_s():
            last_s = time.monotonic()
            tell(line)

    return draw


@contextmanager
def steps(job: Job | None = None, *, local: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a step of a run. The run uses Spark unless it is `local`.

    A Spark session that starts in the block ends with it. If its JVM ended only with the process,
    Python workers could print tracebacks.
    """
    if job is not None:  # spark-submit owns the session
        yield job.log
        return
    try:
        own = nullcontext() if local else _own_session()
        with own, display("reading the settings", logs=True) as shown:
            yield shown.step
    except KeyboardInterrupt:
        print_stopped(
            "Nothing is half done. To finish, run the command again, with the same run id if it "
            "had one"
        )
        raise


@contextmanager
def _own_session() -> Iterator[None]:
    """Stop a Spark session that the block starts. Hide Py4J's log of calls that Ctrl-C interrupts.

    These calls also raise errors.
    """
    with extra("spark", "an ingest without --local"):
        from pyspark.sql import SparkSession

    def other(record: logging.LogRecord) -> bool:
        return not record.getMessage().endswith(_OF_CUT_CALLS)

    running = SparkSession.getActiveSession()
    loggers = [logging.getLogger(name) for name in (None, "py4j.clientserver")]
    for logger in loggers:
        logger.addFilter(other)
    try:
        yield
    finally:
        started = SparkSession.getActiveSession()
        if running is None and started is not None:
            started.stop()
        for logger in loggers:
            logger.removeFilter(other)


@contextmanager
def sign_of_life(what: str) -> Iterator[None]:
    """Show `what` on a terminal if the block has written nothing after a second.

    A write to standard output or standard error removes it, and it does not appear again.
    """
    if not sys.stderr.isatty():
        yield
        return
    out, err, lock, shown = sys.stdout, sys.stderr, Lock(), ExitStack()
    is_over = False

    def begin() -> None:
        from rich.console import Console
        from rich.live import Live

        with lock:
            if not is_over:
                bar = Live(
                    _bar(what), console=Console(file=err), transient=True,
                    redirect_stdout=False, redirect_stderr=False,
                )  # fmt: skip
                shown.enter_context(bar)

    def end() -> None:
        nonlocal is_over
        timer.cancel()
        with lock:
            is_over = True
            shown.close()

    timer = Timer(_SILENCE_S, begin)
    timer.daemon = True
    timer.start()
    streams: list[Any] = [_Watched(stream, end) for stream in (out, err)]
    sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        end()
        sys.stdout, sys.stderr = out, err


class _Watched:
    """A stream that calls a function before anything is written to it."""

    def __init__(self, stream: TextIO, before: Callable[[], None]) -> None:
        self._stream, self._before = stream, before

    def write(self, text: str) -> int:
        """Call the function, then write to the stream."""
        self._before()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        if name in ("buffer", "writelines"):
            self._before()
        return getattr(self._stream, name)
