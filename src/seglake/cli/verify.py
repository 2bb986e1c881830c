"""`seglake verify`, also the job: is every file and every index entry what the catalog says."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from seglake.cli.arguments.options import Json, Root
from seglake.cli.terminal.job import Job
from seglake.cli.terminal.progress import bar
from seglake.cli.terminal.tables import Listing, show
from seglake.shown import Column, counted, number, prose

_COLUMNS = [
    Column("kind", "kind", rank=2),
    Column("file", "file"),
    number("position", "byte", rank=1),
    prose("problem", "problem"),
]


def verify(
    context: typer.Context,
    root: Root,
    topic: Annotated[list[str] | None, typer.Option(help="Some topics; default all.")] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Decode every record, rebuild every index.")
    ] = False,
    json: Json = False,
) -> None:
    """Check catalog, sizes and checksums; with --deep every record and index entry."""
    from seglake.maintain.health.verify import verify as check

    job: Job | None = context.obj
    spark = job.session() if job else None
    with bar("verifying", job) as progress:
        report = check(root, deep=deep, topics=topic, spark=spark, progress=progress)
    if json:
        print(report.as_json())
    elif report.findings:
        show("findings", Listing(_COLUMNS, map(dataclasses.asdict, report.findings)), as_json=False)
    else:
        how = "every record and index entry" if deep else "every file's size and checksum"
        segments = counted(report.segments, "segment")
        print(f"Version {report.version} is sound: {segments}, {how} checked.")
    if report.orphans and not json:
        orphans, one = counted(len(report.orphans), "object"), len(report.orphans) == 1
        belongs, them = ("belongs", "it") if one else ("belong", "them")
        print(f"{orphans} {belongs} to no version; `seglake vacuum` removes {them} after a day.")
    raise typer.Exit(report.exit_code)
