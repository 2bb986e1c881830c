"""Growth: the same lookups and windows as a log becomes ten times as long, or a hundred times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import crc32c
import numpy as np

import seglake
from seglake.catalog.schema import SegmentRow, TopicRow
from seglake.format.batch import HEADER, OVERHEAD, BatchTable
from seglake.format.encode import EncodedBatches, rebase
from seglake.format.segment import rebuild
from seglake.layout import new_attempt
from seglake.log.files import put_indexes
from seglake.read.log import Log
from seglake.store import open_store
from tests.bench import measure
from tests.bench.events import Events, Int64s, numbers_in
from tests.bench.measure import Chart, Contender, Goal, Section, say
from tests.bench.workbench import TOPIC, Workbench, require
from tests.judges.described import describe
from tests.makers.lakes import create_catalog, open_catalog

MARGIN_MS = 60_000  # between copies: more than a window, and than any event is late
WINDOW_MS = 10_000
WINDOWS = 20
NEW = 200  # lookups in batches that are not decoded yet; more would meet in some
STEPS = (1, 10, 100)
GOALS = (  # the column of the medians, and how many times as much the longest log may take
    ("Time of a lookup, new", 6, 1.3), ("Time of a lookup, again", 4, 1.3),
    ("Time of a window", 10, 1.3),
)  # fmt: skip

_TEXT = """\
A log of {records:,} records, then the same with copies of its segments behind it: each copy has
the next offsets and later times, batch by batch, without anything being compressed again. So the
contents repeat; sizes, offsets, times, indexes and the catalog do not. Lookups and windows of
{window} s are drawn from all of the log, and checked when the clock has stopped. The
indexes are loaded; *again* lookups were answered before, so that their batches are decoded, *new*
ones were not. The {many:,} times of *in one call* come from one copy, chosen at random: so at every
length as many of them share a batch, which is decoded once.
"""


class _Segment(NamedTuple):
    row: SegmentRow
    log: bytes
    table: BatchTable


def run(bench: Workbench) -> Section:
    """Measure."""
    events = bench.events.first(max(1, bench.sizes.files // 4))
    model = _Model(bench, events)
    root = str(bench.scratch("growth"))
    rows = [_Length(bench, model, root, *built).row() for built in _grow(bench, model, root)]
    section = Section(
        "growth", "Growth",
        _TEXT.format(records=len(events.times), window=WINDOW_MS // 1000, many=_many(events)),
    )  # fmt: skip
    columns = ["records", "segments", "log, MB", "open, ms: median"]
    columns += ["µs per lookup, again: median", "new: min", "median", "max"]
    columns += ["in one call: median"]
    columns += ["ms per window: min", "median", "max"]
    section.goals = [
        Goal(f"{name}: {rows[-1][0]:,} records by {rows[0][0]:,}", rows[-1][at] / rows[0][at],
             limit, at_least=False)
        for name, at, limit in GOALS
    ]  # fmt: skip
    charts = [Chart("µs per lookup, again", 4), Chart("µs per lookup, new", 6)]
    charts += [Chart("ms per window", 10)]
    section.tables = [measure.Table("By length of the log", columns, rows, charts=charts)]
    return section


def _many(events: Events) -> int:
    return min(1_000_000, len(events.times))


class _Model:
    """The segments to be copied, and the plain lists that tell what is right."""

    def __init__(self, bench: Workbench, events: Events) -> None:
        root = bench.lake("arrival", events)
        self.events = events
        self.span_ms = events.end_ms - events.start_ms + MARGIN_MS
        self.segments = list(_segments(root))
        self.ends: dict[int, int] = {}
        for segment in self.segments:
            self.ends[segment.row.partition] = segment.row.end_offset
        log = seglake.open(root).topic(TOPIC)
        values = log.read_range(0, 2**62, partitions=[0], columns=["value"]).read_all()["value"]
        self.highest = np.maximum.accumulate(events.times[numbers_in(values)])
        self.random = np.random.default_rng(3)

    def times(self, count: int, copies: int) -> tuple[Int64s, Int64s]:
        """Random copies, and times that the first copy reaches."""
        times = self.random.integers(self.events.start_ms, self.highest[-1] + 1, count)
        return self.random.integers(0, copies, count), times

    def offsets(self, copies: Int64s, times: Int64s) -> Int64s:
        """The first offset of partition 0 at these times of these copies, or later."""
        return copies * self.ends[0] + np.searchsorted(self.highest, times)


def _segments(root: str) -> Iterator[_Segment]:
    table, store = open_catalog(root), open_store(root)
    for row in table.segments(table.snapshot(), TOPIC):
        log = bytes(store.read_all(row.key("log")))
        yield _Segment(row, log, describe(log))


def _grow(bench: Workbench, model: _Model, root: str) -> Iterator[tuple[int, int]]:
    """Commits more and more copies; yields their number and the version."""
    table, done = create_catalog(root), 0
    for copies in (step for step in STEPS if step <= bench.sizes.copies):
        say(f"  {copies * len(model.events.times):,} records")
        attempt = new_attempt()
        rows: list[Any] = [
            _copied(segment, model, number, root, attempt)
            for number in range(done, copies)
            for segment in model.segments
        ]
        if not done:
            rows.append(TopicRow(
                topic=TOPIC, sequence=1, partitions=bench.sizes.partitions, partitioner="murmur2",
                timestamp_type="CreateTime",
            ))  # fmt: skip
        base = table.snapshot()
        yield copies, table.commit(rows, topic=TOPIC, base=base, attempt_id=attempt)
        done = copies


def _copied(segment: _Segment, model: _Model, number: int, root: str, attempt: str) -> SegmentRow:
    """Writes copy `number` of a segment; its row."""
    row, delta = segment.row, number * model.ends[segment.row.partition]
    moved = _later(rebase(segment.log, segment.table, delta), number * model.span_ms)
    sealed = rebuild(row.base_offset + delta, moved.table, row.index_policy)
    copied = replace(
        row, base_offset=row.base_offset + delta, end_offset=sealed.end_offset,
        min_timestamp=sealed.min_timestamp, max_timestamp=sealed.max_timestamp,
        offset_of_max_timestamp=sealed.offset_of_max_timestamp, attempt_id=attempt,
        index_attempt_id=attempt, log_crc32c=crc32c.crc32c(moved.data.data),
    )  # fmt: skip
    store = open_store(root)
    store.put(copied.key("log"), moved.data)
    return replace(copied, **put_indexes(store, copied.id, sealed))


def _later(batches: EncodedBatches, delta_ms: int) -> EncodedBatches:
    """The same batches with all times later: those in the records are relative to the header's."""
    data, table = batches.data.copy(), batches.table.copy()
    for name in ("min_timestamp", "max_timestamp"):
        table[name] += delta_ms
    places = table["position"][:, None] + np.arange(OVERHEAD)
    headers = data[places].reshape(-1).view(HEADER)
    for name in ("base_timestamp", "max_timestamp"):
        headers[name] += delta_ms
    data[places] = headers.view(np.uint8).reshape(-1, OVERHEAD)
    ranges = zip(table["position"].tolist(), table["size"].tolist(), strict=True)
    headers["crc"] = [crc32c.crc32c(data.data[start + 21 : start + size]) for start, size in ranges]
    data[places] = headers.view(np.uint8).reshape(-1, OVERHEAD)
    return EncodedBatches(data, table)


class _Length:
    """One length of the log, measured."""

    def __init__(
        self, bench: Workbench, model: _Model, root: str, copies: int, version: int
    ) -> None:
        self.model, self.root, self.copies, self.version = model, root, copies, version
        self.lookups, self.runs = bench.sizes.lookups, bench.sizes.runs
        self.many = _many(model.events)

    def row(self) -> list[Any]:
        """The figures."""
        contenders = [
            Contender("open", self._open, prepare=partial(self._prepare, 1)),
            Contender("again", self._one_by_one, self._check_each, self._prepare_again),
            Contender("new", self._one_by_one, self._check_each, partial(self._prepare, NEW)),
            Contender("call", self._at_once, self._check, self._prepare_call),
            Contender(
                "windows", self._windows, self._check_windows, partial(self._prepare, WINDOWS)
            ),
        ]
        contenders = [each._replace(reads=[self.root]) for each in contenders]
        opened, again, new, call, windows = measure.race(contenders, self.runs)
        views = [self.log.reader(number).view for number in self.log.partitions()]
        size = sum(int(view.segments.details["sizes"][:, 0].sum()) for view in views)
        return [
            self.copies * len(self.model.events.times), sum(map(len, views)), size / 1e6,
            opened.spread(1e3)[1], again.spread(1e6 / self.lookups)[1], *new.spread(1e6 / NEW),
            call.spread(1e6 / self.many)[1], *windows.spread(1e3 / WINDOWS),
        ]  # fmt: skip

    def _prepare(self, count: int, copies: Int64s | None = None) -> None:
        """Times that were not asked for before, and a reader that has loaded its indexes."""
        self.log = self._open()
        which, self.times = self.model.times(count, self.copies)
        self.which = which if copies is None else np.broadcast_to(copies, count)
        self.shifted = self.times + self.which * self.model.span_ms
        first = int(self.times[0])
        starts = range(first, first + self.copies * self.model.span_ms, self.model.span_ms)
        for partition in reversed(self.log.partitions()):  # lookups are in the first one
            for start in starts:
                self.log.offsets_for_times({partition: start})

    def _prepare_call(self) -> None:
        self._prepare(self.many, self.model.random.integers(0, self.copies, 1))

    def _prepare_again(self) -> None:
        """The same, and it was asked for these times before."""
        self._prepare(self.lookups)
        self._one_by_one()

    def _open(self) -> Log:
        return seglake.open(self.root, self.version).topic(TOPIC)

    def _one_by_one(self) -> list[Any]:
        return list(map(self.log.reader(0).offset_for_time, self.shifted.tolist()))

    def _check_each(self, found: list[Any]) -> None:
        self._check(np.array([answer.offset if answer else -1 for answer in found]))

    def _at_once(self) -> Int64s:
        return self.log.offsets_for_times_array(0, self.shifted)[0]

    def _check(self, offsets: Int64s) -> None:
        right = self.model.offsets(self.which, self.times)
        require(np.array_equal(offsets, right), "a lookup in a longer log is wrong")

    def _windows(self) -> list[Any]:
        return [
            self.log.read_range(start, start + WINDOW_MS, columns=["value"]).read_all()
            for start in self.shifted.tolist()
        ]

    def _check_windows(self, found: list[Any]) -> None:
        for start, table in zip(self.times.tolist(), found, strict=True):
            wanted = self.model.events.between(start, start + WINDOW_MS)
            require(np.array_equal(numbers_in(table["value"]), wanted), "a window is wrong")
