"""Streaming reads under a model of Spark's engine: a checkpoint, micro-batches, kills, restarts."""

import json
import re
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from seglake.catalog.delta import file_merges
from seglake.datasource.options import Options, TopicPartition
from seglake.datasource.source import SeglakeDataSource
from seglake.datasource.stream import SparkStreamReader, prorate
from seglake.errors import ConfigError, OffsetOutOfRange, SeglakeError, UsageError
from seglake.maintain.health.reindex import reindex
from seglake.maintain.vacuum import vacuum
from tests.makers.gaps import emptied, lose, losses
from tests.makers.lakes import Event, LakeMaker, Shape, T, Written
from tests.makers.strategies import examples
from tests.makers.versions import grow
from tests.unit.datasource.spark_rows import as_written, tables

P0, P1 = TopicPartition("events", 0), TopicPartition("events", 1)
Ends = dict[TopicPartition, int]


class Killed(Exception):
    """The query was killed."""


@dataclass
class Checkpoint:
    """What survives a kill, as JSON: ends of micro-batches, which are committed, what was sunk."""

    ends: dict[int, str] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)
    sunk: dict[int, list[Written]] = field(default_factory=dict)  # a batch again replaces itself

    @property
    def records(self) -> list[Written]:
        return [row for batch in sorted(self.sunk) for row in self.sunk[batch]]

    def by_log(self) -> dict[tuple[bytes | None, int], list[Written]]:
        """The records by topic, which is their key, and partition."""
        found: dict[tuple[bytes | None, int], list[Written]] = {}
        for record in self.records:
            found.setdefault((record.key, record.partition), []).append(record)
        return found


class Query:
    """One process of a query: what Spark's MicroBatchExecution asks of a source, in its order."""

    def __init__(self, checkpoint: Checkpoint, root: Path, **options: str) -> None:
        if "subscribePattern" not in options:
            options = {"subscribe": "events", **options}
        self.checkpoint = checkpoint
        self.reader = SparkStreamReader(Options({"path": str(root), **options}))

    def trigger(self, kill_at: int = 0) -> bool:
        """Run one micro-batch; False if there is nothing to do. `kill_at` numbers the moments."""
        kept, number = self.checkpoint, len(self.checkpoint.committed)
        if number not in kept.ends:
            start = self._start(number)
            limit = self.reader.getDefaultReadLimit()
            end = self.reader.latestOffset(json.loads(start), limit)
            if number and json.dumps(end) == start:
                return False
            kill(kill_at, 1)
            kept.ends[number] = json.dumps(end)
        kill(kill_at, 2)
        start, end = json.loads(self._start(number)), json.loads(kept.ends[number])
        rows = as_written(tables(self.reader, self.reader.partitions(start, end)))
        kill(kill_at, 3)
        kept.sunk[number] = rows
        kill(kill_at, 4)
        kept.committed.add(number)
        return True

    def _start(self, number: int) -> str:
        if number:
            return self.checkpoint.ends[number - 1]
        return json.dumps(self.reader.initialOffset())

    def drain(self) -> list[Written]:
        while self.trigger():
            pass
        return self.checkpoint.records


def kill(kill_at: int, moment: int) -> None:
    if kill_at == moment:
        raise Killed


def rows(count: int, topic: str = "events") -> list[Event]:
    return [Event(T + i, topic.encode(), b"%d" % i) for i in range(count)]


steps = st.one_of(
    st.tuples(st.just("commit"), st.integers(0, 6), st.integers(0, 6)),
    st.tuples(st.just("trigger"), st.integers(0, 4), st.just(0)),
    st.tuples(st.just("trigger"), st.just(0), st.just(0)),
    st.tuples(st.just("restart"), st.just(0), st.just(0)),
    st.tuples(st.just("topic"), st.integers(1, 2), st.integers(0, 6)),
    st.tuples(st.just("partition"), st.just(0), st.just(0)),
)
starts = st.sampled_from(
    [
        {},  # latest
        {"startingOffsets": "earliest"},
        {"startingOffsets": '{"events":{"0":-1,"1":2}}'},
        {"startingTimestamp": str(T + 3)},
        {"startingTimestamp": str(T + 4), "startingOffsetsByTimestampStrategy": "latest"},
        {"startingTimestamp": str(T + 99), "startingOffsetsByTimestampStrategy": "latest"},
    ]
)
chosen_topics = st.sampled_from(
    [{"subscribe": "events"}, {"subscribePattern": "^e"}, {"subscribePattern": "^e-"}]
)
limits = st.sampled_from([{}, {"maxOffsetsPerTrigger": "3"}, {"maxOffsetsPerTrigger": "100"}])

EVENTS, ANY, LATER = (
    {"subscribe": "events"},
    {"subscribePattern": "^e"},
    {"subscribePattern": "^e-"},
)
BY_PARTITION = {"startingOffsets": '{"events":{"0":-1,"1":2}}'}
KILLED, RUN, TOPIC, PARTITION = (
    ("trigger", 2, 0),
    ("trigger", 0, 0),
    ("topic", 1, 2),
    ("partition", 0, 0),
)


# killed in the first micro-batch, whose start is asked for again: later than before, or the same
@example({}, EVENTS, {}, [KILLED, ("commit", 3, 3)])
@example(BY_PARTITION, EVENTS, {}, [KILLED])
# a topic or partition that comes when the query is idle, or was killed in its first micro-batch
@example(BY_PARTITION, ANY, {}, [RUN, TOPIC])
@example(BY_PARTITION, ANY, {}, [KILLED, TOPIC])
@example(BY_PARTITION, EVENTS, {}, [KILLED, PARTITION])
@example({"startingTimestamp": str(T + 3)}, LATER, {}, [RUN, TOPIC])
@example({"startingTimestamp": str(T + 3)}, ANY, {}, [KILLED, TOPIC])
@given(starts, chosen_topics, limits, st.lists(steps, max_size=12))
@examples(40)
def test_kills_and_restarts_lose_and_repeat_nothing(
    start: dict[str, str],
    topics: dict[str, str],
    limit: dict[str, str],
    history: list[tuple[str, int, int]],
) -> None:
    options = start | topics | limit
    with tempfile.TemporaryDirectory() as folder:
        maker = LakeMaker(Path(folder), partitions=2)
        maker.run({0: rows(4), 1: rows(5)})
        checkpoint = Checkpoint()
        query = Query(checkpoint, maker.root, **options)
        first: Ends | None = None  # where the query starts: known once batch 0 is
        for name, one, other in [*history, RUN]:
            if name not in ("trigger", "restart"):
                change(maker, name, one, other)
                continue
            expected = expected_start(maker, options) if first is None else first
            ended = name == "restart"
            try:
                if name == "trigger":
                    query.trigger(kill_at=one)
            except Killed:
                ended = True
            except UsageError:
                assert expected is None  # only a query that never began may have no start
                ended = True
            if 0 in checkpoint.ends:
                assert expected is not None
                first = expected
            if ended:
                query = Query(checkpoint, maker.root, **options)
        if first is not None:
            query.drain()
        assert checkpoint.by_log() == ({} if first is None else rest(maker, options, first))


losing = st.one_of(
    st.tuples(st.just("commit"), st.integers(0, 40)),
    st.tuples(st.just("trigger"), st.integers(0, 4)),
    st.tuples(st.just("trigger"), st.just(0)),
    st.tuples(st.just("lose"), losses),
    st.tuples(st.just("empty"), st.sampled_from([1, 30])),
)


@given(limits, st.lists(losing, min_size=2, max_size=9))
@examples(20)
def test_what_leaves_the_log_meanwhile_is_read_or_not_and_the_query_ends(
    limit: dict[str, str], history: list[tuple[str, Any]]
) -> None:
    """What is left is read once and in order; of what left, what was read before it did."""
    with tempfile.TemporaryDirectory() as folder:
        maker = LakeMaker(Path(folder))
        maker.run({0: rows(30)}, Shape(batch_bytes=130, segment_bytes=300))
        checkpoint, ever = Checkpoint(), dict[int, Written]()
        query = Query(checkpoint, maker.root, startingOffsets="earliest", **limit)
        for name, detail in history:
            ever |= {record.offset: record for record in maker.records()}
            try:
                if name == "trigger":
                    query.trigger(kill_at=detail)
                elif name == "commit":
                    maker.run({0: rows(detail)}, Shape(batch_bytes=130))
                elif name == "lose":
                    lose(maker, detail)
                else:
                    emptied(maker, 0, detail)
            except Killed:
                query = Query(checkpoint, maker.root, startingOffsets="earliest", **limit)
        ever |= {record.offset: record for record in maker.records()}
        found = query.drain()
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets) | {record.offset for record in maker.records()})
        assert found == [ever[offset] for offset in offsets]
        last = json.loads(checkpoint.ends[max(checkpoint.ends)])
        assert last["events"] == {"0": ends_of(maker)[P0]}


def change(maker: LakeMaker, name: str, one: int, other: int) -> None:
    """A commit, by another run, of more records, of a topic or of another partition."""
    last = max(p for topic, p in ends_of(maker) if topic == "events")
    if name == "commit":
        maker.run({0: rows(one), last: rows(other)})
    elif name == "partition":
        grow(maker, last + 2)
    else:
        maker.topic = f"e-{one}"
        maker.run({1: rows(other, maker.topic)})
        maker.topic = "events"


def ends_of(maker: LakeMaker) -> Ends:
    """The ends of all logs."""
    snapshot = maker.catalog.snapshot()
    return {
        TopicPartition(row.topic, p): snapshot.partition(row.topic, p).end_offset
        for row in snapshot.topics()
        for p in range(row.partitions)
    }


def is_read(topic: str, options: dict[str, str]) -> bool:
    return bool(re.search(options.get("subscribePattern", "^events$"), topic))


def expected_start(maker: LakeMaker, options: dict[str, str]) -> Ends | None:
    """Where a query starts that is written down now; None if that is an error."""
    ends = {p: end for p, end in ends_of(maker).items() if is_read(p.topic, options)}
    match options:
        case {"startingTimestamp": time}:
            found = {p: first_at(maker, p, int(time)) for p in ends}
            if None in found.values() and "startingOffsetsByTimestampStrategy" not in options:
                return None
            return {p: ends[p] if offset is None else offset for p, offset in found.items()}
        case {"startingOffsets": "earliest"}:
            return dict.fromkeys(ends, 0)
        case {"startingOffsets": _}:
            return {P0: ends[P0], P1: 2} if ends.keys() == {P0, P1} else None
    return ends


def first_at(maker: LakeMaker, partition: TopicPartition, time: int) -> int | None:
    records = maker.records(partition.partition, partition.topic)
    return next((r.offset for r in records if r.timestamp >= time), None)


def rest(maker: LakeMaker, options: dict[str, str], first: Ends) -> dict[Any, list[Written]]:
    """What is in the logs from there on, and all of those that came later; without empty logs."""
    found = {
        (p.topic.encode(), p.partition): [
            r for r in maker.records(p.partition, p.topic) if r.offset >= first.get(p, 0)
        ]
        for p in ends_of(maker)
        if is_read(p.topic, options)
    }
    return {log: records for log, records in found.items() if records}


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    maker = LakeMaker(tmp_path / "lake", partitions=2)
    maker.run({0: rows(30), 1: rows(10)}, Shape(segment_bytes=500))
    return maker


def offset(zero: int, one: int) -> dict[str, dict[str, int]]:
    return {"events": {"0": zero, "1": one}}


def reader_of(maker: LakeMaker, **options: str) -> SparkStreamReader:
    return Query(Checkpoint(), maker.root, **options).reader


def latest(reader: SparkStreamReader, start: dict[str, Any], limit: Any) -> dict[str, Any]:
    """The offsets of `latestOffset`, which also names the version that they are read from."""
    found = reader.latestOffset(start, limit)
    assert start == found or found["@version"] == reader._lake.version
    return {topic: offsets for topic, offsets in found.items() if topic[0] != "@"}


def test_offsets_have_the_form_of_kafkas_source(maker: LakeMaker) -> None:
    maker.topic = "other"
    maker.run({1: rows(2)})
    found = latest(reader_of(maker, subscribe="other,events"), {}, ReadAllAvailable())
    assert found == {"events": {"0": 30, "1": 10}, "other": {"0": 0, "1": 2}}


def test_a_query_from_the_end_first_writes_down_where_it_starts(maker: LakeMaker) -> None:
    reader = reader_of(maker)
    start = reader.initialOffset()
    maker.run({0: rows(5)})
    found = reader.latestOffset(start, ReadAllAvailable())
    assert found == {**offset(35, 10), "@start": offset(35, 10), "@version": 2}
    maker.run({1: rows(1)})
    assert latest(reader, found, ReadAllAvailable()) == offset(35, 11)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (offset(31, 10), "offsets 31 to 30 (exclusive) of events-0 are requested"),
        ({"events": {"0": 1}}, "must name exactly the partitions"),
    ],
)
def test_a_wrong_start_is_an_error_before_it_is_written_down(
    maker: LakeMaker, start: Any, words: str
) -> None:
    query = Query(Checkpoint(), maker.root, startingOffsets=json.dumps(start))
    with pytest.raises(SeglakeError, match=re.escape(words)):
        query.trigger()
    assert not query.checkpoint.ends


@pytest.mark.parametrize("moment", [2, 3])
def test_a_micro_batch_that_had_not_ended__is_read_whatever_is_subscribed_since(
    maker: LakeMaker, moment: int
) -> None:
    query = Query(Checkpoint(), maker.root, startingOffsets="earliest")
    with pytest.raises(Killed):
        query.trigger(kill_at=moment)
    before = maker.records()
    maker.topic = "later"
    maker.run({0: rows(2, "later")})
    again = Query(query.checkpoint, maker.root, subscribe="events,later")
    assert again.trigger()
    assert again.checkpoint.records == before
    assert again.drain()[len(before) :] == maker.records()


@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**12)), min_size=1, max_size=5),
)
def test_prorated(limit: int, sizes: list[tuple[int, int]]) -> None:
    starts = {TopicPartition("t", i): start for i, (start, _) in enumerate(sizes)}
    ends = {TopicPartition("t", i): sum(pair) for i, pair in enumerate(sizes)}
    found = prorate(limit, starts, ends)
    taken = {p: found[p] - starts[p] for p in starts}
    assert found.keys() == ends.keys()
    assert all(0 <= taken[p] <= ends[p] - starts[p] for p in taken)
    assert all(taken[p] or ends[p] == starts[p] for p in taken)  # none is starved
    assert sum(taken.values()) <= limit + len(sizes)
    if sum(size for _, size in sizes) <= limit:
        assert found == ends


def test_limits_of_a_trigger(maker: LakeMaker) -> None:
    reader = reader_of(maker, maxOffsetsPerTrigger="8")
    assert reader.getDefaultReadLimit() == ReadMaxRows(8)
    assert latest(reader, offset(0, 0), ReadMaxRows(8)) == offset(6, 2)
    assert latest(reader, offset(29, 0), ReadMaxRows(8)) == offset(30, 7)
    assert latest(reader, offset(0, 0), ReadAllAvailable()) == offset(30, 10)
    assert reader.reportLatestOffset() == offset(30, 10)


def test_too_few_records_wait(maker: LakeMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    reader = reader_of(maker, minOffsetsPerTrigger="20", maxTriggerDelay="10s")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(20)
    assert latest(reader, offset(29, 10), limit) == offset(30, 10)  # as if it had waited long
    assert latest(reader, offset(25, 10), limit) == offset(25, 10)
    assert latest(reader, offset(10, 10), limit) == offset(30, 10)
    now[0] += 9.9
    assert latest(reader, offset(25, 10), limit) == offset(25, 10)
    now[0] += 0.1
    assert latest(reader, offset(25, 10), limit) == offset(30, 10)
    now[0] += 0.1
    reader.prepareForTriggerAvailableNow()
    assert latest(reader, offset(25, 10), limit) == offset(30, 10)


def test_available_now_ends_at_what_was_there(maker: LakeMaker) -> None:
    reader = reader_of(maker, startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    maker.run({0: rows(5)})
    assert latest(reader, reader.initialOffset(), ReadAllAvailable()) == offset(30, 10)
    assert latest(reader, offset(30, 10), ReadAllAvailable()) == offset(30, 10)
    reader = reader_of(maker)
    reader.prepareForTriggerAvailableNow()
    maker.run({0: rows(5)})  # nor is it skipped, because the query would start behind it
    found = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert found == {**offset(35, 10), "@start": offset(35, 10), "@version": 2}


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (offset(5, 10), offset(30, 10), "requested, but its log has 20 to 30"),
        (offset(20, 10), offset(31, 10), "requested, but its log has 20 to 30"),
        (offset(30, 10), offset(29, 10), "events-0 was read to offset 30 and ends at 29"),
        ({"events": {"1": 10}}, offset(30, 10), "events-0 is new and starts at offset 20"),
        (offset(20, 10), {"events": {"0": 30}}, "events-1 is missing, but was read up to offset"),
        ({"events": {}}, {"events": {"2": 30}}, "events-2 is not in the lake"),
    ],
)
def test_losses(maker: LakeMaker, start: Any, end: Any, words: str) -> None:
    maker.delete_records(0, 20)
    with pytest.raises(OffsetOutOfRange, match=f"{words}.*set failOnDataLoss to false"):
        reader_of(maker).partitions(start, end)
    lenient = reader_of(maker, failOnDataLoss="false")
    found = as_written(tables(lenient, lenient.partitions(start, end)))
    low, high = (side.get("events", {}).get("0", 0) for side in (start, end))
    assert found == [r for r in maker.records(0) if low <= r.offset < high]


@pytest.mark.parametrize("moment", [2, 3])
def test_a_micro_batch_that_is_read_again__is_the_same_whatever_was_removed(
    maker: LakeMaker, moment: int
) -> None:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    query = Query(Checkpoint(), maker.root, **options)
    with pytest.raises(Killed):
        query.trigger(kill_at=moment)
    before = maker.records()
    maker.delete_records(0, 12)
    again = Query(query.checkpoint, maker.root, **options)
    assert again.trigger()
    assert again.checkpoint.sunk[0] == [r for r in before if r.offset < (5 if r.partition else 15)]
    assert again.trigger()  # and the next one goes on where it ended
    assert sorted(again.checkpoint.records, key=lambda r: r[:2]) == before


def test_a_micro_batch_of_a_version_that_is_gone__is_read_from_the_newest(
    maker: LakeMaker, caplog: pytest.LogCaptureFixture
) -> None:
    end = reader_of(maker).latestOffset(offset(0, 0), ReadAllAvailable())
    for _ in range(2):
        maker.run({0: rows(1)})
    reindex(str(maker.root), "events")
    vacuum(str(maker.root), dry_run=False, retention_hours=0, grace_hours=0)
    reader = reader_of(maker)
    found = as_written(tables(reader, reader.partitions(offset(0, 0), end)))
    assert found == [r for r in maker.records() if r.offset < (10 if r.partition else 30)]
    assert "Reading this micro-batch from the newest version" in caplog.text


def test_a_merge_in_the_catalog__is_no_micro_batch(
    maker: LakeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(Checkpoint(), maker.root, startingOffsets="earliest")
    maker.run({0: rows(2)})
    query.drain()
    version = maker.catalog.snapshot().version
    monkeypatch.setattr(file_merges, "FAN_IN", 2)
    maker.topic = "another"
    maker.run({0: rows(1)})
    assert maker.catalog.snapshot().version == version + 2  # the run, and the merge
    assert not query.trigger()
    maker.topic = "events"
    maker.run({0: rows(2)})
    assert sorted(query.drain(), key=lambda r: r[:2]) == maker.records()


def test_errors_are_raised_when_the_query_starts(maker: LakeMaker) -> None:
    with pytest.raises(UsageError, match="endTime is only valid in a batch query"):
        reader_of(maker, endTime="0")


@pytest.mark.parametrize("version", ["4.0.5", "4.1.4"])
def test_an_older_spark_is_refused_with_the_remedy(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for the latest offset without a start and a limit."""
    source = SeglakeDataSource({"path": "lake", "subscribe": "events"})
    source.streamReader(source.schema())
    monkeypatch.setattr("pyspark.__version__", version)
    with pytest.raises(ConfigError, match=f"needs Spark 4.2, and this is {version}. Use pyspark"):
        source.streamReader(source.schema())
