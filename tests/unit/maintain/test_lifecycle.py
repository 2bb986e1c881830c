"""Any order of ingests, every verb of the lifecycle, and pinned readers, against plain lists."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

import seglake
from seglake.engine import LocalEngine
from seglake.errors import OffsetNotFound, OffsetOutOfRange, VersionExpired
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.health.verify import verify
from seglake.maintain.undo import replace_files
from seglake.maintain.vacuum import vacuum
from seglake.read.lake import Lake
from seglake.read.log import Log
from seglake.write.driver.attempt import DeclaredRun
from seglake.write.driver.report import Report
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import Line, Stored, T, ingest, pipeline_of, write_file
from tests.makers.strategies import examples

NAMES = ["partition", "offset", "timestamp", "timestamp_type", "key", "value"]
DAY_MS = 86_400_000
KEYS = ["a", "b", "c", "d", None]
TOPIC = {
    "partitions": 2, "batch.size": 150, "segment.bytes": 600, "compression.type": "lz4",
    "cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 0.0,
}  # fmt: skip


class Pinned(NamedTuple):
    """A log that somebody has open, and what it holds."""

    log: Log
    records: list[Stored]


def records_of(log: Log) -> list[Stored]:
    """Every record of a log, in the order of partition and offset."""
    starts, ends = log.beginning_offsets(), log.end_offsets()
    plan = log.plan_offsets({p: (starts[p], ends[p]) for p in ends}, columns=NAMES)
    found = []
    for batch in plan.execute():
        times = batch["timestamp"].cast(pa.int64()).to_pylist()
        columns = [times if n == "timestamp" else batch[n].to_pylist() for n in NAMES]
        found += [Stored(*row) for row in zip(*columns, strict=True)]
    return sorted(found, key=lambda record: (record.partition, record.offset))


class Lifecycle(RuleBasedStateMachine):
    """A topic that lives; `records` is what it must hold, `runs` the records of each run."""

    run_ids = Bundle("run_ids")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.root = str(Path(self.folder.name) / "lake")
        self.runs: dict[str, set[Stored]] = {}
        self.records: set[Stored] = set()
        self.starts, self.ends = {0: 0, 1: 0}, {0: 0, 1: 0}
        self.pins: list[Pinned] = []
        self.number = 0

    def teardown(self) -> None:
        """Everything is in order at the end."""
        assert verify(self.root, deep=True).findings == []
        self.folder.cleanup()

    @initialize(target=run_ids)
    def begin(self) -> object:
        """The reader that follows all changes opens the lake after the first run."""
        self.ingest("first", [Line(T, "a"), Line(T + 1, None)])
        self.follower: Lake = seglake.open(self.root)
        return multiple("first")

    # -------------------------------------------------------------- writers

    def _files(self, run_id: str, lines: list[Line]) -> Path:
        self.number += 1
        moved = [line._replace(timestamp=line.timestamp + 1000 * self.number) for line in lines]
        return write_file(Path(self.folder.name) / run_id / "in.jsonl", moved).parent

    def _took(self, run_id: str, report: Report) -> None:
        if report.status != "committed":
            return
        for gone in report.replaced_runs:
            self.records -= self.runs.pop(gone, set())
        found = records_of(seglake.open(self.root).topic("events"))
        self.runs[run_id] = {each for each in found if each.offset >= self.ends[each.partition]}
        self.records |= self.runs[run_id]
        assert report.records == len(self.runs[run_id])
        self.ends = seglake.open(self.root).topic("events").end_offsets()

    events = st.lists(
        st.builds(Line, st.integers(T, T + 500), st.sampled_from(KEYS), st.just(0), st.none()),
        max_size=14,
    )

    @rule(target=run_ids, run_id=st.sampled_from(["r1", "r2", "r3"]), lines=events)
    def ingest(self, run_id: str, lines: list[Line]) -> str:
        """A run, unless it is committed."""
        if run_id not in self.runs:
            settings = pipeline_of(self.root, [self._files(run_id, lines)], topic=TOPIC)
            self._took(run_id, ingest(settings, run_id))
        return run_id

    @rule(run_id=run_ids, lines=events)
    def replace(self, run_id: str, lines: list[Line]) -> None:
        """A corrected file takes the place of the old one."""
        settings = pipeline_of(self.root, [self._files(run_id, lines)], topic=TOPIC)
        self._took(
            run_id,
            replace_files(
                LocalEngine(), settings, DeclaredRun(run_id), force=True, with_nothing=True
            ),
        )

    @rule(run_id=run_ids)
    def undo(self, run_id: str) -> None:
        """A run leaves."""
        if run_id in self.runs:
            seglake.undo(self.root, "events", run_id, force=True)
            self.records -= self.runs.pop(run_id)

    # -------------------------------------------------------------- maintenance

    @rule(everything=st.booleans(), rebatch=st.booleans())
    def merge(self, everything: bool, rebatch: bool) -> None:
        """Small segments become few; no record changes."""
        seglake.merge(self.root, "events", everything=everything, rebatch=rebatch)

    @rule()
    def compact(self) -> None:
        """Of each key the latest record stays; records without a key go."""
        seglake.compact(self.root, "events", force=True)
        latest: dict[tuple[int, bytes], Stored] = {}
        for record in sorted(self.records, key=lambda each: each.offset):
            if record.key is not None:
                latest[record.partition, record.key] = record
        self._keep(set(latest.values()))

    @rule(keys=st.sets(st.sampled_from("abcd"), min_size=1, max_size=2), gone=st.booleans())
    def erase(self, keys: set[str], gone: bool) -> None:
        """Nobody finds these keys any more."""
        seglake.erase(self.root, "events", keys, vacuum=gone, grace_hours=0)
        wanted = {key.encode() for key in keys}
        self._keep({record for record in self.records if record.key not in wanted})

    @rule(partition=st.integers(0, 1), share=st.integers(0, 10))
    def delete_records(self, partition: int, share: int) -> None:
        """The log start moves, inside a segment too."""
        offset = self.ends[partition] * share // 10
        seglake.delete_records(self.root, "events", {partition: offset})
        self._start_at({partition: offset})

    @rule(by_time=st.booleans(), size=st.sampled_from([-1, 0, 500, 2000]))
    def retain(self, by_time: bool, size: int) -> None:
        """Kafka's rules on the catalog's rows, written down from their definition."""
        wanted = {"retention.bytes": size, "retention.ms": 10 * DAY_MS if by_time else -1}
        seglake.alter(self.root, "events", wanted)
        self._start_at(self._retained(size, by_time))
        seglake.retain(self.root, "events")
        seglake.alter(self.root, "events", {"retention.bytes": -1, "retention.ms": -1})

    def _retained(self, size: int, by_time: bool) -> dict[int, int]:
        catalog = open_catalog(self.root)
        rows = catalog.segments(catalog.snapshot(), "events")
        starts = {}
        for partition in self.ends:
            mine = [row for row in rows if row.partition == partition]
            gone = next(
                (n for n, row in enumerate(mine) if row.end_offset > self.starts[partition]), 0
            )
            left = sum(row.log_bytes for row in mine[gone:]) - size
            while size >= 0 and gone < len(mine) and left - mine[gone].log_bytes >= 0:
                left -= mine[gone].log_bytes
                gone += 1
            while by_time and gone < len(mine) and mine[gone].record_count:
                gone += 1  # these are years old; a segment without records is as old as its file
            if gone:
                starts[partition] = mine[gone - 1].end_offset
        return starts

    @rule()
    def rebuild(self) -> None:
        """The catalog comes back from its manifests; open versions are another lake's then."""
        rebuild_catalog(self.root, force=True, dry_run=False)
        self.follower = seglake.open(self.root)

    @rule()
    def vacuum(self) -> None:
        """Old versions may expire now."""
        vacuum(self.root, dry_run=False, retention_hours=0, grace_hours=0)

    def _keep(self, left: set[Stored]) -> None:
        self.records &= left
        self.runs = {run_id: records & left for run_id, records in self.runs.items()}

    def _start_at(self, starts: dict[int, int]) -> None:
        for partition, offset in starts.items():
            self.starts[partition] = max(self.starts[partition], offset)
        self._keep({each for each in self.records if each.offset >= self.starts[each.partition]})

    # -------------------------------------------------------------- readers

    @precondition(lambda self: len(self.pins) < 3)
    @rule()
    def pin(self) -> None:
        """Somebody opens a version."""
        self.pins.append(Pinned(seglake.open(self.root).topic("events"), self._expected()))

    def _expected(self) -> list[Stored]:
        return sorted(self.records, key=lambda each: (each.partition, each.offset))

    @invariant()
    def the_follower_sees_what_there_is(self) -> None:
        """A refreshed reader and a new one see the model."""
        if not self.number:
            return
        for lake in (self.follower.refresh(), seglake.open(self.root)):
            log = lake.topic("events")
            assert records_of(log) == self._expected()
            assert log.beginning_offsets() == self.starts
            assert log.end_offsets() == self.ends

    @invariant()
    def pinned_versions_keep_their_answers(self) -> None:
        """Or say that they have expired."""
        for pinned in self.pins:
            try:
                assert records_of(pinned.log) == pinned.records
            except VersionExpired:
                self.pins.remove(pinned)
                return

    @rule(partition=st.integers(0, 1), share=st.integers(0, 11))
    def look_up(self, partition: int, share: int) -> None:
        """One offset: its record, a gap, or outside."""
        log, offset = seglake.open(self.root).topic("events"), self.ends[partition] * share // 10
        mine = {each.offset: each for each in self.records if each.partition == partition}
        try:
            assert log.record_at(partition, offset).value == mine[offset].value
        except OffsetOutOfRange:
            assert not self.starts[partition] <= offset < self.ends[partition]
        except OffsetNotFound:
            assert offset not in mine

    @rule(time=st.integers(T - 1, T + 20_000))
    def look_up_a_time(self, time: int) -> None:
        """The first record in offset order at a time or later."""
        log = seglake.open(self.root).topic("events")
        for partition, found in log.offsets_for_times({0: time, 1: time}).items():
            mine = [r for r in self._expected() if r.partition == partition and r.timestamp >= time]
            wanted = (mine[0].offset, mine[0].timestamp) if mine else None
            assert (None if found is None else tuple(found)[:2]) == wanted


TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(examples(12), stateful_step_count=18)
