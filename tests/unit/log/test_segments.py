"""Segments written again, against plain lists of what they hold."""

import itertools
import math
import random
import struct
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import crc32c
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.catalog.schema import SegmentRow
from seglake.errors import CorruptData, MissingObject, OffsetNotFound, UsageError
from seglake.format.batch import OVERHEAD
from seglake.format.codecs.compression import NAMES
from seglake.format.codecs.payload import payload_of
from seglake.format.decode import scan_batches
from seglake.format.encode import EncodedBatches, Encoding
from seglake.format.index import IndexPolicy
from seglake.format.records import read_only
from seglake.format.segment import SegmentLimits
from seglake.layout import SUFFIXES, new_attempt
from seglake.log.links import ChunkedLog, ChunkedLogs, Chunks, LakeLogs, Link
from seglake.log.rewrite.keep import ExcludeKeys, ExcludeOffsets, KeepOffsets, RecordFilter
from seglake.log.rewrite.segments import RewriteTarget, rebatch, rewrite
from seglake.maintain.commit import SegmentGroup
from seglake.maintain.health.reindex import check_segment, rebuild_index_files
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import GROWTH, groups_to_merge
from seglake.store import open_store
from tests.judges.described import describe
from tests.judges.kafka_model import read_log
from tests.judges.oracle import as_written
from tests.makers.catalog_rows import commit_rows
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
    places = [(row.partition, row.base_offset) for row in rows]
    commit_rows(maker.catalog, [new], attempt_id=new.attempt_id, replaced=places)


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
        rows = maker.catalog.rows.segments(maker.catalog.snapshot(), "events")
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
    files = rebuild_index_files(maker.store, new, new.index_policy)
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
    return maker, maker.catalog.rows.segments(maker.catalog.snapshot(), "events")


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


# Which segments are merged, and how often a record is copied.


KIB, MIB = 2**10, 2**20
LIMITS = SegmentLimits(64 * MIB, 60_000)
RULES = LIMITS, IndexPolicy()


def row(base: int, log_bytes: int, **others: object) -> SegmentRow:
    """A segment of 100 offsets."""
    columns: dict[str, object] = {
        "topic": "events", "partition": 0, "base_offset": base, "end_offset": base + 100,
        "record_count": 100, "min_timestamp": T, "max_timestamp": T, "max_lateness_ms": 0,
        "offset_of_max_timestamp": base, "timestamp_type": "CreateTime", "codec": "zstd",
        "log_bytes": log_bytes, "index_bytes": 0, "timeindex_bytes": 12, "zonemap_bytes": 96,
        "log_crc32c": 0, "index_crc32c": 0, "timeindex_crc32c": 0, "zonemap_crc32c": 0,
        "index_interval_kind": "bytes", "index_interval": 4096, "attempt_id": "a",
        "created_at_ms": 0,
    }  # fmt: skip
    return SegmentRow(**{**columns, **others})  # type: ignore[arg-type]


def rows_of(sizes: list[int]) -> list[SegmentRow]:
    return [row(100 * number, size) for number, size in enumerate(sizes)]


def merged(group: SegmentGroup) -> SegmentRow:
    first, last = group.rows[0], group.rows[-1]
    return replace(
        first, end_offset=last.end_offset, log_bytes=group.log_bytes,
        record_count=sum(each.record_count for each in group.rows),
    )  # fmt: skip


def merge_once(rows: list[SegmentRow], groups: list[SegmentGroup]) -> list[SegmentRow]:
    """The segments after a merge."""
    new = {group.rows[0].base_offset: group for group in groups}
    gone = {each.base_offset for group in groups for each in group.rows[1:]}
    kept = [each for each in rows if each.base_offset not in gone]
    return [merged(new[e.base_offset]) if e.base_offset in new else e for e in kept]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spread", [1, 30])
def test_a_record_is_copied_few_times(seed: int, spread: int) -> None:
    """A merge after each of hundreds of small runs."""
    chance, rows, copied, total = random.Random(seed), list[SegmentRow](), 0, 0
    for _ in range(1500):
        end = rows[-1].end_offset if rows else 0
        rows.append(row(end, 100 * KIB * chance.randint(1, spread)))
        total += rows[-1].log_bytes
        groups = groups_to_merge(rows, *RULES).groups
        rows, copied = merge_once(rows, groups), copied + sum(each.log_bytes for each in groups)
    steps = math.log(LIMITS.segment_bytes / (100 * KIB), GROWTH)
    assert copied <= (steps + 2) * total
    assert len(rows) <= total / (LIMITS.segment_bytes / 2) + 2 * GROWTH * steps
    assert all(before.end_offset == after.base_offset for before, after in pairwise(rows))


@given(st.lists(st.integers(61, 80 * MIB), max_size=60), st.booleans())
@examples(200)
def test_groups_are_neighbours_within_the_limits(sizes: list[int], everything: bool) -> None:
    rows = rows_of(sizes)
    groups, apart = groups_to_merge(rows, *RULES, everything=everything)
    assert len(rows) - len(merge_once(rows, groups)) + apart.total() == len(rows[1:])
    assert apart.keys() <= ({"segment.bytes"} if everything else {"segment.bytes", "gain"})
    for group in groups:
        assert len(group.rows) > 1
        assert group.log_bytes <= LIMITS.segment_bytes
        assert all(b.end_offset == a.base_offset for b, a in pairwise(group.rows))
        least = 1 if everything else 2
        assert group.log_bytes >= least * max(each.log_bytes for each in group.rows)
    numbers = [each.base_offset for group in groups for each in group.rows]
    assert numbers == sorted(set(numbers))
    if everything:
        for before, behind in pairwise(merge_once(rows, groups)):
            assert before.log_bytes + behind.log_bytes > LIMITS.segment_bytes


@given(st.lists(st.integers(61, 80 * MIB), max_size=60))
@examples(100)
def test_merging_comes_to_rest(sizes: list[int]) -> None:
    rows = rows_of(sizes)
    for _ in range(12):
        rows = merge_once(rows, groups_to_merge(rows, *RULES).groups)
    assert groups_to_merge(rows, *RULES).groups == []


def changed(**others: object) -> list[SegmentRow]:
    """Twenty small segments, of which the last ten differ."""
    rows = rows_of([KIB] * 20)
    return rows[:10] + [replace(each, **others) for each in rows[10:]]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "limit"),
    [
        (changed(timestamp_type="LogAppendTime"), "message.timestamp.type"),
        (changed(codec="gzip"), "compression.type"),
        (changed(partition=1), None),
        (changed(max_timestamp=T + LIMITS.segment_ms + 1), "segment.ms"),
        (rows_of([KIB] * 10) + [row(2**31 + 100 * n, KIB) for n in range(10)], None),
    ],
    ids=["timestamp type", "codec", "partition", "segment.ms", "no neighbours"],
)
def test_rules_that_keep_segments_apart(rows: list[SegmentRow], limit: str | None) -> None:
    groups, apart = groups_to_merge(rows, *RULES, everything=True)
    assert [group.rows for group in groups] == [tuple(rows[:10]), tuple(rows[10:])]
    assert apart == ({limit: 1} if limit else {})


def test_offsets_and_indexes_have_limits() -> None:
    far = [replace(each, base_offset=n * 2**30, end_offset=(n + 1) * 2**30)
           for n, each in enumerate(rows_of([KIB] * 4))]  # fmt: skip
    groups = groups_to_merge(far, *RULES, everything=True).groups
    assert [len(group.rows) for group in groups] == [2, 2]
    tight = SegmentLimits(64 * MIB, index_bytes=12 * 202), IndexPolicy(0)
    groups = groups_to_merge(rows_of([KIB] * 4), *tight, everything=True).groups
    assert [len(group.rows) for group in groups] == [2, 2]  # 101 entries each, as it may be


def test_records_without_timestamps_wait_for_nothing() -> None:
    rows = rows_of([KIB] * 10)
    early = [replace(each, min_timestamp=-1, max_timestamp=-1) for each in rows[:5]]
    (group,) = groups_to_merge([*early, *rows[5:]], *RULES).groups
    assert len(group.rows) == 10


def test_what_is_large_waits_for_as_much() -> None:
    rows = rows_of([8 * MIB, *[MIB] * 7])
    assert groups_to_merge(rows, *RULES).groups == []
    (group,) = groups_to_merge([*rows, row(800, MIB)], *RULES).groups
    assert group.rows[0].base_offset == 100  # the large one is not copied for eight small ones
    assert len(group.rows) == 8


# Logs outside the lake: any range of any chunks, and whatever is damaged.


def put(folder: Path, data: bytes, size: int) -> Chunks:
    """Write the log `data` as the object `log`; if `size` is not 0, in zstd frames of so much."""
    parts = [data[at : at + size] for at in range(0, len(data), size)] if size else [data]
    frames = [zstandard.compress(part) for part in parts] if size else parts
    (folder / "log").write_bytes(b"".join(frames))
    return Chunks(len(data), size, tuple(map(len, frames)) if size else ())


@given(st.binary(min_size=1, max_size=300), st.integers(0, 80), st.data())
@examples(200)
def test_any_ranges_are_those_of_the_log(log: bytes, size: int, data: st.DataObject) -> None:
    places = st.integers(0, len(log))
    pairs = data.draw(st.lists(st.tuples(places, places).map(sorted), min_size=1, max_size=5))
    starts, ends = [start for start, _ in pairs], [end for _, end in pairs]
    begin, stop = sorted((data.draw(places), data.draw(places)))
    with TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name)
        chunks = put(folder, log, size).check()
        logs = ChunkedLogs(open_store(name), {"log": chunks})
        assert logs.size("log") == len(log)
        assert bytes(logs.read_all("log")) == log
        found = [bytes(part) for part in logs.read_ranges("log", starts, ends)]
        assert found == [log[start:end] for start, end in pairs]

        link = Link(name, "log", begin, stop - begin, chunks)
        assert Link.load(link.dump(), "a.link") == link
        lake = open_store(f"{name}/lake")
        lake.put("a.link", link.dump())
        own = LakeLogs(lake)
        assert own.size("a.link") == stop - begin
        assert bytes(own.read_all("a.link")) == log[begin:stop]
        middle = (stop - begin) // 2
        assert bytes(own.read("a.link", middle, stop - begin)) == log[begin + middle : stop]
        with pytest.raises(CorruptData):
            own.read("a.link", 0, stop - begin + 1)


@given(st.binary(min_size=1, max_size=100), st.integers(1, 40), st.data())
@examples(200)
def test_a_damaged_chunk_is_never_taken_for_another(
    log: bytes, size: int, data: st.DataObject
) -> None:
    """A frame has no checksum of its own here, but never gives more or fewer bytes."""
    with TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name)
        chunks = put(folder, log, size)
        stored = bytearray((folder / "log").read_bytes())
        at = data.draw(st.integers(0, len(stored) - 1))
        stored[at] ^= data.draw(st.integers(1, 255))
        (folder / "log").write_bytes(stored)
        try:
            found = ChunkedLog(open_store(name), "log", chunks).read_ranges([0], [len(log)])[0]
            assert len(bytes(found)) == len(log)
        except CorruptData as damage:
            place = (damage.file, damage.position <= at)
            assert place == (f"{name}/log", True)  # or nothing was seen


def test_an_object_of_another_size_is_damage(tmp_path: Path) -> None:
    chunks = put(tmp_path, b"log" * 100, 64)
    log = ChunkedLog(open_store(str(tmp_path)), "log", chunks)
    with (tmp_path / "log").open("ab") as file:
        file.write(b"more")
    with pytest.raises(CorruptData, match="bytes, not"):
        log.size()
    (tmp_path / "log").unlink()
    with pytest.raises(MissingObject):
        log.size()


@given(st.data())
@examples(200)
def test_a_damaged_link_is_named(data: st.DataObject) -> None:
    link = Link("s3://bucket/tiered", "t-id/0/0.log", 5, 10, Chunks(100, 60, (30, 20)))
    stored = bytearray(link.dump())
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] ^= data.draw(st.integers(1, 255))
    try:
        found = Link.load(stored, "topics/t-0/a.link")
        assert found.is_sound
    except CorruptData as damage:
        assert damage.file == "topics/t-0/a.link"  # noqa: PT017  # or the link is another one


@pytest.mark.parametrize(
    "chunks",
    [
        Chunks(-1),
        Chunks(10, 5, (3,)),
        Chunks(10, 0, (3,)),
        Chunks(10, 5, (3, 0)),
        Chunks(4, 5, (1, 2)),
    ],
)
def test_impossible_chunks(chunks: Chunks) -> None:
    with pytest.raises(ValueError, match="cannot hold"):
        chunks.check()
