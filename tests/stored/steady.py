"""A clock that does not move, and runs in this process, without a JVM.

Input is named below `/proc/self/cwd`: an absolute path that is the same in every folder. So what a
lake holds of its input's paths does not depend on where a test runs.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from seglake.config import from_tables

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
def steady(folder: Path) -> Iterator[Clock]:
    """Work in a folder, with a clock that does not move."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
        patch.setattr(time, "time_ns", clock)
        patch.setattr(time, "monotonic", lambda: 0.0)
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

    declared = DeclaredRun(run_id, interval)
    return ingest_files(LocalEngine(), from_tables(settings), declared, progress).as_dict()
