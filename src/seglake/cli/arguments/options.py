"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Root = Annotated[str, typer.Argument(help="The lake: a path, or a URI such as s3://bucket/lake.")]
Topic = Annotated[str, typer.Argument(help="The topic.")]
Partition = Annotated[int | None, typer.Option(help="One partition; without it all of them.")]
Version = Annotated[int | None, typer.Option(help="A version of the lake; without it the newest.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing, say what would be done.")]
Conf = Annotated[Path, typer.Option(help="The pipeline's TOML file.")]
Source = Annotated[list[str] | None, typer.Option(help="Inputs, instead of the file's.")]
Master = Annotated[
    str | None, typer.Option(help="Spark's master, such as spark://host:7077; default here.")
]
Zone = Annotated[
    str | None, typer.Option(help="Zone of dates and of times without one, such as Europe/Berlin.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
