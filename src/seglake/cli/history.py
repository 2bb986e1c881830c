"""`seglake history`: the commits of a lake, or the attempts that failed."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from json import loads
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seglake.cli.arguments.options import Json, Root
from seglake.cli.runs.run_ids import run_column
from seglake.cli.terminal.tables import Listing, show
from seglake.shown import Column, keeping_ends, number, prose, second

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
    """List the runs that were committed, and what maintenance committed, newest first.

    A run that was undone or replaced is one row, and its state says so.
    """
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

    JSON has all rows and columns of the catalog. A table has one row for a run that was taken out,
    some columns, and interval, duration and reasons.
    """
    ordered = sorted(commits, key=lambda commit: commit.finished_at_ms)[::-1]
    topics = {commit.topic for commit in ordered}
    one_topic, shorten = len(topics) == 1, keeping_ends(topics)
    columns = [
        second("finished_at_ms", "finished"),
        Column("topic", "topic", rank=3 if one_topic else 0, least=9, shorten=shorten),
        Column("operation", "operation", rank=4),
        Column("pipeline", "pipeline", rank=6),
        run_column(least=18),
        Column("state", "state", rank=1),  # else a run that is undone looks like a committed one
        number("input_files", "files", rank=7),
        number("input_rows", "rows", rank=7),
        number("records", "records", rank=2),
        number("quarantined", "rejected", rank=3),
    ]
    empty = dict.fromkeys(column.field for column in columns) | {"operation": "ingest"}
    if as_json:
        return Listing(columns, ({**empty, **asdict(commit)} for commit in ordered))
    interval = Column("interval", "interval", rank=5, fit="whole")
    took = Column("took", "took", right=True, rank=5, fit="whole")
    columns = [*columns[:6], interval, took, *columns[6:], prose("reasons", "reasons", rank=8)]
    empty |= {"interval": None, "reasons": None}
    return Listing(columns, ({**empty, **row} for row in _one_for_each_run(ordered)))


def _one_for_each_run(commits: Sequence[RunRow | MaintenanceRow]) -> Iterator[dict[str, Any]]:
    """The commits; of a run that was taken out its own, with the state that it has since."""
    from seglake.catalog.schema import RunRow

    since = {run.attempt_id: run.state for run in commits
             if isinstance(run, RunRow) and run.state != "committed"}  # fmt: skip
    for commit in commits:
        if not isinstance(commit, RunRow):
            yield {**asdict(commit), **_of_maintenance(commit)}
        elif commit.state == "committed":
            state = since.get(commit.attempt_id, commit.state)
            yield {**asdict(commit), **_of_run(commit), "state": state}


def _of_run(run: RunRow) -> dict[str, str | None]:
    from seglake.read.listings import interval, took

    counts = loads(run.report).get("reasons") or {}
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in counts.items())
    return {"interval": interval(run), "took": took(run), "reasons": reasons or None}


def _of_maintenance(commit: MaintenanceRow) -> dict[str, str | None]:
    """Its duration, of an undo the runs that left, and as state what it is.

    Else an undo looks like an ingest where there is no room for the operation.
    """
    from seglake.read.listings import took

    return {"run_id": ", ".join(loads(commit.report).get("runs") or ()) or None,
            "state": commit.operation, "took": took(commit)}  # fmt: skip
