"""Read and write the objects of tags, which keep the rows of the tagged versions.

The object `catalog/tags/<attempt>/version.json` lists data files with all rows of the version.
These files are stored next to the object, not in the Delta table. So the version does not need its
commits or its data files in the table. The row of the tag has the size and the checksum of the
object. The name of a data file has its checksum. The object also lists the records that
erasures have removed from the version. The module `maintain.tagging` makes and deletes tags.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import crc32c
import pyarrow as pa

from seglake.catalog.delta import file_merges
from seglake.catalog.delta.data_files import DataFile, write_file
from seglake.catalog.schema import Kind, TagRow
from seglake.catalog.version import snapshot_files
from seglake.errors import CorruptData, UsageError, corrupt_unless_parsed, require_format
from seglake.layout import tag_folder, tag_key
from seglake.store import Store

NAME_RULE = (
    "the name of a tag must have 1 to 64 characters from a-z 0-9 _ -, begin with a letter, and "
    "must not be key, key64, or v or x followed by digits"
)
NAME = r"(?!(?:[vx][0-9]+|key|key64)(?![a-z0-9_-]))[a-z][a-z0-9_-]{0,63}"  # a regular expression
_FORMAT = 1
_NOT_STORED = ("bounds", "names", "folder")

Rows = tuple[Kind, str, pa.Table]  # the rows of one kind and topic


class ErasedRecords(NamedTuple):
    """Records that an erasure removed from a segment of a tagged version.

    `last_offset` is inclusive.
    """

    erased_at_ms: int
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int


class TagObject(NamedTuple):
    """The attempt that wrote the object of a tag, and the size and CRC-32C of the object."""

    attempt_id: str
    size_bytes: int
    checksum: int


def check_name(name: str) -> None:
    """Raise UsageError unless `name` is a valid name of a tag."""
    if not re.fullmatch(NAME, name):
        raise UsageError(f"tag {name!r}: {NAME_RULE}")


def tag_rows(store: Store, files: Iterable[DataFile]) -> list[TagRow]:
    """Return every tag row in some data files of the catalog, sorted by sequence."""
    rows = snapshot_files.rows_in(store, TagRow, files)
    return sorted(rows, key=lambda row: row.sequence)


def live_tags(store: Store, files: Iterable[DataFile]) -> list[TagRow]:
    """Return the tags of the version with these data files, sorted by name."""
    newest = {row.name: row for row in tag_rows(store, files)}
    return [newest[name] for name in sorted(newest) if newest[name].state == "tagged"]


class TaggedVersion(NamedTuple):
    """The content of a tag's object, which lists data files of the version and erased records."""

    files: frozenset[DataFile]
    erased: list[ErasedRecords]


def write_object(
    store: Store,
    attempt_id: str,
    version: int,
    lake: str,
    rows: Iterable[Rows],
    erased: Sequence[ErasedRecords] = (),
) -> TagObject:
    """Write the rows of a version, and the object that lists their files. Raises StoreError."""
    folder, files = tag_folder(attempt_id), list[dict[str, Any]]()
    for kind, topic, table in rows:
        for part in file_merges.cut_rows(table):
            written = write_file(store, folder, kind, topic, *part)
            file = DataFile(written.path, kind, topic, written.size_bytes, len(part.rows))
            files.append({k: v for k, v in asdict(file).items() if k not in _NOT_STORED})
    content = {
        "format": _FORMAT,
        "version": version,
        "lake": lake,
        "files": files,
        "erased": [each._asdict() for each in erased],
    }
    data = json.dumps(content).encode()
    store.put(tag_key(attempt_id), data)
    return TagObject(attempt_id, len(data), crc32c.crc32c(data))


def read_object(store: Store, tag: TagRow) -> TaggedVersion:
    """Return the data files of the version that a tag names, and the records erased from it.

    Raises MissingObject, StoreError, and CorruptData if the object is damaged or has another size
    or checksum than the tag's row.
    """
    key = tag_key(tag.attempt_id)
    data = bytes(store.read_all(key))
    if (len(data), crc32c.crc32c(data)) != (tag.object_bytes, tag.object_crc32c):
        raise CorruptData(f"the object of tag {tag.name!r} has a wrong size or checksum", file=key)
    with corrupt_unless_parsed("a tagged version", key):
        content: Any = json.loads(data)
        require_format(content["format"], _FORMAT, "the tagged version", key)
        folder = tag_folder(tag.attempt_id)
        files = frozenset(DataFile(**each, folder=folder) for each in content["files"])
        return TaggedVersion(files, [ErasedRecords(**each) for each in content["erased"]])


def is_tagged_version(files: Collection[DataFile]) -> bool:
    """Return whether these are the data files of a tagged version, not of the catalog table."""
    return any(file.folder for file in files)
