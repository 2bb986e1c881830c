"""One try at a run: what its steps share."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from seglake.catalog.table import CatalogTable
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import Pipeline
from seglake.engine import Engine
from seglake.errors import UnknownTopic
from seglake.layout import new_attempt
from seglake.store import Store, open_store
from seglake.write.driver.report import Progress, Report
from seglake.write.driver.sources import Source
from seglake.write.driver.topic import append_time


class RunKey(NamedTuple):
    """What makes a run the same run again: its id within a pipeline, and the interval it covers."""

    run_id: str
    interval: tuple[int, int] | None = None  # [start_ms, end_ms)


class PlanAgain(Exception):
    """Not an error: what was committed meanwhile changes what this run has to ingest."""


def now_ms() -> int:
    """The clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Attempt:
    """Everything that it writes carries its id, and nothing of it is visible before its commit.

    `base` is the version of the catalog that it continues.
    """

    engine: Engine
    pipeline: Pipeline
    key: RunKey
    table: CatalogTable
    base: Snapshot
    source: Source
    report: Report
    progress: Progress
    attempt_id: str = field(default_factory=new_attempt)
    started_ms: int = field(default_factory=now_ms)

    @property
    def topic(self) -> str:
        """The topic that is written."""
        return self.pipeline.topic.name

    @cached_property
    def append_time_ms(self) -> int:
        """The time that records of a LogAppendTime topic get."""
        return append_time(self.base, self.topic, self.started_ms)

    @cached_property
    def store(self) -> Store:
        """The lake's storage."""
        return open_store(self.pipeline.root, self.pipeline.storage)

    def step(self, name: str) -> AbstractContextManager[None]:
        """Announce and time a step."""
        return self.report.step(name, self.progress)


def end_offsets(snapshot: Snapshot, topic: str) -> dict[int, int]:
    """The end offset of every log partition; none of a topic that does not exist yet."""
    try:
        return {view.partition: view.end_offset for view in snapshot.partitions(topic)}
    except UnknownTopic:
        return {}
