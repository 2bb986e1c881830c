"""`seglake ingest` and `redrive`: show the steps of a run while it works, then its report."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seglake.cli.terminal.output import handled, log_lines
from seglake.cli.terminal.tables import Column, Rows, show
from seglake.extras import extra
from seglake.pace import told_every
from seglake.times.instants import format_ms

if TYPE_CHECKING:
    from seglake.config import Pipeline
    from seglake.maintain.replace import Replaces
    from seglake.write.driver.report import Report


def run(
    conf_file: Path,
    changes: Mapping[str, object],
    run_id: str | None,
    interval: tuple[str | None, str | None],
    replaces: Replaces,
    master: str | None,
    *,
    with_nothing: bool,
    as_json: bool,
) -> int:
    """Ingest, in the place of what `replaces` names. Returns the exit code."""
    from seglake.config import load

    given = (master, load(conf_file, changes), run_id, interval, replaces)
    report = ingest_on(*given, with_nothing=with_nothing)
    return _print_report(report, as_json=as_json)


def redrive(
    root: str,
    topic: str,
    run_id: str,
    conf_file: Path,
    master: str | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Ingest the open rejects of a run. Returns the exit code."""
    from seglake.config import load
    from seglake.errors import UsageError
    from seglake.write.api import redrive_run

    pipeline = load(conf_file, {"pipeline.root": root})
    if pipeline.topic.name != topic:
        raise UsageError(
            f"{conf_file} is for the topic {pipeline.topic.name!r}, not {topic!r}: correct one"
        )
    with on_spark() as progress:
        report = redrive_run(pipeline, run_id, dry_run=dry_run, progress=progress, master=master)
    return _print_report(report, as_json=as_json)


def _print_report(report: Report, *, as_json: bool) -> int:
    """Print a report. Returns its exit code."""
    if as_json:
        print(report.as_json())
    else:
        show_report(report.as_dict())
    return int(report.exit_code)


def ingest_on(
    master: str | None,
    pipeline: Pipeline,
    run_id: str | None,
    interval: tuple[str | None, str | None] = (None, None),
    replaces: Replaces = None,
    *,
    with_nothing: bool = False,
) -> Report:
    """Ingest with Spark on a master, by default this machine; show each step while it lasts."""
    from seglake.reporting.run import ingest_or_replace

    with on_spark() as progress:
        return ingest_or_replace(
            pipeline, replaces, run_id=run_id, interval=interval, with_nothing=with_nothing,
            progress=progress, master=master,
        )  # fmt: skip


@contextmanager
def on_spark() -> Iterator[Callable[[str], None]]:
    """Gives what `_steps` gives. A session that starts in the block is stopped at its end."""
    with extra("spark", "an ingest"):
        from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    try:
        with _steps() as progress:
            yield progress
    finally:
        started = SparkSession.getActiveSession()
        if running is None and started is not None:
            started.stop()  # if the JVM just ended, its Python workers could print tracebacks


def show_report(report: Mapping[str, Any]) -> None:
    """Print the report of a run as a table of two columns, without empty values."""
    print(report["summary"])
    rows = (
        {"name": name.replace("_", " "), "value": _text(name, value)}
        for name, value in report.items()
        if value not in ("", None, [], {}, 0, -1) and name != "summary"
    )
    columns = [Column("name", ""), Column("value", "", right=True)]
    show("ingest", Rows(columns, rows), as_json=False)


def _text(name: str, value: Any) -> str:
    if name.endswith("timestamp"):
        return format_ms(value)
    if isinstance(value, dict):
        return "\n".join(f"{key}: {_text('', item)}" for key, item in value.items())
    if isinstance(value, list):
        return f"{len(value):,} files" if name.endswith("files") else "\n".join(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


@contextmanager
def _steps() -> Iterator[Callable[[str], None]]:
    """A function that shows a step beside a spinner; without a terminal there are log lines."""
    from seglake.write.driver.report import silent

    if not sys.stderr.isatty():
        with log_lines():
            yield silent
        return
    from rich.console import Console

    with Console(stderr=True).status("starting Spark") as status:
        shown = _Shown(status.update)
        with handled(shown), told_every(1.0):
            yield shown.step


class _Shown(logging.Handler):
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
