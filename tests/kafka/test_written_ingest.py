"""Kafka judges the segments of real ingests: raw files, the whole path but Spark."""

import json
import random
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from seglake.catalog.schema import SegmentRow
from seglake.config import Pipeline
from seglake.engine import LocalEngine
from seglake.format.codecs.compression import NAMES
from seglake.layout import SUFFIXES, new_attempt
from seglake.store import open_store
from seglake.write.driver.commit import RebaseTask
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.harness.tiers import rest_but_today
from tests.judges.kafka_judge import Header, Kafka, Record
from tests.kafka.test_written_segments import (
    accepted,
    assert_recovery_makes_the_same,
    folder_of,
    scratch_folder,
)
from tests.makers.lakes import open_catalog
from tests.makers.strategies import T

PARTITIONS = 3
INTERVAL = 300
KINDS = ["CreateTime", "LogAppendTime"]
TINY = {  # every file is cut, every blob overlaps others, every log partition has several pieces
    "split_bytes": 3000, "chunk_bytes": 1500, "blob_bytes": 700, "merge_bytes": 1500,
    "piece_bytes": 5000,
}  # fmt: skip


class Line(NamedTuple):
    """What a line of the input says, and its place in the order of arrival."""

    timestamp: int
    key: bytes | None
    headers: tuple[Header, ...]
    place: tuple[int, int]  # file and line


def make_input(folder: Path) -> dict[bytes, Line]:
    """Three files of events, late and equal times among them; by the bytes of each line."""
    chance, lines = random.Random(3), {}
    for number in range(3):
        content = []
        for at in range(250):
            event = {"ts": T + at * 20 - chance.choice((0, 0, 900)), "at": [number, at]}
            if chance.random() < 0.8:
                event["user"] = f"user-{chance.randrange(9)}"
            if chance.random() < 0.5:
                event["page"] = chance.choice(("/", "/größe", ""))
            text = json.dumps(event, ensure_ascii=False).encode()
            content.append(text)
            lines[text] = line_of(event)
        (folder / f"{number}.jsonl").write_bytes(b"\n".join([*content, b""]))
    return lines


def line_of(event: dict[str, Any]) -> Line:
    key, page = event.get("user"), event.get("page")
    header = ("page", None if page is None else page.encode())
    return Line(event["ts"], key and key.encode(), (header,), tuple(event["at"]))


def pipeline_of(root: Path, order: str, codec: str, timestamp_type: str) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "judged", "root": str(root / "lake"), "order": order, "task": TINY,
            "input": {"paths": [str(root / "input")], "format": "jsonl"},
            "timestamp": {"field": "ts", "format": "epoch_ms"},
            "key": {"fields": ["user"]},
            "headers": {"fields": ["page"]},
            "topic": {
                "name": "events", "partitions": PARTITIONS, "compression.type": codec,
                "message.timestamp.type": timestamp_type, "batch.size": 700,
                "segment.bytes": 6000, "index.interval.bytes": INTERVAL,
            },
        }
    )  # fmt: skip


def ingest(pipeline: Pipeline, run_id: str) -> list[SegmentRow]:
    """Ingest what is new; the rows of all segments that the topic then has."""
    ingest_files(LocalEngine(), pipeline, DeclaredRun(run_id))
    catalog = open_catalog(pipeline.root)
    return catalog.rows.segments(catalog.snapshot(), "events")


# -------------------------------------------------------------------- verdicts


def assert_row_is_true(kafka: Kafka, root: Path, row: SegmentRow, records: list[Record]) -> None:
    """What the catalog says of a segment and its files is what Kafka finds there."""
    for suffix in SUFFIXES:
        data = (root / row.key(suffix)).read_bytes()
        assert len(data) == getattr(row, f"{suffix}_bytes")
        assert kafka.crc32c(data) == getattr(row, f"{suffix}_crc32c")
    times = [record.timestamp for record in records]
    assert (row.base_offset, row.end_offset) == (records[0].offset, records[-1].offset + 1)
    assert (row.min_timestamp, row.max_timestamp) == (min(times), max(times))
    assert row.offset_of_max_timestamp == records[times.index(max(times))].offset
    assert row.record_count == len(records)
    newest = accumulate(times, max)
    assert row.max_lateness_ms == max(top - time for top, time in zip(newest, times, strict=True))


def judged(kafka: Kafka, root: Path, rows: list[SegmentRow]) -> dict[int, list[Record]]:
    """The records of each partition, after Kafka found no fault with any file."""
    found: dict[int, list[Record]] = {}
    for partition in range(PARTITIONS):
        segments = [row for row in rows if row.partition == partition]
        assert len(segments) > 1
        folder = folder_of(root, segments)
        found[partition] = accepted(kafka, folder)
        assert_recovery_makes_the_same(kafka, folder, INTERVAL)
        base = segments[0].base_offset
        for row in segments:
            inside = found[partition][row.base_offset - base : row.end_offset - base]
            assert_row_is_true(kafka, root, row, inside)
    return found


def assert_nothing_is_lost(
    kafka: Kafka,
    lines: dict[bytes, Line],
    found: dict[int, list[Record]],
    order: str,
    stamp: int | None,
) -> None:
    """Every line is in one partition, its key's; in each the order is the promised one."""
    assert sorted(r.value or b"" for records in found.values() for r in records) == sorted(lines)
    for partition, records in found.items():
        assert [record.offset for record in records] == list(range(len(records)))
        told = [lines[record.value or b""] for record in records]
        assert [(r.timestamp, r.key, r.headers) for r in records] == [
            (line.timestamp if stamp is None else stamp, line.key, line.headers) for line in told
        ]
        places = [(line.timestamp * (order == "time"), *line.place) for line in told]
        assert places == sorted(places)
        hashes = kafka.murmur2([line.key for line in told if line.key is not None])
        assert {(each & 0x7FFFFFFF) % PARTITIONS for each in hashes} == {partition}


@pytest.mark.parametrize("order", ["time", "arrival"])
@pytest.mark.parametrize("codec", rest_but_today(NAMES, 2))
def test_an_ingest_and_its_move(kafka: Kafka, codec: str, order: str) -> None:
    stamped = (NAMES.index(codec) + (order == "time")) % 2
    with scratch_folder() as folder:
        root = Path(folder)
        (root / "input").mkdir()
        lines = make_input(root / "input")
        pipeline = pipeline_of(root, order, codec, KINDS[stamped])
        rows = ingest(pipeline, "1")
        stamp = rows[0].max_timestamp if stamped else None
        found = judged(kafka, root / "lake", rows)
        assert_nothing_is_lost(kafka, lines, found, order, stamp)

        deltas = {0: 1000, 1: 2**40}  # another run was first there, but not in partition 2
        later = rows[0].created_at_ms + 5
        moved = RebaseTask(open_store(pipeline.root), deltas, new_attempt(), later).run(
            LocalEngine(), rows
        )
        for partition, records in judged(kafka, root / "lake", moved).items():
            delta = deltas.get(partition, 0)
            assert records == [
                Record(r.offset + delta, later if stamped else r.timestamp, *r[2:])
                for r in found[partition]
            ]
