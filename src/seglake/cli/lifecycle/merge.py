"""`seglake merge`: small neighbouring segments become few."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

from typing import Any

from seglake.cli.maintain import bar
from seglake.cli.terminal.tables import Column, Rows, number, show


def run(
    root: str, topic: str, partition: int | None, *, everything: bool, rebatch: bool,
    dry_run: bool, as_json: bool,
) -> int:  # fmt: skip
    """Merge a topic's segments, or say which. Returns the exit code."""
    from seglake.maintain.merge import merge

    how: dict[str, Any] = {"everything": everything, "rebatch": rebatch, "dry_run": dry_run}
    chosen = None if partition is None else [partition]
    with bar("merging") as progress:
        report = merge(root, topic, partitions=chosen, progress=progress, **how)
    if as_json:
        print(report.as_json())
        return report.exit_code
    if dry_run:
        columns = [number("partition", "partition"), number("base_offset", "from")]
        columns += [number("end_offset", "up to"), number("segments", "segments")]
        columns += [number("log_bytes", "bytes of log")]
        show("would become one segment", Rows(columns, [g.as_dict() for g in report.plan]))
    if report.damaged:
        columns = [Column("file", "file"), number("position", "byte"), Column("problem", "problem")]
        show("not merged", Rows(columns, [each.as_dict() for each in report.damaged]))
    changed = f", {report.skipped} groups changed meanwhile" if report.skipped else ""
    became = "would become" if dry_run else "became"
    print(
        f"{report.segments:,} segments {became} {report.new_segments:,}: {report.log_bytes:,} "
        f"bytes read, {report.new_log_bytes:,} written{changed}"
    )
    return report.exit_code
