"""Commits: what one costs as the catalog grows, and what it costs to open it."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

from seglake.catalog.schema import Row, RunRow, SegmentRow, SourceRow, TopicRow
from seglake.catalog.table import CatalogTable
from seglake.catalog.version.snapshot import Snapshot
from seglake.layout import new_attempt
from seglake.maintain.expiry.retention import retain_topic
from seglake.maintain.topic_settings import alter
from seglake.store import open_store
from seglake.store.counting import CountingStore
from tests.bench import measure
from tests.bench.measure import Chart, Contender, Goal, Section, say, timed
from tests.bench.workbench import TOPIC, Workbench, require
from tests.makers.lakes import create_catalog, open_catalog

SEGMENTS, RECORDS = 400, 1000  # of a commit, each in a log partition of its own; of a segment
STEPS = 10
RETAINED = 3  # commits whose segments one retention removes
RETENTIONS = 5

_TEXT = """\
{commits:,} commits one after another, each of {segments} segments (rows only: there are no files
behind them), a run and an input file. The commits merge files and write checkpoints on the way,
which is in their times. After each tenth a reader opens the catalog. Memory is that of the columns,
with the room behind them. At the end retention removes the oldest segments, {retained:,} at a time,
from the version that is open; the share is that of the bytes of the catalog's data files.
"""


def run(bench: Workbench) -> Section:
    """Measure."""
    lake = _Lake(str(bench.scratch("catalog")))
    tenth = max(1, bench.sizes.commits // STEPS)
    rows = [lake.row(tenth, bench.sizes.runs) for _ in range(STEPS)]
    section = Section(
        "catalog", "Commits",
        _TEXT.format(
            commits=STEPS * tenth, segments=SEGMENTS, retained=SEGMENTS * min(RETAINED, tenth)
        ),
    )  # fmt: skip
    columns = ["commits", "segments", "ms per commit: median", "mean", "max"]
    columns += ["ms per refresh: median", "ms to open: median", "data files", "read by an open"]
    columns += ["bytes per segment"]
    charts = [Chart("ms per commit, mean", 3), Chart("ms to open", 6)]
    section.tables = [measure.Table("By number of commits", columns, rows, charts=charts)]
    removed = [lake.retained(min(RETAINED, tenth), number) for number in range(RETENTIONS)]
    names = ["segments before", "segments removed", "ms", "KB read", "percent of the catalog"]
    section.tables.append(measure.Table("Retention", names, removed))
    ms, share = (statistics.median(row[at] for row in removed) for at in (2, 4))
    first, last = rows[0], rows[-1]
    section.goals = [
        Goal("Mean of the last tenth of the commits: times that of the first",
             last[3] / first[3], 1.5, at_least=False),
        Goal(f"ms to open {last[1]:,} segments, which came in {last[0]:,} commits", last[6], 2000,
             at_least=False),
        Goal("bytes in memory per segment", last[9], 100, at_least=False),
        Goal(f"ms to remove {removed[0][1]:,} of {removed[0][0]:,} segments", ms, 300,
             at_least=False),
        Goal(f"Percent of the catalog read to remove {removed[0][1]:,} segments", share, 5,
             at_least=False),
    ]  # fmt: skip
    return section


class _Lake:
    """A catalog that grows."""

    def __init__(self, root: str) -> None:
        self.root, self.done = root, 0
        self.table = create_catalog(root)
        self.snapshot = self.table.snapshot()

    def row(self, commits: int, runs: int) -> list[Any]:
        """The figures after some more commits."""
        costs = [self._commit() for _ in range(commits)]
        say(f"  {self.done:,} commits")
        made, seen = ([1000 * cost[which] for cost in costs] for which in (0, 1))
        (opened,) = measure.race([Contender("open", self._open, self._check)], runs)
        store = CountingStore(open_store(self.root))
        table = CatalogTable(store)
        store.counts.requests = 0
        snapshot = table.snapshot()
        return [
            self.done, SEGMENTS * self.done, statistics.median(made), statistics.mean(made),
            max(made), statistics.median(seen), opened.spread(1e3)[1], len(snapshot.files),
            store.counts.requests, _bytes(snapshot) / (SEGMENTS * self.done),
        ]  # fmt: skip

    def _commit(self) -> tuple[float, float]:
        """The seconds of a commit, and of a refresh to it."""
        attempt, base = new_attempt(), self.done * RECORDS
        rows: list[Row] = [] if self.done else [_topic()]
        rows += [_segment(partition, base, attempt) for partition in range(SEGMENTS)]
        rows += [_run(self.done, attempt), _source(attempt)]
        commit = partial(
            self.table.commit, rows, topic=TOPIC, base=self.snapshot, attempt_id=attempt
        )
        made = timed(commit).seconds
        seen = timed(partial(self.table.refresh, self.snapshot))
        self.snapshot, self.done = seen.result, self.done + 1
        return made, seen.seconds

    def retained(self, commits: int, number: int) -> list[Any]:
        """The figures of a retention that removes the segments of the oldest `commits`."""
        store = CountingStore(open_store(self.root))
        table = CatalogTable(store)
        if not number:
            alter(self.root, TOPIC, {"retention.ms": 0})
        base = table.snapshot()
        whole = sum(file.size_bytes for file in base.files)
        segments = sum(map(len, base.partitions(TOPIC)))
        store.counts.bytes_read = 0
        now_ms = (number + 1) * commits * RECORDS
        found = timed(partial(retain_topic, table, TOPIC, now_ms, dry_run=False, base=base))
        require(found.result.segments == SEGMENTS * commits, "retention removed something else")
        read = store.counts.bytes_read
        return [segments, SEGMENTS * commits, 1000 * found.seconds, read / 1e3, 100 * read / whole]

    def _open(self) -> Snapshot:
        return open_catalog(self.root).snapshot()

    def _check(self, snapshot: Snapshot) -> None:
        ends = {view.end_offset for view in snapshot.partitions(TOPIC)}
        require(ends == {self.done * RECORDS}, "an opened catalog lacks a commit")


def _bytes(snapshot: Snapshot) -> int:
    """What the columns of all log partitions hold, and the attempts that they share."""
    arrays = {}
    for view in snapshot.partitions(TOPIC):
        ids = view.segments.attempts._ids
        for column in [*view.segments.columns, view.running_max_timestamps, ids]:
            whole = column if column.base is None else column.base
            arrays[id(whole)] = whole.nbytes
    return sum(arrays.values())


def _topic() -> TopicRow:
    return TopicRow(
        topic=TOPIC, sequence=1, partitions=SEGMENTS, partitioner="murmur2",
        timestamp_type="CreateTime",
    )  # fmt: skip


def _segment(partition: int, base: int, attempt: str) -> SegmentRow:
    sizes: dict[str, Any] = {
        f"{name}_bytes": 1000 for name in ("log", "index", "timeindex", "zonemap")
    }
    sums: dict[str, Any] = {
        f"{name}_crc32c": base for name in ("log", "index", "timeindex", "zonemap")
    }
    return SegmentRow(
        topic=TOPIC, partition=partition, base_offset=base, end_offset=base + RECORDS,
        record_count=RECORDS, min_timestamp=base, max_timestamp=base + RECORDS - 1,
        offset_of_max_timestamp=base + RECORDS - 1, max_lateness_ms=0, codec="zstd",
        timestamp_type="CreateTime", index_interval_kind="bytes", index_interval=4096,
        attempt_id=attempt, created_at_ms=base, **sizes, **sums,
    )  # fmt: skip


def _run(number: int, attempt: str) -> RunRow:
    return RunRow(
        topic=TOPIC, pipeline="bench", run_id=str(number), attempt_id=attempt, fingerprint="",
        records=SEGMENTS * RECORDS, started_at_ms=number * RECORDS,
        finished_at_ms=(number + 1) * RECORDS,
    )  # fmt: skip


def _source(attempt: str) -> SourceRow:
    return SourceRow(
        topic=TOPIC, path=f"in/{attempt}", size_bytes=1, modified_ms=0, etag=None,
        rows=SEGMENTS * RECORDS, attempt_id=attempt,
    )  # fmt: skip
