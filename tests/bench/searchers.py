"""Searchers for every event of a key, ours and those of others; all are open before the first key.

They read a lake, or Parquet files that are sorted by time: a path, or a pattern of paths.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import polars as pl
import pyarrow.dataset as ds

import seglake
from tests.bench.events import Int64s, numbers_in
from tests.bench.measure import Goal, Samples, Table, in_turns, say, timed
from tests.bench.page_cache import hold
from tests.bench.peers import with_zone_maps
from tests.bench.workbench import TOPIC, Workbench, require
from tests.bench.writers import has_clickhouse

KEYS = 20  # of a round; each round has others
FEW = 2  # of a round, for a searcher that has no index
OFTEN = (60, 80)  # events of such a key
FIELD = "user"  # of the value, which has the key, too
LANCE, CLICKHOUSE = "Lance, BTREE on the key", "ClickHouse, Bloom filters"
COLUMNS = ["key", "value", "timestamp"]
CACHE_BYTES = 2**30  # of Seglake; the others' caches are as they come, Lance's of 6 GiB

_CLICKHOUSE = """
import json, sys, time
from chdb import session
folder, parquet, rounds = sys.argv[1], sys.argv[2], json.load(sys.stdin)
engine = session.Session(folder)
engine.query("CREATE DATABASE bench")
engine.query("CREATE TABLE bench.events (key String, value String CODEC(ZSTD), time Int64,"
             " INDEX keys key TYPE bloom_filter GRANULARITY 1) ENGINE = MergeTree ORDER BY time")
engine.query(f"INSERT INTO bench.events SELECT key, value, time FROM file('{parquet}', Parquet)")
engine.query("OPTIMIZE TABLE bench.events FINAL")
query = "SELECT key, value, time FROM bench.events WHERE key = '%s'"
for key in rounds[0][:3]:
    engine.query(query % key, "ArrowStream")
seconds = []
for keys in rounds:
    begun = time.perf_counter()
    answers = [engine.query(query % key, "ArrowStream").bytes() for key in keys]
    seconds.append(time.perf_counter() - begun)
import pyarrow as pa
counts = [len(pa.ipc.open_stream(each).read_all()) for each in answers]
print(json.dumps([seconds, counts]), flush=True)
"""

Search = Callable[[str], Any]  # from a key to its events


class Asked(NamedTuple):
    """The keys of each round, and the numbers of the events of each key."""

    rounds: list[list[str]]
    numbers: dict[str, Int64s]


class Searcher(NamedTuple):
    """A way to search. `reads` is what the page cache has before a round."""

    name: str
    search: Search
    reads: Sequence[str | Path]
    keys: int = KEYS  # of a round; the time of the rest is taken to be in proportion


def by_key(searchers: Iterable[Searcher], asked: Asked) -> list[Samples]:
    """Seconds of the keys of each round, by searcher; every answer is checked."""
    all_searchers = list(searchers)
    samples = [Samples(searcher.name, []) for searcher in all_searchers]
    for searcher in all_searchers:
        searcher.search(asked.rounds[0][0])
    for keys in asked.rounds:
        for turn in in_turns(len(all_searchers)):
            searcher = all_searchers[turn]
            hold(searcher.reads)
            seconds = _seconds(searcher, keys, asked.numbers)
            samples[turn].seconds.append(seconds)
            say(f"  {searcher.name}: {1000 * seconds / len(keys):.2f} ms a key")
    return samples


def _seconds(searcher: Searcher, keys: Sequence[str], numbers: Mapping[str, Int64s]) -> float:
    """Seconds for all keys."""
    some = keys[: searcher.keys]
    timings = [timed(partial(searcher.search, key)) for key in some]
    for key, (_, table) in zip(some, timings, strict=True):
        right = np.array_equal(numbers_in(table["value"]), numbers[key])
        count = len(numbers[key])
        require(right, f"{searcher.name} found {len(table)} events of {key}, not {count}")
    return sum(timing.seconds for timing in timings) * len(keys) / len(some)


def table_of(samples: Sequence[Samples], title: str) -> Table:
    """Milliseconds a key."""
    return by_sample(samples, title, 1e3 / KEYS, "ms a key")


def by_sample(samples: Sequence[Samples], title: str, factor: float, unit: str) -> Table:
    """A row for each of the samples, whose seconds times `factor` are of the unit."""
    rows = [[s.name, *s.spread(factor), *s.times_as_fast_as(samples[0])] for s in samples]
    columns = ["", f"{unit}, min", "median", "max", "times as fast as the first: min"]
    return Table(title, [*columns, "median", "max"], rows)


def goals_of(ours: Samples, others: Sequence[Samples], key_ms: float) -> list[Goal]:
    """The goals of searches by key."""
    key = ours.spread(1e3 / KEYS)[1]
    slower = min(ours.times_as_fast_as(each)[1] for each in others if each.name != LANCE)
    goals = [
        Goal("Every event of a key, ms", key, key_ms, at_least=False),
        Goal("Every event of a key: times as fast as the best but Lance", slower, 1.0),
    ]
    text = f"Every event of a key: times the time of {LANCE}"
    lance = (each.times_as_fast_as(ours)[1] for each in others if each.name == LANCE)
    return goals + [Goal(text, times, 2.0, at_least=False) for times in lance]


def of_lake(name: str, root: str, keys: int = KEYS) -> Searcher:
    """Seglake, by the record's key."""
    log = with_zone_maps(seglake.open(root, cache_bytes=CACHE_BYTES).topic(TOPIC))
    return Searcher(name, lambda key: log.find(key, columns=COLUMNS).read_all(), [root], keys)


def of_field(name: str, root: str) -> Searcher:
    """Seglake, by a field of the value, in all partitions."""
    log = with_zone_maps(seglake.open(root, cache_bytes=CACHE_BYTES).topic(TOPIC))
    return Searcher(
        name, lambda key: log.find(where={FIELD: key}, columns=COLUMNS).read_all(), [root]
    )


def of_parquet(parquet: Path, keys: int = KEYS) -> Iterable[Searcher]:
    """DuckDB with its Bloom filters, and Polars, which has none."""
    connection = duckdb.connect()
    connection.execute("SET parquet_metadata_cache = true")
    query = f"SELECT * FROM read_parquet('{parquet}') WHERE key = ?"
    frame, key_of = pl.scan_parquet(parquet), pl.col("key")
    reads = sorted(parquet.parent.glob(parquet.name))
    yield Searcher(
        "DuckDB on Parquet", lambda key: connection.sql(query, params=[key]).to_arrow_table(), reads
    )
    yield Searcher(
        "Polars on Parquet",
        lambda key: frame.filter(key_of == key).collect().to_arrow(),
        reads,
        keys,
    )


def of_lance(bench: Workbench, parquet: Path) -> Iterable[Searcher]:
    """Lance, if it is installed."""
    if not find_spec("lance"):
        bench.skipped.append("Lance: `make bench` installs pylance.")
        return
    lance: Any = import_module("lance")
    folder = bench.scratch("keyed.lance")
    source = ds.dataset(sorted(parquet.parent.glob(parquet.name)))
    dataset = lance.write_dataset(source.scanner(), str(folder))
    dataset.create_scalar_index("key", "BTREE")
    yield Searcher(LANCE, lambda key: dataset.to_table(filter=f"key = '{key}'"), [folder])


def by_clickhouse(bench: Workbench, parquet: Path, asked: Asked) -> list[Samples]:
    """Seconds of the keys of each round in ClickHouse, if it is installed."""
    if not has_clickhouse():
        bench.skipped.append("ClickHouse: `make bench` installs chdb.")
        return []
    folder = bench.scratch("keyed.clickhouse")
    command = [sys.executable, "-c", _CLICKHOUSE, str(folder), str(parquet)]
    done = subprocess.run(
        command, input=json.dumps(asked.rounds), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise AssertionError(f"ClickHouse: {done.stderr[-2000:]}")
    seconds, counts = json.loads(done.stdout.splitlines()[-1])
    right = [len(asked.numbers[key]) for key in asked.rounds[-1]]
    require(counts == right, f"ClickHouse found {counts} events, not {right}")
    return [Samples(CLICKHOUSE, seconds)]
