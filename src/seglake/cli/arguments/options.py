"""Define the arguments and options that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer


def parse_version(text: str) -> int | str:
    """Return a version number or the name of a tag."""
    return int(text) if text.isascii() and text.isdigit() else text


if TYPE_CHECKING:
    _NumberOrTag: TypeAlias = int | str
else:
    _NumberOrTag = str  # typer refuses a union, although `version_of` parses the value

Root = Annotated[str, typer.Argument(help="The lake: a path, or a URI such as s3://bucket/lake.")]
Topic = Annotated[str, typer.Argument(help="The topic.")]
OneOrAll = Annotated[str | None, typer.Argument(help="One topic; default all.")]
Partition = Annotated[int | None, typer.Option(help="One partition; without it all of them.")]
Version = Annotated[
    _NumberOrTag | None,
    typer.Option(
        help="A version of the lake, or a tag; without it the newest.",
        parser=parse_version,
        metavar="N|TAG",
    ),
]
Start = Annotated[
    str | None, typer.Option(help="From this time on: 2026-01-31T12:00Z, or a date with --zone.")
]
End = Annotated[str | None, typer.Option(help="Up to this time, exclusive.")]
Last = Annotated[str | None, typer.Option(help="The time up to now, as in 90s, 15m, 1h, 2d or 1w.")]
Zone = Annotated[
    str | None, typer.Option(help="Zone of dates and of times without one, such as Europe/Berlin.")
]
Fields = Annotated[
    str | None, typer.Option(help="Fields of values as columns, as in user,status:int32.")
]
Conf = Annotated[Path, typer.Option(help="The pipeline's TOML file.")]
Source = Annotated[list[str] | None, typer.Option(help="Inputs, instead of the file's.")]
RunId = Annotated[str | None, typer.Option(help="Makes a repeated run the same run.")]
Master = Annotated[
    str | None, typer.Option(help="Spark's master, such as spark://host:7077; default here.")
]
Local = Annotated[
    bool, typer.Option("--local", help="In threads of this machine, without Spark and Java.")
]
GraceHours = Annotated[float, typer.Option(help="Spare attempts younger than this.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing, say what would be done.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
