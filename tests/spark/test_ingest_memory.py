"""Memory of all processes of an ingest whose input is many times as large as a task may hold."""

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from seglake.engine import Item, Result, SparkEngine, Task
from seglake.session import spark_session
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.harness.bounded import MIB, TASK, TASK_BYTES, write_lines
from tests.harness.memory import Peaks
from tests.makers.raw_events import pipeline_of, segments_of

PROJECT = Path(__file__).parents[2]
SIZES = {"small": TASK_BYTES, "large": 20 * TASK_BYTES}
CORES, HEAP = 2, 512 * MIB
# What docs/deployment.md says beside the heap: of the JVM, of a Python worker, of the driver.
JVM, WORKER, DRIVER = 384 * MIB, 512 * MIB, 512 * MIB


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


def ingest(engine: SparkEngine, folder: Path, name: str, order: str) -> None:
    """A file of the folder; every line becomes a record."""
    count = write_lines(folder / f"{name}.jsonl", SIZES[name])
    settings = pipeline_of(folder / name, folder / f"{name}.jsonl", order=order, task=TASK)
    report = ingest_files(engine, settings, DeclaredRun("1"))
    written = sum(row.record_count for row in segments_of(settings.root))
    assert (report.records, written) == (count, count)


@pytest.mark.rest
def test_workers_are_bounded_by_the_settings(spark: SparkSession, tmp_path: Path) -> None:
    most = []
    for name in SIZES:
        peaks = tmp_path / f"{name}-peaks"
        peaks.mkdir()
        ingest(Watched(spark, peaks), tmp_path, name, "arrival")
        most.append(max(int(path.read_text()) for path in peaks.iterdir()) * 1024)
    assert most[1] - most[0] < 4 * TASK_BYTES


@pytest.mark.rest
@pytest.mark.long
def test_all_processes_keep_to_what_is_declared(tmp_path: Path) -> None:
    """With `order = "time"`: neither the driver nor a worker has more of a larger input."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.test_ingest_memory", str(tmp_path)], cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(PROJECT / "src"), str(PROJECT)])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    small, large = json.loads(done.stdout.splitlines()[-1])
    assert large["driver"] - small["driver"] < 4 * TASK_BYTES
    assert large["worker"] - small["worker"] < 4 * TASK_BYTES
    assert 0 < large["jvm"] <= HEAP + JVM
    assert 0 < large["worker"] <= WORKER
    assert large["whole"] <= HEAP + JVM + DRIVER + CORES * WORKER


def main(folder: Path) -> None:
    """Ingests both files with a session of its own; prints the peaks after each."""
    conf = {"spark.ui.enabled": "false", "spark.driver.memory": f"{HEAP // MIB}m"}
    spark = spark_session("memory", master=f"local[{CORES}]", conf=conf)
    told = []
    for name in SIZES:
        ingest(SparkEngine(spark), folder, name, "time")
        peaks = Peaks()
        peaks.look(os.getpid())
        told.append(vars(peaks))
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
