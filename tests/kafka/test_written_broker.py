"""A real broker serves partitions that this project wrote, and agrees with our own reader."""

import random
from pathlib import Path

import pytest

from seglake.catalog.schema import SegmentRow
from seglake.errors import OffsetOutOfRange
from seglake.format.codecs.compression import NAMES
from seglake.read.log import Log
from tests.judges.kafka_broker import Broker
from tests.judges.kafka_judge import KafkaError, Record
from tests.kafka.test_import import records_of
from tests.kafka.test_written_lookups import answers_of, brute_force, commit, times_to_ask
from tests.kafka.test_written_segments import folder_of, records_in, write
from tests.makers.lakes import Event
from tests.makers.strategies import FAR, NOISE, Stored, T, topic_of

KINDS = ["CreateTime", "LogAppendTime"]
INTERVALS = [0, 100, 4096]
TOPICS = [f"{codec}-{kind}" for codec in NAMES for kind in KINDS]
SEEKS = 5  # each is a fetch of its own


def log_of(topic: str) -> Stored:
    """300 events: late ones, equal times, one in the far future, some without a time."""
    number = TOPICS.index(topic)
    chance = random.Random(number)
    times = [T + 10 * at - chance.choice((0, 0, 500)) for at in range(300)]
    times[50], times[51], times[120] = -1, -1, (FAR if number % 3 == 0 else T)
    events = [
        Event(time, chance.choice((None, b"", b"key")), chance.choice((None, b"value" * 20, b"")),
              (("h", b"1"), ("größe", None)) if at % 7 == 0 else ())
        for at, time in enumerate(times)
    ]  # fmt: skip
    events[200] = events[200]._replace(value=NOISE)
    codec, kind = topic.split("-")
    stored = topic_of(
        INTERVALS[number % 3], name=topic, compression_type=codec,
        message_timestamp_type=kind, batch_size=600, segment_bytes=len(NOISE) + 1000,
        segment_ms=1000,
    )  # fmt: skip
    return Stored(events, stored, number % 4 * 1000, T + number)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Log, Path]]:
    """Each topic as our reader sees it, and the folder of its one partition."""
    root = tmp_path_factory.mktemp("lake")
    found = {}
    for topic in TOPICS:
        stored = log_of(topic)
        rows: list[SegmentRow] = write(root, stored)
        assert len(rows) > 1
        found[topic] = commit(root, stored, rows, stored.base_offset), folder_of(root, rows)
    return found


def contents(folder: Path) -> dict[str, bytes]:
    """Logs and indexes; a broker leaves other files beside them."""
    kept = (".log", ".index", ".timeindex")
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in kept}


@pytest.fixture(scope="module", autouse=True)
def _adopted(broker: Broker, lake: dict[str, tuple[Log, Path]]) -> None:
    """The broker serves our files, indexes included."""
    broker.adopt({(topic, 0): folder for topic, (_, folder) in lake.items()})


def read_by_us(log: Log, offset: int, count: int) -> list[Record]:
    """Records in the judge's form."""
    return records_of(log.read(0, offset, max_records=count))


@pytest.mark.parametrize("topic", TOPICS)
def test_records_and_offsets(broker: Broker, lake: dict[str, tuple[Log, Path]], topic: str) -> None:
    log, wanted = lake[topic][0], records_in(log_of(topic))
    assert broker.consume_all(topic, 0) == wanted
    assert read_by_us(log, wanted[0].offset, len(wanted)) == wanted
    assert log.beginning_offsets() == {0: broker.beginning_offset(topic, 0)}
    assert log.end_offsets() == {0: broker.end_offset(topic, 0)}


@pytest.mark.parametrize("topic", TOPICS)
def test_seeks(broker: Broker, lake: dict[str, tuple[Log, Path]], topic: str) -> None:
    log, wanted, chance = lake[topic][0], records_in(log_of(topic)), random.Random(4)
    begin, end = wanted[0].offset, wanted[-1].offset + 1
    for offset in [begin, end - 1, *(chance.randrange(begin, end) for _ in range(SEEKS))]:
        polled = broker.seek_and_poll(topic, 0, offset)
        assert polled
        assert polled == read_by_us(log, offset, len(polled))
        assert polled[0] == wanted[offset - begin]
    for outside in (end + 1, *([begin - 1] if begin else [])):
        with pytest.raises(KafkaError, match="OffsetOutOfRange"):
            broker.seek_and_poll(topic, 0, outside)
        with pytest.raises(OffsetOutOfRange):
            log.read(0, outside)


@pytest.mark.parametrize("topic", TOPICS)
def test_times(broker: Broker, lake: dict[str, tuple[Log, Path]], topic: str) -> None:
    log, records = lake[topic][0], records_in(log_of(topic))
    times = times_to_ask(random.Random(9), records)[::3]
    assert broker.find_by_timestamp(topic, 0, times) == answers_of(log, times)
    assert answers_of(log, times) == brute_force(records, times)
    newest = log.max_timestamps()[0]
    assert newest is not None
    assert broker.max_timestamp(topic, 0) == (newest.timestamp, newest.offset)


@pytest.mark.rest
def test_a_broker_leaves_our_indexes_and_writes_the_same_ones(
    broker: Broker, lake: dict[str, tuple[Log, Path]]
) -> None:
    """Where it gets our indexes, they are as before; where it gets none, it makes them."""
    logs = {(f"rebuilt-{topic}", 0): folder for topic, (_, folder) in lake.items()}
    configs = {
        f"rebuilt-{topic}": {"index.interval.bytes": str(log_of(topic).topic.index_interval_bytes)}
        for topic in lake
    }
    broker.adopt(logs, configs=configs, rebuild_indexes=True)
    with broker.stopped():
        for topic, (_, ours) in lake.items():
            for name in (topic, f"rebuilt-{topic}"):
                assert contents(broker.partition_folder(name, 0)) == contents(ours)
