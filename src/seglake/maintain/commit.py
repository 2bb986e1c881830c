"""The one commit of a command that maintains a topic, or its dry run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.transaction import transact_upkeep
from seglake.catalog.version.snapshot import Snapshot
from seglake.maintain.report import TopicReport
from seglake.store import Store, dry, open_store


@contextmanager
def opened(
    root: str, storage_options: Mapping[str, str] | None, *, dry_run: bool
) -> Iterator[CatalogTable]:
    """The catalog of a lake, on the store that `store_for` gives."""
    with store_for(root, storage_options, dry_run=dry_run) as store:
        yield CatalogTable.open(store)


@contextmanager
def store_for(
    root: str, storage_options: Mapping[str, str] | None, *, dry_run: bool
) -> Iterator[Store]:
    """The store of a lake; for a dry run, one that writes nothing to it."""
    store = open_store(root, storage_options)
    if not dry_run:
        yield store
        return
    with dry(store) as unwritten:
        yield unwritten


def carry_out(
    table: CatalogTable,
    report: TopicReport,
    plan: Callable[[Snapshot], Change | None],
    *,
    dry_run: bool,
    base: Snapshot | None = None,
) -> None:
    """Commit what `plan` makes of the newest version; a dry run only calls it, for the report.

    `base`, if given, is an open version, with which planning begins. The report gets the version of
    the commit. Raises as `transact_upkeep`.
    """
    if dry_run:
        plan(base or table.snapshot())
        return
    version = transact_upkeep(table, report.topic, report.attempt_id, plan, base)
    report.version = -1 if version is None else version
