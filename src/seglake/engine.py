"""Where tasks run: on Spark, or, for little data and without a JVM, in this process.

What tasks need from each other stands on storage, so an engine has one thing to do.
"""

from __future__ import annotations

import base64
import gc
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np

from seglake import errors
from seglake.errors import CorruptData, SeglakeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_PER_CORE = 3  # enough to balance, few enough to pay for

Item = TypeVar("Item")
Result = TypeVar("Result")
Item_contra = TypeVar("Item_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)


_FAILURE = re.compile(r"<seglake error ([A-Za-z0-9+/=]+)>")


class Task(Protocol[Item_contra, Result_co]):
    """A function that is pickled to where it runs, with one item of work."""

    def __call__(self, item: Item_contra, /) -> Result_co:
        """Do the work; the same item must give the same result again."""


class Engine(Protocol):
    """Runs tasks."""

    @property
    def cores(self) -> int:
        """Tasks that run at once."""

    def map(self, task: Task[Item, Result], items: Sequence[Item]) -> list[Result]:
        """`task(item)` of every item, in their order. A task may run more than once."""


class SparkEngine:
    """Every item is a Spark task; `task` and item are pickled there, and the result back.

    Without a session, one starts when the first task needs it: a run that has nothing to do, or
    whose input is bad, is quick.
    """

    def __init__(self, spark: SparkSession | None = None) -> None:
        self._given = spark

    @cached_property
    def _spark(self) -> SparkSession:
        from seglake.session import spark_session  # noqa: PLC0415  # LocalEngine needs no Spark

        return self._given or spark_session("seglake ingest", delta=False)

    @cached_property
    def cores(self) -> int:
        """Tasks that run at once."""
        return int(self._spark.sparkContext.defaultParallelism)

    def map(self, task: Task[Item, Result], items: Sequence[Item]) -> list[Result]:
        """`task(item)` of every item, in their order.

        An RDD, since nothing but the items and results crosses: Spark SQL would plan and compile a
        query for them.
        """
        if not items:
            return []
        with original_errors():
            rows = self._spark.sparkContext.parallelize(items, len(items))
            return rows.map(_InWorker(task)).collect()


@dataclass(frozen=True)
class _InWorker(Generic[Item, Result]):
    """A task in a Python worker, which serves one task after another.

    PySpark collects garbage after each task. Looking at every object of the imported libraries
    takes longer than many a task, so the objects that live after the first task are frozen.
    """

    task: Task[Item, Result]

    def __call__(self, item: Item) -> Result:
        """The task's result."""
        result = run_task(self.task, item)
        if not gc.get_freeze_count():
            gc.collect()
            gc.freeze()
        return result


class LocalEngine:
    """Tasks run one after another in this process."""

    cores = 1

    def map(self, task: Task[Item, Result], items: Sequence[Item]) -> list[Result]:
        """`task(item)` of every item, in their order."""
        return [task(item) for item in items]


class _Failed(Exception):  # it only carries an error
    """A SeglakeError on its way through Spark, which keeps only the text of an exception."""


def run_task(task: Callable[[Item], Result], item: Item) -> Result:
    """`task(item)` in a Spark task, such that `original_errors` can raise its SeglakeErrors."""
    try:
        return task(item)
    except SeglakeError as error:
        raise _Failed(_spelled(error)) from error


@contextmanager
def original_errors() -> Iterator[None]:
    """Raise the SeglakeError of a task instead of Spark's exception around it."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415  # LocalEngine needs no Spark
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        found = _FAILURE.search(str(error))
        if found is None:
            raise
        raise _read(found[1]) from error


def _spelled(error: SeglakeError) -> str:
    if isinstance(error, CorruptData):
        given = [type(error).__name__, error.what, error.file, error.position]
    else:
        given = [type(error).__name__, str(error)]
    return f"<seglake error {base64.b64encode(json.dumps(given).encode()).decode()}>: {error}"


def _read(text: str) -> SeglakeError:
    name, message, *place = json.loads(base64.b64decode(text))
    if place:
        return CorruptData(message, file=place[0], position=place[1])
    kind: type[SeglakeError] = getattr(errors, name, SeglakeError)
    return kind(message)


def share_out(sizes: Sequence[int], tasks: int) -> list[list[int]]:
    """The items of each task, by number: the largest goes first to the task with the least.

    At most `tasks` of them, none empty; the numbers of a task ascend.
    """
    loads = np.zeros(max(min(tasks, len(sizes)), 1), np.int64)
    shares: list[list[int]] = [[] for _ in loads]
    for item in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        task = int(np.argmin(loads))
        shares[task].append(item)
        loads[task] += sizes[item] + 1
    return [sorted(share) for share in shares if share]
