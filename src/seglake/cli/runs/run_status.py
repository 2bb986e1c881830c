"""`seglake run-status`: what became of a run."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from json import dumps
from typing import Annotated

import typer

from seglake.cli.arguments.options import Json, Root, Topic
from seglake.cli.terminal.tables import show_report


def run_status(
    root: Root,
    topic: Topic,
    run_id: Annotated[str, typer.Option(help="The run's id.")],
    pipeline: Annotated[str | None, typer.Option(help="If several have this run id.")] = None,
    json: Json = False,
) -> None:
    """Say what became of a run: exit code 0 committed, 3 rejected too much, 1 anything else.

    That is: failed, undone or replaced since, or unknown.
    """
    from seglake.cli.runs.of_topic import Runs, exit_code_of

    status = Runs(root, topic).status(run_id, pipeline)
    if json:
        typer.echo(dumps(status, ensure_ascii=False))
    else:
        status.pop("report", None)
        left = status.pop("open_rejects", None)
        if status.get("redrives"):
            status["open_rejects"] = f"{left:,}"  # as a text, so that 0 is shown
        show_report(f"run {run_id}", status)
    raise typer.Exit(exit_code_of(status))
