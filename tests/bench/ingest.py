"""Ingest: raw files to a seekable log, beside Spark to Delta and DuckDB to Parquet."""

from __future__ import annotations

import cProfile
import os
import pstats
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from seglake.engine import LocalEngine
from seglake.session import delta_jars, spark_session
from seglake.write.api import run_pipeline
from seglake.write.driver.report import Report
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.bench import writers
from tests.bench.measure import Contender, Goal, Samples, Section, Table, Timed, race, say
from tests.bench.memory import Peaks, watched
from tests.bench.workbench import Sizes, Workbench, adaptive, require

GIB = 2**30
DELTA, DUCKDB = "Spark to Delta, line", "DuckDB to Parquet, line"
ORDERS = {  # and how many times as fast as these it is to be
    "arrival": {DELTA: 5.0, DUCKDB: 1.5},
    "time": {DELTA: 4.2, DUCKDB: 1.2},
}
PROFILED = 12

_TEXT = """\
From {files} files of JSON lines ({events:,} events, {size:,.0f} MB) to a log of {partitions}
partitions with all its indexes and one catalog commit, in a Spark session that is warm; into a
new lake each time. The same session writes the same key, value and time to Delta, in {partitions}
hash partitions sorted by time, zstd, and laid out by time in {files} files with adaptive execution
as it comes; DuckDB writes one Parquet file sorted by time, zstd; ClickHouse (chdb, in a process of
its own, which times itself) inserts into a MergeTree ordered by time, and neither merges nor syncs.
*Line*
is the same content as ours: the value is the raw line (Spark: text source and `from_json`, which
was faster than `get_json_object` and `json_tuple`, since its JSON source does not keep the line;
DuckDB: `read_json_objects`). *Field* is less: the value is one field of the line, by the JSON
readers with a schema. Before each run, each takes one file to warm up: Spark ends
Python workers that had nothing to do for a minute, and an ingest that had to start them took 6.5 s
instead of 4. Seglake's tasks run in such workers, and sync their files to the disk.
"""


def run(bench: Workbench) -> Section:
    """Measure."""
    sides = [_Ours(bench, order) for order in ORDERS]
    others = [
        _Other(bench, DELTA, partial(writers.spark_delta_line, bench.spark)),
        _Other(bench, "Spark to Delta, field", partial(writers.spark_delta_fields, bench.spark)),
        _Other(bench, "Spark to Delta, line, by time", _by_time(bench)),
        _Other(bench, DUCKDB, _without_partitions(writers.duckdb_parquet)),
        _Other(
            bench, "DuckDB to Parquet, field", _without_partitions(writers.duckdb_parquet_fields)
        ),
    ]
    if writers.has_clickhouse():
        others.append(_ClickHouse(bench, "ClickHouse, MergeTree, line", _clickhouse))
    else:
        bench.skipped.append("ClickHouse: `make bench` installs chdb.")
    everyone: list[_Ours | _Other] = [*sides, *others]
    samples = race([side.contender() for side in everyone], bench.sizes.runs, aloud=True)
    sizes = {side.name: side.bytes_out for side in everyone}
    events = bench.events
    section = Section("ingest", "Ingest", _TEXT.format(
        files=len(events.files), events=len(events.times), size=events.size_bytes / 1e6,
        partitions=bench.sizes.partitions,
    ))  # fmt: skip
    section.tables = [
        _throughput(bench, samples, sizes), memory_table(bench), _steps(sides), _profile(bench)
    ]  # fmt: skip
    named = {sample.name: sample for sample in samples}
    for side in sides:
        for reference, target in ORDERS[side.order].items():
            measured = named[side.name].times_as_fast_as(named[reference])[1]
            text = f'`order = "{side.order}"` as a multiple of {reference}'
            section.goals.append(Goal(text, measured, target))
    section.notes = _notes(sides)
    return section


class _Ours:
    """`run_pipeline` in one order."""

    def __init__(self, bench: Workbench, order: str) -> None:
        self.bench, self.order, self.name = bench, order, f"Seglake, {order}"
        self.reports: list[Report] = []
        self.bytes_out = 0

    def contender(self) -> Contender:
        files = self.bench.events.files
        return Contender(self.name, self._ingest, self._check, self._wake, self._warm_up, files)

    def _wake(self) -> None:
        self._clear()
        self._warm_up()
        self._clear()

    def _clear(self) -> None:
        self.root = str(self.bench.scratch(f"ingest-{self.order}"))

    def _warm_up(self) -> None:
        self._run(self.bench.events.files[:1])

    def _ingest(self) -> Report:
        return self._run(self.bench.events.files)

    def _run(self, files: list[Path]) -> Report:
        pipeline = self.bench.pipeline(self.root, self.order, files)
        return run_pipeline(pipeline, spark=self.bench.spark)

    def _check(self, report: Report) -> None:
        require(report.records == len(self.bench.events.times), f"{self.name} lost records")
        self.reports.append(report)
        self.bytes_out = report.output_bytes


class _Other:
    """A writer of files that are read back once to be counted."""

    def __init__(self, bench: Workbench, name: str, write: Callable[[list[Path], Path, int], Any]):
        self.bench, self.name, self._write = bench, name, write
        self.bytes_out = 0

    def contender(self) -> Contender:
        files = self.bench.events.files
        return Contender(self.name, self._all, self._check, self._wake, self._warm_up, files)

    def _wake(self) -> None:
        self._clear()
        self._warm_up()
        self._clear()

    def _clear(self) -> None:
        self.path = self.bench.scratch("ingest-" + self.name.replace(",", "").replace(" ", "-"))

    def _warm_up(self) -> None:
        self._write(self.bench.events.files[:1], self.path, self.bench.sizes.partitions)

    def _all(self) -> Any:
        return self._write(self.bench.events.files, self.path, self.bench.sizes.partitions)

    def _check(self, _result: object) -> None:
        rows = writers.rows_in(self.path)
        require(rows == len(self.bench.events.times), f"{self.name} has {rows} rows")
        self.bytes_out = writers.size_of(self.path)


class _ClickHouse(_Other):
    """An insert into a table of ClickHouse, in a process that times itself."""

    def _check(self, result: object) -> None:
        require(result == len(self.bench.events.times), f"{self.name} has {result} rows")
        self.bytes_out = sum(f.stat().st_size for f in self.path.rglob("*") if f.is_file())


def _clickhouse(files: list[Path], path: Path, _partitions: int) -> Timed:
    return Timed(*writers.clickhouse(files, path))


def _by_time(bench: Workbench) -> Callable[[list[Path], Path, int], None]:
    def write(files: list[Path], path: Path, _partitions: int) -> None:
        with adaptive(bench.spark):
            writers.spark_delta_by_time(bench.spark, files, path, bench.sizes.files)

    return write


def memory_table(bench: Workbench) -> Table:
    """The largest resident set of each contender, in processes of its own."""
    rows = []
    for name in list(ALONE)[: bench.sizes.alone]:
        say(f"  memory: {name}")
        target = bench.scratch("alone")
        program = [sys.executable, "-m", "tests.bench.ingest", name, str(bench.folder / "alone")]
        sizes = [str(bench.sizes.partitions), *map(str, bench.events.files)]
        running = subprocess.Popen([*program, *sizes], stderr=subprocess.PIPE)
        with watched(running.pid) as peaks:
            _, errors = running.communicate()
        require(running.returncode == 0, f"{name}: {errors[-2000:].decode()}")
        shutil.rmtree(target, ignore_errors=True)
        rows.append([name, *(each / 2**20 for each in (peaks.jvm, peaks.worker, peaks.whole))])
    title = "Largest resident sets of an ingest in processes of its own, MiB"
    notes = ["The sum counts what processes share more than once. Spark has a heap of 1 GiB."]
    return Table(title, ["", "JVM", "a Python worker", "all, at most"], rows, notes)


def _alone(name: str, target: str, partitions: int, files: list[Path]) -> None:
    """One ingest of this process, which has nothing else to do."""
    ALONE[name](files, Path(target), partitions)


def _seglake_alone(order: str, files: list[Path], path: Path, partitions: int) -> None:
    bench = Workbench(Sizes(partitions=partitions), path)
    pipeline = bench.pipeline(str(path / "lake"), order, files)
    run_pipeline(pipeline, spark=spark_session("alone", conf=SMALL_HEAP))


def _delta_alone(files: list[Path], path: Path, partitions: int) -> None:
    jars = {"spark.jars": ",".join(map(str, delta_jars()))}
    spark = spark_session("alone", conf=SMALL_HEAP | jars)
    writers.spark_delta_line(spark, files, path, partitions)


SMALL_HEAP = {"spark.driver.memory": "1g", "spark.ui.enabled": "false"}
ALONE: dict[str, Callable[[list[Path], Path, int], None]] = {
    DUCKDB: lambda files, path, _partitions: writers.duckdb_parquet(files, path),
    "Seglake, arrival": partial(_seglake_alone, "arrival"),
    "Seglake, time": partial(_seglake_alone, "time"),
    DELTA: _delta_alone,
}


def _without_partitions(
    write: Callable[[list[Path], Path], None],
) -> Callable[[list[Path], Path, int], None]:
    return lambda files, path, _partitions: write(files, path)


def _throughput(bench: Workbench, samples: list[Samples], sizes: dict[str, int]) -> Table:
    events = len(bench.events.times)
    line, other = (next(s for s in samples if s.name == name) for name in (DELTA, DUCKDB))
    rows = []
    for sample in samples:
        low, middle, high = sample.spread()
        ratios = [*sample.times_as_fast_as(line), sample.times_as_fast_as(other)[1]]
        size = sizes[sample.name] / 1e6
        rows.append([sample.name, low, middle, high, events / middle / 1e6, size, *ratios])
    columns = ["", "s, min", "median", "max", "M rows/s", "MB written"]
    columns += [
        "times as fast as Spark to Delta, line: min",
        "median",
        "max",
        "as DuckDB, line: median",
    ]
    return Table("Throughput", columns, rows)


def _steps(sides: list[_Ours]) -> Table:
    """Where the time of the last run of each order went, as its report says."""
    reports = [side.reports[-1] for side in sides]
    names = list(dict.fromkeys(name for report in reports for name in report.seconds))
    rows = [[name, *(report.seconds.get(name) for report in reports)] for name in names]
    return Table(
        "Steps of the last run, in seconds", ["step", *(side.order for side in sides)],
        [[str(row[0]), *row[1:]] for row in rows],
    )  # fmt: skip


def _profile(bench: Workbench) -> Table:
    """Own time of functions when one file is ingested in this process, without Spark."""
    spent: dict[str, dict[str, float]] = {}
    for order in ORDERS:
        _ingest_here(bench, order)  # what is compiled and loaded once
        with cProfile.Profile() as profile:
            _ingest_here(bench, order)
        spent[order] = _own_seconds(profile)
    whole = {order: sum(seconds.values()) for order, seconds in spent.items()}
    shares = {
        name: [spent[order].get(name, 0.0) / whole[order] * 100 for order in ORDERS]
        for name in spent["arrival"] | spent["time"]
    }
    largest = sorted(shares, key=lambda name: -sum(shares[name]))[:PROFILED]
    return Table(
        "Profile of one file in one process without Spark: share of own time in percent",
        ["function", *ORDERS], [[name, *shares[name]] for name in largest],
        ["A kernel's time counts for the function that calls it."],
    )  # fmt: skip


def _ingest_here(bench: Workbench, order: str) -> None:
    root = str(bench.scratch(f"profile-{order}"))
    pipeline = bench.pipeline(root, order, bench.events.files[:1])
    ingest_files(LocalEngine(), pipeline, DeclaredRun("profile"))


def _own_seconds(profile: cProfile.Profile) -> dict[str, float]:
    found: dict[str, float] = {}
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]  # typeshed leaves it out
    for (file, _line, function), (_, _, own, _, _) in stats.items():
        path = Path(file)
        place = f"{path.parent.name}/{path.stem}." if path.suffix == ".py" else ""
        name = f"`{place}{function}`"
        found[name] = found.get(name, 0.0) + own
    return found


def _notes(sides: list[_Ours]) -> list[str]:
    notes = []
    for side in sides:
        report = side.reports[-1]
        per_gib = report.index_bytes * GIB / (report.output_bytes - report.index_bytes) / 2**20
        step = max(report.seconds, key=lambda name: report.seconds[name])
        share = 100 * report.seconds[step] / sum(report.seconds.values())
        notes.append(
            f'`order = "{side.order}"`: {share:.0f} % of the time goes into the step "{step}",'
            " which is where to look next."
        )
        notes.append(
            f'`order = "{side.order}"`: index files of {per_gib:.2f} MiB per GiB of log;'
            f" {report.segments} segments, records at most {report.max_lateness_ms:,} ms late."
        )
    peaks = Peaks()
    peaks.look(os.getpid())
    if peaks.worker:
        notes.append(f"Largest resident set of a Python worker: {peaks.worker / 2**20:.0f} MiB.")
    return notes


if __name__ == "__main__":
    _alone(sys.argv[1], sys.argv[2], int(sys.argv[3]), list(map(Path, sys.argv[4:])))
