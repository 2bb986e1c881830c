"""Memory of the Python workers while they take an input many times as large as a task may hold."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from seglake.engine import Item, Result, SparkEngine, Task
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.harness.bounded import TASK, TASK_BYTES, write_lines
from tests.makers.raw_events import pipeline_of, segments_of


def telling(task: Task[Any, Any], folder: Path) -> Task[Any, Any]:
    """The task, which writes down the most memory that its process has while it runs."""

    def run(item: Any) -> Any:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        result = task(item)
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert peak is not None
        (folder / str(uuid.uuid4())).write_text(peak[1])
        return result

    return run


class Watched(SparkEngine):
    """The tasks of both sides tell their peaks to a folder."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark)
        self.folder = folder

    def map(self, task: Task[Item, Result], items: Sequence[Item]) -> list[Result]:
        return super().map(telling(task, self.folder), items)


@pytest.mark.parametrize("order", ["time", "arrival"])
def test_memory_is_bounded_by_the_settings(spark: SparkSession, tmp_path: Path, order: str) -> None:
    most = []
    for name, size in (("small", TASK_BYTES), ("large", 20 * TASK_BYTES)):
        peaks = tmp_path / f"{name}-peaks"
        peaks.mkdir()
        count = write_lines(tmp_path / f"{name}.jsonl", size)
        settings = pipeline_of(tmp_path / name, tmp_path / f"{name}.jsonl", order=order, task=TASK)
        report = ingest_files(Watched(spark, peaks), settings, DeclaredRun("1"))
        written = sum(row.record_count for row in segments_of(settings.root))
        assert (report.records, written) == (count, count)
        most.append(max(int(path.read_text()) for path in peaks.iterdir()) * 1024)
    assert most[1] - most[0] < 4 * TASK_BYTES
