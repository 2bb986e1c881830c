"""`seglake attach`: logs of tiered storage are read where they are."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from typing import Annotated

import typer

from seglake.cli.arguments.options import DryRun, Json
from seglake.cli.kafka.logs import Into, Name, OneTopic, take_in


def attach(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="A folder of a bucket of Kafka's tiered storage."),
    ],
    root: Into,
    topic: OneTopic = None,
    name: Name = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Read logs where tiered storage put them, without a copy; again, only what is new."""
    from seglake.kafka.attach import attach_logs

    how = {"topic": topic, "name": name, "dry_run": dry_run}
    raise typer.Exit(take_in(attach_logs, root, sources, how, as_json=json))
