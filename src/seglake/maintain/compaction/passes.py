"""Run both passes of a compaction over log partitions, on an engine.

The passes write files, but do not commit:

    FindKeys        segments → the last record of each key, as a hash and an offset    pass 1
    FindSurvivors   hash ranges → the offsets to keep, by segment
    _write_group    segments and offsets → segments                                    pass 2

In the first pass, values and headers are decoded and not kept. A task has one table of keys in
memory. When the table is full, its rows are spilled to disk, divided into *buckets* by ranges of
hashes. So memory does not depend on the number of keys, and the table of one bucket fits into the
memory of a task of the second step. At the end, the rows of each bucket are written to the spool as
one blob.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, pairwise
from shlex import quote
from typing import Any, NamedTuple

import lz4.block
import numpy as np
import pyarrow as pa

from seglake.catalog.schema import SegmentRow, TopicRow
from seglake.catalog.version.snapshot import PartitionView
from seglake.config import Topic
from seglake.engine import SHARES_PER_CORE, Engine, Progress, SegmentTasks, in_waves
from seglake.errors import UsageError
from seglake.format.batch import CONTROL, DELETE_HORIZON, BatchTable
from seglake.format.decode import Decoded
from seglake.format.filter import NO_HORIZON
from seglake.format.records import Bytes, Int64s, fixed
from seglake.limits import INT32_MAX, INT64_MAX
from seglake.log.fetch import LogFetch
from seglake.log.rewrite.keep import (
    GOES,
    STAYS,
    UNDECIDED,
    BatchRetention,
    Flags,
    KeepOffsets,
    RecordFilter,
)
from seglake.log.rewrite.segments import RewriteTarget, rewrite
from seglake.log.segment import LogSegment
from seglake.maintain.compaction import latest_kernels
from seglake.maintain.compaction.latest_kernels import (
    EXPIRED,
    FLAG_BITS,
    FRESH,
    KeyedRecords,
    Words,
)
from seglake.store import Store
from seglake.write.driver.topics import topic_from_row
from seglake.write.spool.spill_buffer import SpillBuffer
from seglake.write.spool.spool import (
    SPOOLED,
    Blob,
    SpoolWriter,
    delete_blobs,
    filter_kinds,
    pack_rows,
    read_blobs,
    unpack_rows,
)

ROW_BYTES = 24  # of a table: two words of hash, one entry
TABLE_ROWS = 2**20
_FULL = 0.7  # a fuller table is slower
_DECODE_BYTES = 8 * 2**20  # of decompressed records at once


class KeyTable:
    """The last record of each key, with space for at least `rows` keys.

    The table takes 34 to 69 bytes for each of `rows`, but unused parts of it take no memory.
    """

    def __init__(self, rows: int) -> None:
        size = 1 << max(4, int(rows / _FULL).bit_length())
        self._slots: Words = np.zeros((size, 3), np.uint64)
        self._limit = int(size * _FULL)
        self.used = 0

    def put_records(
        self, records: KeyedRecords, log_part: LogPart, seed: Words, row: int
    ) -> tuple[int, int, int]:
        """Put the records from `row` on into the table, until it is full.

        Return the first row that was not read, the number of records that were read, and how many
        of these records have a null key. Records below the log start are not counted.
        """
        row, self.used, seen, nulls = latest_kernels.put_records(
            records, log_part.first_offset, log_part.log_start_offset, seed,
            row, self._slots, self.used, self._limit,
        )  # fmt: skip
        return row, seen, nulls

    def put_rows(self, data: Any) -> None:
        """Put rows that `take` of another table returned into this table. It must have space."""
        rows = np.frombuffer(data, np.uint64)
        self.used = latest_kernels.put_entries(fixed(rows.reshape(-1, 3)), self._slots, self.used)

    def take(self, buckets: int) -> list[Words]:
        """Return the rows of each bucket, and empty the table."""
        ends, rows = np.empty(buckets, np.int64), np.empty((self.used, 3), np.uint64)
        latest_kernels.take_rows(self._slots, ends, rows)
        self.used = 0
        return np.split(rows, ends[:-1])


class LogPart(NamedTuple):
    """Consecutive segments of one log partition, which one task reads.

    `first_offset` is the first offset of the log partition in the round. All parts of a log
    partition have the same number of `buckets`.
    """

    partition: int
    rows: Sequence[SegmentRow]
    first_offset: int
    log_start_offset: int
    buckets: int

    @property
    def size_bytes(self) -> int:
        """Return the total size of the logs of this part."""
        return sum(row.log_bytes for row in self.rows)


class PassOutput(NamedTuple):
    """The blobs that tasks of a pass wrote to the spool, and counts by (name, partition)."""

    packed: bytes  # rows of SPOOLED
    counts: Counter[tuple[str, int]]

    @staticmethod
    def joined(outputs: Sequence[PassOutput]) -> tuple[pa.Table, Counter[tuple[str, int]]]:
        """Return the rows of all blobs, and the sums of the counts."""
        rows = unpack_rows(output.packed for output in outputs)
        return rows, sum((output.counts for output in outputs), Counter())


class FindKeys(NamedTuple):
    """The task that reads segments, and writes blobs with the last record of each key.

    `now_ms` decides which tombstones have expired. The hashes are keyed with the attempt's id. The
    task counts `records` at or above the log start, and the `null_keys` among them.
    """

    store: Store
    attempt_id: str
    now_ms: int

    def __call__(self, log_parts: Sequence[LogPart]) -> PassOutput:
        """Read the segments of `log_parts`, write blobs to the spool, and return their rows."""
        counts = Counter[tuple[str, int]]()
        with SpoolWriter(self.store, self.attempt_id) as spool:
            for log_part in log_parts:
                size = sum(row.record_count for row in log_part.rows)
                table = KeyTable(min(size, TABLE_ROWS))
                with SpillBuffer() as full:
                    for part, seed in self._parts(log_part):
                        row = 0
                        while row < len(part.offsets):
                            row, seen, nulls = table.put_records(part, log_part, seed, row)
                            counts["records", log_part.partition] += seen
                            counts["null_keys", log_part.partition] += nulls
                            if row < len(part.offsets):
                                full.add([rows.data for rows in table.take(log_part.buckets)])
                    full.add([rows.data for rows in table.take(log_part.buckets)])
                    _write_keys(full, log_part, spool)
        return PassOutput(pack_rows(spool.rows()), counts)

    def _parts(self, log_part: LogPart) -> Iterator[tuple[KeyedRecords, Words]]:
        """Yield the records of the segments in parts, each with the key of the hash."""
        seed = np.frombuffer(uuid.UUID(self.attempt_id).bytes, "<u8").astype(np.uint64)
        for row in log_part.rows:
            log = LogSegment.from_row(row)
            for chunk in LogFetch(self.store).chunks([log.whole()]):
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
        """Return the flags of the tombstones in each batch (`Cleaner.shouldRetainRecord`)."""
        has_horizon = table["attributes"] & DELETE_HORIZON != 0
        expired = has_horizon & (table["base_timestamp"] <= self.now_ms)
        return np.where(expired, EXPIRED, np.where(has_horizon, 0, FRESH)).astype(np.uint8)


def _markers(offsets: Int64s) -> KeyedRecords:
    """Return transaction markers with unique keys, their offsets, so that all of them are kept."""
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


def _write_keys(full: SpillBuffer, log_part: LogPart, spool: SpoolWriter) -> None:
    """Write the spilled rows to the spool, as one blob for each bucket that has rows."""
    for number in range(log_part.buckets):
        if data := b"".join(rows for _, rows in full.read_range(number)):
            count = len(data) // ROW_BYTES
            spool.add(Blob(0, 0, data, log_part.partition, number, count))


# ---------------- policy
# The rules of Kafka's `LogCleanerManager` decide which log partitions are cleaned, and when.
#
# A log partition has a clean part, which an earlier round has cleaned, and a dirty part after it.
# It is due when the dirty part is large enough, or too old. A broker never cleans the segment that
# it appends to. Here no segment grows any more, so the whole log can be cleaned, except for
# segments that `min.compaction.lag.ms` excludes.


def compacted_topic(row: TopicRow, root: str) -> Topic:
    """Return the settings of a topic of the lake at `root`.

    Raises UsageError if the `cleanup.policy` does not include `compact`.
    """
    topic = topic_from_row(row)
    if "compact" not in topic.cleanup_policy:
        raise UsageError(
            f"topic {topic.name!r} has cleanup.policy = {topic.cleanup_policy!r}, so it is not "
            f"compacted. To change that: `seglake alter {quote(root)} {topic.name} "
            f"cleanup.policy=compact`"
        )
    return topic


@dataclass
class CompactedLog:
    """A log partition before a round of compaction, and after the round if it was `cleaned`.

    `clean_bytes` and `dirty_bytes` are the logs of the clean and of the dirty segments that can be
    cleaned. Records below the log start are not counted. `null_keys`, `superseded` and
    `expired_tombstones` count the records that were removed.
    """

    partition: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    dirty_ratio: float
    due: bool
    segments: int
    cleaned: bool = False
    segments_after: int = 0
    bytes_after: int = 0
    records: int = 0
    records_after: int = 0
    null_keys: int = 0
    superseded: int = 0
    expired_tombstones: int = 0


class LogToClean(NamedTuple):
    """A log partition before a round, like Kafka's class of this name.

    `rows` are the segments that can be cleaned: all segments below `first_uncleanable_offset`.
    """

    state: CompactedLog
    log_start_offset: int
    rows: Sequence[SegmentRow]

    @property
    def partition(self) -> int:
        """Return the number of the log partition."""
        return self.state.partition


def log_to_clean(
    view: PartitionView,
    rows: Sequence[SegmentRow],
    settings: Topic,
    now_ms: int,
    *,
    force: bool = False,
) -> LogToClean:
    """Return the part of a log that a round at `now_ms` would clean. With `force`, it is due.

    `rows` are all segments, in the order of the log. A partly dirty segment counts as dirty. The
    rules are the rules of Kafka's `LogCleanerManager` (`cleanableOffsets`, `maxCompactionDelay` and
    `grabFilthiestCompactedLog`), except that the age of a segment is the age of its oldest record,
    not of its first batch. So no record waits longer than the lag.
    """
    first_dirty = max(view.cleaned_end, view.log_start_offset)
    dirty = [row for row in rows if row.end_offset > first_dirty]
    waiting = [row.base_offset for row in dirty if _is_too_young(row, settings, now_ms)]
    end = min(waiting, default=view.end_offset)
    cleanable = [row for row in rows if row.end_offset <= end]
    total = sum(row.log_bytes for row in cleanable)
    dirty_bytes = sum(row.log_bytes for row in cleanable if row.end_offset > first_dirty)
    dirty_ratio = dirty_bytes / total if total else 0.0
    oldest = min((row.min_timestamp for row in dirty if row.min_timestamp > 0), default=INT64_MAX)
    is_late = dirty_bytes > 0 and oldest < now_ms - settings.max_compaction_lag_ms
    state = CompactedLog(
        partition=view.partition,
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=max(first_dirty, end),
        clean_bytes=total - dirty_bytes,
        dirty_bytes=dirty_bytes,
        dirty_ratio=round(dirty_ratio, 4),
        due=force or is_late or dirty_ratio > settings.min_cleanable_dirty_ratio,
        segments=len(cleanable),
    )
    return LogToClean(state, view.log_start_offset, cleanable)


def _is_too_young(row: SegmentRow, settings: Topic, now_ms: int) -> bool:
    """Return whether `min.compaction.lag.ms` excludes a segment.

    If no record has a timestamp, the creation time of the segment counts.
    """
    newest = row.max_timestamp if row.max_timestamp >= 0 else row.created_at_ms
    lag_ms = settings.min_compaction_lag_ms
    return lag_ms > 0 and newest > now_ms - lag_ms


# ---------------- survivors
# Between the passes, the records to keep are found bucket by bucket. Their offsets are written by
# segment.
#
# The last record of each key is kept, unless it is a tombstone whose delete horizon has passed
# (`Cleaner.shouldRetainRecord`).

# Kinds of blobs: all offsets to keep, and the offsets of the fresh tombstones among them.
SURVIVORS, TOMBSTONES = 0, 1


class BlobBucket(NamedTuple):
    """The blobs of one bucket of a log partition.

    Segment i of the round covers offsets edges[i] to edges[i + 1], exclusive.
    """

    partition: int
    edges: Int64s
    packed: bytes  # rows of SPOOLED
    rows: int  # of its blobs


class FindSurvivors(NamedTuple):
    """The task that reads buckets, and writes blobs with the offsets to keep.

    The blobs have the kinds SURVIVORS and TOMBSTONES, and their `unit` is the number of the
    segment. The task counts `keys`, and the `expired` tombstones among them.
    """

    store: Store
    attempt_id: str

    def __call__(self, buckets: Sequence[BlobBucket]) -> PassOutput:
        """Read the blobs of the buckets, and write blobs with the offsets to keep."""
        counts = Counter[tuple[str, int]]()
        with SpoolWriter(self.store, self.attempt_id) as spool:
            for partition, own in groupby(buckets, lambda bucket: bucket.partition):
                with SpillBuffer() as survivors, SpillBuffer() as tombstones:
                    for bucket in own:
                        edges, entries = bucket.edges, self._entries(bucket)
                        gone = (entries & np.uint64(EXPIRED)) != 0
                        fresh = (entries & np.uint64(FRESH)) != 0
                        survivors.add(_by_segment(edges, entries[~gone]))
                        tombstones.add(_by_segment(edges, entries[fresh]))
                        counts["keys", partition] += len(entries)
                        counts["expired", partition] += int(gone.sum())
                    for kind, found in ((SURVIVORS, survivors), (TOMBSTONES, tombstones)):
                        _write_offsets(found, kind, partition, len(edges) - 1, spool)
        return PassOutput(pack_rows(spool.rows()), counts)

    def _entries(self, bucket: BlobBucket) -> Words:
        """Return the entries of all keys of a bucket, in the order of their offsets."""
        table = KeyTable(bucket.rows)
        for blob in read_blobs(self.store, unpack_rows([bucket.packed])):
            table.put_rows(blob.data)
        (rows,) = table.take(1)
        entries: Words = np.sort(rows[:, 2])
        return entries


def _by_segment(edges: Int64s, entries: Words) -> list[memoryview]:
    """Return, for each segment, the offsets of its entries relative to its base offset."""
    offsets = (entries >> np.uint64(FLAG_BITS)).astype(np.int64) - 1 + edges[0]
    cuts = np.searchsorted(offsets, edges)
    bases = np.repeat(edges[:-1], np.diff(cuts))
    return [part.data for part in np.split(offsets - bases, cuts[1:-1])]


def _write_offsets(
    found: SpillBuffer, kind: int, partition: int, segments: int, spool: SpoolWriter
) -> None:
    """Write a blob for each segment that has offsets to keep."""
    for segment in range(segments):
        if data := b"".join(part for _, part in found.read_range(segment)):
            offsets = np.sort(np.frombuffer(data, np.int64))
            spool.add(Blob(kind, segment, _pack(offsets), partition, records=len(offsets)))


def bitmap(store: Store, spooled: pa.Table, first: int, edges: Int64s) -> Bytes:
    """Return a bitmap of the offsets that spooled blobs list. Bit n stands for offset edges[0] + n.

    The blobs of unit `first` + i list offsets of the segment that covers edges[i] to edges[i + 1],
    exclusive. Parts of the bitmap in which no bit is set take no memory.
    """
    bits = np.zeros((int(edges[-1] - edges[0]) + 7) // 8, np.uint8)
    for blob in read_blobs(store, spooled):
        base = edges[blob.row["unit"] - first] - edges[0]
        latest_kernels.set_bits(bits, fixed(_unpack(blob.data) + base))
    return bits


def _pack(ascending: Int64s) -> bytes:
    """Compress ascending offsets. All first bytes of their differences precede the second bytes."""
    steps = np.diff(ascending, prepend=0).astype("<u4")  # a segment covers at most 2^31 offsets
    packed: bytes = lz4.block.compress(steps.view(np.uint8).reshape(-1, 4).T.tobytes())
    return packed


def _unpack(data: Any) -> Int64s:
    planes = np.frombuffer(lz4.block.decompress(data), np.uint8).reshape(4, -1)
    steps = np.ascontiguousarray(planes.T).view("<u4").reshape(-1)
    return np.cumsum(steps, dtype=np.int64)


# ---------------- cleaning
# The second pass writes segments with only the records to keep.
#
# Segments are grouped like in Kafka's cleaner, and a group becomes one segment. A group is not
# rewritten if it loses no record.


def group_segments(rows: Sequence[SegmentRow], settings: Topic) -> Iterator[range]:
    """Yield the range of segment numbers of each group (`Cleaner.groupSegmentsBySize`).

    The logs of a group have at most `segment.bytes` together, each kind of its indexes has at most
    `segment.index.bytes`, and the group covers at most 2^31 offsets. A segment that exceeds a limit
    is a group.
    """
    first, sizes = 0, np.zeros(3, np.int64)
    index_bytes = settings.segment_index_bytes
    limits = np.array([settings.segment_bytes, index_bytes, index_bytes])
    for number, row in enumerate(rows):
        own = np.array([row.log_bytes, row.index_bytes, row.timeindex_bytes])
        fits = bool((sizes + own <= limits).all())
        fits &= row.end_offset - 1 - rows[first].base_offset <= INT32_MAX
        if number > first and not fits:
            yield range(first, number)
            first, sizes = number, np.zeros(3, np.int64)
        sizes += own
    if rows:
        yield range(first, len(rows))


class CleanGroup(NamedTuple):
    """Segments that become one segment.

    `first` is the number of the first segment in the round. `packed` are the rows of the blobs with
    the offsets to keep.
    """

    first: int
    rows: Sequence[SegmentRow]
    packed: bytes

    @property
    def log_bytes(self) -> int:
        """Return the total size of the logs of the segments in bytes."""
        return sum(row.log_bytes for row in self.rows)


def segment_edges(rows: Sequence[SegmentRow]) -> Int64s:
    """Return the base offsets of consecutive segments, and the end offset of the last one."""
    return np.array([*(row.base_offset for row in rows), rows[-1].end_offset], np.int64)


def _write_group(
    store: Store, group: CleanGroup, *, target: RewriteTarget, horizon_ms: int
) -> SegmentRow:
    """Write a group as one segment. Batches with fresh tombstones get the delete horizon."""
    edges, blobs = segment_edges(group.rows), unpack_rows([group.packed])

    def offsets(kind: int) -> KeepOffsets:
        bits = bitmap(store, filter_kinds(blobs, kind), group.first, edges)
        return KeepOffsets(edges[:1], np.zeros(1, np.int64), np.array([len(bits)]), bits)

    keep = LatestPerKey(offsets(SURVIVORS), offsets(TOMBSTONES), horizon_ms)
    return rewrite(store, group.rows, keep, target)


@dataclass(frozen=True)
class LatestPerKey(RecordFilter):
    """A filter that keeps the records at the offsets `newest`, and sets delete horizons.

    `fresh` are the offsets of the tombstones among `newest` whose batch has no delete horizon yet.
    Their batches get `horizon_ms`, see Kafka's `MemoryRecords.filterTo`.
    """

    newest: KeepOffsets
    fresh: KeepOffsets
    horizon_ms: int

    def batch_retention(self, table: BatchTable) -> BatchRetention:
        """Return the retention of each batch, see `RecordFilter.batch_retention`."""
        decisions = self.newest.batch_retention(table)
        decisions[(decisions == STAYS) & self._has_fresh(table)] = UNDECIDED
        return decisions

    def records(self, table: BatchTable, decoded: Decoded) -> Flags:
        """Return whether each record is kept, see `RecordFilter.records`."""
        return self.newest.records(table, decoded)

    def delete_horizons_ms(self, table: BatchTable, decoded: Decoded, stays: Flags) -> Int64s:
        """Return the delete horizon of each batch, see `RecordFilter.delete_horizons_ms`."""
        del decoded, stays
        return np.where(self._has_fresh(table), self.horizon_ms, NO_HORIZON).astype(np.int64)

    def _has_fresh(self, table: BatchTable) -> Flags:
        flags: Flags = self.fresh.batch_retention(table) != GOES
        return flags


BUCKET_ROWS = 1_250_000  # keys of a bucket, whose table takes 48 MiB
_MOST_BLOBS = 3_000_000  # of a log partition, because the driver has a row for each

GroupReplacement = tuple[Sequence[SegmentRow], SegmentRow]
"""The segments of a group, and the segment that replaces them."""


class CleanedLog(NamedTuple):
    """A log partition after a round, with the groups that changed, and its report."""

    log: LogToClean
    groups: Sequence[GroupReplacement]
    report: CompactedLog


@dataclass(frozen=True)
class Passes:
    """The two passes of one attempt.

    The result depends only on the segments, the settings and the times, not on the number of
    cores. A tombstone whose delete horizon is at or before `now_ms` has expired. New horizons are
    `horizon_ms`.
    """

    store: Store
    engine: Engine
    attempt_id: str
    settings: Topic
    now_ms: int
    horizon_ms: int
    progress: Progress

    def clean(self, logs: Sequence[LogToClean]) -> list[CleanedLog]:
        """Clean logs that each have segments to clean. Raises CorruptData and StoreError."""
        if not logs:
            return []
        try:
            spooled, found = self._keys(logs)
            spooled, kept = self._survivors(logs, spooled)
            replaced = self._cleaned(logs, spooled)
        finally:
            delete_blobs(self.store, self.attempt_id)
        return [
            CleanedLog(log, groups, _after(log, groups, found + kept))
            for log, groups in zip(logs, replaced, strict=True)
        ]

    def _keys(self, logs: Sequence[LogToClean]) -> tuple[pa.Table, Counter[tuple[str, int]]]:
        """Run pass 1. Return the SPOOLED rows of its blobs, and its counts."""
        total = _log_bytes(logs)
        cores = self.engine.cores_for(total)
        least = total // (SHARES_PER_CORE * cores)
        log_parts = [log_part for log in logs for log_part in self._log_parts(log, least)]
        sizes = [log_part.size_bytes for log_part in log_parts]
        task = FindKeys(self.store, self.attempt_id, self.now_ms)
        outputs, done = list[PassOutput](), 0
        for numbers, output in in_waves(self.engine, task, log_parts, sizes, cores):
            outputs.append(output)
            done += sum(sizes[number] for number in numbers)
            self.progress(done, 2 * total)
        return PassOutput.joined(outputs)

    def _log_parts(self, log: LogToClean, least_bytes: int) -> Iterator[LogPart]:
        """Divide a log into parts of whole segments. Only the last may be below `least_bytes`."""
        records = sum(row.record_count for row in log.rows)
        buckets = -(-records // BUCKET_ROWS) or 1
        least_bytes = max(least_bytes, _log_bytes([log]) * buckets // _MOST_BLOBS)
        rows, size = list[SegmentRow](), 0
        for row in log.rows:
            rows.append(row)
            size += row.log_bytes
            if size >= least_bytes or row is log.rows[-1]:
                first = log.rows[0].base_offset
                yield LogPart(log.partition, rows, first, log.log_start_offset, buckets)
                rows, size = [], 0

    def _survivors(
        self, logs: Sequence[LogToClean], keys: pa.Table
    ) -> tuple[pa.Table, Counter[tuple[str, int]]]:
        """Find the survivors. Return the SPOOLED rows of their blobs, and the counts."""
        edges = {log.partition: segment_edges(log.rows) for log in logs}
        buckets = list[BlobBucket]()
        for (partition, _), spooled in _parts(keys, "partition", "number"):
            rows = int(spooled["records"].to_numpy().sum())
            buckets.append(BlobBucket(partition, edges[partition], pack_rows(spooled), rows))
        task = FindSurvivors(self.store, self.attempt_id)
        most = _MOST_BLOBS // SHARES_PER_CORE // max(map(len, edges.values()))
        cores = min(self.engine.cores_for(_log_bytes(logs)), most)
        runs = in_waves(self.engine, task, buckets, [bucket.rows for bucket in buckets], cores)
        return PassOutput.joined([output for _, output in runs])

    def _cleaned(
        self, logs: Sequence[LogToClean], spooled: pa.Table
    ) -> list[list[GroupReplacement]]:
        """Run pass 2 for the groups that change. Return the replaced groups of each log."""
        total = _log_bytes(logs)
        survivors = {partition: part for (partition,), part in _parts(spooled, "partition")}
        groups = [
            (number, group)
            for number, log in enumerate(logs)
            for group in self._groups(log, survivors.get(log.partition, SPOOLED.empty_table()))
        ]
        target = RewriteTarget(self.attempt_id, subjects=self.settings.index_subjects)
        # The groups that are not rewritten count as done.
        left = sum(group.log_bytes for _, group in groups)
        tasks = SegmentTasks(self.store, self.engine, self.progress)
        rows = tasks.within(2 * total - left, 2 * total).map(
            partial(_write_group, target=target, horizon_ms=self.horizon_ms),
            [group for _, group in groups],
        )
        new: list[list[GroupReplacement]] = [[] for _ in logs]
        for (number, group), row in zip(groups, rows, strict=True):
            new[number].append((group.rows, row))
        return new

    def _groups(self, log: LogToClean, spooled: pa.Table) -> Iterator[CleanGroup]:
        """Yield the groups that lose a record, or have a tombstone without a delete horizon."""
        newest, fresh = np.zeros((2, len(log.rows)), np.int64)
        kinds, units = spooled["kind"].to_numpy(), spooled["unit"].to_numpy()
        counts = spooled["records"].to_numpy()
        for kind, column in ((SURVIVORS, newest), (TOMBSTONES, fresh)):
            np.add.at(column, units[kinds == kind], counts[kinds == kind])
        stored = np.array([row.record_count for row in log.rows])
        changes = (newest < stored) | (fresh > 0)
        for group in group_segments(log.rows, self.settings):
            some = slice(group.start, group.stop)
            if changes[some].any():
                own = pa.array((units >= group.start) & (units < group.stop))
                yield CleanGroup(group.start, log.rows[some], pack_rows(spooled.filter(own)))


def _after(
    log: LogToClean, groups: Sequence[GroupReplacement], counts: Counter[tuple[str, int]]
) -> CompactedLog:
    """Return the state of a log after a round that replaced `groups`, from the passes' counts."""
    old = [row for rows, _ in groups for row in rows]
    names = ("records", "null_keys", "keys", "expired")
    records, null_keys, keys, expired = (counts[name, log.partition] for name in names)
    return replace(
        log.state,
        due=True,
        cleaned=True,
        segments_after=len(log.rows) - len(old) + len(groups),
        bytes_after=_log_bytes([log])
        - sum(row.log_bytes for row in old)
        + sum(new.log_bytes for _, new in groups),
        records=records,
        records_after=keys - expired,
        null_keys=null_keys,
        superseded=records - null_keys - keys,
        expired_tombstones=expired,
    )


def _log_bytes(logs: Sequence[LogToClean]) -> int:
    return sum(row.log_bytes for log in logs for row in log.rows)


def _parts(spooled: pa.Table, *names: str) -> Iterator[tuple[tuple[int, ...], pa.Table]]:
    """Group rows by the columns `names`. Yield the values of each group, and its rows."""
    ordered = spooled.sort_by([(name, "ascending") for name in names])
    columns = np.stack([ordered[name].to_numpy() for name in names])
    ends = np.flatnonzero((np.diff(columns) != 0).any(axis=0)) + 1
    for first, end in pairwise([0, *ends.tolist(), len(ordered)] if len(ordered) else []):
        yield tuple(columns[:, first].tolist()), ordered.slice(first, end - first)
