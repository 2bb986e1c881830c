"""The input of a run: the files that the topic does not have yet, or a DataFrame."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from seglake.catalog.quarantine.files import FRAME
from seglake.catalog.schema import SourceRow
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import Pipeline
from seglake.engine import Engine
from seglake.errors import InputError, MissingObject, StoreError
from seglake.write.driver.selection import (
    Differences,
    InputSelection,
    KnownFiles,
    SourceRows,
    compare,
)
from seglake.write.driver.splits import plan_splits
from seglake.write.input.content import InputStore
from seglake.write.input.file_list import FileList
from seglake.write.input.files import SourceFile
from seglake.write.input.listing import ListedInputs, find_inputs
from seglake.write.map.frame import MapFrame
from seglake.write.map.gather import sizes_of, sizes_of_frame
from seglake.write.map.summary import SplitCount
from seglake.write.map.unit import MapSettings, MapUnits, shared_units, size_bytes
from seglake.write.quarantine import SplitOrigin, origins
from seglake.write.rows.formats.registry import FORMATS
from seglake.write.spool.spool import unpacked_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

_CACHED_BYTES = 4 * 2**30  # of a run's blobs, which a system's cache holds for some seconds

SplitCounts = Mapping[int, SplitCount]  # by the number of the split
Sources = Callable[[Snapshot, Collection[str]], pa.Table]  # those in a version


class RunInput(ABC):
    """What an attempt reads. Here it is no file, and no other commit can take it.

    `selection` are the files that are read, skipped and changed; `owners` the attempts that
    ingested the latter before. `order_column` is that of a
    DataFrame. `keeps_rejects` says whether some can be shown if the attempt fails.
    """

    selection = InputSelection([], FileList.of([]), [])
    owners: Collection[str] = ()
    keeps_rejects = True
    order_column: str | None = None

    def is_empty(self) -> bool:
        """Whether there is nothing to read; False if only reading would tell."""
        return False

    def value_settings(self) -> Mapping[str, Any]:
        """The settings `value.…` of a topic that is made of it: how its values have fields."""
        return {}

    @abstractmethod
    def spool(self, settings: MapSettings) -> pa.Table:
        """Run the map side with the settings of an attempt; returns what `unpacked_rows` does."""

    @abstractmethod
    def origins(self, counts: SplitCounts) -> dict[int, SplitOrigin]:
        """The file of each split, and the lines before the split."""

    def rows(self, counts: SplitCounts, topic: str, attempt_id: str) -> list[SourceRow]:
        """The source rows to commit."""
        del counts, topic, attempt_id
        return []

    def is_taken(self, newest: Snapshot, sources: Sources) -> bool:
        """Whether another commit since this attempt began took some of the input, or removed it.

        `sources` gives the source rows of paths in a version, those that count for the attempt.
        """
        del newest, sources
        return False


InputOf = Callable[[SourceRows], RunInput]  # what an attempt reads, given what the topic has


def files_of(engine: Engine, pipeline: Pipeline) -> InputOf:
    """The files that a pipeline names and the topic does not have; raises InputError.

    They are listed once: planning again keeps the list.
    """
    listed = cache(
        partial(find_inputs, pipeline.input, InputStore(pipeline.storage), pipeline.root)
    )
    return lambda source_rows: InputFiles(engine, pipeline, listed(), source_rows)


def value_settings_of(
    files: Sequence[SourceFile], store: InputStore, pipeline: Pipeline
) -> Mapping[str, Any]:
    """The settings `value.…` of a topic of these files; none if the values are no raw lines.

    Raises InputError.
    """
    if pipeline.value_source != "line":
        return {}
    return FORMATS[pipeline.input.format].value_settings(files, store, pipeline)


class InputFiles(RunInput):
    """The files of an input list that the topic does not have yet.

    `source_rows` gives those of paths. Raises ChangedFiles, and InputError as `plan_splits` does.
    """

    def __init__(
        self, engine: Engine, pipeline: Pipeline, listed: ListedInputs, source_rows: SourceRows
    ) -> None:
        self._engine, self._pipeline, self._listed = engine, pipeline, listed.files
        self._known = KnownFiles.of(self._listed, source_rows)
        self.owners = self._known.owners
        counts = Counter(listed.left_out.values())
        selection = self._known.selection._replace(missing=listed.missing, left_out=counts)
        selection = selection.one_name_each(listed.one_file)
        self.selection = selection.obeying(pipeline.on_changed_source)
        store = InputStore(pipeline.storage, pipeline.input.compression, pipeline.input.encoding)
        self._splits, self._store = plan_splits(self.selection.files, store, pipeline), store

    def is_empty(self) -> bool:
        """Whether no file is left."""
        return not self.selection.files

    def value_settings(self) -> Mapping[str, Any]:
        """Those of the format, if the values are raw lines. Raises InputError."""
        return value_settings_of(self.selection.files, self._store, self._pipeline)

    def spool(self, settings: MapSettings) -> pa.Table:
        """Run the map side over all units."""
        sizes = sizes_of(sum(map(size_bytes, self._splits)), settings.pipeline)
        settings = settings._replace(sizes=sizes)
        tasks = shared_units(self._splits, sizes.unit_bytes, self._engine)
        plain_bytes = 0 if settings.store.remote else _CACHED_BYTES // max(len(tasks), 1)
        return unpacked_rows(self._engine.map(MapUnits(settings, plain_bytes), tasks))

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
        return self._known.differs(self._listed, partial(sources, newest))


class InputFrame(RunInput):
    """A DataFrame. Every attempt evaluates it anew, and it has no source rows.

    `check` is called after its rows are read, and raises if they cannot be trusted.
    """

    order_column: str

    def __init__(
        self, frame: DataFrame, order_column: str, check: Callable[[], None] = lambda: None
    ) -> None:
        self._frame, self.order_column, self._check = frame, order_column, check

    def spool(self, settings: MapSettings) -> pa.Table:
        """Run the map side over each partition of the DataFrame."""
        settings = settings._replace(sizes=sizes_of_frame(settings.pipeline))
        spooled = MapFrame(settings, self.order_column).read(self._frame)
        self._check()
        return spooled

    def origins(self, counts: SplitCounts) -> dict[int, SplitOrigin]:
        """One origin for all: the line of a reject is its number in the order column."""
        return dict.fromkeys({0, *counts}, SplitOrigin(FRAME, -1))


def changes_since(
    pipeline: Pipeline, source_rows: SourceRows, ingested: Callable[[], set[str]]
) -> Differences:
    """The files of a pipeline that are new, changed or gone since an attempt was committed.

    `source_rows` gives those of paths, and `ingested` the paths of the attempt's files. If a path
    cannot be listed, a file is gone only if storage says so when asked for it. A DataFrame has no
    files.
    """
    if not pipeline.input.kind.in_files:
        return Differences([], [], [])
    store, parts = InputStore(pipeline.storage), list[FileList]()
    is_gone: Callable[[str], bool] = lambda _: True  # noqa: E731  # until a listing fails
    for path in pipeline.input.paths:
        one = pipeline.input.model_copy(update={"paths": (path,), "on_empty": "ok"})
        try:
            parts.append(find_inputs(one, store, pipeline.root).files)
        except InputError as problem:
            logger.info("changes since the run was committed: %s", problem)
            is_gone = partial(_is_gone, store)
    return compare(FileList.joined(parts).by_path(), source_rows, ingested(), is_gone)


def _is_gone(store: InputStore, path: str) -> bool:
    try:
        store.stat(path)
    except MissingObject:
        return True
    except StoreError:
        return False
    return False
