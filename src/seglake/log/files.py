"""Write the index files of a segment, and check every file against the segment's catalog row."""

from collections.abc import Mapping
from typing import Any

import crc32c
import numpy as np

from seglake.catalog.schema import SegmentId, SegmentRow
from seglake.errors import CorruptData
from seglake.format.batch import LEADER_EPOCH_AT, BatchTable
from seglake.format.index import RECORD_KEYS, subjects_as_json
from seglake.format.keyindex import decode_head
from seglake.format.records import Bytes, Int64s
from seglake.layout import ALL_SUFFIXES, Suffix
from seglake.store import Store

_EPOCHS = 1000  # the most changes of the leader epoch that a check of one log records


def put_indexes(store: Store, segment: SegmentId, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Write a segment's index `files`, by suffix. Return their columns for the segment's row.

    The columns of an optional file that is not in `files` are None.
    """
    columns = content_of(files.get("keyindex"))
    for suffix in ALL_SUFFIXES[1:]:
        data = files.get(suffix)
        if data is not None:
            store.put(segment.key(suffix), data)
        columns[f"{suffix}_bytes"] = None if data is None else len(data)
        columns[f"{suffix}_crc32c"] = None if data is None else crc32c.crc32c(data)
    return columns


def content_of(key_index: bytes | None) -> dict[str, Any]:
    """Return the column `keyindex_of`, with the subjects of a key index as JSON.

    It is None for the default subjects, and without a key index.
    """
    of_keys = (RECORD_KEYS,)
    subjects = decode_head(key_index, len(key_index)).subjects if key_index else of_keys
    return {"keyindex_of": None if subjects == of_keys else subjects_as_json(subjects)}


def check_size(row: SegmentRow, suffix: Suffix, size: int) -> None:
    """Raise CorruptData unless a file has the size in the segment's row."""
    expected = row.size(suffix)
    if size != expected:
        what = f"the file has {size} bytes, but the catalog has {expected}"
        raise CorruptData(what, file=row.key(suffix), position=min(size, expected))


def check_crc(row: SegmentRow, suffix: Suffix, crc: int, position: int = 0) -> None:
    """Raise CorruptData unless a file has the checksum in the segment's row."""
    expected = getattr(row, f"{suffix}_crc32c")
    if crc != expected:
        what = f"CRC-32C of the file is {crc:08x}, but the catalog has {expected:08x}"
        raise CorruptData(what, file=row.key(suffix), position=position)


class LogCheck:
    """The checksum of a log that is read one part after another.

    The checksum of a batch does not cover its base offset and leader epoch. If only the log's
    checksum is wrong, the damage is in the first batch whose base offset does not follow the
    preceding batch, or whose leader epoch is out of order. In a log with gaps, a valid batch may
    have such a base offset too, so a wrong base offset cannot be located.
    """

    def __init__(self, row: SegmentRow) -> None:
        self._row, self._next_offset = row, row.base_offset
        self._gaps = row.record_count < row.end_offset - row.base_offset
        self._at = self._crc = 0
        self._stray: int | None = None
        self._epochs: list[tuple[int, int]] = []  # each changed epoch, and its byte in the log

    def add(self, data: memoryview, table: BatchTable) -> None:
        """Add the next whole batches. `table` has their headers."""
        self._crc = crc32c.crc32c(data, self._crc)
        starts = table["position"] - table["position"][0]
        if self._stray is None and not self._gaps:
            follows = np.append(self._next_offset, table["last_offset"][:-1] + 1)
            strays = np.flatnonzero(table["base_offset"] != follows)
            self._stray = self._at + int(starts[strays[0]]) if len(strays) else None
        self._add_epochs(np.frombuffer(data, np.uint8), starts)
        self._next_offset = int(table["last_offset"][-1]) + 1
        self._at += int(table["size"].sum(dtype=np.int64))

    def _add_epochs(self, data: Bytes, starts: Int64s) -> None:
        places = starts[:, None] + (LEADER_EPOCH_AT + np.arange(4))
        epochs = np.ascontiguousarray(data[places]).view(">i4")[:, 0].astype(np.int64)
        last = self._epochs[-1][0] if self._epochs else int(epochs[0]) - 1
        for row in np.flatnonzero(np.diff(epochs, prepend=last)).tolist():
            if len(self._epochs) < _EPOCHS:
                self._epochs.append((int(epochs[row]), self._at + int(starts[row])))

    def _odd_epoch(self) -> int | None:
        """Return the position of the first batch with an impossible or out of order leader epoch.

        Seglake writes epoch 0. So one batch with another epoch after epoch 0 also counts as damage.
        """
        epochs = np.array(self._epochs, np.int64).reshape(-1, 2)
        values = epochs[:, 0]
        for impossible in np.flatnonzero(values < -1)[:1]:
            return int(epochs[impossible, 1])
        later = np.minimum.accumulate(values[::-1])[::-1]
        odd = np.flatnonzero((values > later) | (values < np.maximum.accumulate(values)))
        if not len(odd) and len(values) == 2 and not values[0]:
            odd = np.array([1])
        return int(epochs[odd[0], 1]) if len(odd) else None

    def check(self) -> None:
        """Raise CorruptData, with file and position, unless the log has its row's checksum."""
        if self._crc == self._row.log_crc32c:
            return
        odd = [at for at in (self._stray, self._odd_epoch()) if at is not None]
        check_crc(self._row, "log", self._crc, min(odd, default=0))
