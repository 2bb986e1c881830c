"""The commands of a topic's lifecycle, as `cli.app` has the others."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from pathlib import Path
from typing import Annotated

import typer

from seglake.cli.arguments.options import DryRun, Json, Partition, Root, Topic

lifecycle = typer.Typer()


@lifecycle.command()
def undo(
    root: Root,
    topic: Topic,
    run_id: Annotated[str, typer.Option(help="The run whose records leave.")],
    pipeline: Annotated[str | None, typer.Option(help="The pipeline of the run.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also if compaction has cleaned its offsets.")
    ] = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Take a run out of its topic: its records, redrives and rejects; its files come in again."""
    from seglake.cli.lifecycle import undo as command

    how = {"force": force, "dry_run": dry_run, "as_json": json}
    raise typer.Exit(command.run(root, topic, run_id, pipeline, **how))


@lifecycle.command()
def merge(
    root: Root,
    topic: Topic,
    partition: Partition = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Merge all that fits in one segment, for any gain.")
    ] = False,
    rebatch: Annotated[
        bool, typer.Option("--rebatch", help="Join small record batches up to batch.size, too.")
    ] = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Make few segments of many small neighbours; records, offsets and batches stay."""
    from seglake.cli.lifecycle import merge as command

    how = {"everything": everything, "rebatch": rebatch, "dry_run": dry_run, "as_json": json}
    raise typer.Exit(command.run(root, topic, partition, **how))


@lifecycle.command()
def describe(root: Root, topic: Topic, json: Json = False) -> None:
    """Show the settings of a topic, with their defaults."""
    from seglake.cli.lifecycle import settings

    settings.describe(root, topic, as_json=json)


@lifecycle.command()
def alter(
    root: Root,
    topic: Topic,
    given: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help=r"Settings of \[topic].")
    ] = None,
    delete: Annotated[
        list[str] | None, typer.Option(help="A setting that goes back to its default.")
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Change settings of a topic, from its next run and maintenance on."""
    from seglake.cli.lifecycle import settings

    how = {"dry_run": dry_run, "as_json": json}
    raise typer.Exit(settings.alter(root, topic, given or [], delete or [], **how))


@lifecycle.command()
def retain(
    root: Root,
    topic: Annotated[str | None, typer.Argument(help="One topic; default all.")] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Remove the oldest segments, as retention.ms and retention.bytes of each topic say."""
    from seglake.cli.lifecycle import retention

    raise typer.Exit(retention.retain(root, topic, dry_run=dry_run, as_json=json))


@lifecycle.command()
def delete_records(
    root: Root,
    topic: Topic,
    partition: Annotated[
        list[int] | None, typer.Option(help="Repeatable with --before-time; default all.")
    ] = None,
    before_offset: Annotated[
        int | None, typer.Option(help="Below this offset of one --partition; -1: all.")
    ] = None,
    before_time: Annotated[
        str | None, typer.Option(help="Before the first record of this time or later.")
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Delete the oldest records: the log then begins behind them."""
    from seglake.cli.lifecycle import retention

    asked = retention.Asked(partition or [], before_offset, before_time)
    raise typer.Exit(retention.delete_records(root, topic, asked, dry_run=dry_run, as_json=json))


@lifecycle.command()
def maintain(
    root: Root,
    topic: Annotated[str | None, typer.Argument(help="One topic; default all.")] = None,
    dry_run: DryRun = False,
    grace_hours: Annotated[float, typer.Option(help="Spare attempts younger than this.")] = 24.0,
    json: Json = False,
) -> None:
    """Do what the topics' settings ask for, and vacuum: what a schedule runs."""
    from seglake.cli.lifecycle import schedule

    how = {"dry_run": dry_run, "as_json": json}
    raise typer.Exit(schedule.maintain(root, topic, grace_hours, **how))


@lifecycle.command()
def compact(
    root: Root,
    topic: Topic,
    force: Annotated[
        bool, typer.Option("--force", help="Also log partitions with few or no dirty bytes.")
    ] = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Keep the latest record of each key, of a topic whose cleanup.policy has `compact`."""
    from seglake.cli.lifecycle import compact as command

    how = {"force": force, "dry_run": dry_run, "as_json": json}
    raise typer.Exit(command.run(root, topic, **how))


@lifecycle.command()
def erase(  # noqa: PLR0913, PLR0917  # each is an option
    root: Root,
    topic: Topic,
    key: Annotated[list[str] | None, typer.Option(help="A record key; base64:… for bytes.")] = None,
    keys_from: Annotated[Path | None, typer.Option(help="A file with a key in each line.")] = None,
    raw_containing: Annotated[
        str | None, typer.Option(help="Also rejected rows with this text.")
    ] = None,
    vacuum: Annotated[
        bool, typer.Option("--vacuum", help="Also delete the old objects that held them.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for attempts that run, and erase what they bring.")
    ] = False,
    dry_run: DryRun = False,
    grace_hours: Annotated[float, typer.Option(help="Younger attempts count as running.")] = 24.0,
    json: Json = False,
) -> None:
    """Erase record keys: their records, and rejected rows that have one.

    Exit code 1 if an attempt began meanwhile: erase again when it has ended, or with --wait.
    """
    from seglake.cli.lifecycle import erase as command

    what = command.What(key or [], keys_from, raw_containing)
    how = {"vacuum": vacuum, "wait": wait, "dry_run": dry_run, "as_json": json}
    raise typer.Exit(command.run(root, topic, what, grace_hours, **how))
