"""`seglake vacuum`: objects that no retained version names go."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

from typing import TYPE_CHECKING

from seglake.cli.arguments.options import DryRun, GraceHours, Json, Root
from seglake.cli.terminal.progress import step_display

if TYPE_CHECKING:
    from seglake.maintain.vacuum import Vacuumed


def vacuum(
    root: Root, dry_run: DryRun = False, grace_hours: GraceHours = 24.0, json: Json = False
) -> None:
    """Remove objects that no retained version names: what dead attempts left."""
    from seglake.maintain.vacuum import vacuum as sweep

    with step_display("reading the catalog") as progress:
        report = sweep(root, dry_run=dry_run, grace_hours=grace_hours, progress=progress)
    if json:
        print(report.as_json())
    else:
        _tell(report, dry_run=dry_run)


def _tell(report: Vacuumed, *, dry_run: bool) -> None:
    for key in (*report.catalog_files, *report.deleted):
        print(key)
    if report.marked:
        done = (
            "lack their mark of success; without --dry-run they get it"
            if dry_run
            else "got their mark of success"
        )
        print(f"{len(report.marked)} committed attempts {done}.")
    if report.folded:
        done = "would be folded into a chronicle" if dry_run else "are folded into a chronicle"
        print(f"{report.folded:,} manifests of old commits {done}.")
    ends = "have come to their end" if dry_run else "came to their end and are deleted"
    if report.ended_tags:
        print(f"Tags that {ends}: {', '.join(report.ended_tags)}.")
    for hold in report.tags:
        if hold["held_bytes"]:
            print(
                f"Tag {hold['name']} holds {hold['held_bytes']:,} bytes of version "
                f"{hold['version']}."
            )
    count = len(report.deleted) + len(report.catalog_files)
    done = "would be deleted; without --dry-run they are" if dry_run else "deleted"
    print(
        f"{count} objects, {report.deleted_bytes:,} bytes {done}. "
        f"{len(report.young)} are too young."
    )
