"""Read the data files of a version, and make its snapshot from them."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from seglake import layout
from seglake.catalog.delta.actions import AddedFile, DeltaCommit
from seglake.catalog.delta.data_files import DataFile, read_files
from seglake.catalog.schema import (
    FILE_SCHEMAS,
    PARTITION_COLUMNS,
    AnyRow,
    Kind,
    PartitionRow,
    TopicRow,
    rows_of,
)
from seglake.catalog.version.segments import Segments, segments_by_partition
from seglake.catalog.version.snapshot import EMPTY, Snapshot, UnreadTopics
from seglake.errors import CorruptData, MissingObject, StoreError, VersionExpired
from seglake.limits import ALL_TIMES, INT64_MIN
from seglake.store import Store

# Returns the data files in which a tag keeps a version, or None if no tag keeps it.
HeldFiles = Callable[[int], frozenset[DataFile] | None]
_LARGEST = "max_timestamp"


def data_files(added: Iterable[AddedFile]) -> frozenset[DataFile]:
    """Return the added files that have a known kind of row.

    Raises CorruptData if the topic or the row count of such a file is missing.
    """
    files = set()
    for file in added:
        kind, topic = (file.partition.get(name) for name in PARTITION_COLUMNS)
        values: Any = (
            file.path, kind, topic, file.size_bytes, file.rows, file.bounds, file.names,
        )  # fmt: skip
        if kind in FILE_SCHEMAS:
            if None in values:
                what = f"a commit adds {file} without its topic or row count"
                raise CorruptData(what, file=layout.LOG_TABLE)
            files.add(DataFile(*values))
    return frozenset(files)


def last_finished_files(files: Sequence[DataFile], count: int) -> list[DataFile]:
    """Return the files that may have one of the `count` rows with the latest `finished_at_ms`.

    All files must have the same kind.
    """
    spans = [file.bounds.get("finished_at_ms", ALL_TIMES) for file in files]
    since, left = INT64_MIN, count
    for (begin, _), file in sorted(zip(spans, files, strict=True), reverse=True):
        left -= file.rows
        if left <= 0:
            # At least `count` rows finished at this time or later.
            since = begin
            break
    return [file for file, (_, end) in zip(files, spans, strict=True) if end >= since]


def files_after(files: frozenset[DataFile], commits: Iterable[DeltaCommit]) -> frozenset[DataFile]:
    """Return the data files after `commits`. `files` are the data files before these commits."""
    by_path = {file.path: file for file in files}
    for commit in commits:
        by_path |= {file.path: file for file in data_files(commit.added)}
        for path in commit.removed:
            by_path.pop(path, None)
    return frozenset(by_path.values())


def load(
    store: Store,
    version: int,
    files: frozenset[DataFile],
    topics: Collection[str] | None = None,
    held: HeldFiles | None = None,
) -> Snapshot:
    """Load a version from its data files.

    Args:
        store: The store of the lake.
        version: The number of the version.
        files: All data files of the version.
        topics: The topics whose files are read now, by default all. The files of another topic are
            read when it is first used.
        held: Returns the files in which a tag keeps the version. They are read if the files of
            another topic no longer exist when it is first used.

    Raises:
        CorruptData: A file is damaged, or a log partition has a hole.
        StoreError: Storage failed.
        MissingObject: A file does not exist.
    """
    now = files if topics is None else {file for file in files if file.topic in topics}
    unread = _unread(store, version, files - now, held)
    return _with(store, EMPTY, version, files, now, (), unread)


def load_ends(store: Store, version: int, files: frozenset[DataFile], topic: str) -> Snapshot:
    """Load a version with only the last segment of each log partition of a topic.

    The last segments are enough to append. Files without a last segment are not read. Raises what
    `load` raises.
    """
    mine = {file for file in files if file.topic == topic}
    past = {file for file in mine if file.is_past and _LARGEST in file.bounds}
    unread = _unread(store, version, files - mine)
    known = EMPTY.with_rows(version, files, topics=rows_in(store, TopicRow, mine), unread=unread)
    segments = {number: some for (_, number), some in _segments(store, mine - past).items()}
    times = [file.bounds[_LARGEST][1] for file in past]
    times += [int(some.max_timestamps.max()) for some in segments.values()]
    rows = rows_in(store, PartitionRow, mine)
    return known.with_ends(topic, rows, segments, max(times, default=-1))


@contextmanager
def retained(version: int) -> Iterator[None]:
    """Convert MissingObject in a `with` block, which reads `version`, to VersionExpired."""
    try:
        yield
    except MissingObject as error:
        raise VersionExpired(f"a vacuum deleted files of version {version}: {error}") from error


def _unread(
    store: Store, version: int, files: Iterable[DataFile], held: HeldFiles | None = None
) -> UnreadTopics:
    def read(some: frozenset[DataFile]) -> Snapshot:
        with retained(version):
            try:
                return load(store, version, some)
            except MissingObject:
                others = held(version) if held else None
                if others is None:
                    raise
                topics = {file.topic for file in some}
                return load(store, version, frozenset(f for f in others if f.topic in topics))

    return UnreadTopics(files, read)


def advance(
    store: Store, base: Snapshot, commits: Sequence[DeltaCommit], held: HeldFiles | None = None
) -> Snapshot:
    """Return the version that `commits` make from `base`. Reads only files that they added.

    A file with only rows from other files is not read, unless its topic also lost segments. For
    such a topic, the rows of all removed files are removed, and the rows of all added files are
    added. Topics that `base` has not read are not read. Raises CorruptData, StoreError and
    MissingObject.
    """
    version, files = commits[-1].version, files_after(base.files, commits)
    came = [file for commit in commits for file in commit.added]
    added = data_files(file for file in came if file.changes)
    removed = {path for commit in commits for path, changes in commit.removed.items() if changes}
    # A later commit may remove rows of a file that an earlier commit wrote by a merge.
    seen = base.files | data_files(came)
    rewritten = {file.topic for file in seen if file.kind == "segment" and file.path in removed}
    later = base.unread()

    def moved(some: frozenset[DataFile]) -> set[DataFile]:
        return {file for file in some if file.kind == "segment" and file.topic in rewritten}

    new = {file for file in added if file.kind != "segment" or file.topic not in rewritten}
    new = _now(new | moved(files - base.files), later)
    gone = _now(moved(base.files - files), later)
    unread = _unread(store, version, (file for file in files if file.topic in later), held)
    return _with(store, base, version, files, new, gone, unread)


def _now(files: Iterable[DataFile], later: Collection[str]) -> set[DataFile]:
    """Return the files to read now, which are the files whose topics are not in `later`."""
    return {file for file in files if file.topic not in later}


def _with(
    store: Store,
    snapshot: Snapshot,
    version: int,
    files: frozenset[DataFile],
    new: Collection[DataFile],
    gone: Collection[DataFile],
    unread: UnreadTopics,
) -> Snapshot:
    """Return `snapshot` as `version`, without the segments in `gone` and with the rows in `new`."""
    return snapshot.with_rows(
        version,
        files,
        topics=rows_in(store, TopicRow, new),
        partitions=rows_in(store, PartitionRow, new),
        added=_segments(store, new),
        removed={name: segments.base_offsets for name, segments in _segments(store, gone).items()},
        unread=unread,
    )


def _segments(store: Store, files: Iterable[DataFile]) -> dict[tuple[str, int], Segments]:
    """Return the segments in `files`, by topic and partition."""
    return {
        (topic, partition): segments
        for topic, table in tables(store, "segment", files).items()
        for partition, segments in segments_by_partition(table).items()
    }


def tables(store: Store, kind: Kind, files: Iterable[DataFile]) -> dict[str, list[pa.Table]]:
    """Read the files that have rows of one kind. Return their tables by topic."""
    chosen = sorted(file for file in files if file.kind == kind)
    by_topic: dict[str, list[pa.Table]] = defaultdict(list)
    read = read_files(store, layout.LOG_TABLE, chosen)
    for file, table in zip(chosen, read, strict=True):
        by_topic[file.topic].append(table)
    return by_topic


def attempts(store: Store, files: Iterable[DataFile]) -> set[str]:
    """Return the attempts named by the run, segment and maintenance rows in `files`.

    Raises what `read_files` raises.
    """
    names = set[str]()
    for file in files:
        if file.kind in ("run", "segment", "maintenance"):
            (rows,) = read_files(store, layout.LOG_TABLE, [file])
            ids = [rows[name] for name in rows.column_names if name.endswith("attempt_id")]
            values: list[Any] = [value for column in ids for value in pc.unique(column).to_pylist()]
            names.update(filter(None, values))
    return names


def damaged_files(
    store: Store, files: Iterable[DataFile]
) -> Iterator[tuple[DataFile, CorruptData | StoreError]]:
    """Yield each file that cannot be read, with the error."""
    for file in sorted(files):
        try:
            read_files(store, layout.LOG_TABLE, [file])
        except (CorruptData, StoreError) as error:
            yield file, error


def rows_in(store: Store, row_type: type[AnyRow], files: Iterable[DataFile]) -> list[AnyRow]:
    """Return the rows of one kind in `files`, of all topics. Raises what `read_files` raises."""
    return [
        row
        for topic, parts in tables(store, row_type.KIND, files).items()
        for row in rows_of(row_type, topic, pa.concat_tables(parts))
    ]
