"""What one attempt reads: the files that the topic does not have yet, or a DataFrame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from seglake.catalog.rows import SourceRow
from seglake.config import Pipeline
from seglake.engine import Engine
from seglake.write.driver.inputs import Inputs, choose, known_sources
from seglake.write.driver.plan import TASKS_PER_CORE, pack
from seglake.write.input.listing import SourceFile, plan_splits
from seglake.write.map.frame import NAME, ReadFrame
from seglake.write.map.unit import SplitCount, Unit, group_splits
from seglake.write.quarantine import Origin, origins
from seglake.write.reduce.tasks import Read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Counts = Mapping[int, SplitCount]


class Source(Protocol):
    """The input of one attempt."""

    @property
    def inputs(self) -> Inputs:
        """The files that are read, and those that are not."""

    @property
    def order_column(self) -> str | None:
        """The column that orders a DataFrame."""

    def is_empty(self) -> bool:
        """Whether there is nothing to read."""

    def stage(self, attempt_id: str, append_time_ms: int) -> pa.Table:
        """The map side: rows of STAGED."""

    def origins(self, counts: Counts) -> dict[int, Origin]:
        """Where the lines of each split stand."""

    def rows(self, counts: Counts, topic: str, attempt_id: str) -> list[SourceRow]:
        """What the catalog shall remember of the files."""

    def is_taken(self, sources: pa.Table) -> bool:
        """Whether some of the files were ingested since, given the source rows of now."""


Opener = Callable[[pa.Table], Source]  # from the topic's source rows to the input of an attempt


class Files:
    """Those of a frozen input list that the topic does not have yet.

    `sources` are the source rows of the topic. Raises InputError as `choose` and `plan_splits` do.
    """

    order_column = None

    def __init__(
        self, engine: Engine, pipeline: Pipeline, frozen: list[SourceFile], sources: pa.Table
    ) -> None:
        self._engine, self._pipeline, self._frozen = engine, pipeline, frozen
        self._known = known_sources(sources, frozen)
        self.inputs = choose(frozen, self._known, pipeline.on_changed_source)
        self._splits = plan_splits(self.inputs.files, pipeline)

    def is_empty(self) -> bool:
        """Whether no file is left."""
        return not self.inputs.files

    def stage(self, attempt_id: str, append_time_ms: int) -> pa.Table:
        """The blobs of all units, which tasks share out by size."""
        units = group_splits(self._splits, self._pipeline.task.split_bytes)
        bins = pack([unit.size_bytes for unit in units], TASKS_PER_CORE * self._engine.cores)
        tasks: list[list[Unit]] = [[] for _ in range(max(bins) + 1)]
        for unit, task in zip(units, bins, strict=True):
            tasks[task].append(unit)
        read = Read(self._pipeline, attempt_id, append_time_ms)
        return pa.concat_tables(self._engine.map(read, tasks))

    def origins(self, counts: Counts) -> dict[int, Origin]:
        """The file of each split and the lines before it."""
        return origins(self._splits, counts)

    def rows(self, counts: Counts, topic: str, attempt_id: str) -> list[SourceRow]:
        """One row per file."""
        rows: Counter[str] = Counter()
        for split in self._splits:
            rows[split.file.path] += counts[split.number].rows
        return [
            SourceRow(
                topic=topic,
                path=file.path,
                size_bytes=file.size,
                modified_ms=file.modified_ms,
                etag=file.etag,
                rows=rows[file.path],
                attempt_id=attempt_id,
            )
            for file in self.inputs.files
        ]

    def is_taken(self, sources: pa.Table) -> bool:
        """Whether the topic knows more of the files than it did."""
        return known_sources(sources, self._frozen) != self._known


class Frame:
    """A DataFrame, which is read anew by every attempt, and of which no file is remembered."""

    inputs = Inputs([], [], [])

    def __init__(self, pipeline: Pipeline, frame: DataFrame, order_column: str) -> None:
        self._pipeline, self._frame = pipeline, frame
        self.order_column = order_column

    def is_empty(self) -> bool:
        """Nobody knows before it is read."""
        return False

    def stage(self, attempt_id: str, append_time_ms: int) -> pa.Table:
        """The blobs of each partition of the DataFrame."""
        task = ReadFrame(self._pipeline, self.order_column, attempt_id, append_time_ms)
        return task.read(self._frame)

    def origins(self, counts: Counts) -> dict[int, Origin]:
        """Rejected rows keep the number of the order column."""
        del counts
        return {0: Origin(NAME, -1)}

    def rows(self, counts: Counts, topic: str, attempt_id: str) -> list[SourceRow]:
        """None."""
        del counts, topic, attempt_id
        return []

    def is_taken(self, sources: pa.Table) -> bool:
        """Never: it has no files."""
        del sources
        return False
