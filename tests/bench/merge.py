"""Merging: how fast small segments become few, and what reads and opening gain by it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import seglake
from seglake.engine import LocalEngine
from seglake.layout import new_attempt
from seglake.log.rewrite.keep import Keep
from seglake.log.rewrite.segments import RewriteTarget, rewrite
from seglake.maintain.merge import merge
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.bench.events import Events, generate
from tests.bench.measure import Contender, Goal, Samples, Section, Table, race, say, timed
from tests.bench.workbench import TOPIC, Workbench, require
from tests.makers.lakes import open_catalog

MB = 10**6
MINUTE_MS = 60_000
LEAST_MB = 200.0  # of log a second and core, which is the goal for large segments
LEAST_SEGMENTS = 3000.0  # a second and core, of small ones
SMALL, MERGED, AT_ONCE = "many small runs", "merged", "ingested at once"

_TEXT = """\
{runs} runs of {records:,} records each on {partitions} partitions leave {segments:,} segments.
*Merged* is the same lake after `seglake merge`, *ingested at once* another one that got all records
in a single run. Each read opens the lake anew, so that nothing is cached but by the system. The
speed of merging is that of log bytes read, by one thread: *small segments* are those of the lake,
*large ones* hold a partition in files of {large} MiB.
"""


class _Lakes(NamedTuple):
    """The roots and versions of the lakes that are read."""

    small: tuple[str, int]
    merged: tuple[str, int]
    at_once: tuple[str, int]


class _Read(NamedTuple):
    name: str
    call: Callable[[tuple[str, int]], int]


def run(bench: Workbench) -> Section:
    """Measure."""
    sizes, events = bench.sizes, _events(bench)
    root = str(bench.scratch("merge"))
    for number, path in enumerate(events.files):
        _ingest(bench, root, [path], f"run {number}")
    version = open_catalog(root).snapshot().version
    before = len(open_catalog(root).segments(open_catalog(root).snapshot(), TOPIC))
    speeds = [_speed("small segments", root, sizes.runs)]
    took = timed(partial(merge, root, TOPIC))
    require(took.result.exit_code == 0, "a merge left damaged segments out")
    other = str(bench.scratch("merge-at-once"))
    _ingest(bench, other, events.files, "all")
    lakes = _Lakes(
        (root, version),
        (root, took.result.version),
        (other, open_catalog(other).snapshot().version),
    )
    speeds.append(_speed("large segments", _large(bench), sizes.runs))
    section = Section("merge", "Merging small segments", _TEXT.format(
        runs=len(events.files), records=len(events.times) // len(events.files),
        partitions=sizes.merge_partitions, segments=before, large=_LARGE_BYTES // 2**20,
    ))  # fmt: skip
    section.tables = [_table_of(speeds), _table_of_reads(bench, events, lakes)]
    section.notes = [_note(took.seconds, took.result)]
    small, large = speeds
    section.goals = [
        Goal("Small segments per second and core", small.segments / small.seconds, LEAST_SEGMENTS),
        Goal("MB of log per second and core, large segments", large.megabytes / large.seconds,
             LEAST_MB),
    ]  # fmt: skip
    return section


def _events(bench: Workbench) -> Events:
    sizes = bench.sizes
    say(f"generating events of {sizes.merge_runs} runs")
    return generate(
        bench.folder / "events-of-runs", events=max(sizes.merge_runs, sizes.events // 4),
        files=sizes.merge_runs, lateness_ms=sizes.lateness_ms,
    )  # fmt: skip


def _ingest(bench: Workbench, root: str, files: list[Path], run_id: str) -> None:
    pipeline = bench.pipeline(root, "arrival", files, partitions=bench.sizes.merge_partitions)
    ingest_files(LocalEngine(), pipeline, DeclaredRun(run_id))


_LARGE_BYTES = 16 * 2**20


class _Speed(NamedTuple):
    """How fast one thread merges segments, which have so many MB of log."""

    name: str
    segments: int
    megabytes: float
    samples: Samples

    @property
    def seconds(self) -> float:
        """The median."""
        return self.samples.spread()[1]


def _large(bench: Workbench) -> str:
    """The events in one partition, in segments of a few MiB."""
    return bench.lake("arrival", partitions=1, segment_bytes=_LARGE_BYTES)


def _speed(name: str, root: str, rounds: int) -> _Speed:
    """One thread writes the segments of partition 0 as one, again and again."""
    table = open_catalog(root)
    rows = [row for row in table.segments(table.snapshot(), TOPIC) if row.partition == 0]

    def write() -> int:
        return rewrite(table.store, rows, Keep(), RewriteTarget(new_attempt())).record_count

    def check(records: int) -> None:
        require(records == sum(row.record_count for row in rows), "a merge lost records")

    (samples,) = race([Contender(name, write, check, reads=[root])], rounds)
    return _Speed(name, len(rows), sum(row.log_bytes for row in rows) / MB, samples)


def _table_of(speeds: list[_Speed]) -> Table:
    rows: list[list[Any]] = []
    for speed in speeds:
        rates = [speed.megabytes / seconds for seconds in reversed(speed.samples.spread())]
        rows.append([
            speed.name, speed.segments, speed.megabytes, *rates, speed.segments / speed.seconds,
        ])  # fmt: skip
    columns = ["one thread", "segments", "MB of log", "MB per second: min", "median", "max",
               "segments per second"]  # fmt: skip
    return Table("Speed of merging", columns, rows)


def _table_of_reads(bench: Workbench, events: Events, lakes: _Lakes) -> Table:
    rows: list[list[Any]] = []
    for read in _reads(events):
        counts = {read.call(lake) for lake in lakes}
        require(len(counts) == 1, f"{read.name}: the lakes differ: {counts}")
        contenders = [
            Contender(name, partial(read.call, lake), partial(_same, counts), reads=lake[:1])
            for name, lake in zip((SMALL, MERGED, AT_ONCE), lakes, strict=True)
        ]
        small, merged, at_once = race(contenders, bench.sizes.runs)
        medians = [1e3 * each.spread()[1] for each in (small, merged, at_once)]
        rows.append([read.name, *medians, merged.times_as_fast_as(small)[1],
                     merged.times_as_fast_as(at_once)[1]])  # fmt: skip
    columns = ["ms, median", SMALL, MERGED, AT_ONCE, f"times as fast as {SMALL}",
               f"times as fast as {AT_ONCE}"]  # fmt: skip
    return Table("What it gives", columns, rows)


def _same(counts: set[int], found: int) -> None:
    require({found} == counts, "a read found another number of records")


def _reads(events: Events) -> list[_Read]:
    start, span = events.start_ms, events.end_ms - events.start_ms
    middle = start + span // 2
    return [
        _Read("open", _open),
        _Read("everything", partial(_count, start=0, end=2**62)),
        _Read("a tenth", partial(_count, start=middle, end=middle + span // 10)),
        _Read("a minute", partial(_count, start=middle, end=middle + MINUTE_MS)),
    ]


def _open(lake: tuple[str, int]) -> int:
    return sum(seglake.open(*lake).topic(TOPIC).end_offsets().values())


def _count(lake: tuple[str, int], start: int, end: int) -> int:
    reader: Any = seglake.open(*lake).topic(TOPIC).read_range(start, end, columns=["value"])
    return sum(len(batch) for batch in reader)


def _note(seconds: float, report: Any) -> str:
    speed = report.log_bytes / MB / seconds / (os.cpu_count() or 1)
    return (
        f"`seglake merge` took {seconds:.1f} s with its commit for {report.segments:,} segments, "
        f"which became {report.new_segments:,}: {speed:.1f} MB of log per second and core."
    )
