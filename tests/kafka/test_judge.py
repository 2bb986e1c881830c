"""The judge judged: it agrees with the golden files, and it complains when it should."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.judges.kafka_judge import Kafka, record_from_json
from tests.kafka.make_golden import GOLDEN, checksum, describe, segments, vector_batches, vectors

MANIFEST: dict[str, dict[str, Any]] = json.loads((GOLDEN / "MANIFEST.json").read_text())["segments"]
SEGMENTS = segments()
CURRENT = [name for name, segment in SEGMENTS.items() if segment.supported]


def file(folder: Path, suffix: str) -> Path:
    return next(folder.glob(f"*{suffix}"))


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


# -------------------------------------------------------------------- complaints
