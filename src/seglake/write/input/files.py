"""Define input files, their versions, and splits."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

PARQUET_MARK = b"PAR1"  # the first bytes of a Parquet file


class SourceFile(NamedTuple):
    """An input file as it was listed. `path` is an absolute local path or a URI.

    `size` is in bytes.
    """

    path: str
    size: int
    modified_ms: int
    etag: str | None

    @property
    def version(self) -> FileVersion:
        """Return the version of the file when it was listed."""
        return FileVersion(self.size, self.modified_ms, self.etag)


class FileVersion(NamedTuple):
    """The size in bytes, modification time and etag of a file, to detect changes of the file.

    `etag` is None if the store has no etags.
    """

    size: int
    modified_ms: int
    etag: str | None

    def is_same(self, other: FileVersion) -> bool:
        """Return whether sizes and etags are equal. Without etags, compare times instead."""
        if self.etag and other.etag:  # some listings omit the quotes
            return self.size == other.size and self.etag.strip('"') == other.etag.strip('"')
        return self.size == other.size and self.modified_ms == other.modified_ms


UNKNOWN = FileVersion(-1, -1, None)
"""The version of a file whose version was not requested."""


class Split(NamedTuple):
    """The rows of a file that begin in its bytes [start, end).

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
    """Divide a path or URI into (root of a store, object key).

    The root is a bucket or, for a local file, its parent folder. The key is the rest of the path.
    """
    if "://" in path and not path.startswith("file:"):
        scheme, _, rest = path.partition("://")
        bucket, _, key = rest.partition("/")
        return f"{'s3' if scheme == 's3a' else scheme}://{bucket}", key
    plain = re.sub(r"^file:(//)?(?=/)", "", path)
    local = Path(os.path.abspath(plain))  # noqa: PTH100  resolve() would follow links
    return str(local.parent), local.name
