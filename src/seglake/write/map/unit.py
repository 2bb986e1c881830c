"""The map side of one unit: read its splits, make records of their rows, sort and encode them.

A unit is consecutive splits of about `task.split_bytes` together, of more in a large run (see
`gather`); many small files share a unit. Units are a function of the input list and the settings.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from seglake.log.encoding import encoding_of
from seglake.store import Store
from seglake.times.intervals import Interval
from seglake.write.input.content import InputStore
from seglake.write.input.files import Split
from seglake.write.map.arrival_kernels import add_times
from seglake.write.rows.records import (
    BrokerFields,
    Extracted,
    RejectedRows,
    RowLimits,
    join_broker_fields,
    read_split,
)
from seglake.write.rows.rows import MOST_ROWS, REASON_TEXTS
from seglake.write.spool.scratch import Scratch
from seglake.write.spool.sorted_records import SortedRecords, joined, sort_order
from seglake.write.spool.spool import (
    BATCHES,
    HOLD_BYTES,
    RECORDS,
    REJECTS,
    SUMMARY,
    Blob,
    SpoolWriter,
    expand_records,
    pack_batches,
    pack_rejects,
    packed_rows,
    squeeze_records,
)

_SPLIT_COST_BYTES = 1024  # counted for each split, so that no unit gets countless empty files


class Unit(NamedTuple):
    """Consecutive splits, numbered in the order of the input list."""

    number: int
    splits: tuple[Split, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of the unit's splits as they are stored, compressed or not."""
        return sum(map(size_bytes, self.splits))


def size_bytes(split: Split) -> int:
    """Bytes of a split as it is stored, compressed or not."""
    return min(split.end - split.start, split.file.size)


def group_splits(splits: Sequence[Split], max_bytes: int) -> list[Unit]:
    """Group consecutive splits into units of at most `max_bytes`, or of one split."""
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
    """The units of some splits, shared out over the map tasks.

    A task has neighbours where that is fair, since their blobs are read together, see `spool`.
    """
    units = group_splits(splits, max_bytes)
    sizes = [unit.size_bytes for unit in units]
    shares = share_in_order(sizes, TASKS_PER_CORE * engine.cores_for(sum(sizes)))
    return [[units[number] for number in share] for share in shares]


class MapSettings(NamedTuple):
    """What all map tasks of an attempt get: the lake, the pipeline, and facts of the run.

    `pipeline` has its topic's settings in the catalog. Records of a LogAppendTime topic get
    `append_time_ms`. Records in `interval` are counted.
    """

    store: Store
    pipeline: Pipeline
    attempt_id: str
    append_time_ms: int
    limits: RowLimits
    sizes: Sizes
    interval: Interval | None = None

    @property
    def files(self) -> InputStore:
        """Where the input is read."""
        settings = self.pipeline.input
        return InputStore(self.pipeline.storage, settings.compression, settings.encoding)


Reader = Callable[[Split, InputStore, MapSettings], Iterator[Extracted]]


class MapUnits(NamedTuple):
    """The map task: units of input files → rows of SPOOLED, packed.

    `plain_bytes` is for its `SpoolWriter`.
    """

    settings: MapSettings
    plain_bytes: int = 0

    def __call__(self, units: Sequence[Unit]) -> bytes:
        """Write the blobs of the units to the spool."""
        settings, files = self.settings, self.settings.files
        hold_bytes = 0 if settings.sizes.gather_bytes else HOLD_BYTES  # they come in order
        with SpoolWriter(
            settings.store, settings.attempt_id, plain_bytes=self.plain_bytes, hold_bytes=hold_bytes
        ) as spool:
            for unit in units:
                for blob in blobs_of_unit(unit, files, settings):
                    spool.add(blob)
        return packed_rows(spool.rows())

    def amounts(self, items: Sequence[Sequence[Unit]]) -> Amounts:
        """The stored bytes of each item's files."""
        return Amounts("bytes", [sum(unit.size_bytes for unit in units) for units in items])


def read_every_row(split: Split, files: InputStore, settings: MapSettings) -> Iterator[Extracted]:
    """The chunks of a split; InputError if the file changes before its last byte is read."""
    chunks = read_split(split, files, settings.pipeline, settings.limits)
    return unchanged(split, files, chunks)


def blobs_of_unit(
    unit: Unit, files: InputStore, settings: MapSettings, read: Reader = read_every_row
) -> Iterator[Blob]:
    """The blobs of a unit: records or batches, rejects, and a summary at the end."""
    pipeline = settings.pipeline
    in_order = pipeline.order == "arrival" and pipeline.topic.offset_field is None
    encoding = encoding_of(pipeline.topic, settings.append_time_ms) if in_order else None
    summary = UnitSummary(settings.interval)
    paths = {split.number: split.file.path for split in unit.splits}
    with BlobMaker(pipeline, settings.sizes, unit.number, encoding) as maker:
        for chunks in _joined(unit, files, settings, summary, read):
            yield from _blobs_of(chunks, maker, unit.number, paths)
            chunks.clear()  # the unit's end needs the memory
        yield from maker.rest()
    yield summary.blob(unit.number, maker.arrivals)


def _blobs_of(
    chunks: Sequence[tuple[int, Extracted]], maker: BlobMaker, unit: int, paths: Mapping[int, str]
) -> Iterator[Blob]:
    """The blobs that some chunks complete together, and those of their rejects."""
    full = [chunk for _, chunk in chunks if len(chunk.records)]
    if full:
        parts = [chunk.records for chunk in full]
        records = parts[0] if len(parts) == 1 else concatenate(parts)
        chosen = [chunk.partitions for chunk in full if chunk.partitions is not None]
        fields = [chunk.broker_fields for chunk in full if chunk.broker_fields is not None]
        partitions = np.concatenate(chosen) if chosen else None
        yield from maker.blobs(records, partitions, broker_fields=join_broker_fields(fields))
    for split, chunk in chunks:
        if len(chunk.rejects):
            yield reject_blob(unit, split, chunk.rejects, paths[split])


def _joined(
    unit: Unit, files: InputStore, settings: MapSettings, summary: UnitSummary, read: Reader
) -> Iterator[list[tuple[int, Extracted]]]:
    """Lists of (split number, chunk), in order; small chunks share a list."""
    together: list[tuple[int, Extracted]] = []
    size = rows = 0
    for split in unit.splits:
        summary.begin(split.number)
        for chunk in read(split, files, settings):
            summary.add(split.number, chunk)
            together.append((split.number, chunk))
            size += chunk.memory_bytes
            rows += chunk.row_count
            if size >= settings.pipeline.task.chunk_bytes // 2 or rows >= MOST_ROWS:
                yield together
                together, size, rows = [], 0, 0
    if together:
        yield together


def unchanged(split: Split, files: InputStore, chunks: Iterator[Extracted]) -> Iterator[Extracted]:
    """The same chunks; InputError if the file changes before the last of them is read."""
    try:
        yield from chunks
    except SeglakeError:
        files.require_unchanged(split.file)  # a changed file explains any other error
        raise
    files.require_unchanged(split.file)


# ---------------- gather
# What a unit of a large run gathers before it makes blobs, so that blobs are few and large.
#
# A chunk of an input with thousands of log partitions has a few KB for each, and the driver plans
# with a row for each blob. So a large run has large units (`sizes_of`), whose chunks are put
# aside until the unit ends, compressed, by ranges of log partitions. Then each range makes blobs
# of all its records.

_FEW_BLOBS = 100_000  # of a run that gathers nothing
_SHARE_BYTES = 2 * 2**20  # of a unit's input for each log partition: some 700 KB in the spool
_UNIT_BYTES = 256 * 2**20  # some seconds of a core
_CORES, _MANY_CORES = 64, 1024  # that get a unit; many if a unit has `_UNIT_BYTES` then
_MOST_BLOBS = 3_000_000  # of a run: planning takes half a KB for each in the driver
_RANGE_BYTES = 16 * 2**20  # of records that become blobs together; half if input was not packed


class Sizes(NamedTuple):
    """How the map side divides a run: a function of its input and settings, never of the cluster.

    `unit_bytes` is the input of a unit, as stored, and `blob_bytes` the records of a blob.
    `gather_bytes` are the records that a unit gathers before it makes blobs; with 0 each chunk
    makes its own.
    """

    unit_bytes: int
    blob_bytes: int
    gather_bytes: int = 0


def sizes_of(input_bytes: int, pipeline: Pipeline) -> Sizes:
    """The sizes of a run with so much input, as stored; those of a small run for 0."""
    partitions, task = pipeline.topic.partitions, pipeline.task
    least = input_bytes // _MOST_BLOBS
    blob_bytes = max(task.blob_bytes, 2 * least)  # so most shares are one blob
    if input_bytes // task.split_bytes * partitions < _FEW_BLOBS:
        return Sizes(task.split_bytes, blob_bytes)
    spread = max(min(_UNIT_BYTES, input_bytes // _CORES), input_bytes // _MANY_CORES)
    unit_bytes = max(min(partitions * _SHARE_BYTES, spread), partitions * least, task.split_bytes)
    return Sizes(unit_bytes, blob_bytes, 2 * unit_bytes)  # of input that is compressed


def sizes_of_frame(pipeline: Pipeline) -> Sizes:
    """The sizes of a run of a DataFrame, each of whose partitions is a unit.

    Nobody knows how large it is before it is read. So a unit gathers all it can if its chunks have
    less than a blob for each log partition.
    """
    sizes = sizes_of(0, pipeline)
    is_spread = pipeline.task.chunk_bytes < pipeline.topic.partitions * sizes.blob_bytes
    return sizes._replace(gather_bytes=2 * _UNIT_BYTES) if is_spread else sizes


class Grouped(NamedTuple):
    """Records by log partition: those of partition p end at position ends[p]."""

    records: SortedRecords
    ends: Int64s


class Gather:
    """The chunks of one unit, put aside; a context manager that frees what they take."""

    def __init__(self, partitions: int, gather_bytes: int) -> None:
        ranges = max(min(partitions, -(-gather_bytes // _RANGE_BYTES)), 1)
        self._edges = (np.arange(ranges + 1) * partitions // ranges).tolist()
        self._scratch = Scratch()
        self._counts: list[Int32s] = []  # of each chunk's records by log partition
        self.size_bytes = 0  # of the records' bodies

    def add(self, chunk: Grouped) -> None:
        """Put a chunk aside. Raises StoreError if the machine's disk does not take it."""
        bounds = pairwise(np.append(0, chunk.ends)[self._edges].tolist())
        parts = (chunk.records.part(*each) for each in bounds)
        self._scratch.add([squeeze_records(part) if len(part) else b"" for part in parts])
        self._counts.append(np.diff(chunk.ends, prepend=0).astype(np.int32))
        self.size_bytes += int(chunk.records.bodies.sizes.sum())

    def take(self) -> Iterator[tuple[SortedRecords, Int32s]]:
        """Records and the log partition of each, in the order of the chunks; all are gone then.

        A log partition comes in one part, or in several if it is large.
        """
        for number in range(len(self._edges) - 1):
            yield from self._range(number)
        self._scratch.clear()
        self._counts, self.size_bytes = [], 0

    def _range(self, number: int) -> Iterator[tuple[SortedRecords, Int32s]]:
        parts, partitions, size = list[SortedRecords](), list[Int32s](), 0
        first, end = self._edges[number], self._edges[number + 1]
        names = np.arange(first, end, dtype=np.int32)
        for chunk, data in self._scratch.of(number):
            parts.append(expand_records(data))
            partitions.append(np.repeat(names, self._counts[chunk][first:end]))
            size += parts[-1].size_bytes
            if size >= 3 * _RANGE_BYTES // 2:  # some log partitions have much more than others
                yield joined(parts), np.concatenate(partitions)
                parts, partitions, size = [], [], 0
        if parts:
            yield joined(parts), np.concatenate(partitions)

    def __enter__(self) -> Gather:
        return self

    def __exit__(self, *error: object) -> None:
        self._scratch.__exit__(*error)


# ---------------- sort
# The chunks of a unit become blobs: grouped by log partition, sorted, encoded once.
#
# Bodies are encoded in one pass over a chunk, in total order; a blob is a slice of them. In a
# large run the chunks are gathered first. The blobs are a function of the unit and the settings,
# never of the task or machine that makes them.


class BlobMaker:
    """Makes the blobs of one unit; a context manager that frees what it gathered.

    With an `encoding` (arrival order) records stay as they stand, and blobs are finished record
    batches. Without one, blobs are sorted records.
    """

    def __init__(
        self, pipeline: Pipeline, sizes: Sizes, unit: int, encoding: Encoding | None = None
    ) -> None:
        self._partitions, self._sizes = pipeline.topic.partitions, sizes
        self._gather = Gather(self._partitions, sizes.gather_bytes)
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
        """The blobs that the next chunk completes.

        Without `partitions` the record keys choose the log partitions. Without `tie_breakers`
        records with equal sort keys stay in the order of the chunk. `broker_fields` have the
        offsets that the records keep, which then are the sort keys.
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
        chunk = Grouped(SortedRecords(ordered, ties, timestamps, bodies), ends)
        if not gathers:
            yield from self._divided(chunk)
            return
        self._gather.add(chunk)
        if self._gather.size_bytes >= self._sizes.gather_bytes:
            yield from self.rest()

    def rest(self) -> Iterator[Blob]:
        """The blobs of what is gathered: all that the unit's chunks left."""
        for records, partitions in self._gather.take():
            yield from self._divided(self._regrouped(records, partitions))

    def _regrouped(self, records: SortedRecords, partitions: Int32s) -> Grouped:
        """Records of several chunks as one chunk."""
        order, ends = _grouped(partitions, self._partitions)
        if self._encoding is None:
            _sort_groups(order, ends, records.sort_keys, records.tie_breakers)
        return Grouped(records.taken(order).detached(), ends)

    def _divided(self, chunk: Grouped) -> Iterator[Blob]:
        start = 0
        for partition, end in enumerate(chunk.ends.tolist()):
            if start < end:
                group = chunk.records.part(start, end)
                parts = [group] if self._encoding else _parts(group, self._sizes.blob_bytes)
                yield from (self._blob(partition, part) for part in parts)
            start = end

    def __enter__(self) -> BlobMaker:
        return self

    def __exit__(self, *error: object) -> None:
        self._gather.__exit__(*error)

    def _blob(self, partition: int, records: SortedRecords) -> Blob:
        self._number += 1
        blob = Blob(
            RECORDS, self._unit, partition=partition, number=self._number, records=len(records)
        )
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
    """The rejects of one split of the file at the path `file`."""
    name = rejects.path.removeprefix(f"{file}!")
    member = None if name == rejects.path else (name, rejects.path_line)
    data = pack_rejects(split, rejects.lines, rejects.reasons, rejects.raw, member)
    size = int(np.maximum(rejects.raw.lengths, 0).sum(dtype=np.int64))
    return Blob(REJECTS, unit, data, records=len(rejects), size_bytes=size)


def _grouped(partitions: Int32s, count: int) -> tuple[Int64s, Int64s]:
    """Positions sorted by partition (stable), and where the positions of each partition end."""
    narrow = partitions.astype(np.uint16) if count <= 2**16 else partitions
    order = np.argsort(narrow, kind="stable")  # a radix sort for 16-bit integers
    return order, np.cumsum(np.bincount(partitions, minlength=count))


def _sort_groups(order: Int64s, ends: Int64s, sort_keys: Int64s, ties: Int64s | None) -> None:
    """Sort the positions of each partition in place."""
    start = 0
    for end in ends.tolist():
        group = order[start:end]
        group[:] = group[sort_order(sort_keys[group], None if ties is None else ties[group])]
        start = end


def _parts(records: SortedRecords, max_bytes: int) -> Iterator[SortedRecords]:
    """The records in parts of about `max_bytes` of bodies."""
    begins = records.bodies.starts - records.bodies.starts[0]
    count = int(begins[-1]) // max_bytes + 1
    edges = np.unique(np.searchsorted(begins, np.arange(count) * max_bytes)).tolist()
    for start, end in zip(edges, [*edges[1:], len(records)], strict=True):
        yield records.part(start, end)


# ---------------- lateness
# Lateness: how far the time of an event lies below the largest time that arrived before it.
#
# Events arrive in the order of file and position; each log partition counts on its own. Units are
# read in parallel, so each unit gives a few numbers for every partition, and the driver joins
# them.

TimeRange = tuple[int, int, int, int]  # partition; in ms: smallest, largest time, lateness within


class Arrivals:
    """The times of consecutive records of `partitions` log partitions."""

    def __init__(self, partitions: int) -> None:
        self._low = np.full(partitions, INT64_MAX)
        self._high = np.full(partitions, -1)
        self._late = np.zeros(partitions, np.int64)

    def add(self, timestamps: Int64s, partitions: Int32s) -> None:
        """Add the records that come next."""
        add_times(timestamps, partitions, self._low, self._high, self._late)

    def ranges(self) -> list[TimeRange]:
        """The range of each partition that has records, for `largest_lateness_ms`."""
        used = np.flatnonzero(self._low < INT64_MAX)
        columns = [used, self._low[used], self._high[used], self._late[used]]
        return list(zip(*(column.tolist() for column in columns), strict=True))


def largest_lateness_ms(units: Iterable[Iterable[TimeRange]]) -> int:
    """The lateness in ms of the latest event; `units` stand in the order of arrival."""
    highs: dict[int, int] = {}
    worst = 0
    for unit in units:
        for partition, low, high, late in unit:
            before = highs.get(partition, -1)
            worst = max(worst, late, before - low)
            highs[partition] = max(before, high)
    return worst


# ---------------- summary
# The summary of a unit, which the driver gets beside its blobs.
#
# It has counts, reasons, lateness, and the fields that no row has.
#
# The driver needs the line count of each split to turn line numbers within a split into line
# numbers of the file.

_MOST_FINDINGS = 100  # of a unit: each is of one kind, or of one file


class SplitCount(NamedTuple):
    """The lines of a split, the rows among them, and the times of its records."""

    lines: int
    rows: int
    times: FileTimes = FileTimes()


class IntervalTimes(NamedTuple):
    """The records in the interval that a run declares, and the range of all its times in ms.

    `inside` is None if the records are not counted, and the range is (-1, -1) without records.
    """

    inside: int | None = None
    low_ms: int = -1
    high_ms: int = -1

    @staticmethod
    def from_timestamps(timestamps: Int64s, interval: Interval) -> IntervalTimes:
        """Count the timestamps in an interval."""
        if not len(timestamps):
            return IntervalTimes(0)
        chosen = (timestamps >= interval[0]) & (timestamps < interval[1])
        return IntervalTimes(int(chosen.sum()), int(timestamps.min()), int(timestamps.max()))

    def merge(self, other: IntervalTimes) -> IntervalTimes:
        """Return the times of these records and others together."""
        if self.inside is None or other.inside is None:
            return other if self.inside is None else self
        lows = [each.low_ms for each in (self, other) if each.low_ms >= 0]
        return IntervalTimes(
            self.inside + other.inside, min(lows, default=-1), max(self.high_ms, other.high_ms)
        )


class UnitSummary:
    """Counts the lines, rows and rejects of one unit, and its records in an interval."""

    def __init__(self, interval: Interval | None = None) -> None:
        self._interval, self._times = interval, IntervalTimes()
        self._splits: dict[int, SplitCount] = {}
        self._reasons: Counter[str] = Counter()
        self._absent = AbsentFields()
        self._skipped = 0
        self._findings: list[Finding] = []

    def begin(self, split: int) -> None:
        """Begin a split, which may turn out to be empty."""
        self._splits[split] = SplitCount(0, 0)

    def add(self, split: int, chunk: Extracted) -> None:
        """Count a chunk of a split, after `begin` for that split."""
        before, times = self._splits[split], chunk.records.timestamps
        self._splits[split] = SplitCount(
            before.lines + chunk.line_count,
            before.rows + chunk.row_count,
            before.times.then(FileTimes.from_timestamps(times)),
        )
        if self._interval is not None:
            inside = IntervalTimes.from_timestamps(times, self._interval)
            self._times = self._times.merge(inside)
        reasons, counts = np.unique(chunk.rejects.reasons, return_counts=True)
        texts = REASON_TEXTS[reasons].tolist()
        self._reasons.update(dict(zip(texts, counts.tolist(), strict=True)))
        if chunk.absent is not None:
            self._absent = self._absent.merge(AbsentFields.from_row(*chunk.absent))
        self._skipped += chunk.skipped
        self._findings = merge_findings([*self._findings, *chunk.findings])[:_MOST_FINDINGS]

    def blob(self, unit: int, arrivals: Arrivals | None = None) -> Blob:
        """The summary as a blob; `arrivals` only if the unit's records have an order of arrival."""
        ranges = None if arrivals is None else arrivals.ranges()
        counted = {"splits": self._splits, "reasons": self._reasons, "absent": self._absent}
        counted |= {
            "skipped": self._skipped,
            "times": self._times,
            "findings": [each.as_dict() for each in self._findings],
        }
        return Blob(SUMMARY, unit, text=json.dumps({**counted, "unit": unit, "arrivals": ranges}))


class Summary(NamedTuple):
    """The summaries of all units together.

    `splits` has the counts of every split, `reasons` the count of rejects for each reason.
    `max_lateness_ms` is None without an order of arrival. `absent` are the fields that no row has.
    `skipped` counts the rows whose offset the log has already. `times` are compared with the
    interval that the run declares.
    """

    splits: dict[int, SplitCount]
    reasons: dict[str, int]
    max_lateness_ms: int | None
    absent: AbsentFields
    skipped: int
    findings: list[Finding]
    times: IntervalTimes


def add_up(texts: Iterable[str]) -> Summary:
    """The summary of all units, given their texts in any order."""
    splits: dict[int, SplitCount] = {}
    reasons: Counter[str] = Counter()
    absent, findings, times = AbsentFields(), list[Finding](), IntervalTimes()
    summaries = sorted(map(json.loads, texts), key=lambda summary: int(summary["unit"]))
    for summary in summaries:
        splits |= {
            int(number): SplitCount(lines, rows, FileTimes(*times))
            for number, (lines, rows, times) in summary["splits"].items()
        }
        reasons.update(summary["reasons"])
        absent = absent.merge(AbsentFields(*summary["absent"]))
        times = times.merge(IntervalTimes(*summary["times"]))
        found = (Finding(**each) for each in summary["findings"])
        findings = merge_findings([*findings, *found])[:_MOST_FINDINGS]
    arrivals = [summary["arrivals"] for summary in summaries]
    lateness = None if None in arrivals else largest_lateness_ms(arrivals)
    skipped = sum(summary["skipped"] for summary in summaries)
    by_reason = dict(sorted(reasons.items()))
    return Summary(splits, by_reason, lateness, absent, skipped, findings, times)
