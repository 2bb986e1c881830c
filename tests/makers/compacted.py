"""Histories of lakes that are compacted: runs, deletions and rounds, beside plain lists."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from hypothesis import strategies as st

import seglake
from seglake.catalog.table import CatalogTable
from seglake.engine import Engine, LocalEngine
from seglake.maintain.compaction import passes as keys
from seglake.maintain.compaction.compact import CompactResult, compact_topic
from seglake.maintain.health.verify import verify
from tests.harness.engines import ScatteredEngine
from tests.judges.latest import Counts, ModelLog, live_rows, stored_batches
from tests.judges.oracle import as_written
from tests.makers.catalog_rows import commit_rows
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.strategies import T


def set_topic(catalog: CatalogTable, topic: str, settings: Mapping[str, object]) -> None:
    """Change settings of a topic."""
    base = catalog.snapshot()
    row = base.topic(topic)
    text = json.dumps({**json.loads(row.settings), **settings})
    changed = replace(row, sequence=row.sequence + 1, settings=text)
    commit_rows(catalog, [changed], base=base)


PARTITIONS = 2
RETENTION = 100
SETTINGS = {"cleanup.policy": "compact,delete", "delete.retention.ms": RETENTION}


class Append(NamedTuple):
    """A run: its records by partition."""

    rows: dict[int, list[Event]]
    shape: Shape


class Delete(NamedTuple):
    """The log start moves by so many offsets."""

    partition: int
    by: int


class Clean(NamedTuple):
    """A round, so much later than the one before it."""

    later_ms: int
    engine: Engine
    bucket_rows: int
    table_rows: int


Step = Append | Delete | Clean

KEYS = st.sampled_from([None, b"", b"a", b"b", b"c", b"a longer key", bytes(3)])
VALUES = st.sampled_from([None, None, b"", b"value", b"v" * 50])
EVENTS = st.lists(
    st.builds(
        Event,
        st.integers(T, T + 300),
        KEYS,
        VALUES,
        st.sampled_from([(), (("h", b"1"), ("h", None))]),
        st.sampled_from([0, 0, 0, 3]),
    ),
    max_size=25,
)
SHAPES = st.builds(
    Shape,
    codec=st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
    batch_bytes=st.sampled_from([1, 100, 350]),
    segment_bytes=st.sampled_from([600, 2**30]),
    append_time_ms=st.sampled_from([None, None, T + 7]),
)
ENGINES = st.sampled_from([LocalEngine(), LocalEngine(2), ScatteredEngine(3)])
STEPS = st.lists(
    st.one_of(
        st.builds(Append, st.fixed_dictionaries({0: EVENTS, 1: EVENTS}), SHAPES),
        st.builds(Append, st.fixed_dictionaries({0: EVENTS, 1: EVENTS}), SHAPES),
        st.builds(Delete, st.integers(0, 1), st.integers(0, 30)),
        st.builds(
            Clean,
            st.sampled_from([0, 1, RETENTION - 1, RETENTION, 3 * RETENTION]),
            ENGINES,
            st.sampled_from([1, 5, 10**6]),
            st.sampled_from([1, 10**6]),
        ),
    ),
    min_size=2,
    max_size=9,
)


class History:
    """A lake and its model; with an append time, that is the time of all records.

    Else the shape of each run says what the times of its records are, so a log may have both types.
    """

    def __init__(
        self,
        root: Path,
        settings: Mapping[str, object] = SETTINGS,
        append_time_ms: int | None = None,
    ) -> None:
        self.maker = LakeMaker(root, partitions=PARTITIONS, settings=settings)
        self.logs = [ModelLog() for _ in range(PARTITIONS)]
        self.now_ms, self._append_time_ms = T + 400, append_time_ms
        self.append(Append({0: [Event(T, b"a")], 1: []}, Shape()))

    def take(self, step: Step) -> None:
        """One step."""
        match step:
            case Append():
                self.append(step)
            case Delete():
                self.delete(step)
            case Clean():
                self.clean(step)

    def append(self, step: Append) -> None:
        shape = step.shape
        if self._append_time_ms is not None:
            shape = replace(shape, append_time_ms=self._append_time_ms)
        self.maker.run(step.rows, shape)
        for partition, log in enumerate(self.logs):
            log.append(stored_batches(self.maker, partition), self.maker.records(partition))

    def delete(self, step: Delete) -> None:
        log = self.logs[step.partition]
        view = self.maker.catalog.snapshot().partition("events", step.partition)
        log.start = min(log.start + step.by, view.end_offset)
        self.maker.delete_records(step.partition, log.start)

    def clean(self, step: Clean) -> CompactResult:
        """A round, and what it says of itself."""
        self.now_ms += step.later_ms
        ends = [
            max((row.end_offset for row in live_rows(self.maker, p)), default=0) for p in (0, 1)
        ]
        with patch.multiple(keys, TABLE_ROWS=step.table_rows, BUCKET_ROWS=step.bucket_rows):
            report = compact_topic(
                self.maker.catalog, "events", step.engine, force=True, now_ms=self.now_ms
            )
        told = {each.partition: each for each in report.partitions}
        for partition, (log, end) in enumerate(zip(self.logs, ends, strict=True)):
            has_rows = bool(live_rows(self.maker, partition))
            counts = log.clean(end, self.now_ms, RETENTION)
            assert has_rows == (partition in told)
            if has_rows:
                found = told[partition]
                assert found.cleaned
                assert Counts(**{name: getattr(found, name) for name in asdict(counts)}) == counts
        return report

    def assert_holds(self) -> None:
        """Readers see the records of the model, in batches of its bytes; nothing is damaged."""
        log = seglake.open(str(self.maker.root)).topic("events")
        for partition, model in enumerate(self.logs):
            found = log.read(partition, model.start, max_records=10**6)
            assert as_written(found) == model.records()
            self._assert_batches(partition, model)
        assert verify(str(self.maker.root), deep=True).findings == []

    def _assert_batches(self, partition: int, model: ModelLog) -> None:
        stored = {each.base_offset: each for each in stored_batches(self.maker, partition)}
        assert all(len(each.data) == 61 for each in stored.values() if not each.records)
        for batch in model.batches:
            if batch.last_offset < model.start:
                continue
            found = stored[batch.base_offset]
            assert found.last_offset == batch.last_offset
            assert found.horizon == batch.horizon
            assert batch.data in (None, found.data), "a batch that lost nothing was written anew"
