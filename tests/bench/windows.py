"""Windows of time: the records of a second, ten, a minute, beside what others hand out."""

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from seglake.datasource import events_between, register
from tests.bench import peers
from tests.bench.events import numbers_in
from tests.bench.fresh import WARM_UP, Task, digest, read_alone
from tests.bench.measure import OTHER_BYTES, Goal, Samples, Section, Table, in_turns, say, timed
from tests.bench.page_cache import hold
from tests.bench.peers import COLUMNS
from tests.bench.workbench import TOPIC, Workbench, adaptive, require

LENGTHS_MS = (1_000, 10_000, 60_000)
THROUGH_SPARK_MS = 10_000  # the length that Spark's readers are asked for
AGAINST_VORTEX = {1000: 2.0, 10_000: 1.8, 60_000: 1.3}  # see decision 16
AGAINST_DELTA, FIRST_MS = 5.0, 3.0
OURS, BUSY, VORTEX = "Seglake, time", "Seglake, time, with other work", "Vortex, mapped"
DELTA = ("Spark on Delta", "Spark on Delta, by time")
BETWEEN, SOURCE = "Spark, `events_between`", 'Spark, `format("seglake")`'

_TEXT = """\
{count} random windows of each length, none of which overlaps another, all partitions, key, value
and time of each record handed to the caller as Arrow tables. The records of every window are
compared with the events that a pass over all of them finds. Events are up to seconds late.

Every reader without a JVM reads in a process of its own, {runs} times, in random order: it opens
its file, reads {warm_up} other windows of each length, then each window once. *With other work* the
caller writes {other} MiB of other memory before each window. All have open what can be kept open:
handles, footers, indexes; those with *times in memory* hold the time of every event there. Parquet
holds the events sorted by time, in row groups of 8,192 rows, the best layout for short windows, and
of 1,024 for pyarrow. One Delta table is hash-partitioned, the other one laid out by time; both are
sorted by time within files, and are read with adaptive execution. Readers on Spark read each window
of ten seconds, in the session of this run.
"""

_Rows = dict[str, list[list[float]]]  # by reader: seconds of each window, by round


def run(bench: Workbench) -> Section:
    """Measure."""
    section = Section("window", "Windows", _TEXT.format(
        count=bench.sizes.windows, runs=bench.sizes.runs, warm_up=WARM_UP,
        other=OTHER_BYTES // 2**20,
    ))  # fmt: skip
    starts = _starts(bench, section)
    names = peers.prepare(bench.parquet, bench.folder / "peers")
    if absent := sorted(set(peers.READERS) - set(names)):
        bench.skipped.append(f"{', '.join(absent)}: `make bench` installs what they need.")
    rows, first_s = _alone(bench, [OURS, BUSY, *names], starts)
    if THROUGH_SPARK_MS in starts:
        rows[THROUGH_SPARK_MS] |= _on_spark(bench, starts[THROUGH_SPARK_MS])
    for length, of_length in rows.items():
        section.tables.append(_table(of_length, length))
        section.goals += _goals(of_length, length)
    text = "Longest of a process's first windows, with other work, ms"
    section.goals.append(Goal(text, 1000 * first_s, FIRST_MS, at_least=False))
    return section


def _starts(bench: Workbench, section: Section) -> dict[int, list[int]]:
    """Draw the first ms of the windows of each length, those of the warm-up first.

    No two windows overlap where the events last long enough, so each window is new to its reader.
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


def _alone(
    bench: Workbench, names: list[str], starts: dict[int, list[int]]
) -> tuple[dict[int, _Rows], float]:
    """Read in new processes, round after round. Also return the longest first window of `BUSY`."""
    wanted = {
        str(length): [digest(bench.events.between(s, s + length)) for s in chosen[WARM_UP:]]
        for length, chosen in starts.items()
    }
    rows: dict[int, _Rows] = {length: {name: [] for name in names} for length in starts}
    first_s = 0.0
    for number in range(bench.sizes.runs):
        for turn in in_turns(len(names)):
            name = names[turn]
            say(f"  round {number + 1}: {name}")
            found = read_alone(_task(bench, name, starts))
            require(found.digests == wanted, f"{name} returned wrong windows")
            for length in starts:
                rows[length][name].append(found.seconds[str(length)])
            if name == BUSY:
                first_s = max(first_s, *(max(each) for each in found.first.values()))
    return rows, first_s


def _task(bench: Workbench, name: str, starts: dict[int, list[int]]) -> Task:
    root = bench.lake("time") if name in (OURS, BUSY) else ""
    windows = {str(length): chosen for length, chosen in starts.items()}
    peers_folder = str(bench.folder / "peers")
    return Task(name, root, TOPIC, str(bench.parquet), peers_folder, windows, name == BUSY)


def _on_spark(bench: Workbench, starts: list[int]) -> _Rows:
    """Read each window once by each of Spark's readers, in random order."""
    register(bench.spark)  # Spark finds it by itself only where the package is installed
    systems: dict[str, Callable[[int, int], Any]] = {
        DELTA[0]: partial(_delta, bench, str(bench.delta)),
        DELTA[1]: partial(_delta, bench, str(bench.delta_by_time)),
        BETWEEN: partial(_between, bench, bench.log("time")),
        SOURCE: partial(_source, bench),
    }
    names = list(systems)
    for read in systems.values():
        for start in starts[:WARM_UP]:
            read(start, start + THROUGH_SPARK_MS)
    rows: _Rows = {name: [[]] for name in names}
    hold([bench.lake("time"), bench.delta, bench.delta_by_time])
    for start in starts[WARM_UP:]:
        end = start + THROUGH_SPARK_MS
        for turn in in_turns(len(names)):
            name = names[turn]
            found = timed(partial(systems[name], start, end))
            numbers = numbers_in(found.result["value"])
            right = np.array_equal(numbers, bench.events.between(start, end))
            require(right, f"{name} returned wrong windows")
            rows[name][0].append(found.seconds)
    return rows


def _delta(bench: Workbench, path: str, start: int, end: int) -> Any:
    frame = bench.spark.read.format("delta").load(path)
    with adaptive(bench.spark):
        return frame.where((frame.time >= start) & (frame.time < end)).toArrow()


def _between(bench: Workbench, log: Any, start: int, end: int) -> Any:
    return events_between(bench.spark, log, start, end, columns=COLUMNS).toArrow()


def _source(bench: Workbench, start: int, end: int) -> Any:
    source = bench.spark.read.format("seglake").option("path", bench.lake("time"))
    source = source.option("subscribe", TOPIC).option("startTime", start).option("endTime", end)
    return source.option("columns", ",".join(COLUMNS)).load().toArrow()


def _samples(rows: _Rows, name: str) -> Samples:
    return Samples(name, [seconds for one_round in rows[name] for seconds in one_round])


def _ratio(rows: _Rows, name: str, other: str) -> list[float]:
    """Return [min, median, max] of a reader's time by another's, over the rounds of both."""
    rounds = min(len(rows[name]), len(rows[other]))
    mine, theirs = (Samples(each, [*chain(*rows[each][:rounds])]) for each in (name, other))
    return theirs.times_as_fast_as(mine)


def _table(rows: _Rows, length: int) -> Table:
    first = next(iter(rows))
    cells = [
        [name, *_samples(rows, name).spread(1000)[:2], _samples(rows, name).p99(1000),
         *_ratio(rows, name, first)]
        for name in rows
    ]  # fmt: skip
    columns = ["", "ms: min", "median", "p99", "times the time of the first: min", "median", "max"]
    return Table(f"New windows of {length // 1000} s", columns, cells)


def _goals(rows: _Rows, length: int) -> list[Goal]:
    title, goals = f"a window of {length // 1000} s", list[Goal]()
    for vortex in (name for name in rows if name.startswith(VORTEX)):
        text = f"Time of {title}, relative to Vortex"
        goals.append(
            Goal(text, _ratio(rows, OURS, vortex)[1], AGAINST_VORTEX[length], at_least=False)
        )
    others = [name for name in rows if "Parquet" in name or "Lance" in name]
    best = min(_ratio(rows, name, OURS)[1] for name in others)
    text = f"Speed of {title}, relative to the best of Parquet and Lance"
    goals.append(Goal(text, best, 1.0))
    for way in (BETWEEN, SOURCE) if BETWEEN in rows else ():
        delta = min(_ratio(rows, name, way)[1] for name in DELTA)
        text = f"Speed of {title}, {way}, relative to the better Delta table"
        goals.append(Goal(text, delta, AGAINST_DELTA))
    return goals
