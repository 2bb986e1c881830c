"""Tasks of Spark whose first attempts fail, or dawdle until second ones overtake them."""

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seglake.engine import SparkEngine

Task = Callable[[Any], Any]


def make_unruly(seed: int, dawdle_s: float, notes: Path) -> None:
    """From now on, some first attempts at tasks have a fault: before or after their work.

    A third of a stage's tasks fail, and one dawdles: a second one would leave Spark no room for the
    copies that it starts of tasks that are slow. A note in the folder says that an attempt began:
    `<stage>-<task>-<attempt> <fault>`.
    """
    run, chance = SparkEngine.map, random.Random(seed)

    def map_unruly(engine: Any, task: Task, items: Sequence[Any]) -> list[Any]:
        faults = [chance.choice(["fails", "", ""]) for _ in items]
        if len(items) > 1:
            faults[chance.randrange(len(items))] = "dawdles"
        moments = [chance.choice(["before", "after"]) for _ in items]
        plan = list(zip(faults, moments, strict=True))
        return run(engine, unruly(task, plan, dawdle_s, str(notes)), items)

    SparkEngine.map = map_unruly  # type: ignore[method-assign, assignment]


def unruly(task: Task, plan: list[tuple[str, str]], dawdle_s: float, notes: str) -> Task:
    """The task, whose first attempts have the faults of the plan: (fails or dawdles, when).

    Nested functions travel whole, so executors need none of this package.
    """

    def stumble(fault: str) -> None:
        if fault == "dawdles":
            time.sleep(dawdle_s)
        if fault == "fails":
            raise OSError("thrown on purpose")

    def run(item: Any) -> Any:
        from pyspark import TaskContext  # noqa: PLC0415  # on the executor

        context = TaskContext.get()
        assert context is not None
        number, attempt = context.partitionId(), context.attemptNumber()
        fault, moment = ("", "") if attempt else plan[number]
        Path(notes, f"{context.stageId()}-{number}-{attempt} {fault}").touch()
        if moment == "before":
            stumble(fault)
        result = task(item)
        if moment == "after":
            stumble(fault)
        return result

    return run
