"""Full scans: every record once, counted and its value touched."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.compute as pc
from pyspark.sql import functions as f

from tests.bench.measure import Contender, Goal, Samples, Section, Table, Timed, race
from tests.bench.workbench import TOPIC, Workbench, require

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FETCH_BYTES = 4 * 2**20
OURS = 'Spark, `format("seglake")`'

_TEXT = """\
All events, once: the number of records, the bytes of their values and the largest time, so that
the value of each is produced. `read_range` without Spark runs on one core of this process, the
Java consumer on one core and the broker's; Spark and DuckDB use all.
"""


def run(bench: Workbench) -> Section:
    """Measure."""
    section = Section("scan", "Full scans", _TEXT)
    contenders = [
        _contender(bench, "Seglake `read_range`, one core", lambda: _ours(bench)),
        _contender(bench, "DuckDB on Parquet", lambda: _duckdb(bench)),
        _contender(bench, "Spark on Delta", _spark(_delta(bench), "time")),
        _contender(bench, "Kafka consumer, tuned", _consumer(bench)),
    ]
    if bench.has_spark_kafka:
        kafka = _contender(bench, "Spark's Kafka source", _spark(_kafka(bench), "timestamp"))
        contenders.append(kafka)
    if find_spec("seglake.datasource") is None:
        section.notes.append('Without `format("seglake")`: it does not exist yet.')
    else:
        contenders.append(_contender(bench, OURS, _spark(_seglake(bench), "timestamp")))
    samples = race(contenders, bench.sizes.runs, aloud=True)
    section.tables = [_table(bench, samples)]
    section.goals = _goals(samples)
    return section


def _contender(bench: Workbench, name: str, run: Callable[[], Any]) -> Contender:
    def check(count: int) -> None:
        require(count == len(bench.events.times), f"{name} counted {count} records")

    return Contender(name, run, check)


def _ours(bench: Workbench) -> int:
    count = size = 0
    reader: Any = bench.log("arrival").read_range(0, 2**62, columns=["key", "value", "timestamp"])
    for batch in reader:
        count += len(batch)
        size += pc.sum(pc.binary_length(batch["value"])).as_py()
    require(size > count, "the values are empty")
    return count


def _duckdb(bench: Workbench) -> int:
    query = "SELECT count(*), sum(strlen(value)), max(time) FROM read_parquet(?)"
    found: Any = duckdb.execute(query, [str(bench.parquet)]).fetchone()
    return int(found[0])


def _spark(frame: DataFrame, time: str) -> Callable[[], int]:
    facts = f.count("*"), f.sum(f.octet_length("value")), f.max(time)
    return lambda: int(frame.agg(*facts).collect()[0][0])  # a new query: no shuffle is reused


def _delta(bench: Workbench) -> DataFrame:
    return bench.spark.read.format("delta").load(str(bench.delta))


def _kafka(bench: Workbench) -> DataFrame:
    source = bench.spark.read.format("kafka").option("subscribe", TOPIC)
    return source.option("kafka.bootstrap.servers", bench.broker.address).load()


def _seglake(bench: Workbench) -> DataFrame:
    register = import_module("seglake.datasource").register
    register(bench.spark)  # Spark finds it by itself only where the package is installed
    source = bench.spark.read.format("seglake").option("path", bench.lake("arrival"))
    return source.option("subscribe", TOPIC).load()


def _consumer(bench: Workbench) -> Callable[[], Timed]:
    timing, call = bench.consumer(FETCH_BYTES), bench.kafka.call

    def read() -> Timed:
        nanoseconds = call("readAll", on=timing)
        return Timed(nanoseconds / 1e9, call("count", on=timing))

    return read


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


def _goals(samples: list[Samples]) -> list[Goal]:
    named = {sample.name: sample for sample in samples}
    if OURS not in named:
        return []
    wanted = {"Spark's Kafka source": 3.0, "Spark on Delta": 1.0}
    return [
        Goal(f"A full scan through Spark as a multiple of {name}",
             named[OURS].times_as_fast_as(named[name])[1], target)
        for name, target in wanted.items() if name in named
    ]  # fmt: skip
