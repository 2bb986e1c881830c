"""A real broker serves logs that lost records; its consumer comes to the end, and we agree."""

from pathlib import Path

import pytest

import seglake
from seglake.read.log import Log
from tests.judges.kafka_broker import Broker
from tests.judges.kafka_judge import Record
from tests.kafka.test_written_broker import read_by_us
from tests.makers.gaps import LOSSES, lossy_lake
from tests.makers.lakes import LakeMaker
from tests.makers.versions import T, first_reaching

Served = dict[str, tuple[Log, LakeMaker]]


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Served:
    makers = lossy_lake(tmp_path_factory.mktemp("lake"))
    lake = seglake.open(str(makers["some"].root))
    return {topic: (lake.topic(topic), maker) for topic, maker in makers.items()}


@pytest.fixture(scope="module", autouse=True)
def _adopted(broker: Broker, lakes: Served) -> None:
    broker.adopt({(topic, 0): folder_of(maker) for topic, (_, maker) in lakes.items()})


def folder_of(maker: LakeMaker) -> Path:
    """The folder of the live segments, which one attempt wrote."""
    rows = maker.catalog.rows.segments(maker.catalog.snapshot(), maker.topic)
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
