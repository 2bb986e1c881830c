"""Define the reports of maintenance commands, their commit, and their clock."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np

from seglake import layout
from seglake.cached import cached_property
from seglake.catalog.schema import MaintenanceRow, SegmentRow, report_as_json
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.transaction import transact_upkeep
from seglake.catalog.version.snapshot import Snapshot
from seglake.clock import now_ms
from seglake.engine import SegmentTasks
from seglake.errors import UsageError
from seglake.format.index import Subjects
from seglake.layout import new_attempt
from seglake.log.rewrite.keep import RecordFilter
from seglake.log.rewrite.segments import RewriteTarget, rewrite
from seglake.store import Store, dry_store, open_store
from seglake.terminal.tables import ShowsTable, Table, report_table

Status = Literal["committed", "already done", "dry run"]


@dataclass(repr=False)
class MaintenanceReport(ShowsTable):
    """Base class of reports, which can be converted to plain values, JSON, and a small table."""

    def _table(self) -> Table:
        return report_table(type(self).__name__, self.as_dict())

    @property
    def exit_code(self) -> int:
        """Return the exit code of the command, which is 0 unless a subclass overrides it."""
        return 0

    def as_dict(self) -> dict[str, Any]:
        """Return all fields by name. Values that are reports are also dictionaries."""
        return asdict(self)

    def as_json(self) -> str:
        """Return the report as one JSON object."""
        return json.dumps(self.as_dict(), ensure_ascii=False)


@dataclass(repr=False)
class TopicReport(MaintenanceReport):
    """The report of an attempt to maintain a topic. `version` is -1 if nothing was committed.

    `SAMPLED` names the lists that may have one item for each file. The row in the catalog has only
    the first items of these lists.
    """

    SAMPLED: ClassVar[tuple[str, ...]] = ()
    topic: str
    attempt_id: str = field(default_factory=new_attempt)
    version: int = -1
    started_at_ms: int = field(default_factory=now_ms)

    def row(self, operation: str) -> MaintenanceRow:
        """Return the maintenance row that the commit adds. `operation` is the command's name."""
        return MaintenanceRow(
            topic=self.topic,
            operation=operation,
            attempt_id=self.attempt_id,
            started_at_ms=self.started_at_ms,
            finished_at_ms=now_ms(),
            report=report_as_json(self.as_dict(), self.SAMPLED),
        )


@contextmanager
def open_catalog(
    root: str, storage_options: Mapping[str, str] | None, *, dry_run: bool
) -> Iterator[CatalogTable]:
    """Open the catalog of a lake for a `with` block. In a dry run, it uses a `DryStore`."""
    with open_lake_store(root, storage_options, dry_run=dry_run) as store:
        yield CatalogTable.open(store)


def open_lake_store(
    root: str, storage_options: Mapping[str, str] | None, *, dry_run: bool
) -> AbstractContextManager[Store]:
    """Open the store of a lake for a `with` block. In a dry run, it is a `DryStore`."""
    store = open_store(root, storage_options)
    return dry_store(store) if dry_run else nullcontext(store)


def commit_change(
    table: CatalogTable,
    report: TopicReport,
    plan: Callable[[Snapshot], Change | None],
    *,
    dry_run: bool,
    base: Snapshot | None = None,
) -> None:
    """Commit the change that `plan` returns, and set the version in the report.

    `plan` also fills in the report. It is called with `base`, by default the newest version, and
    after each lost race with a newer version. A dry run only calls `plan` once. Raises what
    `transact_upkeep` raises.
    """
    if dry_run:
        plan(base or table.snapshot())
        return
    version = transact_upkeep(table, report.topic, report.attempt_id, plan, base)
    report.version = -1 if version is None else version


def are_live(base: Snapshot, rows: Sequence[SegmentRow]) -> bool:
    """Return whether a version names all these segments, of one log partition, and their files."""
    if not rows:
        return True
    view = base.partition(rows[0].topic, rows[0].partition)
    places = np.searchsorted(view.segments.base_offsets, [row.base_offset for row in rows])
    return all(
        place < len(view) and view.segment(place).id == row.id
        for place, row in zip(places.tolist(), rows, strict=True)
    )


Answer = TypeVar("Answer")


_TRIES = 20  # while other commits delete the objects that a call reads


def retry(call: Callable[[], Answer], on: type[Exception]) -> Answer:
    """Return `call()`. If it raises `on`, call again, up to 20 times in total."""
    for _ in range(_TRIES - 1):
        with suppress(on):
            return call()
    return call()


class SegmentGroup(NamedTuple):
    """Consecutive segments of a log partition that become one segment, and the records to keep."""

    rows: tuple[SegmentRow, ...]
    keep: RecordFilter = RecordFilter()

    @property
    def log_bytes(self) -> int:
        """Return the total size of the segments' logs in bytes."""
        return sum(row.log_bytes for row in self.rows)


def rewrite_group(store: Store, group: SegmentGroup, *, target: RewriteTarget) -> SegmentRow:
    """Write a group as one segment, and return its row. Raises what `rewrite` raises."""
    return rewrite(store, group.rows, group.keep, target)


class Rewrites:
    """The segments that an attempt writes, while it plans its commit for one version after another.

    A group of segments is written once, and its new segment is used again if a later version has
    the group. Segments of two versions may begin at the same offset, so each later call of `rows`
    writes new segments under a new attempt id. `attempts` has the ids of these later calls.
    """

    def __init__(self, attempt_id: str, tasks: SegmentTasks) -> None:
        self._next_attempt, self._tasks = attempt_id, tasks
        self.attempts, self._written = set[str](), dict[tuple[SegmentRow, ...], SegmentRow]()

    def rows(self, groups: Sequence[SegmentGroup], subjects: Subjects) -> list[SegmentRow]:
        """Return the new segment of each group. It gets a key index of `subjects`."""
        left = [group for group in groups if group.rows not in self._written]
        if left:
            target = RewriteTarget(self._next_attempt, subjects=subjects)
            self._next_attempt = new_attempt()
            if self._written:
                self.attempts.add(target.attempt_id)
            new = self._tasks.map(partial(rewrite_group, target=target), left)
            self._written |= zip((group.rows for group in left), new, strict=True)
        return [self._written[group.rows] for group in groups]


# ---------------- clock
# This time decides what is old enough to be removed by maintenance.


def storage_time_ms(store: Store) -> int:
    """Return the present time (ms) by the clock of storage.

    This writes and deletes a small object. Raises StoreError.
    """
    key = layout.new_clock_key()
    store.put(key, b"")
    modified_ms = store.stat(key).modified_ms
    store.delete([key])
    return modified_ms


class Clock:
    """The present time by this machine's clock and, once it is needed, by the clock of storage.

    With a clock that is ahead, a command would remove young data. With a clock that is slow, it
    only keeps more data. To read the clock of storage requires the right to write, and a command
    with nothing to do should not need this right. So a command first searches by `machine_ms`, and
    reads the other properties only if it finds old data. Without a store, as in a dry run, this
    machine's clock is used.
    """

    def __init__(self, store: Store | None, machine_ms: int | None = None) -> None:
        self._store = store
        self.machine_ms = now_ms() if machine_ms is None else machine_ms

    @property
    def earlier_ms(self) -> int:
        """Return the earlier time (ms) of both clocks, which decides what is old enough.

        Raises StoreError.
        """
        return min(self.machine_ms, self._stored_ms)

    @property
    def later_ms(self) -> int:
        """Return the later time (ms) of both clocks, from which new delays are counted.

        Raises StoreError.
        """
        return max(self.machine_ms, self._stored_ms)

    @cached_property
    def _stored_ms(self) -> int:
        return self.machine_ms if self._store is None else storage_time_ms(self._store)


def check_hours(name: str, hours: float) -> None:
    """Raise UsageError with the option's name if `hours` are negative or infinite.

    A negative number would select a time in the future.
    """
    if not math.isfinite(hours) or hours < 0:
        raise UsageError(f"{name} must be a number of hours, 0 or more, not {hours:g}")
