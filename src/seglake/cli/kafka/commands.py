"""The commands that exchange logs with Kafka brokers, as `cli.app` has the others."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from typing import Annotated

import typer

from seglake.cli.arguments.options import DryRun, Json, Root, Topic, Version, Zone

broker = typer.Typer()


Into = Annotated[str, typer.Option(help="The lake: a path or a URI; a new one is made.")]
OneTopic = Annotated[
    str | None, typer.Option(help="Only this topic; default all but the internal ones.")
]
Name = Annotated[str | None, typer.Option(help="The name of the one topic in the lake.")]


@broker.command("import")
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
    from seglake.cli.kafka import logs
    from seglake.kafka.importing import import_logs

    how = {"topic": topic, "name": name, "dry_run": dry_run}
    raise typer.Exit(logs.take_in(import_logs, root, sources, how, as_json=json))


@broker.command()
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
    from seglake.cli.kafka import logs
    from seglake.kafka.attach import attach_logs

    how = {"topic": topic, "name": name, "dry_run": dry_run}
    raise typer.Exit(logs.take_in(attach_logs, root, sources, how, as_json=json))


@broker.command()
def export(
    root: Root,
    topic: Topic,
    dest: Annotated[str, typer.Argument(help="An empty folder: a path or a URI.")],
    start: Annotated[str | None, typer.Option(help="Only from this time on.")] = None,
    end: Annotated[str | None, typer.Option(help="Only up to this time, exclusive.")] = None,
    zone: Zone = None,
    topic_id: Annotated[
        str | None, typer.Option(help="The topic's id on the broker, for partition.metadata.")
    ] = None,
    version: Version = None,
    json: Json = False,
) -> None:
    """Write a topic as partition folders that a broker mounts, every record at its offset."""
    from seglake.cli.arguments.times import absolute
    from seglake.cli.kafka import logs

    window = {"start": absolute(start, zone), "end": absolute(end, zone)}
    how = {**window, "topic_id": topic_id, "version": version}
    raise typer.Exit(logs.write(root, topic, dest, how, as_json=json))
