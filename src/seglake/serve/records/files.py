"""Open log files of a lake on a local disk, from which the kernel sends bytes itself."""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from seglake.errors import MissingObject, StoreError

_OPEN_FILES = 256


class FileSpan(NamedTuple):
    """Bytes [start, start + size) of an open file."""

    file: BinaryIO
    start: int
    size: int


class _File(io.FileIO):
    """A file that is closed when nobody uses it any more, also after it left the cache."""

    def __del__(self) -> None:
        self.close()


class LocalFiles:
    """Files below a root, some of which stay open."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)
        self._opened = lru_cache(_OPEN_FILES)(self._open)

    def span(self, key: str, start: int, end: int) -> FileSpan:
        """Bytes [start, end) of a file. Raises MissingObject and StoreError."""
        return FileSpan(self._opened(key), start, end - start)

    def forget(self) -> None:
        """Close every file that no answer uses."""
        self._opened.cache_clear()

    def _open(self, key: str) -> BinaryIO:
        path = self._root / key
        try:
            return cast("BinaryIO", _File(path))
        except FileNotFoundError as error:
            raise MissingObject(f"{path}: no such object") from error
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error
