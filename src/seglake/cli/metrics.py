"""`seglake metrics`: the figures of a lake as Prometheus text."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from pathlib import Path
from typing import Annotated

import typer

from seglake.cli.arguments.options import Root
from seglake.errors import UsageError


def metrics(
    root: Root,
    topic: Annotated[str | None, typer.Argument(help="One topic; without it all.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file, replaced as a whole.")
    ] = None,
    push: Annotated[str | None, typer.Option(help="The URL of a Prometheus push gateway.")] = None,
) -> None:
    """Print the figures of a lake as Prometheus text, write them to a file, or push them."""
    from seglake.reporting import metrics as exported
    from seglake.reporting.report import report

    if output is not None and push is not None:
        raise UsageError("--output contradicts --push: keep one")
    figures = report(root, topic, list_objects=False)
    if output is not None:
        exported.write_file(figures, output)
    elif push is not None:
        exported.push(figures, push)
    else:
        typer.echo(exported.text(figures), nl=False)
