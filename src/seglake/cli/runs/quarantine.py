"""`seglake quarantine`: the rows that runs rejected."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from typing import Annotated

import typer

from seglake.cli.arguments.options import Json, Root, Topic


def quarantine(
    root: Root,
    topic: Topic,
    run_id: Annotated[
        str | None, typer.Option(help="Rejects of this run; a sample if it failed.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, help="At most this many rows; default 20, with --json all.")
    ] = None,
    json: Json = False,
) -> None:
    """Show the rows that were rejected: file, line, reason and bytes.

    A sample has rows of every reason and of many files, and says what it leaves out.
    """
    from seglake.cli.runs.of_topic import Runs

    Runs(root, topic).rejects(run_id).show(limit, as_json=json)
