"""Versions of the catalog in memory, made from data files and from the commits that named them."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from seglake import layout
from seglake.catalog.delta import data_files as data
from seglake.catalog.delta.commit_log import Added, Entry
from seglake.catalog.rows import (
    FILE_SCHEMAS,
    PARTITION_COLUMNS,
    AnyRow,
    DataFile,
    Kind,
    PartitionRow,
    TopicRow,
    rows_of,
)
from seglake.catalog.version.snapshot import EMPTY, Snapshot
from seglake.errors import CorruptData
from seglake.store import Store


def active_files(table: DeltaTable) -> frozenset[DataFile]:
    """The data files of a version, as far as their kind is known; so everywhere here."""
    found = pa.table(table.get_add_actions(flatten=True))
    names = ("path", "partition.kind", "partition.topic", "size_bytes", "num_records")
    columns = [found.column(name).to_pylist() for name in names]
    return frozenset(_known(itertools.starmap(DataFile, zip(*columns, strict=True))))


def files_after(files: frozenset[DataFile], entries: Iterable[Entry]) -> frozenset[DataFile]:
    """The data files once these commits are made."""
    found = {file.path: file for file in files}
    for entry in entries:
        found |= {file.path: file for file in _known(map(_file, entry.added))}
        for path in entry.removed:
            found.pop(path, None)
    return frozenset(found.values())


def _file(file: Added) -> DataFile:
    kind, topic = (file.partition.get(name) for name in PARTITION_COLUMNS)
    values: Any = (file.path, kind, topic, file.size_bytes, file.rows)
    return DataFile(*values)


def _known(files: Iterable[DataFile]) -> Iterator[DataFile]:
    for file in files:
        if file.kind in FILE_SCHEMAS:
            if None in file:
                raise CorruptData(f"a commit leaves out what {file} is", file=layout.LOG_TABLE)
            yield file


def load(store: Store, version: int, files: frozenset[DataFile]) -> Snapshot:
    """A version, from all its data files. Raises CorruptData, StoreError and MissingObject."""
    return _with(store, EMPTY, version, files, files, ())


def advance(store: Store, known: Snapshot, entries: Sequence[Entry]) -> Snapshot:
    """The version after some commits, which follow `known`; reads what they added to it.

    Rows that a commit only moved are known. Of a topic that lost segments they are all read again.
    Raises CorruptData, StoreError and MissingObject.
    """
    files = files_after(known.files, entries)
    added = (file for entry in entries for file in entry.added if file.changes)
    new = set(_known(map(_file, added)))
    gone = {path for entry in entries for path, changes in entry.removed.items() if changes}
    rewritten = {f.topic for f in {*known.files, *new} if f.kind == "segment" and f.path in gone}
    new = {file for file in new if file.kind != "segment" or file.topic not in rewritten}
    new |= {file for file in files if file.kind == "segment" and file.topic in rewritten}
    return _with(store, known, entries[-1].version, files, new, rewritten)


def _with(
    store: Store,
    known: Snapshot,
    version: int,
    files: frozenset[DataFile],
    new: Collection[DataFile],
    rewritten: Collection[str],
) -> Snapshot:
    """`known` with the rows of some files, which are all there is of the topics `rewritten`."""
    return known.with_rows(
        version,
        files,
        topics=_rows(store, TopicRow, new),
        partitions=_rows(store, PartitionRow, new),
        added={
            (topic, partition): segments
            for topic, found in tables(store, "segment", new).items()
            for partition, segments in data.segments_by_partition(found).items()
        },
        removed={
            (row.topic, view.partition): view.segments.base_offsets
            for row in known.topics()
            if row.topic in rewritten
            for view in known.partitions(row.topic)
        },
    )


def tables(store: Store, kind: Kind, files: Iterable[DataFile]) -> dict[str, list[pa.Table]]:
    """The data of all files of a kind, by topic."""
    chosen = sorted(file for file in files if file.kind == kind)
    found: dict[str, list[pa.Table]] = defaultdict(list)
    read = data.read_files(store, layout.LOG_TABLE, chosen)
    for file, table in zip(chosen, read, strict=True):
        found[file.topic].append(table)
    return found


def _rows(store: Store, row_type: type[AnyRow], files: Iterable[DataFile]) -> list[AnyRow]:
    return [
        row
        for topic, found in tables(store, row_type.KIND, files).items()
        for row in rows_of(row_type, topic, pa.concat_tables(found))
    ]
