"""Versions of a lake that are retained, and what a vacuum would free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from seglake.catalog.table import CatalogTable
from seglake.maintain.vacuum import vacuum
from seglake.store import open_store


class Freed(NamedTuple):
    """What a vacuum would delete now, and what more when older versions have expired."""

    objects: int
    size_bytes: int
    later_objects: int
    later_bytes: int
    young_objects: int


class StorageFigures(NamedTuple):
    """The versions that the catalog's log has; `freed` is None unless objects were listed.

    `commits` has (version, time in ms) of each commit, oldest first.
    """

    commits: list[tuple[int, int]]
    retention_ms: int
    freed: Freed | None


def storage_figures(
    root: str, options: Mapping[str, str] | None, *, list_objects: bool
) -> StorageFigures:
    """The versions; with `list_objects` all objects are listed for what a vacuum would free."""
    store = open_store(root, options)
    table = CatalogTable.open(store)
    freed = _freed(root, options) if list_objects else None
    return StorageFigures(table.commit_times(), table.handle.retention_ms(), freed)


def _freed(root: str, options: Mapping[str, str] | None) -> Freed:
    now = vacuum(root, dry_run=True, storage_options=options)
    then = vacuum(root, dry_run=True, grace_hours=0, retention_hours=0, storage_options=options)
    objects = len(now.deleted) + len(now.catalog_files)
    later = len(then.deleted) + len(then.catalog_files)
    return Freed(
        objects, now.deleted_bytes, max(0, later - objects),
        max(0, then.deleted_bytes - now.deleted_bytes), len(now.young),
    )  # fmt: skip
