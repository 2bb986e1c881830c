"""A segment's files, held against what its row says of them."""

from __future__ import annotations

import crc32c
import numpy as np

from seglake.catalog.rows import SegmentRow
from seglake.errors import CorruptData
from seglake.format.batch import LEADER_EPOCH_AT, BatchTable
from seglake.format.records import Bytes
from seglake.layout import Suffix


def check_size(row: SegmentRow, suffix: Suffix, found: int) -> None:
    """Raise CorruptData unless a file is as long as the catalog says."""
    told = getattr(row, f"{suffix}_bytes")
    if found != told:
        what = f"the file has {found} bytes, the catalog says {told}"
        raise CorruptData(what, file=row.key(suffix), position=min(found, told))


def check_crc(row: SegmentRow, suffix: Suffix, found: int, position: int = 0) -> None:
    """Raise CorruptData unless a file has the checksum that the catalog says."""
    told = getattr(row, f"{suffix}_crc32c")
    if found != told:
        what = f"CRC-32C of the file is {found:08x}, the catalog says {told:08x}"
        raise CorruptData(what, file=row.key(suffix), position=position)


class LogCheck:
    """The checksum of a log that is read a part at a time.

    A batch's own checksum leaves out its base offset and leader epoch. So the first batch that does
    not follow the one before, or has an epoch other than the 0 of a writer without a leader, is the
    position of what is wrong if all else was found right.
    """

    def __init__(self, row: SegmentRow) -> None:
        self._row, self._next_offset = row, row.base_offset
        self._at = self._crc = 0
        self._odd: int | None = None

    def add(self, data: memoryview, table: BatchTable) -> None:
        """Take the next whole batches; `table` describes them."""
        self._crc = crc32c.crc32c(data, self._crc)
        if self._odd is None:
            self._odd = self._first_odd(np.frombuffer(data, np.uint8), table)
        self._next_offset = int(table["last_offset"][-1]) + 1
        self._at += int(table["size"].sum(dtype=np.int64))

    def _first_odd(self, data: Bytes, table: BatchTable) -> int | None:
        starts = table["position"] - table["position"][0]
        follows = np.append(self._next_offset, table["last_offset"][:-1] + 1)
        epochs = data[starts[:, None] + (LEADER_EPOCH_AT + np.arange(4))]
        odd = np.flatnonzero((table["base_offset"] != follows) | epochs.any(axis=1))
        return self._at + int(starts[odd[0]]) if len(odd) else None

    def check(self) -> None:
        """Raise CorruptData, with file and position, unless the whole is what the row describes."""
        check_crc(self._row, "log", self._crc, self._odd or 0)
