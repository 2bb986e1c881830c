"""Logs that come in by `seglake import` and `seglake attach`: their options, and what is told."""

# a command imports its modules when it runs

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seglake.cli.terminal.progress import bar
from seglake.cli.terminal.tables import Column, Rows, number, show

if TYPE_CHECKING:
    from seglake.kafka.importing import Imported

_IMPORTED = [
    Column("topic", "topic"),
    number("partition", "partition"),
    number("start_offset", "from"),
    number("end_offset", "up to"),
    number("segments", "segments"),
    number("log_bytes", "bytes"),
    number("aborted_transactions", "aborted"),
]

Into = Annotated[str, typer.Option(help="The lake: a path or a URI; a new one is made.")]
OneTopic = Annotated[
    str | None, typer.Option(help="Only this topic; default all but the internal ones.")
]
Name = Annotated[str | None, typer.Option(help="The name of the one topic in the lake.")]


def take_in(
    work: Callable[..., list[Imported]],
    root: str,
    sources: Sequence[str],
    how: Mapping[str, Any],
    *,
    as_json: bool,
) -> int:
    """Import or attach logs, or say what would come in. Returns the exit code."""
    with bar("reading logs") as progress:
        reports = work(root, sources, progress=progress, **how)
    if as_json:
        print(json.dumps([report.as_dict() for report in reports], ensure_ascii=False))
        return 0
    for note in (note for report in reports for note in report.notes):
        print(f"seglake: {note}", file=sys.stderr)
    new = [
        {"topic": report.topic, **each.as_dict()}
        for report in reports
        for each in report.partitions
        if each.end_offset > each.start_offset
    ]
    if not new:
        print("Nothing is new.")
        return 0
    show("offsets that would come in" if how["dry_run"] else "offsets new", Rows(_IMPORTED, new))
    records = sum(report.records for report in reports)
    size = sum(report.new_log_bytes for report in reports)
    print(f"{records:,} records, {size:,} bytes of log")
    return 0
