"""Tasks of Spark whose first attempts fail, or dawdle until second ones overtake them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seglake.ingest.engine import SparkEngine

FAULTS = ("fails before", "fails after", "dawdles before", "dawdles after", "", "")


def make_unruly(seed: int, dawdle_s: float, notes: Path) -> None:
    """From now on, four in six tasks of an engine get a fault, before or after their work.

    A note in the folder says which attempt at which task began, and which fault it had.
    """
    run = SparkEngine.map

    def map_unruly(engine: Any, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        return run(engine, _unruly(task, seed, dawdle_s, str(notes)), items)

    SparkEngine.map = map_unruly  # type: ignore[method-assign]


def fault_of(seed: int, task_id: str) -> str:
    """The fault of a task's first attempt; the id is `<stage>-<number>`."""
    return random.Random(f"{seed} {task_id}").choice(FAULTS)


def _unruly(
    task: Callable[[Any], Any], seed: int, dawdle_s: float, notes: str
) -> Callable[[Any], Any]:
    """The task; nested functions travel whole, so executors need none of this package."""
    faults = FAULTS

    def fail(fault: str) -> None:
        if fault.startswith("dawdles"):
            time.sleep(dawdle_s)
        if fault.startswith("fails"):
            raise OSError("thrown on purpose")

    def run(item: Any) -> Any:
        from pyspark import TaskContext  # noqa: PLC0415  # on the executor

        context = TaskContext.get()
        assert context is not None
        task_id = f"{context.stageId()}-{context.partitionId()}"
        fault = random.Random(f"{seed} {task_id}").choice(faults)
        fault = "" if context.attemptNumber() else fault
        Path(notes, f"{task_id}-{context.attemptNumber()} {fault}").touch()
        if fault.endswith("before"):
            fail(fault)
        result = task(item)
        if fault.endswith("after"):
            fail(fault)
        return result

    return run
