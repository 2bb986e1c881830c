"""Run one function over many segments: on threads of this machine, or as Spark tasks.

The function takes the store and a segment's row, or a group of rows. Kernels, checksums and codecs
release Python's lock, so threads use all cores.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from seglake.engine import Amounts, SparkEngine, on_threads, share_out
from seglake.store import Store
from seglake.terminal.progress import Pace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Item(Protocol):
    """A segment's row, or another item of work over some bytes of log."""

    @property
    def log_bytes(self) -> int:
        """Return the bytes of log to process."""


AnyItem = TypeVar("AnyItem", bound=Item)
Work = Callable[[Store, AnyItem], Any]
Progress = Callable[[int, int], None]  # bytes of log done, and bytes of log in all

WAVE = "bytes of log in this wave"
"""Unit of the progress of tasks that run at once, where many such waves come."""

_TASKS_PER_CORE = 4

_log = logging.getLogger(__name__)


class _Paces(threading.local):
    """The pace of the work that each thread reports."""

    pace: Pace | None = None


_paces = _Paces()


def logged(done: int, total: int) -> None:
    """Log progress, if the work takes longer than half a minute.

    A call with `done` = 0 begins new work.
    """
    if not done or _paces.pace is None:
        _paces.pace = Pace("bytes of log")
    elif line := _paces.pace.line(done, total):
        _log.info("%s", line)


class SegmentTasks(NamedTuple):
    """Runs functions over segments, on threads or as tasks of a Spark session.

    With Spark, functions and results are pickled, and the store is pickled without credentials.
    Progress is reported after every segment; with Spark, after every wave of concurrent tasks.
    """

    store: Store
    spark: SparkSession | None = None
    progress: Progress = logged

    def within(self, before: int, total: int) -> SegmentTasks:
        """Return tasks that report progress as part of `total` bytes, `before` already done."""
        return self._replace(progress=lambda done, _: self.progress(before + done, total))

    def map(self, work: Work[AnyItem], rows: Sequence[AnyItem]) -> list[Any]:
        """Return `work(store, row)` for each of the rows, in their order."""
        self.progress(0, sum(row.log_bytes for row in rows))
        if not rows:
            return []
        return self._on_threads(work, rows) if self.spark is None else self._on_spark(work, rows)

    def _on_threads(self, work: Work[AnyItem], rows: Sequence[AnyItem]) -> list[Any]:
        done, total = 0, sum(row.log_bytes for row in rows)

        def tell(row: AnyItem) -> None:
            nonlocal done
            done += row.log_bytes
            self.progress(done, total)

        return on_threads(partial(work, self.store), rows, tell)

    def _on_spark(self, work: Work[AnyItem], rows: Sequence[AnyItem]) -> list[Any]:
        engine, task = SparkEngine(self.spark), _OnExecutor(work, self.store)
        sizes = [row.log_bytes for row in rows]
        cores = engine.cores_for(sum(sizes))
        shares = share_out(sizes, _TASKS_PER_CORE * cores)
        results: dict[int, Any] = {}
        for first in range(0, len(shares), cores):
            wave = shares[first : first + cores]
            answers = engine.map(task, [[rows[number] for number in share] for share in wave])
            results |= zip(chain.from_iterable(wave), chain.from_iterable(answers), strict=True)
            self.progress(sum(sizes[number] for number in results), sum(sizes))
        return [results[number] for number in range(len(rows))]


class _OnExecutor(NamedTuple):
    """A Spark task: maps some rows to `work(store, row)` for each row."""

    work: Callable[..., Any]
    store: Store

    def __call__(self, rows: Sequence[Any]) -> list[Any]:
        return [self.work(self.store, row) for row in rows]

    def amounts(self, shares: Sequence[Sequence[Item]]) -> Amounts:
        """Return the bytes of log of each share. `progress` reports the sum of all waves."""
        return Amounts(WAVE, [sum(row.log_bytes for row in rows) for rows in shares])
