"""`seglake maintain`, also the job: all upkeep that the topics' settings ask for."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import sys
from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import typer

from seglake.cli.arguments.options import DryRun, GraceHours, Json, OneOrAll, Root
from seglake.cli.terminal.job import Job
from seglake.cli.terminal.output import log_lines
from seglake.cli.terminal.tables import Listing, show
from seglake.shown import Column, counted, prose

if TYPE_CHECKING:
    from seglake.maintain.schedule import Maintained

_COLUMNS = [
    Column("operation", "operation"),
    Column("topic", "topic"),
    prose("result", "result"),
    Column("seconds", "seconds", right=True, rank=1, fit="whole"),
]
_COUNTS = {
    "segments": "segment", "records": "record", "rejects": "reject", "log_bytes": "log byte",
    "deleted_bytes": "deleted byte", "superseded": "superseded record",
    "expired_tombstones": "expired tombstone", "null_keys": "record",
}  # fmt: skip
_BEHIND = {"null_keys": " without a key"}  # their nouns
_OF_COMPACTION = ("superseded", "expired_tombstones", "null_keys")


def maintain(
    context: typer.Context,
    root: Root,
    topic: OneOrAll = None,
    dry_run: DryRun = False,
    grace_hours: GraceHours = 24.0,
    json: Json = False,
) -> None:
    """Do what the topics' settings ask for, and vacuum: what a schedule runs."""
    from seglake.maintain.schedule import maintain_lake

    job: Job | None = context.obj
    spark = job.session() if job else None
    with nullcontext() if job else log_lines():
        report = maintain_lake(
            root, topic, dry_run=dry_run, grace_hours=grace_hours, spark=spark,
            told=job.tell if job else _tell,
        )  # fmt: skip
    if json:
        print(report.as_json())
    else:
        _show(report)
    raise typer.Exit(report.exit_code)


def _tell(part: str) -> None:
    if sys.stderr.isatty():
        print(part, file=sys.stderr)


def _show(report: Maintained) -> None:
    parts = [part.as_dict() for part in report.parts]
    rows = [{**part, "result": _result(part)} for part in parts]
    show("maintenance", Listing(_COLUMNS, rows), as_json=False)


def _result(part: dict[str, Any]) -> str:
    """A part in a few words: its error, or what it counts."""
    if part["error"] is not None:
        return f"failed: {part['error']}"
    report = part["report"]
    counts = Counter({name: report[name] for name in _COUNTS if name in report})
    for log in report.get("partitions", ()):  # of a compaction
        counts.update({name: log[name] for name in _OF_COMPACTION})
    texts = [f"{counted(counts[name], noun)}{_BEHIND.get(name, '')}"
             for name, noun in _COUNTS.items() if counts[name]]  # fmt: skip
    return f"{', '.join(texts)}{_fate(report)}" if texts else "nothing to do"


def _fate(report: dict[str, Any]) -> str:
    """What a compaction does to the records that it counts; "" for other parts."""
    if "partitions" not in report:
        return ""
    return " would be removed" if report["dry_run"] else " removed"
