"""Tasks whose logs a vacuum removed after the plan: a newer version has the records, or not."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable

from seglake.datasource import batch, tasks
from seglake.datasource.batch import SparkBatchReader
from seglake.datasource.options import Options
from seglake.datasource.stream import SparkStreamReader
from seglake.errors import VersionExpired
from seglake.log.execute import execute
from seglake.maintain.compaction.compact import compact
from seglake.maintain.expiry.retention import delete_records
from seglake.maintain.merge import merge
from seglake.maintain.vacuum import vacuum
from seglake.store import open_store
from tests.makers.lakes import Event, LakeMaker, Shape, Written
from tests.makers.strategies import T, examples
from tests.unit.datasource.spark_rows import as_written, tables
from tests.unit.log.test_segments import MEMORY

SETTINGS = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 0.0}
EVENTS = st.lists(
    st.tuples(st.integers(T, T + 99), st.sampled_from([b"a", b"b", b"c"]), st.just(b"v" * 9)).map(
        lambda drawn: Event(*drawn)
    ),
    min_size=1, max_size=20,
)  # fmt: skip


def made(folder: Path, runs: list[list[Event]]) -> LakeMaker:
    maker = LakeMaker(folder / "lake", partitions=2, settings=SETTINGS)
    for run in runs:
        maker.run({0: run, 1: run[:3]}, Shape(batch_bytes=120, segment_bytes=900))
    return maker


def options_of(maker: LakeMaker, **options: str) -> Any:
    return Options({"path": str(maker.root), "subscribe": "events", **options})


def sweep(maker: LakeMaker) -> None:
    vacuum(str(maker.root), dry_run=False, retention_hours=0, grace_hours=0)


def merged(maker: LakeMaker) -> None:
    merge(str(maker.root), "events", everything=True)


def compacted(maker: LakeMaker) -> None:
    compact(str(maker.root), "events", force=True)


def deleted(maker: LakeMaker) -> None:
    end = maker.catalog.snapshot().partition("events", 0).end_offset
    delete_records(str(maker.root), "events", {0: end // 2})
    merged(maker)
    compacted(maker)  # else the deleted records stay in the logs


def newest(maker: LakeMaker, **options: str) -> list[Written]:
    """What a query finds now; the worker that looks for it ends, and closes its files."""
    reader = SparkBatchReader(options_of(maker, **options))
    found = as_written(tables(reader, reader.partitions()))
    batch._store.cache_clear()
    return found


ACTS = [merged, compacted, deleted]
LIMITS = st.sampled_from([{}, {"bytesPerPartition": "200"}, {"maxRecordsPerPartition": "3"}])
WINDOWS = st.sampled_from([{}, {"startTime": str(T + 20), "endTime": str(T + 60)}])


@given(
    st.lists(EVENTS, min_size=1, max_size=4), LIMITS, WINDOWS,
    st.lists(st.sampled_from(ACTS), min_size=1, max_size=3), st.sampled_from(["true", "false"]),
)  # fmt: skip
@examples(20)
def test_what_a_newer_version_has_is_read(
    runs: list[list[Event]], limits: dict[str, str], window: dict[str, str],
    acts: list[Callable[[LakeMaker], None]], fail: str,
) -> None:  # fmt: skip
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        maker = made(Path(folder), runs)
        planned = newest(maker, **window)
        reader = SparkBatchReader(options_of(maker, failOnDataLoss=fail, **limits, **window))
        parts = reader.partitions()
        for act in acts:
            act(maker)
        sweep(maker)
        left = newest(maker, **window)
        if fail == "false":
            found = as_written(tables(reader, parts))
            assert found == [each for each in planned if each in found]  # in order, none twice
            assert [each for each in left if each not in found] == []
            return
        everything = len(newest(maker)) == sum(len(run) + len(run[:3]) for run in runs)
        try:
            assert as_written(tables(reader, parts)) == planned
        except VersionExpired:
            assert not everything


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    return made(tmp_path, [[Event(T + n, b"k%d" % (n % 5)) for n in range(20)] for _ in range(3)])


def test_what_no_version_has_ends_the_strict_query_and_is_skipped_else(
    maker: LakeMaker, caplog: pytest.LogCaptureFixture
) -> None:
    parts = SparkBatchReader(options_of(maker)).partitions()
    compacted(maker)
    sweep(maker)
    with pytest.raises(VersionExpired, match=r"was deleted.* has 0 of its 20 records.* false"):
        tables(SparkBatchReader(options_of(maker)), parts)
    lenient = SparkBatchReader(options_of(maker, failOnDataLoss="false"))
    assert as_written(tables(lenient, parts)) == newest(maker)
    assert "from the newest version" in caplog.text


@pytest.mark.parametrize("moves", [False, True])
def test_a_log_start_within_a_segment(maker: LakeMaker, moves: bool) -> None:
    """What was deleted before the plan is no loss; what is deleted after it is one."""
    delete_records(str(maker.root), "events", {0: 7})
    reader, before = SparkBatchReader(options_of(maker)), newest(maker)
    parts = reader.partitions()
    merged(maker)
    if moves:
        delete_records(str(maker.root), "events", {0: 9})
    sweep(maker)
    if not moves:
        assert as_written(tables(reader, parts)) == before
        return
    with pytest.raises(VersionExpired, match="has 11 of its 20 records"):
        tables(reader, parts)


def test_a_topic_that_is_empty_by_now_has_nothing(maker: LakeMaker) -> None:
    reader = SparkBatchReader(options_of(maker, failOnDataLoss="false"))
    parts = reader.partitions()
    delete_records(str(maker.root), "events", {0: -1, 1: -1})
    sweep(maker)
    assert tables(reader, parts) == []


@pytest.mark.parametrize("columns", ["key", "value,offset", "topic,partition,offset"])
def test_a_task_goes_on_where_its_log_went(
    maker: LakeMaker, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing twice: the log is gone after the first records of it were handed over."""
    given = options_of(maker, columns=columns, bytesPerPartition="1000000")
    expected = pa.concat_tables(read_parts(given)).to_pylist()
    real, gone = execute, list[bool]()

    def cut_short(*asked: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        for some in real(*asked, **named):
            if gone or len(some) < 3:
                yield some
                continue
            gone.append(True)
            yield some.slice(0, 3)
            merged(maker)
            sweep(maker)
            raise VersionExpired("the log is gone")

    parts = SparkBatchReader(given).partitions()
    monkeypatch.setattr(tasks, "execute", cut_short)
    found = pa.concat_tables(tables(SparkBatchReader(given), parts)).to_pylist()
    assert (found, gone) == (expected, [True])


def read_parts(options: Any) -> list[pa.Table]:
    reader = SparkBatchReader(options)
    found = tables(reader, reader.partitions())
    batch._store.cache_clear()
    return found


def test_a_log_is_looked_for_again_as_often_as_versions_come(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part of a task that follows finds what a second vacuum left."""
    given = options_of(maker, bytesPerPartition="1000000")
    parts, before = SparkBatchReader(given).partitions(), newest(maker)
    store = open_store(str(maker.root))
    found = list[int]()
    for part in parts:
        assert part.value is not None
        for some in tasks.read_records(
            part.value, store, pa.schema([("offset", pa.int64())]), fail_on_data_loss=True
        ):
            offsets: list[Any] = some["offset"].to_pylist()
            found += offsets
            maker.run({0: [Event(T)]}, Shape())
            merged(maker)
            sweep(maker)
    assert found == [record.offset for record in before]


# ------------------------------------------------------------------ micro-batches


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("when", ["planned", "begun"])
def test_a_micro_batch_finds_its_records(maker: LakeMaker, fail: str, when: str) -> None:
    """Vacuum comes after the micro-batch was planned, or between its offsets and its plan."""
    reader = SparkStreamReader(options_of(maker, failOnDataLoss=fail, startingOffsets="earliest"))
    start = {"events": {"0": 7, "1": 1}}
    end = reader.latestOffset(start, ReadAllAvailable())
    before = [r for r in newest(maker) if r.offset >= (1 if r.partition else 7)]
    parts = reader.partitions(start, end) if when == "planned" else None
    merged(maker)
    sweep(maker)
    parts = reader.partitions(start, end) if parts is None else parts
    assert as_written(tables(reader, parts)) == before
