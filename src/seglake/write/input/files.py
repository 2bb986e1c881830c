"""Define input files: paths, versions, splits."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

PARQUET_MARK = b"PAR1"  # the first bytes of a Parquet file


class SourceFile(NamedTuple):
    """An input file. `path` is absolute: a local path, or a URI."""

    path: str
    size: int
    modified_ms: int
    etag: str | None

    @property
    def version(self) -> FileVersion:
        """Return the version of the file when it was listed."""
        return FileVersion(self.size, self.modified_ms, self.etag)


class FileVersion(NamedTuple):
    """The state of a file at one time. `etag` is None if the store has no etags."""

    size: int
    modified_ms: int
    etag: str | None

    def is_same(self, other: FileVersion) -> bool:
        """Return whether size and etag are equal; without etags, size and modification time."""
        if self.etag and other.etag:  # some listings omit the quotes
            return self.size == other.size and self.etag.strip('"') == other.etag.strip('"')
        return self.size == other.size and self.modified_ms == other.modified_ms


UNKNOWN = FileVersion(-1, -1, None)
"""The version of a file whose version was not requested."""


class Split(NamedTuple):
    """A part of a file: the rows that begin in its bytes [start, end).

    Splits are numbered in the order of files and positions.
    """

    number: int
    file: SourceFile
    start: int
    end: int

    @property
    def is_whole(self) -> bool:
        """Return whether the split is the whole file."""
        return self.start == 0 and self.end >= self.file.size


def locate(path: str) -> tuple[str, str]:
    """Split a path into (root of a store, object key).

    The root is the folder of a local file, or the bucket. The key is the rest of the path.
    """
    if "://" in path and not path.startswith("file:"):
        scheme, _, rest = path.partition("://")
        bucket, _, key = rest.partition("/")
        return f"{'s3' if scheme == 's3a' else scheme}://{bucket}", key
    local = Path(os.path.abspath(_local(path)))  # noqa: PTH100  resolve() would follow links
    return str(local.parent), local.name


def _local(path: str) -> str:
    return re.sub(r"^file:(//)?(?=/)", "", path)
