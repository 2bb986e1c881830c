"""`seglake erase`: record keys leave the topic. No key is printed."""

# ruff: noqa: PLC0415, PLR0913, PLR0917  # a command imports when it runs; an option is an argument

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seglake.cli.arguments.options import DryRun, Json, Root, Topic
from seglake.cli.terminal.progress import bar
from seglake.shown import counted

if TYPE_CHECKING:
    from seglake.maintain.erasure.erase import Erased

_RAN = "ran meanwhile: erase again when it has ended"


def erase(
    root: Root,
    topic: Topic,
    key: Annotated[list[str] | None, typer.Option(help="A record key; base64:… for bytes.")] = None,
    keys_from: Annotated[Path | None, typer.Option(help="A file with a key in each line.")] = None,
    raw_containing: Annotated[
        str | None, typer.Option(help="Also rejected rows with this text.")
    ] = None,
    vacuum: Annotated[
        bool, typer.Option("--vacuum", help="Also delete the old objects that held them.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for attempts that run, and erase what they bring.")
    ] = False,
    dry_run: DryRun = False,
    grace_hours: Annotated[float, typer.Option(help="Younger attempts count as running.")] = 24.0,
    json: Json = False,
) -> None:
    """Erase record keys: their records, and rejected rows that have one.

    Exit code 1 if an attempt began meanwhile: erase again when it has ended, or with --wait.
    """
    from seglake.maintain.erasure.erase import erase as erase_keys
    from seglake.maintain.erasure.wanted import keys_given

    keys = keys_given(key or [], keys_from)
    with bar("looking" if dry_run else "erasing") as progress:
        report = erase_keys(
            root, topic, keys, raw_containing=raw_containing, vacuum=vacuum, wait=wait,
            dry_run=dry_run, grace_hours=grace_hours, progress=progress,
        )  # fmt: skip
    if json:
        print(report.as_json())
    else:
        _tell(report)
    raise typer.Exit(report.exit_code)


def _tell(report: Erased) -> None:
    from seglake.maintain.erasure.erase import IF_RUNNING

    for key in report.deleted:
        print(key)
    counts = (
        f"{counted(report.records, 'record')} in {counted(report.segments, 'segment')}, "
        f"{counted(report.rejects + report.samples, 'rejected row')}"
    )
    old = counted(len(report.deleted), "old object")
    if report.dry_run:
        print(f"would erase {counts}; would delete {old}")
    elif report.version < 0:
        print(f"nothing to erase; deleted {old}")
    else:
        print(f"version {report.version} has no record of the keys: erased {counts}; deleted {old}")
    for name, count in report.tags.items():
        lost = "would lose" if report.dry_run else "has lost"
        print(f"tag {name} {lost} {counted(count, 'record')}")
    for attempt_id in report.running:
        now = f"may still run: {IF_RUNNING}" if report.dry_run else _RAN
        print(f"attempt {attempt_id} {now}")
