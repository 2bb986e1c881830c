"""Define the arguments and options that several commands share."""

from enum import StrEnum
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
OneOrAll = Annotated[str | None, typer.Argument(help="Only this topic. Default: all topics.")]
Partition = Annotated[
    int | None, typer.Option(help="Only this partition. Default: all partitions.")
]
Version = Annotated[
    _NumberOrTag | None,
    typer.Option(
        help="A version of the lake, or a tag. Default: the newest version.",
        parser=parse_version,
        metavar="N|TAG",
    ),
]
Start = Annotated[
    str | None,
    typer.Option(
        help="Only records at or after this time: 2026-01-31T12:00Z, or a date with --zone."
    ),
]
End = Annotated[str | None, typer.Option(help="Only records before this time.")]
Last = Annotated[str | None, typer.Option(help="Only records of the last 90s, 15m, 1h, 2d or 1w.")]
Zone = Annotated[
    str | None,
    typer.Option(help="Time zone of dates, and of times without a zone, such as Europe/Berlin."),
]
Fields = Annotated[
    str | None,
    typer.Option(help="Show fields of the values as columns, such as user,status:int32."),
]
Conf = Annotated[Path, typer.Option(help="Settings file of the pipeline (TOML).")]
Source = Annotated[
    list[str] | None, typer.Option(help="Input to read instead of input.paths. Repeatable.")
]
RunId = Annotated[
    str | None,
    typer.Option(help="Idempotency key: a run id that is already committed is not ingested again."),
]
Master = Annotated[
    str | None, typer.Option(help="Spark master, such as spark://host:7077. Default: this machine.")
]
Local = Annotated[
    bool, typer.Option("--local", help="Use threads on this machine, without Spark or Java.")
]
GraceHours = Annotated[float, typer.Option(help="Hours until a silent attempt counts as dead.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")
]


TimeFormat = StrEnum("TimeFormat", ["MS", "ISO"])
Times = Annotated[
    TimeFormat | None, typer.Option(help="Times in JSON and CSV: ms since 1970 (default), or iso.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
