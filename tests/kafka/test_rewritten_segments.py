"""Rewritten segments against Kafka: its `MemoryRecords.filterTo`, DumpLogSegments, recovery."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog.schema import SegmentRow
from seglake.format.batch import BatchTable
from seglake.format.decode import Decoded
from seglake.format.filter import NO_HORIZON
from seglake.format.records import Int64s
from seglake.layout import new_attempt
from seglake.log.rewrite.keep import GOES, UNDECIDED, BatchRetention, Flags, KeepOffsets
from seglake.log.rewrite.segments import RewriteTarget, rewrite
from seglake.store import open_store
from tests.judges.kafka_judge import Kafka, StoredBatch
from tests.kafka.test_written_segments import (
    assert_recovery_makes_the_same,
    folder_of,
    records_in,
    scratch_folder,
    write,
)
from tests.makers.strategies import Stored, T, examples, stored_logs

NOW, RETENTION = T + 10**9, 86_400_000


class Cleaned(KeepOffsets):
    """Keeps some offsets; a batch with a tombstone gets Kafka's delete horizon."""

    def batch_retention(self, table: BatchTable) -> BatchRetention:
        fates = np.where(super().batch_retention(table) == GOES, GOES, UNDECIDED).astype(np.int8)
        fates[-1:] = UNDECIDED  # so that the last batch is read, as Kafka reads it
        return fates

    def delete_horizons_ms(self, table: BatchTable, decoded: Decoded, stays: Flags) -> Int64s:
        tombs = decoded.batch[stays & (decoded.records.values.lengths < 0)]
        has_tomb = np.bincount(tombs, minlength=len(table)) > 0
        return np.where(has_tomb, NOW + RETENTION, NO_HORIZON)


def bitmaps(keep: set[int], rows: Sequence[SegmentRow]) -> list[tuple[int, bytes]]:
    """One for each segment."""
    flags = [
        np.isin(np.arange(row.base_offset, row.end_offset), np.array(sorted(keep), np.int64))
        for row in rows
    ]
    packed = [np.packbits(each, bitorder="little").tobytes() for each in flags]
    return [(row.base_offset, bits) for row, bits in zip(rows, packed, strict=True)]


@pytest.fixture(scope="module")
def filters(kafka: Kafka) -> Any:
    """Kafka's filter of record batches."""
    return kafka.instance("RecordFilters")


@given(stored_logs(max_size=80), st.data())
@examples(25)
def test_kafkas_filter_keeps_the_same(
    kafka: Kafka, filters: Any, log: Stored, data: st.DataObject
) -> None:
    """Twice: the second time from a log with gaps, empty batches and horizons."""
    with scratch_folder() as name:
        root, rows = Path(name), write(Path(name), log)
        expected = records_in(log)
        for _ in range(2):
            offsets = [record.offset for record in expected]
            keep = set(data.draw(st.lists(st.sampled_from(offsets or [0]))))
            keep |= set(offsets[: data.draw(st.integers(0, 40))])
            old = root / "old.log"
            old.write_bytes(b"".join((root / row.key("log")).read_bytes() for row in rows))
            cleaned = Cleaned(*fields_of(KeepOffsets.from_bitmaps(bitmaps(keep, rows))))
            new = rewrite(open_store(name), rows, cleaned, RewriteTarget(new_attempt()))
            arguments = str(old), json.dumps(sorted(keep)), NOW, RETENTION, rows[-1].end_offset
            kafkas = root / "kafkas.log"
            kafkas.write_bytes(kafka.call("filter", *arguments, on=filters))
            assert_same(kafka, root / new.key("log"), kafkas, old)
            expected = [record for record in expected if record.offset in keep]
            assert_kafka_accepts(kafka, root, new, log.topic.index_interval_bytes)
            assert kafka.read_records(root / new.key("log")) == expected
            rows = [new]


def fields_of(keep: KeepOffsets) -> tuple[Any, ...]:
    return keep.bases, keep.places, keep.sizes, keep.bits


def assert_same(kafka: Kafka, mine: Path, kafkas: Path, old: Path) -> None:
    """Batch for batch: the same bytes where nothing is compressed anew, else the same records."""
    found, wanted = kafka.read_batches(mine), kafka.read_batches(kafkas)
    assert list(map(without_size, found)) == list(map(without_size, wanted))
    before, ours, theirs = old.read_bytes(), mine.read_bytes(), kafkas.read_bytes()
    for batch, other in zip(found, wanted, strict=True):
        bytes_, bytes_of_kafka = cut(ours, batch), cut(theirs, other)
        if batch.records and (batch.codec == "none" or bytes_of_kafka in before):
            assert bytes_ == bytes_of_kafka


def without_size(batch: StoredBatch) -> StoredBatch:
    newest = batch.max_timestamp if batch.records else -1  # ours has none without records
    return replace(batch, position=0, size=0, crc=0, max_timestamp=newest)


def cut(log: bytes, batch: StoredBatch) -> bytes:
    return log[batch.position : batch.position + batch.size]


def assert_kafka_accepts(kafka: Kafka, root: Path, row: SegmentRow, interval: int) -> None:
    """DumpLogSegments finds each index entry in the log, and recovery has nothing to change."""
    folder = folder_of(root, [row])
    log, *indexes = (root / row.key(suffix) for suffix in ("log", "index", "timeindex"))
    kafka.dump(*indexes)
    kafka.sanity_check(*indexes)
    dump = kafka.dump(log, verify=False)
    gaps = ("Non-consecutive offsets", " is followed by ")  # which compaction leaves
    assert [line for line in dump.problems if not any(gap in line for gap in gaps)] == []
    assert all(batch["isvalid"] == "true" for batch in dump.batches)
    assert_recovery_makes_the_same(kafka, folder, interval)
