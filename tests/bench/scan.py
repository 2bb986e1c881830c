"""Full scans: every record once, counted and its value touched."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from seglake.datasource import register
from tests.bench.floors import Batches, RowsInMemory, decompress_all, store_rows
from tests.bench.measure import Contender, Goal, Samples, Section, Table, Timed, race
from tests.bench.workbench import TOPIC, Workbench, adaptive, require

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader

FETCH_BYTES = 4 * 2**20
PLAIN = "Seglake `read_range`, two threads"
OURS = 'Spark, `format("seglake")`'
WHOLE_DELTA = "Spark on Delta, all columns"
PRUNED = f"{OURS}, two columns"
NOOP = ", to `noop`"
CODEC = "zstd alone, two threads"
OF_DELTA = 1.0
IN_MEMORY = "A Python data source, rows in memory"
IN_MEMORY_PRUNED = f"{IN_MEMORY}, two columns"
TWO_COLUMNS = {"columns": "value,timestamp"}

_TEXT = """\
All events, once: the number of records, the bytes of their values and the largest time, compared
with the events. The Java consumer only counts, though it has made an object of each record.
`read_range` without Spark decodes with two threads of this process; the consumer has one thread and
the broker's; Spark and DuckDB use all cores. DuckDB reads row groups of 8,192 rows and of 122,880,
which are its default. Each query on Spark is planned in its time, with its `load()`; those on Delta
with adaptive execution as it comes. Spark asks Delta for the two columns that the query needs, and
for *all columns* by an expression over each; `format("seglake")` is read whole, as Spark's Kafka
source is, and with `columns` = `value,timestamp`. Those *to `noop`* hand every row of these columns
to Spark's sink of that name, and aggregate nothing. *zstd alone* decompresses the same batches, and
does nothing else; *rows in memory* are those of `format("seglake")` as Arrow batches in mapped
files, which a Python data source hands to Spark as they lie there.
"""


class _Facts(NamedTuple):
    """What a scan finds; the largest time in ms."""

    records: int
    value_bytes: int
    last_ms: int


def run(bench: Workbench) -> Section:
    """Measure."""
    section = Section("scan", "Full scans", _TEXT)
    register(bench.spark)  # Spark finds it by itself only where the package is installed
    lake, large = bench.lake("arrival"), bench.parquet_by_default
    contenders = [
        _contender(bench, PLAIN, lambda: _ours(bench), lake),
        _contender(bench, "DuckDB on Parquet, 8,192 rows", _duckdb(bench.parquet), bench.parquet),
        _contender(bench, "DuckDB on Parquet, 122,880 rows", _duckdb(large), large),
        _contender(bench, "Spark on Delta", _delta(bench), bench.delta),
        _contender(bench, WHOLE_DELTA, _delta(bench, f.sum(f.octet_length("key"))), bench.delta),
        _consumer(bench),
    ]
    if bench.has_spark_kafka:
        contenders.append(_contender(bench, "Spark's Kafka source", _kafka(bench), lake))
    contenders.append(_contender(bench, OURS, _seglake(bench), lake))
    contenders.append(_contender(bench, PRUNED, _seglake(bench, **TWO_COLUMNS), lake))
    contenders.append(_codec_alone(bench))
    samples = race([*contenders, *_to_noop(bench)], bench.sizes.runs, aloud=True)
    section.tables = [_table(bench, samples)]
    section.goals = _goals(samples, len(bench.events.times))
    return section


def _contender(
    bench: Workbench, name: str, run: Callable[[], _Facts], reads: str | Path
) -> Contender:
    times = bench.events.times
    right = _Facts(len(times), bench.events.size_bytes - len(times), int(times.max()))

    def check(found: _Facts) -> None:
        require(found == right, f"{name} found {found}, not {right}")

    return Contender(name, run, check, reads=[reads])


def _ours(bench: Workbench) -> _Facts:
    count = size = last = 0
    reader: Any = bench.log("arrival").read_range(0, 2**62, columns=["value", "timestamp"])
    for batch in reader:
        count += len(batch)
        size += pc.sum(pc.binary_length(batch["value"])).as_py()
        last = max(last, pc.max(batch["timestamp"].cast(pa.int64())).as_py())
    return _Facts(count, size, last)


def _duckdb(path: Path) -> Callable[[], _Facts]:
    query = "SELECT count(*), sum(strlen(value)), max(time) FROM read_parquet(?)"

    def run() -> _Facts:
        with duckdb.connect() as connection:
            found = connection.execute(query, [str(path)]).fetchall()
        return _Facts(*map(int, found[0]))

    return run


def _spark(load: Callable[[], DataFrame], last_ms: Column, *more: Column) -> Callable[[], _Facts]:
    """A scan that Spark plans anew each time: no plan, listing or shuffle is left of another."""
    facts = f.count("*"), f.sum(f.octet_length("value")), last_ms, *more
    return lambda: _Facts(*map(int, load().agg(*facts).collect()[0][:3]))


def _delta(bench: Workbench, *more: Column) -> Callable[[], _Facts]:
    source, path = bench.spark.read.format("delta"), str(bench.delta)
    scan = _spark(lambda: source.load(path), f.max("time"), *more)

    def run() -> _Facts:
        with adaptive(bench.spark):
            return scan()

    return run


def _to_noop(bench: Workbench) -> list[Contender]:
    """All rows of the same scans, which the others have checked."""
    delta, path = bench.spark.read.format("delta"), str(bench.delta)
    bench.spark.dataSource.register(RowsInMemory)
    loads: dict[str, tuple[Callable[[], DataFrame], str | Path]] = {
        WHOLE_DELTA: (lambda: delta.load(path), path),
        "Spark on Delta": (lambda: delta.load(path).select("value", "time"), path),
        OURS: (_source(bench).load, bench.lake("arrival")),
        PRUNED: (_source(bench, **TWO_COLUMNS).load, bench.lake("arrival")),
        IN_MEMORY: _in_memory(bench, "rows-of-all"),
        IN_MEMORY_PRUNED: _in_memory(bench, "rows-of-two", **TWO_COLUMNS),
    }

    def write(load: Callable[[], DataFrame]) -> None:
        with adaptive(bench.spark):
            load().write.format("noop").mode("overwrite").save()

    return [
        Contender(name + NOOP, partial(write, load), reads=[place])
        for name, (load, place) in loads.items()
    ]


def _in_memory(bench: Workbench, name: str, **options: str) -> tuple[Callable[[], DataFrame], Path]:
    """The same rows, as a Python data source that only hands them out has them."""
    folder = bench.folder / name
    options |= {"path": bench.lake("arrival"), "subscribe": TOPIC}
    source = bench.spark.read.format(RowsInMemory.name()).options(**store_rows(options, folder))
    return source.load, folder


def _codec_alone(bench: Workbench) -> Contender:
    batches = Batches.of(Path(bench.lake("arrival"), "topics"), "zstd")

    def check(size_bytes: int) -> None:
        require(size_bytes > bench.events.size_bytes, "records are missing")

    return Contender(CODEC, partial(decompress_all, batches), check)


def _kafka(bench: Workbench) -> Callable[[], _Facts]:
    source = bench.spark.read.format("kafka").option("subscribe", TOPIC)
    source = source.option("kafka.bootstrap.servers", bench.broker.address)
    return _spark(source.load, f.unix_millis(f.max("timestamp")))


def _seglake(bench: Workbench, **options: str) -> Callable[[], _Facts]:
    return _spark(_source(bench, **options).load, f.unix_millis(f.max("timestamp")))


def _source(bench: Workbench, **options: str) -> DataFrameReader:
    source = bench.spark.read.format("seglake").option("path", bench.lake("arrival"))
    return source.option("subscribe", TOPIC).options(**options)


def _consumer(bench: Workbench) -> Contender:
    timing, call = bench.consumer(FETCH_BYTES), bench.kafka.call

    def read() -> Timed:
        nanoseconds = call("readAll", on=timing)
        return Timed(nanoseconds / 1e9, call("count", on=timing))

    def check(count: int) -> None:
        require(count == len(bench.events.times), f"the consumer counted {count} records")

    lake = bench.lake("arrival")
    return Contender("Kafka consumer, tuned, counting", read, check, reads=[lake])


def _table(bench: Workbench, samples: list[Samples]) -> Table:
    events = len(bench.events.times)
    reference = samples[0]
    rows = []
    for sample in samples:
        low, middle, high = sample.spread()
        ratios = reference.times_as_fast_as(sample)
        rows.append([sample.name, low, middle, high, events / middle / 1e6, *ratios])
    columns = ["", "s, min", "median", "max", "M records/s", "times the time of the first: min",
               "median", "max"]  # fmt: skip
    return Table(f"{events:,} records", columns, rows)


def _goals(samples: list[Samples], events: int) -> list[Goal]:
    named = {sample.name: sample for sample in samples}
    rate = events / named[PLAIN].spread()[1] / 1e6
    goals = [
        Goal("Millions of records a second without Spark", rate, 9.0),
    ]  # fmt: skip
    others = [
        (OURS + NOOP, WHOLE_DELTA + NOOP, OF_DELTA),
        (PRUNED + NOOP, "Spark on Delta" + NOOP, OF_DELTA),
    ]  # fmt: skip
    return goals + [
        Goal(f"{ours}, as a multiple of {name}",
             named[ours].times_as_fast_as(named[name])[1], target)
        for ours, name, target in others if name in named
    ]  # fmt: skip
