"""Data that a task puts aside, by ranges, until it has all of it: in memory, or on its machine.

The file has no name: it goes with the process, however that ends.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from seglake.errors import StoreError
from seglake.format.records import Int64s

if TYPE_CHECKING:
    from typing_extensions import Buffer

_MEMORY_BYTES = 16 * 2**20  # that wait without a file


class Scratch:
    """Lists of data, one item for each range; a context manager that frees what they take."""

    def __init__(self) -> None:
        self._file = _new_file()
        self._begins: list[Int64s] = []  # of the items of each list, and its end
        self.size_bytes = 0

    def add(self, items: Sequence[Buffer]) -> None:
        """Put a list aside. Raises StoreError if the machine's disk does not take it."""
        sizes = [0, *(memoryview(item).nbytes for item in items)]
        with _naming_the_disk():
            self._file.seek(self.size_bytes)
            self._file.writelines(items)
        self._begins.append(self.size_bytes + np.cumsum(sizes))
        self.size_bytes += sum(sizes)

    def of(self, number: int) -> Iterator[tuple[int, bytes]]:
        """The items of a range that are not empty, with the number of their lists."""
        for at, begins in enumerate(self._begins):
            start, end = begins[number : number + 2].tolist()
            if start < end:
                yield at, self._read(start, end)

    def _read(self, start: int, end: int) -> bytes:
        with _naming_the_disk():
            self._file.seek(start)
            return self._file.read(end - start)

    def clear(self) -> None:
        """Forget all lists."""
        self._file.truncate(0)
        self._begins, self.size_bytes = [], 0

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _folder() -> str:
    """Where a task may write: Spark tells its workers, others have `TMPDIR`."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return folders[os.getpid() % len(folders)] or tempfile.gettempdir()


def _new_file() -> tempfile.SpooledTemporaryFile[bytes]:
    return tempfile.SpooledTemporaryFile(_MEMORY_BYTES, dir=_folder())


@contextmanager
def _naming_the_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{_folder()}: {error.strerror}: tasks of large runs put records aside there, some MB "
            "for each log partition: make room, or name another folder in spark.local.dir (without "
            "Spark: TMPDIR)"
        ) from error
