"""`seglake archive`: take what is new in topics of a broker into the lake."""

# ruff: noqa: PLC0415  # as in `app`

from pathlib import Path
from typing import Annotated

import typer

from seglake.cli.arguments.options import Json, Master, Root
from seglake.cli.terminal.tables import Column, Rows, show

live = typer.Typer(add_completion=False)


@live.command()
def archive(
    root: Root,
    topics: Annotated[
        list[str], typer.Argument(help="Topics of the broker; NAME:TOPIC renames one in the lake.")
    ],
    bootstrap: Annotated[str, typer.Option(help="Servers of the broker: HOST:PORT,…")],
    kafka: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE for Kafka's clients; repeatable.")
    ] = None,
    kafka_file: Annotated[
        Path | None, typer.Option(help="A properties file with more of them.")
    ] = None,
    run_id: Annotated[str | None, typer.Option(help="Makes a repeated run the same run.")] = None,
    quarantine: Annotated[
        bool,
        typer.Option("--quarantine", help="Records that cannot be archived go to the quarantine."),
    ] = False,
    master: Master = None,
    json: Json = False,
) -> None:
    """Archive what is new in topics of a broker, with Spark; offsets stay."""
    from seglake.cli.ingest import on_spark
    from seglake.config.properties import client_settings
    from seglake.write.live import archive as work

    options = {**client_settings(kafka or [], kafka_file), "bootstrap.servers": bootstrap}
    with on_spark() as progress:
        report = work.archive(
            root,
            topics,
            options,
            run_id=run_id,
            quarantine=quarantine,
            master=master,
            progress=progress,
        )
    if json:
        print(report.as_json())
    else:
        names = {"kafka_topic": "kafka topic", "topic": "topic", "summary": "result"}
        columns = [Column(name, title) for name, title in names.items()]
        show("archive", Rows(columns, report.as_dict()["topics"]), as_json=False)
    raise typer.Exit(report.exit_code)
