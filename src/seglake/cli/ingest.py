"""`seglake ingest`: the job's one call, its steps shown while it works, its report at the end."""

# ruff: noqa: PLC0415  # what is imported where it is used is not needed by every command

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seglake.cli.show import Column, Rows, show
from seglake.instants import format_ms


def run(
    conf_file: Path,
    changes: Mapping[str, object],
    run_id: str | None,
    interval: tuple[int, int] | None,
    *,
    as_json: bool,
) -> int:
    """Ingest; returns the exit code."""
    from seglake.config import load
    from seglake.ingest.api import run_pipeline

    pipeline = load(conf_file, changes)
    with steps() as progress:
        report = run_pipeline(pipeline, run_id=run_id, interval=interval, progress=progress)
    if as_json:
        print(report.as_json())
    else:
        show_report(report.as_dict())
    return int(report.exit_code)


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
def steps() -> Iterator[Callable[[str], None]]:
    """What tells of each step: a spinner on a terminal, else nothing."""
    if not sys.stderr.isatty():
        yield lambda _step: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting Spark") as status:
        yield status.update
