"""Ingest: raw files to a seekable log, beside Spark to Delta and DuckDB to Parquet."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from seglake.write.api import run_pipeline
from tests.bench import writers
from tests.bench.measure import Contender, Goal, Samples, Section, Table, race
from tests.bench.workbench import Workbench, require

DELTA, DUCKDB = "Spark writing Delta", "DuckDB writing Parquet"
ORDERS = {  # and how many times as fast as these it is to be
    "arrival": {DELTA: 5.0, DUCKDB: 1.5},
    "time": {DELTA: 4.2, DUCKDB: 1.2},
}

_TEXT = """\
From {files} files of JSON lines ({events:,} events, {size:,.0f} MB) to a log of {partitions}
partitions with all its indexes and one catalog commit, in a Spark session that is warm; into a new
lake each time. The same session writes the same key, value and time to Delta, in {partitions} hash
partitions sorted by time, zstd; DuckDB writes one Parquet file sorted by time, zstd. The value is
the raw line (Spark: text source and `from_json`, since its JSON source does not keep the line;
DuckDB: `read_json_objects`). Before each run, each takes one file to warm up: Spark ends Python
workers that had nothing to do for a minute. Seglake's tasks run in such workers, and sync their
files to the disk.
"""


class _Side:
    """A way to write files to a new path. `count` returns the rows that a run wrote there."""

    def __init__(
        self,
        bench: Workbench,
        name: str,
        write: Callable[[list[Path], Path], Any],
        count: Callable[[Any, Path], int],
    ) -> None:
        self.bench, self.name, self._write, self._count = bench, name, write, count

    def contender(self) -> Contender:
        files = self.bench.events.files
        return Contender(
            self.name, partial(self._run, files), self._check, self._wake,
            partial(self._run, files[:1]), files,
        )  # fmt: skip

    def _run(self, files: list[Path]) -> Any:
        return self._write(files, self.path)

    def _wake(self) -> None:
        self._clear()
        self._run(self.bench.events.files[:1])
        self._clear()

    def _clear(self) -> None:
        self.path = self.bench.scratch("ingest-" + self.name.replace(",", "").replace(" ", "-"))

    def _check(self, result: Any) -> None:
        rows = self._count(result, self.path)
        require(rows == len(self.bench.events.times), f"{self.name} wrote {rows} rows")


def run(bench: Workbench) -> Section:
    """Measure."""
    sides = [_seglake(bench, order) for order in ORDERS]
    sides += [
        _Side(bench, DELTA, partial(_delta, bench), _rows),
        _Side(bench, DUCKDB, writers.duckdb_parquet, _rows),
    ]
    samples = race([side.contender() for side in sides], bench.sizes.runs, aloud=True)
    named, events = {sample.name: sample for sample in samples}, bench.events
    section = Section("ingest", "Ingest", _TEXT.format(
        files=len(events.files), events=len(events.times), size=events.size_bytes / 1e6,
        partitions=bench.sizes.partitions,
    ))  # fmt: skip
    section.tables = [_throughput(samples, named[DELTA], len(events.times))]
    section.goals = [
        Goal(f'Speed with `order = "{order}"`, relative to {reference}',
             named[f"Seglake, {order}"].times_as_fast_as(named[reference])[1], target)
        for order, targets in ORDERS.items() for reference, target in targets.items()
    ]  # fmt: skip
    return section


def _seglake(bench: Workbench, order: str) -> _Side:
    def write(files: list[Path], path: Path) -> Any:
        return run_pipeline(bench.pipeline(str(path), order, files), spark=bench.spark)

    return _Side(bench, f"Seglake, {order}", write, lambda report, _: report.records)


def _delta(bench: Workbench, files: list[Path], path: Path) -> None:
    writers.spark_delta_line(bench.spark, files, path, bench.sizes.partitions)


def _rows(_result: object, path: Path) -> int:
    return writers.rows_in(path)


def _throughput(samples: list[Samples], delta: Samples, events: int) -> Table:
    rows = [
        [each.name, *each.spread(), events / each.spread()[1] / 1e6, *each.times_as_fast_as(delta)]
        for each in samples
    ]
    columns = ["", "s, min", "median", "max", "M rows/s"]
    columns += [f"times as fast as {DELTA}: min", "median", "max"]
    return Table("Throughput", columns, rows)
