"""Versions of a lake that are retained, tags, and what a vacuum would free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from seglake.catalog.table import CatalogTable
from seglake.maintain.tagging import Hold, holds
from seglake.maintain.vacuum import vacuum


class Freed(NamedTuple):
    """What a vacuum would delete now, and what more when older versions have expired."""

    objects: int
    size_bytes: int
    later_objects: int
    later_bytes: int
    young_objects: int


class StorageFigures(NamedTuple):
    """The versions that the catalog's log has; `freed` is None unless objects were listed.

    `commits` has (version, time in ms) of each commit, oldest first. In the report of one topic,
    `tags` are those that have it, and what they hold of it.
    """

    commits: list[tuple[int, int]]
    retention_ms: int
    freed: Freed | None
    tags: list[Hold]


def storage_figures(table: CatalogTable, topic: str | None, freed: Freed | None) -> StorageFigures:
    """The versions, and what tags hold of a topic, or of all. Raises StoreError and CorruptData."""
    tags = holds(table, topic=topic)
    return StorageFigures(table.commit_times(), table.handle.retention_ms(), freed, tags)


def what_a_vacuum_frees(root: str, options: Mapping[str, str] | None) -> Freed:
    """What a vacuum would free: all objects are listed."""
    now = vacuum(root, dry_run=True, storage_options=options)
    then = vacuum(root, dry_run=True, grace_hours=0, retention_hours=0, storage_options=options)
    objects = len(now.deleted) + len(now.catalog_files)
    later = len(then.deleted) + len(then.catalog_files)
    return Freed(
        objects, now.deleted_bytes, max(0, later - objects),
        max(0, then.deleted_bytes - now.deleted_bytes), len(now.young),
    )  # fmt: skip
