"""Writers in processes of their own, which all come to their first commit at the same moment."""

import multiprocessing.context
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any, NamedTuple

from seglake.catalog.commits import CatalogCommits
from seglake.config import Pipeline
from seglake.engine import LocalEngine
from seglake.write.driver.report import Report
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.harness.onlooker import Onlooker
from tests.makers.raw_events import (
    Line,
    T,
    assert_holds,
    ingest,
    pipeline_of,
    read_lake,
    write_file,
)

PATIENCE_S = 120
WRITERS, LINES = 8, 60

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
    commit, clock = CatalogCommits.make, time.time_ns

    def counted(*given: Any, **named: Any) -> int:
        nonlocal commits
        commits += 1
        if commits == 1 and _barrier is not None:
            _barrier.wait(PATIENCE_S)
        return commit(*given, **named)

    changed: Any = CatalogCommits
    changed.make = counted
    time.time_ns = lambda: clock() + clock_ms * 1_000_000
    try:
        pipeline = Pipeline.model_validate(tables)
        report = ingest_files(LocalEngine(), pipeline, DeclaredRun(run_id), steps.append)
    finally:
        changed.make, time.time_ns = commit, clock
    return Done(report, steps.count("read and sort"), steps.count("write segments"), commits)


@contextmanager
def writers(count: int) -> Iterator[Any]:
    """A function that starts a run in one of so many processes, and gives its future."""
    context = _forking()
    barrier = context.Barrier(count)
    with ProcessPoolExecutor(count, context, _begin, (barrier, dict(os.environ))) as pool:

        def start(pipeline: Pipeline, run_id: str, clock_ms: int = 0) -> Future[Done]:
            tables = pipeline.model_dump(by_alias=True, exclude_unset=True)
            return pool.submit(partial(_write, tables, run_id, clock_ms))

        yield start


def race_of(work: Callable[..., None], given: Sequence[tuple[Any, ...]]) -> None:
    """Calls of `work`, each in a process of its own; all begin at the same moment and end well."""
    context = _forking()
    start, environment = context.Barrier(len(given)), dict(os.environ)
    racers = [
        context.Process(target=_run, args=(start, environment, work, arguments))
        for arguments in given
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(PATIENCE_S)
        racer.kill()
    assert [racer.exitcode for racer in racers] == [0] * len(racers)


def _run(
    start: Any, environment: dict[str, str], work: Callable[..., None], given: tuple[Any, ...]
) -> None:
    os.environ.update(environment)
    start.wait()
    work(*given)


def _forking() -> multiprocessing.context.ForkServerContext:
    """New processes are forks of one that has imported everything: they start at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.harness.processes"])
    return context


def a_file(path: Path, number: int) -> Path:
    """Events unlike those of other numbers."""
    keys = ["a", "b", "c", None]
    return write_file(path, [Line(T + 10 * at + number, keys[at % 4]) for at in range(LINES)])


def results(futures: list[Future[Done]]) -> list[Done]:
    """In the order of their commits."""
    done = (future.result(PATIENCE_S) for future in futures)
    return sorted(done, key=lambda each: each.report.version)


def race(
    lake: str,
    folder: Path,
    clock: str,
    *,
    made_before: bool,
    given: Callable[[Path], Path | str] = Path,
) -> None:
    """Eight writers at once into one topic, beside an onlooker: all succeed, none works twice.

    The topic is `made_before`, or all want to make it. A local file is `given` as a path, or a URI.
    """
    paths = [a_file(folder / f"{number}.jsonl", number) for number in range(WRITERS + made_before)]
    topic = {"message.timestamp.type": clock, "batch.size": 200, "segment.bytes": 2000}
    settings = [pipeline_of(lake, given(path), topic=topic, name=path.stem) for path in paths]
    onlooker, runs = Onlooker(lake, LINES), [[path] for path in paths[WRITERS:]]
    for each in settings[WRITERS:]:
        ingest(each, "first")
        onlooker.look()
    with writers(WRITERS) as start:
        futures = [
            start(each, "1", clock_ms=1000 * (number % 3))
            for number, each in enumerate(settings[:WRITERS])
        ]
        while wait_for(futures, timeout=0.05).not_done:
            onlooker.look()
        done = results(futures)
    onlooker.look()
    if made_before:
        onlooker.assert_moved_on()
    assert onlooker.files[-1] == len(paths)
    assert len({each.report.version for each in done}) == WRITERS
    runs += [[folder / f"{each.report.pipeline}.jsonl"] for each in done]
    assert_holds(read_lake(lake), settings[0], runs)
    # the losers moved what they had written: none of them read or encoded anything again
    assert {(each.read, each.written) for each in done} == {(1, 1)}
    assert done[0].report.rebased == 0
    assert all(each.report.rebased == each.commits - 1 > 0 for each in done[1:])
