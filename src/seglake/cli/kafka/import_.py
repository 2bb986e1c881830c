"""`seglake import`: logs of a broker become those of a lake."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from typing import Annotated

import typer

from seglake.cli.arguments.options import DryRun, Json
from seglake.cli.kafka.logs import Into, Name, OneTopic, take_in


def import_(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...", help="A log.dir, a folder topic-partition, or a tiered bucket."
        ),
    ],
    root: Into,
    topic: OneTopic = None,
    name: Name = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Import logs of a stopped broker or of a copy: offsets stay; later calls add what is new."""
    from seglake.kafka.importing import import_logs

    how = {"topic": topic, "name": name, "dry_run": dry_run}
    raise typer.Exit(take_in(import_logs, root, sources, how, as_json=json))
