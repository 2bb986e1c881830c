"""Rewrite consecutive segments of a log partition as one segment over the same offsets.

A batch that loses no record is copied byte for byte. The other batches are encoded again
(`format.filter`). Each batch keeps its timestamp type: an imported topic may have batches of both
types, because the topic's setting changed. Each log is read once, a few MiB at a time, and checked
while it is read. A damaged log gives no segment. Memory holds one table row for each kept batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from seglake.catalog.schema import SegmentId, SegmentRow
from seglake.errors import UsageError
from seglake.format import encode_kernels
from seglake.format.batch import CODEC_MASK, HEADER, LOG_APPEND_TIME, OVERHEAD, TABLE, BatchTable
from seglake.format.codecs.payload import Payload
from seglake.format.decode import decode, with_extremes, with_record_times
from seglake.format.encode import EncodedBatches
from seglake.format.filter import copied, emptied, filter_batches, joined, reencoded, renumbered
from seglake.format.index import IndexPolicy, Subjects
from seglake.format.records import Flags, Int64s, end_to_end, fixed, read_only
from seglake.limits import INT32_MAX
from seglake.log.fetch import Chunk, LogFetch
from seglake.log.files import LogCheck
from seglake.log.rewrite.keep import GOES, UNDECIDED, RecordFilter
from seglake.log.segment import LogSegment
from seglake.log.writer import NewSegment, write_segment
from seglake.store import Store


def rebatch(data: Any, table: BatchTable, payload: Payload, batch_bytes: int) -> EncodedBatches:
    """Join adjacent batches of `table` while their records take at most `batch_bytes`.

    Positions in `table` count from the start of `data`. `payload` has all their records.
    `batch_bytes` includes the header. A batch without a small neighbour is copied byte for byte.
    Raises CorruptData with the position of the batch.
    """
    firsts = np.empty(len(table) + 1, np.int64)
    sizes = payload.ends - payload.starts
    count = encode_kernels.group_batches(
        fixed(table), fixed(_fit(data, table)), fixed(sizes), batch_bytes - OVERHEAD, firsts
    )
    if count == len(table):
        return copied(data, with_record_times(table, payload))
    return _regrouped(data, table, payload, firsts[: count + 1])


def _fit(data: Any, table: BatchTable) -> Flags:
    """Return, for each batch, whether it may be joined with others."""
    places = table["position"][:, None] + np.arange(OVERHEAD)
    producers = read_only(data)[places].view(HEADER).reshape(-1)["producer_id"]
    plain = table["attributes"] & ~(CODEC_MASK | LOG_APPEND_TIME) == 0
    fit: Flags = plain & (producers < 0) & (table["count"] > 0)
    return fit


def _regrouped(data: Any, table: BatchTable, payload: Payload, firsts: Int64s) -> EncodedBatches:
    decoded = decode(table, payload)
    result = table[firsts[:-1]]
    result["last_offset"] = table["last_offset"][firsts[1:] - 1]
    result["count"] = np.add.reduceat(table["count"], firsts[:-1])
    changed = np.diff(firsts) > 1
    all_of = np.arange(len(decoded.offsets))
    before = table[firsts[:-1]]
    parts = reencoded(data, before, result, changed, decoded, all_of)
    whole = joined(data, before, changed, parts)
    end_to_end(result)
    numbers = np.repeat(np.arange(len(result)), np.diff(firsts))
    return EncodedBatches(whole, with_extremes(result, renumbered(decoded, all_of, numbers)))


DECODE_BYTES = 2**20  # decompressed records at a time: more would not fit the processor's cache
AHEAD_BYTES = 16 * 2**20  # requested from an object store ahead of their use


class RewriteTarget(NamedTuple):
    """The attempt that writes a new segment, the segment's index policy, and its batch size.

    Without a policy, the new segment gets the index policy of the first old segment, with a key
    index of `subjects`. With `batch_bytes`, adjacent batches are joined up to this size, headers
    included, if all their records are kept.
    """

    attempt_id: str
    policy: IndexPolicy | None = None
    batch_bytes: int | None = None
    subjects: Subjects = ()


def rewrite(
    store: Store, rows: Sequence[SegmentRow], keep: RecordFilter, target: RewriteTarget
) -> SegmentRow:
    """Write consecutive segments of a log partition as one segment with the kept records.

    The new segment covers exactly the same offsets. Its first batch may begin above its base
    offset. Its last batch ends at its end offset, and is empty if no record is kept there. If
    `keep` drops every record of an old segment, that segment is not read. After an error there is
    no new segment, but its log may exist.

    Raises:
        CorruptData: A log is damaged. The message names file and position.
        UsageError: The segments cannot become one.
        StoreError: The storage fails.
    """
    base, end = _span(rows)
    first, last = rows[0], rows[-1]
    attempt_id = target.attempt_id
    new = NewSegment(
        SegmentId(first.topic, first.partition, base, attempt_id, attempt_id),
        end,
        target.policy or replace(first.index_policy, subjects=target.subjects),
        max(row.created_at_ms for row in rows),
    )
    old = _OldLogs(store, rows, _Sieve(keep, target.batch_bytes))
    row = write_segment(store, new, _with_end(old, base, end))
    own_type = row.timestamp_type if row.record_count else last.timestamp_type
    return replace(row, timestamp_type=own_type, codec=last.codec)


def _with_end(old: _OldLogs, base: int, end: int) -> Iterator[EncodedBatches]:
    """Yield the kept batches. A last batch without kept records becomes a header (KAFKA-17076)."""
    at = base
    for batches in old.batches():
        at = int(batches.table["last_offset"][-1]) + 1 if len(batches.table) else at
        yield batches
    if old.header is not None and at <= old.last_offset == end - 1:
        yield emptied(old.header)


def _span(rows: Sequence[SegmentRow]) -> tuple[int, int]:
    """Return the offsets [base, end) of the segments. Raise UsageError if they cannot be joined."""
    first, last = rows[0], rows[-1]
    for before, after in pairwise(rows):
        same = (before.topic, before.partition) == (after.topic, after.partition)
        if not same or before.end_offset != after.base_offset:
            raise UsageError(f"{after.key('log')} does not follow {before.key('log')}")
    if last.end_offset - 1 - first.base_offset > INT32_MAX:
        raise UsageError(
            f"one segment cannot cover offsets {first.base_offset} to {last.end_offset}: more "
            "than 2^31"
        )
    return first.base_offset, last.end_offset


def staying(
    store: Store, rows: Sequence[SegmentRow], keep: RecordFilter
) -> Iterator[EncodedBatches]:
    """Yield the kept batches of segments in parts, checked and with complete tables.

    Batches without records are left out. Raises CorruptData and StoreError.
    """
    return _OldLogs(store, rows, _Sieve(keep, None)).batches()


class _OldLogs:
    """The old logs. `header` and `last_offset` belong to the last batch that was read."""

    def __init__(self, store: Store, rows: Sequence[SegmentRow], sieve: _Sieve) -> None:
        self._store, self._rows, self._sieve = store, rows, sieve
        self.header: bytes | None = None
        self.last_offset = -1

    def batches(self) -> Iterator[EncodedBatches]:
        """Yield the kept batches in parts, with complete tables. Raises CorruptData."""
        read = self._sieve.keep.batch_retention(_as_batches(self._rows)) != GOES
        rows = [row for row, needed in zip(self._rows, read, strict=True) if needed]
        segments = [LogSegment.from_row(row) for row in rows]
        checks = {row.key("log"): LogCheck(row) for row in rows}
        pieces = [segment.whole() for segment in segments]
        for chunk in LogFetch(self._store).chunks(pieces, ahead_bytes=AHEAD_BYTES):
            _add(checks, chunk)
            yield from self._staying(chunk)
            if len(chunk.table):
                last = chunk.table[-1]
                at, self.last_offset = int(last["position"]), int(last["last_offset"])
                self.header = bytes(memoryview(chunk.data)[at : at + OVERHEAD])
        for check in checks.values():
            check.check()

    def _staying(self, chunk: Chunk) -> Iterator[EncodedBatches]:
        table = chunk.table[chunk.table["count"] > 0]
        left = table[self._sieve.keep.batch_retention(table) != GOES]
        return chunk.in_parts(left, DECODE_BYTES, partial(self._sieve.staying, chunk.data))


class _Sieve(NamedTuple):
    """Selects the records to keep. Adjacent batches are joined up to `batch_bytes`, unless None."""

    keep: RecordFilter
    batch_bytes: int | None

    def staying(self, data: Any, table: BatchTable, payload: Payload) -> EncodedBatches:
        """Return the kept records of batches. `table` has no batches of the retention `GOES`."""
        keep = self.keep
        asked = keep.batch_retention(table) == UNDECIDED
        if asked.any():
            decoded = decode(table, payload)
            stays = keep.records(table, decoded) | ~asked[decoded.batch]
            horizons = keep.delete_horizons_ms(table, decoded, stays)
            return filter_batches(data, table, decoded, stays, horizons)
        if self.batch_bytes is not None:
            return rebatch(data, table, payload, self.batch_bytes)
        return copied(data, with_record_times(table, payload))


def _as_batches(rows: Sequence[SegmentRow]) -> BatchTable:
    """Return a table with a row for each segment, as if the segment were one batch."""
    table = np.zeros(len(rows), TABLE)
    table["base_offset"] = [row.base_offset for row in rows]
    table["last_offset"] = [row.end_offset - 1 for row in rows]
    table["count"] = [row.record_count for row in rows]
    table["max_timestamp"] = [row.max_timestamp for row in rows]
    return table


def _add(checks: dict[str, LogCheck], chunk: Chunk) -> None:
    """Add a chunk's batches to the checks of their logs."""
    owners = chunk.owner_of
    firsts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1])[: len(owners)]).tolist()
    view = memoryview(chunk.data)
    for first, end in pairwise([*firsts, len(owners)]):
        part = chunk.table[first:end]
        start, stop = int(part["position"][0]), int(part["position"][-1] + part["size"][-1])
        checks[chunk.pieces[owners[first]].segment.log_key].add(view[start:stop], part)
