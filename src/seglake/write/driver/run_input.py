"""Determine the input of a run, and cut its files into splits.

The input is a DataFrame, or the files that the topic does not have yet.
"""

from __future__ import annotations

import itertools
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglake.catalog.quarantine.files import FRAME
from seglake.catalog.schema import SourceRow
from seglake.catalog.version.snapshot import Snapshot
from seglake.config import Pipeline
from seglake.engine import Engine
from seglake.errors import ChangedFiles, CommitConflict, InputError, MissingObject, StoreError
from seglake.limits import REQUESTS
from seglake.write.input.content import InputStore
from seglake.write.input.files import FileVersion, SourceFile, Split
from seglake.write.input.listing import (
    BY_LINK,
    FileList,
    ListedInputs,
    find_inputs,
    names_of_one_file,
    other_names,
)
from seglake.write.map.frame import MapFrame
from seglake.write.map.unit import (
    MapSettings,
    MapUnits,
    SplitCount,
    map_sizes,
    map_sizes_for_frame,
    shared_units,
    size_bytes,
)
from seglake.write.quarantine import SplitOrigin
from seglake.write.rows.formats.registry import FORMATS
from seglake.write.spool.spool import unpack_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# ---------------- selection
# Select the files that an attempt reads, and find changes since a run was committed.
#
# Files that the topic already has are skipped. `on_changed_source` decides about files that
# changed after they were ingested.

SourceRows = Callable[[Collection[str]], pa.Table]  # the source rows of some paths

_AT_ONCE = 1 << 17  # files in one query of the catalog


class InputSelection(NamedTuple):
    """The input files of an attempt, divided into files to read, skipped files and changed files.

    `files` are read. `skipped` files were ingested before, in the same version. `changed` files
    were ingested in another version. `missing` are paths of the input that do not exist. `left_out`
    counts, by reason, the files that are excluded from the input.
    """

    files: list[SourceFile]
    skipped: FileList
    changed: list[SourceFile]
    missing: Sequence[str] = ()
    left_out: Mapping[str, int] = {}

    def one_name_each(self, one_file: Sequence[Sequence[str]]) -> InputSelection:
        """Return the selection with only one name of each file.

        Each item of `one_file` has all names of one file. A name that was ingested before is
        preferred.
        """
        if not one_file:
            return self
        named = [name for names in one_file for name in names]
        changed = {file.path for file in self.changed}
        others = other_names(one_file, self.skipped.among(named), changed)
        files, again = (
            [file for file in some if file.path not in others]
            for some in (self.files, self.changed)
        )
        count = len(self.files) + len(self.changed) - len(files) - len(again)
        left_out = {**self.left_out, BY_LINK: count} if count else self.left_out
        return self._replace(files=files, changed=again, left_out=left_out)


class Differences(NamedTuple):
    """The paths of files that are new, changed or gone since a run was committed.

    The topic has no version of a `new` file, and another version of a `changed` file. The run
    ingested a `gone` file, which no longer exists.
    """

    new: list[str]
    changed: list[str]
    gone: list[str]


def known_versions(sources: pa.Table) -> dict[str, list[FileVersion]]:
    """Return, for each path in the catalog's source rows, the versions that were ingested."""
    versions: dict[str, list[FileVersion]] = {}
    columns: list[list[Any]]
    columns = [sources[name].to_pylist() for name in ("path", "size_bytes", "modified_ms", "etag")]
    for path, *version in zip(*columns, strict=True):
        versions.setdefault(path, []).append(FileVersion(*version))
    return versions


class KnownFiles(NamedTuple):
    """The files of an input list, compared with the topic's versions of these files.

    `selection` has new, skipped and changed files. `owners` are the attempts that ingested any
    version of the files. `digests` has a hash of the topic's versions for every `_AT_ONCE` files.
    `differs` compares these hashes with later ones.
    """

    selection: InputSelection
    owners: set[str]
    digests: list[int]

    @staticmethod
    def from_files(files: FileList, source_rows: SourceRows) -> KnownFiles:
        """Query the topic's versions of `files`, at most `_AT_ONCE` files in one query."""
        new, changed, skipped = list[SourceFile](), list[SourceFile](), list[FileList]()
        owners, digests = set[str](), list[int]()
        for some in files.parts(_AT_ONCE):
            sources, skips = source_rows([*some.paths]), list[bool]()
            versions = known_versions(sources)
            for file in some:
                skips.append(any(map(file.version.is_same, versions.get(file.path, ()))))
                if not skips[-1]:
                    (changed if file.path in versions else new).append(file)
            skipped.append(some.filter(skips))
            owners.update(map(str, pc.unique(sources["attempt_id"]).to_pylist()))
            digests.append(_digest(versions))
        return KnownFiles(InputSelection(new, FileList.joined(skipped), changed), owners, digests)

    def differs(self, files: FileList, source_rows: SourceRows) -> bool:
        """Return whether the topic's versions of `files` have changed since `from_files`."""
        parts = zip(files.parts(_AT_ONCE), self.digests, strict=True)
        return any(
            _digest(known_versions(source_rows([*some.paths]))) != digest for some, digest in parts
        )


def _digest(versions: Mapping[str, list[FileVersion]]) -> int:
    return hash(frozenset((path, frozenset(some)) for path, some in versions.items()))


# ---------------- splits
# Divide files into splits, which the map side groups into units.


def plan_splits(files: Sequence[SourceFile], store: InputStore, pipeline: Pipeline) -> list[Split]:
    """Divide files into splits of `task.split_bytes`, where the input format allows it.

    With `headers.source` each file is one split, because its lines are counted from the beginning.

    Raises:
        InputError: A file cannot be read, or one run cannot ingest all these files.
    """
    form, size = FORMATS[pipeline.input.format], pipeline.task.split_bytes
    form.check(files, store, pipeline)
    large = [] if pipeline.headers.source else [file for file in files if file.size > size]
    with ThreadPoolExecutor(REQUESTS) as pool:
        can_split = pool.map(lambda file: form.can_split(file, store, pipeline), large)
        divided = set(itertools.compress(large, can_split))
    splits: list[Split] = []
    for file in files:
        inner = range(size, file.size, size) if file in divided else range(0)
        edges = [0, *inner, file.size]
        splits += [
            Split(number, file, start, end)
            for number, (start, end) in enumerate(itertools.pairwise(edges), len(splits))
        ]
    return splits


# ---------------- the input of an attempt

logger = logging.getLogger(__name__)

_CACHED_BYTES = 4 * 2**30  # size of blobs that the system's cache keeps for some seconds

SplitCounts = Mapping[int, SplitCount]  # number of the split → counts
Sources = Callable[[Snapshot, Collection[str]], pa.Table]  # source rows of paths in a version


class RunInput(ABC):
    """The input of an attempt, which is files, the rejects of another run, or a DataFrame.

    `selection` has the files that are read, skipped and changed. `owners` are the attempts that
    ingested the skipped and changed files before. `order_column` is the order column of a
    DataFrame.
    """

    selection = InputSelection([], FileList.from_files([]), [])
    owners: Collection[str] = ()
    order_column: str | None = None

    def is_empty(self) -> bool:
        """Return whether there is nothing to read, or False if this is unknown before reading."""
        return False

    def value_settings(self) -> Mapping[str, Any]:
        """Return the settings `value.*` (the value format) that this input gives a new topic."""
        return {}

    @abstractmethod
    def spool(self, settings: MapSettings) -> pa.Table:
        """Run the map tasks with the settings of an attempt. Return a row for each blob.

        The rows have the schema `SPOOLED` of `write/spool/spool.py`. Raises InputError, StoreError
        and errors of the engine.
        """

    @abstractmethod
    def origins(self, counts: SplitCounts) -> dict[int, SplitOrigin]:
        """Return, by split number, the file of the split and the number of lines before it."""

    def rows(self, counts: SplitCounts, topic: str, attempt_id: str) -> list[SourceRow]:
        """Return the source rows to commit, one for each file that was read."""
        del counts, topic, attempt_id
        return []

    def is_taken(self, newest: Snapshot, sources: Sources) -> bool:
        """Return whether another commit ingested or removed some of the input since planning.

        `newest` is the newest version. `sources` returns the source rows of paths in a version,
        without the rows of runs that the attempt replaces.
        """
        del newest, sources
        return False


InputOf = Callable[[SourceRows], RunInput]  # the input of an attempt, from the topic's source rows


def new_files(engine: Engine, pipeline: Pipeline) -> InputOf:
    """Return a function that creates the input of an attempt from a pipeline's files.

    The function may raise InputError. It lists the files only in its first call, so an attempt that
    is planned again uses the same list.
    """
    listed = cache(
        partial(find_inputs, pipeline.input, InputStore(pipeline.storage), pipeline.root)
    )
    return lambda source_rows: InputFiles(engine, pipeline, listed(), source_rows)


class FileInput(RunInput):
    """Input that consists of `splits` of files."""

    splits: list[Split]
    _pipeline: Pipeline
    _files: InputStore

    def is_empty(self) -> bool:
        """Return whether there is no split to read."""
        return not self.splits

    def value_settings(self) -> Mapping[str, Any]:
        """Return the settings `value.*` that the input format finds. May raise InputError.

        The result is empty if values are not raw lines, because JSON values need no setting.
        """
        if self._pipeline.value_source != "line":
            return {}
        form = FORMATS[self._pipeline.input.format]
        return form.value_settings(self.selection.files, self._files, self._pipeline)

    def origins(self, counts: SplitCounts) -> dict[int, SplitOrigin]:
        """Return, by split number, the file of the split and the number of lines before it."""
        by_split: dict[int, SplitOrigin] = {}
        path, lines_before = "", 0
        for split in self.splits:
            lines_before = lines_before if split.file.path == path else 0
            path = split.file.path
            by_split[split.number] = SplitOrigin(path, lines_before)
            lines_before += counts[split.number].lines
        return by_split


class InputFiles(FileInput):
    """The files of an input list that the topic does not have yet.

    `source_rows` returns the topic's source rows of paths. Creating an object may raise
    ChangedFiles, and InputError like `plan_splits`.
    """

    def __init__(
        self, engine: Engine, pipeline: Pipeline, listed: ListedInputs, source_rows: SourceRows
    ) -> None:
        self._engine, self._pipeline, self._listed = engine, pipeline, listed.files
        self._known = KnownFiles.from_files(self._listed, source_rows)
        self.owners = self._known.owners
        counts = Counter(listed.left_out.values())
        selection = self._known.selection._replace(missing=listed.missing, left_out=counts)
        selection = selection.one_name_each(listed.one_file)
        if selection.changed and pipeline.on_changed_source == "fail":
            raise ChangedFiles([file.path for file in selection.changed])
        if pipeline.on_changed_source == "ingest-as-new":
            files = sorted([*selection.files, *selection.changed])
            selection = selection._replace(files=files)
        self.selection = selection
        store = InputStore(pipeline.storage, pipeline.input.compression, pipeline.input.encoding)
        self.splits, self._files = plan_splits(self.selection.files, store, pipeline), store

    def spool(self, settings: MapSettings) -> pa.Table:
        """Run the map tasks over all units of the files, and return the SPOOLED rows."""
        sizes = map_sizes(sum(map(size_bytes, self.splits)), settings.pipeline)
        settings = settings._replace(sizes=sizes)
        tasks = shared_units(self.splits, sizes.unit_bytes, self._engine)
        plain_bytes = 0 if settings.store.remote else _CACHED_BYTES // max(len(tasks), 1)
        return unpack_rows(self._engine.map(MapUnits(settings, plain_bytes), tasks))

    def rows(self, counts: SplitCounts, topic: str, attempt_id: str) -> list[SourceRow]:
        """Return one source row for each file that is read, with the file's number of rows."""
        rows: Counter[str] = Counter()
        for split in self.splits:
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
        """Return whether the topic got versions of these files since this attempt began."""
        return self._known.differs(self._listed, partial(sources, newest))


class InputFrame(RunInput):
    """A DataFrame as input. Every attempt evaluates it again. No source rows are committed."""

    order_column: str

    def __init__(self, frame: DataFrame, order_column: str) -> None:
        self._frame, self.order_column = frame, order_column

    def spool(self, settings: MapSettings) -> pa.Table:
        """Run a map task for each partition of the DataFrame, and return the SPOOLED rows."""
        settings = settings._replace(sizes=map_sizes_for_frame(settings.pipeline))
        return MapFrame(settings, self.order_column).read(self._frame)

    def origins(self, counts: SplitCounts) -> dict[int, SplitOrigin]:
        """Return one origin for all splits. A reject's line is its number in the order column.

        `lines_before` is -1, because the quarantine adds 1 to convert lines to 1-based numbers.
        """
        return dict.fromkeys({0, *counts}, SplitOrigin(FRAME, -1))


class InputBatches(InputFrame):
    """Record batches of this process as input. Row numbers (from 0) are the order column.

    The batches can be read only once, and are mapped in the calling thread.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], order_column: str) -> None:
        self._batches, self.order_column = batches, order_column
        self._is_read = False

    def spool(self, settings: MapSettings) -> pa.Table:
        """Map the batches, and return the SPOOLED rows.

        Raises CommitConflict if the batches were read before.
        """
        if self._is_read:
            raise CommitConflict(
                "the topic changed while the rows were read, and they can be read only once. "
                "Nothing was committed. Call again with the same rows and run id"
            )
        self._is_read = True
        settings = settings._replace(sizes=map_sizes_for_frame(settings.pipeline))
        return unpack_rows([MapFrame(settings, self.order_column).spool(self._numbered())])

    def _numbered(self) -> Iterator[pa.RecordBatch]:
        first = 0
        for batch in self._batches:
            end = first + batch.num_rows
            yield batch.append_column(self.order_column, pa.array(np.arange(first, end)))
            first = end


def changes_since(
    pipeline: Pipeline, source_rows: SourceRows, ingested: Callable[[], set[str]]
) -> Differences:
    """Return the files of a pipeline that are new, changed or gone since an attempt was committed.

    `source_rows` returns the topic's source rows of paths, and `ingested` the paths of the files
    that the attempt ingested. If one of the input paths cannot be listed, only files that storage
    reports as missing are gone. For a DataFrame, the result is empty.
    """
    if not pipeline.input.kind.in_files:
        return Differences([], [], [])
    store, parts, all_listed = InputStore(pipeline.storage), list[FileList](), True
    for path in pipeline.input.paths:
        one = pipeline.input.model_copy(update={"paths": (path,), "on_empty": "ok"})
        try:
            parts.append(find_inputs(one, store, pipeline.root).files)
        except InputError as problem:
            logger.info("cannot determine the changes since the run was committed: %s", problem)
            all_listed = False
    files, paths = FileList.joined(parts).by_path(), ingested()
    now = KnownFiles.from_files(files, source_rows).selection
    now = now.one_name_each(names_of_one_file(files.paths))
    new, changed = ([file.path for file in some] for some in (now.files, now.changed))
    left = sorted(paths - files.among(paths))
    return Differences(new, changed, [p for p in left if all_listed or _is_gone(store, p)])


def _is_gone(store: InputStore, path: str) -> bool:
    try:
        store.stat(path)
    except MissingObject:
        return True
    except StoreError:
        return False
    return False
