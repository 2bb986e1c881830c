"""A real broker serves the golden segments: every lookup and record is that of the manifest."""

import json
from pathlib import Path
from typing import Any

import pytest

import seglake
from tests.judges.kafka_broker import Broker
from tests.judges.kafka_judge import Batch, Kafka, KafkaError, Record, record_from_json
from tests.judges.kafka_producers import Producers
from tests.kafka.make_golden import GOLDEN, checksum
from tests.makers.lakes import Event, LakeMaker

MANIFEST: dict[str, dict[str, Any]] = json.loads((GOLDEN / "MANIFEST.json").read_text())["segments"]
CURRENT = [name for name, entry in MANIFEST.items() if entry["supported"]]


def consumable(entry: dict[str, Any]) -> list[Record]:
    """What a consumer sees of a golden segment: all records but the transaction markers."""
    batches = [batch for batch in entry["batches"] if not batch["control"]]
    return [record_from_json(record) for batch in batches for record in batch["records"]]


def lookups(entry: dict[str, Any]) -> tuple[list[int], list[tuple[int, int] | None]]:
    """The timestamps asked for in the manifest, and the answers."""
    times = [time for time, _ in entry["find_by_timestamp"]]
    return times, [found and tuple(found) for _, found in entry["find_by_timestamp"]]


@pytest.fixture(scope="module", autouse=True)
def _adopted(kafka: Kafka, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A topic for each golden segment, and one of two partitions and two segments."""
    rolled = tmp_path_factory.mktemp("rolled")
    for base in (20, 30):
        batches = [Batch((Record(base + n, base + n, b"k", b"v"),)) for n in range(10)]
        kafka.write_segment(rolled, base, batches)
    logs = {(name, 0): GOLDEN / name for name in CURRENT}
    broker.adopt(logs | {("rolled", 1): rolled})


@pytest.mark.parametrize("name", CURRENT)
def test_every_record_is_consumed(broker: Broker, name: str) -> None:
    entry = MANIFEST[name]
    assert broker.consume_all(name, 0) == consumable(entry)
    assert broker.beginning_offset(name, 0) == entry["base_offset"]
    assert broker.end_offset(name, 0) == entry["batches"][-1]["last_offset"] + 1


@pytest.mark.parametrize("name", CURRENT)
def test_every_time_is_found(broker: Broker, name: str) -> None:
    times, answers = lookups(MANIFEST[name])
    assert broker.find_by_timestamp(name, 0, times) == answers


def test_max_timestamp_is_the_first_record_that_has_it(broker: Broker) -> None:
    assert broker.max_timestamp("reference", 0) == (90, 1009)
    records = consumable(MANIFEST["codec-lz4"])
    latest = max(record.timestamp for record in records)
    first = next(record.offset for record in records if record.timestamp == latest)
    assert broker.max_timestamp("codec-lz4", 0) == (latest, first)


def test_seek(broker: Broker) -> None:
    records = consumable(MANIFEST["compacted"])
    assert broker.seek_and_poll("compacted", 0, 13)[0] == records[1]  # a gap: the next record
    assert broker.seek_and_poll("compacted", 0, 31)[0].offset == 31
    assert broker.seek_and_poll("reference", 0, 1010) == []  # the end
    for outside in (999, 1011):
        with pytest.raises(KafkaError, match="OffsetOutOfRange"):
            broker.seek_and_poll("reference", 0, outside)


def test_two_segments_of_the_second_partition(broker: Broker) -> None:
    assert [record.offset for record in broker.consume_all("rolled", 1)] == list(range(20, 40))
    assert broker.consume_all("rolled", 0) == []
    assert broker.offsets_for_times("rolled", {0: 5, 1: 30}) == {0: None, 1: (30, 30)}
    assert broker.max_timestamp("rolled", 0) == (-1, -1)


def test_a_maximum_before_the_log_start(kafka: Kafka, broker: Broker, tmp_path: Path) -> None:
    """Kafka's answer is a deleted offset; this library's is the largest timestamp that is left."""
    times = [10, 90, 20, 30]
    (tmp_path / "cut").mkdir()
    batches = [Batch((Record(n, time, b"k", b"v"),)) for n, time in enumerate(times)]
    kafka.write_segment(tmp_path / "cut", 0, batches)
    broker.adopt({("cut", 0): tmp_path / "cut"})
    Producers(kafka, broker).delete_records("cut", 0, 2)
    assert broker.beginning_offset("cut", 0) == 2
    assert [record.timestamp for record in broker.consume_all("cut", 0)] == [20, 30]
    assert broker.max_timestamp("cut", 0) == (90, 1)
    maker = LakeMaker(tmp_path / "lake")
    maker.run({0: [Event(time) for time in times]})
    maker.delete_records(0, 2)
    log = seglake.open(str(maker.root)).topic("events")
    assert log.beginning_offsets() == {0: 2}
    assert log.max_timestamps() == {0: (3, 30)}


@pytest.mark.rest
def test_the_broker_rebuilds_the_golden_indexes(broker: Broker) -> None:
    rebuilt = {name: f"rebuilt-{name}" for name in CURRENT}
    logs = {(topic, 0): GOLDEN / name for name, topic in rebuilt.items()}
    configs = {
        topic: {"index.interval.bytes": str(MANIFEST[name]["index_interval_bytes"])}
        for name, topic in rebuilt.items()
    }
    broker.adopt(logs, configs=configs, rebuild_indexes=True)
    with broker.stopped():
        for name, topic in rebuilt.items():
            files = MANIFEST[name]["files"]
            place = broker.partition_folder(topic, 0)
            assert {path: checksum(place / path) for path in files} == files
