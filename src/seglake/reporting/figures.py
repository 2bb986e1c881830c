"""Compute the figures of a lake and its topics, which the report and the metrics show.

Figures of a topic come from one version of the catalog and from some zone maps. No record is read.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seglake.catalog.failed_run import all_failed_runs
from seglake.catalog.quarantine.files import describe_place
from seglake.catalog.quarantine.open_rejects import expired_attempts, open_attempts, rejects_left
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.schema import MaintenanceRow, RunRow, committed_runs
from seglake.catalog.table import CatalogTable
from seglake.errors import CorruptData, MissingObject
from seglake.format.records import Int64s
from seglake.limits import INT64_MAX
from seglake.maintain.merge import plan_merges
from seglake.maintain.tagging import TagUsage, tag_usage
from seglake.maintain.vacuum import vacuum
from seglake.read.lake import Lake
from seglake.read.log import Log
from seglake.store import Store
from seglake.times.instants import format_ms
from seglake.times.intervals import Interval, united
from seglake.write.driver.topics import topic_from_row

# ---------------- coverage
# Coverage by declared intervals: its holes, and the time up to which all windows are closed.


class Coverage(NamedTuple):
    """The intervals that committed runs declare, in ms, ends exclusive.

    `declared` is the count of intervals, `usual_ms` their median length, and `covered` their union.
    `holes` are gaps between items of `covered`. Windows are closed up to `closed_until_ms`. It is
    the start of the first hole, else the end of the last interval, or None without intervals.
    """

    declared: int
    covered: list[Interval]
    holes: list[Interval]
    closed_until_ms: int | None
    usual_ms: int

    def lag_ms(self, now_ms: int) -> int | None:
        """Return the coverage lag, the time since `closed_until_ms`, or None without intervals."""
        return None if self.closed_until_ms is None else max(0, now_ms - self.closed_until_ms)


def coverage(intervals: Iterable[Interval], oldest_ms: int | None = None) -> Coverage:
    """Return the coverage by `intervals`. Holes that end at or before `oldest_ms` are ignored."""
    declared = [interval for interval in intervals if interval[0] < interval[1]]
    covered = united(declared)
    gaps = [(before[1], after[0]) for before, after in pairwise(covered)]
    holes = [hole for hole in gaps if oldest_ms is None or hole[1] > oldest_ms]
    last = covered[-1][1] if covered else None
    lengths = sorted(end - start for start, end in declared)
    usual = lengths[len(lengths) // 2] if lengths else 0
    return Coverage(len(declared), covered, holes, holes[0][0] if holes else last, usual)


# ---------------- segments
# The segments of a topic as columns, and the index blocks of some segments.

_ZONE_MAPS, _ZONE_MAP_BYTES = 200, 2**25  # limits of the zone maps to read, and of their total size


class SegmentColumns(NamedTuple):
    """The segments of a topic, sorted by partition and base offset.

    Timestamps and lateness are in ms. A segment without timestamps has the timestamps -1.
    `index_bytes` is the size of all index files, and `codecs` has the names of codecs.
    """

    spans: TimeSpans
    ends: Int64s
    lateness_ms: Int64s
    log_bytes: Int64s
    index_bytes: Int64s
    zonemap_bytes: Int64s
    codecs: pa.ChunkedArray[Any]

    @staticmethod
    def from_log(log: Log) -> SegmentColumns:
        """Return the segments of a log. Only the catalog is read."""
        table = log.segments().to_arrow()
        number = {name: table[name].to_numpy().astype(np.int64) for name in _NUMBERS}
        spans = TimeSpans(*(number[name] for name in _NUMBERS[:4]))
        keys: Any = table["keyindex_bytes"].combine_chunks()
        own = pc.coalesce(keys, keys.is_valid().cast("int64"))  # 0 without a key index
        indexes = number["index_bytes"] + number["timeindex_bytes"] + number["zonemap_bytes"]
        indexes += own.to_numpy()
        return SegmentColumns(
            spans, number["end_offset"], number["max_lateness_ms"], number["log_bytes"], indexes,
            number["zonemap_bytes"], table["codec"],
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.ends)


_NUMBERS = (
    "partition", "record_count", "min_timestamp", "max_timestamp", "end_offset", "max_lateness_ms",
    "log_bytes", "index_bytes", "timeindex_bytes", "zonemap_bytes",
)  # fmt: skip


def refine_spans(
    log: Log, segments: SegmentColumns, chosen: npt.NDArray[Any], spans: TimeSpans
) -> TimeSpans:
    """Return `spans`, but with index blocks instead of the segments that `chosen` selects.

    A limited number of zone maps is read, for the segments with the most records. Other segments,
    and segments with damaged files, keep their spans.
    """
    numbers = np.flatnonzero(chosen & (spans.records > 0))
    numbers = numbers[np.argsort(-spans.records[numbers], kind="stable")][:_ZONE_MAPS]
    numbers = numbers[np.cumsum(segments.zonemap_bytes[numbers]) <= _ZONE_MAP_BYTES]
    whole, blocks = np.ones(len(spans.records), bool), list[TimeSpans]()
    for number in numbers.tolist():
        try:
            blocks.append(_blocks(log, segments, number))
            whole[number] = False
        except (CorruptData, MissingObject) as damage:
            what = "cannot read the zone map of a segment, so the report counts it as a whole"
            _log.warning("%s: %s", what, damage)
    return TimeSpans(*map(np.concatenate, zip(spans.take(whole), *blocks, strict=True)))


def _blocks(log: Log, segments: SegmentColumns, number: int) -> TimeSpans:
    """Return the index blocks in which every record has a timestamp."""
    partition = int(segments.spans.partitions[number])
    reader = log.reader(partition)
    segment = reader.segment(reader.view.index_of(int(segments.ends[number]) - 1))
    offsets, lows, highs = reader.zones(segment).times()
    dated = lows >= 0
    offsets, lows, highs = offsets[dated], lows[dated], highs[dated]
    # A block counts offsets, and the segment may have gaps without records.
    ratio = int(segments.spans.records[number]) / max(1, int(offsets.sum()))
    return TimeSpans(np.full(len(lows), partition), np.rint(offsets * ratio), lows, highs)


# ---------------- activity
# Records over time: the number of records of each log partition in each bin of a time line.
#
# The number of records of a segment or index block is recorded, and so are its smallest and largest
# timestamp. Its records are assumed to be spread evenly between them. No record is read.

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
_WIDTHS_MS = (
    1000, 10_000, MINUTE_MS, 5 * MINUTE_MS, 15 * MINUTE_MS, HOUR_MS, 3 * HOUR_MS, 6 * HOUR_MS,
    DAY_MS, 7 * DAY_MS, 30 * DAY_MS, 365 * DAY_MS,
)  # fmt: skip


class TimeSpans(NamedTuple):
    """The log partition, record count and timestamps of segments or index blocks, as columns.

    `lows` and `highs` are the smallest and largest timestamps, in ms, both inclusive.
    """

    partitions: Int64s
    records: Int64s
    lows: Int64s
    highs: Int64s

    def take(self, which: npt.NDArray[np.bool_]) -> TimeSpans:
        """Return the items that a mask selects."""
        return TimeSpans(*(column[which] for column in self))

    def with_gaps(self, bins: Bins) -> TimeSpans:
        """Extend each item on both sides by half of the mean gap between its records.

        So a steady stream has no dip between two segments. No item is extended beyond the bins.
        """
        gaps = (self.highs - self.lows) / np.maximum(self.records - 1, 1)
        half = (gaps / 2).astype(np.int64)
        lows = np.maximum(self.lows - half, np.minimum(self.lows, bins.start_ms))
        highs = np.minimum(self.highs + half, np.maximum(self.highs, bins.end_ms - 1))
        return self._replace(lows=lows, highs=highs)


class Bins(NamedTuple):
    """Time bins of one width: bin i is [start + i * width, start + (i + 1) * width)."""

    start_ms: int
    width_ms: int
    length: int

    @staticmethod
    def covering(low_ms: int, high_ms: int, most: int) -> Bins:
        """Return at most `most` bins from `low_ms` to `high_ms`, or more bins of one year."""
        fits = (w for w in _WIDTHS_MS if high_ms // w - low_ms // w < most)
        width = next(fits, _WIDTHS_MS[-1])
        return Bins(low_ms // width * width, width, high_ms // width - low_ms // width + 1)

    @property
    def end_ms(self) -> int:
        """Return the end of the last bin, exclusive."""
        return self.start_ms + self.length * self.width_ms

    def bin_numbers(self, times: Int64s) -> Int64s:
        """Return the bin of each time. A time outside the bins gets the nearest bin."""
        return np.clip((times - self.start_ms) // self.width_ms, 0, self.length - 1)


def spread_records(spans: TimeSpans, bins: Bins, partitions: int) -> npt.NDArray[np.float64]:
    """Return the number of records by partition and bin. All spans must be within the bins.

    The records of a span are spread evenly over the time of the span.
    """
    first, last = bins.bin_numbers(spans.lows), bins.bin_numbers(spans.highs)
    row = spans.partitions * (bins.length + 1)
    rate = spans.records / (spans.highs - spans.lows + 1)
    one = first == last
    # `begins` and `finishes` are the ms of each span in its first and its last bin.
    begins = bins.start_ms + (first + 1) * bins.width_ms - spans.lows
    finishes = spans.highs + 1 - (bins.start_ms + last * bins.width_ms)
    size = partitions * (bins.length + 1)

    def add(at: Int64s, weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.bincount(row + at, weights, size).astype(np.float64, copy=False)

    parts = add(first, np.where(one, spans.records, rate * begins))
    parts += add(last, np.where(one, 0, rate * finishes))
    full = np.where(one, 0, rate * bins.width_ms)  # in each bin between the first and the last
    between = add(np.where(one, first, first + 1), full) - add(last, full)
    shape = partitions, bins.length + 1
    counts = parts.reshape(shape) + np.cumsum(between.reshape(shape), axis=1)
    return np.maximum(counts[:, :-1], 0)


class UsualRange(NamedTuple):
    """The time range of nearly all records. Both ends are in ms and inclusive."""

    low_ms: int
    high_ms: int

    def inside(self, spans: TimeSpans) -> npt.NDArray[np.bool_]:
        """Return, for each span, whether it is completely inside the range."""
        inside: npt.NDArray[np.bool_] = (spans.lows >= self.low_ms) & (spans.highs <= self.high_ms)
        return inside


def usual_range(spans: TimeSpans, now_ms: int) -> UsualRange | None:
    """Return the time range of the records that are not stray, or None if all are stray.

    A record is stray if its time is more than an hour in the future. It is also stray if its time
    is before the 1 % quantile, by more than 30 days and more than three times the range from that
    quantile to the newest record.
    """
    dated = spans.take((spans.records > 0) & (spans.lows >= 0) & (spans.highs <= now_ms + HOUR_MS))
    if not len(dated.records):
        return None
    order = np.argsort(dated.lows, kind="stable")
    below = np.cumsum(dated.records[order])
    low = int(dated.lows[order][np.searchsorted(below, 0.01 * below[-1])])
    high = int(dated.highs.max())
    margin = max(30 * DAY_MS, 3 * (high - low))
    return UsualRange(int(dated.lows[dated.lows >= low - margin].min()), high)


_log = logging.getLogger(__name__)

_BINS, _CELLS = 200, 40_000  # limits of the bins of the time line, and of bins times log partitions
_RUNS = 1000  # limit of the runs whose reports are read
_SAMPLED, _SAMPLE = 10, 5  # limits of the runs with sampled rejects, and of rows of a sample
_SHARES = (0.5, 0.9, 0.99, 1.0)


class PartitionFigures(NamedTuple):
    """The figures of a log partition. Times are in ms, or -1 if no record has a timestamp."""

    partition: int
    records: int
    log_start_offset: int
    end_offset: int
    segments: int
    log_bytes: int
    oldest_ms: int
    newest_ms: int


class Activity(NamedTuple):
    """Records over time: `records[p][i]` are the records of log partition p in bin i.

    They are estimates, so a bin may have a fraction of a record. `stray` counts the records outside
    of all bins: records far from all others, and records without a timestamp.
    """

    start_ms: int
    width_ms: int
    records: list[list[float]]
    stray: int


class CodecFigures(NamedTuple):
    """The count and size of the segments that one codec compressed."""

    codec: str
    segments: int
    records: int
    log_bytes: int
    index_bytes: int


class Lateness(NamedTuple):
    """The largest lateness in a run. `time_ms` is the end of the run's interval, or newest time."""

    run_id: str
    time_ms: int
    lateness_ms: int
    records: int


class RunRejects(NamedTuple):
    """The open rejects of a run: their count by reason, and a sample of (file, line, reason)."""

    run_id: str
    rows: int
    reasons: dict[str, int]
    sample: list[tuple[str, int, str]]


class StrayTimes(NamedTuple):
    """The count of segments with stray timestamps, and the farthest stray timestamp in ms."""

    segments: int
    farthest_ms: int


@dataclass(frozen=True)
class TopicFigures:
    """The figures of a topic in one version of the lake, at `now_ms`.

    `lateness` covers the newest runs. In `lateness_shares`, (share, ms) states that runs with at
    most this lateness have at least this share of the records. `log_lateness_ms` is the largest
    lateness that is still in the logs. In `segment_sizes`, (size, n) states that n logs have from
    `size` bytes, a power of two, to twice the size. `rejects` are the rejects that were not
    redriven and have not expired, newest run first. The last fields are sums over the log
    partitions, codecs and rejects. `reasons` counts the open rejects, the most frequent reason
    first. `oldest_ms` and `newest_ms` are -1 if no record has a timestamp.
    """

    topic: str
    version: int
    now_ms: int
    timestamp_type: str
    partitioner: str
    partitions: list[PartitionFigures]
    tiny_segments: int
    activity: Activity | None
    future: StrayTimes
    ancient: StrayTimes
    undated_segments: int
    coverage: Coverage
    log_lateness_ms: int
    lateness: list[Lateness]
    lateness_shares: list[tuple[float, int]]
    codecs: list[CodecFigures]
    segment_sizes: list[tuple[int, int]]
    runs: list[RunRow]
    maintenance: list[MaintenanceRow]
    rejects: list[RunRejects]
    records: int
    segments: int
    log_bytes: int
    index_bytes: int
    oldest_ms: int
    newest_ms: int
    open_rejects: int
    reasons: dict[str, int]

    @property
    def committed(self) -> list[RunRow]:
        """Return the committed runs, in the order of their commits."""
        return committed_runs(self.runs)


def topic_figures(lake: Lake, topic: str, now_ms: int, quarantine: QuarantineTable) -> TopicFigures:
    """Return the figures of a topic. Raises UnknownTopic, StoreError and CorruptData."""
    log = lake.topic(topic)
    columns = SegmentColumns.from_log(log)
    runs, upkeep = lake.history(topic), lake.maintenance(topic)
    committed = committed_runs(runs)
    spans = _blocks_of_wide(log, columns, now_ms)
    time = usual_range(spans, now_ms)
    settings = topic_from_row(log.settings)
    views = {number: log.reader(number).view for number in log.partitions()}
    due = plan_merges(log.segments().to_arrow(), views, settings).groups
    still_open = {*open_attempts(committed)} - expired_attempts(upkeep)
    rejected = [run for run in committed if run.quarantined and run.attempt_id in still_open]
    intervals = [run.covered for run in committed if run.covered is not None]
    lateness, partitions, codecs = _lateness(committed), _partitions(log, columns), _codecs(columns)
    rejects = _rejects(quarantine, topic, rejected, rejects_left(upkeep))
    reasons = sum((Counter(each.reasons) for each in rejects), Counter[str]())
    return TopicFigures(
        topic=topic, version=log.version, now_ms=now_ms, timestamp_type=log.settings.timestamp_type,
        partitioner=log.settings.partitioner, partitions=partitions,
        tiny_segments=sum(len(group.rows) for group in due),
        activity=None if time is None else _activity(log, columns, spans, time),
        future=_future(columns.spans, now_ms), ancient=_ancient(columns.spans, time),
        undated_segments=int(((columns.spans.lows < 0) & (columns.spans.records > 0)).sum()),
        coverage=coverage(intervals, time.low_ms if time else None),
        log_lateness_ms=int(columns.lateness_ms.max(initial=0)),
        lateness=lateness, lateness_shares=_shares(lateness),
        codecs=codecs, segment_sizes=_sizes(columns.log_bytes), runs=runs,
        maintenance=upkeep, rejects=rejects,
        records=sum(each.records for each in partitions),
        segments=sum(each.segments for each in partitions),
        log_bytes=sum(each.log_bytes for each in partitions),
        index_bytes=sum(each.index_bytes for each in codecs),
        oldest_ms=min((each.oldest_ms for each in partitions if each.oldest_ms >= 0), default=-1),
        newest_ms=max((each.newest_ms for each in partitions), default=-1),
        open_rejects=sum(each.rows for each in rejects), reasons=dict(reasons.most_common()),
    )  # fmt: skip


def _partitions(log: Log, columns: SegmentColumns) -> list[PartitionFigures]:
    count = len(log.partitions())
    spans = columns.spans
    starts, ends = log.beginning_offsets(), log.end_offsets()
    records = _sums(spans.partitions, spans.records, count)
    segments = np.bincount(spans.partitions, minlength=count)
    sizes = _sums(spans.partitions, columns.log_bytes, count)
    dated = spans.take((spans.records > 0) & (spans.lows >= 0))
    oldest, newest = np.full(count, INT64_MAX), np.full(count, -1)
    np.minimum.at(oldest, dated.partitions, dated.lows)
    np.maximum.at(newest, spans.partitions, spans.highs)
    oldest[np.bincount(dated.partitions, minlength=count) == 0] = -1
    rows = zip(records, segments, sizes, oldest, newest, strict=True)
    return [
        PartitionFigures(p, int(n), starts[p], ends[p], int(s), int(b), int(low), int(high))
        for p, (n, s, b, low, high) in enumerate(rows)
    ]


def _sums(partitions: Int64s, values: Int64s, count: int) -> Int64s:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, partitions, values)
    return sums


def _future(spans: TimeSpans, now_ms: int) -> StrayTimes:
    late = spans.highs > now_ms + HOUR_MS
    return StrayTimes(int(late.sum()), int(spans.highs[late].max(initial=-1)))


def _ancient(spans: TimeSpans, time: UsualRange | None) -> StrayTimes:
    low = time.low_ms if time else 0
    early = (spans.lows >= 0) & (spans.lows < low) & (spans.records > 0)
    return StrayTimes(int(early.sum()), int(spans.lows[early].min(initial=low)))


def _activity(log: Log, columns: SegmentColumns, spans: TimeSpans, time: UsualRange) -> Activity:
    """Return records over time, from the spans that `_blocks_of_wide` returns."""
    partitions = len(log.partitions())
    bins = Bins.covering(time.low_ms, time.high_ms, max(24, min(_BINS, _CELLS // partitions)))
    inside = spans.take(time.inside(spans))
    records = np.round(spread_records(inside.with_gaps(bins), bins, partitions), 2)
    stray = int(columns.spans.records.sum() - inside.records.sum())
    return Activity(bins.start_ms, bins.width_ms, records.tolist(), max(0, stray))


def _blocks_of_wide(log: Log, columns: SegmentColumns, now_ms: int) -> TimeSpans:
    """Return the spans of segments, with stray and long segments divided into index blocks."""
    spans = columns.spans
    future = spans.highs > now_ms + HOUR_MS
    time = usual_range(spans, now_ms)
    if time is None:
        return refine_spans(log, columns, future, spans)
    bins = Bins.covering(time.low_ms, time.high_ms, _BINS)
    in_several_bins = bins.bin_numbers(spans.lows) != bins.bin_numbers(spans.highs)
    return refine_spans(log, columns, future | ~time.inside(spans) | in_several_bins, spans)


def _lateness(runs: Sequence[RunRow]) -> list[Lateness]:
    """Return the lateness of the newest runs by end time, without runs that have none."""
    newest_runs = []
    for run in sorted(runs, key=lambda run: run.finished_at_ms)[-_RUNS:]:
        report = json.loads(run.report)
        late, newest = report.get("max_lateness_ms"), report.get("max_timestamp")
        if late is not None:
            time_ms = run.interval_end_ms or newest or run.finished_at_ms
            newest_runs.append(Lateness(run.run_id, time_ms, late, run.records))
    return newest_runs


def _shares(lateness: Sequence[Lateness]) -> list[tuple[float, int]]:
    """Return (share, ms) pairs: runs up to this lateness have at least this share of records."""
    by_size = sorted(lateness, key=lambda run: run.lateness_ms)
    below = np.cumsum([run.records for run in by_size])
    if not len(below) or not below[-1]:
        return []
    at = np.searchsorted(below, [share * int(below[-1]) for share in _SHARES])
    return [(share, by_size[i].lateness_ms) for share, i in zip(_SHARES, at, strict=True)]


def _codecs(columns: SegmentColumns) -> list[CodecFigures]:
    own: list[Any] = [columns.codecs, columns.spans.records, columns.log_bytes, columns.index_bytes]
    names = ["codec", "records", "log_bytes", "index_bytes"]
    table = pa.table(own, names)
    sums: list[Any] = [("codec", "count"), *((name, "sum") for name in names[1:])]
    rows: list[Any] = table.group_by("codec").aggregate(sums).sort_by("codec").to_pylist()
    return [CodecFigures(*row.values()) for row in rows]


def _sizes(log_bytes: Int64s) -> list[tuple[int, int]]:
    """Return (size, n) pairs: n segments have from `size` to twice `size` bytes of log."""
    powers = np.log2(np.maximum(log_bytes, 1)).astype(np.int64)
    counts = Counter(powers.tolist())
    lowest, highest = min(counts, default=0), max(counts, default=-1)
    return [(2**power, counts[power]) for power in range(lowest, highest + 1)]


def _rejects(
    quarantine: QuarantineTable, topic: str, runs: Sequence[RunRow], left: Collection[str]
) -> list[RunRejects]:
    """Return the rejects of runs, newest first, with a sample for the newest few.

    Counts are from the reports of runs. An erasure may have removed rejects of the attempts `left`,
    so the remaining rejects of these attempts are counted in the quarantine.
    """
    fewer = _reasons(quarantine, topic, {run.attempt_id for run in runs} & {*left})
    newest = sorted(runs, key=lambda run: -run.finished_at_ms)
    samples = defaultdict[str, list[tuple[str, int, str]]](list)
    for table in quarantine.read(topic, {run.attempt_id for run in newest[:_SAMPLED]}):
        for row in table.slice(0, _SAMPLE).to_pylist():
            samples[row["attempt_id"]].append((*describe_place(row), row["reason"]))
    rejects = []
    for run in newest:
        rows, reasons = run.quarantined, json.loads(run.report).get("reasons", {})
        if (fewer_reasons := fewer.get(run.attempt_id)) is not None:
            rows, reasons = sum(fewer_reasons.values()), fewer_reasons
        rejects.append(RunRejects(run.run_id, rows, reasons, samples[run.attempt_id][:_SAMPLE]))
    return rejects


def _reasons(
    quarantine: QuarantineTable, topic: str, attempts: set[str]
) -> dict[str, dict[str, int]]:
    """Count the rejects of attempts in the quarantine, by reason."""
    counts: dict[str, dict[str, int]] = {attempt_id: Counter() for attempt_id in attempts}
    for table in quarantine.read(topic, attempts) if attempts else ():
        groups: Any = table.group_by(["attempt_id", "reason"]).aggregate([([], "count_all")])
        for row in groups.to_pylist():
            counts[row["attempt_id"]][row["reason"]] += row["count_all"]
    return counts


# ---------------- failures
# The newest failed attempts at runs, with the error of each.

_FAILURES = 20  # limit of the listed attempts
_ERROR = 300  # limit of the characters of an error


class FailedAttempt(NamedTuple):
    """A failed attempt at a run, and the time `failed_at_ms` of the failure.

    `error` is the first line of the error's message, cut to 300 characters. `committed` is True if
    another attempt committed the run.
    """

    topic: str
    pipeline: str
    run_id: str
    failed_at_ms: int
    exit_code: int
    error: str
    committed: bool


def newest_failures(
    store: Store, topic: str | None, topics: Sequence[TopicFigures]
) -> list[FailedAttempt]:
    """Return the newest failed attempts at runs of one topic or of all, newest first.

    `topics` contain the committed runs. Raises StoreError and CorruptData.
    """
    there = {(run.topic, run.pipeline, run.run_id) for each in topics for run in each.committed}
    failed = []
    for run in islice(all_failed_runs(store, topic), _FAILURES):
        key = run.topic, run.pipeline, run.run_id
        line = next(iter(run.error.splitlines()), "")
        error = line if len(line) <= _ERROR else f"{line[: _ERROR - 1]}…"
        failed.append(FailedAttempt(*key, run.failed_at_ms, run.exit_code, error, key in there))
    return sorted(failed, key=lambda attempt: attempt.failed_at_ms, reverse=True)


# ---------------- storage
# Retained versions, tags, and the objects that a vacuum would free.


class FreeableObjects(NamedTuple):
    """The objects that a vacuum would delete now, or later when the older versions expire."""

    objects: int
    size_bytes: int
    later_objects: int
    later_bytes: int
    young_objects: int


class StorageFigures(NamedTuple):
    """The retained versions, the tags, and the objects that a vacuum would free.

    `commits` has (version, time in ms) of each retained commit, oldest first. `freed` is only set
    if objects were listed. In the report of one topic, `tags` has only the tags whose version has
    the topic, and their sizes count only files of this topic.
    """

    commits: list[tuple[int, int]]
    retention_ms: int
    freed: FreeableObjects | None
    tags: list[TagUsage]


def storage_figures(
    table: CatalogTable, topic: str | None, freed: FreeableObjects | None
) -> StorageFigures:
    """Return the versions, and the tags of a topic or of all. Raises StoreError, CorruptData."""
    tags = tag_usage(table, topic=topic)
    return StorageFigures(table.commit_times(), table.handle.retention_ms(), freed, tags)


def freeable_objects(root: str, options: Mapping[str, str] | None) -> FreeableObjects:
    """List all objects, and return the count and size that a vacuum would free."""
    now = vacuum(root, dry_run=True, storage_options=options)
    then = vacuum(root, dry_run=True, grace_hours=0, retention_hours=0, storage_options=options)
    objects = len(now.deleted) + len(now.catalog_files)
    later = len(then.deleted) + len(then.catalog_files)
    return FreeableObjects(
        objects, now.deleted_bytes, max(0, later - objects),
        max(0, then.deleted_bytes - now.deleted_bytes), len(now.young),
    )  # fmt: skip


def format_minute(ms: int) -> str:
    """Return a time in ms as text in UTC, to the minute. Return "-" for a negative time."""
    return "-" if ms < 0 else format_ms(ms)[:16].replace("T", " ") + " UTC"
