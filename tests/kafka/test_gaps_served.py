"""A real broker serves logs that lost records; its consumer comes to the end, and we agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import seglake
from seglake.read.log import Log
from tests.judges.kafka_broker import Broker
from tests.judges.kafka_judge import Kafka, Record
from tests.kafka.test_written_broker import read_by_us
from tests.makers.gaps import Loss, emptied, lose
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.versions import T, first_reaching

SOME = Loss(seed=2, single=0.3, whole=0.3, stretch=9, tail=1, joined=1, headers=0.5, dated=False)
LOSSES = {
    "some": SOME,
    "joined": SOME._replace(joined=4, headers=0),
    "tail": SOME._replace(tail=0.6),
    "dated-tail": SOME._replace(tail=0.6, dated=True),
    "headers": SOME._replace(whole=0.9, headers=1),
    "all": SOME._replace(whole=1),
    "all-joined": SOME._replace(whole=1, headers=0, joined=100),
    "emptied": SOME._replace(single=0, whole=0),
}
CODECS = ["none", "zstd", "lz4", "gzip", "snappy"]
Served = dict[str, tuple[Log, LakeMaker]]


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Served:
    found: Served = {}
    for number, (topic, loss) in enumerate(LOSSES.items()):
        maker = LakeMaker(tmp_path_factory.mktemp(topic), topic)
        shape = Shape(CODECS[number % 5], batch_bytes=200, segment_bytes=1500)
        times = [T + 10 * at - 300 * (at % 11 == 0) for at in range(200)]
        maker.run({0: [Event(time, b"%d" % time, b"value") for time in times]}, shape)
        if topic == "emptied":  # a segment of one empty batch, the most that one can cover
            emptied(maker, 0, 2**31)
        lose(maker, loss)
        found[topic] = seglake.open(str(maker.root)).topic(topic), maker
    return found


@pytest.fixture(scope="module")
def broker(
    kafka: Kafka, lakes: Served, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    logs = {(topic, 0): folder_of(maker) for topic, (_, maker) in lakes.items()}
    with Broker.serve(kafka, tmp_path_factory.mktemp("broker"), logs) as running:
        yield running


def folder_of(maker: LakeMaker) -> Path:
    """The folder of the live segments, which one attempt wrote."""
    rows = maker.catalog.segments(maker.catalog.snapshot(), maker.topic)
    [folder] = {(maker.root / row.key("log")).parent for row in rows}
    return folder


@pytest.mark.parametrize("topic", LOSSES)
def test_the_consumer_sees_what_is_left_and_comes_to_the_end(
    broker: Broker, lakes: Served, topic: str
) -> None:
    log, maker = lakes[topic]
    wanted = [Record(r.offset, r.timestamp, r.key, r.value, ()) for r in maker.records()]
    assert broker.consume_all(topic, 0) == wanted == read_by_us(log, 0, 1000)
    assert {0: broker.end_offset(topic, 0)} == log.end_offsets()
    assert {0: broker.beginning_offset(topic, 0)} == log.beginning_offsets()


@pytest.mark.parametrize("topic", LOSSES)
def test_seeks_into_gaps_go_on_at_the_same_record(
    broker: Broker, lakes: Served, topic: str
) -> None:
    log, maker = lakes[topic]
    left = {record.offset for record in maker.records()}
    gaps = [offset for offset in range(200) if offset not in left]
    for offset in gaps[:: 1 + len(gaps) // 3]:
        polled = broker.seek_and_poll(topic, 0, offset)
        assert polled == read_by_us(log, offset, len(polled))
        assert polled or offset > max(left, default=-1)


@pytest.mark.parametrize("topic", LOSSES)
def test_times(broker: Broker, lakes: Served, topic: str) -> None:
    """Kafka may find none behind a batch that keeps the time of what it lost, and behind a segment
    without timestamps: see "What differs from Kafka's answers" in lookups.md.
    """
    log, maker = lakes[topic]
    times = [T - 300, *range(T, T + 2000, 197), T + 1990]
    ours = [found and tuple(found) for t in times for found in [log.offsets_for_times({0: t})[0]]]
    assert ours == [first_reaching(maker.records(), time) for time in times]
    asked = [broker.offsets_for_times(topic, {0: time})[0] for time in times]
    theirs = [found and (found[1], found[0]) for found in asked]
    undated = -1 in log.reader(0).view.segments.max_timestamps
    assert undated == (topic not in ("some", "joined"))
    if undated or LOSSES[topic].dated:
        assert all(found in (None, wanted) for found, wanted in zip(theirs, ours, strict=True))
    else:
        assert theirs == ours
