"""`seglake retain` and `seglake delete-records`: the oldest records of a log go."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import NamedTuple

from seglake.cli.terminal.tables import Column, Rows, number, show
from seglake.errors import UsageError
from seglake.maintain.expiry.log_start import Moved

_COLUMNS = [
    Column("topic", "topic"),
    number("partition", "partition"),
    number("before", "began at"),
    number("after", "begins at"),
    number("segments", "segments"),
    number("log_bytes", "bytes"),
]


class Asked(NamedTuple):
    """What is to be deleted: of these partitions (none: all), below an offset or before a time."""

    partitions: Sequence[int]
    offset: int | None
    time: str | None


def retain(root: str, topic: str | None, *, dry_run: bool, as_json: bool) -> int:
    """Apply retention. Returns the exit code."""
    from seglake.maintain.expiry.retention import retain as run

    reports = run(root, topic, dry_run=dry_run)
    if as_json:
        print(json.dumps([report.as_dict() for report in reports], ensure_ascii=False))
        return 0
    _show([(report.topic, each) for report in reports for each in report.moved], dry_run=dry_run)
    for report in reports:
        for each in report.blocked:
            print(f"seglake: {each.help}", file=sys.stderr)
    return 0


def delete_records(root: str, topic: str, asked: Asked, *, dry_run: bool, as_json: bool) -> int:
    """Move log starts. Returns the exit code; raises UsageError."""
    from seglake.maintain.expiry.delete_records import delete_records as run

    partitions, offset, time = asked
    if (offset is None) == (time is None):
        raise UsageError("give --before-offset or --before-time, and not both")
    if offset is not None and len(partitions) != 1:
        raise UsageError("--before-offset needs one --partition: each has its own offsets")
    report = run(
        root,
        topic,
        None if offset is None else {partitions[0]: offset},
        before_time=time,
        partitions=None if offset is not None or not partitions else partitions,
        dry_run=dry_run,
    )
    if as_json:
        print(report.as_json())
    else:
        _show([(topic, each) for each in report.moved], dry_run=dry_run)
    return 0


def _show(moves: Sequence[tuple[str, Moved]], *, dry_run: bool) -> None:
    if not moves:
        print("Nothing is to be removed." if dry_run else "Nothing was removed.")
        return
    title = "log starts that would move" if dry_run else "log starts that moved"
    rows = [{"topic": topic, **each.as_dict()} for topic, each in moves]
    show(title, Rows(_COLUMNS, rows), as_json=False)
