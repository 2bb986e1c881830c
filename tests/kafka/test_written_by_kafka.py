"""The other direction: segments that Kafka writes here and now are read, and re-indexed, by us."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from seglake.format.batch import CODEC_MASK, BatchTable
from seglake.format.codecs.compression import NAMES
from seglake.format.decode import Decoded, decode_batches, scan_batches
from seglake.format.index import IndexPolicy
from seglake.format.segment import rebuild
from tests.judges.described import describe
from tests.judges.kafka_judge import Batch, Header, Kafka, Record, StoredBatch
from tests.kafka.test_written_segments import scratch_folder, segments_in
from tests.makers.lakes import Event
from tests.makers.strategies import FAR, T, contents, event_lists, examples, headers

times = st.one_of(st.integers(T, T + 90), st.sampled_from([-1, 0, T, FAR]))
gaps = st.sampled_from([0, 0, 0, 1, 5])
producers: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {
            "producer_id": st.integers(0, 2**40),
            "producer_epoch": st.integers(0, 2**15 - 1),
            "base_sequence": st.sampled_from([0, 10, 2**31 - 2]),
            "transactional": st.booleans(),
        }
    ),
)
clocks = st.one_of(
    st.just({}),
    st.just({}),
    st.builds(lambda time: {"timestamp_type": "LogAppendTime", "append_time": time},
              st.integers(0, FAR)),
    st.builds(lambda time: {"delete_horizon_ms": time}, st.integers(T, FAR)),
)  # fmt: skip


@st.composite
def full_batches(draw: DrawFn, base_offset: int) -> Batch:
    """Some records, and offsets before, between and after them that compaction emptied."""
    parts = st.tuples(gaps, times, contents, contents, headers)
    drawn = draw(st.lists(parts, min_size=1, max_size=6))
    steps = itertools.accumulate((1 + gap for gap, *_ in drawn), initial=base_offset - 1)
    records = [
        Record(at, time, key, value, tuple(pairs))
        for at, (_, time, key, value, pairs) in zip(list(steps)[1:], drawn, strict=True)
    ]
    return Batch(
        tuple(records),
        codec=draw(st.sampled_from(NAMES)),
        base_offset=base_offset,
        last_offset=records[-1].offset + draw(gaps),
        leader_epoch=draw(st.integers(-1, 9)),
        **draw(producers),
        **draw(clocks),
    )


@st.composite
def segments(draw: DrawFn) -> tuple[int, list[Batch]]:
    """A segment's base offset and its batches: of records, of a marker, or left empty."""
    base = at = draw(st.sampled_from([0, 1000, 2**40]))
    batches = []
    for kind in draw(st.lists(st.sampled_from(["full"] * 4 + ["marker", "empty"]), max_size=25)):
        at += draw(gaps)
        if kind == "full":
            batches.append(draw(full_batches(at)))
        elif kind == "marker":
            marker = draw(st.sampled_from(["COMMIT", "ABORT"]))
            time = draw(st.integers(0, T))
            batches.append(
                Batch(base_offset=at, control=marker, max_timestamp=time, transactional=True,
                      producer_id=4, producer_epoch=0)
            )  # fmt: skip
        else:
            last = at + draw(st.integers(0, 9))
            batches.append(Batch(base_offset=at, last_offset=last, max_timestamp=draw(times)))
        at = max(batches[-1].last_offset, batches[-1].base_offset) + 1
    return base, batches


def records_of(decoded: Decoded) -> list[Record]:
    """What our decoder found, in the judge's form."""
    found = decoded.records
    pairs: list[tuple[Header, ...]] = [()] * len(found)
    if found.headers is not None:
        names = [(name or b"").decode() for name in found.headers.keys.tolist()]
        items = list(zip(names, found.headers.values.tolist(), strict=True))
        bounds = itertools.pairwise(found.headers.firsts.tolist())
        pairs = [tuple(items[start:end]) for start, end in bounds]
    columns = (decoded.offsets.tolist(), found.timestamps.tolist(), found.keys.tolist(),
               found.values.tolist(), pairs)  # fmt: skip
    return [Record(*each) for each in zip(*columns, strict=True)]


def assert_headers_are_read(table: BatchTable, batches: list[StoredBatch]) -> None:
    assert len(table) == len(batches)
    for row, batch in zip(table, batches, strict=True):
        for name in ("position", "size", "base_offset", "last_offset", "count", "max_timestamp"):
            assert row[name] == getattr(batch, name)
        bits = int(row["attributes"])
        assert NAMES[bits & CODEC_MASK] == batch.codec
        assert bool(bits & 0x08) == (batch.timestamp_type == "LogAppendTime")
        assert bool(bits & 0x10) == batch.transactional
        assert bool(bits & 0x20) == batch.control


def assert_read_as_kafka_reads(kafka: Kafka, log: Path) -> None:
    """Every header and record of a log, with its markers and without them."""
    data, batches = log.read_bytes(), kafka.read_batches(log)
    table = scan_batches(data)
    assert_headers_are_read(table, batches)
    everything = decode_batches(data, table, control=True)
    assert records_of(everything) == [record for batch in batches for record in batch.records]
    assert everything.batch.tolist() == list(
        np.repeat(range(len(batches)), [len(batch.records) for batch in batches])
    )
    kinds = [int(batch.timestamp_type == "LogAppendTime") for batch in batches]
    assert everything.timestamp_types.tolist() == [kinds[row] for row in everything.batch]
    assert records_of(decode_batches(data, table)) == kafka.read_records(log)


@given(segments(), st.sampled_from([0, 1, 100, 4096]))
@examples(60)
def test_what_kafka_writes_is_read(
    kafka: Kafka, segment: tuple[int, list[Batch]], interval: int
) -> None:
    with scratch_folder() as folder:
        kafka.write_segment(Path(folder), *segment, index_interval_bytes=interval)
        ((base, log, index, time_index),) = segments_in(Path(folder))
        assert_read_as_kafka_reads(kafka, log)
        if segment[1]:
            sealed = rebuild(base, describe(log.read_bytes()), IndexPolicy(interval))
            assert sealed.files["index"] == index.read_bytes()
            assert sealed.files["timeindex"] == time_index.read_bytes()


@given(event_lists(min_size=100), st.sampled_from(NAMES), st.integers(1, 80))
@examples(8)
def test_a_long_log_of_kafka(kafka: Kafka, events: list[Event], codec: str, count: int) -> None:
    records = [
        Record(number, event.timestamp, event.key, event.value, event.headers)
        for number, event in enumerate(events)
    ]
    parts = [records[at : at + count] for at in range(0, len(records), count)]
    with scratch_folder() as folder:
        kafka.write_segment(Path(folder), 0, [Batch(tuple(part), codec=codec) for part in parts])
        ((_, log, *_),) = segments_in(Path(folder))
        data = log.read_bytes()
        assert records_of(decode_batches(data, scan_batches(data))) == records
