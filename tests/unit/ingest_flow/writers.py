"""Writers in processes of their own, which all come to their first commit at the same moment."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Barrier
from typing import Any, NamedTuple

from seglake.catalog.table import CatalogTable
from seglake.config import Pipeline
from seglake.ingest.engine import LocalEngine
from seglake.ingest.pipeline import RunKey, ingest_files
from seglake.ingest.report import Report

PATIENCE_S = 120

_barrier: Barrier | None = None  # of this process


class Done(NamedTuple):
    """What a writer did: its report, how often it read, wrote and committed."""

    report: Report
    read: int
    written: int
    commits: int


def _begin(barrier: Any, environment: dict[str, str]) -> None:
    global _barrier  # noqa: PLW0603  # a process takes a barrier only when it starts
    _barrier = barrier
    os.environ.update(environment)  # the process that was forked began with an older one


def _write(tables: dict[str, Any], run_id: str, clock_ms: int) -> Done:
    """One run whose clock is wrong by `clock_ms`."""
    steps: list[str] = []
    commits = 0
    commit, clock = CatalogTable.commit, time.time_ns

    def counted(*given: Any, **named: Any) -> int:
        nonlocal commits
        commits += 1
        if commits == 1 and _barrier is not None:
            _barrier.wait(PATIENCE_S)
        return commit(*given, **named)

    CatalogTable.commit = counted
    time.time_ns = lambda: clock() + clock_ms * 1_000_000
    try:
        pipeline = Pipeline.model_validate(tables)
        report = ingest_files(LocalEngine(), pipeline, RunKey(run_id), steps.append)
    finally:
        CatalogTable.commit, time.time_ns = commit, clock
    return Done(report, steps.count("read and sort"), steps.count("write segments"), commits)


@contextmanager
def writers(count: int) -> Iterator[Any]:
    """A function that starts a run in one of so many processes, and gives its future."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.unit.ingest_flow.writers"])
    barrier = context.Barrier(count)
    with ProcessPoolExecutor(count, context, _begin, (barrier, dict(os.environ))) as pool:

        def start(pipeline: Pipeline, run_id: str, clock_ms: int = 0) -> Future[Done]:
            tables = pipeline.model_dump(by_alias=True, exclude_unset=True)
            return pool.submit(partial(_write, tables, run_id, clock_ms))

        yield start
