"""Searches in a large log: every event of a key, as the log becomes 25 times as long."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.bench import searchers, writers
from tests.bench.events import Events, Int64s, generate, users_in
from tests.bench.measure import Section, say
from tests.bench.searchers import FEW, FIELD, KEYS, OFTEN, Asked
from tests.bench.workbench import Workbench, require

OURS, OF_FIELD = "Seglake, key index", "Seglake, index of a field, all partitions"
KEY_MS, FIELD_MS = 30, 120  # for 10**8 events

_TEXT = """\
{events:,} events: {copies} times as many as elsewhere on this page, one copy after another, each
with later times and with keys of its own. {keys} keys that some {least} to {most} events have, in
each of {runs} rounds others, from all copies. The rest is as in the part *Searches*; the lake has
key indexes and indexes of the field `user`. Polars, which has no index, is asked for {few} keys of
a round.
"""


class _Copies(NamedTuple):
    """What there is of all copies: a lake, Parquet files, and what is right."""

    root: str
    parquet: Path
    users: dict[str, Int64s]  # the numbers of the events of each user that may be asked for


def run(bench: Workbench) -> Section:
    """Measure."""
    sizes = bench.sizes
    copies = _grow(bench)
    asked = _asked(bench, copies.users)
    contenders = [
        searchers.of_lake(OURS, copies.root),
        searchers.of_field(OF_FIELD, copies.root),
        *searchers.of_parquet(copies.parquet, FEW),
        *searchers.of_lance(bench, copies.parquet),
    ]
    samples = [
        *searchers.by_key(contenders, asked),
        *searchers.by_clickhouse(bench, copies.parquet, asked),
    ]
    events = sizes.events * sizes.large_copies
    section = Section("large", "Searches in a large log", _TEXT.format(
        events=events, copies=sizes.large_copies, keys=KEYS, least=OFTEN[0], most=OFTEN[1],
        runs=sizes.runs, few=FEW,
    ))  # fmt: skip
    section.tables = [searchers.table_of(samples, f"Every event of a key, of {events:,} events")]
    ours, of_a_field, *others = samples
    section.goals = searchers.goals_of(ours, of_a_field, others, KEY_MS, FIELD_MS)
    return section


def _grow(bench: Workbench) -> _Copies:
    """Ingest one copy after another; its files go before those of the next one come."""
    root, parquet = bench.scratch("large"), bench.scratch("large-parquet")
    parquet.mkdir()
    users: dict[str, Int64s] = {}
    for copy in range(bench.sizes.large_copies):
        say(f"  copy {copy + 1} of {bench.sizes.large_copies}")
        events = _copy(bench, copy)
        writers.duckdb_parquet(events.files, parquet / f"{copy:02}.parquet", row_group_size=8192)
        pipeline = bench.pipeline(str(root), "arrival", events.files,
                                  index_keys=True, index_fields=[FIELD])  # fmt: skip
        records = bench.ingest(pipeline, run_id=f"copy-{copy}")
        require(records == len(events.times), "an ingest lost records")
        users |= _some_users(events, copy)
        bench.scratch(f"copy-{copy}")
    return _Copies(str(root), parquet / "*.parquet", users)


def _copy(bench: Workbench, copy: int) -> Events:
    sizes = bench.sizes
    return generate(
        bench.scratch(f"copy-{copy}"), events=sizes.events, files=sizes.files,
        lateness_ms=sizes.lateness_ms, copy=copy,
    )  # fmt: skip


def _some_users(events: Events, copy: int) -> dict[str, Int64s]:
    """The numbers of the events of some users of a copy who have so many."""
    users = np.concatenate([users_in(path) for path in events.files])
    names, counts = np.unique(users, return_counts=True)
    often = names[(counts >= OFTEN[0]) & (counts <= OFTEN[1])]
    chosen = np.random.default_rng(copy).permutation(often if len(often) else names)[:KEYS]
    first = copy * len(events.times)
    return {name.decode(): first + np.flatnonzero(users == name) for name in chosen}


def _asked(bench: Workbench, users: dict[str, Int64s]) -> Asked:
    count = KEYS * bench.sizes.runs
    chosen = np.resize(np.random.default_rng(bench.sizes.seed).permutation([*users]), count)
    keys = [str(name) for name in chosen]
    return Asked([keys[at : at + KEYS] for at in range(0, count, KEYS)], users)
