"""Windows of time: the records of a second, ten, a minute, beside what others hand out."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as f

from seglake.datasource import events_between, register
from seglake.datasource.source import struct_of
from seglake.log.execute import ReadStats
from tests.bench import peers
from tests.bench.events import Int64s, numbers_in
from tests.bench.floors import RowsInMemory, store_batches
from tests.bench.fresh import WARM_UP, Task, digest, read_alone
from tests.bench.measure import (
    OTHER_BYTES,
    Goal,
    Samples,
    Section,
    Table,
    Timed,
    in_turns,
    say,
    timed,
)
from tests.bench.page_cache import hold
from tests.bench.peers import COLUMNS
from tests.bench.workbench import TOPIC, Workbench, adaptive, require

LENGTHS_MS = (1_000, 10_000, 60_000)
ORDERS = ("arrival", "time")
CODECS = ("none", "lz4", "zstd")
FETCH_BYTES = 2**18
THREADS, SIDE_BY_SIDE = 8, 10_000  # readers at once, and the length of their windows

# goals: times the time of Vortex, by reader
AGAINST_VORTEX = {"Seglake, time": 1.3}
# by reader: the name of one that only decompresses the same batches, their codec and order
FLOORS = {
    "Seglake, time": ("zstd alone, time", "zstd", "time"),
    "Seglake, time, lz4": ("lz4 alone, time", "lz4", "time"),
    "Seglake, arrival": ("zstd alone, arrival", "zstd", "arrival"),
}
FIRST_MS = 3.0  # the longest of a process's first windows
AGAINST_DELTA = 5.0
VORTEX = "Vortex, mapped, times in memory"
DELTA = ("Spark on Delta", "Spark on Delta, by time")
BETWEEN, SOURCE = "Spark, `events_between`", 'Spark, `format("seglake")`'
AS_TABLE, NO_ROWS = "Spark, a table in memory", "Spark, a Python data source without rows"
THROUGH_SPARK = {BETWEEN: (AS_TABLE, 1.25), SOURCE: (NO_ROWS, 1.5)}  # the floor, times its time

_TEXT = """\
{count} random windows of each length, none of which overlaps another, all partitions, key, value
and time of each record handed to the caller (Arrow tables; Java objects in the consumer). The
records of every window are compared with the events that a pass over all of them finds. Events are
up to seconds late.
Every reader without a JVM reads in a process of its own, {runs} times, in turns: it opens its file,
reads {warm_up} other windows of each length, then each window once (*new*) and three times more, of
which the last counts as *again*. *With other work* the caller writes {other} MiB of other memory
before each window, as callers do who use what they read. All have open what can be kept open:
handles, footers, indexes; those with *times in memory* hold the time of every event there. Seglake
decompresses with two threads where a window is long enough; Polars, DuckDB, Vortex and Lance take
what threads they like.
Parquet holds the events sorted by time, in row groups of 8,192 rows, the best layout for short
windows, and of 1,024 for pyarrow. *MiB* is the largest resident set of that process.
Kafka's broker serves the files that `order = "arrival"` wrote; its tuned Java consumer asks for the
offsets of the two times, seeks, and reads to the second offset, and so does Spark's Kafka source.
*Padded* reads end at the offset of a time {pad:,} ms later, which is as late as any event is, and
are filtered by time. One Delta table is hash-partitioned, the other one laid out by time; both are
sorted by time within files, and are read with adaptive execution as it comes. `events_between`
reads such windows in the driver and gives Spark a DataFrame that holds them; *a table in memory* is
such a window, read before its time begins. *A Python data source without rows* has one task, which
yields nothing. Those on Spark read
each window once, in the session of this run. *Amplification* is bytes fetched per byte of the
batches that have a record of the window, counted by `ReadStats` when nothing is cached.
*Zstd alone* and *lz4 alone* know which batches have a record of the window, and only decompress
them by the codec's Python library, in two threads where they are many.
A read that ends at *the offset of the end time* stops before the
records of the window that came late, and brings those of other times that stand between. *Lost*
is the share of the windows' records that did not come, *foreign* counts records outside the
window per record inside.
"""


class System(NamedTuple):
    """A reader in this process: `read(start_ms, end_ms)` is timed, `lines` takes the lines out."""

    name: str
    read: Callable[[int, int], Any]
    lines: Callable[[Any], Any]
    rounds: int  # a slow one reads each window once
    exact: bool = True


class _Score:
    """How right the windows of one reader were."""

    def __init__(self) -> None:
        self.exact = self.windows = self.lost = self.foreign = self.wanted = 0

    def add(self, found: Int64s, wanted: Int64s) -> None:
        lost = len(np.setdiff1d(wanted, found, assume_unique=True))
        foreign = len(found) - (len(wanted) - lost)
        self.windows += 1
        self.exact += not lost and not foreign
        self.lost += lost
        self.foreign += foreign
        self.wanted += len(wanted)


class _Row:
    """What is known of one reader of windows of one length: seconds by window."""

    def __init__(self, windows: int) -> None:
        self.new: list[list[float]] = [[] for _ in range(windows)]
        self.again: list[list[float]] = [[] for _ in range(windows)]
        self.first: list[float] = []  # seconds of the longest one of the warm-up, by process
        self.score = _Score()
        self.peak = 0

    @property
    def samples(self) -> Samples:
        return Samples("", [s for each in self.new for s in each])

    @property
    def again_ms(self) -> float | None:
        flat = [1000 * s for each in self.again for s in each]
        return statistics.median(flat) if flat else None

    @property
    def new_ms(self) -> float:
        return self.samples.spread(1000)[1]

    def times_the_time_of(self, other: _Row) -> list[float]:
        """[min, median, max] of this time by the other's, over the rounds that both have."""
        pairs = [zip(a, b, strict=False) for a, b in zip(self.new, other.new, strict=True)]
        found = [mine / theirs for pair in pairs for mine, theirs in pair]
        return [min(found), statistics.median(found), max(found)]


_Rows = dict[str, _Row]
_ByLength = dict[int, _Rows]
_Together = dict[str, list[tuple[float, list[float]]]]  # by reader: seconds of all, of each window


def run(bench: Workbench) -> Section:
    """Measure."""
    pad = _pad_ms(bench)
    section = Section("window", "Windows", _TEXT.format(
        count=bench.sizes.windows, runs=bench.sizes.runs, warm_up=WARM_UP, pad=pad,
        other=OTHER_BYTES // 2**20,
    ))  # fmt: skip
    starts = _starts(bench, section)
    roots = _roots(bench)
    known, busy = (
        {length: {name: _Row(bench.sizes.windows) for name in roots} for length in starts}
        for _ in range(2)
    )
    together = _alone(bench, roots, starts, known, busy)
    if absent := sorted(set(peers.READERS) - set(roots)):
        bench.skipped.append(f"{', '.join(absent)}: `make bench` installs what they need.")
    systems = _systems(bench, pad)
    for length, chosen in starts.items():
        say(f"  windows of {length} ms, by others")
        known[length] |= _here(bench, systems, chosen, length)
    for length, rows in known.items():
        amplified = {
            order: _amplification(bench, order, starts[length], length) for order in ORDERS
        }
        section.tables.append(_table(rows, amplified, length))
        section.goals += _goals(rows, length)
    section.tables += [_among_other_work(busy), _codecs(bench, known)]
    section.goals += _goals_among_other_work(busy)
    if together:
        section.tables.append(_side_by_side(together))
    return section


def _pad_ms(bench: Workbench) -> int:
    """How late an event is at most: without this a consumer does not know where to stop."""
    times = bench.events.times
    return int((np.maximum.accumulate(times) - times).max()) + 1


def _starts(bench: Workbench, section: Section) -> dict[int, list[int]]:
    """The first ms of the windows of each length, those of the warm-up first.

    Where there is time enough, no two windows overlap: what is new was not read before.
    """
    first, span = bench.events.start_ms, bench.events.end_ms - bench.events.start_ms
    lengths = [length for length in LENGTHS_MS if length < span]
    section.notes += [
        f"Windows of {length} ms are longer than all events together."
        for length in LENGTHS_MS[len(lengths) :]
    ]
    random, count = np.random.default_rng(11), WARM_UP + bench.sizes.windows
    longest = max(lengths, default=1)
    places = span // longest
    chosen = random.choice(places, (len(lengths), count), replace=places < count * len(lengths))
    found = {}
    for length, own in zip(lengths, chosen, strict=True):
        within = random.integers(0, longest - length, count, endpoint=True)
        found[length] = (first + own * longest + within).tolist()
    return found


# readers in processes of their own


def _roots(bench: Workbench) -> dict[str, str]:
    """The lake of each reader of ours; "" for the others that are installed."""
    ours = {f"Seglake, {order}": bench.lake(order) for order in ("time", "arrival")}
    for codec in CODECS[:2]:
        ours[f"Seglake, time, {codec}"] = bench.lake("time", compression_type=codec)
    ours |= {floor: _root_of(bench, codec, order) for floor, codec, order in FLOORS.values()}
    return ours | dict.fromkeys(peers.prepare(bench.parquet, bench.folder / "peers"), "")


def _alone(
    bench: Workbench,
    roots: dict[str, str],
    starts: dict[int, list[int]],
    known: _ByLength,
    busy: _ByLength,
) -> _Together:
    """Every reader in new processes, round after round, without other work and with it."""
    wanted = {
        length: [bench.events.between(s, s + length) for s in chosen[WARM_UP:]]
        for length, chosen in starts.items()
    }
    names, together = [(name, among) for name in roots for among in (False, True)], _Together()
    for number in range(bench.sizes.runs):
        for turn in in_turns(len(names)):
            name, among = names[turn]
            say(f"  round {number + 1}: {name}{', with other work' * among}")
            found = read_alone(_task(bench, name, roots[name], starts, busy=among))
            if found.together[1]:
                together.setdefault(name, []).append(found.together)
            for length, rows in (busy if among else known).items():
                _take(rows[name], found, str(length), wanted[length], name)
    return together


def _task(
    bench: Workbench, name: str, root: str, starts: dict[int, list[int]], *, busy: bool
) -> Task:
    windows = {str(length): chosen for length, chosen in starts.items()}
    length = str(SIDE_BY_SIDE) if SIDE_BY_SIDE in starts and not busy else ""
    folder = str(bench.folder / "peers")
    codec = next((codec for floor, codec, _ in FLOORS.values() if floor == name), "")
    parquet = str(bench.parquet)
    return Task(name, root, TOPIC, parquet, folder, windows, length, THREADS, busy, codec)


def _take(row: _Row, found: Any, length: str, wanted: list[Int64s], name: str) -> None:
    right = [digest(numbers) for numbers in wanted]
    require(found.digests[length] == right, f"{name} returned wrong windows")
    for numbers, new, again, times in zip(
        wanted, row.new, row.again, zip(found.new[length], found.again[length], strict=True),
        strict=True,
    ):  # fmt: skip
        if not new:
            row.score.add(numbers, numbers)
        new.append(times[0])
        again.append(times[1])
    row.peak = max(row.peak, found.peak)
    row.first.append(max(found.first[length]))


# readers with a JVM


def _here(bench: Workbench, systems: list[System], starts: list[int], length: int) -> _Rows:
    """Each of them in its turn, window after window."""
    warm_up, starts = starts[:WARM_UP], starts[WARM_UP:]
    rows = {system.name: _Row(len(starts)) for system in systems}
    for system in systems:
        for start in warm_up:
            system.read(start, start + length)
    for at, start in enumerate(starts):
        wanted = bench.events.between(start, start + length)
        hold([bench.lake("arrival"), bench.delta, bench.delta_by_time])
        for number in range(bench.sizes.runs):
            for turn in in_turns(len(systems)):
                system = systems[turn]
                if number >= system.rounds:
                    continue
                found = timed(partial(system.read, start, start + length))
                rows[system.name].new[at].append(found.seconds)
                if not number:
                    rows[system.name].score.add(numbers_in(system.lines(found.result)), wanted)
    for system in systems:
        right = rows[system.name].score.exact == len(starts)
        require(right or not system.exact, f"{system.name} returned wrong windows")
    return rows


def _systems(bench: Workbench, pad: int) -> list[System]:
    runs = bench.sizes.runs
    register(bench.spark)  # Spark finds it by itself only where the package is installed
    return [
        System("Kafka consumer, tuned", *_consumer(bench, "readWindow"), runs, exact=False),
        System("Kafka consumer, padded", *_consumer(bench, "readPadded", pad), runs),
        System(DELTA[0], _spark_delta(bench, str(bench.delta)), _values, 1),
        System(DELTA[1], _spark_delta(bench, str(bench.delta_by_time)), _values, 1),
        System(BETWEEN, _spark_between(bench), _values, 1),
        System(AS_TABLE, _spark_table(bench), _values, 1),
        System(SOURCE, _spark_seglake(bench), _values, 1),
        System(NO_ROWS, _spark_no_rows(bench), _values, 1, exact=False),
        *_kafka_sources(bench, pad),
    ]


def _values(table: Any) -> Any:
    return table["value"]


def _kafka_sources(bench: Workbench, pad: int) -> list[System]:
    if not bench.has_spark_kafka:
        return []
    return [
        System("Spark's Kafka source", _spark_kafka(bench, None), _values, 1, exact=False),
        System("Spark's Kafka source, padded", _spark_kafka(bench, pad), _values, 1),
    ]


def _spark_delta(bench: Workbench, path: str) -> Callable[[int, int], Any]:
    frame = bench.spark.read.format("delta").load(path)

    def read(start: int, end: int) -> Any:
        with adaptive(bench.spark):
            return frame.where((frame.time >= start) & (frame.time < end)).toArrow()

    return read


def _spark_between(bench: Workbench) -> Callable[[int, int], Any]:
    log = bench.log("time")

    def read(start: int, end: int) -> Any:
        return events_between(bench.spark, log, start, end, columns=COLUMNS).toArrow()

    return read


def _spark_table(bench: Workbench) -> Callable[[int, int], Any]:
    """What `events_between` cannot do without: the table that it has read goes to Spark."""
    log, struct = bench.log("time"), struct_of(COLUMNS)

    def read(start: int, end: int) -> Timed:
        table = log.read_range(start, end, columns=COLUMNS).read_all()
        return timed(lambda: bench.spark.createDataFrame(table, struct).toArrow())

    return read


def _spark_no_rows(bench: Workbench) -> Callable[[int, int], Any]:
    """What any Python data source takes: it plans one task, which yields one empty batch."""
    bench.spark.dataSource.register(RowsInMemory)
    struct = struct_of(COLUMNS)
    schema = bench.spark.createDataFrame([], struct).toArrow().schema
    nothing = pa.RecordBatch.from_pylist([], schema)
    options = store_batches([[nothing]], struct, bench.folder / "no-rows")
    source = bench.spark.read.format(RowsInMemory.name()).options(**options)
    return lambda _start, _end: source.load().toArrow()


def _spark_seglake(bench: Workbench) -> Callable[[int, int], Any]:
    def read(start: int, end: int) -> Any:
        source = bench.spark.read.format("seglake").option("path", bench.lake("time"))
        source = source.option("subscribe", TOPIC).option("startTime", start).option("endTime", end)
        return source.option("columns", ",".join(COLUMNS)).load().toArrow()

    return read


def _spark_kafka(bench: Workbench, pad: int | None) -> Callable[[int, int], Any]:
    def read(start: int, end: int) -> Any:
        source = bench.spark.read.format("kafka").option("subscribe", TOPIC)
        source = source.option("kafka.bootstrap.servers", bench.broker.address)
        source = source.option("startingTimestamp", start)
        source = source.option("endingTimestamp", end + (pad or 0))
        frame, time = source.load().select(*COLUMNS), f.unix_millis("timestamp")
        within = (time >= start) & (time < end)
        return (frame if pad is None else frame.where(within)).toArrow()

    return read


def _consumer(
    bench: Workbench, method: str, *more: int
) -> tuple[Callable[[int, int], Timed], Callable[[Any], Any]]:
    timing, call = bench.consumer(FETCH_BYTES), bench.kafka.call

    def read(start: int, end: int) -> Timed:
        return Timed(call(method, start, end, *more, on=timing) / 1e9, None)

    def lines(_result: object) -> Any:
        return pa.array(bytes(call("values", on=timing)).splitlines(), pa.large_binary())

    return read, lines


# tables and goals


def _amplification(bench: Workbench, order: str, starts: list[int], length: int) -> float:
    """Of all windows together, each read by a reader that keeps nothing of another."""
    stats = ReadStats()
    for start in starts:
        bench.log(order).read_range(start, start + length, columns=COLUMNS, stats=stats).read_all()
    return stats.amplification


def _table(rows: _Rows, amplified: dict[str, float], length: int) -> Table:
    first = next(iter(rows.values()))
    cells = []
    for name, row in rows.items():
        score, samples = row.score, row.samples
        low, middle, _ = samples.spread(1000)
        again, known = row.again_ms, amplified.get(name.removeprefix("Seglake, "))
        cells.append([
            name, low, middle, samples.p99(1000), *row.times_the_time_of(first),
            "-" if again is None else again, f"{score.exact} of {score.windows}",
            100 * score.lost / max(1, score.wanted), score.foreign / max(1, score.wanted),
            "-" if known is None else known, row.peak / 2**20 if row.peak else "-",
        ])  # fmt: skip
    title = f"Windows of {length // 1000} s, about {first.score.wanted // len(first.new):,} records"
    columns = ["", "new, ms: min", "median", "p99", "times the time of the first: min", "median",
               "max", "again, ms: median", "exact", "lost, %", "foreign", "amplification",
               "MiB"]  # fmt: skip
    return Table(title, columns, cells)


def _among_other_work(busy: _ByLength) -> Table:
    """The same windows where other memory is in use between them."""
    cells: list[list[Any]] = []
    for name in next(iter(busy.values())):
        rows = [by_name[name] for by_name in busy.values()]
        beside = [by_name.get(VORTEX) for by_name in busy.values()]
        ratios = [row.times_the_time_of(them)[1] if them else "-"
                  for row, them in zip(rows, beside, strict=True)]  # fmt: skip
        cells.append([name, *(row.new_ms for row in rows), *(row.again_ms for row in rows),
                      *ratios, *(1000 * max(row.first) for row in rows)])  # fmt: skip
    lengths = [f"{length // 1000} s" for length in busy]
    kinds = ("new, ms", "again, ms", "times the time of Vortex, new", "longest of the first, ms")
    columns = ["", *(f"{kind}: {length}" for kind in kinds for length in lengths)]
    return Table("Windows with other work of the caller between them, medians", columns, cells)


def _goals_among_other_work(busy: _ByLength) -> list[Goal]:
    first = max(max(rows["Seglake, time"].first) for rows in busy.values())
    text = "With other work, the longest of a process's first windows, time, ms"
    return [Goal(text, 1000 * first, FIRST_MS, at_least=False)]


def _against_vortex(rows: _Rows, title: str) -> list[Goal]:
    if VORTEX not in rows:
        return []
    return [
        Goal(f"{title}, {name.removeprefix('Seglake, ')}: times the time of Vortex",
             rows[name].times_the_time_of(rows[VORTEX])[1], limit, at_least=False)
        for name, limit in AGAINST_VORTEX.items()
    ]  # fmt: skip


def _codecs(bench: Workbench, known: _ByLength) -> Table:
    """Bytes against time, by codec."""
    cells: list[list[Any]] = []
    for codec in CODECS:
        name = "Seglake, time" if codec == "zstd" else f"Seglake, time, {codec}"
        size = bench.log_bytes(_root_of(bench, codec)) / 1e6
        times = [1000 * statistics.median(rows[name].samples.seconds) for rows in known.values()]
        again = [rows[name].again_ms or 0.0 for rows in known.values()]
        cells.append([codec, size, *times, *again])
    lengths = [f"{length // 1000} s" for length in known]
    columns = ["codec", "log, MB", *(f"new, ms: {each}" for each in lengths),
               *(f"again: {each}" for each in lengths)]  # fmt: skip
    return Table('Codecs, `order = "time"`: bytes against time, medians', columns, cells)


def _root_of(bench: Workbench, codec: str, order: str = "time") -> str:
    return bench.lake(order) if codec == "zstd" else bench.lake(order, compression_type=codec)


def _side_by_side(together: _Together) -> Table:
    rows = []
    for name, rounds in together.items():
        whole, each = zip(*rounds, strict=True)
        flat = Samples(name, [s for some in each for s in some])
        rate = statistics.median(len(some) / s for s, some in rounds)
        rows.append([name, rate, flat.spread(1000)[1], flat.p99(1000), min(whole)])
    title = f"{THREADS} readers at once in one process, windows of {SIDE_BY_SIDE // 1000} s"
    columns = ["", "windows per s: median", "ms per window: median", "p99", "s of a round: min"]
    note = "All of them were read before by the same process, so that its caches have them."
    return Table(title, columns, rows, notes=[note])


def _goals(rows: _Rows, length: int) -> list[Goal]:
    title = f"New windows of {length // 1000} s"
    goals, ours = _against_vortex(rows, title), rows["Seglake, time"]
    parquet = [row for name, row in rows.items() if "Parquet" in name or "Lance" in name]
    best = min(row.times_the_time_of(ours)[1] for row in parquet)
    goals.append(Goal(f"{title}, time: times as fast as the best of Parquet and Lance", best, 1.0))
    for way in (BETWEEN, SOURCE) if length == SIDE_BY_SIDE else ():
        delta = min(rows[name].times_the_time_of(rows[way])[1] for name in DELTA)
        text = f"{title} through {way}: times as fast as the better Delta table"
        goals.append(Goal(text, delta, AGAINST_DELTA))
    return goals
