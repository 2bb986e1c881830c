"""Cases drawn from Kafka's own unit tests for batches, indexes and segments.

Some of Kafka's cases have no counterpart here:

- Producer ids, sequences and leader epochs are skipped or always 0.
- Segments and indexes are immutable and written once. Nothing truncates, resizes or preallocates.
- A segment without records is never written. No segment rolls by the clock.
- Offsets are assigned here, and events may have any age, so nothing is validated as on a produce.
"""

import itertools
import json
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import pytest

from seglake.errors import ConfigError, CorruptData
from seglake.format.codecs.compression import decompress
from seglake.format.decode import decode_batches, scan_batches
from seglake.format.decode_kernels import BAD, get_varint
from seglake.format.encode import rebase, restamp
from seglake.format.encode_kernels import put_varint
from seglake.format.index import IndexPolicy, OffsetIndex, TimeIndex
from seglake.format.partitioner import partition_of
from seglake.format.records import Spans
from seglake.format.segment import Roller, Sealed, SegmentLimits, rebuild
from tests.judges import kafka_model as model
from tests.judges.described import describe
from tests.judges.index_lookups import (
    OffsetEntry,
    last_time,
    offset_entries,
    offset_floor,
    time_entries,
    time_floor,
    upper_bound,
)
from tests.judges.kafka_model import CODECS, Record, Row
from tests.unit.format.test_batch import compressed, encode, read, rows
from tests.unit.format.test_segment import entries, fill, table_of

THREE = [
    Record(1700000000000, b"k1", b"v1"),
    Record(1700000000005, None, b"v2"),
    Record(1699999999990, b"k3", None, ((b"h", b"\1\2"), (b"n", None))),
]
VECTORS = Path(__file__).parents[2] / "golden" / "kafka-4.2.0" / "vectors.json"
GOLDEN = json.loads(VECTORS.read_text())["batches"]  # made by Kafka's own classes
GOLDEN_INDEX = "0000000200000090000000040000012000000006000001b00000000800000240"
GOLDEN_TIMES = "000000000000003c000000020000000000000046000000050000000000000050000000070000"
GOLDEN_TIMES += "00000000005a00000009"


def golden(name: str) -> bytes:
    return bytes.fromhex(GOLDEN[name])


def three(codec: str = "none", base_offset: int = 0, append_time: int | None = None) -> bytes:
    items = [Record(1, b"a", b"1"), Record(2, b"b", b"2"), Record(3, b"c", b"3")]
    return encode(items, codec, base_offset=base_offset, append_time=append_time).data.tobytes()


def field(log: bytes, at: int, value: int, width: int) -> bytes:
    return log[:at] + value.to_bytes(width, "big", signed=True) + log[at + width :]


class TestBatches:
    def test_two_records(self) -> None:
        made = encode([Record(1, None, b""), Record(2, None, b"")], base_offset=1234567)
        log = made.data.tobytes()
        for row in (made.table[0], scan_batches(log)[0]):
            assert (row["base_offset"], row["last_offset"]) == (1234567, 1234568)
            assert row["max_timestamp"] == 2
        assert log[43:57] == b"\xff" * 14
        assert log[12:16] == bytes(4)

    @pytest.mark.parametrize("attributes", [kind | more for kind in (0, 8) for more in (0, 16, 48)])
    def test_empty_header(self, attributes: int) -> None:
        log = model.batch_bytes(
            15, b"", last_delta=22, base_timestamp=-1, max_timestamp=99, count=0,
            attributes=attributes, epoch=15, producer=(23423, 145, 983),
        )  # fmt: skip
        table = scan_batches(log)
        row = table[0]
        assert (row["size"], row["count"], row["max_timestamp"]) == (61, 0, 99)
        assert (row["base_offset"], row["last_offset"]) == (15, 37)
        assert row["attributes"] == attributes
        assert rows(decode_batches(log, table, control=True)) == []
        assert describe(log)["min_timestamp"].tolist() == [-1]

    def test_overwritten_length_and_last_offset(self) -> None:
        for damaged in (field(three(), 8, 10, 4), field(three(), 23, 23, 4)):
            with pytest.raises(CorruptData):
                read(damaged)

    def test_last_offset_moves_without_a_new_crc(self) -> None:
        moved = rebase(three(), scan_batches(three()), 498)
        assert [found.offset for found in read(moved.data)] == [498, 499, 500]
        assert moved.table["last_offset"].tolist() == [500]
        assert moved.data.tobytes()[17:21] == three()[17:21]

    def test_leader_epoch_is_outside_the_crc(self) -> None:
        assert read(field(three(), 12, 500, 4)) == read(three())

    def test_append_time(self) -> None:
        made = encode([Record(time, None, b"") for time in (1, 2, 3)], append_time=99)
        for stamped in (restamp(made, 15).data, three(append_time=15)):
            assert scan_batches(stamped)["max_timestamp"].tolist() == [15]
            assert [(f.timestamp_type, f.record.timestamp) for f in read(stamped)] == [(1, 15)] * 3

    @pytest.mark.parametrize("codec", ["none", "gzip"])
    @pytest.mark.parametrize("count", [5, 2, -1, 2**31 - 1])
    @pytest.mark.parametrize("last_delta", [2, 9, 2**31 - 1])
    def test_wrong_count(self, codec: str, count: int, last_delta: int) -> None:
        damaged = field(field(three(codec), 57, count, 4), 23, last_delta, 4)
        with pytest.raises(CorruptData):
            read(model.fix_crc(damaged))

    def test_commit_marker(self) -> None:
        value = bytes.fromhex("00000000000f")
        record = model.record_bytes(Record(5, b"\0\0\0\1", value), 5, 0)
        log = model.batch_bytes(
            0, record, last_delta=0, base_timestamp=5, max_timestamp=5, count=1,
            attributes=0x30, producer=(1, 0, -1),
        )  # fmt: skip
        assert read(log) == []
        [marker] = read(log, control=True)
        assert marker.record == Record(5, b"\0\0\0\1", value)

    @pytest.mark.parametrize("codec", CODECS)
    def test_batch_by_batch_is_all_at_once(self, codec: str) -> None:
        log = three(codec) + three(codec, 3)
        table = scan_batches(log)
        single = [found for row in range(2) for found in rows(decode_batches(log, table[[row]]))]
        assert single == read(log)
        assert [found.record.value for found in single] == [b"1", b"2", b"3"] * 2

    @pytest.mark.parametrize("codec", CODECS)
    def test_nulls_and_a_large_value(self, codec: str) -> None:
        noise = np.random.default_rng(1).bytes(200 * 1024)
        items = [
            Record(1, b"k", None), Record(2, None, b"v"), Record(3, None, None),
            Record(4, b"k", noise, ((b"h", None),)),
        ]  # fmt: skip
        log = encode(items, codec, 10**6).data.tobytes()
        assert [found.record for found in read(log)] == items
        assert [found.record for found in model.read_log(log)] == items
        if codec == "snappy":
            at, blocks = 61 + 16, 0
            while at < len(log):
                at, blocks = at + 4 + int.from_bytes(log[at : at + 4], "big"), blocks + 1
            assert (at, blocks) == (len(log), 7)

    def test_golden_bytes(self) -> None:
        made = encode(THREE, base_offset=100).data.tobytes()
        assert field(made, 12, 7, 4) == golden("three-records-none")
        single = encode([Record(1234, None, b"test")]).data.tobytes()
        assert field(single, 12, -1, 4) == golden("single-record")

    @pytest.mark.parametrize("codec", CODECS)
    def test_golden_codecs(self, codec: str) -> None:
        found = read(golden(f"three-records-{codec}"))
        assert [f.record for f in found] == THREE
        assert [f.offset for f in found] == [100, 101, 102]
        assert model.read_log(golden(f"three-records-{codec}")) == found

    def test_golden_specials(self) -> None:
        assert read(golden("commit-marker")) == []
        [marker] = read(golden("commit-marker"), control=True)
        assert marker.offset == 200
        assert marker.record == Record(1700000000000, b"\0\0\0\1", bytes.fromhex("000000000005"))
        [row] = scan_batches(golden("empty-batch"))
        assert (row["base_offset"], row["last_offset"], row["count"]) == (15, 37, 0)
        assert row["max_timestamp"] == 1700000000000
        assert read(golden("empty-batch")) == []
        late = read(golden("log-append-time"))
        assert [f.record for f in late] == [
            Record(1700000009999, b"a", b"b"), Record(1700000009999, b"a", b"c")
        ]  # fmt: skip
        assert [f.timestamp_type for f in late] == [1, 1]


def batch_of(body: bytes, *, count: int = 1) -> bytes:
    """A batch whose CRC is right around whatever its records are."""
    return model.batch_bytes(
        0, body, last_delta=9, base_timestamp=0, max_timestamp=0, count=count
    )  # fmt: skip


def record_of(rest: bytes) -> bytes:
    return model.varint(len(rest)) + rest


HEAD = b"\0\0\0"  # attributes, timestamp delta, offset delta


class TestRecords:
    @pytest.mark.parametrize("key", [b"hi", None])
    @pytest.mark.parametrize("value", [b"there", None])
    @pytest.mark.parametrize(
        "headers", [(), ((b"foo", b"value"), (b"bar", None), ("ключ".encode(), b"x"))]
    )
    def test_a_record_within_a_batch(
        self, key: bytes | None, value: bytes | None, headers: tuple[Any, ...]
    ) -> None:
        record = Record(1000 + 323, key, value, headers)
        log = model.batch_bytes(
            37, model.record_bytes(record, 1000, 10), last_delta=10, base_timestamp=1000,
            max_timestamp=1323, count=1, producer=(1, 0, 723),
        )  # fmt: skip
        [found] = read(log)
        assert (found.offset, found.record) == (47, record)

    @pytest.mark.parametrize("count", [4, 2, 1, 0])
    def test_wrong_header_count(self, count: int) -> None:
        headers = ((b"a", b"1"), (b"b", b"2"), (b"c", b"3"))
        good = model.record_bytes(Record(0, b"hi", b"there", headers), 0, 0)
        at = good.index(b"there") + 5
        assert good[at] == 6
        read(batch_of(good))
        with pytest.raises(CorruptData):
            read(batch_of(good[:at] + model.varint(count) + good[at + 1 :]))

    @pytest.mark.parametrize(
        "start",
        [HEAD, HEAD + b"\0", HEAD + b"\0\0\2", HEAD + b"\0\0\2\0"],
        ids=["key", "value", "header key", "header value"],
    )
    def test_length_beyond_the_record(self, start: bytes) -> None:
        body = (start + model.varint(105)).ljust(100, b"\0")
        following = record_of((HEAD[:2] + b"\2").ljust(100, b"\0"))
        with pytest.raises(CorruptData):
            read(batch_of(record_of(body)))
        with pytest.raises(CorruptData):
            read(batch_of(record_of(body) + following, count=2))

    @pytest.mark.parametrize(
        "end", [model.varint(-1), model.varint(100), b"\2\1", b"\2\1\0", b"\2\0", b"\1"]
    )
    def test_wrong_headers(self, end: bytes) -> None:
        with pytest.raises(CorruptData, match="header"):
            read(batch_of(record_of(HEAD + b"\0\0" + end)))

    @pytest.mark.parametrize("deltas", [[10], [3, 3], [3, 2], [-1], [9, 2**31 - 1]])
    def test_offsets_outside_the_batch(self, deltas: list[int]) -> None:
        records = [model.record_bytes(Record(0, None, b"v"), 0, delta) for delta in deltas]
        with pytest.raises(CorruptData, match="offset"):
            read(batch_of(b"".join(records), count=len(records)))

    def test_truncated_bodies(self) -> None:
        record = Record(2**40, b"key", b"value", ((b"header", b"content"),))
        whole = model.record_bytes(record, 0, 9)[1:]
        assert [found.record for found in read(batch_of(record_of(whole)))] == [record]
        for end in range(len(whole)):
            with pytest.raises(CorruptData):
                read(batch_of(record_of(whole[:end])))
            with pytest.raises(CorruptData):
                read(batch_of(record_of(whole)[: end + 1]))

    @pytest.mark.parametrize(
        ("value", "hexed"),
        [
            (0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"),
            (-65, "8101"), (8191, "fe7f"), (8192, "808001"), (2147483647, "feffffff0f"),
            (-2147483648, "ffffffff0f"), (2**63 - 1, "feffffffffffffffff01"),
            (-(2**63), "ffffffffffffffffff01"),
        ],
    )  # fmt: skip
    def test_varints(self, value: int, hexed: str) -> None:
        want = bytes.fromhex(hexed)
        out = np.zeros(12, np.uint8)
        assert put_varint(out, 1, value) == 1 + len(want)
        assert out[1 : 1 + len(want)].tobytes() == want == model.varint(value)
        most = 5 if -(2**31) <= value < 2**31 else 10
        assert get_varint(out, 1, 12, most) == (value, 1 + len(want))
        assert get_varint(out, 1, len(want), most)[1] == BAD

    @pytest.mark.parametrize("most", [5, 10])
    def test_varints_that_are_too_long(self, most: int) -> None:
        assert get_varint(np.full(20, 0x80, np.uint8), 0, 20, most)[1] == BAD

    def test_a_varint_keeps_its_32_bits(self) -> None:  # as ByteUtils does
        overfull = np.frombuffer(b"\xff\xff\xff\xff\x7f", np.uint8)
        assert get_varint(overfull, 0, 5, 5) == (-(2**31), 5)


HASHES = {
    b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829, b"abc": 479470107, b"": 275646681,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, b"a": -1563381124,
    b"ab": 316155434, b"abcd": -1323649548, b"user-42": 1459644460, "été".encode(): -2101193575,
    b"\xff\x80\x01\xfe\xff": 542491798,
}  # fmt: skip


class TestHashesAndCodecs:
    def test_hashes(self) -> None:
        most = 2**31 - 1
        want = [(found & 0x7FFFFFFF) % most for found in HASHES.values()]
        assert partition_of(Spans.from_list(list(HASHES)), most).tolist() == want
        assert crc32c.crc32c(b"123456789") == model.crc32c(b"123456789") == 0xE3069283
        assert crc32c.crc32c(b"Some String") == model.crc32c(b"Some String") == 608512271

    def test_partitions(self) -> None:
        assert partition_of(Spans.from_list([b"abc", b"a"]), 10).tolist() == [7, 4]
        assert partition_of(Spans.from_list([None] * 4), 3, first_null=2).tolist() == [2, 0, 1, 2]

    @pytest.mark.parametrize("at", [0, 4, 5, 6, 10])
    def test_damaged_lz4_frames(self, at: int) -> None:
        frame = bytearray(compressed("lz4", b"some content" * 9))
        frame[at] ^= 0x21 if at < 10 else 0xFF  # magic, flags, block size, their check, length
        with pytest.raises(CorruptData):
            decompress(3, bytes(frame), 10**6)

    def test_incompressible_lz4(self) -> None:
        noise = np.random.default_rng(2).bytes(1000)
        frame = compressed("lz4", noise)
        assert frame[:7].hex() == "04224d18604082"
        assert int.from_bytes(frame[7:11], "little") == 1000 | 1 << 31
        assert frame[11:1011] == noise
        assert decompress(3, frame, 1000) == noise


def offsets_of(base: int, *pairs: tuple[int, int]) -> OffsetIndex:
    columns = np.array(pairs, np.int64).reshape(-1, 2)
    return OffsetIndex.build(base, columns[:, 0], columns[:, 1])


def times_of(base: int, *pairs: tuple[int, int]) -> TimeIndex:
    columns = np.array(pairs, np.int64).reshape(-1, 2)
    return TimeIndex.build(base, columns[:, 0], columns[:, 1])


class TestOffsetIndex:
    def test_empty(self) -> None:
        index = offsets_of(45)
        assert offset_floor(index, 92) == (45, 0)
        assert offset_entries(index) == []

    def test_entries(self) -> None:
        index = offsets_of(45, *[(46 + i, i) for i in range(30)])
        assert offset_floor(index, 44) == offset_floor(index, 45) == (45, 0)
        assert offset_floor(index, 75) == offset_floor(index, 90) == (75, 29)
        assert offset_entries(index) == [(46 + i, i) for i in range(30)]

    @pytest.mark.parametrize("second", [50, 51])
    def test_offsets_must_increase(self, second: int) -> None:
        with pytest.raises(CorruptData, match="increase"):
            offsets_of(45, (51, 0), (second, 1))

    def test_full_indexes_roll(self) -> None:
        rows = [Row(72, i, i, 10 * i) for i in range(100)]
        for index_bytes, most, closed in ((240, 19, 19), (360, 29, 29)):  # 20 and 30 time slots
            limits = SegmentLimits(index_bytes=index_bytes)
            first, *_ = fill(rows, limits, IndexPolicy(0))
            offsets, times = entries(*first)
            assert (len(offsets), len(times)) == (most, closed)
        same = [Row(72, i, i, 10) for i in range(100)]  # few times: the offset index is full first
        first, *_ = fill(same, SegmentLimits(index_bytes=240), IndexPolicy(0))
        assert len(entries(*first).offsets) == 30

    def test_file(self) -> None:
        data = offsets_of(45, (51, 0), (52, 1)).encode()
        assert len(data) == 16
        assert offset_entries(OffsetIndex.decode(45, data))[1] == (52, 1)

    def test_upper_bound(self) -> None:
        first, second, third, fourth = pairs = [(45, 0), (46, 10), (47, 23), (48, 37)]
        index = offsets_of(45, *pairs)
        for fetch, size, want in (
            (first, 5, second), (first, 10, second), (first, 22, third), (first, 23, third),
            (second, 24, fourth), (fourth, 1, None), (first, 200, None), (second, 200, None),
        ):  # fmt: skip
            assert upper_bound(index, OffsetEntry(*fetch), size) == want
        assert upper_bound(offsets_of(45), OffsetEntry(45, 0), 5) is None

    def test_sanity(self) -> None:
        legal = offsets_of(20, (20, 0)).encode()
        OffsetIndex.decode(20, legal).check(legal)
        low = b"\xff" * 4 + bytes(4)
        with pytest.raises(CorruptData, match="below"):
            OffsetIndex.decode(1000, low).check(low)
        stray = bytes(17)
        assert len(OffsetIndex.decode(1000, stray)) == 2
        with pytest.raises(CorruptData, match="multiple"):
            OffsetIndex.decode(1000, stray).check(stray)

    @pytest.mark.parametrize(
        ("base", "offset"),
        [
            (0, 2**31), (0, -(2**31)), (1, 0), (100, 10), (2**31, 0), (-(2**31), 0),
            (2**31, 2**32),
        ],
    )  # fmt: skip
    def test_relative_offsets(self, base: int, offset: int) -> None:
        assert offsets_of(0, (2**31 - 1, 0)).encode() == b"\x7f\xff\xff\xff\0\0\0\0"
        with pytest.raises(CorruptData, match="out of range"):
            offsets_of(base, (offset, 0))
        with pytest.raises(CorruptData, match="out of range"):
            times_of(base, (1, offset))
        table = table_of([Row(72, offset, offset, 1)])
        with pytest.raises(CorruptData, match="out of range"):
            rebuild(base, table, IndexPolicy())


class TestTimeIndex:
    def test_empty(self) -> None:
        assert time_floor(times_of(45), 100) == last_time(times_of(45)) == (-1, 45)

    def test_entries(self) -> None:
        index = times_of(45, *[(10 * i, 45 + 10 * i) for i in range(1, 30)])
        assert time_floor(index, 9) == (-1, 45)
        assert time_floor(index, 25) == (20, 65)
        assert time_floor(index, 30) == (30, 75)
        assert time_entries(index) == [(10 * i, 45 + 10 * i) for i in range(1, 30)]

    def test_what_may_follow(self) -> None:
        with pytest.raises(CorruptData, match="offsets"):
            times_of(45, (290, 335), (10000, 280))
        with pytest.raises(CorruptData, match="timestamps"):
            times_of(45, (30, 75), (29, 80))
        assert len(times_of(45, (30, 75), (30, 80))) == 1
        assert last_time(times_of(45, (30, 75), (31, 75))) == (31, 75)

    def test_first_entry(self) -> None:
        assert last_time(times_of(45, (0, 45))) == (0, 45)
        assert len(times_of(45, (-1, 45))) == 0

    def test_sanity(self) -> None:
        def entry(time: int, offset: int) -> bytes:
            return time.to_bytes(8, "big") + offset.to_bytes(4, "big", signed=True)

        for good in (b"", entry(5, 0), entry(5, 0) + entry(6, 0)):
            TimeIndex.decode(9, good).check(good)
        for bad in (entry(5, 0) + entry(4, 1), entry(5, -1), entry(5, 0) + b"\0"):
            with pytest.raises(CorruptData):
                TimeIndex.decode(9, bad).check(bad)


def log_of(batches: list[tuple[int, list[int]]]) -> bytes:
    """Batches of (first offset, timestamps); every value is "test"."""
    made = [
        encode([Record(time, None, b"test") for time in times], base_offset=first)
        for first, times in batches
    ]
    return b"".join(each.data.tobytes() for each in made)


def seal_log(log: bytes, base_offset: int, interval: int) -> Sealed:
    roller = Roller(base_offset, SegmentLimits(), IndexPolicy(interval))
    table = describe(log)
    assert roller.append(table) == len(table)
    return roller.seal()


def first_offset(log: bytes, sealed: Sealed, base: int, offset: int) -> int | None:
    """Base offset of the batch in which a read of `offset` begins, found by the index."""
    start = offset_floor(OffsetIndex.decode(base, sealed.files["index"]), offset).position
    table = scan_batches(log[start:])
    found = table[table["last_offset"] >= offset]
    return int(found["base_offset"][0]) if len(found) else None


def first_since(log: bytes, sealed: Sealed, base: int, time: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record at or after `time`, found by both indexes."""
    at = time_floor(TimeIndex.decode(base, sealed.files["timeindex"]), time).offset
    start = offset_floor(OffsetIndex.decode(base, sealed.files["index"]), at).position
    found = [f for f in read(log[start:]) if f.record.timestamp >= time]
    return (found[0].record.timestamp, found[0].offset) if found else None


GOLDEN_STAMPS = [50, 40, 60, 55, 30, 70, 65, 80, 80, 90]
GOLDEN_LOG = log_of([(1000 + i, [time]) for i, time in enumerate(GOLDEN_STAMPS)])
TEN = log_of([(40 + i, [10 * (40 + i)]) for i in range(10)])


class TestSegments:
    def test_reading_at_an_offset(self) -> None:
        assert len(scan_batches(b"")) == 0
        log = log_of([(50, [1, 2, 3, 4])])
        sealed = seal_log(log, 40, 0)
        assert first_offset(log, sealed, 40, 41) == 50
        assert first_offset(log, sealed, 40, 54) is None
        log = log_of([(50, [1, 2]), (60, [1, 2])])
        sealed = seal_log(log, 40, 0)
        assert first_offset(log, sealed, 40, 55) == 60
        assert first_offset(log, sealed, 40, 51) == 50

    def test_time_entries_of_every_second_batch(self) -> None:
        log = log_of([(i, [10 * i]) for i in range(40, 70)])
        sealed = seal_log(log, 40, 2 * 72 - 1)
        assert len(sealed.files["timeindex"]) // 12 == 14 + 1  # and the closing entry
        assert len(sealed.files["index"]) // 8 == 14

    def test_reading_at_a_time(self) -> None:
        sealed = seal_log(TEN, 40, 2 * 72 - 1)
        for time, want in (
            (420, 42), (421, 43), (430, 43), (431, 44), (491, None), (401, 41), (399, 40),
        ):  # fmt: skip
            found = first_since(TEN, sealed, 40, time)
            assert found == (None if want is None else (10 * want, want))
        assert sealed.max_timestamp == 490

    def test_next_offset(self) -> None:
        assert Roller(40, SegmentLimits(), IndexPolicy()).base_offset == 40
        assert seal_log(log_of([(50, [1, 2, 3])]), 40, 0).end_offset == 53

    def test_rebuilt_indexes_find_everything(self) -> None:
        log = log_of([(i, [10 * i]) for i in range(100)])
        sealed = rebuild(0, describe(log), IndexPolicy(100))
        assert sealed == seal_log(log, 0, 100)
        for i in range(100):
            assert first_offset(log, sealed, 0, i) == i
            assert first_since(log, sealed, 0, 10 * i) == (10 * i, i)
            after = (10 * i + 10, i + 1) if i < 99 else None
            assert first_since(log, sealed, 0, 10 * i + 1) == after

    @pytest.mark.parametrize("batch", [0, 7, 19])
    def test_garbage_is_named_by_its_batch(self, batch: int) -> None:
        log = log_of([(i, [i]) for i in range(20)])
        damaged = log[: 72 * batch + 30] + b"\x5a" * (len(log) - 72 * batch - 30)
        with pytest.raises(CorruptData) as damage:
            describe(damaged)
        assert 72 * batch <= damage.value.position <= 72 * (batch + 1)
        assert len(describe(damaged[: 72 * batch])) == batch

    def test_golden_segment(self) -> None:
        sealed = seal_log(GOLDEN_LOG, 1000, 100)
        assert len(GOLDEN_LOG) == 720
        assert sealed.files["index"].hex() == GOLDEN_INDEX
        assert sealed.files["timeindex"].hex() == GOLDEN_TIMES
        assert rebuild(1000, describe(GOLDEN_LOG), IndexPolicy(100)) == sealed
        for times, want in (
            ((0, 41, 50), (50, 1000)), ((51, 60), (60, 1002)), ((61, 70), (70, 1005)),
            ((75, 80), (80, 1007)), ((81, 90), (90, 1009)), ((91,), None),
        ):  # fmt: skip
            for time in times:
                assert first_since(GOLDEN_LOG, sealed, 1000, time) == want
        index = OffsetIndex.decode(1000, sealed.files["index"])
        assert offset_floor(index, 999) == offset_floor(index, 1000) == (1000, 0)
        assert offset_floor(index, 1003) == (1002, 144)
        assert offset_floor(index, 1009) == (1008, 576)
        assert first_offset(GOLDEN_LOG, sealed, 1000, 1010) is None

    @pytest.mark.parametrize(
        ("interval", "positions"),
        [
            (0, range(72, 720, 72)), (71, range(72, 720, 72)), (72, range(144, 720, 144)),
        ],
    )  # fmt: skip
    def test_intervals(self, interval: int, positions: Any) -> None:
        sealed = seal_log(GOLDEN_LOG, 1000, interval)
        assert [at for _, at in entries(1000, sealed).offsets] == list(positions)

    @pytest.mark.parametrize(
        ("stamps", "want"),
        [
            ([-1] * 5, []), ([9, 8, 7, 6, 5], [(9, 0)]), ([7] * 5, [(7, 0)]), ([3], [(3, 0)]),
        ],
    )  # fmt: skip
    def test_time_entries(self, stamps: list[int], want: list[tuple[int, int]]) -> None:
        log = log_of([(i, [time]) for i, time in enumerate(stamps)])
        sealed = seal_log(log, 0, 0)
        offsets, times = entries(0, sealed)
        assert times == want
        assert len(offsets) == len(stamps) - 1

    def test_last_offset_first_byte(self) -> None:
        log = log_of([(0, list(range(10))), (10, list(range(10)))])
        second = int(scan_batches(log)["position"][1])
        assert entries(0, seal_log(log, 0, 0)).offsets == [(19, second)]


def segments(rows: list[Row], **limits: int) -> list[int]:
    """How many batches each segment gets."""
    found = fill(rows, SegmentLimits(**limits), IndexPolicy(71))
    bounds = [base for base, _ in found] + [rows[-1].last_offset + 1]
    pairs = itertools.pairwise(bounds)
    return [sum(start <= row.base_offset < end for row in rows) for start, end in pairs]


class TestRolling:
    def test_by_size(self) -> None:
        rows = [Row(72, i, i, 1) for i in range(11)]
        assert segments(rows, segment_bytes=710) == [9, 2]
        assert segments(rows[:10], segment_bytes=720) == [10]
        assert segments(rows, segment_bytes=720) == [10, 1]

    def test_by_event_time(self) -> None:
        hour = 3600000
        first = Row(72, 0, 0, 1000)
        for later, want in ((1000, [2]), (1000 + hour, [2]), (1001 + hour, [1, 1]), (-1, [2])):
            assert segments([first, Row(72, 1, 1, later)], segment_ms=hour) == want

    def test_nothing_appended_rolls_nothing(self) -> None:
        roller = Roller(0, SegmentLimits(), IndexPolicy())
        roller.append(table_of([Row(72, 0, 0, 1)]))
        assert roller.append(table_of([])) == 0
        assert (roller.size_bytes, roller.base_offset) == (72, 0)

    @pytest.mark.parametrize(("offset", "want"), [(2**31 - 1, [2]), (2**31, [1, 1])])
    def test_by_relative_offset(self, offset: int, want: list[int]) -> None:
        assert segments([Row(72, 100, 100, 1), Row(72, 100 + offset, 100 + offset, 1)]) == want

    def test_index_files_have_no_padding(self) -> None:
        rows = [Row(72, i, i, 10 * i) for i in range(20)]
        (_, first), _ = fill(rows, SegmentLimits(segment_bytes=720), IndexPolicy(71))
        assert (len(first.files["index"]) // 8, len(first.files["timeindex"]) // 12) == (9, 9)

    def test_a_batch_larger_than_a_segment(self) -> None:
        roller = Roller(0, SegmentLimits(segment_bytes=71), IndexPolicy())
        with pytest.raises(ConfigError, match=r"segment\.bytes"):
            roller.append(table_of([Row(72, 0, 0, 1)]))
        assert roller.size_bytes == 0
