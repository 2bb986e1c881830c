"""What a real broker wrote, imported: the view of its read_committed consumers; and exported again.

One broker writes in two parts, with a restart between; its log.dir is copied after each. A fresh
broker then mounts the exports of all lakes, by the steps in docs/kafka.md.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa
import pytest
from kafka.protocol.producer import ProduceRequest, ProduceResponse

import seglake
from seglake.format.decode import scan_batches
from seglake.kafka.exporting import export_logs
from seglake.kafka.folder import HIGH_WATERMARKS
from seglake.kafka.importing import import_logs
from seglake.limits import INT64_MAX, INT64_MIN
from seglake.maintain.compaction.compact import compact
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from seglake.maintain.topic_settings import alter
from seglake.read.log import Log
from seglake.serve.settings import Address
from tests.harness.lake_server import Wire, until
from tests.harness.tiers import rest_but
from tests.judges.kafka_broker import Broker
from tests.judges.kafka_judge import Kafka, Record
from tests.judges.kafka_producers import Committed, Producers
from tests.judges.oracle import as_written
from tests.makers import broker_logs as written_logs
from tests.makers.broker_folders import batch
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.strategies import T

PAGE = Path(__file__).parents[2] / "docs" / "kafka.md"
CLEANED = ("compacted", "compacted.transactions")
PLACES = [(topic, number) for topic in written_logs.TOPICS for number in range(2)]


class Twice(NamedTuple):
    """A broker's log.dir after each part, and what its consumers saw then."""

    first: Path
    first_seen: dict[tuple[str, int], Committed]
    second: Path
    second_seen: dict[tuple[str, int], Committed]


@pytest.fixture(scope="module")
def written(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Twice:
    folder = tmp_path_factory.mktemp("written")
    with written_logs.begun(kafka, folder / "broker") as (broker, producers):
        written_logs.write_all(producers, 1)
        waiting = written_logs.write_open(producers, 3)
        written_logs.await_cleaning(broker.folder, CLEANED, behind={})
        first_seen = written_logs.seen(producers)
        broker.stop()
        shutil.copytree(broker.folder, folder / "first")
        broker.start()
        waiting.commit()
        written_logs.write_all(producers, 2)
        producers.delete_records("deleted", 0, 33)
        still_waiting = written_logs.write_open(producers, 4)
        cleaned = {topic: first_seen[topic, 0].end for topic in CLEANED}
        written_logs.await_cleaning(broker.folder, CLEANED, behind=cleaned)
        time.sleep(1)  # the cleaner swaps its files
        second_seen = written_logs.seen(producers)
        broker.stop()
        for each in (waiting, still_waiting):
            each.close()
        return Twice(folder / "first", first_seen, broker.folder, second_seen)


@pytest.fixture(scope="module")
def lake(written: Twice, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the second part left, in one import."""
    root = tmp_path_factory.mktemp("lake")
    import_logs(str(root), [str(written.second)])
    return root


def records_of(table: pa.Table) -> list[Record]:
    """The records of a table, in the judge's form."""
    rows = as_written(table)
    return [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in rows]


def all_of(log: Log, partition: int) -> list[Record]:
    start, end = log.beginning_offsets()[partition], log.end_offsets()[partition]
    return records_of(log.plan_offsets({partition: (start, end)}).execute().read_all())


def first_at(records: Sequence[Record], time_ms: int) -> tuple[int, int] | None:
    return next(((r.offset, r.timestamp) for r in records if r.timestamp >= time_ms), None)


def test_the_lake_is_sound(lake: Path, written: Twice) -> None:
    assert verify(str(lake), deep=True).findings == []
    assert sorted(seglake.open(str(lake)).topics()) == sorted(written_logs.TOPICS)
    assert (written.second / "compacted-0").is_dir()


@pytest.mark.parametrize("codec", rest_but(["none", "zstd"], "none"))
def test_every_timestamp_that_a_broker_takes(broker: Broker, tmp_path: Path, codec: str) -> None:
    """Kafka's own producers send no negative timestamp, but a broker stores and serves any."""
    topic, times = f"times.{codec}", [-2, 5, INT64_MIN, -1, INT64_MAX, -3, 7, INT64_MAX - 1, 100]
    broker.create_topic(topic, 1, {"message.timestamp.after.max.ms": str(INT64_MAX)})
    for part in (times[:3], times[3:4], times[4:]):
        produce(broker, topic, batch([Event(t, b"key") for t in part], 0, -1, Shape(codec)))
    asked = [0, 5, 6, 101, INT64_MAX]
    seen = broker.consume_all(topic, 0)
    found = broker.find_by_timestamp(topic, 0, asked)
    newest = broker.max_timestamp(topic, 0)
    assert [record.timestamp for record in seen] == times
    with broker.stopped():
        import_logs(str(tmp_path), [str(broker.partition_folder(topic, 0))])
    log = seglake.open(str(tmp_path)).topic(topic)
    assert verify(str(tmp_path), deep=True).findings == []
    assert all_of(log, 0) == seen
    answers = [log.offsets_for_times({0: time})[0] for time in asked]
    assert [each and (each.timestamp, each.offset) for each in answers] == found
    assert log.max_timestamps()[0] == newest[::-1]


def produce(broker: Broker, topic: str, records: bytes) -> None:
    """Send a record batch as it is."""
    part = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=records)
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[part])]
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=topics)
    host, _, port = broker.address.partition(":")
    with Wire(Address(host, int(port))) as wire:
        (answer,) = wire.ask(request, ProduceResponse, 9).responses
    assert answer.partition_responses[0].error_code == 0


@pytest.mark.parametrize("place", PLACES)
def test_records_are_those_of_read_committed(
    lake: Path, written: Twice, place: tuple[str, int]
) -> None:
    topic, number = place
    log, seen = seglake.open(str(lake)).topic(topic), written.second_seen[place]
    assert all_of(log, number) == seen.records
    assert seen.records
    assert (log.beginning_offsets()[number], log.end_offsets()[number]) == (seen.start, seen.end)


@pytest.mark.parametrize("topic", written_logs.TOPICS)
def test_windows_and_lookups(lake: Path, written: Twice, topic: str) -> None:
    chance, log = random.Random(topic), seglake.open(str(lake)).topic(topic)
    seen = {number: written.second_seen[topic, number].records for number in range(2)}
    times = sorted({record.timestamp for records in seen.values() for record in records})
    for _ in range(12):
        start, end = sorted((chance.choice(times), chance.choice(times) + 1))
        window = records_of(log.read_range(start, end).read_all())
        assert window == [
            each for records in seen.values() for each in records if start <= each.timestamp < end
        ]
    for time_ms in (times[0] - 1, *chance.sample(times, min(20, len(times))), times[-1] + 1):
        found = log.offsets_for_times(dict.fromkeys(seen, time_ms))
        told = {p: None if at is None else (at.offset, at.timestamp) for p, at in found.items()}
        assert told == {p: first_at(records, time_ms) for p, records in seen.items()}


def test_what_really_occurs(written: Twice) -> None:
    """The broker wrote all that the test means to import."""
    names = [path.name for path in written.second.glob("*-0/*")]
    assert sum(name.endswith(".txnindex") for name in names) >= 2
    assert len(list((written.second / "transactions-0").glob("*.log"))) > 2
    seen = written.second_seen
    assert (seen["deleted", 0].start, seen["open", 0].end < 64) == (33, True)
    kept = len(seen["compacted", 0].records)
    assert kept < seen["compacted", 0].end // 2
    first, second = written.first_seen["open", 0], seen["open", 0]
    assert (first.end, second.end) == (20, 20 + 12 + 1 + 20)


def test_a_second_import_takes_what_is_new(written: Twice, tmp_path: Path) -> None:
    """Exactly once by offset; what the cleaner took meanwhile stays in the lake."""
    root = str(tmp_path / "lake")
    import_logs(root, [str(written.first)])
    firsts = {p: all_of(seglake.open(root).topic(p[0]), p[1]) for p in PLACES}
    assert firsts == {place: seen.records for place, seen in written.first_seen.items()}
    reports = import_logs(root, [str(written.second)])
    for place in PLACES:
        had, seen = written.first_seen[place], written.second_seen[place]
        found = all_of(seglake.open(root).topic(place[0]), place[1])
        assert found == had.records + [r for r in seen.records if r.offset >= had.end]
    assert any("a transaction is open" in note for each in reports for note in each.notes)
    assert verify(root, deep=True).findings == []
    again = import_logs(root, [str(written.second)])
    assert {each.version for each in again} == {-1}


@pytest.mark.rest
def test_a_crash(kafka: Kafka, tmp_path: Path) -> None:
    """A broker that was killed: its preallocated indexes, and no mark of a clean stop."""
    with written_logs.begun(kafka, tmp_path / "broker") as (broker, producers):
        own = producers.open()
        own.send("codecs", 0, written_logs.some(random.Random(1), 100))
        seen, note = producers.committed("codecs", 0), broker.folder / HIGH_WATERMARKS
        until(lambda: f"codecs 0 {seen.end}\n" in note.read_text())
        own.close()
        broker.kill()
        with (broker.folder / "codecs-0" / f"{0:020d}.log").open("ab") as log:
            log.write(bytes(5000))
    (report,) = import_logs(str(tmp_path / "lake"), [str(broker.folder)], topic="codecs")
    assert any("the last 5,000 bytes" in note for note in report.notes)
    assert all_of(seglake.open(str(tmp_path / "lake")).topic("codecs"), 0) == seen.records


# ---------------------------------------------------------------------- out again


def ours(root: Path) -> LakeMaker:
    """A lake that no broker wrote: merged, compacted, with a log start and a gap at the end."""
    maker = LakeMaker(root, topic="ours", partitions=2, settings={"cleanup.policy": "compact"})
    for part in range(4):
        rows = {
            number: [
                Event(T + 1000 * part + 10 * n, b"key-%d" % (n % 5), b"v" * 50, (("h", b"1"),))
                for n in range(80)
            ]
            for number in range(2)
        }
        maker.run(rows, Shape("zstd", segment_bytes=2000))
    merge(str(root), "ours", partitions=[0], everything=True)
    compact(str(root), "ours", force=True)
    maker.delete_records(1, 100)
    return maker


class Mounted(NamedTuple):
    """A broker that mounted exports, its producers, the lakes by topic, and the exports."""

    broker: Broker
    producers: Producers
    lakes: dict[str, Log]
    exported: Path


@pytest.fixture(scope="module")
def mounted(
    kafka: Kafka, lake: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mounted]:
    home = tmp_path_factory.mktemp("mounted")
    own = ours(home / "ours")
    again = kept_up(lake, home / "again")
    lakes = {topic: (lake, topic) for topic in written_logs.TOPICS}
    lakes |= {"ours": (own.root, "ours"), "transactions.merged": (again, "transactions"),
              "compacted.again": (again, "compacted.transactions")}  # fmt: skip
    logs = {topic: seglake.open(str(root)).topic(name) for topic, (root, name) in lakes.items()}
    broker = Broker(kafka, home / "broker")
    try:
        broker.start()
        for topic, log in logs.items():
            kind = log.settings.timestamp_type
            broker.create_topic(topic, 2, {"message.timestamp.type": kind})
        broker.create_topic("codecs.window", 2, {})
        broker.stop()
        for topic, (root, name) in lakes.items():
            export_as(topic, root, name, home / "out" / topic)
            put_in_place(home / "out" / topic, broker.folder, topic)
        window = home / "out" / "codecs.window"
        export_as("codecs.window", lake, "codecs", window, start=T + 500, end=T + 4000)
        put_in_place(window, broker.folder, "codecs.window")
        broker.start()
        yield Mounted(broker, Producers(kafka, broker), logs, home / "out")
    finally:
        broker.stop()


def kept_up(lake: Path, root: Path) -> Path:
    """A copy of a lake of imports, merged and compacted by Seglake."""
    shutil.copytree(lake, root)
    merge(str(root), "transactions", everything=True, rebatch=True)
    alter(str(root), "compacted.transactions", {"cleanup.policy": "compact"})
    assert compact(str(root), "compacted.transactions", force=True).version > 0
    assert verify(str(root), deep=True).findings == []
    return root


def export_as(topic: str, root: Path, name: str, dest: Path, **window: int) -> None:
    """A topic of a lake as folders of a topic that has another name on the broker."""
    export_logs(str(root), name, str(dest), **window)  # type: ignore[arg-type]
    for folder in dest.glob(f"{name}-*"):
        folder.rename(dest / folder.name.replace(f"{name}-", f"{topic}-"))
    note = dest / "log-start-offset-checkpoint"
    note.write_text(note.read_text().replace(f"{name} ", f"{topic} "))


def put_in_place(exported: Path, log_dir: Path, topic: str) -> None:
    """The steps that docs/kafka.md has."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.S)
    steps = [block for block in blocks if "$LOG_DIR" in block]
    assert len(steps) == 2
    places = {"EXPORTED": str(exported), "LOG_DIR": str(log_dir), "TOPIC": topic}
    script = "set -eu\n" + "".join(steps)
    subprocess.run(["bash", "-c", script], check=True, env={**os.environ, **places})


OURS = ("ours", "transactions.merged", "compacted.again")
MOUNTED = [(topic, number) for topic in (*written_logs.TOPICS, *OURS) for number in range(2)]


@pytest.mark.rest
@pytest.mark.parametrize("place", MOUNTED)
def test_a_broker_serves_every_record_at_its_offset(
    mounted: Mounted, place: tuple[str, int]
) -> None:
    topic, number = place
    log, broker = mounted.lakes[topic], mounted.broker
    assert broker.beginning_offset(topic, number) == log.beginning_offsets()[number]
    assert broker.end_offset(topic, number) == log.end_offsets()[number]
    wanted = all_of(log, number)
    assert broker.consume_all(topic, number) == wanted
    assert mounted.producers.committed(topic, number).records == wanted


@pytest.mark.parametrize("place", MOUNTED)
def test_a_broker_finds_the_same_times(mounted: Mounted, place: tuple[str, int]) -> None:
    topic, number = place
    log = mounted.lakes[topic]
    chance, records = random.Random(topic), all_of(log, number)
    times = [records[0].timestamp - 1, *(chance.choice(records).timestamp for _ in range(5))]
    found = [log.offsets_for_times({number: time_ms})[number] for time_ms in times]
    told = [None if at is None else (at.offset, at.timestamp) for at in found]
    if topic.startswith("compacted"):
        folder = mounted.exported / topic / f"{topic}-{number}"
        told = [kafkas_answer(folder, records, time_ms) for time_ms in times]
    assert mounted.producers.offsets_for_times(topic, number, times) == told


def kafkas_answer(folder: Path, records: Sequence[Record], time_ms: int) -> tuple[int, int] | None:
    """A broker looks in one segment alone: the first that reaches the time.

    An empty batch that its cleaner left may reach it, and then there is no answer.
    """
    logs = sorted(folder.glob("*.log"))
    ends = [*(int(log.stem) for log in logs[1:]), INT64_MAX]
    for log, end in zip(logs, ends, strict=True):
        table = scan_batches(log.read_bytes())
        if table["max_timestamp"].max(initial=-1) >= time_ms:
            return first_at([r for r in records if int(log.stem) <= r.offset < end], time_ms)
    return None


def test_a_window_is_served(mounted: Mounted) -> None:
    window = mounted.lakes["codecs"].read_range(T + 500, T + 4000)
    wanted = records_of(window.read_all())
    served = [mounted.broker.consume_all("codecs.window", number) for number in range(2)]
    assert [record for records in served for record in records] == wanted
    assert all(served)


def test_the_broker_has_no_complaint(mounted: Mounted) -> None:
    told = [line for line in mounted.broker.printed.splitlines() if re.search("WARN|ERROR", line)]
    topics = "|".join(re.escape(topic) for topic in mounted.lakes)
    assert [line for line in told if re.search(rf"\b(?:{topics})\b", line)] == []
    assert not list(mounted.broker.folder.glob("*-stray"))


@pytest.mark.rest
@pytest.mark.long
def test_other_clients(mounted: Mounted) -> None:
    """confluent-kafka, which is librdkafka, over all that is mounted."""
    client = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    consumer = client.Consumer({
        "bootstrap.servers": mounted.broker.address, "group.id": "any",
        "enable.auto.commit": False, "enable.partition.eof": True,
    })  # fmt: skip
    try:
        logs = {place: mounted.lakes[place[0]] for place in MOUNTED}
        starts = {(t, p): log.beginning_offsets()[p] for (t, p), log in logs.items()}
        consumer.assign([client.TopicPartition(*place, at) for place, at in starts.items()])
        found: dict[tuple[str, int], list[int]] = {place: [] for place in MOUNTED}
        waiting = {*MOUNTED}
        while waiting:
            message = consumer.poll(20)
            assert message is not None, f"{waiting} hang behind {[found[p][-1:] for p in waiting]}"
            place = message.topic(), message.partition()
            if message.error() is None:
                found[place].append(message.offset())
            else:
                assert message.error().code() == client.KafkaError._PARTITION_EOF
                waiting.discard(place)
        for place, log in logs.items():
            assert found[place] == [record.offset for record in all_of(log, place[1])]
            watermarks = consumer.get_watermark_offsets(client.TopicPartition(*place))
            assert watermarks == (starts[place], log.end_offsets()[place[1]])
    finally:
        consumer.close()


@pytest.mark.rest
@pytest.mark.long
def test_sparks_source(mounted: Mounted, tmp_path: Path) -> None:
    """Every record at its offset, and no loss of data where offsets are gaps."""
    file, topics = tmp_path / "found.json", {topic for topic, _ in MOUNTED}
    command = [sys.executable, "-m", "tests.kafka.spark_records", mounted.broker.address]
    subprocess.run([*command, str(file), *sorted(topics)], check=True, cwd=PAGE.parents[1])
    found = sorted(map(tuple, json.loads(file.read_text())))
    assert found == sorted(
        (
            topic,
            number,
            each.offset,
            each.timestamp,
            None if each.value is None else crc32(each.value),
        )
        for topic, number in MOUNTED
        for each in all_of(mounted.lakes[topic], number)
    )


def test_producers_go_on_at_our_end(mounted: Mounted) -> None:
    """Last of all, since it changes the logs: plain, idempotent and transactional producers."""
    own = mounted.producers.open(transactional_id="goes-on")
    plain = mounted.producers.open()
    for topic, number in MOUNTED:
        end = mounted.lakes[topic].end_offsets()[number]
        record = Record(-1, int(time.time() * 1000), b"k", b"v")
        assert plain.send(topic, number, [record]) == end
        own.begin()
        assert own.send(topic, number, [record]) == end + 1
        own.commit()
        deadline = time.monotonic() + 300  # the marker is written after the commit
        while mounted.producers.committed(topic, number).end < end + 3:
            assert time.monotonic() < deadline
    for each in (own, plain):
        each.close()
