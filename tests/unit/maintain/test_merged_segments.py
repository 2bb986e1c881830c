"""Merged segments hold the same bytes and give the same answers, whatever runs beside the merge."""

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.catalog.schema import SegmentRow, TopicRow
from seglake.format.codecs.compression import NAMES
from seglake.format.decode import scan_batches
from seglake.format.index import IndexPolicy
from seglake.kafka.exporting import export_logs
from seglake.kafka.importing import import_logs
from seglake.layout import new_attempt
from seglake.log.rewrite.keep import ExcludeOffsets
from seglake.log.rewrite.segments import RewriteTarget, rewrite
from seglake.maintain.compaction.compact import compact
from seglake.maintain.erasure.erase import erase
from seglake.maintain.expiry.retention import delete_records
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from seglake.maintain.undo import undo
from tests.judges.oracle import as_written
from tests.makers.broker_folders import batch
from tests.makers.catalog_rows import commit_rows
from tests.makers.compacted import set_topic
from tests.makers.lakes import Event, LakeMaker, Shape, Written
from tests.makers.strategies import T, event_lists, examples
from tests.unit.log.test_segments import MEMORY, with_gaps

shapes = st.builds(
    Shape, codec=st.sampled_from(NAMES), batch_bytes=st.sampled_from([256, 16_384]),
    append_time_ms=st.sampled_from([None, T + 7]),
)  # fmt: skip


def rows_of(maker: LakeMaker) -> list[SegmentRow]:
    return maker.catalog.rows.segments(maker.catalog.snapshot(), "events")


def log_of(maker: LakeMaker, row: SegmentRow) -> bytes:
    return (maker.root / row.key("log")).read_bytes()


def read(maker: LakeMaker, version: int | None = None) -> list[Written]:
    log = seglake.open(str(maker.root), version).topic("events")
    starts, ends = log.beginning_offsets(), log.end_offsets()
    plan = log.plan_offsets({number: (starts[number], end) for number, end in ends.items()})
    return as_written(plan.execute().read_all())


def answers(maker: LakeMaker, version: int | None = None) -> Any:
    log = seglake.open(str(maker.root), version).topic("events")
    times = [T - 50, T, T + 3, T + 60, T + 10**7]
    windows = [log.read_range(time, time + 30).read_all().to_pylist() for time in times]
    found = [log.offsets_for_times(dict.fromkeys(log.partitions(), time)) for time in times]
    return windows, found, log.end_offsets(), read(maker, version)


@given(
    st.lists(st.tuples(event_lists(max_size=40), event_lists(max_size=9)), min_size=2, max_size=6),
    shapes, st.lists(st.sampled_from([0, 0, 1, 50])), st.booleans(),
)  # fmt: skip
@examples(12)
def test_merged_segments_have_the_same_batches(
    runs: list[tuple[list[Event], list[Event]]], shape: Shape, gaps: list[int], rebatch: bool
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as root:
        maker = LakeMaker(Path(root) / "lake", partitions=2, settings={"segment.ms": 2**62})
        for first, second in runs:
            maker.run({0: with_gaps(first, gaps), 1: with_gaps(second, [])}, shape)
        before, rows, version = answers(maker), rows_of(maker), maker.versions[-1]
        report = merge(str(maker.root), "events", everything=True, rebatch=rebatch)
        assert (report.segments, report.new_segments, report.skipped) == (len(rows), 2, 0)
        assert answers(maker) == answers(maker, version) == before
        for new in rows_of(maker):
            old = b"".join(log_of(maker, row) for row in rows if row.partition == new.partition)
            batches, joined = scan_batches(old), scan_batches(log_of(maker, new))
            assert len(joined) <= len(batches)
            assert rebatch or log_of(maker, new) == old
            assert new.index_policy == IndexPolicy(4096)  # the topic's
            own = [r for r in maker.records() if r.partition == new.partition]
            assert new.max_timestamp == max(record.timestamp for record in own)
        assert verify(str(maker.root), deep=True).findings == []
        assert merge(str(maker.root), "events", everything=True).version == -1


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    """Two partitions, twelve runs of a few records."""
    maker = LakeMaker(tmp_path / "lake", partitions=2)
    for run in range(12):
        rows = [Event(T + 100 * run + i * 7 % 50, b"k%d" % i, b"v" * 30) for i in range(20)]
        maker.run({0: rows, 1: rows[:5]}, Shape(codec="zstd"))
    return maker


def test_small_segments_become_one_without_being_asked_twice(maker: LakeMaker) -> None:
    before = answers(maker)
    report = seglake.merge(str(maker.root), "events")
    assert (report.segments, report.new_segments, report.exit_code) == (24, 2, 0)
    assert report.version == maker.versions[-1] + 1
    assert [(row.base_offset, row.end_offset) for row in rows_of(maker)] == [(0, 240), (0, 60)]
    assert answers(maker) == before
    maker.run({0: [Event(T + 2000)]}, Shape("zstd"))
    assert merge(str(maker.root), "events").segments == 0  # one small segment can wait
    assert merge(str(maker.root), "events", everything=True).segments == 2


def test_the_topics_settings_hold(maker: LakeMaker) -> None:
    settings = {"segment.bytes": 2500, "index.interval.bytes": 0, "unknown.name": 1}
    row = TopicRow(topic="events", sequence=2, partitions=2, partitioner="murmur2",
                   timestamp_type="CreateTime", settings=json.dumps(settings))  # fmt: skip
    base = maker.catalog.snapshot()
    commit_rows(maker.catalog, [row], base=base)
    before = answers(maker)
    report = merge(str(maker.root), "events", everything=True)
    after = rows_of(maker)
    merged = [row for row in after if row.attempt_id == report.attempt_id]
    assert 4 <= len(merged) == report.new_segments
    assert {row.index_interval for row in merged} == {0}
    assert max(row.log_bytes for row in after) <= 2500
    assert answers(maker) == before


def test_empty_segments_are_absorbed(maker: LakeMaker) -> None:
    rows = [row for row in rows_of(maker) if not row.partition]
    emptied = rewrite(
        maker.store,
        rows[3:5],
        ExcludeOffsets.from_ranges([(60, 100)]),
        RewriteTarget(new_attempt()),
    )
    own, places = emptied.attempt_id, [(0, 60), (0, 80)]
    commit_rows(maker.catalog, [emptied], attempt_id=own, replaced=places)
    before = answers(maker)
    merge(str(maker.root), "events", everything=True)
    merged = rows_of(maker)[0]
    assert (merged.base_offset, merged.end_offset, merged.record_count) == (0, 240, 200)
    assert (scan_batches(log_of(maker, merged))["count"] > 0).all()
    assert answers(maker) == before


@pytest.mark.parametrize("gone", [False, True])
def test_a_damaged_log_is_left_as_it_is(maker: LakeMaker, gone: bool) -> None:
    row = next(row for row in rows_of(maker) if row.partition == 1)
    path = maker.root / row.key("log")
    data = path.read_bytes()
    path.unlink()
    if not gone:
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    report = merge(str(maker.root), "events")
    assert (report.segments, report.new_segments, report.exit_code) == (12, 1, 1)
    (damage,) = report.damaged
    assert path.name in damage.file + damage.problem
    assert row in rows_of(maker)


# Topics whose segments have both timestamp types, as imports of a changed setting leave them.

Batch = tuple[list[Event], int | None]  # its records, and the append time if it has one

KEYS = st.sampled_from([None, b"a", b"b", b"c"])
EVENTS = st.tuples(st.integers(T, T + 300), KEYS, st.sampled_from([None, b"", b"v" * 30])).map(
    lambda drawn: Event(*drawn)
)
BATCHES = st.tuples(
    st.lists(EVENTS, min_size=1, max_size=4), st.sampled_from([None, None, T + 7, T + 400])
)
SEGMENTS = st.lists(st.lists(BATCHES, min_size=1, max_size=4), min_size=2, max_size=6)


class Lake:
    """An imported topic, and the records that its readers are to see."""

    def __init__(self, folder: Path, segments: Sequence[Sequence[Batch]]) -> None:
        self.root, self.dest = folder / "lake", folder / "out"
        self.records, self.runs, self.start = list[Written](), 0, 0
        self._write(folder / "events-0", segments)
        import_logs(str(self.root), [str(folder / "events-0")])
        self.maker = LakeMaker(self.root)
        set_topic(self.maker.catalog, "events", {"cleanup.policy": "compact,delete"})

    def _write(self, folder: Path, segments: Sequence[Sequence[Batch]]) -> None:
        folder.mkdir()
        at = 0
        for segment in segments:
            data, base = b"", at
            for events, append_ms in segment:
                data += batch(events, at, -1, Shape("zstd", append_time_ms=append_ms))
                self.records += _written(events, at, append_ms)
                at += len(events)
            (folder / f"{base:020d}.log").write_bytes(data)

    def read(self, root: Path | None = None) -> list[Written]:
        log = seglake.open(str(root or self.root)).topic("events")
        return as_written(log.plan_offsets({0: (self.start, log.end_offsets()[0])}).execute()
                          .read_all())  # fmt: skip

    def compact(self) -> None:
        compact(str(self.root), "events", force=True, now_ms=T + 500)  # keeps all tombstones
        last = {record.key: record.offset for record in self.records}
        self.records = [r for r in self.records if r.key is not None and last[r.key] == r.offset]

    def merge(self) -> None:
        merge(str(self.root), "events", everything=True)

    def rebatch(self) -> None:
        merge(str(self.root), "events", everything=True, rebatch=True)

    def erase(self) -> None:
        erase(str(self.root), "events", ["b"], grace_hours=0)
        self.records = [record for record in self.records if record.key != b"b"]

    def reindex(self) -> None:
        reindex(str(self.root), "events")

    def undo(self) -> None:
        self.maker.run({0: [Event(T + 9, b"a"), Event(T + 8, None)]}, Shape(batch_bytes=1))
        run_id = f"run {len(self.maker.versions) - 1}"
        assert undo(str(self.root), "events", run_id).records == 2

    def delete(self) -> None:
        end = seglake.open(str(self.root)).topic("events").end_offsets()[0]
        self.start = min(self.start + 2, end)
        delete_records(str(self.root), "events", {0: self.start})
        self.records = [record for record in self.records if record.offset >= self.start]

    def export(self) -> None:
        dest = Path(tempfile.mkdtemp(dir=self.root.parent)) / "out"
        export_logs(str(self.root), "events", str(dest))
        again = dest.with_name("again")
        import_logs(str(again), [str(dest)])
        assert self.read(again) == self.records


def _written(events: Sequence[Event], base: int, append_ms: int | None) -> list[Written]:
    kind = int(append_ms is not None)
    return [
        Written(0, base + n, append_ms or event.timestamp, kind, event.key, event.value, [])
        for n, event in enumerate(events)
    ]


VERBS: list[Callable[[Lake], None]] = [
    Lake.compact, Lake.merge, Lake.rebatch, Lake.erase, Lake.reindex, Lake.undo, Lake.delete,
    Lake.export,
]  # fmt: skip


@given(SEGMENTS, st.lists(st.sampled_from(VERBS), max_size=4), st.sampled_from(VERBS))
@examples(10)
def test_whatever_maintains_it__each_record_keeps_its_time_and_type(
    segments: list[list[Batch]], verbs: list[Callable[[Lake], None]], last: Callable[[Lake], None]
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        lake = Lake(Path(name), segments)
        for verb in [*verbs, last]:
            verb(lake)
            assert lake.read() == lake.records
        assert verify(str(lake.root), deep=True).findings == []
