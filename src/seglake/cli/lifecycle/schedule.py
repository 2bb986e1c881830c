"""`seglake maintain`: all upkeep that the topics' settings ask for."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import sys
from typing import Any

from seglake.cli.terminal.output import log_lines
from seglake.cli.terminal.tables import Column, Rows, show


def maintain(
    root: str, topic: str | None, grace_hours: float, *, dry_run: bool, as_json: bool
) -> int:
    """Do the upkeep. Returns the exit code."""
    from seglake.maintain.schedule import maintain_lake

    with log_lines():
        report = maintain_lake(root, topic, dry_run=dry_run, grace_hours=grace_hours, told=_tell)
    if as_json:
        print(report.as_json())
        return report.exit_code
    columns = [
        Column("operation", "operation"),
        Column("topic", "topic"),
        Column("result", "result"),
        Column("seconds", "seconds", right=True),
    ]
    rows = [{**part.as_dict(), "result": _result(part.as_dict())} for part in report.parts]
    show("maintenance", Rows(columns, rows), as_json=False)
    return report.exit_code


def _tell(part: str) -> None:
    if sys.stderr.isatty():
        print(part, file=sys.stderr)


_COUNTS = ("segments", "records", "rejects", "log_bytes", "deleted_bytes")


def _result(part: dict[str, Any]) -> str:
    """A part in a few words: its error, or what it counts."""
    if part["error"] is not None:
        return f"failed: {part['error']}"
    counts = {name: part["report"].get(name) for name in _COUNTS}
    texts = [f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count]
    return ", ".join(texts) or "nothing to do"
