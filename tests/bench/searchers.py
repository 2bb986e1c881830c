"""Searchers for every event of a key, ours and those of others; all are open before the first key.

They read a lake, or a Parquet file that is sorted by time.
"""

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
from tests.bench.measure import Samples, in_turns, say, timed
from tests.bench.page_cache import hold
from tests.bench.peers import with_zone_maps
from tests.bench.workbench import TOPIC, Workbench, require

KEYS = 20  # of a round; each round has others
OFTEN = (60, 80)  # events of such a key
LANCE = "Lance, BTREE on the key"
COLUMNS = ["key", "value", "timestamp"]
CACHE_BYTES = 2**30  # of Seglake; the others' caches are as they come, Lance's of 6 GiB

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
    timings = [timed(partial(searcher.search, key)) for key in keys]
    for key, (_, table) in zip(keys, timings, strict=True):
        right = np.array_equal(numbers_in(table["value"]), numbers[key])
        count = len(numbers[key])
        require(right, f"{searcher.name} found {len(table)} events of {key}, not {count}")
    return sum(timing.seconds for timing in timings)


def of_lake(name: str, root: str) -> Searcher:
    """Seglake, by the record's key."""
    log = with_zone_maps(seglake.open(root, cache_bytes=CACHE_BYTES).topic(TOPIC))
    return Searcher(name, lambda key: log.find(key, columns=COLUMNS).read_all(), [root])


def of_parquet(parquet: Path) -> Iterable[Searcher]:
    """DuckDB with its Bloom filters, and Polars, which has none."""
    connection = duckdb.connect()
    connection.execute("SET parquet_metadata_cache = true")
    query = f"SELECT * FROM read_parquet('{parquet}') WHERE key = ?"
    frame, key_of = pl.scan_parquet(parquet), pl.col("key")
    yield Searcher(
        "DuckDB on Parquet",
        lambda key: connection.sql(query, params=[key]).to_arrow_table(),
        [parquet],
    )
    yield Searcher(
        "Polars on Parquet", lambda key: frame.filter(key_of == key).collect().to_arrow(), [parquet]
    )


def of_lance(bench: Workbench, parquet: Path) -> Iterable[Searcher]:
    """Lance, if it is installed."""
    if not find_spec("lance"):
        bench.skipped.append("Lance: `make bench` installs pylance.")
        return
    lance: Any = import_module("lance")
    folder = bench.scratch("keyed.lance")
    dataset = lance.write_dataset(ds.dataset(parquet).scanner(), str(folder))
    dataset.create_scalar_index("key", "BTREE")
    yield Searcher(LANCE, lambda key: dataset.to_table(filter=f"key = '{key}'"), [folder])
