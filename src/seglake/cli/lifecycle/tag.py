"""`seglake tag`: a name for a version, which then stays."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from seglake.cli.arguments.options import Json, Root
from seglake.cli.terminal.progress import step_display

if TYPE_CHECKING:
    from seglake.maintain.tagging import Tagged


def tag(
    root: Root,
    name: Annotated[str, typer.Argument(help="The name, such as q3-train.")],
    version: Annotated[int | None, typer.Option(help="The version; without it the newest.")] = None,
    until: Annotated[
        str | None, typer.Option(help="A vacuum deletes the tag from then on: 2027-06-01, in UTC.")
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the tag.")] = False,
    json: Json = False,
) -> None:
    """Give a version a name; its records stay until the tag is deleted."""
    from seglake.maintain.tagging import tag as change

    with step_display("reading the rows of the version"):
        report = change(root, name, version, until=until, delete=delete)
    if json:
        print(report.as_json())
    else:
        _tell(report, root, delete=delete)


def _tell(report: Tagged, root: str, *, delete: bool) -> None:
    from seglake.shown import short_time

    if delete:
        print(f"Tag {report.name} is deleted. `seglake vacuum` removes what only it held.")
        return
    until = "" if report.until_ms is None else f" until {short_time(report.until_ms)}"
    if report.status == "already done":
        print(
            f"Tag {report.name} is there already, and names version {report.tagged}{until}. "
            f"`seglake tag {quote(root)} {report.name} --delete` makes the name free for another "
            "version."
        )
        return
    print(f"Tag {report.name} names version {report.tagged}{until}.")
