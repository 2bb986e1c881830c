"""Retention does to every log what Kafka's rules do, and says what is in its way."""

import json
import tempfile
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.catalog.schema import Row
from seglake.catalog.table import CatalogTable
from seglake.catalog.version.snapshot import PartitionView
from seglake.clock import now_ms
from seglake.maintain import commit
from seglake.maintain.commit import Clock
from seglake.maintain.expiry import retention
from seglake.maintain.expiry.retention import RetainResult, retain_topic
from seglake.store import open_store
from tests.harness.counting import CountingStore
from tests.harness.meanwhile import before_first
from tests.judges.retention_model import Closed, KafkaLog
from tests.makers.catalog_rows import commit_rows, new_attempt, run, segment, topic
from tests.makers.lakes import Event, LakeMaker, Shape, create_catalog, open_catalog
from tests.makers.segment_lakes import Sketch, sketched_lake
from tests.makers.strategies import examples

NOW = 1_700_000_000_000
POLICIES = ["delete", "compact", "compact,delete"]

ages = st.one_of(st.integers(-5, 30), st.sampled_from([10, 11, -(10**9)]))
sketches = st.builds(
    lambda offsets, age, size, timed, made: Sketch(
        offsets, NOW - age if timed else -1, size, NOW - made
    ),
    st.integers(1, 4), ages, st.integers(61, 200), st.integers(0, 5).map(bool), ages,
)  # fmt: skip


@st.composite
def lakes(draw: st.DrawFn) -> tuple[list[list[Sketch]], dict[int, int], dict[str, Any]]:
    """Segments of two partitions, log starts, and settings."""
    logs = [draw(st.lists(sketches, max_size=8)) for _ in range(2)]
    ends = [sum(each.offsets for each in log) for log in logs]
    starts = {p: draw(st.integers(0, end)) for p, end in enumerate(ends) if draw(st.booleans())}
    settings = {
        "cleanup.policy": draw(st.sampled_from(POLICIES)),
        "retention.ms": draw(st.sampled_from([-1, 0, 10, 10**6])),
        "retention.bytes": draw(st.sampled_from([-1, 0, 200, 300, 10**6])),
    }
    return logs, starts, settings


def kafka_log(log: list[Sketch], log_start: int) -> KafkaLog:
    ends = list(accumulate(each.offsets for each in log))
    segments = [
        Closed(end - each.offsets, end, each.timestamp, each.created_at_ms, each.log_bytes)
        for each, end in zip(log, ends, strict=True)
    ]
    return KafkaLog(segments, log_start, ends[-1] if ends else 0)


def views(table: CatalogTable) -> list[PartitionView]:
    return table.snapshot().partitions("orders")


@examples(60)
@given(lakes())
def test_what_goes_is_what_kafka_removes(
    lake: tuple[list[list[Sketch]], dict[int, int], dict[str, Any]],
) -> None:
    logs, starts, settings = lake
    with tempfile.TemporaryDirectory() as folder:
        table = sketched_lake(folder, logs, settings, starts)
        before = views(table)
        report = retain_topic(table, "orders", Clock(None, NOW), dry_run=False)
        wanted = [kafka_log(log, starts.get(p, 0)) for p, log in enumerate(logs)]
        for each in wanted:
            limits = settings["retention.ms"], settings["retention.bytes"]
            each.retain(settings["cleanup.policy"], *limits, now=NOW)
        for view, model in zip(views(table), wanted, strict=True):
            assert view.segments.base_offsets.tolist() == [s.base for s in model.segments[:-1]]
            assert view.log_start_offset == model.log_start
            assert view.end_offset == model.segments[-1].base == before[view.partition].end_offset
        assert_is_told(report, before, wanted)
        again = retain_topic(table, "orders", Clock(None, NOW), dry_run=False)
        assert (again.version, again.moved, again.blocked) == (-1, [], report.blocked)


def assert_is_told(
    report: RetainResult, before: list[PartitionView], wanted: list[KafkaLog]
) -> None:
    gone = [
        len(view) - len(model.segments[:-1]) for view, model in zip(before, wanted, strict=True)
    ]
    sizes = [view.segments.details["sizes"][:n, 0] for view, n in zip(before, gone, strict=True)]
    assert report.segments == sum(gone)
    assert report.log_bytes == sum(int(each.sum()) for each in sizes)
    assert [(m.partition, m.before, m.after, m.segments) for m in report.moved] == [
        (p, before[p].log_start_offset, model.log_start, gone[p])
        for p, model in enumerate(wanted)
        if gone[p]
    ]
    assert (report.version >= 0) == bool(report.moved)


def test_what_is_blocked_names_the_record_and_what_helps(tmp_path: Path) -> None:
    log = [Sketch(2, NOW - 50, 100), Sketch(3, NOW + 10**9, 100), *[Sketch(1, NOW - 40, 70)] * 2]
    table = sketched_lake(tmp_path, [[], log], {"retention.ms": 10})
    report = retain_topic(table, "orders", Clock(None, NOW), dry_run=False)
    (found,) = report.blocked
    assert (found.partition, found.offset, found.timestamp) == (1, 2, NOW + 10**9)
    assert (found.segments, found.log_bytes) == (2, 140)
    assert found.help.startswith("orders-1: the segment at offset ")
    assert f"delete-records {tmp_path} orders --partition 1 --before-offset 5`" in found.help
    assert [each.after for each in report.moved] == [2]
    seglake.delete_records(str(tmp_path), "orders", {1: 5})
    last = retain_topic(table, "orders", Clock(None, NOW), dry_run=False)
    assert (last.segments, last.blocked) == (2, [])


def test_a_segment_without_timestamps_is_as_old_as_its_row_says(tmp_path: Path) -> None:
    log = [Sketch(1, -1, 100, NOW - 11), Sketch(1, -1, 100, NOW - 10), Sketch(1, NOW - 99, 100)]
    table = sketched_lake(tmp_path, [log], {"retention.ms": 10})
    report = retain_topic(table, "orders", Clock(None, NOW), dry_run=False)
    assert [each.after for each in report.moved] == [1]
    (found,) = report.blocked
    assert (found.offset, found.timestamp) == (-1, NOW - 10)
    assert "offset 1, whose age counts from 2023-11-14T22:13:19.990Z, prevents" in found.help


def filled(root: Path, **settings: Any) -> LakeMaker:
    """Two topics of several segments, of long ago."""
    maker = LakeMaker(root)
    for name in ("events", "others"):
        maker.topic = name
        rows = [Event(i, b"k", b"v" * 30) for i in range(60)]
        maker.run({0: rows}, Shape(segment_bytes=900))
    if settings:
        seglake.alter(str(root), "events", settings)
    return maker


@pytest.mark.parametrize("ahead", ["machine", "storage"])
def test_a_clock_that_is_ahead_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: str
) -> None:
    day = 86_400_000
    now = now_ms()
    sketched_lake(tmp_path, [[Sketch(1, now - day // 2, 100)]], {"retention.ms": day})
    if ahead == "machine":
        monkeypatch.setattr(commit, "now_ms", lambda: now + 30 * day)
    else:
        monkeypatch.setattr(commit, "storage_time_ms", lambda _: now + 30 * day)
    assert seglake.retain(str(tmp_path))[0].moved == []
    monkeypatch.setattr(commit, "now_ms", lambda: now + day)
    monkeypatch.setattr(commit, "storage_time_ms", lambda _: now + day)
    assert len(seglake.retain(str(tmp_path))[0].moved) == 1


def test_a_lost_race_is_planned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another commit took is not taken twice, and what it added is kept."""
    maker = filled(tmp_path, **{"retention.bytes": 2000})

    def overtake() -> None:
        seglake.delete_records(str(tmp_path), "events", {0: 7})
        maker.topic = "events"
        maker.run({0: [Event(5000, b"k", b"v" * 30)] * 60}, Shape(segment_bytes=900))

    before_first(monkeypatch, retention, "move_log_starts", overtake)
    (report,) = seglake.retain(str(tmp_path), "events")
    live = maker.catalog.rows.segments(open_catalog(str(tmp_path)).snapshot(), "events")
    sizes = [row.log_bytes for row in live]
    assert sum(sizes) >= 2000 > sum(sizes[1:])
    assert live[-1].end_offset == 120
    assert report.moved[0].before == 7


# What retention reads of the catalog does not grow with the log partitions.


class Reads(CountingStore):
    def __init__(self, root: Path) -> None:
        super().__init__(open_store(str(root)))
        self.keys = list[str]()

    def read_all(self, key: str) -> Any:
        self.keys.append(key)
        return super().read_all(key)


def catalog(root: Path, partitions: int) -> None:
    """Three runs without a time in each log partition, as after an undo."""
    table = create_catalog(str(root))
    settings = json.dumps({"retention.ms": 10**15})
    for n in range(3):
        attempt = new_attempt()
        segments = [
            segment(n * 5, n * 5 + 5, partition=p, attempt_id=attempt,
                    min_timestamp=-1, max_timestamp=-1, created_at_ms=1000 * n + p)
            for p in range(partitions)
        ]  # fmt: skip
        head = [replace(topic("orders", partitions), settings=settings)] if n == 0 else []
        rows: list[Row] = [*head, *segments, run(str(n), attempt)]
        commit_rows(table, rows, attempt_id=attempt)


@pytest.mark.parametrize("dry_run", [True, False])
def test_segments_without_a_time_are_looked_for_once(tmp_path: Path, dry_run: bool) -> None:
    counts = []
    for partitions in (2, 24):
        root = tmp_path / str(partitions)
        catalog(root, partitions)
        store = Reads(root)
        table = CatalogTable(store)
        base = table.snapshot()
        store.keys.clear()
        now_ms = 10**15 + 1000 + partitions // 2  # the first run is too old, half of the second
        report = retain_topic(table, "orders", Clock(None, now_ms), dry_run=dry_run, base=base)
        assert report.segments == partitions + partitions // 2
        assert {(m.partition, m.after) for m in report.moved} == {
            (p, 10 if p < partitions // 2 else 5) for p in range(partitions)
        }
        counts.append(sum("kind=segment" in key for key in store.keys))
    assert counts[0] == counts[1]
