"""`seglake vacuum`: objects that no retained version names go."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

from typing import TYPE_CHECKING

from seglake.cli.arguments.options import DryRun, GraceHours, Json, Root
from seglake.cli.terminal.progress import step_display
from seglake.shown import counted

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
        _tell(report, grace_hours, dry_run=dry_run)


def _tell(report: Vacuumed, grace_hours: float, *, dry_run: bool) -> None:
    for key in (*report.catalog_files, *report.deleted):
        print(key)
    if report.marked:
        marks = f"marks of success for {counted(len(report.marked), 'committed attempt')}"
        print(
            f"Missing {marks}: without --dry-run they are written."
            if dry_run
            else f"Wrote {marks}."
        )
    if report.folded:
        folded = f"{counted(report.folded, 'manifest')} of old commits into a chronicle"
        print(f"{'Would fold' if dry_run else 'Folded'} {folded}.")
    if report.rewritten:
        done = "To be written" if dry_run else "Written"
        files = counted(len(report.rewritten), "merged file")
        print(f"{done} anew, without rejects that no longer count: {files} of the quarantine.")
    ends = "have come to their end" if dry_run else "came to their end and are deleted"
    if report.ended_tags:
        print(f"Tags that {ends}: {', '.join(report.ended_tags)}.")
    for hold in report.tags:
        if hold["held_bytes"]:
            print(
                f"Tag {hold['name']} holds {counted(hold['held_bytes'], 'byte')} of version "
                f"{hold['version']}."
            )
    objects = counted(len(report.deleted) + len(report.catalog_files), "object")
    size = counted(report.deleted_bytes, "byte")
    done = "would be deleted; without --dry-run they are" if dry_run else "deleted"
    print(f"{objects}, {size} {done}.{_of_young(len(report.young), grace_hours)}")


def _of_young(count: int, grace_hours: float) -> str:
    """What is said of objects that an attempt may still need."""
    if not count:
        return ""
    verb = "is" if count == 1 else "are"
    return f" {count:,} {verb} younger than {grace_hours:g} h (--grace-hours), so may be in use."
