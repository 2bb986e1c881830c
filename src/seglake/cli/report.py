"""`seglake report` and `metrics`: what a lake looks like, as a page, as JSON, as metrics."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

from pathlib import Path

import typer

from seglake.cli.terminal.output import complete_file
from seglake.cli.terminal.tables import Column, Rows, show
from seglake.errors import UsageError

_COLUMNS = [
    Column("topic", "topic"),
    Column("severity", "severity"),
    Column("kind", "alert"),
    Column("text", "what"),
    Column("help", "what helps"),
]


def report(
    root: str, topic: str | None, output: Path | None, *, list_objects: bool | None, as_json: bool
) -> None:
    """Write the page to `output`, or JSON there or to standard output; else show the alerts."""
    from seglake.reporting.report import report as made

    found = made(root, topic, list_objects=list_objects)
    if output is not None:
        text = found.as_json() if as_json else found.as_html()
        with complete_file(output) as file:
            file.write(text.encode())
        typer.echo(f"{output}: {len(found.alerts)} alerts, {len(text):,} bytes")
    elif as_json:
        typer.echo(found.as_json())
    else:
        show("alerts", Rows(_COLUMNS, (alert._asdict() for alert in found.alerts)))
        typer.echo("-o report.html writes a page with charts.")


def metrics(root: str, topic: str | None, output: Path | None, push: str | None) -> None:
    """Write metrics as Prometheus text to `output`, push them, or print them."""
    from seglake.reporting import metrics as exported
    from seglake.reporting.report import report as made

    if output is not None and push is not None:
        raise UsageError("--output contradicts --push: keep one")
    found = made(root, topic, list_objects=False)
    if output is not None:
        exported.write_file(found, output)
    elif push is not None:
        exported.push(found, push)
    else:
        typer.echo(exported.text(found), nl=False)
