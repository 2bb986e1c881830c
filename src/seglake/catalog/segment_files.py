"""A segment's files: index files written, and every file checked against the segment's row."""

from typing import Any

import crc32c
import numpy as np

from seglake.catalog.rows import SegmentId, SegmentRow
from seglake.errors import CorruptData
from seglake.format.batch import LEADER_EPOCH_AT, BatchTable
from seglake.format.records import Bytes
from seglake.format.segment import Sealed
from seglake.layout import Suffix
from seglake.store import Store


def index_files(sealed: Sealed) -> dict[Suffix, bytes]:
    """The content of each index file, by suffix."""
    return {
        "index": sealed.offset_index,
        "timeindex": sealed.time_index,
        "zonemap": sealed.zone_map,
    }


def put_indexes(store: Store, segment: SegmentId, sealed: Sealed) -> dict[str, Any]:
    """Write a segment's index files; returns the columns of its row that describe them."""
    columns: dict[str, Any] = {}
    for suffix, data in index_files(sealed).items():
        store.put(segment.key(suffix), data)
        columns[f"{suffix}_bytes"] = len(data)
        columns[f"{suffix}_crc32c"] = crc32c.crc32c(data)
    return columns


def check_size(row: SegmentRow, suffix: Suffix, found: int) -> None:
    """Raise CorruptData unless a file has the size that its row says."""
    expected = getattr(row, f"{suffix}_bytes")
    if found != expected:
        what = f"the file has {found} bytes, the catalog says {expected}"
        raise CorruptData(what, file=row.key(suffix), position=min(found, expected))


def check_crc(row: SegmentRow, suffix: Suffix, found: int, position: int = 0) -> None:
    """Raise CorruptData unless a file has the checksum that its row says."""
    expected = getattr(row, f"{suffix}_crc32c")
    if found != expected:
        what = f"CRC-32C of the file is {found:08x}, the catalog says {expected:08x}"
        raise CorruptData(what, file=row.key(suffix), position=position)


class LogCheck:
    """The checksum of a log that is read a part at a time.

    A batch's own checksum leaves out its base offset and leader epoch. If only the log's checksum
    is wrong, the damage is in the first batch whose base offset does not follow the batch before
    it, or whose epoch is not 0, as Seglake writes it. A log that lost records has such base offsets
    when it is sound, so there the place of a wrong one is not known.
    """

    def __init__(self, row: SegmentRow) -> None:
        self._row, self._next_offset = row, row.base_offset
        self._gaps = row.record_count < row.end_offset - row.base_offset
        self._at = self._crc = 0
        self._odd: int | None = None

    def add(self, data: memoryview, table: BatchTable) -> None:
        """Add the next whole batches; `table` describes them."""
        self._crc = crc32c.crc32c(data, self._crc)
        if self._odd is None:
            self._odd = self._first_odd(np.frombuffer(data, np.uint8), table)
        self._next_offset = int(table["last_offset"][-1]) + 1
        self._at += int(table["size"].sum(dtype=np.int64))

    def _first_odd(self, data: Bytes, table: BatchTable) -> int | None:
        starts = table["position"] - table["position"][0]
        follows = np.append(self._next_offset, table["last_offset"][:-1] + 1)
        epochs = data[starts[:, None] + (LEADER_EPOCH_AT + np.arange(4))]
        strays = table["base_offset"] != follows
        odd = np.flatnonzero((strays & (not self._gaps)) | epochs.any(axis=1))
        return self._at + int(starts[odd[0]]) if len(odd) else None

    def check(self) -> None:
        """Raise CorruptData, with file and position, unless the log has its row's checksum."""
        check_crc(self._row, "log", self._crc, self._odd or 0)
