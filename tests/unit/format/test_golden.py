"""Segments that Kafka itself wrote: read here, compared with what Kafka reads, re-indexed here.

Their zone maps in tests/golden/zonemaps-1 are what version 1 of the format wrote; they stay.
"""

import base64
import json
import struct
from pathlib import Path
from typing import Any

import crc32c
import pytest

from seglake.errors import CorruptData
from seglake.format.batch import CODEC_MASK
from seglake.format.codecs.compression import NAMES
from seglake.format.decode import decode_batches, scan_batches
from seglake.format.index import IndexPolicy, OffsetIndex, TimeIndex
from seglake.format.segment import rebuild
from tests.judges import kafka_model as model
from tests.judges.described import describe
from tests.judges.index_lookups import offset_entries, time_entries
from tests.judges.kafka_model import Found, Record
from tests.unit.format.test_batch import encode, rows

FOLDER = Path(__file__).parents[2] / "golden" / "kafka-4.2.0"
SEGMENTS: dict[str, Any] = json.loads((FOLDER / "MANIFEST.json").read_text())["segments"]
VECTORS: dict[str, Any] = json.loads((FOLDER / "vectors.json").read_text())
READABLE = [name for name, segment in SEGMENTS.items() if segment["supported"]]
ZONE_MAPS = FOLDER.parent / "zonemaps-1"
REFUSED = [name for name in SEGMENTS if name not in READABLE]


def file(name: str, suffix: str) -> bytes:
    return (FOLDER / name / f"{SEGMENTS[name]['base_offset']:020d}.{suffix}").read_bytes()


def content(told: Any) -> bytes | None:
    if isinstance(told, dict):
        return base64.b64decode(told["repeat"]) * int(told["times"])
    return None if told is None else base64.b64decode(told)


def records_of(name: str) -> list[Found]:
    found = []
    for batch in SEGMENTS[name]["batches"]:
        kind = int(batch["timestamp_type"] == "LogAppendTime")
        for offset, time, key, value, headers in batch["records"]:
            pairs = tuple((k.encode(), content(v)) for k, v in headers)
            record = Record(time, content(key), content(value), pairs)
            found.append(Found(offset, kind, record))
    return found


@pytest.mark.parametrize("name", READABLE)
class TestReadable:
    def test_headers(self, name: str) -> None:
        for row, batch in zip(
            scan_batches(file(name, "log")), SEGMENTS[name]["batches"], strict=True
        ):
            for field in (
                "position", "size", "base_offset", "last_offset", "count", "max_timestamp"
            ):  # fmt: skip
                assert row[field] == batch[field]
            bits = int(row["attributes"])
            assert NAMES[bits & CODEC_MASK] == batch["codec"]
            assert bool(bits & 0x10) == batch["transactional"]
            assert bool(bits & 0x20) == batch["control"]

    def test_records(self, name: str) -> None:
        log = file(name, "log")
        table, want = scan_batches(log), records_of(name)
        assert rows(decode_batches(log, table, control=True)) == want
        markers = {
            record[0]
            for batch in SEGMENTS[name]["batches"]
            if batch["control"]
            for record in batch["records"]
        }
        plain = [found for found in want if found.offset not in markers]
        assert rows(decode_batches(log, table)) == plain

    def test_the_model_agrees(self, name: str) -> None:
        if not name.startswith("large"):
            assert model.read_log(file(name, "log")) == records_of(name)

    def test_indexes_are_kafkas_bytes(self, name: str) -> None:
        segment = SEGMENTS[name]
        policy = IndexPolicy(segment["index_interval_bytes"])
        sealed = rebuild(segment["base_offset"], describe(file(name, "log")), policy)
        assert sealed.files["index"] == file(name, "index")
        assert sealed.files["timeindex"] == file(name, "timeindex")
        assert sealed.files["zonemap"] == (ZONE_MAPS / f"{name}.zonemap").read_bytes()
        offsets = OffsetIndex.decode(segment["base_offset"], sealed.files["index"])
        times = TimeIndex.decode(segment["base_offset"], sealed.files["timeindex"])
        assert [list(entry) for entry in offset_entries(offsets)] == segment["offset_index"]
        assert [list(entry) for entry in time_entries(times)] == segment["time_index"]


@pytest.mark.parametrize("name", REFUSED)
def test_old_formats_are_refused_with_the_remedy(name: str) -> None:
    with pytest.raises(CorruptData, match=r"format [01] .* not supported. Let a Kafka broker"):
        scan_batches(file(name, "log"))


@pytest.mark.parametrize("name", VECTORS["batches"])
def test_vectors(name: str) -> None:
    data = bytes.fromhex(VECTORS["batches"][name])
    found = rows(decode_batches(data, scan_batches(data), control=True))
    assert found == model.read_log(data)


def many_blocks() -> bytes:
    """1,100 batches of a record, late ones and one without a timestamp among them."""
    times = [-1 if at == 700 else 1_700_000_000_000 + at * 37 % 1009 for at in range(1100)]
    return b"".join(
        encode([Record(time, None, b"%d" % at)], base_offset=5000 + at).data.tobytes()
        for at, time in enumerate(times)
    )


def test_a_zone_map_of_three_fences() -> None:
    log = many_blocks()
    table = describe(log)
    sealed = rebuild(5000, table, IndexPolicy(0))
    assert sealed.files["zonemap"] == (ZONE_MAPS / "many-blocks.zonemap").read_bytes()
    magic, version, span, blocks, fences, size, _crc, zero = struct.unpack_from(
        "<4sHHIIQII", sealed.files["zonemap"]
    )
    assert (magic, version, span, blocks, fences, size, zero) == (
        b"SLZM", 1, 512, 1100, 3, len(log), 0,
    )  # fmt: skip
    for fence, entries in enumerate((512, 512, 76)):
        at = 32 + 40 * fences + 24 * span * fence
        part = sealed.files["zonemap"][at : at + 24 * entries]
        low, high, offset, position, crc, _ = struct.unpack_from(
            "<qqqqII", sealed.files["zonemap"], 32 + 40 * fence
        )
        rows = list(struct.iter_unpack("<iiqq", part))
        assert (low, high) == (min(row[2] for row in rows), max(row[3] for row in rows))
        assert (offset, position) == rows[0][:2] == (span * fence, table["position"][span * fence])
        assert crc32c.crc32c(part) == crc
