"""Define `Attempt`, which is one try at a run and has the inputs of all its steps."""

from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from seglake.cached import cached_property
from seglake.catalog.schema import RunRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.topic_change import Change
from seglake.catalog.version.snapshot import Snapshot
from seglake.clock import now_ms
from seglake.config import Pipeline
from seglake.engine import Engine
from seglake.layout import new_attempt
from seglake.store import Store
from seglake.write.driver.report import Progress, Report
from seglake.write.driver.run_input import RunInput
from seglake.write.driver.topics import Seed, append_time, current_topic
from seglake.write.map.unit import MapSettings, map_sizes
from seglake.write.rows.records import RowLimits


class DeclaredRun(NamedTuple):
    """The id of a run, and the interval of event times that the run declares to cover."""

    run_id: str
    interval: tuple[int, int] | None = None  # [start_ms, end_ms)
    clock_ms: int | None = None  # time for the limits of event time, if another run sets it
    is_named: bool = True  # False if the caller passed no id, so the run has no retry

    def clock(self, started_ms: int) -> int:
        """Return the time in ms to which limits of event times are relative.

        This is `clock_ms`, else the end of the interval, else `started_ms`, the attempt's start.
        """
        if self.clock_ms is not None:
            return self.clock_ms
        return started_ms if self.interval is None else self.interval[1]


class Replacement(Protocol):
    """Committed runs that the commit of an attempt removes, because the attempt replaces them.

    `with_nothing` allows an attempt without records. The other attributes are results of
    `change`: `records` is the number of records that its last call removes, and `attempts` are the
    additional attempt ids in the keys of segments that it wrote.
    """

    with_nothing: bool
    records: int
    attempts: set[str]

    def runs(self, base: Snapshot, /) -> list[RunRow]:
        """Return the rows of the runs to remove from a version, and the rows of their redrives."""

    def change(self, base: Snapshot, /) -> Change:
        """Write files, and return the change that removes these runs from a version."""


class ReplanRequired(Exception):
    """A signal to plan the attempt again, because another commit changed what it is based on."""


@dataclass(frozen=True)
class Attempt:
    """One try at a run, based on the catalog's version `base`.

    `pipeline` has the settings of the caller. The key of every object that the attempt writes has
    the attempt's id. No object is visible before the commit.
    """

    engine: Engine
    pipeline: Pipeline
    run: DeclaredRun
    store: Store
    table: CatalogTable
    base: Snapshot
    input: RunInput
    report: Report
    progress: Progress
    replacement: Replacement | None = None
    attempt_id: str = field(default_factory=new_attempt)
    moved: set[str] = field(default_factory=set)  # attempt ids in the keys of rebased segments
    started_ms: int = field(default_factory=now_ms)

    @property
    def topic(self) -> str:
        """Return the name of the topic."""
        return self.pipeline.topic.name

    def sources(self, base: Snapshot, paths: Collection[str]) -> pa.Table:
        """Return the source rows of `paths` in the version `base`, without replaced runs."""
        return remaining_sources(self.table, base, self.topic, self.replacement, paths)

    @cached_property
    def settings(self) -> Pipeline:
        """Return the pipeline, with the topic's settings from the catalog. Raises ConfigError."""
        topic = current_topic(self.base, self.pipeline, self.seed)
        return self.pipeline.model_copy(update={"topic": topic})

    @cached_property
    def seed(self) -> Seed:
        """Return a function that returns the input's `value_settings` and caches them."""
        return cache(self.input.value_settings)

    @property
    def map_settings(self) -> MapSettings:
        """Return the settings of map tasks. Raises ConfigError.

        The sizes are those for a small run. An input whose size is known replaces them.
        """
        settings, topic, first_offsets = self.settings, self.settings.topic, None
        if topic.offset_field is not None:
            ends = end_offsets(self.base, self.topic)
            first_offsets = tuple(ends.get(number, 0) for number in range(topic.partitions))
        limits = RowLimits(topic.event_times(self.run.clock(self.started_ms)), first_offsets)
        has_event_times = topic.message_timestamp_type != "LogAppendTime"
        return MapSettings(
            self.store, settings, self.attempt_id, self.append_time_ms, limits,
            map_sizes(0, settings),
            self.run.interval if has_event_times and settings.timestamp.names else None,
        )  # fmt: skip

    @cached_property
    def append_time_ms(self) -> int:
        """Return the timestamp in ms that records of a LogAppendTime topic get."""
        return append_time(self.base, self.topic, self.started_ms)

    def step(self, name: str, work: str = "") -> AbstractContextManager[None]:
        """Run a block as a step of the run, whose duration is reported; see `Report.step`."""
        return self.report.step(name, self.progress, work)


def remaining_sources(
    table: CatalogTable,
    base: Snapshot,
    topic: str,
    replacement: Replacement | None,
    paths: Collection[str],
) -> pa.Table:
    """Return the topic's source rows of `paths`, without rows of the runs that are replaced."""
    sources = table.rows.sources_at(base, topic, paths)
    if replacement is None:
        return sources
    replaced = pa.array([run.attempt_id for run in replacement.runs(base)], pa.string())
    return sources.filter(pc.invert(pc.is_in(sources["attempt_id"], replaced)))


def end_offsets(snapshot: Snapshot, topic: str) -> dict[int, int]:
    """Return partition → end offset (exclusive), or {} for a topic that does not exist yet."""
    return {view.partition: view.end_offset for view in snapshot.find_partitions(topic)}
