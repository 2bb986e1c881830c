"""Searches: every event of a key, over all times and in a window; fields of values as columns."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import seglake
from seglake.format.index import RECORD_KEYS
from seglake.format.key_hashes import hashes_of_keys
from seglake.log.zones.search import ZoneSearch
from seglake.read.log import Log
from tests.bench.events import Int64s, numbers_in
from tests.bench.measure import Contender, Goal, Samples, Section, Table, in_turns, race, say, timed
from tests.bench.page_cache import hold
from tests.bench.peers import with_zone_maps
from tests.bench.workbench import TOPIC, Workbench, require
from tests.bench.writers import has_clickhouse

KEYS = 20  # of a round; each round has others
OFTEN = (60, 80)  # events of such a key
WINDOW_MS = 60_000
MANY = 10_000  # keys that are looked for in the key indexes at once
OURS, WITHOUT = "Seglake, key index", "Seglake, no key index"
OF_FIELD = "Seglake, index of a field"
FIELD = "user"  # of the value, which has the key, too
LANCE, CLICKHOUSE = "Lance, BTREE on the key", "ClickHouse, Bloom filters"
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

_CLICKHOUSE = """
import json, sys, time
from chdb import session
folder, parquet, asked = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
engine = session.Session(folder)
engine.query("CREATE DATABASE bench")
engine.query("CREATE TABLE bench.events (key String, value String CODEC(ZSTD), time Int64,"
             " INDEX keys key TYPE bloom_filter GRANULARITY 1) ENGINE = MergeTree ORDER BY time")
engine.query(f"INSERT INTO bench.events SELECT key, value, time FROM file('{parquet}', Parquet)")
engine.query("OPTIMIZE TABLE bench.events FINAL")
query = "SELECT key, value, time FROM bench.events WHERE key = '%s'"
for key in asked[0][:3]:
    engine.query(query % key, "ArrowStream")
answers = []
for keys in asked:
    begun = time.perf_counter()
    found = [engine.query(query % key, "ArrowStream").bytes() for key in keys]
    answers.append(time.perf_counter() - begun)
import pyarrow as pa
counts = [len(pa.ipc.open_stream(each).read_all()) for each in found]
print(json.dumps([answers, counts]), flush=True)
"""

Search = Callable[[str], Any]  # from a key to its events


class _Asked(NamedTuple):
    """The keys of each round, and the numbers of the events of each key."""

    rounds: list[list[str]]
    numbers: dict[str, Int64s]


def run(bench: Workbench) -> Section:
    """Measure."""
    text = _TEXT.format(keys=KEYS, least=OFTEN[0], most=OFTEN[1], runs=bench.sizes.runs,
                        window=WINDOW_MS // 1000, many=MANY)  # fmt: skip
    section = Section("find", "Searches", text)
    root = bench.lake("arrival", index_keys=True)
    asked = _asked(bench)
    by_key = _by_key(bench, root, asked)
    inside = _in_window(bench, asked)
    ingests = race([_ingest(bench, name, topic) for name, topic in _INDEXED.items()],
                   bench.sizes.runs)  # fmt: skip
    columns = race(_fields(bench), bench.sizes.runs, aloud=True)
    share, probes = _share(root), _probes(root)
    of_field = _share(bench.lake("arrival", index_fields=[FIELD]))
    events = len(bench.events.times)
    section.tables = [
        _table("Every event of a key", by_key, 1e3 / KEYS, "ms a key"),
        _table("In a window", inside, 1e3, "ms"),
        _table("Ingest", ingests, 1, "s"),
        _table(f"Two fields of {events:,} events", columns, 1, "s"),
    ]
    section.tables[2].notes.append(
        f"Of the log's bytes, key indexes take {share:.2f} %, those of a field {of_field:.2f} %."
    )
    section.goals = [
        *_goals_by_key(by_key),
        Goal("A key in a window of 60 s: times the time of the window",
             inside[1].times_as_fast_as(inside[0])[1], 1.0, at_least=False),
        Goal("Key indexes, % of the log", share, 5.0, at_least=False),
        Goal("Indexes of a field, % of the log", of_field, 5.0, at_least=False),
        Goal("Ingest with key indexes: times the time without",
             ingests[2].times_as_fast_as(ingests[0])[1], 1.1, at_least=False),
        Goal("Millions of probes of a block a second", probes / 1e6, 20.0),
        Goal("Two fields, millions of records a second",
             events / columns[0].spread()[1] / 1e6, 3.0),
        *(Goal(f"Two fields, times as fast as {other.name}",
               columns[0].times_as_fast_as(other)[1], 1.0) for other in columns[1:]),
    ]  # fmt: skip
    return section


def _asked(bench: Workbench) -> _Asked:
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
    return _Asked([chosen[at : at + KEYS] for at in range(0, wanted, KEYS)], numbers)


# every event of a key


def _by_key(bench: Workbench, root: str, asked: _Asked) -> list[Samples]:
    """Seconds of the keys of a round, by searcher."""
    fielded = bench.lake("arrival", index_fields=[FIELD])
    searchers = {OURS: _seglake(root), WITHOUT: _seglake(bench.lake("arrival")),
                 OF_FIELD: _seglake_field(fielded), "DuckDB on Parquet": _duckdb(bench.parquet),
                 "Polars on Parquet": _polars(bench.parquet)}  # fmt: skip
    if find_spec("lance"):
        searchers[LANCE] = _lance(bench.parquet, bench.scratch("keyed.lance"))
    else:
        bench.skipped.append("Lance: `make bench` installs pylance.")
    samples = {name: Samples(name, []) for name in searchers}
    for search in searchers.values():
        search(asked.rounds[0][0])
    names = [*searchers]
    for keys in asked.rounds:
        for name in (names[at] for at in in_turns(len(names))):
            hold([root, fielded, bench.parquet])
            spent = _search_all(name, searchers[name], keys, asked.numbers)
            samples[name].seconds.append(spent)
            say(f"  {name}: {1000 * spent / KEYS:.2f} ms a key")
    return [*samples.values(), *_clickhouse(bench, asked)]


def _search_all(
    name: str, search: Search, keys: Sequence[str], numbers: dict[str, Int64s]
) -> float:
    """Seconds for all keys; those without an index ask for two, and are taken times the rest."""
    some = keys if name != WITHOUT else keys[:2]
    spent, found = 0.0, list[Any]()
    for key in some:
        timing = timed(partial(search, key))
        spent += timing.seconds
        found.append(timing.result)
    for key, table in zip(some, found, strict=True):
        right = np.array_equal(numbers_in(table["value"]), numbers[key])
        require(right, f"{name} found {len(table)} events of {key}, not {len(numbers[key])}")
    return spent * len(keys) / len(some)


def _seglake(root: str) -> Search:
    log, columns = with_zone_maps(seglake.open(root).topic(TOPIC)), ["key", "value", "timestamp"]
    return lambda key: log.find(key, columns=columns).read_all()


def _seglake_field(root: str) -> Search:
    log, columns = with_zone_maps(seglake.open(root).topic(TOPIC)), ["key", "value", "timestamp"]
    return lambda key: log.find(where={FIELD: key}, columns=columns).read_all()


def _duckdb(parquet: Path) -> Search:
    connection = duckdb.connect()
    connection.execute("SET parquet_metadata_cache = true")
    query = f"SELECT * FROM read_parquet('{parquet}') WHERE key = ?"
    return lambda key: connection.sql(query, params=[key]).to_arrow_table()


def _polars(parquet: Path) -> Search:
    frame = pl.scan_parquet(parquet)
    return lambda key: frame.filter(pl.col("key") == key).collect().to_arrow()


def _lance(parquet: Path, path: Path) -> Search:
    lance: Any = import_module("lance")
    dataset = lance.write_dataset(pq.read_table(parquet), str(path))
    dataset.create_scalar_index("key", "BTREE")
    return lambda key: dataset.to_table(filter=f"key = '{key}'")


def _clickhouse(bench: Workbench, asked: _Asked) -> list[Samples]:
    if not has_clickhouse():
        bench.skipped.append("ClickHouse: `make bench` installs chdb.")
        return []
    command = [sys.executable, "-c", _CLICKHOUSE, str(bench.scratch("keyed.clickhouse")),
               str(bench.parquet), json.dumps(asked.rounds)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"ClickHouse: {done.stderr[-2000:]}")
    seconds, counts = json.loads(done.stdout.splitlines()[-1])
    right = [len(asked.numbers[key]) for key in asked.rounds[-1]]
    require(counts == right, f"ClickHouse found {counts} events, not {right}")
    return [Samples(CLICKHOUSE, seconds)]


def _goals_by_key(samples: Sequence[Samples]) -> list[Goal]:
    ours, by_field = (next(s for s in samples if s.name == name) for name in (OURS, OF_FIELD))
    others = [each for each in samples if each.name not in (OURS, OF_FIELD, WITHOUT)]
    slow = [ours.times_as_fast_as(each)[1] for each in others if each.name != LANCE]
    goals = [
        Goal("Every event of a key, ms", ours.spread(1e3 / KEYS)[1], 3.0, at_least=False),
        Goal("Every event of a key: times as fast as the best but Lance", min(slow), 1.0),
        Goal(
            "Every event with a value of a field, ms",
            by_field.spread(1e3 / KEYS)[1],
            12.0,
            at_least=False,
        ),
    ]
    text = f"Every event of a key: times the time of {LANCE}"
    return goals + [Goal(text, each.times_as_fast_as(ours)[1], 2.0, at_least=False)
                    for each in others if each.name == LANCE]  # fmt: skip


# in a window


def _in_window(bench: Workbench, asked: _Asked) -> list[Samples]:
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


def _probes(root: str) -> float:
    """Pairs of a key and a block that are decided in a second of one core, indexes in memory."""
    log = seglake.open(root).topic(TOPIC)
    keys = (b"u%d" % (100_000 + number) for number in range(MANY))
    sought = {RECORD_KEYS: hashes_of_keys(keys)}
    blocks, calls = 0, list[Callable[[], Any]]()
    for partition in log.partitions():
        reader = log.reader(partition)
        for index in range(len(reader.view)):
            segment = reader.segment(index)
            count = len(reader.ask(segment, ZoneSearch.times)[0])
            blocks += count
            calls.append(partial(reader.key_blocks, segment, sought, count, 0, count))
    for call in calls:
        call()
    return MANY * blocks / sum(timed(call).seconds for call in calls)


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


def _table(title: str, samples: Sequence[Samples], factor: float, unit: str) -> Table:
    first = samples[0]
    rows = [[each.name, *each.spread(factor), *each.times_as_fast_as(first)] for each in samples]
    columns = ["", f"{unit}, min", "median", "max", "times as fast as the first: min", "median",
               "max"]  # fmt: skip
    return Table(title, columns, rows)
