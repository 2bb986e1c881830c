"""Full scans: every record once, without Spark, and through Spark beside Delta."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from seglake.datasource import register
from tests.bench.measure import Contender, Goal, Samples, Section, Table, race
from tests.bench.workbench import TOPIC, Workbench, adaptive, require

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLAIN = "Seglake `read_range`, two threads"
SOURCE = 'Spark, `format("seglake")`'
ALL = (f"{SOURCE}, to `noop`", "Spark on Delta, all columns, to `noop`")
TWO = (f"{SOURCE}, two columns, to `noop`", "Spark on Delta, to `noop`")

_TEXT = """\
All events, once. `read_range` without Spark decodes with two threads of this process; the number of
records, the bytes of their values and the largest time are compared with the events. Scans on Spark
hand every row to Spark's sink `noop`, and are planned in their time, with their `load()`; those of
Delta with adaptive execution. Their rows are counted once, untimed. *Two columns* are `value` and
the time.
"""


def run(bench: Workbench) -> Section:
    """Measure."""
    register(bench.spark)  # Spark finds it by itself only where the package is installed
    plain = Contender(PLAIN, lambda: _ours(bench), partial(_check, bench))
    contenders = [plain._replace(reads=[bench.lake("arrival")]), *_to_noop(bench)]
    samples = race(contenders, bench.sizes.runs, aloud=True)
    named, events = {sample.name: sample for sample in samples}, len(bench.events.times)
    rate = events / named[PLAIN].spread()[1] / 1e6
    section = Section("scan", "Full scans", _TEXT, [_table(samples, events)])
    section.goals = [
        Goal("Millions of records a second, without Spark", rate, 9.0),
        *(
            Goal(f"Speed of a scan, {SOURCE}, {columns}, relative to Spark on Delta",
                 named[ours].times_as_fast_as(named[theirs])[1], 1.0)
            for columns, (ours, theirs) in (("all columns", ALL), ("two columns", TWO))
        ),
    ]  # fmt: skip
    return section


def _ours(bench: Workbench) -> tuple[int, int, int]:
    count = size = last = 0
    reader: Any = bench.log("arrival").read_range(0, 2**62, columns=["value", "timestamp"])
    for batch in reader:
        count += len(batch)
        size += pc.sum(pc.binary_length(batch["value"])).as_py()
        last = max(last, pc.max(batch["timestamp"].cast(pa.int64())).as_py())
    return count, size, last


def _check(bench: Workbench, found: tuple[int, int, int]) -> None:
    times = bench.events.times
    right = len(times), bench.events.size_bytes - len(times), int(times.max())
    require(found == right, f"{PLAIN} found {found}, not {right}")


def _to_noop(bench: Workbench) -> list[Contender]:
    """All rows to Spark's sink of that name."""
    delta, path, lake = bench.spark.read.format("delta"), str(bench.delta), bench.lake("arrival")
    source = bench.spark.read.format("seglake").options(path=lake, subscribe=TOPIC)
    pruned = bench.spark.read.format("seglake").options(
        path=lake, subscribe=TOPIC, columns="value,timestamp"
    )
    loads: dict[str, tuple[Callable[[], DataFrame], str | Path]] = {
        ALL[0]: (source.load, lake),
        ALL[1]: (lambda: delta.load(path), path),
        TWO[0]: (pruned.load, lake),
        TWO[1]: (lambda: delta.load(path).select("value", "time"), path),
    }

    def write(load: Callable[[], DataFrame]) -> None:
        with adaptive(bench.spark):
            load().write.format("noop").mode("overwrite").save()

    for name, (load, _) in loads.items():
        size = load().agg(f.sum(f.octet_length("value"))).collect()[0][0]
        wanted = bench.events.size_bytes - len(bench.events.times)
        require(size == wanted, f"{name} has values of {size} bytes, not {wanted}")
    return [
        Contender(name, partial(write, load), reads=[place])
        for name, (load, place) in loads.items()
    ]


def _table(samples: list[Samples], events: int) -> Table:
    rows = [
        [each.name, *each.spread(), events / each.spread()[1] / 1e6,
         *samples[0].times_as_fast_as(each)]
        for each in samples
    ]  # fmt: skip
    columns = ["", "s, min", "median", "max", "M records/s", "times the time of the first: min",
               "median", "max"]  # fmt: skip
    return Table(f"{events:,} records", columns, rows)
