"""One function over many segments: on threads of this machine, or as Spark tasks.

The function takes the store and a segment's row, and returns a value that JSON can hold. Kernels,
checksums and codecs release Python's lock, so threads use all cores.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from seglake.catalog.rows import SegmentRow
from seglake.ingest.plan import pack
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

    With Spark, `work` is pickled, and a store travels without its credentials. Progress is told
    after every segment; with Spark, at the end.
    """
    total = sum(row.log_bytes for row in rows)
    progress(0, total)
    if not rows:
        return []
    if spark is None:
        return _on_threads(work, rows, store, progress)
    results = _on_spark(spark, _Task(work, store), rows)
    progress(total, total)
    return results


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


def _on_spark(spark: SparkSession, task: _Task, rows: Sequence[SegmentRow]) -> list[Any]:
    bins = pack(
        [row.log_bytes for row in rows], _TASKS_PER_CORE * spark.sparkContext.defaultParallelism
    )
    table = pa.table(
        {
            "task": pa.array(bins, pa.int32()),
            "number": pa.array(range(len(rows)), pa.int64()),
            "row": [json.dumps(dataclasses.asdict(row)) for row in rows],
        }
    )
    frame = spark.createDataFrame(table).repartitionById(max(bins) + 1, "task")
    found = frame.mapInArrow(task.run, "number bigint, result string").toArrow().sort_by("number")
    results: list[Any] = found["result"].to_pylist()
    return [json.loads(text) for text in results]


class _Task(NamedTuple):
    """What runs on an executor."""

    work: Work
    store: Store

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Segments → what the work returned for each, as JSON."""
        for batch in batches:
            for item in batch.to_pylist():
                result = self.work(self.store, SegmentRow(**json.loads(item["row"])))
                columns: list[Any] = [[item["number"]], [json.dumps(result)]]
                yield pa.RecordBatch.from_arrays(
                    [pa.array(column) for column in columns], ["number", "result"]
                )
