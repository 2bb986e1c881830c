"""Kafka's own cleaner over the same segments: what is due, what stays, and in which bytes."""

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.engine import LocalEngine
from seglake.format.index import IndexPolicy
from seglake.format.segment import rebuild
from seglake.layout import attempt_folder, new_attempt
from seglake.maintain.commit import Clock
from seglake.maintain.compaction.compact import compact_topic
from seglake.maintain.compaction.passes import compacted_topic, group_segments
from seglake.maintain.expiry.retention import retain_topic
from seglake.maintain.health.verify import verify
from tests.judges.described import describe
from tests.judges.kafka_broker import Broker
from tests.judges.kafka_cleaner import CleanerRound, KafkaCleaner
from tests.judges.kafka_judge import Batch, Kafka, Record, StoredBatch
from tests.judges.latest import live_rows
from tests.makers.catalog_rows import commit_rows
from tests.makers.compacted import EVENTS, SETTINGS, STEPS, Append, Clean, History, Step
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.strategies import T, examples


@pytest.fixture(scope="session")
def cleaner(kafka: Kafka) -> KafkaCleaner:
    return KafkaCleaner(kafka)


def copy_log(maker: LakeMaker, partition: int, folder: Path) -> Path:
    """The segments of a log partition, as a broker has them."""
    home = folder / f"events-{partition}"
    home.mkdir(parents=True)
    for row in live_rows(maker, partition):
        for suffix in ("log", "index", "timeindex"):
            path = maker.root / row.key(suffix)
            shutil.copy(path, home / f"{row.base_offset:020d}.{suffix}")
    return home


def batches_in(kafka: Kafka, home: Path, start: int) -> list[StoredBatch]:
    """The batches with records that are wholly above the log start; where they stand is left out.

    So are size and checksum of compressed ones: two builds of a codec need not agree.
    """
    logs = sorted(path for path in home.glob("*.log") if path.stat().st_size)
    found = [replace(batch, position=0) for log in logs for batch in kafka.read_batches(log)]
    found = [batch for batch in found if batch.count and batch.base_offset >= start]
    return [b if b.codec == "none" else replace(b, size=0, crc=0) for b in found]


def records_of(batches: Sequence[StoredBatch], start: int) -> list[Record]:
    return [r for batch in batches for r in batch.records if r.offset >= start]


@examples(20)
@given(steps=STEPS)
def test_kafkas_cleaner_leaves_the_same(
    kafka: Kafka, cleaner: KafkaCleaner, steps: list[Step]
) -> None:
    """Round after round the same records, in the same batches, with the same horizons."""
    with tempfile.TemporaryDirectory() as place:
        history = History(Path(place, "lake"))
        for number, step in enumerate([*steps, Clean(0, LocalEngine(), 10**6, 10**6)]):
            folder = Path(place, str(number))
            if not isinstance(step, Clean):
                history.take(step)
                continue
            homes = {}
            for partition, log in enumerate(history.logs):
                if not live_rows(history.maker, partition):
                    continue
                homes[partition] = copy_log(history.maker, partition, folder)
                cleaned = history.maker.catalog.snapshot().partition("events", partition)
                offset = cleaned.cleaned_offset
                if offset == cleaned.end_offset:  # then Kafka would do nothing
                    offset = None
                told = cleaner.clean(
                    homes[partition], SETTINGS, history.now_ms + step.later_ms,
                    log_start=log.start, cleaned_offset=offset,
                )  # fmt: skip
                assert told.end_offset == cleaned.end_offset
            history.take(step)
            for partition, home in homes.items():
                start = history.logs[partition].start
                ours = copy_log(history.maker, partition, folder / "ours")
                found, wanted = (batches_in(kafka, each, 0) for each in (ours, home))
                assert records_of(found, start) == records_of(wanted, start)
                assert batches_in(kafka, ours, start) == batches_in(kafka, home, start)


RUNS = st.lists(st.tuples(EVENTS, st.integers(0, 100)), min_size=1, max_size=5)
LIMITS = st.fixed_dictionaries(
    {
        "min.compaction.lag.ms": st.sampled_from([0, 0, 1, 60, 150]),
        "max.compaction.lag.ms": st.sampled_from([2**63 - 1, 1, 60, 150]),
        "min.cleanable.dirty.ratio": st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]),
    }
)


@examples(20)
@given(
    runs=RUNS, settings=LIMITS, rounds=st.sets(st.integers(0, 4)), segment_bytes=st.integers(1, 4)
)
def test_the_same_logs_are_due(
    cleaner: KafkaCleaner,
    runs: list[tuple[list[Event], int]],
    settings: dict[str, object],
    rounds: set[int],
    segment_bytes: int,
) -> None:
    """Offsets, sizes, groups. A run's records have one time: Kafka asks for the first one's."""
    settings = {**SETTINGS, **settings, "internal.segment.bytes": 300 * segment_bytes}
    settings["segment.bytes"] = settings["internal.segment.bytes"]
    kafkas = {name: value for name, value in settings.items() if name != "segment.bytes"}
    with tempfile.TemporaryDirectory() as place:
        history = History(Path(place, "lake"), settings)
        for number, (events, later_ms) in enumerate(runs):
            history.now_ms += later_ms
            timed = [event._replace(timestamp=history.now_ms) for event in events]
            history.append(Append({0: timed}, Shape(batch_bytes=100, segment_bytes=300)))
            home = copy_log(history.maker, 0, Path(place, str(number)))
            assert_planned(cleaner, history, home, kafkas)
            if number in rounds:
                compact_topic(history.maker.catalog, "events", LocalEngine(), now_ms=history.now_ms)
                history.logs[0].batches.clear()  # nobody asks for the model


def assert_planned(
    cleaner: KafkaCleaner, history: History, home: Path, settings: dict[str, object]
) -> None:
    catalog = history.maker.catalog
    snapshot = catalog.snapshot()
    view = snapshot.partition("events", 0)
    told: CleanerRound = cleaner.clean(
        home, settings, history.now_ms, cleaned_offset=view.cleaned_offset, act=False
    )
    plan = compact_topic(catalog, "events", LocalEngine(), now_ms=history.now_ms, dry_run=True)
    first = next((each for each in plan.partitions if not each.partition), None)
    if first is None:  # nothing that can be cleaned
        assert not told.groups
        assert not told.due
        return
    assert (first.first_dirty_offset, first.first_uncleanable_offset, first.due) == (
        told.first_dirty_offset, told.first_uncleanable_offset, told.due,
    )  # fmt: skip
    assert (first.clean_bytes, first.dirty_bytes) == (told.clean_bytes, told.dirty_bytes)
    rows = [r for r in live_rows(history.maker, 0) if r.end_offset <= told.first_uncleanable_offset]
    groups = group_segments(rows, compacted_topic(snapshot.topic("events"), "lake"))
    assert [[rows[number].base_offset for number in group] for group in groups] == told.groups


GAPS = ("Non-consecutive offsets in ", " is followed by ")  # what a dump says of them


def test_a_broker_serves_what_is_left(kafka: Kafka, broker: Broker, tmp_path: Path) -> None:
    """Consumers reach the end, behind a trailing gap too, by our indexes and by rebuilt ones."""
    history = History(tmp_path / "lake")
    for number in range(3):
        rows = [Event(T + i, b"%d" % (i % 70 + 35 * number), b"%d" % i) for i in range(200)]
        rows += [Event(T + 300, None, b"lost")] * 5  # the end of the log
        history.append(Append({0: rows, 1: rows[200:]}, Shape("zstd", segment_bytes=1500)))
    history.clean(Clean(0, LocalEngine(), 10**6, 10**6))
    history.assert_holds()
    homes = [copy_log(history.maker, partition, tmp_path) for partition in (0, 1)]
    for home in homes:
        for path in home.glob("*.log"):
            files = [path.with_suffix(f".{suffix}") for suffix in ("log", "index", "timeindex")]
            found = kafka.dump(*files, verify=False).problems
            assert not [each for each in found if not any(gap in each for gap in GAPS)]
    for rebuilt in (False, True):
        topic = f"left-{rebuilt}"
        logs = {(topic, number): home for number, home in enumerate(homes)}
        broker.adopt(logs, rebuild_indexes=rebuilt)
        for partition, model in enumerate(history.logs):
            end = history.maker.catalog.snapshot().partition("events", partition).end_offset
            assert broker.end_offset(topic, partition) == end
            told = [record.offset for record in broker.consume_all(topic, partition)]
            assert told == [record.offset for record in model.records()]
            assert broker.seek_and_poll(topic, partition, end - 1) == []


def test_markers_and_producers_stay(kafka: Kafka, cleaner: KafkaCleaner, tmp_path: Path) -> None:
    """Batches of a transaction keep producer, epoch and sequence; its markers are left alone."""

    def of_producer(first: int, *keys: bytes) -> Batch:
        records = tuple(Record(first + n, T, key, b"%d" % first) for n, key in enumerate(keys))
        return Batch(
            records, producer_id=7, producer_epoch=1, base_sequence=first, transactional=True,
        )  # fmt: skip

    def marker(offset: int) -> Batch:
        return Batch(
            base_offset=offset, last_offset=offset, control="COMMIT", transactional=True,
            producer_id=7, producer_epoch=1, max_timestamp=T,
        )  # fmt: skip

    plain = Batch((Record(7, T, b"c", b"7"), Record(8, T, None, b"no key")))
    batches = [of_producer(0, b"a", b"b", b"a"), marker(3), of_producer(4, b"a", b"c"), marker(6)]
    maker = LakeMaker(tmp_path / "lake", settings=SETTINGS)
    maker.run({0: [Event(T)]})
    attempt = new_attempt()
    folder = maker.root / attempt_folder("events", 0, attempt)
    folder.mkdir(parents=True)
    kafka.write_segment(folder, 0, [*batches, plain])
    table = describe((folder / f"{0:020}.log").read_bytes())
    sealed = rebuild(0, table, IndexPolicy(4096))
    files = {"log": (folder / f"{0:020}.log").read_bytes(), **sealed.files}
    for suffix, data in files.items():
        (folder / f"{0:020}.{suffix}").write_bytes(data)
    changes: dict[str, Any] = {f"{suffix}_bytes": len(data) for suffix, data in files.items()}
    changes |= {f"{suffix}_crc32c": kafka.crc32c(data) for suffix, data in files.items()}
    row = replace(
        live_rows(maker)[0], end_offset=9, record_count=sealed.record_count, attempt_id=attempt,
        index_attempt_id=attempt, min_timestamp=T, max_timestamp=T, index_interval=4096, **changes,
    )  # fmt: skip
    base = maker.catalog.snapshot()
    commit_rows(maker.catalog, [row], base=base, attempt_id=attempt, replaced=[(0, 0)])
    home = tmp_path / "kafka" / "events-0"
    shutil.copytree(folder, home)
    cleaner.clean(home, SETTINGS, T + 500)
    compact_topic(maker.catalog, "events", LocalEngine(), force=True, now_ms=T + 500)
    ours = copy_log(maker, 0, tmp_path / "ours")
    assert batches_in(kafka, ours, 0) == batches_in(kafka, home, 0)
    found = batches_in(kafka, ours, 0)
    assert [(b.base_offset, b.last_offset, b.control, b.count) for b in found] == [
        (0, 2, False, 1), (3, 3, True, 1), (4, 5, False, 1), (6, 6, True, 1), (7, 8, False, 1),
    ]  # fmt: skip
    assert verify(str(maker.root), deep=True).findings == []


# Retention against Kafka's own `UnifiedLog.deleteOldSegments`, over the same segment files.


NOW = 1_700_000_000_000

ages = st.one_of(st.integers(-3, 30), st.sampled_from([10, 11, -(10**9)]))
runs = st.lists(
    st.lists(st.tuples(ages, st.integers(0, 9)), min_size=1, max_size=12), min_size=1, max_size=5
)
settings = st.fixed_dictionaries(
    {
        "cleanup.policy": st.sampled_from(["delete", "delete", "compact", "compact,delete"]),
        "retention.ms": st.sampled_from([-1, 0, 10, 10**6]),
        "retention.bytes": st.sampled_from([-1, 0, 300, 800, 10**6]),
    }
)


def copied(maker: LakeMaker, folder: Path) -> Path:
    """The partition's segments as a broker has them; files without timestamps are of NOW - 11."""
    log = folder / "events-0"
    log.mkdir()
    for row in maker.catalog.rows.segments(maker.catalog.snapshot(), "events"):
        for suffix in ("log", "index", "timeindex"):
            shutil.copy(maker.root / row.key(suffix), log / f"{row.base_offset:020d}.{suffix}")
    return log


@examples(25)
@given(runs, settings, st.data())
def test_what_goes_is_what_kafka_removes(
    kafka: Kafka, made: list[list[tuple[int, int]]], chosen: dict[str, Any], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        maker = LakeMaker(Path(folder) / "lake")
        for rows in made:
            events = [Event(NOW - age if roll else -1, None, b"v" * 40) for age, roll in rows]
            maker.run({0: events}, Shape(batch_bytes=80, segment_bytes=300))
        root, count = str(maker.root), sum(map(len, made))
        log_start = data.draw(st.integers(0, count))
        theirs = copied(maker, Path(folder))
        for file in theirs.glob("*.log"):
            os.utime(file, (0, 0))  # as the rows say that the segments were made
        seglake.delete_records(root, "events", {0: log_start})
        seglake.alter(root, "events", {**chosen})
        retain_topic(maker.catalog, "events", Clock(None, NOW), dry_run=False)
        answer = kafka.instance("Retention").retain(str(theirs), log_start, json.dumps(chosen), NOW)
        left = json.loads(answer)
        (view,) = maker.catalog.snapshot().partitions("events")
        assert view.segments.base_offsets.tolist() == left["bases"]
        assert (view.log_start_offset, view.end_offset) == (left["log_start"], left["end"])
