"""`seglake undo`: a run's records leave the topic."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

from seglake.cli.terminal.tables import Rows, number, show


def run(
    root: str, topic: str, run_id: str, pipeline: str | None, *, force: bool, dry_run: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Undo a run, or say what would go. Returns the exit code."""
    from seglake.maintain.undo import undo

    report = undo(root, topic, run_id, pipeline=pipeline, force=force, dry_run=dry_run)
    if as_json:
        print(report.as_json())
        return 0
    if report.status == "already done":
        print(
            f"run {run_id} is undone already: {report.records:,} records are gone, "
            f"{report.files:,} input files could be ingested again"
        )
        return 0
    ranges = [
        {"partition": partition, "start": start, "end": end}
        for partition, found in report.offsets.items()
        for start, end in found
    ]
    columns = [number("partition", "partition"), number("start", "from"), number("end", "up to")]
    show("offsets without records", Rows(columns, ranges), as_json=False)
    runs = ", ".join(report.runs)
    if dry_run:
        print(
            f"would undo {runs}: {report.records:,} records in {report.segments:,} segments, "
            f"{report.files:,} input files"
        )
    else:
        print(
            f"version {report.version} has no record of {runs}: {report.records:,} are gone, "
            f"{report.files:,} input files can be ingested again"
        )
    return 0
