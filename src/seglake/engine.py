"""Where tasks run: on Spark, or, for little data and without a JVM, right here.

What tasks need from each other stands on storage (`staging`), so an engine has one thing to do.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from seglake import errors
from seglake.errors import CorruptData, SeglakeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")
Item_contra = TypeVar("Item_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)

_DAMAGE = re.compile(r"(.*?) at byte (\d+): (.*)", re.DOTALL)  # as CorruptData spells it
_OURS = re.compile(r"^seglake\.errors\.(\w+): (.*?)(?:\n\n?\tat |\Z)", re.MULTILINE | re.DOTALL)


class Task(Protocol[Item_contra, Result_co]):
    """What is pickled to where it runs, with one item of work."""

    def __call__(self, item: Item_contra, /) -> Result_co:
        """Do the work; run again on the same item, it must come to the same."""


class Engine(Protocol):
    """Runs tasks."""

    @property
    def cores(self) -> int:
        """Tasks that run at once."""

    def map(self, task: Task[Item, Result], items: Sequence[Item]) -> list[Result]:
        """`task(item)` of every item, in their order; each runs where and as often as it must."""


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
        with raising_ours():
            rows = self._spark.sparkContext.parallelize(items, len(items))
            return rows.map(_InWorker(task)).collect()


@dataclass(frozen=True)
class _InWorker(Generic[Item, Result]):
    """A task in a Python worker that serves one task after another.

    PySpark collects garbage after each, and looking at every object of the imported libraries
    takes longer than many a task: what lives when the first one ends is left out from then on.
    """

    task: Task[Item, Result]

    def __call__(self, item: Item) -> Result:
        """The task's result."""
        result = self.task(item)
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


@contextmanager
def raising_ours() -> Iterator[None]:
    """Turns Spark's exception around an error of ours, which a task raised, into that error."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415  # LocalEngine needs no Spark
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        ours = _OURS.search(str(error))
        if ours is None:
            raise
        raise _error_of(*ours.groups()) from error


def _error_of(name: str, message: str) -> SeglakeError:
    kind = getattr(errors, name, SeglakeError)
    message = message.strip()
    if kind is not CorruptData:
        return kind(message)
    place = _DAMAGE.fullmatch(message)
    if place is None:
        return CorruptData(message)
    file, position, what = place.groups()
    return CorruptData(what, file="" if file == "bytes" else file, position=int(position))
