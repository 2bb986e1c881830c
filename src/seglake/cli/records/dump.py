"""`seglake dump`: a segment's file as text."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from typing import Annotated

import typer

from seglake.cli.arguments.options import Json


def dump(
    file: Annotated[str, typer.Argument(help="A .log, .index, .timeindex, .zonemap or .keyindex.")],
    deep: Annotated[
        bool, typer.Option("--deep", help="Print a .log's records as JSON lines.")
    ] = False,
    json: Json = False,
) -> None:
    """Print a segment's file as text, whatever wrote it."""
    from seglake.cli.records.segment_file import dump_file

    dump_file(file, deep=deep, as_json=json)
