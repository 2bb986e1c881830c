"""Find the tags of the catalog, load the versions that they name, and write their objects.

`CatalogTags` finds tags in the rows of the catalog, and loads the versions that they name. The
object of a tag, `catalog/tags/<attempt>/version.json`, lists data files with all rows of the
version. These files are stored next to the object, not in the Delta table. So the version does not
need its commits or its data files in the table. The row of the tag has the size and the checksum of
the object. The name of a data file has its checksum. The object also lists the records that
erasures have removed from the version. The module `maintain.tagging` makes and deletes tags.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from shlex import quote
from typing import Any, NamedTuple

import crc32c
import pyarrow as pa

from seglake.catalog.delta import file_merges
from seglake.catalog.delta.data_files import DataFile, write_file
from seglake.catalog.schema import Kind, TagRow
from seglake.catalog.version import snapshot_files
from seglake.catalog.version.snapshot import Snapshot
from seglake.errors import (
    CorruptData,
    MissingObject,
    UsageError,
    VersionExpired,
    corrupt_unless_parsed,
    require_format,
)
from seglake.layout import tag_folder, tag_key
from seglake.store import Store
from seglake.terminal.wording import suggest

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


def _live_tags(store: Store, files: Iterable[DataFile]) -> list[TagRow]:
    """Return the tags of the version with these data files, sorted by name."""
    newest = {row.name: row for row in tag_rows(store, files)}
    return [newest[name] for name in sorted(newest) if newest[name].state == "tagged"]


class CatalogTags:
    """The tags of the catalog in a store. Not thread-safe.

    `newest_files` returns the data files of the newest version of the catalog.
    """

    def __init__(self, store: Store, newest_files: Callable[[], frozenset[DataFile]]) -> None:
        self._store, self._newest_files = store, newest_files
        self._cached: tuple[frozenset[DataFile], list[TagRow]] = (frozenset(), [])

    def live(self) -> list[TagRow]:
        """Return the tags of the newest version, sorted by name."""
        return _live_tags(self._store, self._newest_files())

    def in_snapshot(self, snapshot: Snapshot) -> list[TagRow]:
        """Return the tags of a version of the catalog, sorted by name.

        A snapshot of a tagged version has no tags. Nothing is read from storage if the tag rows are
        in the same files as in the previous call.
        """
        files = frozenset(file for file in snapshot.files if file.kind == TagRow.KIND)
        if files != self._cached[0]:
            self._cached = files, _live_tags(self._store, files)
        return self._cached[1]

    def named(self, name: str) -> TagRow:
        """Return the tag with a name. Raises UsageError if it does not exist."""
        check_name(name)
        names = {tag.name: tag for tag in self.live()}
        if name not in names:
            lists = f"`seglake tag {quote(self._store.uri)}` lists the tags"
            raise UsageError(f"there is no tag {name!r}. {suggest(name, names, lists)}")
        return names[name]

    def keeping(self, version: int) -> TagRow | None:
        """Return the first tag, by name, that keeps a version, or None."""
        return next((tag for tag in self.live() if tag.version == version), None)

    def snapshot(self, tag: TagRow, topics: Collection[str] | None = None) -> Snapshot:
        """Load the version that a tag names.

        Raises VersionExpired if the tag was deleted in the meantime, and CorruptData if its object
        is damaged or missing.
        """
        with self.reading(tag):
            files = read_object(self._store, tag).files
            return snapshot_files.load(self._store, tag.version, files, topics)

    @contextmanager
    def reading(self, tag: TagRow) -> Iterator[None]:
        """Convert MissingObject in a `with` block, which reads a tagged version.

        Raises VersionExpired if the tag was deleted in the meantime, otherwise CorruptData.
        """
        try:
            yield
        except MissingObject as error:
            if tag in self.live():
                what = f"an object of tag {tag.name!r} is missing: {error}"
                raise CorruptData(what, file=tag_key(tag.attempt_id)) from error
            raise VersionExpired(f"tag {tag.name!r} was deleted or changed: {error}") from error


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
