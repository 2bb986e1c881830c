"""Memory of the Python workers while they take an input many times as large as a task may hold."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from seglake.ingest.engine import SparkBlobs, SparkEngine
from seglake.ingest.pipeline import RunKey, ingest_files
from tests.raw_events import T, pipeline_of, segments_of

MIB = 2**20
TASK = {
    "split_bytes": 2 * MIB, "chunk_bytes": MIB, "blob_bytes": MIB // 8, "merge_bytes": MIB,
    "piece_bytes": 2 * MIB,
}  # fmt: skip
TASK_BYTES = 6 * MIB  # what these bounds add up to


def write_lines(path: Path, size: int) -> int:
    """A file of about `size` bytes, of late events and one hot key; how many there are."""
    line = '{"ts":%d,"k":"hot","p":0,"n":"%s"}\n'
    count = size // len(line % (T, "x" * 400))
    with path.open("w") as out:
        for at in range(count):
            out.write(line % (T + at - 400 * (at % 50 == 0), f"{at:0400}"))
    return count


def telling(task: Any, folder: Path) -> Any:
    """The task, which writes down the most memory that its process has while it runs."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        yield from task(batches)
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert peak is not None
        (folder / str(uuid.uuid4())).write_text(peak[1])

    return run


@pytest.mark.parametrize("order", ["time", "arrival"])
def test_memory_is_bounded_by_the_settings(
    spark: SparkSession, tmp_path: Path, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(MIB))
    most = []
    try:
        for name, size in (("small", TASK_BYTES), ("large", 20 * TASK_BYTES)):
            with monkeypatch.context() as patched:
                told = watched(patched, tmp_path / f"{name}-peaks")
                count = write_lines(tmp_path / f"{name}.jsonl", size)
                settings = pipeline_of(
                    tmp_path / name, tmp_path / f"{name}.jsonl", order=order, task=TASK
                )
                report = ingest_files(SparkEngine(spark), settings, RunKey("1"), lambda _: None)
            written = sum(row.record_count for row in segments_of(settings.root))
            assert (report.records, written) == (count, count)
            most.append(max(int(path.read_text()) for path in told.iterdir()) * 1024)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxBytesPerBatch")
    assert most[1] - most[0] < 4 * TASK_BYTES


def watched(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """The folder to which the tasks of both sides tell their peaks from now on."""
    folder.mkdir()
    for owner, name in ((SparkEngine, "map_frame"), (SparkBlobs, "run_routed")):
        real = getattr(owner, name)
        monkeypatch.setattr(
            owner,
            name,
            lambda self, task, *rest, real=real: real(self, telling(task, folder), *rest),
        )
    return folder
