"""`seglake history`: the commits of a lake, or the attempts that failed."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from json import loads
from typing import TYPE_CHECKING, Annotated

import typer

from seglake.cli.arguments.options import Json, Root
from seglake.cli.terminal.tables import Column, Listing, moment, number, show

if TYPE_CHECKING:
    from seglake.catalog.rows import MaintenanceRow, RunRow


def history(
    root: Root,
    topic: Annotated[str | None, typer.Option(help="One topic.")] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Instead: attempts that failed, with their run ids.")
    ] = False,
    json: Json = False,
) -> None:
    """List the runs that were committed, and what maintenance committed, oldest first."""
    import seglake
    from seglake.cli.runs.of_topic import failed_rows

    if failed:
        show("failed attempts", failed_rows(root, topic), as_json=json)
        return
    lake = seglake.open(root)
    rows = history_rows([*lake.history(topic), *lake.maintenance(topic)], as_json=json)
    show("commits", rows, as_json=json)


def history_rows(commits: Iterable[RunRow | MaintenanceRow], *, as_json: bool) -> Listing:
    """A row for each commit of an ingest or of maintenance, in the order of their ends.

    JSON has all columns of the catalog; a table has some, and interval, duration and reasons.
    """
    columns = [
        moment("finished_at_ms", "finished"),
        Column("topic", "topic"),
        Column("operation", "operation"),
        Column("pipeline", "pipeline"),
        Column("run_id", "run"),
        Column("state", "state"),
        number("input_files", "files"),
        number("input_rows", "rows"),
        number("records", "records"),
        number("quarantined", "quarantined"),
    ]
    empty = dict.fromkeys(column.field for column in columns) | {"operation": "ingest"}
    ordered = sorted(commits, key=lambda commit: commit.finished_at_ms)
    if as_json:
        return Listing(columns, ({**empty, **asdict(commit)} for commit in ordered))
    details = [Column(name, name) for name in ("interval", "took")]
    columns = [*columns[:6], *details, *columns[6:], Column("reasons", "reasons")]
    return Listing(columns, ({**empty, **asdict(commit), **_details(commit)} for commit in ordered))


def _details(commit: RunRow | MaintenanceRow) -> dict[str, str | None]:
    from seglake.catalog.rows import MaintenanceRow
    from seglake.read.listings import interval, took

    if isinstance(commit, MaintenanceRow):
        return {"interval": None, "took": took(commit), "reasons": None}
    counts = loads(commit.report).get("reasons") or {}
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in counts.items())
    return {"interval": interval(commit), "took": took(commit), "reasons": reasons or None}
