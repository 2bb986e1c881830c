"""One function over many segments: on threads of this machine, or as Spark tasks.

The function takes the store and a segment's row. Kernels, checksums and codecs release Python's
lock, so threads use all cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from seglake.catalog.rows import SegmentRow
from seglake.engine import SparkEngine, share_out
from seglake.maintain.reports import Progress
from seglake.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Work = Callable[[Store, SegmentRow], Any]

_TASKS_PER_CORE = 4


def over_segments(
    work: Work,
    rows: Sequence[SegmentRow],
    store: Store,
    *,
    spark: SparkSession | None,
    progress: Progress,
) -> list[Any]:
    """What `work` returns for each of the rows, in their order.

    With Spark, `work` and its results are pickled, and a store travels without its credentials.
    Progress is told after every segment; with Spark, after as many tasks as run at once.
    """
    total = sum(row.log_bytes for row in rows)
    progress(0, total)
    if not rows:
        return []
    if spark is None:
        return _on_threads(work, rows, store, progress)
    return _on_spark(spark, _Task(work, store), rows, progress)


def _on_threads(
    work: Work, rows: Sequence[SegmentRow], store: Store, progress: Progress
) -> list[Any]:
    done, total = 0, sum(row.log_bytes for row in rows)
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        running = {workers.submit(work, store, row): row for row in rows}
        try:
            for future in as_completed(running):
                future.result()
                done += running[future].log_bytes
                progress(done, total)
        except BaseException:
            workers.shutdown(cancel_futures=True)
            raise
    return [future.result() for future in running]


def _on_spark(
    spark: SparkSession, task: _Task, rows: Sequence[SegmentRow], progress: Progress
) -> list[Any]:
    engine = SparkEngine(spark)
    done, total = 0, sum(row.log_bytes for row in rows)
    shares = share_out([row.log_bytes for row in rows], _TASKS_PER_CORE * engine.cores)
    results: dict[int, Any] = {}
    for first in range(0, len(shares), engine.cores):
        wave = shares[first : first + engine.cores]
        found = engine.map(task, [[rows[number] for number in share] for share in wave])
        numbers = list(chain.from_iterable(wave))
        results |= zip(numbers, chain.from_iterable(found), strict=True)
        done += sum(rows[number].log_bytes for number in numbers)
        progress(done, total)
    return [results[number] for number in range(len(rows))]


class _Task(NamedTuple):
    """What runs on an executor."""

    work: Work
    store: Store

    def __call__(self, rows: Sequence[SegmentRow]) -> list[Any]:
        """What the work returned for each segment."""
        return [self.work(self.store, row) for row in rows]
