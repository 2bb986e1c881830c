"""Re-basing: an attempt's segments are copied to new offsets after a lost race, not decoded.

A base offset is 8 bytes of each record batch, outside its CRC. Index files have relative offsets
and stay as they are. Under LogAppendTime the append time may have to move as well: then each record
batch gets a new max timestamp and CRC, and the index files are rebuilt from the batch headers.

A moved log gets a new checksum in the catalog. Its old checksum is checked first, so that a damaged
file never gets a valid one.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import crc32c
import numpy as np

from seglake.catalog.schema import SegmentRow
from seglake.engine import Amounts, Engine
from seglake.errors import CorruptData
from seglake.format.batch import BatchTable
from seglake.format.decode import check_crcs, scan
from seglake.format.encode import EncodedBatches, rebase, restamp
from seglake.format.segment import rebuild
from seglake.log.files import LogCheck, check_crc, put_indexes
from seglake.log.key_index_builder import KeyIndexBuilder
from seglake.store import Store

READ_BYTES = 16 * 2**20


class Move(NamedTuple):
    """The task: one segment → the same segment at other offsets.

    `deltas` are added to the offsets of each log partition. The new files carry `attempt_id`.
    """

    store: Store
    deltas: dict[int, int]
    attempt_id: str
    append_time_ms: int

    def amounts(self, segments: Sequence[SegmentRow]) -> Amounts:
        """The size of each log."""
        return Amounts("bytes", [row.log_bytes for row in segments])

    def run(self, engine: Engine, segments: Sequence[SegmentRow]) -> list[SegmentRow]:
        """Copy every segment to its new offsets; returns their new rows."""
        return engine.map(self, segments)

    def __call__(self, row: SegmentRow) -> SegmentRow:
        """Copy a segment's files; CorruptData if a file differs from the segment's row."""
        store, delta = self.store, self.deltas.get(row.partition, 0)
        moved = dataclasses.replace(
            row,
            attempt_id=self.attempt_id,
            index_attempt_id=self.attempt_id,
            base_offset=row.base_offset + delta,
            end_offset=row.end_offset + delta,
            offset_of_max_timestamp=row.offset_of_max_timestamp + delta,
        )
        stamped = row.timestamp_type == "LogAppendTime" and row.max_timestamp < self.append_time_ms
        stamp = self.append_time_ms if stamped else None
        tables, crc, policy = [], 0, row.index_policy
        indexed = stamped and policy.subjects
        keys = KeyIndexBuilder(moved.base_offset, policy) if indexed else None
        with store.writer(moved.key("log")) as sink:
            for batches in _moved_batches(store, row, delta, stamp):
                sink.write(batches.data)
                crc = crc32c.crc32c(batches.data.data, crc)
                tables.append(batches.table)
                if keys is not None:
                    keys.add(batches.table, batches.data)
        moved = dataclasses.replace(moved, log_crc32c=crc)
        if stamp is None:
            return _copy_indexes(store, row, moved)
        files = keys.finish(moved.log_bytes) if keys is not None else None
        return _stamp_indexes(store, moved, np.concatenate(tables), stamp, files)


def _moved_batches(
    store: Store, row: SegmentRow, delta: int, stamp: int | None
) -> Iterator[EncodedBatches]:
    """The record batches at their new offsets, a few MiB at a time.

    Raises CorruptData for damage; the checksum of the whole log is known only at the end.
    """
    at, want, whole = 0, READ_BYTES, LogCheck(row)
    while at < row.log_bytes:
        data = memoryview(store.read(row.key("log"), at, min(at + want, row.log_bytes)))
        table = _sound_table(row, data, at)
        if not len(table):  # the record batch is larger than the bytes read
            want *= 2
            continue
        size = int(table["size"].sum(dtype=np.int64))
        whole.add(data[:size], table)
        moved = rebase(data[:size], table, delta)
        yield moved if stamp is None else restamp(moved, stamp)
        at, want = at + size, READ_BYTES
    whole.check()


def _sound_table(row: SegmentRow, data: memoryview, at: int) -> BatchTable:
    """The whole record batches in a part of the log; CorruptData unless they are sound.

    The last record batch may be cut short, except at the end of the log.
    """
    table, damage = scan(data, base_position=at)
    try:
        # The CRCs come first. `scan` sees a wrong length of a batch only where the next one should
        # begin, and the CRC names the batch itself.
        check_crcs(data, table, base_position=at)
        if damage is not None and not (damage.cut_short and at + len(data) < row.log_bytes):
            raise damage.error
    except CorruptData as error:
        raise error.within(row.key("log")) from None
    return table


def _copy_indexes(store: Store, row: SegmentRow, moved: SegmentRow) -> SegmentRow:
    for suffix in row.suffixes[1:]:
        data = store.read_all(row.key(suffix))
        check_crc(row, suffix, crc32c.crc32c(data))
        store.put(moved.key(suffix), data)
    return moved


def _stamp_indexes(
    store: Store, row: SegmentRow, table: BatchTable, stamp: int, key_index: bytes | None
) -> SegmentRow:
    table["offset_of_max"] = table["base_offset"]
    sealed = rebuild(row.base_offset, table, row.index_policy)._replace(key_index=key_index)
    return dataclasses.replace(
        row,
        min_timestamp=stamp,
        max_timestamp=stamp,
        offset_of_max_timestamp=row.base_offset,
        **put_indexes(store, row.id, sealed),
    )
