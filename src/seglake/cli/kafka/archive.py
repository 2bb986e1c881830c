"""`seglake archive`, also the job: takes what is new in topics of a broker into the lake."""

# ruff: noqa: PLC0415, PLR0913, PLR0917  # a command imports when it runs; an option is an argument

from pathlib import Path
from typing import Annotated

import typer

from seglake.cli.arguments.options import Json, Master, Root, RunId
from seglake.cli.terminal.progress import on_spark
from seglake.cli.terminal.tables import Listing, show


def archive(
    context: typer.Context,
    root: Root,
    topic: Annotated[
        list[str],
        typer.Argument(
            metavar="topics", help="Topics of the broker; NAME:TOPIC renames one in the lake."
        ),
    ],
    bootstrap: Annotated[str, typer.Option(help="Servers of the broker: HOST:PORT,…")],
    kafka: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE for Kafka's clients; repeatable.")
    ] = None,
    kafka_file: Annotated[
        Path | None, typer.Option(help="A properties file with more of them.")
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(help="A consumer group whose committed offsets are kept, too; repeatable."),
    ] = None,
    run_id: RunId = None,
    quarantine: Annotated[
        bool,
        typer.Option("--quarantine", help="Records that cannot be archived go to the quarantine."),
    ] = False,
    master: Master = None,
    json: Json = False,
) -> None:
    """Archive what is new in topics of a broker, with Spark; offsets stay."""
    from seglake.config.client_settings import client_settings
    from seglake.write.live import archive as work

    options = {**client_settings(kafka or [], kafka_file), "bootstrap.servers": bootstrap}
    with on_spark(context.obj) as progress:
        report = work.archive(
            root,
            topic,
            options,
            groups=group or [],
            run_id=run_id,
            quarantine=quarantine,
            master=master,
            progress=progress,
        )
    if json:
        print(report.as_json())
    else:
        show("archive", Listing(work.ARCHIVED, report.as_dict()["topics"]))
    raise typer.Exit(report.exit_code)
