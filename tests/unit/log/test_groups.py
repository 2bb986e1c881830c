"""Which segments are merged, and how often a record is copied."""

import math
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog.schema import SegmentRow
from seglake.errors import CorruptData, MissingObject
from seglake.format.index import IndexPolicy
from seglake.format.segment import SegmentLimits
from seglake.log.links import ChunkedLog, ChunkedLogs, Chunks, LakeLogs, Link
from seglake.maintain.merge import GROWTH, SegmentGroup, groups_to_merge
from seglake.store import open_store
from tests.makers.strategies import T, examples
from tests.unit.log.test_segments import MEMORY

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
