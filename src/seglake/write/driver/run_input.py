"""The input of a run: the files that the topic does not have yet, or a DataFrame."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa

from seglake.catalog.quarantine.files import FRAME
from seglake.catalog.rows import SourceRow
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import Pipeline
from seglake.engine import TASKS_PER_CORE, Engine, share_out
from seglake.errors import InputError, MissingObject, StoreError
from seglake.store import Store
from seglake.write.driver.selection import Differences, Selection, compare, known_versions, select
from seglake.write.driver.splits import plan_splits
from seglake.write.input.content import InputStore
from seglake.write.input.files import SourceFile
from seglake.write.input.listing import ListedInputs, find_inputs, list_inputs
from seglake.write.map.frame import MapFrame
from seglake.write.map.summary import SplitCount
from seglake.write.map.unit import MapUnits, group_splits
from seglake.write.quarantine import SplitOrigin, origins

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

_CACHED_BYTES = 4 * 2**30  # of a run's blobs, which a system's cache holds for some seconds

SplitCounts = Mapping[int, SplitCount]  # by the number of the split
Sources = Callable[[Snapshot], pa.Table]


class InputFiles:
    """The files of an input list that the topic does not have yet.

    `sources` are the source rows of the topic. Raises InputError as `select` and `plan_splits` do.
    """

    order_column = None  # only a DataFrame has one

    def __init__(
        self, engine: Engine, pipeline: Pipeline, found: ListedInputs, sources: pa.Table
    ) -> None:
        self._engine, self._pipeline, self._listed = engine, pipeline, found.files
        self._known = known_versions(sources, self._listed)
        selection = select(self._listed, self._known, pipeline.on_changed_source)
        self.selection = selection._replace(missing=found.missing)
        store = InputStore(pipeline.storage, pipeline.input.compression)
        self._splits = plan_splits(self.selection.files, store, pipeline)

    def is_empty(self) -> bool:
        """Whether no file is left."""
        return not self.selection.files

    def spool(
        self, store: Store, settings: Pipeline, attempt_id: str, append_time_ms: int
    ) -> pa.Table:
        """Run the map side over all units; returns rows of SPOOLED."""
        units = group_splits(self._splits, self._pipeline.task.split_bytes)
        sizes = [unit.size_bytes for unit in units]
        shares = share_out(sizes, TASKS_PER_CORE * self._engine.cores)
        tasks = [[units[number] for number in share] for share in shares]
        plain_bytes = 0 if store.remote else _CACHED_BYTES // max(len(tasks), 1)
        map_units = MapUnits(store, settings, attempt_id, append_time_ms, plain_bytes)
        return pa.concat_tables(self._engine.map(map_units, tasks))

    def origins(self, counts: SplitCounts) -> dict[int, SplitOrigin]:
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

    def is_taken(self, newest: Snapshot, sources: Sources) -> bool:
        """Whether the topic got versions of these files since this attempt began."""
        return known_versions(sources(newest), self._listed) != self._known


class InputFrame:
    """A DataFrame. Every attempt evaluates it anew, and it has no source rows.

    `check` is called after its rows are read, and raises if they cannot be trusted.
    """

    selection = Selection([], [], [])

    def __init__(
        self, frame: DataFrame, order_column: str, check: Callable[[], None] = lambda: None
    ) -> None:
        self._frame, self.order_column, self._check = frame, order_column, check

    def is_empty(self) -> bool:
        """False: only reading the DataFrame would tell."""
        return False

    def spool(
        self, store: Store, settings: Pipeline, attempt_id: str, _append_time_ms: int
    ) -> pa.Table:
        """Run the map side over each partition of the DataFrame."""
        spooled = MapFrame(store, settings, self.order_column, attempt_id).read(self._frame)
        self._check()
        return spooled

    def origins(self, counts: SplitCounts) -> dict[int, SplitOrigin]:
        """One origin for all: the line of a reject is its number in the order column."""
        return dict.fromkeys({0, *counts}, SplitOrigin(FRAME, -1))

    def rows(self, _counts: SplitCounts, _topic: str, _attempt_id: str) -> list[SourceRow]:
        """No rows."""
        return []

    def is_taken(self, _newest: Snapshot, _sources: Sources) -> bool:
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

    def spool(
        self, store: Store, settings: Pipeline, attempt_id: str, append_time_ms: int, /
    ) -> pa.Table:
        """Run the map side with the settings of an attempt; returns rows of SPOOLED."""

    def origins(self, counts: SplitCounts, /) -> dict[int, SplitOrigin]:
        """The file of each split, and the lines before the split."""

    def rows(self, counts: SplitCounts, topic: str, attempt_id: str, /) -> list[SourceRow]:
        """The source rows to commit."""

    def is_taken(self, newest: Snapshot, sources: Sources, /) -> bool:
        """Whether another commit since this attempt began took some of the input, or removed it.

        `sources` gives the source rows of a version that count for the attempt.
        """


class AttemptInput(Protocol):
    """The input of all attempts at a run in this process."""

    def left(self, sources: pa.Table) -> RunInput:
        """What an attempt reads, given the topic's source rows. Raises InputError."""

    def differences(self, sources: pa.Table, attempt_id: str) -> Differences:
        """What changed since the attempt that was committed."""


class Files:
    """The files that a pipeline names. They are listed once: planning again keeps the list."""

    def __init__(self, engine: Engine, pipeline: Pipeline) -> None:
        self._engine, self._pipeline = engine, pipeline
        self._store = InputStore(pipeline.storage)

    @cached_property
    def _found(self) -> ListedInputs:
        return find_inputs(self._pipeline.input, self._store)

    def left(self, sources: pa.Table) -> InputFiles:
        """The files that the topic does not have. Raises InputError."""
        return InputFiles(self._engine, self._pipeline, self._found, sources)

    def differences(self, sources: pa.Table, attempt_id: str) -> Differences:
        """The files that are new, changed or gone.

        If a path cannot be listed, a file is gone only if storage says so when asked for it.
        """
        files: set[SourceFile] = set()
        is_gone: Callable[[str], bool] = lambda _: True  # noqa: E731  # until a listing fails
        for path in self._pipeline.input.paths:
            one = self._pipeline.input.model_copy(update={"paths": (path,), "on_empty": "ok"})
            try:
                files.update(list_inputs(one, self._store))
            except InputError as problem:
                logger.info("changes since the run was committed: %s", problem)
                is_gone = self._is_gone
        return compare(sorted(files), sources, attempt_id, is_gone)

    def _is_gone(self, path: str) -> bool:
        try:
            self._store.stat(path)
        except MissingObject:
            return True
        except StoreError:
            return False
        return False


class Frame(NamedTuple):
    """The rows of a DataFrame."""

    rows: InputFrame

    def left(self, _sources: pa.Table) -> InputFrame:
        """All rows."""
        return self.rows

    def differences(self, _sources: pa.Table, _attempt_id: str) -> Differences:
        """None: a DataFrame has no files."""
        return Differences([], [], [])
