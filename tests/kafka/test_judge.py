"""The judge judged: it agrees with the golden files, and it complains when it should."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.judges.kafka_judge import Kafka, KafkaError, Record, record_from_json
from tests.kafka.make_golden import GOLDEN, checksum, describe, segments, vector_batches, vectors

MANIFEST: dict[str, dict[str, Any]] = json.loads((GOLDEN / "MANIFEST.json").read_text())["segments"]
SEGMENTS = segments()
CURRENT = [name for name, segment in SEGMENTS.items() if segment.supported]


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    """A copy of the golden segment of ten 72-byte batches, base 1000."""
    return shutil.copytree(GOLDEN / "reference", tmp_path / "reference")


def file(folder: Path, suffix: str) -> Path:
    return next(folder.glob(f"*{suffix}"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


# -------------------------------------------------------------------- the golden files


@pytest.mark.parametrize("name", SEGMENTS)
def test_kafka_still_reads_a_golden_segment_as_described(kafka: Kafka, name: str) -> None:
    again = json.loads(json.dumps(describe(kafka, GOLDEN / name, SEGMENTS[name])))
    assert again == MANIFEST[name]


@pytest.mark.parametrize("name", SEGMENTS)
def test_kafka_still_writes_a_golden_segment(kafka: Kafka, name: str, tmp_path: Path) -> None:
    segment = SEGMENTS[name]
    interval = segment.index_interval_bytes
    kafka.write_segment(
        tmp_path, segment.base_offset, segment.batches, index_interval_bytes=interval
    )
    batches = MANIFEST[name]["batches"]
    written = [record_from_json(record) for batch in batches for record in batch["records"]]
    again = kafka.read_batches(file(tmp_path, ".log"))
    assert [record for batch in again for record in batch.records] == written
    if all(batch["codec"] == "none" for batch in batches):
        assert {path.name: checksum(path) for path in tmp_path.iterdir()} == MANIFEST[name]["files"]


@pytest.mark.parametrize("name", CURRENT)
def test_recovery_rebuilds_the_golden_indexes(kafka: Kafka, name: str, tmp_path: Path) -> None:
    folder = shutil.copytree(GOLDEN / name, tmp_path / name)
    file(folder, ".index").unlink()
    file(folder, ".timeindex").write_bytes(b"not an index")
    segment = SEGMENTS[name]
    interval = segment.index_interval_bytes
    assert kafka.recover(folder, segment.base_offset, index_interval_bytes=interval) == 0
    files = {path.name: checksum(path) for path in folder.iterdir() if path.suffix != ".txnindex"}
    assert files == MANIFEST[name]["files"]


@pytest.mark.parametrize("name", [n for n in CURRENT if n not in {"compacted", "no-timestamps"}])
def test_dump_log_segments_has_no_complaint(kafka: Kafka, name: str) -> None:
    dump = kafka.dump(*sorted((GOLDEN / name).iterdir()))
    entry = MANIFEST[name]
    assert len(dump.batches) == len(entry["batches"])
    assert len(dump.records) == sum(len(batch["records"]) for batch in entry["batches"])
    assert len(dump.entries) == len(entry["offset_index"]) + len(entry["time_index"])


def test_known_bytes(kafka: Kafka, reference: Path) -> None:
    assert file(reference, ".index").read_bytes() == bytes.fromhex(
        "0000000200000090 0000000400000120 00000006000001b0 0000000800000240"
    )
    assert file(reference, ".timeindex").read_bytes() == bytes.fromhex(
        "000000000000003c00000002 000000000000004600000005"
        "000000000000005000000007 000000000000005a00000009"
    )
    assert kafka.crc32c(b"123456789") == 0xE3069283
    assert kafka.murmur2([b"foobar"]) == [-790332482]


def test_vectors_are_kafkas(kafka: Kafka, tmp_path: Path) -> None:
    stored = json.loads((GOLDEN / "vectors.json").read_text())
    again = json.loads(json.dumps(vectors(kafka)))
    for name, batch in vector_batches().items():
        if batch.codec == "none":
            assert stored["batches"].pop(name) == again["batches"].pop(name)
            continue
        log = tmp_path / name
        log.write_bytes(bytes.fromhex(stored["batches"].pop(name)))
        assert kafka.read_records(log) == list(batch.records)
        again["batches"].pop(name)
    assert stored == again


# -------------------------------------------------------------------- answers


@pytest.mark.parametrize("name", ["reference", "codec-zstd", "log-append-time"])
def test_a_time_is_the_first_record_in_offset_order(kafka: Kafka, name: str) -> None:
    folder, base = GOLDEN / name, SEGMENTS[name].base_offset
    records = kafka.read_records(file(folder, ".log"))
    times = sorted({record.timestamp + step for record in records for step in (-1, 0, 1)})
    for start in (base, base + 3, records[-1].offset):
        wanted = [first_at(records, time, start) for time in times]
        assert kafka.find_by_timestamp(folder, base, times, starting_offset=start) == wanted


def first_at(records: list[Record], time: int, start: int) -> tuple[int, int] | None:
    for record in records:
        if record.timestamp >= time and record.offset >= start:
            return record.timestamp, record.offset
    return None


def test_index_lookups(kafka: Kafka, reference: Path) -> None:
    index, time_index = file(reference, ".index"), file(reference, ".timeindex")
    offsets = kafka.offset_index_lookup(index, 1000, [999, 1000, 1003, 1009])
    assert offsets == [(1000, 0), (1000, 0), (1002, 144), (1008, 576)]
    assert kafka.time_index_lookup(time_index, 1000, [59, 79]) == [(-1, 1000), (70, 1005)]
    assert kafka.find_by_offset(reference, 1000, [1003, 1010]) == [(1003, 216), None]


# -------------------------------------------------------------------- complaints


def test_every_flipped_byte_under_the_crc_is_found(kafka: Kafka, reference: Path) -> None:
    log = file(reference, ".log")
    for position in [start + inside for start in range(0, 720, 144) for inside in range(17, 72, 9)]:
        flip(log, position)
        with pytest.raises(KafkaError, match="CorruptRecordException"):
            kafka.read_batches(log)
        with pytest.raises(KafkaError):
            kafka.dump(log)
        flip(log, position)
    assert len(kafka.read_batches(log)) == 10


@pytest.mark.parametrize(("suffix", "position"), [(".index", 3), (".timeindex", 7)])
def test_dump_finds_a_wrong_index_entry(
    kafka: Kafka, reference: Path, suffix: str, position: int
) -> None:
    flip(file(reference, suffix), position)
    with pytest.raises(KafkaError, match="DumpLogSegments"):
        kafka.dump(*reference.iterdir())
    assert kafka.dump(*reference.iterdir(), verify=False).problems
