"""`seglake import`, `seglake attach` and `seglake export`: what they print."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seglake.cli.maintain import bar
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
_EXPORTED = [
    Column("folder", "folder"),
    number("log_start_offset", "begins at"),
    number("end_offset", "ends at"),
    number("segments", "segments"),
    number("log_bytes", "bytes"),
]


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


def write(root: str, topic: str, dest: str, how: Mapping[str, Any], *, as_json: bool) -> int:
    """Export a topic. Returns the exit code."""
    from seglake.kafka.exporting import export_logs

    with bar("exporting") as progress:
        report = export_logs(root, topic, dest, progress=progress, **how)
    if as_json:
        print(report.as_json())
        return 0
    rows = Rows(_EXPORTED, [each.as_dict() for each in report.partitions])
    show(f"{topic}, version {report.version}, for a broker", rows)
    return 0
