"""`seglake undo`: a run's records leave the topic."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from seglake.cli.arguments.options import DryRun, Json, Root, Topic
from seglake.cli.terminal.tables import Listing, show
from seglake.shown import counted, number

if TYPE_CHECKING:
    from seglake.maintain.undo import Undone


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
    from seglake.maintain.undo import undo as undo_run

    report = undo_run(root, topic, run_id, pipeline=pipeline, force=force, dry_run=dry_run)
    if json:
        print(report.as_json())
    elif report.status == "already done":
        print(
            f"run {run_id} is undone already: {counted(report.records, 'record')} gone, "
            f"{counted(report.files, 'input file')} free to be ingested again"
        )
    else:
        _tell(report, dry_run=dry_run)


def _tell(report: Undone, *, dry_run: bool) -> None:
    ranges = [
        {"partition": partition, "start": start, "end": end}
        for partition, spans in report.offsets.items()
        for start, end in spans
    ]
    columns = [number("partition", "partition"), number("start", "from"), number("end", "up to")]
    if ranges:
        show("offsets without records", Listing(columns, ranges), as_json=False)
    runs = ", ".join(report.runs)
    if dry_run:
        print(
            f"would undo {runs}: {counted(report.records, 'record')} in "
            f"{counted(report.segments, 'segment')}, {counted(report.files, 'input file')}"
        )
    else:
        print(
            f"version {report.version} has no record of {runs}: "
            f"{counted(report.records, 'record')} gone, "
            f"{counted(report.files, 'input file')} free to be ingested again"
        )
