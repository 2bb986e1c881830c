"""Run the maintenance that each topic's settings require, and then a vacuum.

The parts of a topic run in this order: retention, compaction, merge, expiry of rejects, publishing
of its tables. The first parts remove data that the later parts would copy. If a part fails, its
error is reported, and the other parts still run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from seglake.catalog.published import published_tables
from seglake.catalog.table import CatalogTable
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import Topic
from seglake.engine import SegmentTasks
from seglake.errors import SeglakeError
from seglake.limits import GRACE_HOURS
from seglake.maintain.commit import Clock, MaintenanceReport, check_hours
from seglake.maintain.compaction.compact import CompactResult, compact_topic
from seglake.maintain.expiry.retention import RetainResult, expire_rejects, retain_topic
from seglake.maintain.merge import merge_in
from seglake.maintain.publish.publish import Publisher
from seglake.maintain.vacuum import vacuum
from seglake.store import open_store
from seglake.store.dry import dry_store, keeping_segments
from seglake.write.driver.report import Progress, silent
from seglake.write.driver.topics import topic_from_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


@dataclass
class MaintenancePart(MaintenanceReport):
    """One operation on a topic, or on the lake if there is no `topic`.

    It has the report of the operation, the error that ended the operation, or both.
    """

    operation: str
    topic: str | None
    seconds: float = 0.0
    report: dict[str, Any] | None = None
    error: str | None = None


@dataclass(repr=False)
class MaintainResult(MaintenanceReport):
    """The parts of a maintenance run, in the order in which they ran."""

    dry_run: bool = False
    parts: list[MaintenancePart] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """Return 0 if every part succeeded, else 1."""
        return 1 if any(part.error is not None for part in self.parts) else 0


class _DryCatalog(CatalogTable):
    """A catalog on a `DryStore`. Unlike delta-rs, it can read the commits of the dry run."""

    _known: Snapshot | None = None

    def snapshot(
        self, version: int | str | None = None, topics: Collection[str] | None = None
    ) -> Snapshot:
        if version is not None:
            return super().snapshot(version, topics)
        self._known = self.refresh(self._known or super().snapshot())
        return self._known

    def newest_files(self) -> frozenset[Any]:
        return self.snapshot().files


def maintain_lake(
    root: str,
    topic: str | None = None,
    *,
    dry_run: bool = False,
    grace_hours: float = GRACE_HOURS,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> MaintainResult:
    """Maintain every topic, or one topic, and then vacuum the lake.

    The published tables of a topic are published after its other parts. If a part fails, its error
    is in the report, and the other parts still run.

    Args:
        root: The folder or URI of the lake.
        topic: The only topic to maintain.
        dry_run: Write nothing to the lake. Each part reports what it would do after the parts
            before it. Retention and compaction run on a `DryStore`, whose temporary folder must
            have space for the compacted segments. The vacuum reports what it would delete now.
        grace_hours: A vacuum keeps objects of attempts that wrote something within this time.
        spark: Runs compaction and merges on its executors. Without it, all work runs in this
            process.
        storage_options: Options of the store.
        progress: Called with the name of each part when the part begins.

    Raises:
        UsageError: There is no lake, or the hours are negative.
        UnknownTopic: There is no such topic.
        CorruptData: The catalog cannot be read.
        StoreError: Storage failed before the first part.

    Example:
        >>> maintained = seglake.maintain_lake("lake", dry_run=True)
        >>> [part.operation for part in maintained.parts]
        ['merge', 'vacuum']
    """
    check_hours("--grace-hours", grace_hours)
    result, store = MaintainResult(dry_run), open_store(root, storage_options)
    with dry_store(store) if dry_run else nullcontext(store) as own:
        table = CatalogTable.open(store)
        table = _DryCatalog(own) if dry_run else table
        snapshot = table.snapshot()
        names = [row.topic for row in snapshot.topics()] if topic is None else [topic]
        settings = {name: topic_from_row(snapshot.topic(name)) for name in names}
        clock = Clock(None if dry_run else store)
        tasks = SegmentTasks.from_session(own, None if dry_run else spark, None)
        for asked in settings.values():
            for operation, do in _of_topic(table, asked, clock, tasks, dry_run=dry_run):
                result.parts.append(_done(operation, asked.name, do, progress))
            for row in published_tables(table, snapshot, asked.name):
                publishing = partial(Publisher(table, row, tasks).publish, dry_run=dry_run)
                result.parts.append(_done("publish", asked.name, publishing, progress))
    sweep = partial(
        vacuum, root, dry_run=dry_run, grace_hours=grace_hours, storage_options=storage_options
    )
    result.parts.append(_done("vacuum", None, sweep, progress))
    return result


def _of_topic(
    table: CatalogTable, settings: Topic, clock: Clock, tasks: SegmentTasks, *, dry_run: bool
) -> Iterator[tuple[str, Callable[[], MaintenanceReport]]]:
    """Yield the name and the function of each operation that the settings of a topic require.

    In a dry run, `table` must use a `DryStore`.
    """
    name = settings.name

    def committed(do: Callable[[], RetainResult | CompactResult]) -> MaintenanceReport:
        # In a dry run, the part commits to the `DryStore`.
        with keeping_segments(table.store):
            report = do()
        report.dry_run, report.version = dry_run, -1 if dry_run else report.version
        return report

    if settings.retention_ms >= 0 or settings.retention_bytes >= 0:
        retention = partial(retain_topic, table, name, clock, dry_run=False)
        yield "retain", partial(committed, retention)
    if "compact" in settings.cleanup_policy:
        yield "compact", partial(committed, partial(compact_topic, table, name, tasks.engine))
    yield "merge", partial(merge_in, table, name, tasks, dry_run=dry_run)
    if settings.quarantine_retention_ms >= 0:
        yield "expire-rejects", partial(expire_rejects, table, name, clock, dry_run=dry_run)


def _done(
    operation: str, topic: str | None, do: Callable[[], MaintenanceReport], progress: Progress
) -> MaintenancePart:
    """Run an operation, and return a part with its report, or with the error if it failed."""
    part = MaintenancePart(operation, topic)
    progress(operation if topic is None else f"{operation} {topic}")
    begun = time.monotonic()
    try:
        report = do()
        part.report = report.as_dict()
        if report.exit_code:
            part.error = f"{operation} skipped damaged files, which its report lists"
    except SeglakeError as error:
        part.error = str(error)
    except Exception as error:
        _log.exception("%s of %s failed", operation, topic or "the lake")
        part.error = f"{type(error).__name__}: {error}"
    part.seconds = round(time.monotonic() - begun, 3)
    return part
