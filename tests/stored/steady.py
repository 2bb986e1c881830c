"""A clock that stands, ids that count, and runs in this process, without a JVM.

Input is named below `/proc/self/cwd`: an absolute path that is the same in every folder. So what a
lake holds of its input's paths does not depend on where a test runs.
"""

import contextlib
import hashlib
import itertools
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from seglake.config import Pipeline, from_tables

# The one import of tests/stored from below the public API: what runs an ingest without Spark.
from seglake.engine import LocalEngine
from seglake.write.driver.run import DeclaredRun, ingest_files

HERE = "/proc/self/cwd"
CLOCK_MS = 1_704_067_200_000  # 2024-01-01, before any file is written
MINUTE_MS = 60_000

Tables = Mapping[str, Mapping[str, Any]]


class Clock:
    """Nanoseconds since the epoch, which pass only when told."""

    def __init__(self) -> None:
        self.ms = CLOCK_MS

    def __call__(self) -> int:
        """The time, as `time.time_ns`."""
        return self.ms * 1_000_000


@contextlib.contextmanager
def steady(folder: Path, series: str = "first") -> Iterator[Clock]:
    """Work in a folder, where the clock stands and every UUID is the next one of a series."""
    clock, numbers, random_uuid = Clock(), itertools.count(), uuid.uuid4

    def numbered() -> uuid.UUID:
        if sys._getframe(1).f_globals["__name__"].startswith("numba"):  # of a file in its cache
            return random_uuid()
        digest = hashlib.sha256(f"{series} {next(numbers)}".encode()).digest()
        return uuid.UUID(bytes=digest[:16], version=4)

    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
        patch.setattr(time, "time_ns", clock)
        patch.setattr(time, "monotonic", lambda: 0.0)
        patch.setattr(uuid, "uuid4", numbered)
        yield clock


def tables(name: str, paths: str, form: str, **changes: Any) -> dict[str, dict[str, Any]]:
    """The tables of a pipeline file; `changes` are tables, or parts of those that are there."""
    made: dict[str, dict[str, Any]] = {
        "pipeline": {"name": name, "root": "lake", "max_quarantine_ratio": 1.0},
        "input": {"paths": [f"{HERE}/in/{paths}"], "format": form},
        "topic": {"name": name},
    }
    if form == "jsonl":
        made |= {"timestamp": {"field": "ts", "format": "epoch_ms"}, "key": {"fields": ["user"]}}
    for table, change in changes.items():
        made[table] = {**made.get(table, {}), **change}
    return made


def ingest(
    settings: Tables,
    run_id: str,
    interval: tuple[int, int] | None = None,
    before_commit: Callable[[], Any] | None = None,
) -> dict[str, Any]:
    """One run; another one may come first at its commit. Returns the report."""
    pending = [before_commit] if before_commit else []

    def progress(step: str) -> None:
        if step == "commit" and pending:
            pending.pop()()

    report = ingest_files(
        LocalEngine(), _pipeline(settings), DeclaredRun(run_id, interval), progress
    )
    return report.as_dict()


def _pipeline(settings: Tables) -> Pipeline:
    return from_tables(settings)
