"""What commands of maintenance share: their report, their one commit and their clock."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

from seglake import layout
from seglake.cached import cached_property
from seglake.catalog.schema import MaintenanceRow, SegmentRow, in_a_row
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.transaction import transact_upkeep
from seglake.catalog.version.snapshot import Snapshot
from seglake.clock import now_ms
from seglake.errors import UsageError
from seglake.layout import new_attempt
from seglake.store import Store, dry, open_store
from seglake.terminal.tables import ShowsTable, Table, of_report

Status = Literal["committed", "already done", "dry run"]


@dataclass(repr=False)
class MaintenanceReport(ShowsTable):
    """A report as plain values, as JSON, and as a small table."""

    def _table(self) -> Table:
        return of_report(type(self).__name__, self.as_dict())

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 0 unless a class says otherwise."""
        return 0

    def as_dict(self) -> dict[str, Any]:
        """All fields, by name."""
        return asdict(self)

    def as_json(self) -> str:
        """One JSON object."""
        return json.dumps(self.as_dict(), ensure_ascii=False)


@dataclass(repr=False)
class TopicReport(MaintenanceReport):
    """The report of an attempt to maintain a topic; `version` is that of its commit, else -1.

    `SAMPLED` are lists that may have an item for each file: a row has a few of them.
    """

    SAMPLED: ClassVar[tuple[str, ...]] = ()
    topic: str
    attempt_id: str = field(default_factory=new_attempt)
    version: int = -1
    started_at_ms: int = field(default_factory=now_ms)

    def row(self, operation: str) -> MaintenanceRow:
        """The row that the commit adds; `operation` is the command's name."""
        return MaintenanceRow(
            topic=self.topic,
            operation=operation,
            attempt_id=self.attempt_id,
            started_at_ms=self.started_at_ms,
            finished_at_ms=now_ms(),
            report=in_a_row(self.as_dict(), self.SAMPLED),
        )


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


Answer = TypeVar("Answer")


def retried(call: Callable[[], Answer], tries: int, on: type[Exception]) -> Answer:
    """Call a function until it does not raise `on`. The last try raises it."""
    for _ in range(tries - 1):
        with suppress(on):
            return call()
    return call()


class Rewrites:
    """The segments that an attempt wrote, for any version that its commit may continue.

    Segments are written once, under a key of the caller. Segments of two versions may begin at the
    same offset, so only the first ones belong to the attempt itself. `attempts` are the ids under
    which the others were written.
    """

    def __init__(self, attempt_id: str) -> None:
        self._next_attempt, self.attempts = attempt_id, set[str]()
        self._written = dict[Any, SegmentRow]()

    def rows(
        self, wanted: Mapping[Any, Any], write: Callable[[str, list[Any]], Iterable[SegmentRow]]
    ) -> list[SegmentRow]:
        """Return the row of each item in `wanted`. Call `write` with an attempt for new items."""
        left = [key for key in wanted if key not in self._written]
        if left:
            attempt_id, self._next_attempt = self._next_attempt, new_attempt()
            if self._written:
                self.attempts.add(attempt_id)
            new = write(attempt_id, [wanted[key] for key in left])
            self._written |= zip(left, new, strict=True)
        return [self._written[key] for key in wanted]


# ---------------- clock
# The time by which maintenance removes what is old.


def time_of_storage(store: Store) -> int:
    """The time at which storage says that it stored an object just now, in milliseconds."""
    key = layout.new_clock_key()
    store.put(key, b"")
    modified_ms = store.stat(key).modified_ms
    store.delete([key])
    return modified_ms


class Clock:
    """The time by this machine, and by storage once it is needed.

    A clock that is ahead would remove what is still young; a clock that is slow keeps more. To read
    the clock of storage is to write to it, and a command with nothing to do needs no right to
    write. So it first finds what is old at `machine_ms`, and reads the other times only if
    something is. Without a store, as in a dry run, this machine's time is the only one.
    """

    def __init__(self, store: Store | None, machine_ms: int | None = None) -> None:
        self._store = store
        self.machine_ms = now_ms() if machine_ms is None else machine_ms

    @property
    def earlier_ms(self) -> int:
        """The earlier of both times: what is old by it may go. Raises StoreError."""
        return min(self.machine_ms, self._stored_ms)

    @property
    def later_ms(self) -> int:
        """The later of both times: a delay that begins now begins then. Raises StoreError."""
        return max(self.machine_ms, self._stored_ms)

    @cached_property
    def _stored_ms(self) -> int:
        return self.machine_ms if self._store is None else time_of_storage(self._store)


def checked_hours(name: str, hours: float) -> float:
    """A number of hours that a caller gave under this name.

    Raises UsageError unless it is 0 or more: a negative one would reach into the future.
    """
    if math.isfinite(hours) and hours >= 0:
        return hours
    raise UsageError(f"{name} {hours:g} is no length of time: give a number of hours, 0 or more")
