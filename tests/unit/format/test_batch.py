"""Record batches against the model: encoding byte by byte, decoding, and every kind of damage."""

import itertools
import random
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seglake.errors import ConfigError, CorruptData, InputError
from seglake.format.batch import CODEC_MASK, UNKNOWN
from seglake.format.codecs import native
from seglake.format.codecs.compression import IDS, compressor, decompress
from seglake.format.codecs.payload import Payload, payload_of
from seglake.format.decode import Decoded, decode_batches, scan, scan_batches, with_extremes
from seglake.format.encode import (
    Bodies,
    EncodedBatches,
    Encoding,
    encode_batches,
    encode_bodies,
    rebase,
    restamp,
)
from seglake.format.records import Headers, Records, Spans, read_only
from seglake.limits import INT64_MAX
from seglake.log import block_kernels as kernels
from tests.judges import kafka_model as model
from tests.judges.kafka_model import CODECS, Found, Record
from tests.makers.strategies import examples

fields = st.none() | st.binary(max_size=40) | st.integers(60, 70).map(bytes)
timestamps = st.just(-1) | st.integers(0, 2**41) | st.integers(1_000, 1_100)
headers = st.lists(st.tuples(st.binary(max_size=5), fields), max_size=3).map(tuple)
records = st.builds(Record, timestamps, fields, fields, st.just(()) | headers)
record_lists = st.lists(records, max_size=30)
codecs = st.sampled_from(CODECS)
append_times = st.none() | st.integers(0, 2**41)


def columns(items: list[Record], *, spread: bool = False) -> Records:
    """The records as columns; `spread` keeps headers although no record has one."""
    pairs = [pair for item in items for pair in item.headers]
    firsts = np.cumsum([0] + [len(item.headers) for item in items])
    found = Headers(
        firsts, Spans.from_list([k for k, _ in pairs]), Spans.from_list([v for _, v in pairs])
    )
    return Records(
        np.array([item.timestamp for item in items], np.int64),
        Spans.from_list([item.key for item in items]),
        Spans.from_list([item.value for item in items]),
        found if pairs or spread else None,
    )


def encoding(codec: str, limit: int = 16384, append_time: int | None = None) -> Encoding:
    return Encoding(compressor(codec), IDS[codec], limit, append_time)


def compressed(codec: str, data: bytes) -> bytes:
    compress = compressor(codec)
    assert compress is not None
    return bytes(compress(data))


def encode(
    items: list[Record],
    codec: str = "none",
    limit: int = 16384,
    base_offset: int = 0,
    append_time: int | None = None,
) -> EncodedBatches:
    data = columns(items)
    bodies = encode_bodies(data, np.arange(len(items)))
    chosen = encoding(codec, limit, append_time)
    return encode_batches(data.timestamps, bodies, chosen, base_offset=base_offset)


def rows(decoded: Decoded) -> list[Found]:
    data = decoded.records
    keys, values = data.keys.tolist(), data.values.tolist()
    owned: list[tuple[Any, ...]] = [()] * len(data)
    if data.headers is not None:
        pairs = list(zip(data.headers.keys.tolist(), data.headers.values.tolist(), strict=True))
        bounds = itertools.pairwise(data.headers.firsts.tolist())
        owned = [tuple(pairs[start:end]) for start, end in bounds]
    each = zip(data.timestamps.tolist(), keys, values, owned, strict=True)
    made = [Record(*fields) for fields in each]
    places = zip(decoded.offsets.tolist(), decoded.timestamp_types.tolist(), made, strict=True)
    return [Found(*place) for place in places]


def read(data: Any, **options: Any) -> list[Found]:
    decoded = decode_batches(data, scan_batches(data), **options)
    if not options.get("control"):  # the quick way leaves control batches out
        check_heads(data, decoded)
    return rows(decoded)


def texts_of(payload: Payload) -> list[Any]:
    return Spans(payload.data, payload.starts, payload.ends - payload.starts).tolist()


def check_heads(data: Any, decoded: Decoded) -> None:
    """The kernel of lookups finds the same as the way for many batches, if it is for that codec."""
    room, table, log = kernels.LookupRoom.new(), scan_batches(data), read_only(data)
    addresses, known, limits = native.addresses(), room.outline, (-INT64_MAX, INT64_MAX)
    if (table["base_offset"][1:] <= table["last_offset"][:-1]).any():
        return  # as in no log
    assert kernels.put_outline(log, *limits, addresses, known)
    batches = known[kernels.FIRST :][: len(table) * kernels.FIELDS].reshape(-1, kernels.FIELDS)
    for number, row in enumerate(table):
        names = {"position": kernels.POSITION, "size": kernels.SIZE, "count": kernels.RECORDS,
                 "base_offset": kernels.BASE_OFFSET, "last_offset": kernels.LAST_OFFSET,
                 "max_timestamp": kernels.MAX_TIMESTAMP}  # fmt: skip
        assert all(batches[number, field] == row[name] for name, field in names.items())
        place = kernels.FIRST + number * kernels.FIELDS
        if not kernels.read_times(log, place, room, addresses):
            native.renew()
            assert row["attributes"] & CODEC_MASK in (1, 2, 3)  # gzip, snappy; lz4 of many frames
            return
        start, count = batches[number, [kernels.TIMES, kernels.RECORDS]].tolist()
        times = known[start : start + 3 * count].reshape(3, -1).tolist()
        of_batch = decoded.batch == number
        stamps = decoded.records.timestamps[of_batch]
        assert times[:2] == [decoded.offsets[of_batch].tolist(), stamps.tolist()]
        assert times[2] == np.maximum.accumulate(stamps).tolist()


class TestEncoding:
    @given(record_lists, st.integers(62, 400), st.integers(0, 2**40), append_times)
    def test_bytes_are_the_models(
        self, items: list[Record], limit: int, base_offset: int, append_time: int | None
    ) -> None:
        made = encode(items, "none", limit, base_offset, append_time)
        assert made.data.tobytes() == model.log_bytes(items, base_offset, limit, append_time)

    @given(record_lists, codecs, st.integers(62, 400), append_times)
    def test_the_model_reads_what_was_written(
        self, items: list[Record], codec: str, limit: int, append_time: int | None
    ) -> None:
        made = encode(items, codec, limit, 7, append_time)
        kind = int(append_time is not None)
        stamped = [
            item if append_time is None else item._replace(timestamp=append_time) for item in items
        ]
        want = [Found(7 + i, kind, item) for i, item in enumerate(stamped)]
        assert model.read_log(made.data.tobytes()) == want
        assert read(made.data) == want

    @given(record_lists, codecs, st.integers(62, 400), append_times)
    def test_table_tells_what_reading_finds(
        self, items: list[Record], codec: str, limit: int, append_time: int | None
    ) -> None:
        made = encode(items, codec, limit, 5, append_time)
        scanned = scan_batches(made.data)
        for name in ("min_timestamp", "offset_of_max", "lateness"):
            assert (scanned[name] == UNKNOWN).all()
        complete = with_extremes(scanned, decode_batches(made.data, scanned))
        assert complete.tolist() == made.table.tolist()

    @given(record_lists, st.integers(62, 400))
    def test_table_against_brute_force(self, items: list[Record], limit: int) -> None:
        table, first = encode(items, "none", limit, 3).table, 0
        for row, batch in zip(table, model.cut(items, limit), strict=True):
            stamps = [item.timestamp for item in batch]
            assert row["count"] == len(batch)
            assert (row["base_offset"], row["last_offset"]) == (3 + first, 2 + first + len(batch))
            assert (row["min_timestamp"], row["max_timestamp"]) == (min(stamps), max(stamps))
            assert row["offset_of_max"] == 3 + first + stamps.index(max(stamps))
            late = [max(stamps[: i + 1]) - t for i, t in enumerate(stamps) if t >= 0]
            assert row["lateness"] == max(late, default=0)
            first += len(batch)

    @given(record_lists, st.randoms(use_true_random=False), st.booleans())
    def test_order_chooses_and_repeats(
        self, items: list[Record], chance: random.Random, spread: bool
    ) -> None:
        order = [chance.randrange(len(items)) for _ in items]
        bodies = encode_bodies(columns(items, spread=spread), np.array(order, np.int64))
        chosen = [items[i] for i in order]
        stamps = np.array([item.timestamp for item in chosen], np.int64)
        made = encode_batches(stamps, bodies, encoding("none"))
        assert made.data.tobytes() == model.log_bytes(chosen, 0, 16384)

    @given(record_lists, st.data())
    def test_bodies_can_stand_anywhere(self, items: list[Record], data: st.DataObject) -> None:
        order = data.draw(st.permutations(range(len(items))))
        bodies = encode_bodies(columns(items), np.arange(len(items))).take(np.array(order, int))
        chosen = [items[i] for i in order]
        stamps = np.array([item.timestamp for item in chosen], np.int64)
        made = encode_batches(stamps, bodies, encoding("none", 200))
        assert made.data.tobytes() == model.log_bytes(chosen, 0, 200)

    @pytest.mark.parametrize("codec", CODECS)
    def test_large_values_of_every_kind(self, codec: str) -> None:
        noise = random.Random(5).randbytes(200 * 1024)
        items = [
            Record(1, None, noise), Record(2, b"k", bytes(300_000)), Record(3, noise, None),
            Record(4, b"", b"", ((b"h", None), (b"", noise))),
        ]  # fmt: skip
        made = encode(items, codec, 100_000)
        assert [found.record for found in model.read_log(made.data.tobytes())] == items
        assert [found.record for found in read(made.data)] == items

    def test_all_widths_of_lengths_and_deltas(self) -> None:
        stamps = [0, 2**62, 1, 2**31, 2**33, 0, 127, 128, 2**55]
        lengths = [0, 63, 64, 65, 8191, 8192, 3, 1, 2]
        pairs = zip(stamps, lengths, strict=True)
        items = [Record(time, bytes(length), bytes(length)) for time, length in pairs]
        made = encode(items, limit=10**6)
        assert made.data.tobytes() == model.log_bytes(items, 0, 10**6)
        assert [found.record for found in read(made.data)] == items

    def test_kernels_do_not_care_where_arrays_come_from(self) -> None:
        items = [Record(i, b"k%d" % i, b"v") for i in range(9)]
        data = columns(items)
        frozen = np.frombuffer(data.values.data.tobytes(), np.uint8)
        strided = np.repeat(data.timestamps, 2)[::2]
        keys = Spans(data.keys.data.copy(), np.repeat(data.keys.starts, 3)[::3], data.keys.lengths)
        values = Spans(frozen, data.values.starts, data.values.lengths)
        bodies = encode_bodies(Records(strided, keys, values), np.repeat(np.arange(9), 2)[::2])
        made = encode_batches(strided, bodies, encoding("none"))
        assert made.data.tobytes() == model.log_bytes(items, 0, 16384)
        view: Any = made.data
        for holder in (made.data.tobytes(), bytearray(view), memoryview(view)):
            assert [found.record for found in read(holder)] == items

    def test_a_batch_that_no_reader_would_take_is_refused(self) -> None:
        sizes = np.array([600 * 2**20])
        with pytest.raises(ConfigError, match=r"batch\.size"):
            encode_batches(
                sizes, Bodies(sizes - sizes, sizes, np.empty(0, np.uint8)), encoding("none")
            )

    def test_a_header_without_a_key_is_refused(self) -> None:
        items = columns([Record(1, None, None, ((b"h", None),))])
        assert items.headers is not None
        nameless = items.headers._replace(keys=Spans.nulls(1))
        with pytest.raises(InputError, match="has no key"):
            encode_bodies(replace(items, headers=nameless), np.arange(1))


class TestMoving:
    @given(record_lists, codecs, st.integers(-50, 2**40), st.integers(62, 300))
    def test_rebase_is_encoding_at_another_offset(
        self, items: list[Record], codec: str, delta: int, limit: int
    ) -> None:
        moved = rebase(*encode(items, codec, limit, 50)[:2], delta)
        want = encode(items, codec, limit, 50 + delta)
        assert moved.table.tolist() == want.table.tolist()
        if codec == "none":
            assert moved.data.tobytes() == want.data.tobytes()
        assert read(moved.data) == read(want.data)

    @given(record_lists, codecs, st.integers(0, 2**41), st.integers(62, 300))
    def test_restamp_is_encoding_at_another_time(
        self, items: list[Record], codec: str, time: int, limit: int
    ) -> None:
        moved = restamp(encode(items, codec, limit, 5, 1), time)
        want = encode(items, codec, limit, 5, time)
        assert moved.table.tolist() == want.table.tolist()
        if codec == "none":
            assert moved.data.tobytes() == want.data.tobytes()
        assert read(moved.data) == read(want.data)

    def test_a_part_of_a_file_moves_like_the_whole(self) -> None:
        made = encode([Record(i, None, b"v") for i in range(20)], limit=100)
        start = int(made.table["position"][3])
        moved = rebase(made.data[start:], made.table[3:], 100)
        whole = rebase(made.data, made.table, 100)
        assert moved.data.tobytes() == whole.data[start:].tobytes()


class TestSelecting:
    @given(record_lists, codecs, st.data())
    def test_any_batches_of_a_file(
        self, items: list[Record], codec: str, data: st.DataObject
    ) -> None:
        made = encode(items, codec, 120)
        table, _ = scan(made.data, base_position=1000)
        assert (table["position"] == made.table["position"] + 1000).all()
        table = scan_batches(made.data)
        kept = data.draw(st.lists(st.booleans(), min_size=len(table), max_size=len(table)))
        decoded = decode_batches(made.data, table[np.array(kept, bool)])
        want = [
            found
            for found in read(made.data)
            if kept[int(np.searchsorted(table["last_offset"], found.offset))]
        ]
        assert rows(decoded) == want

    def test_batch_numbers_count_the_control_batches_left_out(self) -> None:
        plain = encode([Record(5, b"k", b"v")] * 2, base_offset=3)
        marker = model.batch_bytes(
            2, model.record_bytes(Record(4, b"\0\0\0\1", b""), 4, 0),
            last_delta=0, base_timestamp=4, max_timestamp=4, count=1, attributes=0x30,
        )  # fmt: skip
        log = marker + plain.data.tobytes()
        table = scan_batches(log)
        assert decode_batches(log, table).batch.tolist() == [1, 1]
        assert decode_batches(log, table, control=True).batch.tolist() == [0, 1, 1]

    def test_a_table_of_other_bytes_is_refused(self) -> None:
        made = encode([Record(1, b"k", b"v")] * 4, limit=70)
        for data, shift in ((made.data[:-1], 0), (b"", 0), (made.data, 1), (made.data, -1)):
            table = made.table.copy()
            table["position"] += shift
            with pytest.raises(CorruptData):
                decode_batches(data, table, check_crc=False)


moments = st.integers(-5, 2**63 - 1)


class TestChoosing:
    @given(record_lists, codecs, st.integers(62, 400), append_times, st.data())
    def test_some_records_of_all(
        self, items: list[Record], codec: str, limit: int, append_time: int | None,
        data: st.DataObject,
    ) -> None:  # fmt: skip
        made = encode(items, codec, limit, 3, append_time)
        whole = decode_batches(made.data, scan_batches(made.data))
        order = np.array(data.draw(st.permutations(range(len(items)))), np.int64)[::2]
        assert rows(whole.take(order)) == [rows(whole)[row] for row in order]

    @given(record_lists, codecs, st.integers(62, 400), st.integers(0, 2_000))
    def test_parts_end_with_the_batch_that_makes_enough(
        self, items: list[Record], codec: str, limit: int, enough: int
    ) -> None:
        made = encode(items, codec, limit)
        table = scan_batches(made.data)
        log = read_only(made.data)
        whole = texts_of(payload_of(log, table))
        some = texts_of(payload_of(log, table, enough_bytes=enough))
        assert some == whole[: len(some)]
        assert some or not whole
        assert sum(map(len, some[:-1])) < max(1, enough)
        assert len(some) == len(whole) or sum(map(len, some)) >= enough


def small_log(codec: str) -> bytes:
    items = [
        Record(1_000, b"key", b"some value, some value"), Record(990, None, b"v"),
        Record(1_001, b"k", None, ((b"h", b"x"), (b"i", None))), Record(1_002, b"", b"tail" * 4),
    ]  # fmt: skip
    return encode(items, codec, 110, 3).data.tobytes()


UNCOVERED = {*range(8), *range(12, 16)}  # base offset and leader epoch stand outside the CRC


class TestDamage:
    @pytest.mark.parametrize("codec", CODECS)
    def test_every_truncation(self, codec: str) -> None:
        log = small_log(codec)
        bounds = [0, *(scan_batches(log)["position"] + scan_batches(log)["size"]).tolist()]
        for end in range(len(log)):
            whole = max(bound for bound in bounds if bound <= end)
            part = log[:end]
            if end in bounds:
                assert read(part) == [f for f in read(log) if f in read(log[:whole])]
                continue
            with pytest.raises(CorruptData, match=f"at byte {whole}: "):
                scan_batches(part)
            table, damage = scan(part)
            assert damage is not None
            assert damage.cut_short
            assert table.tolist() == scan_batches(log[:whole]).tolist()

    @pytest.mark.parametrize("codec", CODECS)
    def test_every_flipped_byte(self, codec: str) -> None:
        log = small_log(codec)
        table, whole = scan_batches(log), read(log)
        for at, mask in itertools.product(range(len(log)), (1, 0x80, 0xFF)):
            damaged = bytearray(log)
            damaged[at] ^= mask
            batch = int(np.searchsorted(table["position"], at, "right")) - 1
            inside = at - int(table["position"][batch])
            found, position = attempt(bytes(damaged))
            if not found:
                assert int(table["position"][batch]) <= position <= len(log)
                continue
            assert inside in UNCOVERED
            assert [f.record for f in found] == [f.record for f in whole]
            assert inside < 8 or found == whole

    @pytest.mark.parametrize("codec", CODECS)
    @given(st.data())
    @examples(200)
    def test_damage_that_the_crc_does_not_see(self, codec: str, data: st.DataObject) -> None:
        # flip bytes and correct the CRC: what is left to find it are the lengths
        log = encode([Record(9, b"key", b"v" * 9, ((b"h", b"x"),))] * 3, codec).data.tobytes()
        places = st.sampled_from([*range(21, 43), *range(57, len(log))])
        damaged = bytearray(log)
        for at in data.draw(st.lists(places, min_size=1, max_size=3)):
            damaged[at] = data.draw(st.integers(0, 255))
        decode_or_refuse(model.fix_crc(bytes(damaged)))

    @given(st.data())
    def test_the_model_refuses_the_same_records(self, data: st.DataObject) -> None:
        log = encode([Record(9, b"key", b"v" * 9, ((b"h", b"x"),))] * 3).data.tobytes()
        damaged = bytearray(log)
        for at in data.draw(st.lists(st.integers(61, len(log) - 1), min_size=1, max_size=2)):
            damaged[at] = data.draw(st.integers(0, 255))
        fixed = model.fix_crc(bytes(damaged))
        try:
            want = model.read_log(fixed)
        except model.Invalid:
            with pytest.raises(CorruptData):
                read(fixed)
            return
        deltas = [found.offset for found in want]
        if deltas == sorted(set(deltas)) and deltas[0] >= 0 and deltas[-1] <= 2:
            assert [wrap(found) for found in want] == read(fixed)
        else:  # Kafka's consumers trust the offsets; we do not
            with pytest.raises(CorruptData):
                read(fixed)

    @given(st.binary(max_size=300))
    @example(bytes(30))
    def test_random_bytes(self, data: bytes) -> None:
        decode_or_refuse(data)

    @given(st.binary(max_size=150), st.integers(0, 7), st.integers(0, 2**31 - 1))
    def test_random_payloads(self, payload: bytes, codec: int, count: int) -> None:
        log = model.batch_bytes(
            0, payload, last_delta=2**31 - 1, base_timestamp=0, max_timestamp=0, count=count,
            attributes=codec,
        )  # fmt: skip
        decode_or_refuse(log)

    @given(st.sampled_from([1, 2, 3, 4]), st.binary(max_size=2000), st.data())
    def test_damaged_streams(self, codec: int, content: bytes, data: st.DataObject) -> None:
        stream = bytearray(compressed(CODECS[codec], content))
        for at in data.draw(st.lists(st.integers(0, len(stream) - 1), max_size=3)):
            stream[at] = data.draw(st.integers(0, 255))
        kept = data.draw(st.integers(0, len(stream)))
        with suppress(CorruptData):
            assert len(decompress(codec, bytes(stream[:kept]), 10_000)) <= 10_000

    @pytest.mark.parametrize("codec", [1, 2, 3, 4])
    def test_streams_that_end_early(self, codec: int) -> None:
        stream = compressed(CODECS[codec], b"some content " * 9)
        for end in range(len(stream)):
            if codec != 2 or end != 16:  # xerial framing has no end: a header alone is empty
                with pytest.raises(CorruptData):
                    decompress(codec, stream[:end], 10_000)

    @pytest.mark.parametrize(("base", "delta"), [(2**63 - 3, 3), (2**63, 0), (0, 2**31)])
    def test_offsets_that_no_log_has(self, base: int, delta: int) -> None:
        log = model.batch_bytes(
            base, b"", last_delta=delta, base_timestamp=0, max_timestamp=0, count=0
        )
        with pytest.raises(CorruptData, match="impossible offsets"):
            scan_batches(log)

    @pytest.mark.parametrize("codec", [1, 2, 3, 4])
    def test_bombs(self, codec: int) -> None:
        bomb = compressed(CODECS[codec], bytes(8 * 2**20))
        assert decompress(codec, bomb, 8 * 2**20) == bytes(8 * 2**20)
        with pytest.raises(CorruptData, match="more than"):
            decompress(codec, bomb, 2**20)

    @pytest.mark.parametrize("codec", [1, 4])
    def test_streams_of_several_members(self, codec: int) -> None:
        one, two = compressed(CODECS[codec], b"one"), compressed(CODECS[codec], b"two" * 9)
        assert decompress(codec, one + two, 100) == b"one" + b"two" * 9
        with pytest.raises(CorruptData):
            decompress(codec, one + two[:-1], 100)

    @pytest.mark.parametrize("codec", [0, 5, 7])
    def test_unknown_codecs(self, codec: int) -> None:
        with pytest.raises(CorruptData, match="unknown"):
            decompress(codec, b"", 10)

    def test_declared_sizes_are_not_believed(self) -> None:
        snappy = b"\xff\xff\xff\xff\x0f" + bytes(20)
        with pytest.raises(CorruptData):
            decompress(2, snappy, 2**62)
        zstd = b"\x28\xb5\x2f\xfd\xe0" + (2**40).to_bytes(8, "little") + b"\1\0\0"
        with pytest.raises(CorruptData):
            decompress(4, zstd, 2**62)

    def test_codec_names(self) -> None:
        with pytest.raises(ConfigError, match="none, gzip, snappy, lz4, zstd"):
            compressor("brotli")


def wrap(found: Found) -> Found:
    time = (found.record.timestamp + 2**63) % 2**64 - 2**63
    return found._replace(record=found.record._replace(timestamp=time))


def decode_or_refuse(data: bytes) -> None:
    found, position = attempt(data)
    assert 0 <= position <= len(data)
    assert all(f.offset >= 0 for f in found)


def attempt(data: bytes) -> tuple[list[Found], int]:
    """What can be read, or the position of the damage."""
    try:
        return read(data), 0
    except CorruptData as damage:
        room, log = kernels.LookupRoom.new(2**10, 2**16), read_only(data)
        addresses = native.addresses()
        kernels.read_first_reaching(log, room.outline[:0], 0, 0, 0, INT64_MAX, room, addresses)
        native.renew()
        return [], damage.position
