"""Read the splits of a unit, convert their rows to records, and sort and encode the records.

A unit is a group of consecutive splits. Together they have about `task.split_bytes`, or more in a
large run (see `gather`). Many small files share a unit. Units depend only on the input list and the
settings.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from seglake.advice.conclude import AbsentFields
from seglake.advice.file_times import FileTimes
from seglake.advice.finding import Finding, merge_findings
from seglake.config import Pipeline
from seglake.engine import TASKS_PER_CORE, Amounts, Engine, share_in_order
from seglake.errors import SeglakeError
from seglake.format.encode import Encoding, encode_batches, encode_bodies
from seglake.format.partitioner import partition_of
from seglake.format.records import Int32s, Int64s, Records, concatenate
from seglake.limits import INT64_MAX
from seglake.log.writer import encoding_of
from seglake.store import Store
from seglake.times.intervals import Interval
from seglake.write.input.content import InputStore
from seglake.write.input.files import Split
from seglake.write.map.arrival_kernels import add_times
from seglake.write.rows.records import (
    BrokerFields,
    Chunks,
    ExtractedChunk,
    RejectedRows,
    RowLimits,
    read_split,
)
from seglake.write.rows.rows import MOST_ROWS, REASON_TEXTS
from seglake.write.spool.sorted_records import SortedRecords, join_records, sort_order
from seglake.write.spool.spill_buffer import SpillBuffer
from seglake.write.spool.spool import (
    BATCHES,
    HOLD_BYTES,
    RECORDS,
    REJECTS,
    SUMMARY,
    Blob,
    SpoolWriter,
    compress_records,
    decompress_records,
    pack_batches,
    pack_rejects,
    pack_rows,
)

_SPLIT_COST_BYTES = 1024  # added for each split, so that no unit gets too many empty files


class Unit(NamedTuple):
    """Consecutive splits that one task reads together. Units are numbered in input order."""

    number: int
    splits: tuple[Split, ...]

    @property
    def size_bytes(self) -> int:
        """Return the stored size of the unit's splits in bytes, before decompression."""
        return sum(map(size_bytes, self.splits))


def size_bytes(split: Split) -> int:
    """Return the stored size of a split in bytes, before decompression."""
    return min(split.end - split.start, split.file.size)


def group_splits(splits: Sequence[Split], max_bytes: int) -> list[Unit]:
    """Group consecutive splits into units of at most `max_bytes`.

    A larger split has its own unit.
    """
    units: list[list[Split]] = []
    room = 0
    for split in splits:
        size = size_bytes(split) + _SPLIT_COST_BYTES
        if size > room:
            units.append([])
            room = max_bytes
        units[-1].append(split)
        room -= size
    return [Unit(number, tuple(members)) for number, members in enumerate(units)]


def shared_units(splits: Sequence[Split], max_bytes: int, engine: Engine) -> list[list[Unit]]:
    """Group splits into units of `max_bytes`. Return one list of units for each map task.

    If the sizes allow it, a task gets consecutive units, because a reduce task reads the blobs of
    such units together; see `spool`.
    """
    units = group_splits(splits, max_bytes)
    sizes = [unit.size_bytes for unit in units]
    shares = share_in_order(sizes, TASKS_PER_CORE * engine.cores_for(sum(sizes)))
    return [[units[number] for number in share] for share in shares]


class MapSettings(NamedTuple):
    """The settings of all map tasks of an attempt. `store` is the lake.

    The topic in `pipeline` has the settings of the catalog. Records of a LogAppendTime topic get
    the timestamp `append_time_ms`. If there is an `interval`, map tasks count the records in it.
    """

    store: Store
    pipeline: Pipeline
    attempt_id: str
    append_time_ms: int
    limits: RowLimits
    sizes: MapSizes
    interval: Interval | None = None

    @property
    def files(self) -> InputStore:
        """Return the store from which the input is read."""
        settings = self.pipeline.input
        return InputStore(self.pipeline.storage, settings.compression, settings.encoding)

    def write_blobs(self, blobs: Iterable[Blob], plain_bytes: int = 0) -> bytes:
        """Write blobs to the spool, and return their packed SPOOLED rows.

        The first `plain_bytes` of records are not compressed; see `SpoolWriter`.
        """
        # Gathered blobs are in the order of log partitions already, so the spool need not hold
        # blobs back to reorder them.
        hold_bytes = 0 if self.sizes.gather_bytes else HOLD_BYTES
        with SpoolWriter(
            self.store, self.attempt_id, plain_bytes=plain_bytes, hold_bytes=hold_bytes
        ) as spool:
            for blob in blobs:
                spool.add(blob)
        return pack_rows(spool.rows())


Reader = Callable[[Split, InputStore, MapSettings], Chunks]


class MapUnits(NamedTuple):
    """The map task that reads units of input files, and returns packed SPOOLED rows of their blobs.

    It leaves the first `plain_bytes` of records uncompressed; see `SpoolWriter`.
    """

    settings: MapSettings
    plain_bytes: int = 0

    def __call__(self, units: Sequence[Unit]) -> bytes:
        """Write the blobs of the units to the spool, and return their packed SPOOLED rows."""
        settings, files = self.settings, self.settings.files
        blobs = (blob for unit in units for blob in make_blobs(unit, files, settings))
        return settings.write_blobs(blobs, self.plain_bytes)

    def amounts(self, items: Sequence[Sequence[Unit]]) -> Amounts:
        """Return the stored size in bytes of the splits of each item."""
        return Amounts("bytes", [sum(unit.size_bytes for unit in units) for units in items])


def read_every_row(split: Split, files: InputStore, settings: MapSettings) -> Chunks:
    """Yield the records and rejects of a split. Raise InputError if the file changes."""
    chunks = read_split(split, files, settings.pipeline, settings.limits)
    return require_unchanged(split, files, chunks)


def make_blobs(
    unit: Unit, files: InputStore, settings: MapSettings, read: Reader = read_every_row
) -> Iterator[Blob]:
    """Yield the blobs of a unit: records or record batches, rejects and, at the end, a summary.

    `read` yields the records and rejects of a split.
    """
    pipeline = settings.pipeline
    in_order = pipeline.order == "arrival" and pipeline.topic.offset_field is None
    encoding = encoding_of(pipeline.topic, settings.append_time_ms) if in_order else None
    summary = Summary()
    paths = {split.number: split.file.path for split in unit.splits}
    with BlobMaker(pipeline, settings.sizes, unit.number, encoding) as maker:
        for chunks in _joined(unit, files, settings, summary, read):
            yield from _blobs_of(chunks, maker, unit.number, paths)
            chunks.clear()  # free the memory, which is needed at the end of the unit
        yield from maker.rest()
    yield summary.blob(unit.number, maker.arrivals)


SplitChunks = list[tuple[int, ExtractedChunk]]  # (split number, chunk)


def _blobs_of(
    chunks: SplitChunks, maker: BlobMaker, unit: int, paths: Mapping[int, str]
) -> Iterator[Blob]:
    """Yield the record blobs that these chunks complete, then one blob of rejects per chunk."""
    full = [chunk for _, chunk in chunks if len(chunk.records)]
    if full:
        parts = [chunk.records for chunk in full]
        records = parts[0] if len(parts) == 1 else concatenate(parts)
        chosen = [chunk.partitions for chunk in full if chunk.partitions is not None]
        fields = [chunk.broker_fields for chunk in full if chunk.broker_fields is not None]
        partitions = np.concatenate(chosen) if chosen else None
        kept = BrokerFields(*map(np.concatenate, zip(*fields, strict=True))) if fields else None
        yield from maker.blobs(records, partitions, broker_fields=kept)
    for split, chunk in chunks:
        if len(chunk.rejects):
            yield reject_blob(unit, split, chunk.rejects, paths[split])


def _joined(
    unit: Unit, files: InputStore, settings: MapSettings, summary: Summary, read: Reader
) -> Iterator[SplitChunks]:
    """Yield the chunks of a unit as lists of (split number, chunk). Small chunks share a list."""
    together = SplitChunks()
    size = rows = 0
    for split in unit.splits:
        summary.splits[split.number] = SplitCount()  # a split may have no chunks
        for chunk in read(split, files, settings):
            summary.add(Summary.from_chunk(split.number, chunk, settings.interval))
            together.append((split.number, chunk))
            size += chunk.memory_bytes
            rows += chunk.row_count
            if size >= settings.pipeline.task.chunk_bytes // 2 or rows >= MOST_ROWS:
                yield together
                together, size, rows = [], 0, 0
    if together:
        yield together


def require_unchanged(split: Split, files: InputStore, chunks: Chunks) -> Chunks:
    """Yield `chunks`. Raise InputError if the file changes before the last chunk is read."""
    try:
        yield from chunks
    except SeglakeError:
        # If the file changed, report that: it explains any other error.
        files.require_unchanged(split.file)
        raise
    files.require_unchanged(split.file)


# ---------------- gather
# In a large run, gather the chunks of a unit before making blobs, so that blobs are few and large.
#
# A chunk of an input with thousands of log partitions has a few KB for each, and the driver needs
# memory for each blob. So a large run has large units (`map_sizes`). Their chunks are compressed
# and spilled to disk, by ranges of log partitions. When the unit ends, the records of each range
# become blobs together.

_FEW_BLOBS = 100_000  # a run with fewer blobs gathers nothing
_SHARE_BYTES = 2 * 2**20  # a unit's input for each log partition: about 700 KB in the spool
_UNIT_BYTES = 256 * 2**20  # a core takes some seconds for a unit of this size
# Units are small enough that each of 64 cores gets one. They are larger than `_UNIT_BYTES` only if
# each of 1,024 cores still gets one.
_CORES, _MANY_CORES = 64, 1024
_MOST_BLOBS = 3_000_000  # per run, because the driver needs half a KB for each
_RANGE_BYTES = 16 * 2**20  # records that become blobs together; half if input was uncompressed


class MapSizes(NamedTuple):
    """The sizes of units and blobs on the map side of a run, in bytes.

    The sizes depend on the input and the settings, never on the cluster. `unit_bytes` is the stored
    input of a unit, and `blob_bytes` the size of the records of a blob. `gather_bytes` is the size
    of the records that a unit gathers before it makes blobs. If it is 0, each chunk is made into
    separate blobs.
    """

    unit_bytes: int
    blob_bytes: int
    gather_bytes: int = 0


def map_sizes(input_bytes: int, pipeline: Pipeline) -> MapSizes:
    """Return the sizes for `input_bytes` of stored input. Zero gives the sizes of a small run."""
    partitions, task = pipeline.topic.partitions, pipeline.task
    least = input_bytes // _MOST_BLOBS
    # Twice the average, so that the records of a unit and log partition mostly become one blob.
    blob_bytes = max(task.blob_bytes, 2 * least)
    if input_bytes // task.split_bytes * partitions < _FEW_BLOBS:
        return MapSizes(task.split_bytes, blob_bytes)
    spread = max(min(_UNIT_BYTES, input_bytes // _CORES), input_bytes // _MANY_CORES)
    unit_bytes = max(min(partitions * _SHARE_BYTES, spread), partitions * least, task.split_bytes)
    # Twice as much, because the input may be compressed.
    return MapSizes(unit_bytes, blob_bytes, 2 * unit_bytes)


def map_sizes_for_frame(pipeline: Pipeline) -> MapSizes:
    """Return the sizes for a DataFrame. Each of its partitions is a unit.

    The size of a DataFrame is unknown before it is read. If a chunk is smaller than one blob for
    each log partition, a unit gathers up to 512 MiB of records before it makes blobs.
    """
    sizes = map_sizes(0, pipeline)
    is_spread = pipeline.task.chunk_bytes < pipeline.topic.partitions * sizes.blob_bytes
    return sizes._replace(gather_bytes=2 * _UNIT_BYTES) if is_spread else sizes


class ChunkBuffer:
    """A buffer of one unit's chunks, in memory or, if they are large, on disk."""

    def __init__(self, partitions: int, gather_bytes: int) -> None:
        ranges = max(min(partitions, -(-gather_bytes // _RANGE_BYTES)), 1)
        self._edges = (np.arange(ranges + 1) * partitions // ranges).tolist()
        self._scratch = SpillBuffer()
        self._counts: list[Int32s] = []  # number of records of each chunk by log partition
        self.size_bytes = 0  # size of the bodies of the records

    def add(self, records: SortedRecords, ends: Int64s) -> None:
        """Spill a chunk, whose records are grouped by log partition.

        Partition p has the positions from ends[p - 1], or 0, to ends[p] (exclusive). Raises
        StoreError if the machine's disk is full or not writable.
        """
        bounds = pairwise(np.append(0, ends)[self._edges].tolist())
        parts = (records.part(*each) for each in bounds)
        self._scratch.add([compress_records(part) if len(part) else b"" for part in parts])
        self._counts.append(np.diff(ends, prepend=0).astype(np.int32))
        self.size_bytes += int(records.bodies.sizes.sum())

    def take(self) -> Iterator[tuple[SortedRecords, Int32s]]:
        """Yield (records, log partition of each record), then delete all chunks.

        An item has the records of a range of log partitions, in the order of the chunks. A range
        that is much larger than others is divided into several items.
        """
        for number, (first, end) in enumerate(pairwise(self._edges)):
            parts, partitions, size = list[SortedRecords](), list[Int32s](), 0
            names = np.arange(first, end, dtype=np.int32)
            for chunk, data in self._scratch.read_range(number):
                parts.append(decompress_records(data))
                partitions.append(np.repeat(names, self._counts[chunk][first:end]))
                size += parts[-1].size_bytes
                # Log partitions differ in size, so a range may be much larger than planned.
                if size >= 3 * _RANGE_BYTES // 2:
                    yield join_records(parts), np.concatenate(partitions)
                    parts, partitions, size = [], [], 0
            if parts:
                yield join_records(parts), np.concatenate(partitions)
        self._scratch.clear()
        self._counts, self.size_bytes = [], 0

    def close(self) -> None:
        """Free the space of all chunks."""
        self._scratch.close()


# ---------------- sort
# Turn the chunks of a unit into blobs: group records by log partition, sort and encode them once.
#
# Bodies are encoded in one pass over a chunk, in total order, and a blob is a slice of the bodies.
# In a large run the chunks are gathered first. The blobs depend only on the unit and the settings,
# never on the task or machine that makes them.


class BlobMaker(AbstractContextManager["BlobMaker"]):
    """A converter of one unit's records to blobs. A context manager that frees gathered chunks.

    With an `encoding` (arrival order), records keep their order and blobs are finished record
    batches. Without an `encoding`, blobs are sorted records.
    """

    def __init__(
        self, pipeline: Pipeline, sizes: MapSizes, unit: int, encoding: Encoding | None = None
    ) -> None:
        self._partitions, self._sizes = pipeline.topic.partitions, sizes
        self._gather = ChunkBuffer(self._partitions, sizes.gather_bytes)
        self._by_time = pipeline.order == "time"
        self._unit, self._encoding = unit, encoding
        self._number = 0
        self._first_null = unit  # null keys of different units begin at different partitions
        self.arrivals = Arrivals(pipeline.topic.partitions)

    def blobs(
        self,
        records: Records,
        partitions: Int32s | None,
        tie_breakers: Int64s | None = None,
        broker_fields: BrokerFields | None = None,
    ) -> Iterator[Blob]:
        """Add the next chunk, and yield the blobs that it completes.

        Args:
            records: The records of the chunk.
            partitions: The log partition of each record. None selects it by the record's key.
            tie_breakers: The order of records with equal sort keys. If it is None, such records
                keep the order of the chunk.
            broker_fields: The offsets that the records keep. They are used as sort keys.
        """
        if partitions is None:
            partitions = partition_of(records.keys, self._partitions, first_null=self._first_null)
            self._first_null += int(np.count_nonzero(records.keys.lengths < 0))
        self.arrivals.add(records.timestamps, partitions)
        order, ends = _grouped(partitions, self._partitions)
        sort_keys = records.timestamps
        if broker_fields is not None:
            sort_keys, tie_breakers = broker_fields.offsets, broker_fields.stamped.astype(np.int64)
        elif tie_breakers is not None and not self._by_time:
            sort_keys = np.zeros_like(tie_breakers)
        gathers = bool(self._sizes.gather_bytes)
        if self._encoding is None and not gathers:
            _sort_groups(order, ends, sort_keys, tie_breakers)
        bodies = encode_bodies(records, order)
        timestamps = records.timestamps[order]
        ordered = timestamps if sort_keys is records.timestamps else sort_keys[order]
        ties = None if tie_breakers is None else tie_breakers[order]
        grouped = SortedRecords(ordered, ties, timestamps, bodies)
        if not gathers:
            yield from self._divided(grouped, ends)
            return
        self._gather.add(grouped, ends)
        if self._gather.size_bytes >= self._sizes.gather_bytes:
            yield from self.rest()

    def rest(self) -> Iterator[Blob]:
        """Yield the blobs of the gathered chunks. Must be called after the last chunk."""
        for records, partitions in self._gather.take():
            order, ends = _grouped(partitions, self._partitions)
            if self._encoding is None:
                _sort_groups(order, ends, records.sort_keys, records.tie_breakers)
            yield from self._divided(records.take(order).detached(), ends)

    def _divided(self, records: SortedRecords, ends: Int64s) -> Iterator[Blob]:
        start = 0
        for partition, end in enumerate(ends.tolist()):
            if start < end:
                group = records.part(start, end)
                parts = [group] if self._encoding else _parts(group, self._sizes.blob_bytes)
                yield from (self._blob(partition, part) for part in parts)
            start = end

    def __exit__(self, *_: object) -> None:
        self._gather.close()

    def _blob(self, partition: int, records: SortedRecords) -> Blob:
        self._number += 1
        blob = Blob(RECORDS, self._unit, b"", partition, self._number, len(records))
        if self._encoding is not None:
            batches = encode_batches(records.timestamps, records.bodies, self._encoding)
            size = len(batches.data)
            return blob._replace(kind=BATCHES, size_bytes=size, data=pack_batches(batches))
        ties = records.tie_breakers
        return blob._replace(
            data=records,
            size_bytes=int(records.bodies.sizes.sum()),
            sort_key=int(records.sort_keys[0]),
            tie_breaker=0 if ties is None else int(ties[0]),
            last_sort_key=int(records.sort_keys[-1]),
            last_tie_breaker=0 if ties is None else int(ties[-1]),
        )


def reject_blob(unit: int, split: int, rejects: RejectedRows, file: str) -> Blob:
    """Return a blob with rejects of one split. `file` is the path of the split's file."""
    name = rejects.path.removeprefix(f"{file}!")
    member = None if name == rejects.path else (name, rejects.path_line)
    data = pack_rejects(split, rejects.lines, rejects.reasons, rejects.raw, member)
    size = int(np.maximum(rejects.raw.lengths, 0).sum(dtype=np.int64))
    return Blob(REJECTS, unit, data, records=len(rejects), size_bytes=size)


def _grouped(partitions: Int32s, count: int) -> tuple[Int64s, Int64s]:
    """Return (positions sorted by partition, end of each partition in them). The sort is stable."""
    narrow = partitions.astype(np.uint16) if count <= 2**16 else partitions
    order = np.argsort(narrow, kind="stable")  # a radix sort for 16-bit integers
    return order, np.cumsum(np.bincount(partitions, minlength=count))


def _sort_groups(order: Int64s, ends: Int64s, sort_keys: Int64s, ties: Int64s | None) -> None:
    """Sort the positions of each partition in place, by sort key, then tie-breaker."""
    start = 0
    for end in ends.tolist():
        group = order[start:end]
        group[:] = group[sort_order(sort_keys[group], None if ties is None else ties[group])]
        start = end


def _parts(records: SortedRecords, max_bytes: int) -> Iterator[SortedRecords]:
    """Divide records into parts of about `max_bytes` of record bodies."""
    begins = records.bodies.starts - records.bodies.starts[0]
    count = int(begins[-1]) // max_bytes + 1
    edges = np.unique(np.searchsorted(begins, np.arange(count) * max_bytes)).tolist()
    for start, end in zip(edges, [*edges[1:], len(records)], strict=True):
        yield records.part(start, end)


# ---------------- lateness
# Compute the lateness: how far an event's time is below the largest earlier time in its log
# partition.
#
# The order of arrival is the order of files and positions. Units are read in parallel, so each unit
# returns three times for every log partition, and the driver combines these times.

TimeRange = tuple[int, int, int, int]  # partition; smallest time, largest time, lateness in ms


class Arrivals:
    """The smallest time, largest time and lateness of consecutive records, by log partition."""

    def __init__(self, partitions: int) -> None:
        self._low = np.full(partitions, INT64_MAX)
        self._high = np.full(partitions, -1)
        self._late = np.zeros(partitions, np.int64)

    def add(self, timestamps: Int64s, partitions: Int32s) -> None:
        """Add the timestamps (ms) and log partitions of the next records."""
        add_times(timestamps, partitions, self._low, self._high, self._late)

    def ranges(self) -> list[TimeRange]:
        """Return the `TimeRange` of each log partition that has records."""
        used = np.flatnonzero(self._low < INT64_MAX)
        columns = [used, self._low[used], self._high[used], self._late[used]]
        return list(zip(*(column.tolist() for column in columns), strict=True))


def largest_lateness_ms(units: Iterable[Iterable[TimeRange]]) -> int:
    """Return the largest lateness of an event in ms, from the ranges of units in arrival order."""
    highs: dict[int, int] = {}
    worst = 0
    for unit in units:
        for partition, low, high, late in unit:
            before = highs.get(partition, -1)
            worst = max(worst, late, before - low)
            highs[partition] = max(before, high)
    return worst


# ---------------- summary
# Summarize a unit for the driver, which gets the summary together with the blobs.
#
# A summary has counts, reasons, lateness, and the fields that no row has. The line count of each
# split is needed to convert line numbers within a split to line numbers of the file.

_MOST_FINDINGS = 100  # per unit; a finding is about one kind of problem, or one file


class SplitCount(NamedTuple):
    """The number of lines and of rows in a split, and the times of its records."""

    lines: int = 0
    rows: int = 0
    times: FileTimes = FileTimes()

    def merge(self, later: SplitCount) -> SplitCount:
        """Add the counts of rows that follow."""
        times = self.times.merge(later.times)
        return SplitCount(self.lines + later.lines, self.rows + later.rows, times)


class IntervalTimes(NamedTuple):
    """The number of records in a run's interval, and the smallest and largest of all times in ms.

    `inside` is None if the run has no interval. Without records, both times are -1.
    """

    inside: int | None = None
    low_ms: int = -1
    high_ms: int = -1

    @staticmethod
    def from_timestamps(timestamps: Int64s, interval: Interval | None) -> IntervalTimes:
        """Count the timestamps in the interval [start, end). Find the range of all timestamps."""
        if interval is None or not len(timestamps):
            return IntervalTimes(None if interval is None else 0)
        chosen = (timestamps >= interval[0]) & (timestamps < interval[1])
        return IntervalTimes(int(chosen.sum()), int(timestamps.min()), int(timestamps.max()))

    def merge(self, other: IntervalTimes) -> IntervalTimes:
        """Combine the counts and the ranges of times of two groups of records."""
        if self.inside is None or other.inside is None:
            return other if self.inside is None else self
        lows = [each.low_ms for each in (self, other) if each.low_ms >= 0]
        high_ms = max(self.high_ms, other.high_ms)
        return IntervalTimes(self.inside + other.inside, min(lows, default=-1), high_ms)


@dataclass
class Summary:
    """The counts, missing fields and findings of a chunk, a unit or a run.

    `splits` has the counts of each split, by its number, and `reasons` the number of rejects for
    each reason. `absent` has the fields that no row has. `skipped` counts the rows whose offset is
    already in the log, and `comment_lines` the lines that begin with `input.comment`. `times` has
    the number of records in the run's interval.
    """

    splits: dict[int, SplitCount] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    absent: AbsentFields = field(default_factory=AbsentFields)
    skipped: int = 0
    comment_lines: int = 0
    findings: Sequence[Finding] = ()
    times: IntervalTimes = field(default_factory=IntervalTimes)

    @staticmethod
    def from_chunk(split: int, chunk: ExtractedChunk, interval: Interval | None) -> Summary:
        """Summarize a chunk of the split with the number `split`."""
        timestamps = chunk.records.timestamps
        count = SplitCount(chunk.line_count, chunk.row_count, FileTimes.from_timestamps(timestamps))
        codes, counts = np.unique(chunk.rejects.reasons, return_counts=True)
        return Summary(
            splits={split: count},
            reasons=Counter(dict(zip(REASON_TEXTS[codes].tolist(), counts.tolist(), strict=True))),
            absent=chunk.absent,
            skipped=chunk.skipped,
            comment_lines=chunk.comment_lines,
            findings=chunk.findings,
            times=IntervalTimes.from_timestamps(timestamps, interval),
        )

    def add(self, other: Summary) -> None:
        """Add the summary of the rows that follow."""
        for split, count in other.splits.items():
            self.splits[split] = self.splits.get(split, SplitCount()).merge(count)
        self.reasons.update(other.reasons)
        self.absent = self.absent.merge(other.absent)
        self.skipped += other.skipped
        self.comment_lines += other.comment_lines
        self.findings = merge_findings([*self.findings, *other.findings])[:_MOST_FINDINGS]
        self.times = self.times.merge(other.times)

    def blob(self, unit: int, arrivals: Arrivals | None = None) -> Blob:
        """Return the summary of a unit as a blob with JSON text.

        `arrivals` is None if the records have no order of arrival.
        """
        values = {
            "unit": unit,
            "arrivals": None if arrivals is None else arrivals.ranges(),
            "summary": {**vars(self), "findings": [each.as_dict() for each in self.findings]},
        }
        return Blob(SUMMARY, unit, text=json.dumps(values))


def combine_summaries(texts: Iterable[str]) -> tuple[Summary, int | None]:
    """Combine the JSON summaries of all units, which may be in any order.

    Return (summary, largest lateness in ms). The lateness is None if records have no order of
    arrival.
    """
    total = Summary()
    units = sorted(map(json.loads, texts), key=lambda unit: int(unit["unit"]))
    arrivals = [unit["arrivals"] for unit in units]
    for values in (unit["summary"] for unit in units):
        counts = values["splits"].items()
        splits = {int(n): SplitCount(lines, rows, FileTimes(*t)) for n, (lines, rows, t) in counts}
        typed = {
            "splits": splits,
            "absent": AbsentFields(*values["absent"]),
            "findings": [Finding(**each) for each in values["findings"]],
            "times": IntervalTimes(*values["times"]),
        }
        total.add(Summary(**values | typed))
    return total, None if None in arrivals else largest_lateness_ms(arrivals)
