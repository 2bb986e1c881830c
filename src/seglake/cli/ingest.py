"""`seglake ingest`: the job's one call, its steps shown while it works, its report at the end."""

# ruff: noqa: PLC0415  # what is imported where it is used is not needed by every command

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seglake.cli.show import Column, Rows, show
from seglake.times.instants import format_ms

if TYPE_CHECKING:
    from seglake.config import Pipeline
    from seglake.write.driver.report import Report


def run(
    conf_file: Path,
    changes: Mapping[str, object],
    run_id: str | None,
    interval: tuple[str | None, str | None],
    *,
    as_json: bool,
) -> int:
    """Ingest; returns the exit code."""
    from seglake.config import load

    report = ingest_here(load(conf_file, changes), run_id, interval)
    if as_json:
        print(report.as_json())
    else:
        show_report(report.as_dict())
    return int(report.exit_code)


def ingest_here(
    pipeline: Pipeline, run_id: str | None, interval: tuple[str | None, str | None] = (None, None)
) -> Report:
    """Ingest with Spark on this machine; each step is shown while it lasts."""
    from pyspark.sql import SparkSession

    from seglake.write.api import run_pipeline

    running = SparkSession.getActiveSession()
    try:
        with _steps() as progress:
            return run_pipeline(pipeline, run_id=run_id, interval=interval, progress=progress)
    finally:
        started = SparkSession.getActiveSession()
        if running is None and started is not None:
            started.stop()  # where the JVM just ends, its Python workers may print tracebacks


def show_report(report: Mapping[str, Any]) -> None:
    """What a run did, as a table of two columns."""
    told = {name: value for name, value in report.items() if value not in ("", None, [], {}, 0, -1)}
    rows = (
        {"name": name.replace("_", " "), "value": _text(name, value)}
        for name, value in told.items()
    )
    columns = [Column("name", ""), Column("value", "", right=True)]
    show("ingest", Rows(columns, rows), as_json=False)


def _text(name: str, value: Any) -> str:
    if name.endswith("timestamp"):
        return format_ms(value)
    if isinstance(value, dict):
        return "\n".join(f"{key}: {_text('', item)}" for key, item in value.items())
    if isinstance(value, list):
        return f"{len(value):,} files"
    return f"{value:,}" if isinstance(value, int) else str(value)


@contextmanager
def _steps() -> Iterator[Callable[[str], None]]:
    """What tells of each step: a spinner on a terminal, else nothing."""
    from seglake.write.driver.report import silent

    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console

    with Console(stderr=True).status("starting Spark") as status:
        yield status.update
