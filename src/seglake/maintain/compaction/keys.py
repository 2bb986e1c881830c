"""The first pass: the last record of each key in some segments, as a hash and an offset.

Values and headers are decoded and not kept. A task holds one table of keys; when it is full, its
rows are put aside, divided by ranges of hashes: the *buckets*. So memory does not depend on the
number of keys, and a bucket is what one reduce task can hold. At the end the rows of each bucket
go to the spool as one blob, however often the table was full.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from seglake.catalog.schema import SegmentRow
from seglake.engine import Amounts
from seglake.format.batch import CONTROL, DELETE_HORIZON, BatchTable
from seglake.format.decode import Decoded
from seglake.format.records import Bytes, Int64s, fixed
from seglake.log.fetch import LogFetch
from seglake.log.segment import LogSegment
from seglake.log.tasks import WAVE
from seglake.maintain.compaction import latest_kernels
from seglake.maintain.compaction.latest_kernels import EXPIRED, FRESH, KeyedRecords, Words
from seglake.store import Store
from seglake.write.spool.scratch import Scratch
from seglake.write.spool.spool import Blob, SpoolWriter, packed_rows

ROW_BYTES = 24  # of a table: two words of hash, one entry
TABLE_ROWS = 2**20
_FULL = 0.7  # a fuller table is slower
_DECODE_BYTES = 8 * 2**20  # of decompressed records at once


class KeyTable:
    """The last record of each key, with room for at least `rows` keys: 34 to 69 bytes for each.

    Slots that no key has touched take no memory.
    """

    def __init__(self, rows: int) -> None:
        size = 1 << max(4, int(rows / _FULL).bit_length())
        self._slots: Words = np.zeros((size, 3), np.uint64)
        self._limit = int(size * _FULL)
        self.used = 0

    def put_records(
        self, records: KeyedRecords, log_part: LogPart, seed: Words, row: int
    ) -> tuple[int, int, int]:
        """Put records from `row` on, until the table is full.

        Returns the row that was reached, the records that count, and those with a null key.
        """
        row, self.used, seen, nulls = latest_kernels.put_records(
            records, log_part.first_offset, log_part.log_start_offset, seed,
            row, self._slots, self.used, self._limit,
        )  # fmt: skip
        return row, seen, nulls

    def put_rows(self, data: Any) -> None:
        """Put rows that another table gave; there must be room for them."""
        rows = np.frombuffer(data, np.uint64)
        self.used = latest_kernels.put_entries(fixed(rows.reshape(-1, 3)), self._slots, self.used)

    def take(self, buckets: int) -> list[Words]:
        """The rows of each bucket; the table is empty then."""
        ends, rows = np.empty(buckets, np.int64), np.empty((self.used, 3), np.uint64)
        latest_kernels.take_rows(self._slots, ends, rows)
        self.used = 0
        return np.split(rows, ends[:-1])


class LogPart(NamedTuple):
    """Consecutive segments of one log partition, which one task reads.

    `first_offset` and the number of `buckets` are those of the round.
    """

    partition: int
    rows: Sequence[SegmentRow]
    first_offset: int
    log_start_offset: int
    buckets: int

    @property
    def size_bytes(self) -> int:
        """Bytes of log."""
        return sum(row.log_bytes for row in self.rows)


class Keys(NamedTuple):
    """The blobs of the last records, by partition and bucket (`number`), and what was read."""

    packed: bytes  # rows of SPOOLED
    records: Counter[int]  # by partition, at or above the log start
    null_keys: Counter[int]


class FindKeys(NamedTuple):
    """The task: segments → blobs of the last record of each key.

    `now_ms` decides which tombstones have expired. The hashes are keyed with the attempt's id.
    """

    store: Store
    attempt_id: str
    now_ms: int

    def __call__(self, log_parts: Sequence[LogPart]) -> Keys:
        """Read the segments; returns what is in the spool."""
        records, null_keys = Counter[int](), Counter[int]()
        with SpoolWriter(self.store, self.attempt_id) as spool:
            for log_part in log_parts:
                size = sum(row.record_count for row in log_part.rows)
                table = KeyTable(min(size, TABLE_ROWS))
                with Scratch() as full:
                    for part, seed in self._parts(log_part):
                        row = 0
                        while row < len(part.offsets):
                            row, seen, nulls = table.put_records(part, log_part, seed, row)
                            records[log_part.partition] += seen
                            null_keys[log_part.partition] += nulls
                            if row < len(part.offsets):
                                full.add([rows.data for rows in table.take(log_part.buckets)])
                    full.add([rows.data for rows in table.take(log_part.buckets)])
                    _write(full, log_part, spool)
        return Keys(packed_rows(spool.rows()), records, null_keys)

    def amounts(self, items: Sequence[Sequence[LogPart]]) -> Amounts:
        """The bytes of log of each item."""
        return Amounts(WAVE, [sum(part.size_bytes for part in parts) for parts in items])

    def _parts(self, log_part: LogPart) -> Iterator[tuple[KeyedRecords, Words]]:
        """The records of the segments, each part with the seed of its hashes."""
        seed = np.frombuffer(uuid.UUID(self.attempt_id).bytes, "<u8").astype(np.uint64)
        for row in log_part.rows:
            log = LogSegment.of_row(row)
            for chunk in LogFetch(self.store).chunks_of(log, log.log):
                for table, decoded in chunk.decode_in_parts(chunk.table, _DECODE_BYTES):
                    flags = self._tombstones(table)
                    is_marker = (table["attributes"] & CONTROL != 0)[decoded.batch]
                    if not is_marker.any():
                        yield _keyed(decoded, flags), fixed(seed)
                        continue
                    yield _keyed(decoded.take(np.flatnonzero(~is_marker)), flags), fixed(seed)
                    markers = _markers(decoded.offsets[is_marker])
                    yield markers, fixed(seed[::-1])

    def _tombstones(self, table: BatchTable) -> Bytes:
        """The flags of a tombstone, by its batch (`Cleaner.shouldRetainRecord`)."""
        has_horizon = table["attributes"] & DELETE_HORIZON != 0
        expired = has_horizon & (table["base_timestamp"] <= self.now_ms)
        return np.where(expired, EXPIRED, np.where(has_horizon, 0, FRESH)).astype(np.uint8)


def _markers(offsets: Int64s) -> KeyedRecords:
    """Transaction markers: each has its own offset as key, so that it stays."""
    count = len(offsets)
    data = np.ascontiguousarray(offsets).view(np.uint8)
    starts = np.arange(count, dtype=np.int64) * 8
    lengths, zeros = np.full(count, 8, np.int32), np.zeros(count, np.int32)
    return KeyedRecords(
        fixed(data), fixed(starts), fixed(lengths), fixed(zeros), fixed(offsets), fixed(zeros),
        np.zeros(1, np.uint8),
    )  # fmt: skip


def _keyed(decoded: Decoded, flags: Bytes) -> KeyedRecords:
    keys, values = decoded.records.keys.fixed(), decoded.records.values
    return KeyedRecords(
        *keys, fixed(values.lengths), fixed(decoded.offsets), fixed(decoded.batch), flags
    )


def _write(full: Scratch, log_part: LogPart, spool: SpoolWriter) -> None:
    """Write the rows of each bucket that has some as a blob."""
    for number in range(log_part.buckets):
        if data := b"".join(rows for _, rows in full.of(number)):
            count = len(data) // ROW_BYTES
            spool.add(Blob(0, 0, data, log_part.partition, number, count))
