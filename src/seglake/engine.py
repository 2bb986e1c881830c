"""Run tasks on Spark, or without a JVM in this process if one machine is enough.

Tasks exchange data through storage, so an engine only maps a task over items of work.
"""

from __future__ import annotations

import base64
import gc
import json
import logging
import os
import pickle
import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from seglake import errors
from seglake.cached import cached_property
from seglake.errors import ConfigError, CorruptData, SeglakeError, UsageError
from seglake.limits import INT32_MAX
from seglake.terminal.progress import Pace, interval_s, periodically, report_wait

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from seglake.store import Store

CORES = os.cpu_count() or 1
TASKS_PER_CORE = 3  # more tasks balance better, but each task has a fixed cost
SHARES_PER_CORE = 4
CORE_BYTES = 64 * 2**20
"""The least work, in bytes, for each core that a growing cluster adds."""

_UNLIMITED_CORES = 1000  # assumed for a cluster without a limit
_SMALL = 8  # an item is small if it is at most an eighth of a task

_log = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")
Item_contra = TypeVar("Item_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)

_OTHER_PYTHON = re.compile(
    r"PYTHON_VERSION_MISMATCH|No module named '(?:seglake|numpy|pyarrow|numba)[^']*'"
    r'|Cannot run program "[^"]*"'
)
_TOKEN = re.compile(r"<seglake error ([A-Za-z0-9+/=]+)>")


class Task(Protocol[Item_contra, Result_co]):
    """A function that is pickled to the process that runs it, with one item of work."""

    def __call__(self, item: Item_contra, /) -> Result_co:
        """Do the work of an item. A repeated call must return an equal result."""


class Amounts(NamedTuple):
    """The size of each item of some work, in a unit such as "bytes", for reporting progress."""

    unit: str
    each: Sequence[int]

    @staticmethod
    def from_task(task: object, items: Sequence[Any]) -> Amounts:
        """Return the sizes from the task's method `amounts`, or else from the items' `log_bytes`.

        Without either, each item counts as 1.
        """
        amounts: Callable[[Sequence[Any]], Amounts] | None = getattr(task, "amounts", None)
        if amounts is not None:
            return amounts(items)
        if items and hasattr(items[0], "log_bytes"):
            return Amounts("bytes of log", [item.log_bytes for item in items])
        return Amounts.alike("tasks", items)

    @staticmethod
    def alike(unit: str, items: Sequence[Any]) -> Amounts:
        """Return amounts in which each item counts as 1, because its size is unknown."""
        return Amounts(unit, [1] * len(items))


Step = Callable[[str], AbstractContextManager[None]]  # announces a step, and times it
Progress = Callable[[int, int], None]  # the amount that is done, and the total


def logged(unit: str) -> Progress:
    """Return a function that logs the progress of one piece of work, at most once every 30 s.

    `line_every` changes this interval.
    """
    pace = Pace(unit)

    def log(done: int, total: int) -> None:
        if line := pace.line(done, total):
            _log.info("%s", line)

    return log


class Engine(Protocol):
    """Runs a task for each of several items of work, in other processes or in this one."""

    @property
    def cores(self) -> int:
        """Return the number of tasks that run at the same time."""

    def cores_for(self, size_bytes: int, /) -> int:
        """Return the number of cores to divide work for, which can exceed `cores` in a cluster."""

    def start(self, step: Step, /) -> None:
        """Start the session that tasks need, if any, as a step."""

    def map(self, task: Task[Item, Result], items: Sequence[Item]) -> list[Result]:
        """Return `task(item)` for every item, in order. A task may run more than once."""

    def map_many(
        self, task: Task[Item, Result], items: Sequence[Item], progress: Progress
    ) -> list[Result]:
        """Return `task(item)` for every item, in order. With Spark, small items share tasks.

        `progress` is called at the start, and when items are done.
        """


class SparkEngine:
    """Runs every item as a Spark task. Task, item and result are pickled.

    If no session is passed, a session starts on `master` when the first task needs it. So a run
    that has nothing to do, or whose input is bad, ends quickly.
    """

    def __init__(self, spark: SparkSession | None = None, master: str | None = None) -> None:
        self._session, self._master = spark, master

    @cached_property
    def _spark(self) -> SparkSession:
        # Import late: LocalEngine needs no Spark.
        from seglake.session import require_version, spark_session  # noqa: PLC0415

        if self._session is None:
            _log.info("Spark starts")  # this takes some seconds
            with report_wait("Spark starts", _log.info):
                session = spark_session("seglake ingest", master=self._master)
            _log.info("Spark runs")
            return session
        require_version(self._session.version)
        return self._session

    def start(self, step: Step, /) -> None:
        """Start the session as a step, unless a session was passed or already runs."""
        if self._session is None and "_spark" not in vars(self):
            with step("start Spark"):
                self._spark  # noqa: B018  # the property starts the session

    @cached_property
    def cores(self) -> int:
        """Return the number of tasks that run at the same time on the current executors."""
        if is_connected(self._spark):  # a range has as many partitions as there are cores
            rows = self._spark.range(1 << 12).selectExpr("spark_partition_id() AS number")
            return rows.distinct().count()
        return int(self._spark.sparkContext.defaultParallelism)

    @cached_property
    def _most_cores(self) -> int:
        return 0 if is_connected(self._spark) else most_cores(self._spark.sparkContext)

    def cores_for(self, size_bytes: int, /) -> int:
        """Return the number of cores to divide work for, at least `cores`.

        With dynamic allocation, few executors run before there are tasks. The result may be the
        largest number of cores that the cluster can have, with at least `CORE_BYTES` of the work
        for each core.
        """
        return max(self.cores, min(self._most_cores, size_bytes // CORE_BYTES))

    def map(self, task: Task[Item, Result], items: Sequence[Item]) -> list[Result]:
        """Return `task(item)` for every item, in the order of the items.

        Items and results are sent in an RDD, because Spark SQL would plan and compile a query
        first. A session of Spark Connect has no RDDs, so it runs a query.
        """
        if not items:
            return []
        if is_connected(self._spark):
            with original_errors(), report_wait("tasks run through Spark Connect", _log.info):
                return _queried(self._spark, task, items)
        context, (unit, each) = self._spark.sparkContext, Amounts.from_task(task, items)
        progress, total, tasks = logged(unit), sum(each), len(items)

        def log() -> None:  # Spark reports how many tasks are done, but not which ones
            progress(_tasks_done(context, tasks) * total // tasks, total)

        with original_errors(), periodically(log):
            rows = context.parallelize(items, tasks)
            return rows.map(partial(_in_worker, task)).collect()

    def map_many(
        self, task: Task[Item, Result], items: Sequence[Item], progress: Progress
    ) -> list[Result]:
        """Return `task(item)` for every item, in order, see `Engine.map_many`.

        Each core gets one task at a time. Progress is reported after every such wave of tasks.
        """
        sizes = Amounts.from_task(task, items).each
        cores = self.cores_for(sum(sizes)) if items else 1  # without items, start no session
        waves = in_waves(self, _Share(task), items, sizes, cores)
        return _in_order((dict(zip(*each, strict=True)) for each in waves), sizes, progress)


def in_waves(
    engine: Engine,
    task: Task[list[Item], Result],
    items: Sequence[Item],
    sizes: Sequence[int],
    cores: int,
) -> Iterator[tuple[list[int], Result]]:
    """Divide items among tasks. Yield the numbers of each task's items, and the task's result.

    The engine gets one task per core at a time, so that the caller can report progress in between.
    """
    shares = share_out(sizes, SHARES_PER_CORE * cores) if items else []
    for first in range(0, len(shares), cores):
        wave = shares[first : first + cores]
        work = [[items[number] for number in share] for share in wave]
        yield from zip(wave, engine.map(task, work), strict=True)


class _Share(NamedTuple):
    """A task that maps another task over a list of small items."""

    task: Task[Any, Any]

    def __call__(self, items: Sequence[Any]) -> list[Any]:
        return [self.task(item) for item in items]

    def amounts(self, shares: Sequence[Sequence[Any]]) -> Amounts:
        """Return the amounts of a wave. `map_many` reports the progress of all waves."""
        units = [Amounts.from_task(self.task, items) for items in shares]
        return Amounts(f"{units[0].unit} in this wave", [sum(each) for _, each in units])


def _in_order(
    finished: Iterable[Mapping[int, Result]], sizes: Sequence[int], progress: Progress
) -> list[Result]:
    """Return the results of all items in order. Report progress after each finished group."""
    results, done, total = dict[int, Result](), 0, sum(sizes)
    progress(0, total)
    for some in finished:
        results |= some
        done += sum(sizes[number] for number in some)
        progress(done, total)
    return [results[number] for number in range(len(sizes))]


def most_cores(context: SparkContext) -> int:
    """Return the largest number of cores that a cluster can have, or 0 if it does not grow.

    With dynamic allocation, these are the cores of `spark.dynamicAllocation.maxExecutors`, or 1,000
    without that setting. An executor whose size is not in `spark.executor.cores` counts as one
    core.
    """
    conf = context.getConf()
    grows = conf.get("spark.dynamicAllocation.enabled", "false").strip().lower() == "true"
    if not grows or re.fullmatch(r"local(\[.*\])?", conf.get("spark.master", "local")):
        return 0  # a local master never grows
    executors = int(conf.get("spark.dynamicAllocation.maxExecutors", str(INT32_MAX)))
    if executors == INT32_MAX:  # Spark's own default
        return _UNLIMITED_CORES
    return executors * int(conf.get("spark.executor.cores", "1"))


def is_connected(spark: SparkSession) -> bool:
    """Return whether this is a session of Spark Connect, which has no `sparkContext`."""
    return not hasattr(spark, "sparkContext")


def _queried(spark: SparkSession, task: Task[Item, Result], items: Sequence[Item]) -> list[Result]:
    """Return `task(item)` for every item. Each item is a row in a separate partition."""

    def results(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers: list[Any] = batch.column(0).to_pylist()
            pickled = [pickle.dumps(_in_worker(task, items[number])) for number in numbers]
            yield pa.record_batch({"number": numbers, "result": pickled})

    rows = spark.range(0, len(items), 1, len(items))
    done = rows.mapInArrow(results, "number long, result binary").collect()
    ordered = sorted(done, key=lambda row: row["number"])
    return [pickle.loads(row["result"]) for row in ordered]  # noqa: S301  our tasks made them


def _tasks_done(context: SparkContext, total: int) -> int:
    """Count the finished tasks in the active stages that have `total` tasks."""
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(each.numCompletedTasks for each in stages if each and each.numTasks == total)


def _in_worker(task: Task[Item, Result], item: Item) -> Result:
    """Run `task(item)` in a Python worker of Spark."""
    result = run_task(task, item)
    spare_the_collector()
    return result


def spare_the_collector() -> None:
    """Exempt objects that remain after the first task of a Python worker from garbage collection.

    PySpark's workers collect garbage after each task. A visit to the 170,000 objects of the
    imported libraries takes longer than a short task. In other processes, this does nothing.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    in_worker = main is not None and main.name.startswith(("pyspark.", "seglake.worker_daemon"))
    if in_worker and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


class LocalEngine:
    """Runs tasks in `cores` threads of this process, or in the calling thread for one core.

    Kernels, checksums and codecs release Python's lock, so threads use all cores.
    """

    def __init__(self, cores: int = 1) -> None:
        self.cores = cores

    def cores_for(self, _size_bytes: int, /) -> int:
        """Return `cores`, because this machine does not grow."""
        return self.cores

    def start(self, step: Step, /) -> None:
        """Do nothing, because tasks need no session."""

    def map(self, task: Task[Item, Result], items: Sequence[Item]) -> list[Result]:
        """Return `task(item)` for every item, in order. After an error, no task begins."""
        return self.map_many(task, items, logged(Amounts.from_task(task, items).unit))

    def map_many(
        self, task: Task[Item, Result], items: Sequence[Item], progress: Progress
    ) -> list[Result]:
        """Return `task(item)` for every item, in order, and report progress after each item."""
        each = ({number: task(item)} for number, item in enumerate(items))
        finished = each if self.cores == 1 else self._in_threads(task, items)
        with closing(finished):
            return _in_order(finished, Amounts.from_task(task, items).each, progress)

    def _in_threads(
        self, task: Task[Item, Result], items: Sequence[Item]
    ) -> Generator[dict[int, Result], None, None]:
        """Yield the result of each finished task, or {} if no task finishes within a second."""
        left, running = iter(enumerate(items)), dict[Future[Result], int]()
        pool = ThreadPoolExecutor(self.cores)
        try:
            while True:
                for number, item in islice(left, 2 * self.cores - len(running)):
                    running[pool.submit(task, item)] = number
                if not running:
                    return
                patience_s = min(1.0, max(interval_s(), 0.01))
                done, _ = wait(running, patience_s, FIRST_COMPLETED)
                if not done:
                    yield {}  # so that progress is reported
                yield from ({running.pop(future): future.result()} for future in done)
        finally:
            pool.shutdown(cancel_futures=True)


def engine_of(spark: SparkSession | None) -> Engine:
    """Return an engine for maintenance. It uses `spark`, or all cores of this machine if None."""
    return LocalEngine(CORES) if spark is None else SparkEngine(spark)


def ingest_engine(spark: SparkSession | None, master: str | None, *, local: bool) -> Engine:
    """Return the engine of an ingest: a `LocalEngine` on all cores if `local`, or `SparkEngine`.

    Raises UsageError if `local` is combined with a session or a master.
    """
    if not local:
        return SparkEngine(spark, master)
    if spark is not None or master is not None:
        raise UsageError("--local contradicts --master (in Python: local, spark). Keep one")
    return engine_of(None)


class _Failed(Exception):
    """Carries a SeglakeError through Spark, which keeps only the text of an exception."""


def run_task(task: Callable[[Item], Result], item: Item) -> Result:
    """Run `task(item)` in a Spark task, so that `original_errors` can raise its SeglakeErrors."""
    try:
        return task(item)
    except SeglakeError as error:
        raise _Failed(_to_token(error)) from error


@contextmanager
def original_errors() -> Iterator[None]:
    """Raise the SeglakeError of a task instead of Spark's exception that wraps it.

    Raises ConfigError if the workers have another Python, or one without Seglake.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415  # LocalEngine needs no Spark
    from pyspark.errors import PySparkException  # noqa: PLC0415  # the same

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        if token := _TOKEN.search(str(error)):
            raise _from_token(token[1]) from error
        if match := _OTHER_PYTHON.search(str(error)):
            raise ConfigError(
                f"Spark's workers have another Python, or one without Seglake ({match[0]}). Set"
                f" PYSPARK_PYTHON, here to {sys.executable}, before the session starts. Workers on"
                " other machines need an image or a packed environment (docs/deployment.md)"
            ) from None
        raise


def require_seglake(spark: SparkSession) -> None:
    """Raise ConfigError if the Python of the session's workers does not have Seglake."""
    from pyspark.sql.utils import is_remote  # noqa: PLC0415  # LocalEngine needs no Spark

    if is_remote():  # a client of Spark Connect cannot start a task without a query
        return
    with original_errors():
        spark.sparkContext.parallelize([0], 1).map(partial(run_task, int)).collect()


def _to_token(error: SeglakeError) -> str:
    if isinstance(error, CorruptData):
        fields = [type(error).__name__, error.what, error.file, error.position]
    else:
        fields = [type(error).__name__, str(error)]
    return f"<seglake error {base64.b64encode(json.dumps(fields).encode()).decode()}>: {error}"


def _from_token(token: str) -> SeglakeError:
    name, message, *location = json.loads(base64.b64decode(token))
    if location:
        return CorruptData(message, file=location[0], position=location[1])
    kind: type[SeglakeError] = getattr(errors, name, SeglakeError)
    return kind(message)


def share_in_order(sizes: Sequence[int], tasks: int) -> list[list[int]]:
    """Return the numbers of each task's items, which are consecutive if every item is small.

    An item is small if it has at most an eighth of the mean work of a task. If an item is larger,
    return the result of `share_out`.
    """
    total = sum(sizes)
    if _SMALL * max(sizes, default=0) * tasks > total:
        return share_out(sizes, tasks)
    ends = np.cumsum(np.array(sizes, np.int64))
    cuts = np.searchsorted(ends, total * np.arange(1, tasks) // tasks, "left") + 1
    shares = np.split(np.arange(len(sizes)), cuts)
    return [share.tolist() for share in shares if len(share)]


def share_out(sizes: Sequence[int], tasks: int) -> list[list[int]]:
    """Return the numbers of each task's items, in at most `tasks` ascending lists.

    Empty lists are omitted. The largest items are assigned first, to the task with the least work.
    """
    loads = np.zeros(max(min(tasks, len(sizes)), 1), np.int64)
    shares: list[list[int]] = [[] for _ in loads]
    for item in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        task = int(np.argmin(loads))
        shares[task].append(item)
        loads[task] += sizes[item] + 1
    return [sorted(share) for share in shares if share]


# ---------------- segments


class SegmentTasks(NamedTuple):
    """Maps functions over segments, and reports the progress in bytes of log.

    An item is a segment's row, or has `log_bytes`, the number of bytes of the log to process.
    With Spark, functions and results are pickled, and the store is pickled without credentials.
    """

    store: Store
    engine: Engine
    progress: Progress

    @staticmethod
    def from_session(
        store: Store, spark: SparkSession | None, progress: Progress | None
    ) -> SegmentTasks:
        """Return the tasks of maintenance. Without `progress`, progress is logged."""
        return SegmentTasks(store, engine_of(spark), progress or logged("bytes of log"))

    def within(self, before: int, total: int) -> SegmentTasks:
        """Return tasks whose progress begins at `before` bytes of `total` bytes."""
        return self._replace(progress=lambda done, _: self.progress(before + done, total))

    def map(self, work: Callable[[Store, Item], Any], rows: Sequence[Item]) -> list[Any]:
        """Return `work(store, row)` for each of the rows, in their order."""
        return self.engine.map_many(partial(work, self.store), rows, self.progress)
