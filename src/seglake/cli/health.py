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
    from seglake.cli.terminal.progress import Job
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

    job: Job | None = context.obj
    spark = job.session() if job else None
    with display("verifying", job) as shown:
        report = check(root, deep=deep, topics=topic, spark=spark, progress=shown.amount)
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
    if catalog:
        nothing = (
            "The catalog can be read, so it was not rebuilt. To rebuild it anyway, add --force."
        )
        rebuilt = rebuild_catalog(root, trust=trust or [], force=force, dry_run=dry_run)
        reports, done, damaged = [rebuilt], rebuilt.status != "already done", False
    else:
        nothing = "No index file is missing or damaged. `seglake verify` also checks the logs."
        with display("looking" if dry_run else "repairing") as shown:
            repaired = repair_indexes(root, dry_run=dry_run, progress=shown.amount)
        reports, done = repaired, bool(repaired)
        damaged = any(report.damaged for report in repaired)
    if json:
        print(dumps([report.as_dict() for report in reports], ensure_ascii=False))
    elif not done:
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
    index_interval_records: int | None = None,
    index_interval_ms: int | None = None,
    json: Json = False,
) -> None:
    """Rebuild a topic's index files, optionally with another index interval.

    Args:
        partition: Only this partition. Repeatable. Default: all.
        index_interval_bytes: Bytes between entries. 0 makes an entry for every batch.
        index_interval_records: Records between entries.
        index_interval_ms: Milliseconds of event time between entries.

    Example:
        seglake reindex ./lake web --index-interval-bytes 4096
    """
    from seglake.format.index import IndexPolicy
    from seglake.maintain.health.reindex import reindex as write_indexes

    given = ("bytes", index_interval_bytes), ("records", index_interval_records)
    policies = [
        IndexPolicy(unit, size)
        for unit, size in (*given, ("ms", index_interval_ms))
        if size is not None
    ]
    if len(policies) > 1:
        raise UsageError(
            "several index intervals contradict each other. Keep one of --index-interval-bytes, "
            "--index-interval-records and --index-interval-ms"
        )
    policy = policies[0] if policies else None
    job: Job | None = context.obj
    spark = job.session() if job else None
    with display("indexing", job) as shown:
        report = write_indexes(
            root, topic, policy, partitions=partition, spark=spark, progress=shown.amount
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
    ended = "Would delete expired tags" if dry_run else "Deleted expired tags"
    if report.ended_tags:
        print(f"{ended}: {', '.join(report.ended_tags)}.")
    for hold in report.tags:
        if hold["held_bytes"]:
            print(
                f"Tag {hold['name']} keeps {counted(hold['held_bytes'], 'byte')} of version "
                f"{hold['version']}."
            )
    objects = counted(len(report.deleted) + len(report.catalog_files), "object")
    size = counted(report.deleted_bytes, "byte")
    done = "Would delete" if dry_run else "Deleted"
    print(f"{done} {objects} ({size}).{_of_young(len(report.young), grace_hours)}")


def _of_young(count: int, grace_hours: float) -> str:
    """Return a sentence about objects that an attempt may still need, or ""."""
    if not count:
        return ""
    return f" Kept {count:,} younger than {grace_hours:g} h (--grace-hours), which may be in use."


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
