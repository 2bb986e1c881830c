"""Kafka judges the segments that we write: every file, every record, every byte of an index."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog.schema import SegmentId, SegmentRow
from seglake.format.codecs.compression import NAMES
from seglake.format.encode import encode_bodies
from seglake.layout import attempt_folder, new_attempt
from seglake.log.writer import SegmentWriter, encoding_of
from seglake.store import open_store
from seglake.write.reduce.tasks import encode
from seglake.write.spool.sorted_records import SortedRecords
from tests.judges.kafka_judge import Kafka, KafkaError, Record
from tests.makers.lakes import Event, records_of
from tests.makers.strategies import (
    ENDS,
    INTERVALS,
    NOISE,
    Stored,
    T,
    examples,
    stored_logs,
    topic_of,
)

# hundreds of small segments, each file of which is synced: in memory where that can be had
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
RUN_RECORDS = 70  # a log is written in several runs, which leave batches unfilled


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for one example; its name, and nothing left of it after the `with` block."""
    return tempfile.TemporaryDirectory(dir=MEMORY)


def write(root: Path, log: Stored, partition: int = 0) -> list[SegmentRow]:
    """Write a log as a task of an ingest does; the rows of its segments."""
    records = records_of(log.events)
    bodies = encode_bodies(records, np.arange(len(records)))
    whole = SortedRecords(records.timestamps, None, records.timestamps, bodies)
    cuts = range(0, len(whole), RUN_RECORDS)
    runs = (whole.part(at, min(at + RUN_RECORDS, len(whole))) for at in cuts)
    attempt = new_attempt()
    first = SegmentId(log.topic.name, partition, log.base_offset, attempt, attempt)
    encoding = encoding_of(log.topic, log.append_time_ms)
    with SegmentWriter(open_store(str(root)), first, log.topic, 0) as writer:
        for batches in encode(runs, encoding, log.base_offset):
            writer.append(batches)
        return writer.close()


def folder_of(root: Path, rows: list[SegmentRow]) -> Path:
    """Where the segments of one attempt and log partition stand."""
    return root / attempt_folder(rows[0].topic, rows[0].partition, rows[0].attempt_id)


def records_in(log: Stored) -> list[Record]:
    """What Kafka has to read."""
    return [
        Record(
            log.base_offset + number,
            log.append_time_ms if log.stamped else event.timestamp,
            event.key,
            event.value,
            event.headers,
        )
        for number, event in enumerate(log.events)
    ]


def segments_in(folder: Path) -> Iterator[tuple[int, Path, Path, Path]]:
    """Base offset, log, index and time index of each segment, in order."""
    for log in sorted(folder.glob("*.log")):
        yield int(log.stem), log, log.with_suffix(".index"), log.with_suffix(".timeindex")


def accepted(kafka: Kafka, folder: Path, *, gaps: bool = False) -> list[Record]:
    """The records of all segments in `folder`, in whose files Kafka finds no fault but `gaps`."""
    segments = list(segments_in(folder))
    dump = kafka.dump(*(file for _, *files in segments for file in files), verify=not gaps)
    told = ("Non-consecutive offsets in ", " is followed by ") if gaps else ()
    assert [line for line in dump.problems if not any(map(line.__contains__, told))] == []
    kafka.sanity_check(*(index for *_, offsets, times in segments for index in (offsets, times)))
    with scratch_folder() as scratch:
        whole = Path(scratch) / "whole.log"  # one call for all: batches do not know their file
        whole.write_bytes(b"".join(log.read_bytes() for _, log, *_ in segments))
        records = kafka.read_records(whole)
    assert [int(line["offset"]) for line in dump.records] == [r.offset for r in records]
    return records


def assert_recovery_makes_the_same(kafka: Kafka, folder: Path, interval: int) -> None:
    """LogSegment.recover has nothing to cut off, and writes the indexes that stand there."""
    with scratch_folder() as scratch:
        for base, log, *indexes in segments_in(folder):
            for name in (log, *indexes):
                shutil.copy(name, scratch)
            for index in indexes:
                (Path(scratch) / index.name).write_bytes(b"rubbish" * 24)
            assert kafka.recover(Path(scratch), base, index_interval_bytes=interval) == 0
            for name in (log, *indexes):
                assert (Path(scratch) / name.name).read_bytes() == name.read_bytes(), name.name


@given(stored_logs())
@examples(40)
def test_kafka_reads_what_was_written(kafka: Kafka, log: Stored) -> None:
    with scratch_folder() as root:
        folder = folder_of(Path(root), write(Path(root), log))
        assert accepted(kafka, folder) == records_in(log)
        assert_recovery_makes_the_same(kafka, folder, log.topic.index_interval_bytes)


@given(
    st.lists(ENDS, min_size=1, max_size=12), st.sampled_from([0, 100]), st.sampled_from([1, 150])
)
@examples(25)
def test_kafka_makes_the_same_indexes_of_extreme_times(
    kafka: Kafka, times: list[int], interval: int, batch: int
) -> None:
    log = Stored([Event(t) for t in times], topic_of(interval, batch_size=batch), 0, T)
    with scratch_folder() as root:
        folder = folder_of(Path(root), write(Path(root), log))
        assert accepted(kafka, folder) == records_in(log)
        assert_recovery_makes_the_same(kafka, folder, interval)


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("codec", NAMES)
def test_every_codec_and_interval(kafka: Kafka, codec: str, timestamp_type: str) -> None:
    times = [T + number * 37 % 90 for number in range(200)]
    values = [None, b"", b"x" * 90, b"seglake." * 20_000, NOISE, b"\xff\x00\xfe"]
    headers = (("h", b"\1\2"), ("null", None), ("h", b""), ("größe", b"3"))
    events = [
        Event(time, [None, b"", b"key"][n % 3], values[n % 6] if n < 12 else values[n % 3],
              headers if n % 5 == 0 else ())
        for n, time in enumerate(times)
    ]  # fmt: skip
    for interval in INTERVALS:
        topic = topic_of(
            interval,
            compression_type=codec,
            message_timestamp_type=timestamp_type,
            batch_size=400,
            segment_bytes=200_000,
        )
        log = Stored(events, topic, 1000, T)
        with scratch_folder() as root:
            rows = write(Path(root), log)
            assert len(rows) > 1
            folder = folder_of(Path(root), rows)
            assert accepted(kafka, folder) == records_in(log)
            assert_recovery_makes_the_same(kafka, folder, interval)


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_wrong_byte_is_noticed(kafka: Kafka, suffix: str) -> None:
    events = [Event(T + number, b"key", b"value") for number in range(9)]
    with scratch_folder() as root:
        log = Stored(events, topic_of(0, batch_size=1), 0, T)
        folder = folder_of(Path(root), write(Path(root), log))
        damaged = next(folder.glob(f"*{suffix}"))
        content = bytearray(damaged.read_bytes())
        content[-3] ^= 1
        damaged.write_bytes(content)
        with pytest.raises(KafkaError):
            accepted(kafka, folder)
