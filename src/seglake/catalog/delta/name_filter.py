"""Which names the rows of a data file may have: hashes at a fixed place in the file.

They follow the four bytes with which Parquet begins, and no reader of Parquet looks at them. One
read of them says that a file has none of some names, so that its rows need not be read. A hash is
the CRC-32C of a name: another name may share it, so hashes never say that a name is there.

    8 bytes: a mark · 4: the number of rows · 4: the CRC-32C of all the rest · 4 for each row: the
    hash of its name, in ascending order; numbers are little-endian
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import crc32c
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from typing_extensions import Buffer

PLACE = 4  # in the file
_MARK = b"SEGNAMES"
_HEAD = 16

Hashes = npt.NDArray[np.uint32]


def hashes(names: Iterable[str]) -> Hashes:
    """The hash of each name, in ascending order."""
    found = np.fromiter((crc32c.crc32c(name.encode()) for name in names), np.uint32)
    return np.sort(found)


class NameFilter(NamedTuple):
    """The hashes of the names in a file, in ascending order, one for each row."""

    hashes: Hashes

    @staticmethod
    def of(names: Iterable[str]) -> NameFilter:
        """The filter of a file whose rows have these names."""
        return NameFilter(hashes(names))

    @staticmethod
    def size(rows: int) -> int:
        """The bytes of the filter of a file with so many rows."""
        return _HEAD + 4 * rows

    @staticmethod
    def load(data: Buffer, rows: int) -> NameFilter | None:
        """The filter of a file with so many rows; None if the bytes are none, or damaged."""
        view = memoryview(data).cast("B")
        found = np.frombuffer(view[_HEAD:], "<u4") if len(view) == NameFilter.size(rows) else None
        if found is None or bytes(view[:_HEAD]) != _head(found):
            return None
        return NameFilter(found)

    def dump(self) -> bytes:
        """The bytes of the filter."""
        return _head(self.hashes) + self.hashes.astype("<u4").tobytes()

    def may_have(self, asked: Hashes) -> bool:
        """Whether a row may have one of the names with these hashes."""
        places = np.searchsorted(self.hashes, asked)
        inside = places < len(self.hashes)
        return bool(np.any(self.hashes[places[inside]] == asked[inside]))


def _head(found: Hashes) -> bytes:
    count = len(found).to_bytes(4, "little")
    crc = crc32c.crc32c(found.astype("<u4").tobytes(), crc32c.crc32c(_MARK + count))
    return _MARK + count + crc.to_bytes(4, "little")
