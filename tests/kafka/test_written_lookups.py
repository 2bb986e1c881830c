"""Kafka's lookups in our files and ours give the same answers, on thousands of random questions."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.catalog.schema import PartitionRow, RunRow, SegmentRow, TopicRow
from seglake.format.decode import scan_batches
from seglake.format.index import IndexPolicy, OffsetIndex, TimeIndex
from seglake.format.partitioner import partition_of
from seglake.format.records import Spans
from seglake.format.segment import rebuild
from seglake.layout import new_attempt
from seglake.read.log import Log
from tests.judges.described import describe
from tests.judges.index_lookups import offset_floor, time_floor
from tests.judges.kafka_judge import Batch, Kafka, Record
from tests.kafka.test_written_segments import (
    folder_of,
    records_in,
    scratch_folder,
    segments_in,
    write,
)
from tests.makers.catalog_rows import commit_rows
from tests.makers.lakes import Event, create_catalog
from tests.makers.strategies import Stored, T, examples, stored_logs, topic_of

QUESTIONS = 200  # per example
Found = tuple[int, int] | None  # timestamp and offset of a record


def times_to_ask(chance: random.Random, records: Sequence[Record]) -> list[int]:
    """Times at, before and after those of the records, and far from them.

    Not those that look like seconds, which the library refuses.
    """
    known = [chance.choice(records).timestamp + chance.choice((-1, 0, 1)) for _ in range(QUESTIONS)]
    low, high = min(known), max(known)
    anywhere = [chance.randint(low, high) for _ in range(QUESTIONS // 4)]
    asked = [max(time, 0) for time in [*known, *anywhere, 0, high + 10, 2**62]]
    return [time for time in asked if not 10**8 <= time < 10**11]


def offsets_to_ask(chance: random.Random, base: int, end: int) -> list[int]:
    """Offsets within and around [base, end)."""
    return [chance.randint(base - 3, end + 3) for _ in range(QUESTIONS)]


logs = stored_logs(max_size=200)
chances = st.randoms(use_true_random=False)


@given(logs, chances)
@examples(25)
def test_index_lookups(kafka: Kafka, log: Stored, chance: random.Random) -> None:
    with scratch_folder() as root:
        folder, records = folder_of(Path(root), write(Path(root), log)), records_in(log)
        times = times_to_ask(chance, records)
        for base, _, index, time_index in segments_in(folder):
            offsets = offsets_to_ask(chance, base, records[-1].offset)
            ours = OffsetIndex.decode(base, index.read_bytes())
            theirs = kafka.index_entries(index, base, offsets)
            assert [tuple(offset_floor(ours, offset)) for offset in offsets] == theirs
            timely = TimeIndex.decode(base, time_index.read_bytes())
            theirs = kafka.index_entries(time_index, base, times)
            assert [tuple(time_floor(timely, time)) for time in times] == theirs


@given(logs, chances)
@examples(15)
def test_a_read_starts_at_kafkas_batch(kafka: Kafka, log: Stored, chance: random.Random) -> None:
    with scratch_folder() as root:
        folder = folder_of(Path(root), write(Path(root), log))
        for base, path, index, _ in segments_in(folder):
            data = path.read_bytes()
            table, entries = scan_batches(data), OffsetIndex.decode(base, index.read_bytes())
            ends, last = table["last_offset"], int(table["last_offset"][-1])
            offsets = [max(base, offset) for offset in offsets_to_ask(chance, base, last)]
            rows = [int(np.searchsorted(ends, offset)) for offset in offsets]
            batches = [tuple(table[["base_offset", "position"]][row]) for row in range(len(table))]
            found = [batches[row] if row < len(table) else None for row in rows]
            assert kafka.find_by_offset(folder, base, offsets) == found
            for offset, batch in zip(offsets, found, strict=True):
                assert batch is None or offset_floor(entries, offset).position <= batch[1]


# -------------------------------------------------------------------- whole logs


def commit(root: Path, log: Stored, rows: list[SegmentRow], log_start: int) -> Log:
    """The log in a catalog, begun at its base offset and cut at `log_start`."""
    catalog, attempt = create_catalog(str(root)), new_attempt()
    name, end = log.topic.name, rows[-1].end_offset
    topic = TopicRow(
        topic=name, sequence=1, partitions=1, partitioner="murmur2",
        timestamp_type=log.topic.message_timestamp_type,
    )  # fmt: skip
    place = PartitionRow(
        topic=name, partition=0, sequence=1, log_start_offset=log_start, next_offset=end
    )
    run = RunRow(
        topic=name, pipeline="judged", run_id="1", attempt_id=attempt, fingerprint="",
        started_at_ms=0, finished_at_ms=0,
    )  # fmt: skip
    kept = [row for row in rows if row.end_offset > log_start]
    commit_rows(catalog, [topic, place, run, *kept], attempt_id=attempt)
    return seglake.open(str(root)).topic(name)


def brute_force(records: Sequence[Record], times: Sequence[int]) -> list[Found]:
    """For each time the first record, in offset order, that has it or a later one."""
    return [
        next(((r.timestamp, r.offset) for r in records if r.timestamp >= time), None)
        for time in times
    ]


class KafkaLog:
    """UnifiedLog.searchOffsetInLocalLog over Kafka's own segments."""

    def __init__(self, kafka: Kafka, folder: Path, log_start: int) -> None:
        self._kafka, self._folder, self._log_start = kafka, folder, log_start
        self._bases: list[int] = []
        self.largest: list[int] = []
        for base, log, _, time_index in segments_in(folder):
            if base <= log_start:  # what ends at or before the log start is deleted
                self._bases, self.largest = [], []
            entries = kafka.index_entries(time_index, base)
            stamp = entries[-1][0] if entries else int(log.stat().st_mtime * 1000)
            self._bases.append(base)
            self.largest.append(stamp)

    def chosen(self, time: int) -> int | None:
        """Base offset of the one segment in which Kafka looks."""
        return next(
            (b for b, largest in zip(self._bases, self.largest, strict=True) if largest >= time),
            None,
        )

    def find(self, times: Sequence[int]) -> list[Found]:
        """What Kafka answers."""
        answers: dict[int, Found] = dict.fromkeys(times)
        for base in self._bases:
            asked = [time for time in answers if self.chosen(time) == base]
            found = self._kafka.find_by_timestamp(
                self._folder, base, asked, starting_offset=self._log_start
            )
            answers |= zip(asked, found, strict=True)
        return [answers[time] for time in times]

    def may_give_up(self, time: int, timeless: set[int]) -> bool:
        """Whether the segment in which it looks need not hold what its largest time promises."""
        base = self.chosen(time)
        return base is not None and (base < self._log_start or base in timeless)


@given(logs, chances, st.sampled_from([0, 0, 0.3, 0.8]))
@examples(60)
def test_time_lookups(kafka: Kafka, log: Stored, chance: random.Random, cut: float) -> None:
    with scratch_folder() as root:
        rows = write(Path(root), log)
        log_start = log.base_offset + int(cut * len(log.events))
        ours = commit(Path(root), log, rows, log_start)
        records = [record for record in records_in(log) if record.offset >= log_start]
        times = times_to_ask(chance, records)
        truth = brute_force(records, times)
        assert answers_of(ours, times) == truth
        assert_kafka_only_gives_up(KafkaLog(kafka, folder_of(Path(root), rows), log_start), rows,
                                   times, truth)  # fmt: skip


def answers_of(log: Log, times: Sequence[int]) -> list[Found]:
    """Our answers, the same from both ways of asking."""
    offsets, stamps = log.offsets_for_times_array(0, np.array(times))
    singly = [log.reader(0).offset_for_time(time) for time in times]
    answers = [None if found is None else (found.timestamp, found.offset) for found in singly]
    at_once = zip(stamps.tolist(), offsets.tolist(), strict=True)
    assert list(at_once) == [answer or (-1, -1) for answer in answers]
    return answers


def assert_kafka_only_gives_up(
    kafka: KafkaLog, rows: list[SegmentRow], times: Sequence[int], truth: list[Found]
) -> None:
    """Kafka's answers are the truth, or none where its one segment holds no such record."""
    timeless = {row.base_offset for row in rows if row.max_timestamp < 0}
    for time, theirs, true in zip(times, kafka.find(times), truth, strict=True):
        if theirs != true:
            assert theirs is None
            assert kafka.may_give_up(time, timeless)


@pytest.mark.parametrize(
    ("times", "log_start", "time"),
    [([T + 50, T, T, T + 50], 1, T + 20), ([-1, -1, T, T + 50], 0, T)],
    ids=["log start inside a segment", "segment without timestamps"],
)
def test_we_go_on_where_kafka_gives_up(
    kafka: Kafka, times: list[int], log_start: int, time: int
) -> None:
    events = [Event(each, None, b"value") for each in times]
    topic = topic_of(0, compression_type="none", batch_size=1, segment_bytes=150)
    log = Stored(events, topic, 0, 0)
    with scratch_folder() as root:
        rows = write(Path(root), log)
        assert [row.base_offset for row in rows] == [0, 2]
        ours = commit(Path(root), log, rows, log_start)
        theirs = KafkaLog(kafka, folder_of(Path(root), rows), log_start)
        true = next(n for n, each in enumerate(times) if n >= log_start and each >= time)
        assert answers_of(ours, [time]) == [(times[true], true)]
        assert theirs.find([time]) == [None]


def test_we_go_on_behind_a_batch_that_compaction_emptied(kafka: Kafka) -> None:
    events = [Event(time, None, b"value") for time in (T, T + 50, T + 60, T + 10)]
    topic = topic_of(0, compression_type="none", batch_size=1, segment_bytes=150)
    log = Stored(events, topic, 0, 0)
    emptied = [
        Batch((Record(0, T, None, b"value"),)),
        Batch(base_offset=1, last_offset=1, max_timestamp=T + 50),
    ]
    with scratch_folder() as root:
        rows = write(Path(root), log)
        first = compacted(kafka, folder_of(Path(root), rows), rows[0], emptied)
        ours = commit(Path(root), log, [first, *rows[1:]], 0)
        theirs = KafkaLog(kafka, folder_of(Path(root), rows), 0)
        assert answers_of(ours, [T, T + 20]) == [(T, 0), (T + 60, 2)]
        assert theirs.find([T, T + 20]) == [(T, 0), None]


def compacted(kafka: Kafka, folder: Path, row: SegmentRow, batches: list[Batch]) -> SegmentRow:
    """The segment of `row` written again by Kafka with these batches, and its new row."""
    for path in folder.glob(f"{row.base_offset:020}.*"):
        path.unlink()
    kafka.write_segment(folder, row.base_offset, batches, index_interval_bytes=0)
    table = describe((folder / f"{row.base_offset:020}.log").read_bytes())
    sealed = rebuild(row.base_offset, table, IndexPolicy(0))
    (folder / f"{row.base_offset:020}.zonemap").write_bytes(sealed.files["zonemap"])
    files = {path.suffix[1:]: path for path in folder.glob(f"{row.base_offset:020}.*")}
    facts: dict[str, Any] = {
        f"{suffix}_bytes": path.stat().st_size for suffix, path in files.items()
    }
    facts |= {f"{suffix}_crc32c": kafka.crc32c(path.read_bytes()) for suffix, path in files.items()}
    return replace(
        row, record_count=sealed.record_count, max_timestamp=sealed.max_timestamp, **facts
    )


# Hashes against Kafka's: the partition of a key, and CRC-32C.

keys = st.lists(
    st.one_of(st.binary(max_size=9), st.binary(max_size=200), st.text(max_size=20).map(str.encode)),
    max_size=200,
)


@given(keys, st.integers(1, 100_000))
@examples(50)
def test_partitions_are_kafkas(kafka: Kafka, given_keys: list[bytes], count: int) -> None:
    spans = Spans.from_list([*given_keys])
    backwards = spans.take(np.arange(len(spans))[::-1].copy())  # keys stand anywhere in a buffer
    hashes = kafka.murmur2(given_keys)
    for partitions in (count, 2**31 - 1):
        want = [(found & 0x7FFFFFFF) % partitions for found in hashes]
        assert partition_of(spans, partitions).tolist() == want
        assert partition_of(backwards, partitions).tolist() == want[::-1]


def test_the_producers_own_partitioner(kafka: Kafka) -> None:
    producer = kafka._gateway.jvm.org.apache.kafka.clients.producer.internals.BuiltInPartitioner
    some = [b"user-%d" % number for number in range(200)]
    for count in (1, 3, 64):
        theirs = [producer.partitionForKey(bytearray(key), count) for key in some]
        assert partition_of(Spans.from_list([*some]), count).tolist() == theirs


@given(st.lists(st.binary(max_size=2000), min_size=1, max_size=4))
@examples(50)
def test_checksums_are_kafkas(kafka: Kafka, parts: list[bytes]) -> None:
    found = 0
    for part in parts:  # as a log is written: piece by piece
        found = crc32c.crc32c(part, found)
    assert found == kafka.crc32c(b"".join(parts))
