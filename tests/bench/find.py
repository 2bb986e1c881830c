"""Searches: every event of a key, and what the index for it costs an ingest."""

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.bench.events import numbers_in
from tests.bench.measure import Contender, Goal, Samples, Section, Table, race
from tests.bench.searchers import KEYS, LANCE, OFTEN, Asked, by_key, of_lake, of_lance, of_parquet
from tests.bench.workbench import Workbench

OURS = "Seglake, key index"
KEY_MS = 3  # for 4 million events

_TEXT = """\
{keys} keys that some {least} to {most} events have, in each of {runs} rounds others. Every event of
a key is handed to the caller as Arrow, key, value and time, and compared with a pass over all
events. All have open what can be kept open. DuckDB and Polars read Parquet sorted by time, in row
groups of 8,192 rows with DuckDB's Bloom filters; Lance has a BTREE on the key.
"""


def run(bench: Workbench) -> Section:
    """Measure."""
    text = _TEXT.format(keys=KEYS, least=OFTEN[0], most=OFTEN[1], runs=bench.sizes.runs)
    searchers = [
        of_lake(OURS, bench.lake("arrival", index_keys=True)),
        *of_parquet(bench.parquet),
        *of_lance(bench, bench.parquet),
    ]
    samples = by_key(searchers, _asked(bench))
    without, indexed = ingests = race(
        [_ingest(bench, "without", index_keys=False), _ingest(bench, "with", index_keys=True)],
        bench.sizes.runs,
    )
    section = Section("find", "Searches", text)
    section.tables = [
        _table("Every event of a key", samples, 1e3 / KEYS, "ms a key"),
        _table("Ingest", ingests, 1, "s"),
    ]
    text = "Time of an ingest with key indexes, relative to one without"
    section.goals = [
        *_goals(samples),
        Goal(text, indexed.times_as_fast_as(without)[1], 1.1, at_least=False),
    ]
    return section


def _goals(samples: list[Samples]) -> list[Goal]:
    ours, *others = samples
    ours_ms = ours.spread(1e3 / KEYS)[1]
    slower = min(ours.times_as_fast_as(each)[1] for each in others if each.name != LANCE)
    goals = [
        Goal("Milliseconds to find every event of a key", ours_ms, KEY_MS, at_least=False),
        Goal("Speed of such a search, relative to the best of DuckDB and Polars", slower, 1.0),
    ]
    lance = (each.times_as_fast_as(ours)[1] for each in others if each.name == LANCE)
    text = f"Time of such a search, relative to {LANCE}"
    return goals + [Goal(text, times, 2.0, at_least=False) for times in lance]


def _asked(bench: Workbench) -> Asked:
    """Choose keys that `OFTEN` events have, and find their events by a pass over all."""
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


def _ingest(bench: Workbench, name: str, **topic: object) -> Contender:
    root, files = bench.folder / f"ingest {name}", bench.events.files
    settings = bench.pipeline(str(root), "arrival", files, **topic)

    def prepare() -> None:
        bench.scratch(root.name)

    run_one = partial(bench.ingest, settings)
    return Contender(f"{name} key indexes", run_one, prepare=prepare, reads=files)


def _table(title: str, samples: list[Samples], factor: float, unit: str) -> Table:
    rows = [[s.name, *s.spread(factor), *s.times_as_fast_as(samples[0])] for s in samples]
    columns = ["", f"{unit}, min", "median", "max", "times as fast as the first: min"]
    return Table(title, [*columns, "median", "max"], rows)
