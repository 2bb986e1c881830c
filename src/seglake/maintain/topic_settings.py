"""Show and change the settings of a topic, which the catalog stores."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import Topic, combined_topic
from seglake.config.topic import DEFAULTS, IDENTITY
from seglake.errors import UsageError
from seglake.maintain.commit import MaintenanceReport, TopicReport, commit_change
from seglake.maintain.expiry.retention import LogStartChange, expired
from seglake.store import open_store
from seglake.write.driver.topics import settings_json, stored_settings, topic_from_row

_RETENTION = {"retention.ms", "retention.bytes", "cleanup.policy"}
_OF_IDENTITY = {info.alias or name for name, info in Topic.model_fields.items() if name in IDENTITY}


@dataclass
class Setting(MaintenanceReport):
    """A setting of a topic, with its description. `is_set` is whether it is not the default."""

    key: str
    value: Any
    default: Any
    is_set: bool
    meaning: str


@dataclass(repr=False)
class AlterResult(TopicReport):
    """The changes of a topic's settings, as {key: [old value, new value]}.

    If the change adds something to `index.keys`, `index.fields` or `index.headers`, `unindexed`
    counts the segments whose key index does not cover it. A `reindex` makes these key indexes. If a
    setting of retention changes, `expired` has a `LogStartChange` for each log partition from which
    the next `maintain` or `retain` removes segments.
    """

    dry_run: bool = False
    changes: dict[str, list[Any]] = field(default_factory=dict)
    unindexed: int = 0
    expired: list[LogStartChange] = field(default_factory=list)


def describe(
    root: str, topic: str, *, storage_options: Mapping[str, str] | None = None
) -> list[Setting]:
    """Return every setting of a topic in the newest version of the lake. Raises UnknownTopic.

    Example:
        >>> settings = seglake.describe("lake", "web")
        >>> [setting.value for setting in settings if setting.key == "retention.ms"]
        [-1]
    """
    return list_settings(CatalogTable.open(open_store(root, storage_options)), topic)


def list_settings(table: CatalogTable, topic: str) -> list[Setting]:
    """Return every setting of a topic in the newest version of an open catalog."""
    row = table.snapshot().topic(topic)
    values = topic_from_row(row).model_dump(mode="json", by_alias=True)
    return [
        Setting(
            key, values[key], DEFAULTS[key], values[key] != DEFAULTS[key], info.description or ""
        )
        for name, info in Topic.model_fields.items()
        if (key := info.alias or name) not in {"name", "partition_field", "offset_field"}
    ]


def alter(
    root: str,
    topic: str,
    settings: Mapping[str, Any],
    *,
    delete: Collection[str] = (),
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> AlterResult:
    """Change settings of a topic in one commit.

    A change applies from the next run and the next maintenance on. Nothing is committed if no value
    changes. After a StoreError, the commit may have been made. After any other error, nothing has
    changed.

    Args:
        root: The folder or URI of the lake.
        topic: The topic.
        settings: The new value of each key.
        delete: Keys to reset to their defaults.
        dry_run: Write nothing, and only report the changes.
        storage_options: Options of the store.

    Raises:
        ConfigError: A key or a value is invalid.
        UsageError: No key is passed, a key cannot change, or a key has a value and is in `delete`.
        UnknownTopic: There is no such topic.
        CommitConflict: Concurrent commits won all retries.
        StoreError: Storage failed.

    Example:
        >>> altered = seglake.alter("lake", "web", {"retention.ms": 86_400_000})
        >>> altered.changes
        {'retention.ms': [-1, 86400000]}
    """
    _check(settings, delete)
    table = CatalogTable.open(open_store(root, storage_options))
    report = AlterResult(topic, dry_run=dry_run)

    def plan(base: Snapshot) -> Change | None:
        old = base.topic(topic)
        stored = {k: v for k, v in stored_settings(old).items() if k not in delete}
        new = combined_topic(stored, {"name": topic, **settings})
        before, after = topic_from_row(old).settings, new.settings
        both = {
            key: [settings.get(key, DEFAULTS[key]) for settings in (before, after)]
            for key in {**before, **after}
        }
        report.changes = {key: values for key, values in both.items() if values[0] != values[1]}
        if not report.changes:
            return None
        added = {*new.index_subjects} - {*old.index_subjects}
        rows = table.rows.segments(base, topic) if added else []
        have = ({*row.index_policy.subjects} for row in rows if row.record_count)
        report.unindexed = sum(not added <= subjects for subjects in have)
        if _RETENTION & report.changes.keys():
            report.expired = expired(table, base, topic, new)
        text = settings_json(new, json.loads(old.settings))
        row = replace(old, sequence=old.sequence + 1, settings=text)
        return Change([row, report.row("alter")])

    commit_change(table, report, plan, dry_run=dry_run)
    return report


def _check(settings: Mapping[str, Any], delete: Collection[str]) -> None:
    if not settings and not delete:
        raise UsageError("alter needs a setting. Write KEY=VALUE, or name a setting to delete")
    for key in (*settings, *delete):
        if key in _OF_IDENTITY:
            raise UsageError(
                f"alter cannot change {key}, which is fixed when a topic is created. Only a "
                "pipeline can raise the number of partitions (topic.partitions)"
            )
        if key in settings and key in delete:
            raise UsageError(f"{key} is both set and deleted. Keep one")
    for key in delete:
        combined_topic({}, {"name": "any", key: DEFAULTS.get(key)})
