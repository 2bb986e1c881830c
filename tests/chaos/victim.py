"""An ingest, or a command of maintenance, that ends its own process at a chosen step.

A step is a moment before, during or after something that changes storage: `before commit`, `during
segment's log`. Nothing in the package knows of this: the calls are wrapped here, in the process
that is to die. During a call it is the kernel's alarm clock that ends the process: at any
instruction, and without a word to Python.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from deltalake import DeltaTable

from seglake.catalog.commits import CatalogCommits
from seglake.catalog.delta import commit_log, delta_rs, file_merges
from seglake.catalog.quarantine import table
from seglake.config import Pipeline
from seglake.engine import Engine, LocalEngine, SparkEngine
from seglake.layout import LOG_TABLE, QUARANTINE_TABLE
from seglake.store import open_store
from seglake.write.driver.commit import RebaseTask
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.chaos.verbs import VERBS
from tests.harness.unruly import make_unruly

OF_TASKS = {
    "blobs/": "blobs",
    "quarantine/topic=": "quarantined rows",
    **{f".{suffix}": f"segment's {suffix}" for suffix in ("log", "index", "timeindex", "zonemap")},
}
OF_DRIVER = {
    "catalog/log.backup-": "copy of the old catalog",
    "catalog/log/kind=": "catalog rows",
    "/manifest": "manifest",
    "checkpoint": "checkpoint",
    "tables/events/_delta_log/": "commit of a table",
    "tables/events/": "file of a table",
    "catalog/log/_delta_log/": "commit of the catalog",
    "catalog/quarantine/_delta_log/": "commit of the quarantine",
    "/success": "mark of success",
    "/report.json": "report of a failure",
    "/failed/": "name of a failure",
    "/begun": "announcement",
    "/fate": "claim of an attempt",
    "/clock": "question for the time",
    "/rejects": "list of rejects",
    "catalog/log.unfinished/": "mark of a rebuild",
    "catalog/deletions": "word of deletions",
}


class Step(NamedTuple):
    """A line of a trace. `moment` is before, during or after; or `in`, of a step of the report."""

    at_s: float  # by the monotonic clock
    moment: str
    what: str


class Death(NamedTuple):
    """At a step, `after` so many others of the same name; if it is `during` it, so much later."""

    moment: str
    what: str
    after: int
    delay_s: float


class Job(NamedTuple):
    """A run; another one (its tables and id) that overtakes it just before its first commit.

    `spark` are the settings of the session; without any, there is no Spark. With `unruly`, a seed,
    seconds and a folder for notes, the first attempts of its tasks fail or dawdle so long.
    """

    pipeline: dict[str, Any]
    run_id: str
    overtaken_by: tuple[dict[str, Any], str] | None = None
    spark: dict[str, str] | None = None
    unruly: tuple[int, float, str] | None = None

    def run(self, trace: Path, death: Death | None = None) -> None:
        """Ingest; tells its steps to the file `trace`."""
        with trace.open("a", buffering=1) as told:
            _tidy_often()
            steps = _Steps(told.write, death)
            steps.wrap()
            if self.overtaken_by is not None:
                _overtake(*self.overtaken_by)
            _ingest(self._engine(), self.pipeline, self.run_id, steps.tell_progress)

    def _engine(self) -> Engine:
        if self.spark is None:
            return LocalEngine()
        from seglake.session import spark_session  # noqa: PLC0415  # most victims need no Spark

        if self.unruly is not None:
            seed, dawdle_s, notes = self.unruly
            make_unruly(seed, dawdle_s, Path(notes))
        return SparkEngine(spark_session("chaos", conf=self.spark))


class Upkeep(NamedTuple):
    """A command of maintenance, one of VERBS, on a lake."""

    lake: str
    verb: str

    def run(self, trace: Path, death: Death | None = None) -> None:
        """Do it; tells its steps to the file `trace`."""
        with trace.open("a", buffering=1) as told:
            _tidy_often()
            _Steps(told.write, death).wrap()
            VERBS[self.verb](self.lake)


def steps_told(trace: Path) -> list[Step]:
    """The lines of a trace; the last one may be half written."""
    lines = (line.split("\t") for line in trace.read_text().split("\n")[:-1])
    return [Step(float(at_s), moment, what) for at_s, moment, what in lines]


def _ingest(
    engine: Engine, tables: dict[str, Any], run_id: str, progress: Callable[[str], None]
) -> None:
    ingest_files(engine, Pipeline.model_validate(tables), DeclaredRun(run_id), progress)


def _overtake(tables: dict[str, Any], run_id: str) -> None:
    began: list[bool] = []

    def late(real: Callable[..., Any]) -> Callable[..., Any]:
        def commit(*given: Any, **named: Any) -> Any:
            if not began:
                began.append(True)
                _ingest(LocalEngine(), tables, run_id, lambda _step: None)
            return real(*given, **named)

        return commit

    _wrap(CatalogCommits, "make", late)


def _wrap(
    owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    setattr(owner, name, around(getattr(owner, name)))


class _Steps:
    """Tells steps, and ends the process at one of them."""

    def __init__(self, tell: Callable[[str], Any], death: Death | None) -> None:
        self._tell, self._death, self._count = tell, death, 0
        self._dying = False
        self._name = ""  # before those of all steps

    def tell_progress(self, step: str) -> None:
        """A step of the report begins."""
        self._write("in", step)

    def wrap(self) -> None:
        """Wrap every call that changes storage."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for uri, calls in (("/", ["put_if_absent"]), ("s3://any", ["put", "put_if_absent"])):
            store = type(open_store(uri))  # a put of the local one is a writer
            for call in calls:
                _wrap(store, call, partial(self._around, _what_is_put))
            _wrap(store, "writer", self._around_writer)
            _wrap(store, "delete", partial(self._around, _what_is_removed))
        _wrap(delta_rs, "create_table", partial(self._around, _what_is_created))
        _wrap(DeltaTable, "create_checkpoint", partial(self._around, lambda *_: "checkpoint"))
        _wrap(RebaseTask, "run", partial(self._named, "moved"))  # what is copied after a lost race
        _wrap(file_merges, "merge_groups", partial(self._named, "merged"))

    def _write(self, moment: str, what: str) -> None:
        self._tell(f"{time.monotonic():.6f}\t{moment}\t{what}\n")

    def _step(self, moment: str, what: str) -> None:
        self._write(moment, what)
        if self._dying:  # the alarm was set too late
            os.kill(os.getpid(), signal.SIGKILL)
        if self._death is None or (moment, what) != self._death[:2]:
            return
        self._count += 1
        if self._count > self._death.after:
            self._die(self._death.delay_s if moment == "during" else 0)

    def _die(self, delay_s: float) -> None:
        self._dying = True
        if not delay_s:
            os.kill(os.getpid(), signal.SIGKILL)
        signal.setitimer(signal.ITIMER_REAL, delay_s)

    def _around(
        self, what_is: Callable[..., str], function: Callable[..., Any]
    ) -> Callable[..., Any]:
        def wrapped(*given: Any, **named: Any) -> Any:
            what = self._name + what_is(*given)
            self._step("before", what)
            self._step("during", what)
            result = function(*given, **named)
            self._step("after", what)
            return result

        return wrapped

    def _around_writer(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def wrapped(store: Any, key: str, **named: Any) -> Iterator[Any]:
            what = self._name + _what_is_put(store, key)
            self._step("before", what)
            with function(store, key, **named) as stream:
                yield _Told(stream, lambda: self._step("during", what))
                self._step("during", what)  # it is published now
            self._step("after", what)

        return wrapped

    def _named(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any) -> Any:
            self._name = f"{name} "
            try:
                return function(*given)
            finally:
                self._name = ""

        return wrapped


class _Told(NamedTuple):
    """A stream that calls `tell` after each write."""

    stream: Any
    tell: Callable[[], None]

    def write(self, data: Any) -> None:
        self.stream.write(data)
        self.tell()


def _what_is_put(_store: Any, key: str, *_: Any) -> str:
    return next(what for part, what in (OF_TASKS | OF_DRIVER).items() if part in key)


def _what_is_removed(_store: Any, keys: list[str]) -> str:
    return f"removal of {'blobs' if any('/blobs/' in key for key in keys) else 'objects'}"


def _what_is_created(_: Any, folder: str, *__: Any) -> str:
    tables = {QUARANTINE_TABLE: "the quarantine", LOG_TABLE: "the catalog"}
    return f"creation of {tables.get(folder, 'a table')}"


def _tidy_often() -> None:
    """Let each second commit merge the catalog's files and write a checkpoint."""
    commit_log.CHECKPOINT_INTERVAL = file_merges.FAN_IN = table.FAN_IN = 2


def main(arguments: list[str]) -> None:
    """Run a job that is given as JSON, with the arguments of `Job.run`."""
    job, trace, death = json.loads(arguments[0])
    Job(*job).run(Path(trace), death and Death(*death))


if __name__ == "__main__":
    main(sys.argv[1:])
