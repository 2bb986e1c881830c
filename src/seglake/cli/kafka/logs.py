"""`seglake import` and `seglake attach`: logs of a broker come in, as copies or where they are."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import json as json_text
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from seglake.cli.arguments.options import DryRun, Json
from seglake.cli.terminal.progress import bar
from seglake.cli.terminal.tables import Listing, show
from seglake.shown import Column, counted, number, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from seglake.kafka.importing import Imported

_IMPORTED = [
    Column("topic", "topic"),
    number("partition", "partition"),
    number("start_offset", "from"),
    number("end_offset", "up to"),
    number("segments", "segments", rank=2),
    size("log_bytes", "bytes"),
    number("aborted_transactions", "aborted", rank=1),
]

_GONE = 3  # objects that a line names

Into = Annotated[str, typer.Option(help="The lake: a path or a URI; a new one is made.")]
OneTopic = Annotated[
    str | None, typer.Option(help="Only this topic; default all but the internal ones.")
]
Name = Annotated[str | None, typer.Option(help="The name of the one topic in the lake.")]


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

    with bar("reading logs") as progress:
        reports = import_logs(
            root, sources, topic=topic, name=name, dry_run=dry_run, progress=progress
        )
    _show(reports, as_json=json)


def attach(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...", help="A folder or a key prefix in a bucket of tiered storage."
        ),
    ],
    root: Into,
    topic: Annotated[
        list[str] | None,
        typer.Option(help="Only this topic, may be repeated; default all but the internal ones."),
    ] = None,
    name: Name = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Read logs where tiered storage put them, without a copy; again, only what is new."""
    from seglake.kafka.attach import attach_logs

    with bar("reading logs") as progress:
        reports = attach_logs(
            root, sources, topic=topic or None, name=name, dry_run=dry_run, progress=progress
        )
    _show(reports, as_json=json)
    raise typer.Exit(int(any(report.refused or report.gone for report in reports)))


def _show(reports: list[Imported], *, as_json: bool) -> None:
    """Say what came in, or would."""
    if as_json:
        print(json_text.dumps([report.as_dict() for report in reports], ensure_ascii=False))
        return
    for note in (note for report in reports for note in _notes(report)):
        print(f"seglake: {note}", file=sys.stderr)
    new = [
        {"topic": report.topic, **part.as_dict()}
        for report in reports
        for part in report.partitions
        if part.end_offset > part.start_offset
    ]
    if not new:
        amiss = any(report.refused or report.gone for report in reports)
        print("Nothing else is new." if amiss else "Nothing is new.")
        return
    would = any(report.dry_run for report in reports)
    show("offsets that would come in" if would else "offsets new", Listing(_IMPORTED, new))
    records = sum(report.records for report in reports)
    size = sum(report.new_log_bytes for report in reports)
    print(f"{counted(records, 'record')}, {counted(size, 'byte')} of log")


def _notes(report: Imported) -> Iterator[str]:
    """What is said of a topic besides what came in."""
    yield from report.notes
    if report.refused:
        yield f"{report.topic} is left out: {report.refused}"
    if report.gone:
        count = len(report.gone)
        yield (
            f"{report.topic}: {counted(count, 'object')} that the lake reads "
            f"{'are' if count > 1 else 'is'} gone from the bucket, and reads of those records "
            f"fail: {', '.join(report.gone[:_GONE])}{', …' * (count > _GONE)}; keep the topic's "
            "retention below the broker's"
        )
