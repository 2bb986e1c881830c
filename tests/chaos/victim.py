"""An ingest that kills its own process at a chosen step.

A step is the moment before or after a call that changes storage: `before put log`, `after commit`.
Nothing in the package knows of this: the calls are wrapped here, in the process that is to die.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from seglake.catalog import delta
from seglake.catalog.table import CatalogTable
from seglake.config import Pipeline
from seglake.ingest.engine import Engine, LocalEngine, SparkEngine
from seglake.ingest.pipeline import RunKey, ingest_files
from seglake.store import open_store


class Job(NamedTuple):
    """A run, and another one that overtakes it just before its first commit."""

    pipeline: dict[str, Any]
    run_id: str
    overtaken_by: dict[str, Any] | None = None
    spark: bool = False

    def run(self, trace: str, die_at: int | None = None) -> None:
        """Ingest; writes each step's name to the file `trace`, and dies at the step `die_at`."""
        with Path(trace).open("a", buffering=1) as told:
            hook = _Steps(told.write, die_at)
            hook.wrap()
            if self.overtaken_by is not None:
                _overtake(self.overtaken_by)
            _ingest(_engine() if self.spark else LocalEngine(), self.pipeline, self.run_id)


def main(arguments: list[str]) -> None:
    """Run a job that is given as JSON, with the arguments of `Job.run`."""
    job, trace, die_at = json.loads(arguments[0])
    Job(*job).run(trace, die_at)


def _engine() -> Engine:
    from seglake.session import spark_session  # noqa: PLC0415  # most victims need no Spark

    conf = {"spark.ui.enabled": "false"}
    return SparkEngine(spark_session("chaos", master="local[2,3]", conf=conf, delta=False))


def _ingest(engine: Engine, tables: dict[str, Any], run_id: str) -> None:
    pipeline = Pipeline.model_validate(tables)
    ingest_files(engine, pipeline, RunKey(run_id), lambda _step: None)


def _overtake(tables: dict[str, Any]) -> None:
    real, began = CatalogTable.commit, []

    def commit(table: CatalogTable, *given: Any, **named: Any) -> int:
        if not began:
            began.append(True)
            _ingest(LocalEngine(), tables, "overtaking")
        return real(table, *given, **named)

    CatalogTable.commit = commit


class _Steps:
    """Counts and tells steps, and ends the process at one of them."""

    def __init__(self, tell: Callable[[str], Any], die_at: int | None) -> None:
        self._tell, self._die_at, self._count = tell, die_at, 0

    def wrap(self) -> None:
        """Wrap every call that changes storage."""
        store = type(open_store("/nowhere"))
        for name in ("put", "put_if_absent"):
            setattr(store, name, self._around("put", getattr(store, name)))
        store.writer = self._around_writer(store.writer)
        delta.commit = self._around("delta commit", delta.commit)
        delta.open_or_create = self._around("create table", delta.open_or_create)
        CatalogTable.commit = self._around("commit", CatalogTable.commit)

    def _step(self, name: str) -> None:
        self._tell(f"{name}\n")
        if self._count == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self._count += 1

    def _around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any, **named: Any) -> Any:
            told = f"{name} {_kind(given[1])}" if name == "put" else name
            self._step(f"before {told}")
            result = function(*given, **named)
            self._step(f"after {told}")
            return result

        return wrapped

    def _around_writer(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def wrapped(store: Any, key: str) -> Any:
            with function(store, key) as stream:
                write, stream.write = stream.write, partial(self._write, stream.write, key)
                yield stream
                stream.write = write
                self._step(f"before publishing {_kind(key)}")

        return wrapped

    def _write(self, write: Callable[[Any], None], key: str, data: Any) -> None:
        write(data)
        self._step(f"in the middle of {_kind(key)}")


def _kind(key: str) -> str:
    """What an object is, by its key."""
    name = key.rpartition("/")[2]
    if key.startswith("catalog/"):
        return " ".join(key.split("/")[1:2]) + " rows"
    return name if key.startswith("attempts/") else name.rpartition(".")[2]


if __name__ == "__main__":
    main(sys.argv[1:])
