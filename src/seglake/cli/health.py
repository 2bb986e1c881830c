"""Define the commands `verify`, `repair`, `reindex`, `vacuum` and `warm`."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from functools import partial
from json import dumps
from typing import TYPE_CHECKING

import typer

from seglake.cli.arguments.options import DryRun, GraceHours, Json, Root, Topic
from seglake.cli.result import finish
from seglake.cli.terminal.progress import display
from seglake.errors import UsageError
from seglake.limits import GRACE_HOURS
from seglake.terminal.tables import Column, Listing, number, prose, show, show_report
from seglake.terminal.wording import counted

if TYPE_CHECKING:
    from seglake.maintain.commit import MaintenanceReport
    from seglake.maintain.health.verify import VerifyResult
    from seglake.maintain.vacuum import VacuumResult

_COLUMNS = [
    Column("kind", "kind"),
    Column("file", "file"),
    number("position", "byte"),
    prose("problem", "problem"),
]


def verify(
    context: typer.Context,
    root: Root,
    topic: list[str] | None = None,
    deep: bool = False,
    json: Json = False,
) -> None:
    """Check the catalog, sizes and checksums. With --deep, check every record and index entry.

    Args:
        topic: Only this topic. Repeatable. Default: all topics.
        deep: Decode every record, and compare every index with a rebuilt one.

    Examples:
        seglake verify ./lake
        seglake verify ./lake --topic web --deep
    """
    from seglake.maintain.health.verify import verify as check

    with display("verifying", context.obj) as shown:
        report = check(root, deep=deep, topics=topic, spark=shown.spark, progress=shown.amount)
    finish(report, _show_verified, as_json=json)


def _show_verified(report: VerifyResult) -> None:
    if report.findings:
        show("findings", Listing(_COLUMNS, map(dataclasses.asdict, report.findings)))
    else:
        how = "every record and index entry" if report.deep else "every file's size and checksum"
        segments = counted(report.segments, "segment")
        print(f"Version {report.version} is intact: checked {segments}, {how}.")
    if report.orphans:
        orphans = counted(len(report.orphans), "object")
        print(f"Found {orphans} that no version names. A later `seglake vacuum` deletes them.")


def repair(
    root: Root,
    catalog: bool = False,
    dry_run: DryRun = False,
    trust: list[str] | None = None,
    force: bool = False,
    json: Json = False,
) -> None:
    """Rebuild lost or damaged index files. With --catalog, rebuild the catalog table.

    Args:
        catalog: Rebuild the catalog from manifests.
        trust: With --catalog: treat this attempt as committed. Repeatable.
        force: With --catalog: rebuild even a readable catalog.

    Examples:
        seglake repair ./lake --dry-run
        seglake repair ./lake --catalog
    """
    from seglake.maintain.health.repair import rebuild_catalog, repair_indexes

    if not catalog and (trust or force):
        raise UsageError(
            f"{'--trust' if trust else '--force'} is only valid with --catalog. Add --catalog"
        )
    reports: Sequence[MaintenanceReport]
    nothing, damaged = "", False
    if catalog:
        rebuilt = rebuild_catalog(root, trust=trust or [], force=force, dry_run=dry_run)
        reports = [rebuilt]
        if rebuilt.status == "already done":
            nothing = "The catalog can be read, so it was not rebuilt. To rebuild it, add --force."
    else:
        with display("looking" if dry_run else "repairing") as shown:
            reports = repaired = repair_indexes(root, dry_run=dry_run, progress=shown.amount)
        damaged = any(report.damaged for report in repaired)
        if not reports:
            nothing = "No index file is missing or damaged. `seglake verify` also checks the logs."
    if json:
        print(dumps([report.as_dict() for report in reports], ensure_ascii=False))
    elif nothing:
        print(nothing)
    else:
        for report in reports:
            show_report("repair", report.as_dict())
    raise typer.Exit(int(damaged))


def reindex(
    context: typer.Context,
    root: Root,
    topic: Topic,
    partition: list[int] | None = None,
    index_interval_bytes: int | None = None,
    json: Json = False,
) -> None:
    """Rebuild a topic's index files, optionally with another index interval.

    Args:
        partition: Only this partition. Repeatable. Default: all.
        index_interval_bytes: Bytes between entries. 0 makes an entry for every batch.

    Example:
        seglake reindex ./lake web --index-interval-bytes 4096
    """
    from seglake.format.index import IndexPolicy
    from seglake.maintain.health.reindex import reindex as write_indexes

    policy = None if index_interval_bytes is None else IndexPolicy(index_interval_bytes)
    with display("indexing", context.obj) as shown:
        report = write_indexes(
            root, topic, policy, partitions=partition, spark=shown.spark, progress=shown.amount
        )
    finish(report, lambda done: show_report("reindex", done.as_dict()), as_json=json)


def vacuum(
    root: Root, dry_run: DryRun = False, grace_hours: GraceHours = GRACE_HOURS, json: Json = False
) -> None:
    """Delete objects that no retained version or tag needs, such as files of dead attempts.

    Example:
        seglake vacuum ./lake --dry-run
    """
    from seglake.maintain.vacuum import vacuum as sweep

    with display("reading the catalog") as shown:
        report = sweep(root, dry_run=dry_run, grace_hours=grace_hours, progress=shown.step)
    finish(report, partial(_show_vacuumed, grace_hours), as_json=json)


def _show_vacuumed(grace_hours: float, report: VacuumResult) -> None:
    dry_run = report.dry_run
    for key in (*report.catalog_files, *report.deleted):
        print(key)
    if report.marked:
        marks = f"success markers of {counted(len(report.marked), 'committed attempt')}"
        print(f"Would write the missing {marks}." if dry_run else f"Wrote the missing {marks}.")
    if report.folded:
        folded = f"{counted(report.folded, 'manifest')} of old commits into a manifest archive"
        print(f"{'Would merge' if dry_run else 'Merged'} {folded}.")
    if report.rewritten:
        done = "Would rewrite" if dry_run else "Rewrote"
        files = counted(len(report.rewritten), "merged file")
        print(f"{done} {files} of the quarantine to remove the rejects of undone or replaced runs.")
    deleted = "Would delete" if dry_run else "Deleted"
    if report.ended_tags:
        print(f"{deleted} expired tags: {', '.join(report.ended_tags)}.")
    for hold in report.tags:
        if hold["held_bytes"]:
            size = counted(hold["held_bytes"], "byte")
            print(f"Tag {hold['name']} keeps {size} of version {hold['version']}.")
    objects = counted(len(report.deleted) + len(report.catalog_files), "object")
    young, young_h = len(report.young), f"{grace_hours:g} h (--grace-hours)"
    kept = f" Kept {young:,} younger than {young_h}, which may be in use." if young else ""
    print(f"{deleted} {objects} ({counted(report.deleted_bytes, 'byte')}).{kept}")


def warm() -> None:
    """Compile all kernels now, so that later commands do not wait. Needs no Spark or Java.

    Example:
        seglake warm
    """
    from runpy import run_module

    said = "Compiling about 150 kernels, which takes one core about a minute."
    print(said, file=sys.stderr)
    # The module is in a higher layer, which also imports this module, so it is run by name.
    run_module("seglake.warm", run_name="__main__")
    print("All kernels are compiled.", file=sys.stderr)
