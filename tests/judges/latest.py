"""Compaction by key over plain lists: what Kafka's cleaner leaves of record batches.

Batches are told apart by their offsets, which they keep. Nothing here knows how Seglake compacts.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from seglake.catalog.schema import SegmentRow
from seglake.format.decode import scan_batches
from tests.makers.lakes import LakeMaker, Written

HORIZON = 0x40  # the attribute


class StoredBatch(NamedTuple):
    """A batch as it stands in a log; `horizon` is its delete horizon, if it has one."""

    base_offset: int
    last_offset: int
    records: int
    horizon: int | None
    data: bytes


def live_rows(maker: LakeMaker, partition: int | None = None) -> list[SegmentRow]:
    """The rows of the newest version, in the order of the log."""
    rows = maker.catalog.rows.segments(maker.catalog.snapshot(), maker.topic)
    return [row for row in rows if partition in (None, row.partition)]


def stored_batches(maker: LakeMaker, partition: int) -> list[StoredBatch]:
    """The batches of a log partition, also those without a record."""
    found = []
    for row in live_rows(maker, partition):
        data = (maker.root / row.key("log")).read_bytes()
        for batch in scan_batches(data):
            start, stop = int(batch["position"]), int(batch["position"] + batch["size"])
            horizon = int(batch["base_timestamp"]) if batch["attributes"] & HORIZON else None
            offsets = int(batch["base_offset"]), int(batch["last_offset"])
            found.append(StoredBatch(*offsets, int(batch["count"]), horizon, data[start:stop]))
    return found


@dataclass(frozen=True)
class ModelBatch:
    """The records of a batch; `data` are its bytes as long as it is copied as it is."""

    base_offset: int
    last_offset: int
    records: list[Written]
    horizon: int | None = None
    data: bytes | None = None


@dataclass
class Counts:
    """What a round counts."""

    records: int = 0
    null_keys: int = 0
    superseded: int = 0
    expired_tombstones: int = 0


@dataclass
class ModelLog:
    """A log partition."""

    batches: list[ModelBatch] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def append(self, stored: Iterable[StoredBatch], records: Iterable[Written]) -> None:
        """The batches at the end of the log that are new; `records` has theirs."""
        by_offset = {record.offset: record for record in records}
        for base, last, _records, horizon, data in stored:
            if base >= self.end:
                own = [by_offset[at] for at in range(base, last + 1) if at in by_offset]
                self.batches.append(ModelBatch(base, last, own, horizon, data))
                self.end = last + 1

    def records(self) -> list[Written]:
        """What readers see."""
        return [r for batch in self.batches for r in batch.records if r.offset >= self.start]

    def clean(self, end: int, now_ms: int, retention_ms: int) -> Counts:
        """One round over the batches below `end`."""
        seen = [r for b in self.batches if b.last_offset < end for r in b.records]
        seen = [record for record in seen if record.offset >= self.start]
        last = {record.key: record.offset for record in seen}
        counts = Counts(len(seen), sum(record.key is None for record in seen))
        counts.superseded = len(seen) - counts.null_keys - len(last.keys() - {None})
        cleaned = []
        for batch in self.batches:
            if batch.last_offset >= end:
                cleaned.append(batch)
                continue
            expired = batch.horizon is not None and batch.horizon <= now_ms
            latest = [r for r in batch.records if r.key is not None and r.offset >= self.start]
            latest = [record for record in latest if last[record.key] == record.offset]
            kept = [record for record in latest if record.value is not None or not expired]
            counts.expired_tombstones += len(latest) - len(kept)
            if kept:
                cleaned.append(self._cleaned(batch, kept, now_ms + retention_ms))
        self.batches = cleaned
        return counts

    @staticmethod
    def _cleaned(batch: ModelBatch, kept: list[Written], horizon: int) -> ModelBatch:
        fresh = batch.horizon is None and any(record.value is None for record in kept)
        if len(kept) == len(batch.records) and not fresh:
            return batch
        horizon_ms = horizon if fresh else batch.horizon
        return replace(batch, records=kept, horizon=horizon_ms, data=None)


def hash_of(data: bytes, low: int, high: int) -> tuple[int, int]:
    """SipHash-2-4 with a result of 128 bits, as its paper has it."""
    whole = 2**64 - 1

    def turned(word: int, bits: int) -> int:
        return (word << bits | word >> (64 - bits)) & whole

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = (v[0] + v[1]) & whole
            v[1] = turned(v[1], 13) ^ v[0]
            v[0] = turned(v[0], 32)
            v[2] = (v[2] + v[3]) & whole
            v[3] = turned(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & whole
            v[3] = turned(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & whole
            v[1] = turned(v[1], 17) ^ v[2]
            v[2] = turned(v[2], 32)

    v = [low ^ 0x736F6D6570736575, high ^ 0x646F72616E646F6D ^ 0xEE]
    v += [low ^ 0x6C7967656E657261, high ^ 0x7465646279746573]
    whole_words = len(data) // 8 * 8
    tail = data[whole_words:].ljust(7, b"\0") + bytes([len(data) & 0xFF])
    for word in np.frombuffer(data[:whole_words] + tail, "<u8").tolist():
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(4)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(4)
    return first, v[0] ^ v[1] ^ v[2] ^ v[3]
