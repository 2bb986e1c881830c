"""One commit of one attempt to a topic, tried until it holds: of an ingest and of maintenance.

A commit that failed may have been made: a lost reply looks like a lost race. So after every failure
the catalog is read again, and the attempt is looked for before its change is planned anew.
"""

import logging
import time
from collections.abc import Callable

from seglake.catalog.manifest import mark_committed
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import CommitConflict, StoreError
from seglake.store import Store

PATIENCE = 100  # an attempt gives up when its lost races and storage failures cost this much
RACE_COST, FAILURE_COST = 1, 20
PAUSE_S = 0.5  # after a failure of storage

Plan = Callable[[Snapshot], Change | None]

_log = logging.getLogger(__name__)


def transact(
    table: CatalogTable, topic: str, attempt_id: str, plan: Plan, base: Snapshot | None = None
) -> int | None:
    """Commit what `plan` makes of the newest version; returns a version that has it.

    `plan` gets `base`, or else the newest version, and after each lost race a newer one. Returns
    None if `plan` finds nothing to do. Raises what `plan` raises, AttemptAbandoned, and
    CommitConflict or StoreError when the patience is used up: after a StoreError the commit may
    have been made.
    """
    return _Transaction(table, topic, attempt_id).run(plan, base)


def mark(store: Store, attempt_id: str) -> None:
    """Write the success mark of an attempt that is committed; log a warning if that fails."""
    try:
        mark_committed(store, attempt_id)
    except StoreError as error:
        _log.warning(
            "the commit is made, but its success mark for `seglake repair` is not written; "
            "`seglake vacuum` writes it later: %s", error,
        )  # fmt: skip


class _Transaction:
    """The tries of one attempt at its commit."""

    def __init__(self, table: CatalogTable, topic: str, attempt_id: str) -> None:
        self._table, self._topic, self._attempt_id = table, topic, attempt_id
        self._patience = PATIENCE

    def run(self, plan: Plan, base: Snapshot | None) -> int | None:
        base = base or self._table.snapshot()
        while True:
            change = plan(base)
            if change is None:
                return None
            try:
                return self._table.commit(
                    topic=self._topic, base=base, attempt_id=self._attempt_id, **change._asdict()
                )
            except (CommitConflict, StoreError) as problem:
                base = self._newest(base)
                if self._table.has(base, self._topic, self._attempt_id):
                    mark(self._table.store, self._attempt_id)
                    return base.version
                self._spend(problem)

    def _newest(self, base: Snapshot) -> Snapshot:
        while True:
            try:
                return self._table.refresh(base)
            except StoreError as problem:
                self._spend(problem)

    def _spend(self, problem: CommitConflict | StoreError) -> None:
        """Wait after a failure of storage; raise the problem when the patience is used up."""
        raced = isinstance(problem, CommitConflict)
        self._patience -= RACE_COST if raced else FAILURE_COST
        if self._patience <= 0:
            raise problem
        if not raced:
            time.sleep(PAUSE_S)
