"""Batch reads through the reader that Spark would use, against the plain list of records."""

import pickle
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

import seglake
from seglake.datasource import spark_columns
from seglake.datasource.batch import SparkBatchReader, plan
from seglake.datasource.options import Options
from seglake.datasource.source import SeglakeDataSource
from seglake.errors import (
    MissingObject,
    OffsetOutOfRange,
    SeglakeError,
    UnknownTopic,
    UsageError,
    VersionExpired,
)
from seglake.format.index import IndexPolicy
from seglake.limits import INT64_MAX, INT64_MIN
from seglake.read.lake import Lake
from seglake.store import open_store
from tests.harness.counting import CountingStore
from tests.makers.gaps import Loss, emptied, lose_records
from tests.makers.lakes import Event, LakeMaker, Shape, T, Written
from tests.makers.strategies import examples
from tests.makers.versions import FAR, Run, cuts, lake_of, lost, runs, times
from tests.unit.datasource.spark_rows import as_written, tables


def reader_of(root: Path, **options: str) -> SparkBatchReader:
    headers = {} if "columns" in options else {"includeHeaders": "true"}
    given = {"path": str(root), **headers, **options}
    if not {"assign", "subscribe", "subscribePattern"} & given.keys():
        given["subscribe"] = "events"
    return SparkBatchReader(Options(given))


def read(root: Path, **options: str) -> list[Written]:
    reader = reader_of(root, **options)
    return as_written(tables(reader, reader.partitions()))


sizes = st.fixed_dictionaries(
    {},
    optional={
        "bytesPerPartition": st.sampled_from(["1", "90", "500", "3000"]),
        "minPartitions": st.integers(1, 30).map(str),
        "maxRecordsPerPartition": st.sampled_from(["1", "7", "50", "1000"]),
    },
)


@given(runs, cuts, lost, sizes)
@examples(25)
def test_everything(
    generated: list[Run], cut: float, loss: Loss | None, limits: dict[str, str]
) -> None:
    with lake_of(generated, cut, loss=loss) as (_, maker):
        reader = reader_of(maker.root, **limits)
        found = [as_written([table]) for table in tables(reader, reader.partitions())]
        assert [row for task in found for row in task] == maker.records()
        most = int(limits.get("maxRecordsPerPartition", 2**31))
        assert loss or all(len(task) <= most for task in found)


@given(runs, cuts, lost, sizes, st.tuples(times, times), st.tuples(times, times))
@examples(25)
def test_windows_and_bounds_by_time(
    generated: list[Run], cut: float, loss: Loss | None, limits: dict[str, str],
    exact: tuple[int, int], kafkas: tuple[int, int],
) -> None:  # fmt: skip
    (start, end), (low, high) = sorted(exact), sorted(kafkas)
    with lake_of(generated, cut, loss=loss) as (_, maker):
        expected = []
        for partition in (0, 1):
            records = maker.records(partition)
            first, last = (first_reaching(records, time) for time in (low, high))
            within = [r for r in records if first <= r.offset < last]
            expected += [r for r in within if start <= r.timestamp < end and r.timestamp >= 0]
        found = read(
            maker.root, startTime=str(start), endTime=str(end), startingTimestamp=str(low),
            endingTimestamp=str(high), startingOffsetsByTimestampStrategy="latest", **limits,
        )  # fmt: skip
        assert found == expected


def first_reaching(records: list[Written], time: int) -> int:
    return next((r.offset for r in records if r.timestamp >= time), 2**62)


@given(runs, cuts, lost, sizes, st.lists(st.integers(-2, 300), min_size=4, max_size=4))
@examples(25)
def test_offsets(
    generated: list[Run], cut: float, loss: Loss | None, limits: dict[str, str], numbers: list[int]
) -> None:
    with lake_of(generated, cut, loss=loss) as (log, maker):
        bounds, expected = {}, []
        for partition in (0, 1):
            first, end = log.beginning_offsets()[partition], log.end_offsets()[partition]
            low, high = sorted(numbers[2 * partition : 2 * partition + 2])
            low = -2 if low == -1 else low
            high = -1 if high == -2 else high
            bounds[partition] = low, high
            low, high = (first if low == -2 else low), (end if high == -1 else high)
            if low > high:
                return
            expected += [r for r in maker.records(partition) if low <= r.offset < high]
        found = read(
            maker.root, failOnDataLoss="false", **limits,
            startingOffsets=by_partition({p: low for p, (low, _) in bounds.items()}),
            endingOffsets=by_partition({p: high for p, (_, high) in bounds.items()}),
        )  # fmt: skip
        assert found == expected


def test_a_range_below_the_log_start_has_nothing(tmp_path: Path) -> None:
    """Also where it ends in the segment that holds the log start, whose files have its records."""
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(T + i) for i in range(100)]}, Shape(batch_bytes=130))
    maker.delete_records(0, 50)
    for high in (10, 49, 50, 51):
        given = {"startingOffsets": by_partition({0: 0}), "endingOffsets": by_partition({0: high})}
        for size in ("1", "1000000"):
            found = read(tmp_path, failOnDataLoss="false", bytesPerPartition=size, **given)
            assert [record.offset for record in found] == list(range(50, high))


def by_partition(numbers: dict[int, int]) -> str:
    inner = ",".join(f'"{p}":{number}' for p, number in numbers.items())
    return f'{{"events":{{{inner}}}}}'


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> LakeMaker:
    """Two versions of "events" (2 partitions, segments of a few batches), one of "other"."""
    maker = LakeMaker(tmp_path_factory.mktemp("lake"), partitions=2)
    shape = Shape(segment_bytes=2000, policy=IndexPolicy(300))
    rows = [Event(T + i, b"k", b"v" * 40, (("h", b"%d" % i),) if i % 2 else ()) for i in range(300)]
    maker.run({0: rows, 1: rows[:100]}, shape)
    maker.run({0: rows[:50]}, shape)
    maker.topic = "other"
    maker.run({1: rows[:10]}, shape)
    return maker


def test_what_is_subscribed(maker: LakeMaker) -> None:
    events, other = maker.records(topic="events"), maker.records(topic="other")
    assert read(maker.root, subscribe="other,events") == events + other
    assert read(maker.root, subscribePattern="^e") == events
    assert read(maker.root, subscribePattern="^none") == []
    assert read(maker.root, assign='{"events":[1]}') == maker.records(1, "events")
    with pytest.raises(UnknownTopic, match="nothing"):
        read(maker.root, subscribe="nothing")
    with pytest.raises(UnknownTopic, match="partition events-2"):
        read(maker.root, assign='{"events":[2]}')


def test_versions(maker: LakeMaker) -> None:
    first = [r for r in maker.records(topic="events") if r.partition == 1 or r.offset < 300]
    assert read(maker.root, version=str(maker.versions[0])) == first
    seglake.tag(str(maker.root), "first", maker.versions[0])
    assert read(maker.root, version="first") == first
    with pytest.raises(UsageError, match="no version 99 yet"):
        read(maker.root, version="99")


def test_a_plan_stays_what_it_is(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path / "lake")
    maker.run({0: [Event(T)]})
    reader = reader_of(maker.root)
    planned = reader.partitions()
    maker.run({0: [Event(T)]})
    assert len(as_written(tables(reader, planned))) == 1
    assert len(read(maker.root)) == 2


@pytest.mark.parametrize(
    "columns", [None, "value", "timestampType,offset", "headers,key,timestamp", "topic,partition"]
)
def test_the_schema_is_what_spark_demands(maker: LakeMaker, columns: str | None) -> None:
    options = {"path": str(maker.root), "subscribe": "events"}
    options |= {"columns": columns} if columns else {"includeHeaders": "true"}
    source = SeglakeDataSource(options)
    reader = source.reader(source.schema())
    (table,) = tables(reader, reader.partitions())
    assert table.schema.equals(to_arrow_schema(source.schema(), timezone="UTC"))
    assert len(table) == 450


def test_a_record_without_headers_has_null(maker: LakeMaker) -> None:
    reader = reader_of(maker.root, columns="headers", maxRecordsPerPartition="2")
    found = tables(reader, reader.partitions())[0]["headers"].to_pylist()
    assert found == [None, [{"key": "h", "value": b"1"}]]


@given(st.lists(st.integers(0, 2), max_size=6), st.integers(0, 6), st.integers(0, 6))
def test_headers_of_a_part_of_a_batch(counts: list[int], start: int, length: int) -> None:
    lists = [[{"key": f"{i}", "value": b"%d" % i}] * count for i, count in enumerate(counts)]
    (field,) = spark_columns.read_schema(["headers"])
    whole = pa.record_batch([pa.array(lists, field.type)], ["headers"])
    found = spark_columns.to_spark_batches([whole.slice(start, length)], ["headers"])
    shown = [each for batch in found for each in batch["headers"].to_pylist()]
    assert shown == [each or None for each in lists[start : start + length]]


def test_options_that_mean_nothing_are_not_sent_to_executors(maker: LakeMaker) -> None:
    source = SeglakeDataSource({
        "path": str(maker.root), "subscribe": "events", "storage.token": "is needed",
        "kafka.sasl.jaas.config": "a secret", "KAFKA.SSL.KEY.PASSWORD": "a secret",
    })  # fmt: skip
    reader = source.reader(source.schema())
    assert b"a secret" not in pickle.dumps((source, reader))  # Spark's tasks hold both
    assert b"is needed" in pickle.dumps(reader)


def test_another_schema_is_refused(maker: LakeMaker) -> None:
    source = SeglakeDataSource({"path": str(maker.root), "subscribe": "events"})
    with pytest.raises(UsageError, match="fixed schema"):
        source.reader(source.schema().add("more", "string"))


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"startingOffsets": by_partition({0: 1})}, UsageError, "It differs in events-1"),
        ({"endingOffsets": by_partition({0: 1, 1: 1, 2: 1})}, UsageError, "differs in events-2"),
        ({"startingOffsetsByTimestamp": by_partition({1: 1})}, UsageError, "differs in events-0"),
        ({"startingOffsets": by_partition({0: 1, 1: 101})}, UsageError, "events-1 would be read"),
        ({"startingOffsets": by_partition({0: 1, 1: 101}),
          "endingOffsets": by_partition({0: 1, 1: 102})}, OffsetOutOfRange, "log has 0 to 100"),
        ({"endingOffsets": by_partition({0: 1, 1: 101})}, OffsetOutOfRange, "failOnDataLoss"),
        ({"startingTimestamp": str(FAR)}, UsageError, "no record at or after 2700000000000"),
        ({"startTime": str(T), "endTime": str(T - 1)}, UsageError, "startTime is after endTime"),
        ({"path": "/nowhere/lake"}, UsageError, "there is no lake at /nowhere/lake"),
    ],
)  # fmt: skip
def test_refused(
    maker: LakeMaker, options: dict[str, str], kind: type[SeglakeError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        read(maker.root, **options)


@pytest.mark.parametrize("made", [InputPartition(None), None])  # by Spark 4.2, by older ones
def test_nothing_to_read_is_read(made: InputPartition | None, maker: LakeMaker) -> None:
    reader = reader_of(maker.root, startTime=str(FAR))
    assert reader.partitions() == []
    assert list(reader.read(made)) == []  # what Spark makes of no partition


@pytest.mark.parametrize("most", ["1", "3", "100"])
def test_a_giant_gap_is_cut_into_few_tasks(tmp_path: Path, most: str) -> None:
    """A segment of 2^31 offsets has twenty records at its two ends."""
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(T + i) for i in range(10)]}, Shape(batch_bytes=64))
    emptied(maker, 0, 2**31 - 20)
    maker.run({0: [Event(T + i) for i in range(10)]}, Shape(batch_bytes=64))
    lose_records(maker, 0, [], Loss(0, 0, 0, 1, 1, 3, 0, False))
    assert len(maker.catalog.rows.segments(maker.catalog.snapshot(), "events")) == 1
    for start in (0, 4, 2**30):
        given = {"startingOffsets": f'{{"events":{{"0":{start}}}}}', "maxRecordsPerPartition": most}
        assert len(reader_of(tmp_path, **given).partitions()) <= 16 * 20 + 1
        assert read(tmp_path, **given) == [r for r in maker.records() if r.offset >= start]


def test_a_tail_without_records_makes_no_task(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(T)]})
    emptied(maker, 0, 2**31 + 5)
    assert len(reader_of(tmp_path).partitions()) == 1
    given = {"startingOffsets": '{"events":{"0":1}}'}
    assert reader_of(tmp_path, **given).partitions() == []


@contextmanager
def without_a_log() -> Iterator[LakeMaker]:
    with tempfile.TemporaryDirectory() as folder:
        maker = LakeMaker(Path(folder))
        maker.run({0: [Event(T, b"gone")]})
        maker.run({0: [Event(T, b"here")]})
        next(log for log in maker.files("log") if log.stem.endswith("0")).unlink()
        yield maker


def test_a_log_that_is_gone() -> None:
    with without_a_log() as maker:
        with pytest.raises(MissingObject, match=r"events-0/.*\.log"):
            read(maker.root)
        assert [row.key for row in read(maker.root, failOnDataLoss="false")] == [b"here"]


def test_a_log_that_was_vacuumed_has_expired(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(T + i) for i in range(9)]})
    reader = reader_of(tmp_path)
    planned = reader.partitions()
    lose_records(maker, 0, [3], Loss(0, 0, 0, 1, 1, 1, 1, False))
    min(maker.files("log"), key=lambda file: file.stat().st_mtime_ns).unlink()
    with pytest.raises(VersionExpired, match=r"\.log was deleted.* 8 of its 9 records"):
        tables(reader, planned)
    reader = reader_of(tmp_path, failOnDataLoss="false")
    assert as_written(tables(reader, planned)) == maker.records()
    assert len(read(tmp_path)) == 8


def test_errors_come_without_the_calls_that_led_to_them(maker: LakeMaker) -> None:
    with pytest.raises(SeglakeError) as caught:
        read(maker.root, subscribe="nothing")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert Path(caught.traceback[-1].path).name == "plain_errors.py"


def test_a_full_scan_is_planned_without_a_request_for_each_segment(maker: LakeMaker) -> None:
    store = CountingStore(open_store(str(maker.root)))
    lake = Lake(store)
    lake.topic("events")  # reads its segment rows
    before = store.counts.requests
    options = Options({"path": "x", "subscribe": "events", "bytesPerPartition": "500"})
    assert len(plan(lake, options, *options.batch_bounds())) > 20
    assert store.counts.requests == before


def test_tasks_are_about_equal(maker: LakeMaker) -> None:
    total = sum(path.stat().st_size for path in maker.root.glob("topics/events-*/*/*.log"))
    for count in (1, 2, 5, 20):
        limit = -(-total // count)
        tasks = [p.value for p in reader_of(maker.root, bytesPerPartition=str(limit)).partitions()]
        task_sizes = [sum(part.size_bytes for part in task.parts) for task in tasks]
        assert max(task_sizes) <= limit
        assert count <= len(tasks) <= 2 * count + 1
        assert len(reader_of(maker.root, minPartitions=str(count)).partitions()) >= count


def test_tasks_of_one_segment_read_little_of_each_others_bytes(tmp_path: Path) -> None:
    maker = LakeMaker(tmp_path / "lake")
    maker.run({0: [Event(T + i, None, b"v" * 50) for i in range(4000)]}, Shape(batch_bytes=500))
    (log,) = maker.files("log")
    reader = reader_of(maker.root, bytesPerPartition=str(log.stat().st_size // 8))
    found = [as_written([table]) for table in tables(reader, reader.partitions())]
    assert 8 <= len(found) <= 9
    assert max(map(len, found)) < 1.2 * 4000 / 8
    assert [row for task in found for row in task] == maker.records()


@pytest.mark.parametrize("time", [INT64_MAX, INT64_MIN])
def test_a_time_beyond_sparks_is_named(tmp_path: Path, time: int) -> None:
    maker = LakeMaker(tmp_path / "lake")
    maker.run({0: [Event(5), Event(time)]})
    with pytest.raises(UsageError, match=f"timestamp {time} ms.*Leave out the column timestamp"):
        read(maker.root)
    reader = reader_of(maker.root, columns="offset")
    assert tables(reader, reader.partitions())[0]["offset"].to_pylist() == [0, 1]


@given(st.lists(st.integers(1, 12), max_size=12))
def test_batches_are_put_together_and_divided(counts: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_columns, "_LEAST_ROWS", 4)
        patch.setattr(spark_columns, "_MOST_ROWS", 6)
        numbers = iter(range(1000))
        given_batches = [
            pa.record_batch([pa.array([next(numbers) for _ in range(n)])], names=["offset"])
            for n in counts
        ]
        found = list(spark_columns.to_spark_batches(given_batches, ["offset"]))
    values = [number for batch in found for number in batch["offset"].to_pylist()]
    assert values == list(range(sum(counts)))
    assert all(len(batch) <= 6 for batch in found)
    assert len(found) <= sum(counts) // 4 + len(counts) // 4 + 1 + sum(n // 6 for n in counts)
