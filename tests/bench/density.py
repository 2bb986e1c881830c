"""Index density: what closer index entries cost, and what they save at a lookup."""

from __future__ import annotations

import statistics
from functools import partial
from typing import NamedTuple

import numpy as np

from seglake.format.index import OFFSET_ENTRY, TIME_ENTRY, IndexPolicy
from seglake.log.reads import SharedReads
from seglake.log.segment_lookup import PartitionReader
from seglake.log.zones.search import ZoneSearch
from seglake.maintain.health.reindex import reindex
from seglake.read.lake import Lake
from tests.bench.events import EVENTS_PER_SECOND
from tests.bench.lookup import Tally
from tests.bench.measure import Section, Table, say, timed
from tests.bench.page_cache import hold
from tests.bench.workbench import TOPIC, Workbench
from tests.makers.lakes import open_catalog

POLICIES = {
    "dense": IndexPolicy("bytes", 0),
    "every 100 records": IndexPolicy("records", 100),
    "every 4,096 bytes": IndexPolicy("bytes", 4096),
    "every 32 KiB": IndexPolicy("bytes", 32 * 1024),
    "one a minute": IndexPolicy("ms", 60_000),
}
BATCH_BYTES = (16_384, 1_024)
SEEKS = 300
PARTITIONS = 3_500
DAY_SECONDS = 86_400
MIB, GIB = 2**20, 2**30

_TEXT = """\
The same logs with their indexes written anew by each policy (`reindex`), and {seeks} lookups of
random times by readers with the index in memory and nothing of the log. No index is finer than a
batch: with the default `batch.size` and zstd, several policies give the same index, so the
figures are repeated with small batches. Index bytes are those of all three files. *Memory* is
computed: the index files of {partitions:,} partitions and one day, as though all were held in
memory, at this log's {rate:.0f} records per second and partition. KIP-33 estimated the time index
alone, by its entries of {entry} bytes: {second:.1f} GiB with one entry a second, {minute:.1f} MiB
with one a minute.
"""


class _Measured(NamedTuple):
    entries: int
    index_bytes: int
    log_bytes: int
    fetched: list[int]
    seconds: list[float]


def run(bench: Workbench) -> Section:
    """Measure."""
    entry = TIME_ENTRY.itemsize
    section = Section("density", "Index density", _TEXT.format(
        seeks=SEEKS, partitions=PARTITIONS, rate=EVENTS_PER_SECOND / bench.sizes.partitions,
        entry=entry, second=PARTITIONS * DAY_SECONDS * entry / GIB,
        minute=PARTITIONS * DAY_SECONDS / 60 * entry / MIB,
    ))  # fmt: skip
    for size in BATCH_BYTES:
        root = bench.lake("arrival", batch_size=size)
        rows = [
            _row(bench, name, _measure(bench, root, policy)) for name, policy in POLICIES.items()
        ]
        columns = ["policy", "entries per GiB", "index KiB per GiB", "log bytes per lookup: median",
                   "max", "µs per lookup: median", "memory, MiB"]  # fmt: skip
        section.tables.append(Table(f"`batch.size` = {size}", columns, rows))
    return section


def _measure(bench: Workbench, root: str, policy: IndexPolicy) -> _Measured:
    say(f"  index by {policy.by}, {policy.interval}")
    version = reindex(root, TOPIC, policy).version
    table = open_catalog(root)
    rows = table.segments(table.snapshot(version), TOPIC)
    tally = Tally(root)
    view = Lake(tally, version).topic(TOPIC).reader(0).view
    events, random = bench.events, np.random.default_rng(5)
    fetched, seconds = [], []
    hold([root])
    for time in random.integers(events.start_ms, events.end_ms, SEEKS).tolist():
        reader = PartitionReader(view, SharedReads(tally))
        index = int(reader.segments_reaching(np.array([time]))[0])
        if index < len(view):
            reader.ask(
                reader.segment(index), ZoneSearch.next_reaching, time, -1
            )  # the index is loaded
            tally.seen.clear()
            seconds.append(timed(partial(reader.offset_for_time, time)).seconds)
            fetched.append(sum(tally.seen["log"]))
    return _Measured(
        sum(row.index_bytes for row in rows) // OFFSET_ENTRY.itemsize,
        sum(row.index_bytes + row.timeindex_bytes + row.zonemap_bytes for row in rows),
        sum(row.log_bytes for row in rows), fetched, seconds,
    )  # fmt: skip


def _row(bench: Workbench, name: str, found: _Measured) -> list[str | int | float | None]:
    gib = found.log_bytes / GIB
    span_seconds = (bench.events.end_ms - bench.events.start_ms) / 1000
    day = found.index_bytes / bench.sizes.partitions * DAY_SECONDS / span_seconds
    return [
        name, int(found.entries / gib), found.index_bytes / gib / 1024,
        int(statistics.median(found.fetched)), max(found.fetched),
        1e6 * statistics.median(found.seconds), day * PARTITIONS / MIB,
    ]  # fmt: skip
