"""`seglake history`: the commits of a lake, or the attempts that failed."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from json import loads
from typing import TYPE_CHECKING, Annotated

import typer

from seglake.cli.arguments.options import Json, Root
from seglake.cli.terminal.tables import Listing, show
from seglake.shown import Column, number, prose, second

if TYPE_CHECKING:
    from seglake.catalog.schema import MaintenanceRow, RunRow


def history(
    root: Root,
    topic: Annotated[str | None, typer.Option(help="One topic.")] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Instead: attempts that failed, with their run ids.")
    ] = False,
    json: Json = False,
) -> None:
    """List the runs that were committed, and what maintenance committed, newest first."""
    import seglake
    from seglake.cli.runs.of_topic import failed_rows

    if failed:
        show("failed attempts", failed_rows(root, topic), as_json=json)
        return
    lake = seglake.open(root)
    rows = history_rows([*lake.history(topic), *lake.maintenance(topic)], as_json=json)
    show("commits", rows, as_json=json)


def history_rows(commits: Iterable[RunRow | MaintenanceRow], *, as_json: bool) -> Listing:
    """A row for each commit of an ingest or of maintenance, the newest first.

    JSON has all columns of the catalog; a table has some, and interval, duration and reasons.
    """
    columns = [
        second("finished_at_ms", "finished"),
        Column("topic", "topic"),
        Column("operation", "operation", rank=1),  # else an undo looks like an ingest
        Column("pipeline", "pipeline", rank=5),
        Column("run_id", "run", fit="whole"),  # for `seglake undo`
        Column("state", "state", rank=3),
        number("input_files", "files", rank=6),
        number("input_rows", "rows", rank=6),
        number("records", "records", rank=2),
        number("quarantined", "rejected", rank=3),
    ]
    empty = dict.fromkeys(column.field for column in columns) | {"operation": "ingest"}
    ordered = sorted(commits, key=lambda commit: commit.finished_at_ms)[::-1]
    if as_json:
        return Listing(columns, ({**empty, **asdict(commit)} for commit in ordered))
    interval = Column("interval", "interval", rank=4, fit="whole")
    took = Column("took", "took", right=True, rank=4, fit="whole")
    columns = [*columns[:6], interval, took, *columns[6:], prose("reasons", "reasons", rank=7)]
    return Listing(columns, ({**empty, **asdict(commit), **_details(commit)} for commit in ordered))


def _details(commit: RunRow | MaintenanceRow) -> dict[str, str | None]:
    from seglake.catalog.schema import MaintenanceRow
    from seglake.read.listings import interval, took

    if isinstance(commit, MaintenanceRow):
        return {"interval": None, "took": took(commit), "reasons": None}
    counts = loads(commit.report).get("reasons") or {}
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in counts.items())
    return {"interval": interval(commit), "took": took(commit), "reasons": reasons or None}
