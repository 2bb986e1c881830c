"""Buffer a task's data in memory or, if it is large, in a temporary file on the machine's disk.

The file has no name, so the system deletes it however the process ends.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import numpy as np

from seglake.errors import StoreError
from seglake.format.records import Int64s

if TYPE_CHECKING:
    from typing_extensions import Buffer

_MEMORY_BYTES = 16 * 2**20  # limit of the data in memory, above which a file is created


class SpillBuffer(AbstractContextManager["SpillBuffer"]):
    """A buffer of lists that all have the same number of items, such as one item for each range."""

    def __init__(self) -> None:
        # Closed by `close`.
        self._file = tempfile.SpooledTemporaryFile(_MEMORY_BYTES, dir=_folder())  # noqa: SIM115
        self._begins: list[Int64s] = []  # for each list, where its items begin and where it ends
        self.size_bytes = 0

    def add(self, items: Sequence[Buffer]) -> None:
        """Add a list. Raises StoreError if the machine's disk is full or not writable."""
        sizes = [0, *(memoryview(item).nbytes for item in items)]
        with _naming_the_disk():
            self._file.seek(self.size_bytes)
            self._file.writelines(items)
        self._begins.append(self.size_bytes + np.cumsum(sizes))
        self.size_bytes += sum(sizes)

    def read_range(self, number: int) -> Iterator[tuple[int, bytes]]:
        """Yield (number of the list, item `number` of that list), without empty items.

        Lists are numbered from 0 in the order of `add`.
        """
        for at, begins in enumerate(self._begins):
            start, end = begins[number : number + 2].tolist()
            if start < end:
                with _naming_the_disk():
                    self._file.seek(start)
                    data = self._file.read(end - start)
                yield at, data

    def clear(self) -> None:
        """Delete all lists, and free their space."""
        self._file.truncate(0)
        self._begins, self.size_bytes = [], 0

    def close(self) -> None:
        """Delete all lists, and the temporary file. The buffer cannot be used after that."""
        self._file.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _folder() -> str:
    """Return one of Spark's local folders, or else `TMPDIR`, for temporary files."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return folders[os.getpid() % len(folders)] or tempfile.gettempdir()


@contextmanager
def _naming_the_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"cannot spill records to {_folder()} ({error.strerror}). Large runs need some MB "
            "there for each log partition. Free some space, or set another folder in "
            "spark.local.dir (without Spark: TMPDIR)"
        ) from error
