"""`seglake delete-records`: the oldest records of a log go, up to an offset or a time."""

# ruff: noqa: PLC0415  # a command imports when it runs; an option is an argument

from typing import Annotated

import typer

from seglake.cli.arguments.options import DryRun, Json, Root, Topic
from seglake.cli.lifecycle.log_starts import show_moves
from seglake.errors import UsageError


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
    from seglake.maintain.expiry.delete_records import delete_records as move_starts

    partitions = partition or []
    if before_offset is None and before_time is None:
        raise UsageError("what is to be deleted? give one of --before-offset and --before-time")
    if before_offset is not None and before_time is not None:
        raise UsageError("--before-offset does not go with --before-time: keep one")
    if before_offset is not None and len(partitions) != 1:
        raise UsageError("--before-offset needs one --partition: each has its own offsets")
    report = move_starts(
        root,
        topic,
        None if before_offset is None else {partitions[0]: before_offset},
        before_time=before_time,
        partitions=None if before_offset is not None or not partitions else partitions,
        dry_run=dry_run,
    )
    if json:
        print(report.as_json())
    else:
        show_moves([(topic, move) for move in report.moved], dry_run=dry_run)
