"""Lakes whose segments lost records: gaps in batches, emptied batches, segments without a record.

Compaction, erasure and undo leave such logs. This is how `MemoryRecords.filterTo` writes them, with
the choices that a reader must not depend on drawn by chance.
"""

import random
import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import crc32c
import numpy as np
from hypothesis import strategies as st

from seglake.catalog.schema import SegmentRow
from seglake.format.batch import (
    CODEC_MASK,
    CRC_AT,
    CRC_START,
    HEADER,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    OVERHEAD,
    BatchTable,
)
from seglake.format.codecs.compression import NAMES, compressor, decompress
from seglake.format.decode import decode_batches, scan_batches, with_extremes
from seglake.format.segment import rebuild
from seglake.layout import new_attempt
from seglake.log.files import put_indexes
from seglake.log.rewrite.keep import ExcludeOffsets
from seglake.log.rewrite.segments import RewriteTarget, rewrite
from tests.makers.catalog_rows import commit_rows
from tests.makers.lakes import Event, LakeMaker, Shape, Written
from tests.makers.strategies import T

_MOST_BYTES = 2**30
_MOST_OFFSETS = 2**31  # that a batch, and a segment, can cover


class Loss(NamedTuple):
    """What leaves each log partition, and how what is left is written.

    Of each `stretch` offsets, all records leave by the chance `whole`, else each by the chance
    `single`; with `tail`, all from that share of the log on. Up to `joined` neighbouring segments
    become one. Of the batches that lose all records a share `headers` stays, as headers of 61
    bytes; with `dated` they keep their largest timestamp, as Kafka's do. All this is the code of
    these tests, unless `by_rewrite`: then Seglake writes the segments.
    """

    seed: int
    single: float
    whole: float
    stretch: int
    tail: float
    joined: int
    headers: float
    dated: bool
    by_rewrite: bool = False

    def gone(self, records: Sequence[Written]) -> set[int]:
        """The offsets of the records that leave."""
        chance, fates = random.Random(self.seed), dict[int, float]()
        tail, found = int(self.tail * len(records)), set[int]()
        for place, offset in enumerate(record.offset for record in records):
            number = offset // self.stretch
            fate = fates.setdefault(number, 1 if chance.random() < self.whole else self.single)
            if chance.random() < fate or place >= tail:
                found.add(offset)
        return found


losses = st.builds(
    Loss,
    seed=st.integers(0, 999),
    single=st.sampled_from([0, 0.1, 0.5, 0.9]),
    whole=st.sampled_from([0, 0.3, 0.7, 1]),
    stretch=st.sampled_from([1, 4, 30, 100]),
    tail=st.sampled_from([1, 1, 0.9, 0.5, 0.1]),
    joined=st.sampled_from([1, 1, 3, 100]),
    headers=st.sampled_from([0, 0.5, 1]),
    dated=st.booleans(),
    by_rewrite=st.booleans(),
)


SOME = Loss(seed=2, single=0.3, whole=0.3, stretch=9, tail=1, joined=1, headers=0.5, dated=False)
LOSSES = {
    "some": SOME,
    "joined": SOME._replace(joined=4, headers=0),
    "tail": SOME._replace(tail=0.6),
    "dated-tail": SOME._replace(tail=0.6, dated=True),
    "headers": SOME._replace(whole=0.9, headers=1),
    "all": SOME._replace(whole=1),
    "all-joined": SOME._replace(whole=1, headers=0, joined=100),
    "emptied": SOME._replace(single=0, whole=0),
}
_CODECS = ("none", "zstd", "lz4", "gzip", "snappy")


def lossy_lake(root: Path) -> dict[str, LakeMaker]:
    """A lake with a topic for each of LOSSES; each had 200 records before its loss."""
    found = dict[str, LakeMaker]()
    for number, (topic, loss) in enumerate(LOSSES.items()):
        maker = found[topic] = LakeMaker(root, topic)
        times = [T + 10 * at - 300 * (at % 11 == 0) for at in range(200)]
        events = [Event(time, b"%d" % time, b"value") for time in times]
        shape = Shape(_CODECS[number % 5], batch_bytes=200, segment_bytes=1500)
        maker.run({0: events}, shape)
        if topic == "emptied":  # a segment of one empty batch, the most that one can cover
            emptied(maker, 0, _MOST_OFFSETS)
        lose(maker, loss)
    return found


def lose(maker: LakeMaker, loss: Loss) -> None:
    """Take records out of every log partition of the maker's topic, in one commit for each."""
    for partition in range(maker.partitions):
        lose_records(maker, partition, loss.gone(maker.records(partition)), loss)


def lose_records(maker: LakeMaker, partition: int, gone: Collection[int], loss: Loss) -> None:
    """Take the records at the offsets `gone` out of one log partition."""
    base, chance = maker.catalog.snapshot(), random.Random(loss.seed)
    listed = maker.catalog.rows.segments(base, maker.topic)
    rows = [row for row in listed if row.partition == partition]
    groups = [rows[at : at + loss.joined] for at in range(0, len(rows), loss.joined)]
    attempt, left = new_attempt(), set(gone)
    if not rows:
        return
    new = [_rewritten(maker, group, left, attempt, loss, chance) for group in groups]
    places = [(partition, row.base_offset) for row in rows]
    version = commit_rows(maker.catalog, new, base, attempt_id=attempt, replaced=places)
    maker.versions.append(version)
    maker.written[maker.topic] = [
        record
        for record in maker.written.get(maker.topic, [])
        if record.partition != partition or record.offset not in left
    ]


def _rewritten(
    maker: LakeMaker, rows: Sequence[SegmentRow], gone: Collection[int], attempt: str, loss: Loss,
    chance: random.Random,
) -> SegmentRow:  # fmt: skip
    """The one segment that takes the place of neighbouring segments."""
    if loss.by_rewrite:
        keep = ExcludeOffsets.from_ranges((offset, offset + 1) for offset in gone)
        return rewrite(maker.store, rows, keep, RewriteTarget(attempt))
    batches = list[bytes]()
    end = rows[-1].end_offset
    for row in rows:
        data = bytes(maker.store.read_all(row.key("log")))
        for at in scan_batches(data):
            batch = without(data[at["position"] : at["position"] + at["size"]], gone, loss.dated)
            last = at["last_offset"] == end - 1
            if len(batch) > OVERHEAD or last or chance.random() < loss.headers:
                batches.append(batch)
    return stored(maker, rows[0], b"".join(batches), attempt, end)


def stored(
    maker: LakeMaker, row: SegmentRow, log: bytes, attempt: str, end_offset: int
) -> SegmentRow:
    """A segment with this log and its index files, under an attempt, as `row` without them."""
    sealed = rebuild(row.base_offset, _complete(log), row.index_policy)
    assert sealed.end_offset == end_offset
    columns: dict[str, Any] = {
        **asdict(row), "attempt_id": attempt, "index_attempt_id": attempt, "end_offset": end_offset,
        "record_count": sealed.record_count, "min_timestamp": sealed.min_timestamp,
        "max_timestamp": sealed.max_timestamp, "max_lateness_ms": sealed.max_lateness_ms,
        "offset_of_max_timestamp": sealed.offset_of_max_timestamp, "log_bytes": len(log),
        "log_crc32c": crc32c.crc32c(log),
    }  # fmt: skip
    made = SegmentRow(**columns)
    maker.store.put(made.key("log"), log)
    return SegmentRow(**{**columns, **put_indexes(maker.store, made.id, sealed.files)})


def _complete(log: bytes) -> BatchTable:
    table = scan_batches(log)
    return with_extremes(table, decode_batches(log, table, control=True))


# ---------------------------------------------------------------------------- batches


def without(batch: bytes, gone: Collection[int], dated: bool) -> bytes:
    """A batch without the records at the offsets `gone`; the same bytes if it loses none.

    Its base and last offset stay. Of the deltas, those of offsets count from the same base, those
    of timestamps from the first record that is left. A batch without records is its header.
    """
    head = np.frombuffer(batch, HEADER, 1).copy()[0]
    codec = int(head["attributes"]) & CODEC_MASK
    payload = bytes(batch[OVERHEAD:])
    records = list(_records(decompress(codec, payload, _MOST_BYTES) if codec else payload))
    left = [record for record in records if int(head["base_offset"]) + record.offset not in gone]
    if len(left) == len(records):
        return bytes(batch)
    if not left:
        time = int(head["max_timestamp"]) if dated else -1
        return empty(int(head["base_offset"]), int(head["last_offset_delta"]), time,
                     int(head["attributes"]) & LOG_APPEND_TIME)  # fmt: skip
    first = left[0].time
    if not head["attributes"] & LOG_APPEND_TIME:
        head["max_timestamp"] = head["base_timestamp"] + max(record.time for record in left)
    head["base_timestamp"] += first
    data = b"".join(_record(record._replace(time=record.time - first)) for record in left)
    head["count"] = len(left)
    compress = compressor(NAMES[codec])
    return _sealed(head, compress(data) if compress else data)


def empty(base_offset: int, last_delta: int, max_timestamp: int, attributes: int = 0) -> bytes:
    """A batch without a record (`DefaultRecordBatch.writeEmptyHeader`)."""
    head = np.zeros(1, HEADER)[0]
    head["base_offset"], head["last_offset_delta"] = base_offset, last_delta
    head["magic"], head["attributes"] = 2, attributes
    head["base_timestamp"], head["max_timestamp"] = -1, max_timestamp
    head["producer_id"] = head["producer_epoch"] = head["base_sequence"] = -1
    return _sealed(head, b"")


def emptied(maker: LakeMaker, partition: int, count: int) -> None:
    """Append `count` offsets without a record: segments of one empty batch each."""
    base, attempt = maker.catalog.snapshot(), new_attempt()
    [pattern, *_] = maker.catalog.rows.segments(base, maker.topic)
    rows, at = list[SegmentRow](), base.partition(maker.topic, partition).end_offset
    end = at + count
    while at < end:
        covered = min(end - at, _MOST_OFFSETS)
        row = SegmentRow(**{**asdict(pattern), "partition": partition, "base_offset": at})
        rows.append(stored(maker, row, empty(at, covered - 1, -1), attempt, at + covered))
        at += covered
    version = commit_rows(maker.catalog, rows, base=base, attempt_id=attempt)
    maker.versions.append(version)


def _sealed(head: Any, payload: bytes) -> bytes:
    head["length"] = OVERHEAD + len(payload) - LOG_OVERHEAD
    data = bytearray(head.tobytes() + payload)
    data[CRC_AT:CRC_START] = struct.pack(">I", crc32c.crc32c(bytes(data[CRC_START:])))
    return bytes(data)


class _Record(NamedTuple):
    """The deltas of a record, and all that follows them."""

    time: int
    offset: int
    body: bytes


def _records(data: bytes) -> Iterator[_Record]:
    at = 0
    while at < len(data):
        length, at = _varint(data, at)
        end = at + length
        time, at = _varint(data, at + 1)
        offset, at = _varint(data, at)
        yield _Record(time, offset, data[at:end])
        at = end


def _record(record: _Record) -> bytes:
    content = b"\0" + _bytes_of(record.time) + _bytes_of(record.offset) + record.body
    return _bytes_of(len(content)) + content


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The zigzag varint at `at`, and the position after it."""
    bits = shift = 0
    while True:
        bits |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return bits >> 1 ^ -(bits & 1), at


def _bytes_of(number: int) -> bytes:
    bits, out = number << 1 if number >= 0 else (-number << 1) - 1, bytearray()
    while bits > 127:
        out.append(bits & 127 | 128)
        bits >>= 7
    return bytes([*out, bits])
