"""The input of one attempt: the files that the topic does not have yet, or a DataFrame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from seglake.catalog.rows import SourceRow
from seglake.config import Pipeline
from seglake.engine import TASKS_PER_CORE, Engine, share_out
from seglake.store import Store
from seglake.write.driver.selection import Selection, known_versions, select
from seglake.write.driver.splits import plan_splits
from seglake.write.input.content import InputStore
from seglake.write.input.files import SourceFile
from seglake.write.map.frame import NAME, MapFrame
from seglake.write.map.summary import SplitCount
from seglake.write.map.unit import MapUnits, group_splits
from seglake.write.quarantine import Origin, origins

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SplitCounts = Mapping[int, SplitCount]  # by the number of the split


class InputFiles:
    """The files of an input list that the topic does not have yet.

    `sources` are the source rows of the topic. Raises InputError as `select` and `plan_splits` do.
    """

    order_column = None  # only a DataFrame has one

    def __init__(
        self, engine: Engine, pipeline: Pipeline, listed: Sequence[SourceFile], sources: pa.Table
    ) -> None:
        self._engine, self._pipeline, self._listed = engine, pipeline, listed
        self._known = known_versions(sources, listed)
        self.selection = select(listed, self._known, pipeline.on_changed_source)
        store = InputStore(pipeline.storage, pipeline.input.compression)
        self._splits = plan_splits(self.selection.files, store, pipeline)

    def is_empty(self) -> bool:
        """Whether no file is left."""
        return not self.selection.files

    def spool(self, store: Store, attempt_id: str, append_time_ms: int) -> pa.Table:
        """Run the map side over all units; returns rows of SPOOLED."""
        units = group_splits(self._splits, self._pipeline.task.split_bytes)
        sizes = [unit.size_bytes for unit in units]
        shares = share_out(sizes, TASKS_PER_CORE * self._engine.cores)
        tasks = [[units[number] for number in share] for share in shares]
        map_units = MapUnits(store, self._pipeline, attempt_id, append_time_ms)
        return pa.concat_tables(self._engine.map(map_units, tasks))

    def origins(self, counts: SplitCounts) -> dict[int, Origin]:
        """The file of each split, and the lines before the split."""
        return origins(self._splits, counts)

    def rows(self, counts: SplitCounts, topic: str, attempt_id: str) -> list[SourceRow]:
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
            for file in self.selection.files
        ]

    def is_taken(self, sources: pa.Table) -> bool:
        """Whether the topic got versions of the files since this attempt began."""
        return known_versions(sources, self._listed) != self._known


class InputFrame:
    """A DataFrame. Every attempt evaluates it anew, and it has no source rows."""

    selection = Selection([], [], [])

    def __init__(self, pipeline: Pipeline, frame: DataFrame, order_column: str) -> None:
        self._pipeline, self._frame = pipeline, frame
        self.order_column = order_column

    def is_empty(self) -> bool:
        """False: only reading the DataFrame would tell."""
        return False

    def spool(self, store: Store, attempt_id: str, _append_time_ms: int) -> pa.Table:
        """Run the map side over each partition of the DataFrame."""
        return MapFrame(store, self._pipeline, self.order_column, attempt_id).read(self._frame)

    def origins(self, _counts: SplitCounts) -> dict[int, Origin]:
        """One origin: the line of a reject is its number in the order column."""
        return {0: Origin(NAME, -1)}

    def rows(self, _counts: SplitCounts, _topic: str, _attempt_id: str) -> list[SourceRow]:
        """No rows."""
        return []

    def is_taken(self, _sources: pa.Table) -> bool:
        """False: a DataFrame has no files."""
        return False


class RunInput(Protocol):
    """What an attempt reads; see `InputFiles`."""

    @property
    def selection(self) -> Selection:
        """The files that are read, skipped and changed."""

    @property
    def order_column(self) -> str | None:
        """The order column of a DataFrame."""

    def is_empty(self) -> bool:
        """Whether there is nothing to read."""

    def spool(self, store: Store, attempt_id: str, append_time_ms: int, /) -> pa.Table:
        """Run the map side; returns rows of SPOOLED."""

    def origins(self, counts: SplitCounts, /) -> dict[int, Origin]:
        """The file of each split, and the lines before the split."""

    def rows(self, counts: SplitCounts, topic: str, attempt_id: str, /) -> list[SourceRow]:
        """The source rows to commit."""

    def is_taken(self, sources: pa.Table, /) -> bool:
        """Whether another run ingested some of it since this attempt began."""


InputMaker = Callable[[pa.Table], RunInput]  # from the topic's source rows
