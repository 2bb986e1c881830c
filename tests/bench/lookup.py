"""Lookups: which offset is this time, which record is this offset, beside Kafka's own answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

import seglake
from seglake.read.lake import Lake
from seglake.read.log import Log
from seglake.store import open_store
from seglake.store.counting import CountingStore
from tests.bench.events import Int64s, numbers_in
from tests.bench.floors import Batches
from tests.bench.measure import (
    OTHER_BYTES,
    Contender,
    Goal,
    Samples,
    Section,
    Table,
    Timed,
    other_work,
    race,
)
from tests.bench.page_cache import hold
from tests.bench.peers import with_zone_maps
from tests.bench.workbench import TOPIC, Workbench, require
from tests.judges.described import describe

COLD = 20
MANY = 1_000_000  # times of one vectorised call
FETCH_BYTES = 2**20
JIT_ROUNDS = 10
CODECS = ("none", "lz4", "zstd")

_OTHERS = ", with other work"
_CALLERS: tuple[tuple[str, Callable[[], None], int], ...] = (
    ("", lambda: None, 0),
    (_OTHERS, other_work(), OTHER_BYTES),
)

_TEXT = """\
Random times and offsets of one partition ({records:,} records, written with `order = "arrival"`),
{count:,} per run. Every answer of ours is compared with a search through the plain list of times;
so is every answer of Kafka's, once, untimed. *Again*: the same times as in the warm-up, so that the
batches are decoded already. *New*: other times in each run; indexes are in memory, most batches are
not decoded yet, as with Kafka, which decodes a batch at every lookup. Kafka's `LogSegment` runs in
a loop inside its JVM over the same files; the broker serves them to a Java consumer on this
machine. `translateOffset` finds the position of a batch; `record_at` returns the record. *With
other work* some MiB of other memory are written before each lookup, in Python or in the JVM.
"""


def run(bench: Workbench) -> Section:
    """Measure."""
    truth = _Truth(bench)
    samples = race(_times(bench, truth), bench.sizes.runs, aloud=True)
    seeks = race(_seeks(bench, truth), bench.sizes.runs, aloud=True)
    count = bench.sizes.lookups
    section = Section("lookup", "Lookups", _TEXT.format(records=len(truth.timestamps), count=count))
    many, one_by_one = _vectorised(bench, truth), _one_by_one(bench, truth)
    _scalar, lean, new, segment, _broker = samples
    section.tables = [
        _table("Time to offset, in µs per lookup", samples, segment, count),
        many[0],
        _table("Offset to record or position, in µs per lookup", seeks, seeks[-1], count),
        one_by_one,
        _cold(bench, truth),
    ]
    section.goals = [
        Goal("Speed of a lookup (lean, again) as a multiple of Kafka's `LogSegment`",
             lean.times_as_fast_as(segment)[1], 1.0),
        Goal("Speed of a lookup (lean, new) as a multiple of Kafka's `LogSegment`",
             new.times_as_fast_as(segment)[1], 1.0),
    ]  # fmt: skip
    return section


class _Truth:
    """Partition 0 as a plain list: the timestamps of its records by offset."""

    def __init__(self, bench: Workbench) -> None:
        log = bench.log("arrival")
        values = log.read_range(0, 2**62, partitions=[0], columns=["value"]).read_all()["value"]
        numbers = numbers_in(values)  # ascending: the order of arrival
        self.timestamps = bench.events.times[numbers]
        self.highest = np.maximum.accumulate(self.timestamps)
        self.random = np.random.default_rng(7)

    def times(self, count: int) -> Int64s:
        """Random times that a record reaches."""
        return self.random.integers(self.timestamps[0], self.highest[-1] + 1, count)

    def offsets(self, count: int) -> Int64s:
        """Random offsets."""
        return self.random.integers(0, len(self.timestamps), count)

    def answers(self, times: Int64s) -> Int64s:
        """The first offset at each time or later."""
        return np.searchsorted(self.highest, times)


def _times(bench: Workbench, truth: _Truth) -> list[Contender]:
    log, count = bench.log("arrival"), bench.sizes.lookups
    again, lean = truth.times(count), log.reader(0).offset_for_time
    plain, fresh = again.tolist(), _New(bench, truth)

    def check(found: Any) -> None:
        offsets = [answer.offset for answer in found]
        require(np.array_equal(offsets, truth.answers(again)), "a lookup is wrong")

    right = truth.answers(again)
    name = "Kafka `LogSegment.findOffsetByTimestamp`"
    segment, broker = _segment(bench), bench.consumer(FETCH_BYTES)
    contenders = [
        Contender("Seglake `offsets_for_times`, again",
                  lambda: [log.offsets_for_times({0: time})[0] for time in plain], check),
        Contender("Seglake `offset_for_time` (lean), again", lambda: list(map(lean, plain)), check),
        Contender("Seglake `offset_for_time` (lean), new", fresh.run, fresh.check, fresh.prepare),
        _inside(bench, name, segment, "findByTimestamp", plain, right),
        _inside(bench, "Kafka broker, `offsetsForTimes` RPC", broker, "offsetsForTimes", plain,
                right),
    ]  # fmt: skip
    return _of_lake(bench, contenders)


def _of_lake(bench: Workbench, contenders: list[Contender]) -> list[Contender]:
    return [each._replace(reads=[bench.lake("arrival")]) for each in contenders]


class _New:
    """Lookups of times that were not asked for before, in a lake whose indexes are loaded."""

    def __init__(self, bench: Workbench, truth: _Truth) -> None:
        self.bench, self.truth = bench, truth

    def prepare(self) -> None:
        self.times = self.truth.times(self.bench.sizes.lookups)
        self.reader = self.bench.log("arrival").reader(0)
        for warm_up in self.truth.times(3).tolist():
            self.reader.offset_for_time(warm_up)

    def run(self) -> Any:
        return list(map(self.reader.offset_for_time, self.times.tolist()))

    def check(self, found: Any) -> None:
        offsets = [answer.offset for answer in found]
        require(np.array_equal(offsets, self.truth.answers(self.times)), "a lookup is wrong")


def _seeks(bench: Workbench, truth: _Truth) -> list[Contender]:
    log, offsets = bench.log("arrival"), truth.offsets(bench.sizes.lookups)
    plain = offsets.tolist()

    def check(found: Any) -> None:
        timestamps = [record.timestamp for record in found]
        require(np.array_equal(timestamps, truth.timestamps[offsets]), "a seek is wrong")

    name = "Kafka `LogSegment.translateOffset`"
    return _of_lake(bench, [
        Contender(
            "Seglake `record_at`, again", lambda: [log.record_at(0, o) for o in plain], check
        ),
        _inside(bench, name, _segment(bench), "findByOffset", plain, _positions(bench, offsets)),
    ])  # fmt: skip


def _positions(bench: Workbench, offsets: Int64s) -> Int64s:
    """Where in the segment of partition 0 the batches with these offsets begin."""
    (log,) = bench.partition_folder(0).glob("*.log")
    table = describe(log.read_bytes())
    found = table["position"][np.searchsorted(table["last_offset"], offsets)]
    return found.astype(np.int64)


def _inside(
    bench: Workbench, name: str, timing: Any, method: str, asked: list[int], right: Int64s
) -> Contender:
    """A contender that Java times itself, whose code Java has compiled and whose answers agree."""
    text, call = json.dumps(asked), bench.kafka.call

    def run() -> Timed:
        return Timed(call(method, text, on=timing) / 1e9, None)

    def warm_up() -> None:
        for _ in range(JIT_ROUNDS):
            run()
        found = json.loads(call("answers", on=timing))
        require(np.array_equal(found, right), f"{name} has other answers")

    return Contender(name, run, warm_up=warm_up)


def _segment(bench: Workbench, **topic: object) -> Any:
    """Kafka's LogSegment of partition 0, whose records stand in a single segment here."""
    timing, folder = bench.timing(), bench.partition_folder(0, **topic)
    (log,) = folder.glob("*.log")
    bench.kafka.call("openSegment", str(folder), int(log.stem), on=timing)
    return timing


def _vectorised(bench: Workbench, truth: _Truth) -> tuple[Table, float]:
    """Many lookups in one call, and the median of µs per lookup."""
    count = min(MANY, len(bench.events.times))
    times, log = truth.times(count), bench.log("arrival")

    def check(found: Any) -> None:
        require(np.array_equal(found[0], truth.answers(times)), "a vectorised lookup is wrong")

    call = Contender(
        "`offsets_for_times_array`", lambda: log.offsets_for_times_array(0, times), check
    )
    (sample,) = race(_of_lake(bench, [call]), bench.sizes.runs)
    spread = sample.spread(1e6 / count)
    title = f"{count:,} random times in one call, in µs per lookup"
    return Table(title, ["", "min", "median", "max"], [[call.name, *spread]]), spread[1]


def _one_by_one(bench: Workbench, truth: _Truth) -> Table:
    """Lookups timed by themselves, by codec: Kafka's depends on it as much as ours."""
    rows: list[list[Any]] = []
    for codec in CODECS:
        times = truth.times(bench.sizes.lookups)
        root = bench.lake("arrival", compression_type=codec)
        segment = _segment(bench, compression_type=codec)
        folder = bench.partition_folder(0, compression_type=codec)
        for name, between, other_bytes in _CALLERS:
            for kind, spent in _ours_by_one(truth, root, times, between):
                rows.append([f"Seglake, {codec}, {kind}{name}", *_percentiles(spent * 1e6)])
            if codec != "none":
                spent = _codec_alone(folder, codec, truth.answers(times), between)
                rows.append([f"{codec.capitalize()} alone{name}", *_percentiles(spent * 1e6)])
            text = json.dumps(times.tolist())
            for _ in range(JIT_ROUNDS):
                theirs = bench.kafka.call("eachByTimestamp", text, other_bytes, on=segment)
            spent = np.array(json.loads(theirs)) / 1e3
            rows.append([f"Kafka's `LogSegment`, {codec}{name}", *_percentiles(spent)])
    note = "Lookups that share a batch with an earlier one are *new* for Kafka alone. *Zstd alone* "
    note += "decompresses the batch of each answer, and does nothing else."
    columns = ["", "p50", "p99"]
    return Table("Time to offset by codec, each timed by itself, in µs", columns, rows, [note])


def _ours_by_one(
    truth: _Truth, root: str, times: Int64s, between: Callable[[], None]
) -> Iterator[tuple[str, Any]]:
    """Seconds of each lookup, new and then again, by a reader that has only its indexes."""
    ask = with_zone_maps(seglake.open(root).topic(TOPIC)).reader(0).offset_for_time
    for warm_up in truth.times(3).tolist():
        ask(warm_up)
    for kind in ("new", "again"):
        hold([root])
        seconds, found = zip(*[_each(ask, each, between) for each in times.tolist()], strict=True)
        offsets = [answer.offset for answer in found]
        require(np.array_equal(offsets, truth.answers(times)), "a lookup is wrong")
        yield kind, np.array(seconds)


def _codec_alone(folder: Path, codec: str, offsets: Int64s, between: Callable[[], None]) -> Any:
    """Seconds to decompress, by the codec's library, the batch of each of these answers."""
    batches = Batches.of(folder, codec)
    numbers = batches.with_offsets(offsets).tolist()
    ask = cast("Callable[[int], Any]", batches.decompress)
    return np.array([_each(ask, number, between)[0] for number in numbers])


def _each(
    ask: Callable[[int], Any], time_ms: int, between: Callable[[], None]
) -> tuple[float, Any]:
    between()
    begun = time.perf_counter()
    found = ask(time_ms)
    return time.perf_counter() - begun, found


def _percentiles(values: Any) -> list[float]:
    return [float(np.percentile(values, share)) for share in (50, 99)]


def _table(title: str, samples: list[Samples], reference: Samples, count: int) -> Table:
    rows = [
        [s.name, *s.spread(1e6 / count), *s.times_as_fast_as(reference)] for s in samples
    ]  # fmt: skip
    name = reference.name.removeprefix("Kafka ")
    columns = ["", "min", "median", "max", f"times as fast as {name}: min", "median", "max"]
    return Table(title, columns, rows)


class Tally(CountingStore):
    """Requests and bytes of index files and logs, apart."""

    def __init__(self, root: str) -> None:
        super().__init__(open_store(root))
        self.seen: dict[str, list[int]] = {}

    def read(self, key: str, start: int, end: int) -> Any:
        """As in `Store`."""
        data = super().read(key, start, end)
        self._note(key, memoryview(data).nbytes)
        return data

    def read_ranges(self, key: str, starts: Any, ends: Any) -> Any:
        """As in `Store`."""
        found = super().read_ranges(key, starts, ends)
        for data in found:
            self._note(key, memoryview(data).nbytes)
        return found

    def _note(self, key: str, size: int) -> None:
        self.seen.setdefault(key.rsplit(".", 1)[-1], []).append(size)


def _cold(bench: Workbench, truth: _Truth) -> Table:
    """Lookups by a reader that has read nothing but the catalog."""
    rows = []
    times, offsets = truth.times(COLD), truth.offsets(COLD)
    asks: dict[str, tuple[Int64s, Int64s, Callable[[Log, int], Any]]] = {
        "time to offset": (times, truth.answers(times), _offset_for_time),
        "offset to record": (offsets, truth.timestamps[offsets], _timestamp_at),
    }
    for name, (targets, answers, ask) in asks.items():
        index, log_bytes, requests = [], [], []
        for target, right in zip(targets.tolist(), answers.tolist(), strict=True):
            tally = Tally(bench.lake("arrival"))
            require(ask(Lake(tally).topic(TOPIC), target) == right, "a cold lookup is wrong")
            zones, fetched = tally.seen.get("zonemap", []), tally.seen.get("log", [])
            requests.append(len(zones) + len(fetched))
            index.append(sum(zones))
            log_bytes.append(sum(fetched))
        spreads = [(int(np.median(found)), max(found)) for found in (requests, index, log_bytes)]
        rows.append([name, *(value for spread in spreads for value in spread)])
    columns = ["", "requests: median", "max", "index bytes: median", "max", "log bytes: median",
               "max"]  # fmt: skip
    return Table(f"Cold: the first lookup of a reader, {COLD} of each", columns, rows)


def _offset_for_time(log: Log, time: int) -> Any:
    found = log.reader(0).offset_for_time(time)
    return found and found.offset


def _timestamp_at(log: Log, offset: int) -> Any:
    return log.record_at(0, offset).timestamp
