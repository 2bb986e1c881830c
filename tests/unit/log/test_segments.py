"""Segments written again, against plain lists of what they hold."""

import itertools
import struct
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.catalog.schema import SegmentRow
from seglake.errors import CorruptData, OffsetNotFound, UsageError
from seglake.format.batch import OVERHEAD
from seglake.format.codecs.compression import NAMES
from seglake.format.codecs.payload import payload_of
from seglake.format.decode import scan_batches
from seglake.format.encode import EncodedBatches, Encoding
from seglake.format.index import IndexPolicy
from seglake.format.records import read_only
from seglake.layout import SUFFIXES, new_attempt
from seglake.log.files import index_files
from seglake.log.rewrite.keep import ExcludeKeys, ExcludeOffsets, KeepOffsets, RecordFilter
from seglake.log.rewrite.segments import RewriteTarget, rebatch, rewrite
from seglake.maintain.health.reindex import check_segment, rebuild_index_files
from seglake.maintain.health.verify import verify
from tests.judges.described import describe
from tests.judges.kafka_model import read_log
from tests.judges.oracle import as_written
from tests.makers.lakes import Event, LakeMaker, Shape, Written
from tests.makers.strategies import T, event_lists, examples
from tests.unit.format.test_filter import (
    cut,
    encoded,
    filtered,
    header,
    logs,
    rebuilt,
    uncompressed,
)

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def only(offsets: Sequence[int], rows: Sequence[SegmentRow]) -> KeepOffsets:
    """Bitmaps, one for each segment."""
    bitmaps = []
    for row in rows:
        flags = np.isin(np.arange(row.base_offset, row.end_offset), np.array(offsets, np.int64))
        bitmaps.append((row.base_offset, np.packbits(flags, bitorder="little").tobytes()))
    return KeepOffsets.from_bitmaps(bitmaps)


PLAIN = Shape()
sizes = st.sampled_from([(1, 1500), (256, 1500), (256, 2**30), (16_384, 2**30)])
shapes = st.builds(
    lambda codec, sizes: Shape(codec, *sizes), codec=st.sampled_from(NAMES), sizes=sizes
)
run_lists = st.lists(event_lists(max_size=40), min_size=1, max_size=4)


def with_gaps(events: Sequence[Event], gaps: Sequence[int]) -> list[Event]:
    """Some of the events with offsets left out before them, but none before the first."""
    padded = [0, *gaps, *[0] * len(events)]
    return [event._replace(gap=gap) for event, gap in zip(events, padded, strict=False)]


def replace_all(maker: LakeMaker, rows: Sequence[SegmentRow], new: SegmentRow) -> None:
    """Commit the new segment in place of the others."""
    maker.catalog.commit(
        [new], topic=maker.topic, base=maker.catalog.snapshot(), attempt_id=new.attempt_id,
        replaced=[(row.partition, row.base_offset) for row in rows],
    )  # fmt: skip


def read_all(root: str) -> list[Written]:
    log = seglake.open(root).topic("events")
    return as_written(log.plan_offsets({0: (0, log.end_offsets()[0])}).execute().read_all())


@given(run_lists, shapes, st.lists(st.sampled_from([0, 0, 0, 1, 900])), st.data())
@examples(25)
def test_what_stays_stays_as_it_was(
    runs: list[list[Event]], shape: Shape, gaps: list[int], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as root:
        maker = LakeMaker(Path(root) / "lake")
        for events in runs:
            maker.run({0: with_gaps(events, gaps)}, shape)
        rows = maker.catalog.segments(maker.catalog.snapshot(), "events")
        for _ in range(2):  # the second time from one segment that has lost records
            written = maker.records()
            keep, stays = data.draw(keeps(written, rows), label="keep")
            policy = data.draw(st.sampled_from([None, IndexPolicy(420)]))
            target = RewriteTarget(new_attempt(), policy)
            new = rewrite(maker.store, rows, keep, target)
            left = [record for record in written if stays(record)]
            assert_row(new, rows, left, policy or rows[0].index_policy)
            assert_sound(maker, new)
            gone = {record.offset for record in written if not stays(record)}
            assert_copied(maker, rows, new, gone)
            replace_all(maker, rows, new)
            maker.written["events"], rows = left, [new]
            assert_answers(maker, left, gone)


@st.composite
def keeps(
    draw: st.DrawFn, written: Sequence[Written], rows: Sequence[SegmentRow]
) -> tuple[RecordFilter, Callable[[Written], bool]]:
    """What is to stay, and the same as a function of a record."""
    kind = draw(st.sampled_from(["all", "ranges", "bits", "keys"]))
    if kind == "all":
        return RecordFilter(), lambda _: True
    if kind == "keys":
        keys = draw(st.lists(st.sampled_from([w.key or b"" for w in written] or [b""])))
        return ExcludeKeys.from_keys(
            keys
        ), lambda record: record.key is None or record.key not in keys
    end = rows[-1].end_offset
    if kind == "ranges":
        places = st.integers(0, end)
        ranges = draw(st.lists(st.tuples(places, places), max_size=4))
        inside = [range(start, stop) for start, stop in ranges]
        return ExcludeOffsets.from_ranges(
            ranges
        ), lambda record: not any(record.offset in r for r in inside)
    chosen = set(draw(st.lists(st.sampled_from([w.offset for w in written] or [0]))))
    kept = {w.offset for w in written} & chosen
    return only(sorted(kept), rows), lambda record: record.offset in kept


def assert_row(
    new: SegmentRow, rows: Sequence[SegmentRow], left: Sequence[Written], policy: IndexPolicy
) -> None:
    assert (new.base_offset, new.end_offset) == (rows[0].base_offset, rows[-1].end_offset)
    times = [record.timestamp for record in left]
    highest = max(times, default=-1)
    first = next((record.offset for record in left if record.timestamp == highest), -1)
    assert new.record_count == len(left)
    assert (new.min_timestamp, new.max_timestamp) == (min(times, default=-1), highest)
    assert new.offset_of_max_timestamp == first
    assert new.index_policy == policy


def assert_sound(maker: LakeMaker, new: SegmentRow) -> None:
    """The files are what verify expects, and the log reaches the end of what it covers."""
    assert check_segment(maker.store, new, deep=True) == []
    assert check_segment(maker.store, new, deep=False) == []
    files = index_files(rebuild_index_files(maker.store, new, new.index_policy))
    log = bytes(maker.store.read_all(new.key("log")))
    for suffix in SUFFIXES:
        data = log if suffix == "log" else files[suffix]
        assert bytes(maker.store.read_all(new.key(suffix))) == data
        assert getattr(new, f"{suffix}_bytes") == len(data)
        assert getattr(new, f"{suffix}_crc32c") == crc32c.crc32c(data)
    table = scan_batches(log)
    assert table["last_offset"][-1] + 1 == new.end_offset
    assert (table["count"][:-1] > 0).all()
    assert table["size"][-1] == OVERHEAD or table["count"][-1] > 0


def assert_copied(
    maker: LakeMaker, rows: Sequence[SegmentRow], new: SegmentRow, gone: set[int]
) -> None:
    """Batches that lose nothing are the same bytes; the others have gaps, or are gone."""
    after = {batch[:8]: batch for batch in batches_of(maker, new)}
    for row in rows:
        for batch in batches_of(maker, row):
            table = scan_batches(batch)
            offsets = range(int(table["base_offset"][0]), int(table["last_offset"][0]) + 1)
            if table["count"][0] and gone.isdisjoint(offsets):
                assert after[batch[:8]] == batch


def batches_of(maker: LakeMaker, row: SegmentRow) -> list[bytes]:
    log = bytes(maker.store.read_all(row.key("log")))
    table = scan_batches(log)
    starts, ends = table["position"].tolist(), (table["position"] + table["size"]).tolist()
    return [log[start:end] for start, end in zip(starts, ends, strict=True)]


def assert_answers(maker: LakeMaker, left: Sequence[Written], gone: set[int]) -> None:
    """Reads give what stays, and lookups find it."""
    root = str(maker.root)
    assert read_all(root) == left
    log = seglake.open(root).topic("events")
    for record in left[:: max(1, len(left) // 5)]:
        assert log.record_at(0, record.offset).value == record.value
        found = log.offsets_for_times({0: max(record.timestamp, 0)})[0]
        reaching = (r for r in left if r.timestamp >= max(record.timestamp, 0))
        first = next(reaching, None)
        assert (found and found.offset) == (first and first.offset)
    for offset in sorted(gone)[:3]:
        with pytest.raises(OffsetNotFound):
            log.record_at(0, offset)
    assert verify(root, deep=True).findings == []


def made(root: Path, runs: int = 3, shape: Shape = PLAIN) -> tuple[LakeMaker, list[SegmentRow]]:
    """A lake of some runs of 30 records, and its segments."""
    maker = LakeMaker(root / "lake")
    for start in range(T, T + 30 * runs, 30):
        maker.run({0: [Event(start + n, b"k%d" % n, b"v" * 20) for n in range(30)]}, shape)
    return maker, maker.catalog.segments(maker.catalog.snapshot(), "events")


def test_a_range_without_records_is_one_empty_batch(tmp_path: Path) -> None:
    maker, rows = made(tmp_path)
    for row in rows:
        (tmp_path / "lake" / row.key("log")).unlink()  # what goes as a whole is not read
    new = rewrite(
        maker.store, rows, ExcludeOffsets.from_ranges([(0, 90)]), RewriteTarget(new_attempt())
    )
    assert (new.log_bytes, new.record_count, new.zonemap_bytes) == (OVERHEAD, 0, 96)
    assert (new.base_offset, new.end_offset, new.max_timestamp) == (0, 90, -1)
    assert_sound(maker, new)
    replace_all(maker, rows, new)
    assert read_all(str(maker.root)) == []


def test_more_than_two_to_the_31_offsets_are_not_one_segment(tmp_path: Path) -> None:
    maker, rows = made(tmp_path, 2)
    far = replace(rows[1], end_offset=rows[0].base_offset + 2**31 + 1)
    with pytest.raises(UsageError, match="more than 2\\^31"):
        rewrite(maker.store, [rows[0], far], RecordFilter(), RewriteTarget(new_attempt()))


def test_segments_that_do_not_follow_each_other_are_refused(tmp_path: Path) -> None:
    maker, rows = made(tmp_path)
    with pytest.raises(UsageError, match="does not follow"):
        rewrite(maker.store, [rows[0], rows[2]], RecordFilter(), RewriteTarget(new_attempt()))


@pytest.mark.parametrize(
    "keep", [RecordFilter(), ExcludeKeys.from_keys([b"k3"]), ExcludeOffsets.from_ranges([(40, 42)])]
)
def test_no_damaged_byte_is_made_valid(tmp_path: Path, keep: RecordFilter) -> None:
    maker, rows = made(tmp_path, shape=Shape("zstd"))
    path = tmp_path / "lake" / rows[1].key("log")
    log = path.read_bytes()
    for at in range(0, len(log), 7):
        path.write_bytes(log[:at] + bytes([log[at] ^ 0x10]) + log[at + 1 :])
        with pytest.raises(CorruptData) as raised:
            rewrite(maker.store, rows, keep, RewriteTarget(attempt := new_attempt()))
        assert raised.value.file == rows[1].key("log")
        assert not list((tmp_path / "lake").glob(f"topics/*/{attempt}/*"))
    path.write_bytes(log[:-1])
    with pytest.raises((CorruptData, seglake.errors.StoreError)):
        rewrite(maker.store, rows, keep, RewriteTarget(new_attempt()))


# Joined record batches hold the same records, in as few batches as the limit allows.


def rebatched(log: bytes, limit: int) -> EncodedBatches:
    table = scan_batches(log)
    return rebatch(log, table, payload_of(read_only(log), table), limit)


@given(logs(), st.sampled_from([1, 200, 700, 16_384]), st.data())
@examples(100)
def test_the_same_records_in_fewer_batches(log: bytes, limit: int, data: st.DataObject) -> None:
    offsets = [found.offset for found in read_log(log)]
    gone = set(data.draw(st.lists(st.sampled_from(offsets), max_size=3)))
    log = filtered(log, set(offsets) - gone, {}).data.tobytes()  # with gaps
    made = rebatched(log, limit)
    after = made.data.tobytes()
    assert read_log(after) == read_log(log)
    assert made.table.tolist() == describe(after).tolist()
    before = cut(log)
    for batch in cut(after):
        base, last_delta, *_ = header(batch)
        if batch in before:
            continue
        (plain,) = uncompressed(batch)
        assert struct.unpack(">q", batch[43:51])[0] == -1  # batches of producers stay
        parts = [old for old in before if base <= header(old)[0] <= base + last_delta]
        assert len(parts) > 1
        old_bytes = sum(len(each) - 61 for part in parts for each in uncompressed(part))
        assert old_bytes + 61 <= limit
        assert len(plain) <= limit + 5 * header(batch)[5]  # deltas take a few bytes more
    sizes = [len(uncompressed(batch)[0]) - 61 for batch in cut(after)]
    if scan_batches(log)["attributes"].max(initial=0) < 8 and not producers(log):
        for first, second in itertools.pairwise(sizes):
            assert first + second + 61 > limit  # none could be joined


def producers(log: bytes) -> bool:
    return any(struct.unpack(">q", batch[43:51])[0] >= 0 for batch in cut(log))


def test_batches_that_must_stay() -> None:
    """Of a producer, with a delete horizon, with another append time or codec."""
    plain = encoded([Event(T, b"k"), Event(T, b"k")], Encoding(None, 0, 1), 0).data.tobytes()
    joined = rebatched(plain, 16_384).data.tobytes()
    assert len(cut(joined)) == 1
    of_producer = b"".join(rebuilt(batch, (5, 0, n), 0) for n, batch in enumerate(cut(plain)))
    with_horizon = filtered(plain, {0, 1}, {0: T, 1: T}).data.tobytes()
    stamps = [encoded([Event(T)], Encoding(None, 0, 1, T + n), n).data.tobytes() for n in (0, 1)]
    for log in (of_producer, with_horizon, b"".join(stamps)):
        assert rebatched(log, 16_384).data.tobytes() == log
