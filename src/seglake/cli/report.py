"""`seglake report`: what a lake looks like, as alerts, as a page, as JSON."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from pathlib import Path
from typing import Annotated

import typer

from seglake.cli.arguments.options import Json, Root
from seglake.cli.terminal.output import complete_file
from seglake.cli.terminal.progress import step_display
from seglake.cli.terminal.tables import Listing, show
from seglake.shown import Column, counted, prose

_COLUMNS = [
    prose("topic", "topic", rank=1),
    Column("severity", "severity", rank=2),
    Column("kind", "alert", rank=3),
    prose("text", "what"),
    prose("help", "what helps"),
]


def report(
    root: Root,
    topic: Annotated[str | None, typer.Argument(help="One topic; without it all.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the page to this file.")
    ] = None,
    list_objects: Annotated[
        bool | None, typer.Option(help="Also list all objects, for what a vacuum would free.")
    ] = None,
    json: Json = False,
) -> None:
    """Show what a lake looks like: alerts here, with -o one page that needs no network.

    It is made from the catalog and zone maps; no record is read.
    """
    from seglake.cli.lifecycle.tags import tag_rows
    from seglake.reporting.alerts import once
    from seglake.reporting.report import report as lake_report

    with step_display("reading the catalog") as progress:
        made = lake_report(root, topic, list_objects=list_objects, progress=progress)
        if output is not None:
            progress(f"writing {output}")
            page = (made.as_json() if json else made.as_html()).encode()
    if output is not None:
        with complete_file(output) as file:
            file.write(page)
        alerts = counted(len(once(made.alerts)), "alert")
        typer.echo(f"{output}: {alerts}, {counted(len(page), 'byte')}")
    elif json:
        typer.echo(made.as_json())
    else:
        show("alerts", Listing(_COLUMNS, (alert._asdict() for alert in once(made.alerts))))
        if made.storage.tags:
            show("tags", tag_rows(made.storage.tags))
        typer.echo("-o report.html writes a page with charts.")
