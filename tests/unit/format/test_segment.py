"""Indexes, zone maps and rolling against models of Kafka's append path and against brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.errors import ConfigError, CorruptData
from seglake.format import zonemap
from seglake.format.batch import TABLE, UNKNOWN
from seglake.format.decode import scan_batches
from seglake.format.index import IndexPolicy, OffsetIndex, TimeIndex
from seglake.format.records import end_to_end
from seglake.format.segment import Roller, Sealed, SegmentLimits, choose_indexed, rebuild, seal
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
from tests.judges.kafka_model import Record, Row
from tests.makers.strategies import examples
from tests.unit.format.test_batch import encode

stamps = st.just(-1) | st.integers(0, 60)
sizes = st.integers(62, 400)
batch_rows = st.lists(st.tuples(sizes, st.integers(1, 5), stamps), min_size=1, max_size=40)
policies = st.builds(IndexPolicy, st.integers(0, 900))


def table_of(rows: list[Row]) -> np.ndarray:
    table = np.zeros(len(rows), TABLE)
    for i, row in enumerate(rows):
        table[i]["size"] = row.size
        table[i]["base_offset"], table[i]["last_offset"] = row.base_offset, row.last_offset
        table[i]["count"] = row.last_offset - row.base_offset + 1
        table[i]["max_timestamp"] = table[i]["min_timestamp"] = row.max_timestamp
        table[i]["offset_of_max"] = row.base_offset
    end_to_end(table)
    return table


def consecutive(parts: list[tuple[int, int, int]], base_offset: int) -> list[Row]:
    rows = []
    for size, count, stamp in parts:
        rows.append(Row(size, base_offset, base_offset + count - 1, stamp))
        base_offset += count
    return rows


def fill(rows: list[Row], limits: SegmentLimits, policy: IndexPolicy) -> list[tuple[int, Sealed]]:
    """All rows through a Roller, given to it a few at a time: (base offset, files) per segment."""
    roller, sealed, table = Roller(rows[0].base_offset, limits, policy), [], table_of(rows)
    while len(table):
        taken = roller.append(table[:7])
        if taken < len(table[:7]):
            sealed.append((roller.base_offset, roller.seal()))
            roller.begin(int(table["base_offset"][taken]))
        table = table[taken:]
    return [*sealed, (roller.base_offset, roller.seal())]


def entries(base_offset: int, sealed: Sealed) -> model.Indexes:
    offsets = OffsetIndex.decode(base_offset, sealed.files["index"])
    times = TimeIndex.decode(base_offset, sealed.files["timeindex"])
    offsets.check(sealed.files["index"])
    times.check(sealed.files["timeindex"])
    return model.Indexes(
        [(offset, position) for offset, position in offset_entries(offsets)],
        [(time, offset) for time, offset in time_entries(times)],
    )


class TestRoller:
    @given(batch_rows, st.integers(0, 900), st.integers(0, 2**40))
    def test_indexes_are_kafkas(
        self, parts: list[tuple[int, int, int]], interval: int, base_offset: int
    ) -> None:
        rows = consecutive(parts, base_offset)
        [(base, sealed)] = fill(rows, SegmentLimits(), IndexPolicy(interval))
        assert base == base_offset
        assert entries(base, sealed) == model.index(rows, interval)

    @given(
        batch_rows, st.integers(0, 300), st.integers(400, 3000), st.integers(0, 60),
        st.integers(8, 100),
    )  # fmt: skip
    @examples(300)
    def test_rolls_where_kafka_rolls(
        self,
        parts: list[tuple[int, int, int]],
        interval: int,
        bytes_: int,
        ms: int,
        index_bytes: int,
    ) -> None:
        rows = consecutive(parts, 5)
        limits = SegmentLimits(bytes_, ms, index_bytes)
        found = fill(rows, limits, IndexPolicy(interval))
        want = model.roll(rows, 5, interval, bytes_=bytes_, ms=ms, index_bytes=index_bytes)
        assert [base for base, _ in found] == [segment[0].base_offset for segment in want]
        for (base, sealed), segment in zip(found, want, strict=True):
            assert entries(base, sealed) == model.index(segment, interval)
            assert sealed.end_offset == segment[-1].last_offset + 1
            assert len(sealed.files["index"]) <= index_bytes
            assert len(sealed.files["timeindex"]) <= max(index_bytes, 12)

    @given(batch_rows, policies, st.integers(0, 50))
    def test_policies(
        self, parts: list[tuple[int, int, int]], policy: IndexPolicy, base_offset: int
    ) -> None:
        rows = consecutive(parts, base_offset)
        indexed = choose_indexed(table_of(rows), policy).tolist()
        want, since = list[bool](), 0
        for row in rows:
            want.append(since > policy.interval)
            since = row.size + (0 if want[-1] else since)
        assert indexed == want

    @given(batch_rows, policies)
    def test_an_index_bounds_every_scan(
        self, parts: list[tuple[int, int, int]], policy: IndexPolicy
    ) -> None:
        rows = consecutive(parts, 9)
        sealed = rebuild(9, table_of(rows), policy)
        offsets = OffsetIndex.decode(9, sealed.files["index"])
        times = TimeIndex.decode(9, sealed.files["timeindex"])
        table = table_of(rows)
        for row, position in zip(rows, table["position"].tolist(), strict=True):
            assert offset_floor(offsets, row.last_offset).position <= position
            before = time_floor(times, row.max_timestamp - 1)
            if before.timestamp >= 0:  # nothing at or before its offset is as new as this batch
                passed = [r.max_timestamp for r in rows if r.last_offset <= before.offset]
                assert max(passed) < row.max_timestamp

    @given(st.lists(st.builds(Record, stamps, st.none(), st.binary(max_size=30)), min_size=1),
           policies, st.integers(62, 200))  # fmt: skip
    def test_rebuilt_files_are_the_stored_ones(
        self, items: list[Record], policy: IndexPolicy, limit: int
    ) -> None:
        made = encode(items, "lz4", limit, 40)
        roller = Roller(40, SegmentLimits(), policy)
        assert roller.append(made.table) == len(made.table)
        sealed = roller.seal()
        log = made.data.tobytes()
        assert rebuild(40, describe(log), policy) == sealed
        cut = int(made.table["position"][len(made.table) // 2])
        first, second = describe(log[:cut]), describe(log[cut:])
        second["position"] += cut
        assert rebuild(40, np.concatenate([first, second]), policy) == sealed
        times = [item.timestamp for item in items]
        assert (sealed.record_count, sealed.end_offset) == (len(items), 40 + len(items))
        assert (sealed.min_timestamp, sealed.max_timestamp) == (min(times), max(times))
        assert sealed.offset_of_max_timestamp == 40 + times.index(max(times))

    @given(st.lists(st.integers(0, 50), min_size=1), st.integers(62, 120))
    def test_lateness_is_the_worst_step_back(self, times: list[int], limit: int) -> None:
        made = encode([Record(time, None, b"value") for time in times], limit=limit)
        sealed = seal(0, made.table, np.zeros(len(made.table), bool))
        worst = max(max(times[: i + 1]) - time for i, time in enumerate(times))
        assert sealed.max_lateness_ms == worst

    def test_negative_interval_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="interval"):
            IndexPolicy(-1)


class TestIndexes:
    @given(st.lists(st.integers(0, 2**31 - 1), unique=True).map(sorted), st.data())
    def test_offset_lookup_is_the_floor(self, relative: list[int], data: st.DataObject) -> None:
        base = data.draw(st.integers(0, 2**40))
        positions = np.arange(len(relative)) * 10
        built = OffsetIndex.build(base, np.array(relative, np.int64) + base, positions)
        found = OffsetIndex.decode(base, built.encode())
        found.check(built.encode())
        for probe in {-1, 0, 2**31, *relative, *(r + 1 for r in relative)}:
            floor = [r for r in relative if r <= probe]
            want = (base + floor[-1], 10 * (len(floor) - 1)) if floor else (base, 0)
            assert offset_floor(found, base + probe) == want
            fetch = OffsetEntry(base, probe % 200)
            above = [
                (base + r, 10 * i) for i, r in enumerate(relative) if 10 * i >= probe % 200 + 7
            ]
            assert upper_bound(found, fetch, 7) == (above[0] if above else None)

    @given(st.lists(st.tuples(st.integers(-1, 99), st.integers(0, 2**31 - 1)), max_size=30))
    def test_time_lookup_is_the_floor(self, points: list[tuple[int, int]]) -> None:
        times = sorted(time for time, _ in points)
        offsets = sorted(offset for _, offset in points)
        built = TimeIndex.build(7, np.array(times, np.int64), np.array(offsets, np.int64) + 7)
        found = TimeIndex.decode(7, built.encode())
        kept: list[tuple[int, int]] = []
        for time, offset in zip(times, offsets, strict=True):
            if time > (kept[-1][0] if kept else -1):
                kept.append((time, offset + 7))
        assert time_entries(found) == kept
        for probe in range(-2, 102):
            floor = [entry for entry in kept if entry[0] <= probe]
            assert time_floor(found, probe) == (floor[-1] if floor else (-1, 7))
        assert last_time(found) == (kept[-1] if kept else (-1, 7))

    @given(st.binary(max_size=100), st.integers(0, 2**40))
    def test_random_bytes(self, data: bytes, base: int) -> None:
        offsets, times = OffsetIndex.decode(base, data), TimeIndex.decode(base, data)
        assert (len(offsets), len(times)) == (len(data) // 8, len(data) // 12)
        for built in (offsets, times):
            try:
                built.check(data)
            except CorruptData:
                continue
            assert len(data) % (len(built.encode()) // max(len(built), 1) or 1) == 0

    @pytest.mark.parametrize("position", [-1, 2**31])
    def test_positions_that_an_entry_cannot_hold(self, position: int) -> None:
        with pytest.raises(CorruptData, match="position"):
            OffsetIndex.build(0, np.array([1]), np.array([position]))


def whole(zones: zonemap.ZoneMap) -> list[tuple[int, ...]]:
    columns = (zones.relative_offsets, zones.positions, zones.ends, zones.min_timestamps,
               zones.max_timestamps)  # fmt: skip
    return list(zip(*(column.tolist() for column in columns), strict=True))


def big_table(blocks: int) -> np.ndarray:
    return table_of([Row(70, i, i, (i * 7919) % 1000) for i in range(blocks)])


class TestZoneMap:
    @given(st.lists(st.lists(stamps, min_size=1, max_size=4), max_size=20), st.data())
    def test_blocks_bound_their_records(
        self, batches: list[list[int]], data: st.DataObject
    ) -> None:
        items = [Record(time, None, bytes(i % 9)) for i, b in enumerate(batches) for time in b]
        made = encode(items, limit=data.draw(st.integers(62, 200)), base_offset=30)
        chosen = data.draw(
            st.lists(st.booleans(), min_size=len(made.table), max_size=len(made.table))
        )
        indexed = np.array(chosen, bool)
        indexed[:1] = False
        zones = zonemap.build(30, made.table, indexed)
        data_of = zonemap.encode(zones)
        assert whole(zonemap.decode(data_of)) == whole(zones)
        starts = [i for i in range(len(made.table)) if i == 0 or indexed[i]]
        ends = [*starts[1:], len(made.table)]
        for zone, start, end in zip(whole(zones), starts, ends, strict=False):
            rows = made.table[start:end]
            first, last = int(rows["base_offset"][0]) - 30, int(rows["last_offset"][-1]) - 30
            times = [item.timestamp for item in items[first : last + 1]]
            stop = int(rows["position"][-1] + rows["size"][-1])
            assert zone == (first, int(rows["position"][0]), stop, min(times), max(times))
        assert len(zones) == (len(starts) if items else 0)

    @pytest.mark.parametrize("blocks", [0, 1, 511, 512, 513, 1500, 2730, 2731, 2944, 2**14 + 1])
    def test_fences_and_entries_are_the_whole(self, blocks: int) -> None:
        table = big_table(blocks)
        zones = zonemap.build(0, table, np.ones(blocks, bool))
        data = zonemap.encode(zones)
        fences = zonemap.decode_fences(data[: zonemap.head_bytes(data)])
        assert fences.block_count == blocks
        head = zonemap.head_bytes(data)
        assert head <= zonemap.head_bytes_at_most(len(data)) <= max(2 * head, 1024)
        assert fences.log_bytes == 70 * blocks
        rows, count = [], len(fences.rows)
        for fence in range(count):
            start, end = fences.entries_range(fence, fence)
            part = zonemap.decode_entries(data[start:end], fences, fence, fence)
            assert fences.rows["min_timestamp"][fence] == part.min_timestamps.min()
            assert fences.rows["max_timestamp"][fence] == part.max_timestamps.max()
            assert fences.rows["relative_offset"][fence] == part.relative_offsets[0]
            assert fences.rows["position"][fence] == part.positions[0]
            rows += whole(part)
        assert rows == whole(zonemap.decode(data)) == whole(zones)
        if count:
            assert fences.entries_range(0, count - 1) == (zonemap.head_bytes(data), len(data))

    def test_every_flipped_byte_and_truncation(self) -> None:
        data = zonemap.encode(zonemap.build(0, big_table(5), np.ones(5, bool)))
        for at in range(len(data)):
            damaged = bytearray(data)
            damaged[at] ^= 0x41
            with pytest.raises(CorruptData):
                zonemap.decode(bytes(damaged))
            with pytest.raises(CorruptData):
                zonemap.decode(data[:at])

    @given(st.binary(max_size=200), st.booleans())
    def test_random_bytes(self, data: bytes, begins_right: bool) -> None:
        for read in (zonemap.decode, zonemap.decode_fences):
            with pytest.raises(CorruptData):
                read(b"SLZM\1\0" + data if begins_right else data)

    def test_emptied_batches_and_other_tables(self) -> None:
        table = big_table(4)
        table["count"][1:3] = 0
        table["min_timestamp"][1:3] = -1
        zones = zonemap.build(0, table, np.array([False, True, False, True]))
        highs = table["max_timestamp"].tolist()
        assert zones.min_timestamps.tolist() == [highs[0], max(highs[1:3]), highs[3]]
        assert zones.max_timestamps.tolist() == [highs[0], max(highs[1:3]), highs[3]]
        log = encode([Record(1, None, b"v")]).data
        scanned = scan_batches(log)
        assert scanned["min_timestamp"].tolist() == [UNKNOWN]
        with pytest.raises(ValueError, match="Decode the batches"):
            zonemap.build(0, scanned, np.zeros(1, bool))
        table["size"] = 2**30
        with pytest.raises(CorruptData, match="larger"):
            zonemap.build(0, table, np.zeros(4, bool))
