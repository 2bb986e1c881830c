"""`seglake verify`, `vacuum`, `repair` and `reindex`: maintenance without Spark."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from seglake.cli.terminal.output import log_lines
from seglake.cli.terminal.tables import Column, Rows, number, show

if TYPE_CHECKING:
    from seglake.format.index import IndexPolicy

FINDINGS = [
    Column("kind", "kind"),
    Column("file", "file"),
    number("position", "byte"),
    Column("problem", "problem"),
]


def policy_of(intervals: Mapping[str, int | None]) -> IndexPolicy | None:
    """The index policy that is asked for; None keeps that of each segment. Raises UsageError."""
    from seglake.errors import UsageError
    from seglake.format.index import IndexPolicy

    given = [IndexPolicy(unit, size) for unit, size in intervals.items() if size is not None]
    if len(given) > 1:
        raise UsageError(
            "several index intervals contradict each other: keep one of --index-interval-bytes, "
            "--index-interval-records and --index-interval-ms"
        )
    return given[0] if given else None


def verify(root: str, topics: list[str] | None, *, deep: bool, as_json: bool) -> int:
    """Check a lake. Returns the exit code."""
    from seglake.maintain.health.verify import verify as check

    with bar("verifying") as progress:
        report = check(root, deep=deep, topics=topics, progress=progress)
    if as_json:
        print(report.as_json())
    elif report.findings:
        show("findings", Rows(FINDINGS, map(dataclasses.asdict, report.findings)), as_json=False)
    else:
        how = "every record and index entry" if deep else "every file's size and checksum"
        print(f"Version {report.version} is sound: {report.segments:,} segments, {how} checked.")
    if report.orphans and not as_json:
        print(f"{len(report.orphans)} objects belong to no version; `seglake vacuum` removes them.")
    return report.exit_code


def vacuum(root: str, *, dry_run: bool, grace_hours: float, as_json: bool) -> int:
    """Remove the objects that no retained version names, or list them. Returns the exit code."""
    from seglake.maintain.vacuum import vacuum as sweep

    report = sweep(root, dry_run=dry_run, grace_hours=grace_hours)
    if as_json:
        print(report.as_json())
        return 0
    for key in (*report.catalog_files, *report.deleted):
        print(key)
    if report.marked:
        done = (
            "lack their mark of success; without --dry-run they get it"
            if dry_run
            else "got their mark of success"
        )
        print(f"{len(report.marked)} committed attempts {done}.")
    count = len(report.deleted) + len(report.catalog_files)
    done = "would be deleted; without --dry-run they are" if dry_run else "deleted"
    print(
        f"{count} objects, {report.deleted_bytes:,} bytes {done}. "
        f"{len(report.young)} are too young."
    )
    return 0


def repair(
    root: str, *, catalog: bool, dry_run: bool, force: bool, trust: list[str], as_json: bool
) -> int:
    """Rebuild damaged indexes, or the catalog from manifests. Returns the exit code."""
    from seglake.errors import UsageError
    from seglake.maintain.health.repair import rebuild_catalog, repair_indexes

    if catalog:
        rebuilt = rebuild_catalog(root, trust=trust, force=force, dry_run=dry_run)
        if rebuilt.status == "already done" and not as_json:
            print("The catalog can be read: it needs no rebuild (--force makes one all the same).")
        else:
            _print([rebuilt.as_dict()], as_json=as_json)
        return 0
    if trust or force:
        raise UsageError(f"{'--trust' if trust else '--force'} is for --catalog: add it")
    with bar("looking" if dry_run else "repairing") as progress:
        reports = repair_indexes(root, dry_run=dry_run, progress=progress)
    _print([report.as_dict() for report in reports], as_json=as_json)
    return 1 if any(report.damaged for report in reports) else 0


def reindex(root: str, topic: str, policy: IndexPolicy | None, *, as_json: bool) -> int:
    """Write a topic's index files anew. Returns the exit code."""
    from seglake.maintain.health.reindex import reindex as run

    with bar("indexing") as progress:
        report = run(root, topic, policy, progress=progress)
    _print([report.as_dict()], as_json=as_json)
    return 1 if report.damaged else 0


def _print(reports: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(reports, ensure_ascii=False))
        return
    for report in reports:
        for name, value in report.items():
            print(f"{name.replace('_', ' ')}: {value}")


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function of (bytes done, bytes in all) that shows progress: as a bar, or as log lines."""
    from seglake.log.tasks import logged

    if not sys.stderr.isatty():
        with log_lines():
            yield logged
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
