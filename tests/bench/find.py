"""Searches: every event of a key, over all times and in a window; fields of values as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import seglake
from seglake.read.log import Log
from tests.bench.events import numbers_in
from tests.bench.measure import Contender, Goal, Samples, Section, in_turns, race, timed
from tests.bench.peers import with_zone_maps
from tests.bench.searchers import (
    FEW,
    FIELD,
    KEYS,
    OFTEN,
    Asked,
    by_clickhouse,
    by_key,
    by_sample,
    goals_of,
    of_field,
    of_lake,
    of_lance,
    of_parquet,
    table_of,
)
from tests.bench.workbench import TOPIC, Workbench, require

WINDOW_MS = 60_000
MANY = 10_000  # keys that are looked for in the key indexes at once
OURS, WITHOUT = "Seglake, key index", "Seglake, no key index"
OF_FIELD = "Seglake, index of a field"
KEY_MS, FIELD_MS = 3, 12  # for 4 million events
FIELDS = {"ts": "int64", "user": "string"}

_TEXT = """\
{keys} keys that some {least} to {most} events have, in each of {runs} rounds others. Every event of
a key is handed to the caller as Arrow, key, value and time, and compared with a pass over all
events. All have open what can be kept open. DuckDB and Polars read Parquet sorted by time, in row
groups of 8,192 rows with DuckDB's Bloom filters; Lance has a BTREE on the key; ClickHouse, in a
process of its own, a skip index of Bloom filters for each granule, and its own clock. Without a key
index, Seglake reads all records. The index of a field is asked for the same events by a member of
their JSON values, in all partitions. *In a window* asks for the events of a key in {window} s, in
order of time, beside `read_range` of the window; each has a cache of its own, and no window comes
twice.
*Probes* are pairs of a key and an index block, {many:,} keys at once against all blocks. *Fields*
are two members of the JSON value of each event, an integer and a string, as Arrow columns.
"""


def run(bench: Workbench) -> Section:
    """Measure."""
    text = _TEXT.format(keys=KEYS, least=OFTEN[0], most=OFTEN[1], runs=bench.sizes.runs,
                        window=WINDOW_MS // 1000, many=MANY)  # fmt: skip
    section = Section("find", "Searches", text)
    root = bench.lake("arrival", index_keys=True)
    asked = _asked(bench)
    by_keys = _by_key(bench, root, asked)
    inside = _in_window(bench, asked)
    ingests = race([_ingest(bench, name, topic) for name, topic in _INDEXED.items()],
                   bench.sizes.runs)  # fmt: skip
    columns = race(_fields(bench), bench.sizes.runs, aloud=True)
    share = _share(root)
    of_field = _share(bench.lake("arrival", index_fields=[FIELD]))
    events = len(bench.events.times)
    section.tables = [
        table_of(by_keys, "Every event of a key"),
        by_sample(inside, "In a window", 1e3, "ms"),
        by_sample(ingests, "Ingest", 1, "s"),
        by_sample(columns, f"Two fields of {events:,} events", 1, "s"),
    ]
    section.tables[2].notes.append(
        f"Of the log's bytes, key indexes take {share:.2f} %, those of a field {of_field:.2f} %."
    )
    section.goals = [
        *_goals(by_keys),
        Goal("Ingest with key indexes: times the time without",
             ingests[2].times_as_fast_as(ingests[0])[1], 1.1, at_least=False),
    ]  # fmt: skip
    return section


def _asked(bench: Workbench) -> Asked:
    """Keys that so many events have, and which events these are."""
    table = pq.read_table(bench.parquet, columns=["key", "value"])
    groups = table.group_by("key").aggregate([("key", "count")])
    counts = dict(zip(*(groups[name].to_pylist() for name in ("key", "key_count")), strict=True))
    often = sorted(key for key, count in counts.items() if OFTEN[0] <= count <= OFTEN[1])
    keys = often or sorted(counts)
    wanted = KEYS * bench.sizes.runs
    some = np.random.default_rng(bench.sizes.seed).permutation(keys)
    chosen = [str(key) for key in np.resize(some, wanted)]
    mine = table.filter(pc.is_in(table["key"], pa.array(sorted(set(chosen)), table["key"].type)))
    numbers = {key: numbers_in(mine.filter(pc.field("key") == key)["value"]) for key in set(chosen)}
    return Asked([chosen[at : at + KEYS] for at in range(0, wanted, KEYS)], numbers)


# every event of a key


def _goals(samples: Sequence[Samples]) -> list[Goal]:
    (ours,) = (each for each in samples if each.name == OURS)
    others = [each for each in samples if each.name not in (OURS, OF_FIELD, WITHOUT)]
    return goals_of(ours, others, KEY_MS)


def _by_key(bench: Workbench, root: str, asked: Asked) -> list[Samples]:
    """Seconds of the keys of a round, by searcher."""
    searchers = [
        of_lake(OURS, root),
        of_lake(WITHOUT, bench.lake("arrival"), FEW),
        of_field(OF_FIELD, bench.lake("arrival", index_fields=[FIELD])),
        *of_parquet(bench.parquet),
        *of_lance(bench, bench.parquet),
    ]
    return [*by_key(searchers, asked), *by_clickhouse(bench, bench.parquet, asked)]


# in a window


def _in_window(bench: Workbench, asked: Asked) -> list[Samples]:
    """Seconds of a key in a window, and of the window."""
    root, columns = bench.lake("time", index_keys=True), ["key", "value", "timestamp"]
    by_key, whole = (with_zone_maps(seglake.open(root).topic(TOPIC)) for _ in range(2))
    samples = [Samples("a key in the window", []), Samples("the window", [])]
    for key in [key for keys in asked.rounds for key in keys]:
        times = bench.events.times[asked.numbers[key]]
        start = int(times[len(times) // 2]) - WINDOW_MS // 2
        end = start + WINDOW_MS
        calls = (partial(by_key.find, key, start=start, end=end, columns=columns),
                 partial(whole.read_range, start, end, columns=columns))  # fmt: skip
        inside = (times >= start) & (times < end)
        right = asked.numbers[key][inside], bench.events.between(start, end)
        for turn in in_turns(2):
            timing = timed(partial(_read, calls[turn]))
            samples[turn].seconds.append(timing.seconds)
            numbers = numbers_in(timing.result["value"])
            require(np.array_equal(numbers, right[turn]), f"events of {key} are {numbers}")
    return samples


def _read(call: Callable[[], Any]) -> Any:
    return call().read_all()


# what key indexes cost


_INDEXED: dict[str, dict[str, Any]] = {
    "with key indexes": {"index_keys": True},
    "with an index of a field": {"index_fields": [FIELD]},
    "without": {},
}


def _ingest(bench: Workbench, name: str, topic: dict[str, Any]) -> Contender:
    root, files = bench.folder / f"ingest {name}", bench.events.files
    settings = bench.pipeline(str(root), "arrival", files, **topic)

    def prepare() -> None:
        bench.scratch(root.name)

    return Contender(name, partial(bench.ingest, settings), prepare=prepare, reads=files)


def _share(root: str) -> float:
    """Bytes of key indexes by those of logs, in percent."""
    files = [path for path in Path(root, "topics").rglob("*") if path.is_file()]
    sizes = {suffix: sum(path.stat().st_size for path in files if path.suffix == suffix)
             for suffix in (".keyindex", ".log")}  # fmt: skip
    return 100 * sizes[".keyindex"] / sizes[".log"]


# fields as columns


def _fields(bench: Workbench) -> list[Contender]:
    def check(found: Any) -> None:
        right = len(bench.events.times), int(bench.events.times.sum())
        have = len(found), pc.sum(found["ts"].cast(pa.int64())).as_py()
        require(have == right, f"the fields of {have[0]} events were read, of {right[0]}")

    lake, parquet = bench.lake("arrival"), bench.parquet_by_default
    log = seglake.open(lake).topic(TOPIC)
    ours = partial(_columns_of, log)
    return [
        Contender("Seglake, `fields`", ours, check, reads=[lake]),
        Contender("DuckDB's JSON functions", partial(_duckdb_fields, parquet), check,
                  reads=[parquet]),
        Contender("Polars' JSON functions", partial(_polars_fields, parquet), check,
                  reads=[parquet]),
    ]  # fmt: skip


def _columns_of(log: Log) -> Any:
    return log.read_range(0, 2**62, columns=["offset"], fields=FIELDS).read_all()


def _duckdb_fields(parquet: Path) -> Any:
    select = "SELECT (value->>'$.ts')::BIGINT AS ts, value->>'$.user' AS user"
    with duckdb.connect() as connection:
        return connection.sql(f"{select} FROM read_parquet('{parquet}')").to_arrow_table()


def _polars_fields(parquet: Path) -> Any:
    kind = pl.Struct({"ts": pl.Int64, "user": pl.String})
    value = pl.col("value").str.json_decode(kind)
    return pl.scan_parquet(parquet).select(value.alias("f")).unnest("f").collect().to_arrow()
