"""Kafka judges what the tasks of an ingest write: raw files to segments, without Spark around them."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.kafka.judge import Header, Kafka, Record
from tests.kafka.test_written_segments import (
    accepted,
    assert_recovery_makes_the_same,
    folder_of,
    scratch_folder,
)

from seglake.catalog.rows import SegmentRow
from seglake.config import Pipeline
from seglake.format.compression import NAMES
from seglake.ingest import plan, stages
from seglake.ingest.blob import BATCHES, RECORDS
from seglake.ingest.listing import list_inputs, plan_splits
from seglake.ingest.merge import count_before
from seglake.ingest.rebase import Move
from seglake.ingest.units import blobs_of_unit, dump_unit, group_splits, load_unit
from seglake.ingest.write import Piece
from seglake.layout import SUFFIXES, SegmentFile, new_attempt, segment_key
from seglake.store import open_store
from tests.strategies import T

PARTITIONS = 3
INTERVAL = 300
NOW = T + 10**9
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


def line_of(event: dict) -> Line:
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


# -------------------------------------------------------------------- the stages, one after another


def ingest(pipeline: Pipeline) -> list[SegmentRow]:
    """What the driver and the tasks do between input and commit."""
    splits = plan_splits(list_inputs(pipeline), pipeline)
    units = [load_unit(dump_unit(u)) for u in group_splits(splits, pipeline.task.split_bytes)]
    mapped = chain.from_iterable(blobs_of_unit(unit, pipeline, NOW) for unit in units)
    blobs = pa.Table.from_batches(mapped)
    blobs = blobs.filter(pc.is_in(blobs["kind"], pa.array([RECORDS, BATCHES], pa.int32())))
    known = plan.Blobs.of(blobs.drop_columns(["data"]))
    cuts = plan.cut_partitions(known, pipeline.task.piece_bytes)
    routes = plan.assign(known, cuts)
    if pipeline.order == "time":
        assert plan.straddlers(routes)
    counts = plan.count_pieces(known, routes, dict(counted(blobs, routes, cuts)))
    bases = plan.base_offsets(cuts, counts, {})
    attempt = new_attempt()
    pieces = {
        number: (cut, Piece("events", cut.partition, attempt, base, NOW))
        for number, (cut, base) in enumerate(zip(cuts, bases, strict=True))
    }
    assert len(pieces) > PARTITIONS
    return list(written(pipeline, sent(blobs, routes), pieces))


def counted(
    blobs: pa.Table, routes: list[tuple[int, int]], cuts: list[plan.Cut]
) -> Iterator[tuple[tuple[int, int], int]]:
    """Records of each straddling blob in each of its pieces."""
    straddling = set(plan.straddlers(routes))
    for number, piece in routes:
        if number in straddling:
            (row,) = stages._rows(blobs.slice(number, 1).to_batches())
            blob = stages._sorted_blob(row)
            ends = [count_before(blob, place) for place in (cuts[piece].start, cuts[piece].end)]
            yield (number, piece), ends[1] - ends[0]


def sent(blobs: pa.Table, routes: list[tuple[int, int]]) -> pa.Table:
    """The blobs as the shuffle hands them to the tasks that write."""
    rows = blobs.take([blob for blob, _ in routes])
    rows = rows.append_column("piece", pa.array([piece for _, piece in routes], pa.int32()))
    order = ["piece", "key", "second", "unit", "sequence"]
    return rows.sort_by([(name, "ascending") for name in order])


def written(pipeline: Pipeline, blobs: pa.Table, pieces: dict) -> Iterator[SegmentRow]:
    target = stages._Target(pipeline, pieces, NOW)
    for batch in target.write(blobs.to_batches(max_chunksize=3)):
        for data in batch["segments"].to_pylist():
            yield from stages.rows_of(SegmentRow, "events", stages._ipc(data))


# -------------------------------------------------------------------- verdicts


def by_partition(rows: list[SegmentRow]) -> dict[int, list[SegmentRow]]:
    found = defaultdict(list)
    for row in rows:
        found[row.partition].append(row)
    return found


def assert_rows_are_true(kafka: Kafka, root: Path, rows: list[SegmentRow]) -> None:
    """What the catalog says of each file and segment is what Kafka finds there."""
    for row in rows:
        for suffix in SUFFIXES:
            place = SegmentFile(row.topic, row.partition, row.attempt_id, row.base_offset, suffix)
            data = (root / segment_key(place)).read_bytes()
            assert len(data) == getattr(row, f"{suffix}_bytes")
            assert kafka.crc32c(data) == getattr(row, f"{suffix}_crc32c")
        log = folder_of(root, [row]) / f"{row.base_offset:020}.log"
        records = kafka.read_records(log)
        times = [record.timestamp for record in records]
        assert (row.base_offset, row.end_offset) == (records[0].offset, records[-1].offset + 1)
        assert (row.min_timestamp, row.max_timestamp) == (min(times), max(times))
        assert row.offset_of_max_timestamp == records[times.index(max(times))].offset
        assert row.record_count == len(records)
        late = max(max(times[: at + 1]) - time for at, time in enumerate(times))
        assert row.max_lateness_ms == late


def judged(kafka: Kafka, root: Path, rows: list[SegmentRow]) -> dict[int, list[Record]]:
    """The records of each partition, after Kafka found no fault with any file."""
    assert_rows_are_true(kafka, root, rows)
    found = {}
    for partition, segments in by_partition(rows).items():
        assert len(segments) > 1
        folder = folder_of(root, segments)
        found[partition] = accepted(kafka, folder)
        assert_recovery_makes_the_same(kafka, folder, INTERVAL)
    return found


def assert_nothing_is_lost(
    kafka: Kafka, lines: dict[bytes, Line], found: dict[int, list[Record]], order: str, stamp: int
) -> None:
    """Every line is in one partition, its key's; in each the order is the promised one."""
    assert sorted(r.value for records in found.values() for r in records) == sorted(lines)
    for partition, records in found.items():
        assert [record.offset for record in records] == list(range(len(records)))
        told = [lines[record.value] for record in records]
        assert [(r.timestamp, r.key, r.headers) for r in records] == [
            (line.timestamp if stamp < 0 else stamp, line.key, line.headers) for line in told
        ]
        places = [(line.timestamp * (order == "time"), *line.place) for line in told]
        assert places == sorted(places)
        hashes = kafka.murmur2([line.key for line in told if line.key is not None])
        assert {(each & 0x7FFFFFFF) % PARTITIONS for each in hashes} == {partition}


@pytest.mark.parametrize("order", ["time", "arrival"])
@pytest.mark.parametrize("codec", NAMES)
def test_an_ingest_and_its_move(kafka: Kafka, codec: str, order: str) -> None:
    timestamp_type = KINDS[(NAMES.index(codec) + (order == "time")) % 2]
    stamp = NOW if timestamp_type == "LogAppendTime" else -1
    with scratch_folder() as folder:
        root = Path(folder)
        (root / "input").mkdir()
        lines = make_input(root / "input")
        pipeline = pipeline_of(root, order, codec, timestamp_type)
        rows = ingest(pipeline)
        found = judged(kafka, root / "lake", rows)
        assert_nothing_is_lost(kafka, lines, found, order, stamp)

        deltas = {0: 1000, 1: 2**40}  # another run committed first; not to partition 2
        later = NOW + 5
        move = Move(pipeline.root, {}, deltas, new_attempt(), later)
        store = open_store(pipeline.root)
        moved = judged(kafka, root / "lake", [move.move(store, row) for row in rows])
        for partition, records in found.items():
            assert moved[partition] == [
                record._replace(
                    offset=record.offset + deltas.get(partition, 0),
                    timestamp=record.timestamp if stamp < 0 else later,
                )
                for record in records
            ]
