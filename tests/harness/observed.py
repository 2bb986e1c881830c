"""Everything that a lake shows to readers and that must not depend on who was killed."""

import shutil
from dataclasses import astuple, replace
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa

import seglake
from seglake.catalog.quarantine.open_rejects import expired_attempts, open_attempts
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.schema import RunRow, SegmentRow, SourceRow, rows_of
from seglake.catalog.table import CatalogTable
from seglake.catalog.version.snapshot import PartitionView, Snapshot
from seglake.errors import UsageError
from seglake.read.lake import Lake
from seglake.store import open_store
from tests.makers.lakes import open_catalog

NAMES = ["partition", "offset", "timestamp", "timestamp_type", "key", "value"]
STAMPED = (  # what depends on the clock in a topic of LogAppendTime
    "min_timestamp", "max_timestamp", "log_crc32c", "timeindex_crc32c", "zonemap_crc32c",
)  # fmt: skip


class Observed(NamedTuple):
    """One version of a lake, without the names of attempts and the time of day."""

    runs: tuple[str, ...]  # committed, by topic and then in the order of their commits
    records: list[tuple[Any, ...]]
    segments: list[tuple[Any, ...]]  # boundaries, sizes, checksums of all four files
    sources: list[tuple[Any, ...]]
    counts: list[tuple[Any, ...]]  # what the runs say of themselves
    rejected: list[tuple[Any, ...]]  # those that are open
    topics: list[tuple[Any, ...]]  # with their settings
    bounds: list[tuple[Any, ...]]  # of log partitions: log start, end, how far compacted


NOTHING = Observed((), [], [], [], [], [], [], [])  # there is no lake yet, or an empty one


def observe(root: str) -> Observed:
    """The newest version, as a reader finds it who opens it now."""
    try:
        table = open_catalog(root)
    except UsageError:
        return NOTHING
    snapshot = table.snapshot()
    lake = seglake.open(root, version=snapshot.version)
    history = sorted(lake.history(), key=lambda run: run.topic)  # stable: commits stay in order
    return Observed(
        tuple(run.run_id for run in history),
        records_of(lake),
        [_segment(row) for topic in lake.topics() for row in table.rows.segments(snapshot, topic)],
        sorted(each for topic in lake.topics() for each in _sources(table, snapshot, topic)),
        [_counts(run) for run in history],
        sorted(each for topic in lake.topics() for each in _rejected(table, snapshot, topic)),
        [astuple(row) for row in snapshot.topics()],
        [_bounds(view) for topic in lake.topics() for view in snapshot.partitions(topic)],
    )


def records_of(lake: Lake) -> list[tuple[Any, ...]]:
    """Every record, without the time of those that got theirs from the clock."""
    found: list[tuple[Any, ...]] = []
    for topic in lake.topics():
        log = lake.topic(topic)
        starts, ends = log.beginning_offsets(), log.end_offsets()
        plan = log.plan_offsets({p: (starts[p], ends[p]) for p in ends}, columns=NAMES)
        for batch in plan.execute():
            times = batch["timestamp"].cast(pa.int64()).to_pylist()
            columns = [times if n == "timestamp" else batch[n].to_pylist() for n in NAMES]
            found += [(topic, *row) for row in zip(*columns, strict=True)]
    found.sort(key=lambda record: record[:3])
    _assert_append_times_never_go_back(found)
    return [(*r[:3], None if r[4] else r[3], *r[4:]) for r in found]


def _assert_append_times_never_go_back(records: list[tuple[Any, ...]]) -> None:
    stamped = [record for record in records if record[4]]
    for earlier, later in pairwise(stamped):
        if earlier[:2] == later[:2]:
            assert earlier[3] <= later[3], "append time goes back"


def _segment(row: SegmentRow) -> tuple[Any, ...]:
    same: dict[str, Any] = {"attempt_id": "", "index_attempt_id": "", "created_at_ms": 0}
    if row.timestamp_type == "LogAppendTime":
        same |= dict.fromkeys(STAMPED, 0)
    return astuple(replace(row, **same))


def _sources(table: CatalogTable, snapshot: Snapshot, topic: str) -> list[tuple[Any, ...]]:
    rows = rows_of(SourceRow, topic, table.rows.all(snapshot, "source", topic))
    return [astuple(replace(row, attempt_id="")) for row in rows]


def _counts(run: RunRow) -> tuple[Any, ...]:
    return (run.topic, run.run_id, run.records, run.quarantined, run.input_files, run.input_rows,
            run.input_bytes, run.output_bytes)  # fmt: skip


def _rejected(table: CatalogTable, snapshot: Snapshot, topic: str) -> list[tuple[Any, ...]]:
    names = ("source_file", "line", "reason", "raw")
    expired = expired_attempts(table.rows.maintenance(snapshot, topic))
    attempts = set(open_attempts(table.rows.runs(snapshot, topic))) - expired
    rows = QuarantineTable(table.store).read(topic, attempts)
    return [
        (topic, *row) for t in rows for row in zip(*(t[n].to_pylist() for n in names), strict=True)
    ]


def _bounds(view: PartitionView) -> tuple[Any, ...]:
    ends = (view.log_start_offset, view.end_offset, view.cleaned_offset)
    return (view.topic, view.partition, *ends)


def copy_lake(source: str, target: str) -> None:
    """A lake elsewhere: nothing in it says where it stands."""
    if "://" not in source + target:
        shutil.copytree(source, target)
        return
    old, new = open_store(source), open_store(target)
    for found in old.list():
        new.put(found.key, old.read_all(found.key))


def remove_lake(root: str) -> None:
    """A lake that is no longer wanted."""
    if "://" not in root:
        shutil.rmtree(root, ignore_errors=True)
        return
    store = open_store(root)
    store.delete([found.key for found in store.list()])
