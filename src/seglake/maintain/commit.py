"""The one commit of a command that maintains a topic."""

from __future__ import annotations

from collections.abc import Callable

from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.transaction import transact
from seglake.catalog.version.snapshot import Snapshot
from seglake.maintain.report import TopicReport


def carry_out(
    table: CatalogTable,
    report: TopicReport,
    plan: Callable[[Snapshot], Change | None],
    *,
    dry_run: bool,
    base: Snapshot | None = None,
) -> None:
    """Commit what `plan` makes of the newest version; a dry run only calls it.

    `base`, if given, is an open version, with which planning begins. The report gets the version of
    the commit. Raises as `transact`.
    """
    if dry_run:
        plan(base or table.snapshot())
        return
    version = transact(table, report.topic, report.attempt_id, plan, base)
    report.version = -1 if version is None else version
