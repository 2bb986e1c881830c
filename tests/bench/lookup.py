"""Lookups: the offset of a time, beside Kafka's `LogSegment` on the same file."""

import json
from typing import Any

import numpy as np

from tests.bench.events import Int64s, numbers_in
from tests.bench.measure import Contender, Goal, Samples, Section, Table, Timed, race
from tests.bench.workbench import Workbench, require

JIT_ROUNDS = 10

_TEXT = """\
Random times of one partition ({records:,} records, written with `order = "arrival"`), {count:,} per
run. Every answer of ours is compared with a search through the plain list of times; so is every
answer of Kafka's, once, untimed. *Again*: the same times as in the warm-up, so that the batches are
decoded already. *New*: other times in each run; indexes are in memory, most batches are not decoded
yet, as with Kafka, which decodes a batch at every lookup. Kafka's `LogSegment` runs in a loop
inside its JVM over the same files.
"""


def run(bench: Workbench) -> Section:
    """Measure."""
    truth, count = _Truth(bench), bench.sizes.lookups
    contenders = [_again(bench, truth), _New(bench, truth).contender(), _segment(bench, truth)]
    files = [bench.lake("arrival")]
    samples = race([each._replace(reads=files) for each in contenders], bench.sizes.runs)
    again, new, segment = samples
    section = Section("lookup", "Lookups", _TEXT.format(records=len(truth.timestamps), count=count))
    section.tables = [_table(samples, segment, count)]
    section.goals = [
        Goal(f"Speed of `offset_for_time`, {name}, relative to Kafka's `LogSegment`",
             ours.times_as_fast_as(segment)[1], 1.0)
        for name, ours in (("same times again", again), ("new times", new))
    ]  # fmt: skip
    return section


class _Truth:
    """Partition 0 as a plain list: the timestamps of its records by offset."""

    def __init__(self, bench: Workbench) -> None:
        log = bench.log("arrival")
        values = log.read_range(0, 2**62, partitions=[0], columns=["value"]).read_all()["value"]
        numbers = numbers_in(values)  # ascending: the order of arrival
        self.timestamps = bench.events.times[numbers]
        self._highest = np.maximum.accumulate(self.timestamps)
        self._random = np.random.default_rng(7)

    def times(self, count: int) -> Int64s:
        """Draw times that a record reaches."""
        return self._random.integers(self.timestamps[0], self._highest[-1] + 1, count)

    def check(self, offsets: Any, times: Int64s) -> None:
        """Compare answers with the first offset at each time or later."""
        right = np.array_equal(offsets, np.searchsorted(self._highest, times))
        require(right, "a lookup is wrong")


def _again(bench: Workbench, truth: _Truth) -> Contender:
    times, ask = truth.times(bench.sizes.lookups), bench.log("arrival").reader(0).offset_for_time
    plain = times.tolist()
    return Contender(
        "Seglake `offset_for_time`, again", lambda: list(map(ask, plain)),
        lambda found: truth.check([answer.offset for answer in found], times),
    )  # fmt: skip


class _New:
    """Lookups of new times, in a lake whose indexes are loaded."""

    def __init__(self, bench: Workbench, truth: _Truth) -> None:
        self.bench, self.truth = bench, truth

    def contender(self) -> Contender:
        return Contender("Seglake `offset_for_time`, new", self._run, self._check, self._prepare)

    def _prepare(self) -> None:
        self.times = self.truth.times(self.bench.sizes.lookups)
        self.reader = self.bench.log("arrival").reader(0)
        for warm_up in self.truth.times(3).tolist():
            self.reader.offset_for_time(warm_up)

    def _run(self) -> Any:
        return list(map(self.reader.offset_for_time, self.times.tolist()))

    def _check(self, found: Any) -> None:
        self.truth.check([answer.offset for answer in found], self.times)


def _segment(bench: Workbench, truth: _Truth) -> Contender:
    """Kafka's LogSegment of partition 0, compiled by the JVM; Java measures the time."""
    timing, folder, call = bench.timing(), bench.partition_folder(0), bench.kafka.call
    (log,) = folder.glob("*.log")
    call("openSegment", str(folder), int(log.stem), on=timing)
    times = truth.times(bench.sizes.lookups)
    text = json.dumps(times.tolist())

    def run() -> Timed:
        return Timed(call("findByTimestamp", text, on=timing) / 1e9, None)

    def warm_up() -> None:
        for _ in range(JIT_ROUNDS):
            run()
        truth.check(json.loads(call("answers", on=timing)), times)

    return Contender("Kafka `LogSegment.findOffsetByTimestamp`", run, warm_up=warm_up)


def _table(samples: list[Samples], reference: Samples, count: int) -> Table:
    rows = [[s.name, *s.spread(1e6 / count), *s.times_as_fast_as(reference)] for s in samples]
    columns = ["", "min", "median", "max", "times as fast as `LogSegment`: min", "median", "max"]
    return Table("Time to offset, in µs per lookup", columns, rows)
