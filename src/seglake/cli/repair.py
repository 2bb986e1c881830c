"""`seglake repair`: index files, or the catalog, are made anew."""

# ruff: noqa: PLC0415  # a command imports when it runs; an option is an argument

from __future__ import annotations

from collections.abc import Sequence
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seglake.cli.arguments.options import DryRun, Json, Root
from seglake.cli.terminal.progress import bar
from seglake.cli.terminal.tables import show_report
from seglake.errors import UsageError

if TYPE_CHECKING:
    from seglake.maintain.report import MaintenanceReport


def repair(
    root: Root,
    catalog: Annotated[
        bool, typer.Option("--catalog", help="Rebuild the catalog from manifests.")
    ] = False,
    dry_run: DryRun = False,
    trust: Annotated[
        list[str] | None, typer.Option(help="With --catalog: an attempt known as committed.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="With --catalog: even if it can be read.")
    ] = False,
    json: Json = False,
) -> None:
    """Make lost or damaged index files anew; with --catalog the catalog table."""
    if catalog:
        _repair_catalog(root, trust or [], json=json, force=force, dry_run=dry_run)
    elif trust or force:
        raise UsageError(f"{'--trust' if trust else '--force'} is for --catalog: add it")
    else:
        _repair_indexes(root, json=json, dry_run=dry_run)


def _repair_catalog(root: str, trust: Sequence[str], *, json: bool, **how: Any) -> None:
    from seglake.maintain.health.repair import rebuild_catalog

    rebuilt = rebuild_catalog(root, trust=trust, **how)
    if rebuilt.status == "already done" and not json:
        print("The catalog can be read: it needs no rebuild (--force makes one all the same).")
    else:
        _print([rebuilt], as_json=json)


def _repair_indexes(root: str, *, json: bool, dry_run: bool) -> None:
    from seglake.maintain.health.repair import repair_indexes

    with bar("looking" if dry_run else "repairing") as progress:
        reports = repair_indexes(root, dry_run=dry_run, progress=progress)
    if not (reports or json):
        print("No index file is missing or damaged. (`seglake verify` looks at logs, too.)")
    else:
        _print(reports, as_json=json)
    raise typer.Exit(1 if any(report.damaged for report in reports) else 0)


def _print(reports: Sequence[MaintenanceReport], *, as_json: bool) -> None:
    if as_json:
        print(dumps([report.as_dict() for report in reports], ensure_ascii=False))
        return
    for report in reports:
        show_report("repair", report.as_dict())
