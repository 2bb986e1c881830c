"""The events around each row of a Delta table, as a Delta table: here the minute before an alert.

    spark-submit jobs/around.py --root lake --topic events --rows alerts --at raised \
        --before-ms 60000 --key user --columns offset,timestamp,value --output minute_before

The report is the number of pairs.

Exit codes: 0 done; 2 bad arguments, or no such lake, topic, table or column; 1 anything else.
"""

# ruff: noqa: PLC0415, PLR0913, PLR0917  # a command imports when it runs; an option is an argument

from __future__ import annotations

import sys
from collections.abc import Sequence
from json import dumps
from typing import Annotated

import typer

from seglake.cli.arguments.options import Root, Topic, Version
from seglake.cli.submit import submit


def around(
    root: Root,
    topic: Topic,
    rows: Annotated[str, typer.Option(help="The Delta table that is read.")],
    at: Annotated[str, typer.Option(help="Its column with the time.")],
    output: Annotated[str, typer.Option(help="The Delta table that is made.")],
    key: Annotated[
        str | None, typer.Option(help="Its column with the key; default events of any key.")
    ] = None,
    before_ms: Annotated[int, typer.Option(help="Milliseconds before it.")] = 0,
    after_ms: Annotated[int, typer.Option(help="Milliseconds after it.")] = 0,
    columns: Annotated[str | None, typer.Option(help="Columns of the events: A,B,…")] = None,
    version: Version = None,
) -> None:
    """Find the events around each row of a Delta table, and write both as a Delta table."""
    import seglake
    from seglake.datasource.around import make_table  # which needs Spark

    log = seglake.open(root, version).topic(topic)
    chosen = columns.split(",") if columns else None
    pairs = make_table(
        rows, output, log, at, before_ms=before_ms, after_ms=after_ms, key=key, columns=chosen
    )
    print(dumps({"version": log.version, "pairs": pairs}))


def main(arguments: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return submit(around, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
