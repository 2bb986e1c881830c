"""Windows of time: the records of a second, ten, a minute, beside what others hand out."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from seglake.read.log import Log
from seglake.read.window.execute import ReadStats
from tests.bench import peers
from tests.bench.events import Int64s, numbers_in
from tests.bench.measure import Goal, Samples, Section, Table, Timed, say, timed
from tests.bench.workbench import TOPIC, Sizes, Workbench, require

LENGTHS_MS = (1_000, 10_000, 60_000)
AGAINST_VORTEX = {1_000: 0.8, 10_000: 0.85, 60_000: 1.15}
LIMITS = {"arrival": 2.0, "time": 1.2}  # of the amplification, by order
COLUMNS = ["key", "value", "timestamp"]
FETCH_BYTES = 2**18

_TEXT = """\
{count} random windows of each length, all partitions, key, value and time of each record handed
to the caller (Arrow tables; Java objects in the consumer). The records of every window are
compared with the events that a pass over all of them finds. Events are up to seconds late.
Parquet holds them sorted by time in row groups of 8,192 rows, the best layout found for short
windows; the Delta table is hash-partitioned and sorted by time. Readers with *times in memory* find
the rows of a window there, and read them from a file in the order of time: Parquet in row groups of
1,024 rows, Vortex, Lance. Kafka's broker serves the files
that `order = "arrival"` wrote; its tuned Java consumer asks for the offsets of the two times,
seeks, and reads to the second offset, and so does Spark's Kafka source with `startingTimestamp`
and `endingTimestamp`. The Java consumer sends the next fetch at once: `fetch.queue.backoff.ms` is a
setting of librdkafka. All systems read all windows before, as a warm-up; then those on Spark read
each once, the others {runs} times, in turns. *New*: Seglake has its indexes in memory and nothing
of the log; *again*: it has read the window before, and keeps what it decompressed. Ratios are taken
window by window. *Amplification* is bytes fetched per byte of the batches that have a record of the
window, counted by `ReadStats` when nothing is cached.
"""
_RULE = """\
A read that ends at *the offset of the end time*, which is all that Kafka offers, stops before the
records of the window that came late, and brings those of other times that stand between. *Lost*
is the share of the windows' records that did not come, *foreign* counts records outside the
window per record inside.
"""


class System(NamedTuple):
    """A reader of windows: `read(start_ms, end_ms)` is timed, `lines` takes the raw lines out."""

    name: str
    read: Callable[[int, int], Any]
    lines: Callable[[Any], Any]
    rounds: int  # a slow one reads each window once
    exact: bool = True


class _Score:
    """How right the windows of one system were."""

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


def run(bench: Workbench) -> Section:
    """Measure."""
    systems = _systems(bench)
    section = Section("window", "Windows", _text(bench.sizes))
    random = np.random.default_rng(11)
    for length in LENGTHS_MS:
        if length >= bench.events.end_ms - bench.events.start_ms:
            section.notes.append(f"Windows of {length} ms are longer than all events together.")
            continue
        latest = bench.events.end_ms - length
        starts = random.integers(bench.events.start_ms, latest, bench.sizes.windows).tolist()
        say(f"  windows of {length} ms")
        seconds, scores = _measure(bench, systems, starts, length)
        amplified = {order: _amplification(bench, order, starts, length) for order in LIMITS}
        section.tables.append(_table(bench, systems, seconds, scores, length))
        _add_column(section.tables[-1], amplified)
        section.goals += _goals(seconds, length)
        if length == max(LENGTHS_MS):
            section.goals += [
                Goal(f"Amplification in windows of {length // 1000} s, {order}",
                     amplified[order], limit, at_least=False)
                for order, limit in LIMITS.items()
            ]  # fmt: skip
    return section


def _text(sizes: Sizes) -> str:
    return _TEXT.format(count=sizes.windows, runs=sizes.runs) + _RULE


def _amplification(bench: Workbench, order: str, starts: list[int], length: int) -> float:
    """Of all windows together, each read by a reader that keeps nothing of another."""
    stats = ReadStats()
    for start in starts:
        bench.log(order).read_range(start, start + length, columns=COLUMNS, stats=stats).read_all()
    return stats.amplification


def _add_column(table: Table, amplified: dict[str, float]) -> None:
    """Amplification, for the rows in which something is fetched and counted."""
    known = {f"Seglake, {order}, new": value for order, value in amplified.items()}
    table.columns.append("amplification")
    for row in table.rows:
        row.append(known.get(row[0], "-"))


def _measure(
    bench: Workbench, systems: list[System], starts: list[int], length: int
) -> tuple[dict[str, list[list[float]]], dict[str, _Score]]:
    """For each system the seconds of each window's rounds, and its score."""
    seconds: dict[str, list[list[float]]] = {system.name: [] for system in systems}
    scores = {system.name: _Score() for system in systems}
    for system in systems:
        for start in starts:
            system.read(start, start + length)
    for start in starts:
        wanted = bench.events.between(start, start + length)
        for spent in seconds.values():
            spent.append([])
        for number in range(bench.sizes.runs):
            for system in systems:
                if number < system.rounds:
                    found = timed(partial(system.read, start, start + length))
                    seconds[system.name][-1].append(found.seconds)
                    if not number:
                        scores[system.name].add(numbers_in(system.lines(found.result)), wanted)
    for system in systems:
        right = scores[system.name].exact == len(starts)
        require(right or not system.exact, f"{system.name} returned wrong windows")
    return seconds, scores


def _systems(bench: Workbench) -> list[System]:
    runs = bench.sizes.runs
    logs = {order: bench.log(order) for order in ("arrival", "time")}
    ours = {f"{order}, new": _new(bench, order) for order in logs}
    ours |= {f"{order}, again": _again(log) for order, log in logs.items()}
    systems = [
        System(f"Seglake, {name}", read, lambda table: table["value"], runs)
        for name, read in ours.items()
    ]
    systems += [
        System("Polars on Parquet", _polars(bench), lambda table: table["value"], runs),
        System("DuckDB on Parquet", _duckdb(bench), lambda table: table["value"], runs),
        *_peers(bench),
        System("Kafka consumer, tuned", *_consumer(bench), runs, exact=False),
        System("Spark on Delta", _spark_delta(bench), lambda table: table["value"], 1),
    ]
    if bench.has_spark_kafka:
        read = _spark_kafka(bench)
        systems.append(System("Spark's Kafka source", read, lambda t: t["value"], 1, exact=False))
    return systems


def _again(log: Log) -> Callable[[int, int], Any]:
    return lambda start, end: log.read_range(start, end, columns=COLUMNS).read_all()


def _new(bench: Workbench, order: str) -> Callable[[int, int], Timed]:
    def read(start: int, end: int) -> Timed:
        log = bench.log(order)
        log.plan_range(start, end)  # which reads the zone maps
        return timed(partial(_again(log), start, end))

    return read


def _peers(bench: Workbench) -> list[System]:
    """Readers of other formats, with the times of all events in memory."""
    found = peers.readers(bench.parquet, bench.scratch("peers"))
    if len(found) < len(peers.MAKERS):
        bench.skipped.append("Vortex and Lance: `make bench` installs what they need.")
    runs = bench.sizes.runs
    return [System(name, read, lambda table: table["value"], runs) for name, read in found.items()]


def _polars(bench: Workbench) -> Callable[[int, int], Any]:
    frame = pl.scan_parquet(bench.parquet)
    time = pl.col("time")
    return lambda start, end: frame.filter((time >= start) & (time < end)).collect().to_arrow()


def _duckdb(bench: Workbench) -> Callable[[int, int], Any]:
    connection = duckdb.connect()
    connection.execute("SET parquet_metadata_cache = true")
    query = f"SELECT * FROM read_parquet('{bench.parquet}') WHERE time >= ? AND time < ?"
    return lambda start, end: connection.sql(query, params=[start, end]).to_arrow_table()


def _spark_delta(bench: Workbench) -> Callable[[int, int], Any]:
    frame = bench.spark.read.format("delta").load(str(bench.delta))
    return lambda start, end: frame.where((frame.time >= start) & (frame.time < end)).toArrow()


def _spark_kafka(bench: Workbench) -> Callable[[int, int], Any]:
    def read(start: int, end: int) -> Any:
        source = bench.spark.read.format("kafka").option("subscribe", TOPIC)
        source = source.option("kafka.bootstrap.servers", bench.broker.address)
        source = source.option("startingTimestamp", start).option("endingTimestamp", end)
        return source.load().select(*COLUMNS).toArrow()

    return read


def _consumer(bench: Workbench) -> tuple[Callable[[int, int], Timed], Callable[[Any], Any]]:
    timing, call = bench.consumer(FETCH_BYTES), bench.kafka.call

    def read(start: int, end: int) -> Timed:
        return Timed(call("readWindow", start, end, on=timing) / 1e9, None)

    def lines(_result: object) -> Any:
        return pa.array(bytes(call("values", on=timing)).splitlines(), pa.large_binary())

    return read, lines


def _table(
    bench: Workbench,
    systems: list[System],
    seconds: dict[str, list[list[float]]],
    scores: dict[str, _Score],
    length: int,
) -> Table:
    ours = seconds[systems[0].name]
    records = scores[systems[0].name].wanted // bench.sizes.windows
    rows = []
    for system in systems:
        score, flat = scores[system.name], [s for each in seconds[system.name] for s in each]
        spread = Samples(system.name, flat).spread(1000)
        shares = [100 * score.lost / max(1, score.wanted), score.foreign / max(1, score.wanted)]
        exact = f"{score.exact} of {score.windows}"
        rows.append([system.name, *spread, *_ratios(ours, seconds[system.name]), exact, *shares])
    title = f"Windows of {length // 1000} s, about {records:,} records"
    columns = ["", "ms, min", "median", "max", "times the time of the first: min", "median", "max",
               "exact", "lost, %", "foreign"]  # fmt: skip
    return Table(title, columns, rows)


def _ratios(ours: list[list[float]], theirs: list[list[float]]) -> list[float]:
    """[min, median, max] of their time by ours, over the rounds that both have of a window."""
    pairs = [zip(a, b, strict=False) for a, b in zip(ours, theirs, strict=True)]
    found = [other / mine for pair in pairs for mine, other in pair]
    return [min(found), statistics.median(found), max(found)]


def _goals(seconds: dict[str, list[list[float]]], length: int) -> list[Goal]:
    goals, title = [], f"Windows of {length // 1000} s, order time"
    for kind in ("new", "again"):
        ours = seconds[f"Seglake, time, {kind}"]
        others = {name: _ratios(ours, own)[1] for name, own in seconds.items()}
        rows = [value for name, value in others.items() if "Parquet" in name or "Lance" in name]
        text = f"{title}: times as fast as the best reader of Parquet or Lance, {kind}"
        goals.append(Goal(text, min(rows), 1.0))
        for name, value in others.items():
            if name.startswith("Vortex"):
                text = f"{title}: times the time of Vortex, {kind}"
                goals.append(Goal(text, 1 / value, AGAINST_VORTEX[length], at_least=False))
        if length == 10_000:
            middle = statistics.median(1000 * s for each in ours for s in each)
            goals.append(Goal(f"A window of 10 s, {kind}, ms", middle, 10.0, at_least=False))
    return goals
