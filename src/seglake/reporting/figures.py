"""Compute the figures of a lake and its topics, which the report and the metrics show.

Figures of a topic come from one version of the catalog and from some zone maps. No record is read.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from seglake.catalog.quarantine.open_rejects import expired_attempts, open_attempts, rejects_left
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.schema import MaintenanceRow, RunRow, committed_runs
from seglake.catalog.version.snapshot import PartitionView
from seglake.errors import CorruptData, MissingObject
from seglake.format.records import Int64s
from seglake.layout import ALL_SUFFIXES
from seglake.maintain.merge import plan_merges
from seglake.read.lake import Lake
from seglake.read.listings import summed
from seglake.read.log import Log
from seglake.times.instants import format_ms
from seglake.times.intervals import Interval, united
from seglake.write.driver.topics import topic_from_row

# ---------------- coverage
# Coverage by declared intervals: its holes, and the time up to which all windows are closed.


class Coverage(NamedTuple):
    """The intervals that committed runs declare, in ms, ends exclusive.

    `usual_ms` is their median length, and `covered` their union.
    `holes` are gaps between items of `covered`. Windows are closed up to `closed_until_ms`. It is
    the start of the first hole, else the end of the last interval, or None without intervals.
    """

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
    return Coverage(covered, holes, holes[0][0] if holes else last, usual)


# ---------------- segments
# The segments of a topic as columns, and the index blocks of some segments.

_ZONE_MAPS, _ZONE_MAP_BYTES = 200, 2**25  # limits of the zone maps to read, and of their total size


class SegmentColumns(NamedTuple):
    """The segments of a topic, sorted by partition and base offset.

    Timestamps and lateness are in ms. A segment without timestamps has the timestamps -1.
    `index_bytes` is the size of all index files.
    """

    spans: TimeSpans
    ends: Int64s
    lateness_ms: Int64s
    zonemap_bytes: Int64s
    index_bytes: int

    @staticmethod
    def from_log(log: Log) -> SegmentColumns:
        """Return the segments of a log. Only the catalog is read."""
        table = log.segments().to_arrow()
        columns = [table[name].to_numpy().astype(np.int64) for name in _NUMBERS]
        sizes = (table[f"{suffix}_bytes"] for suffix in ALL_SUFFIXES[1:])
        index_bytes = sum(pc.sum(column).as_py() or 0 for column in sizes)
        ends, lateness_ms, zonemap_bytes = columns[4:]
        spans = TimeSpans(*columns[:4])
        return SegmentColumns(spans, ends, lateness_ms, zonemap_bytes, index_bytes)


_NUMBERS = (
    "partition", "record_count", "min_timestamp", "max_timestamp", "end_offset", "max_lateness_ms",
    "zonemap_bytes",
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


class Lateness(NamedTuple):
    """The largest lateness in a run. `time_ms` is the end of the run's interval, or newest time."""

    run_id: str
    time_ms: int
    lateness_ms: int
    records: int


class RunRejects(NamedTuple):
    """The count of a run's open rejects, also by reason."""

    run_id: str
    rows: int
    reasons: dict[str, int]


class StrayTimes(NamedTuple):
    """The count of segments with stray timestamps, and the farthest stray timestamp in ms."""

    segments: int
    farthest_ms: int


@dataclass(frozen=True)
class TopicFigures:
    """The figures of a topic in one version of the lake, at `now_ms`.

    `lateness` covers the newest runs. In `lateness_shares`, (share, ms) states that runs with at
    most this lateness have at least this share of the records. `log_lateness_ms` is the largest
    lateness that is still in the logs. `rejects` are the rejects that were not redriven and have
    not expired, newest run first. The last fields are sums over the log partitions and rejects.
    `reasons` counts the open rejects, the most frequent reason first. `oldest_ms` and `newest_ms`
    are -1 if no record has a timestamp.
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
    lateness, partitions = _lateness(committed), _partitions(log, views)
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
        runs=runs, maintenance=upkeep, rejects=rejects,
        records=sum(each.records for each in partitions),
        segments=sum(each.segments for each in partitions),
        log_bytes=sum(each.log_bytes for each in partitions),
        index_bytes=columns.index_bytes,
        oldest_ms=min((each.oldest_ms for each in partitions if each.oldest_ms >= 0), default=-1),
        newest_ms=max((each.newest_ms for each in partitions), default=-1),
        open_rejects=sum(each.rows for each in rejects), reasons=dict(reasons.most_common()),
    )  # fmt: skip


def _partitions(log: Log, views: Mapping[int, PartitionView]) -> list[PartitionFigures]:
    starts, ends, figures = log.beginning_offsets(), log.end_offsets(), []
    for number, view in views.items():
        records, segments, log_bytes, oldest, newest = summed([view])
        offsets = starts[number], ends[number]
        times = oldest, max(newest, -1)
        figures.append(PartitionFigures(number, records, *offsets, segments, log_bytes, *times))
    return figures


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


def _rejects(
    quarantine: QuarantineTable, topic: str, runs: Sequence[RunRow], left: Collection[str]
) -> list[RunRejects]:
    """Return the rejects of runs, newest first.

    Counts are from the reports of runs. An erasure may have removed rejects of the attempts `left`,
    so the remaining rejects of these attempts are counted in the quarantine.
    """
    fewer = _reasons(quarantine, topic, {run.attempt_id for run in runs} & {*left})
    rejects = []
    for run in sorted(runs, key=lambda run: -run.finished_at_ms):
        rows, reasons = run.quarantined, json.loads(run.report).get("reasons", {})
        if (fewer_reasons := fewer.get(run.attempt_id)) is not None:
            rows, reasons = sum(fewer_reasons.values()), fewer_reasons
        rejects.append(RunRejects(run.run_id, rows, reasons))
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


class RetainedVersions(NamedTuple):
    """The (version, time in ms) of each retained commit, oldest first, and the retention in ms."""

    commits: list[tuple[int, int]]
    retention_ms: int


def format_minute(ms: int) -> str:
    """Return a time in ms as text in UTC, to the minute. Return "-" for a negative time."""
    return "-" if ms < 0 else format_ms(ms)[:16].replace("T", " ") + " UTC"
