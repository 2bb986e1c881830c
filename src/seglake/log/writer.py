"""Write record batches as segments: a log, its index files and its catalog row.

`SegmentWriter` appends batches and rolls segments by Kafka's rules; ingest uses it. `write_segment`
writes some batches as one segment; rewrites and imports use it. Only `_row` makes `SegmentRow`s.
The settings of a topic decide how its records are encoded, indexed and cut into segments.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, NamedTuple

import crc32c
import numpy as np

from seglake.catalog.schema import SegmentId, SegmentRow
from seglake.config import Topic
from seglake.config.topic import WEEK_MS
from seglake.format.batch import CODEC_MASK, LOG_APPEND_TIME, TABLE, TIMESTAMP_TYPES, BatchTable
from seglake.format.codecs.compression import IDS, NAMES, compressor
from seglake.format.encode import EncodedBatches, Encoding
from seglake.format.filter import blank
from seglake.format.index import RECORD_KEYS, IndexPolicy
from seglake.format.key_hashes import KeyHashes
from seglake.format.records import end_to_end, join_tables
from seglake.format.segment import Roller, Sealed, SegmentLimits, rebuild
from seglake.limits import INT64_MAX
from seglake.log.files import put_indexes
from seglake.log.key_indexes import KeyIndexBuilder
from seglake.store import Store


def encoding_of(topic: Topic, append_time_ms: int) -> Encoding:
    """Return how to encode the topic's records as batches, and whether to hash their keys.

    Only a topic with LogAppendTime uses `append_time_ms`.
    """
    levels = {"zstd": topic.compression_zstd_level, "gzip": topic.compression_gzip_level}
    stamped = topic.message_timestamp_type == "LogAppendTime"
    return Encoding(
        compressor(topic.compression_type, levels.get(topic.compression_type)),
        IDS[topic.compression_type],
        topic.batch_size,
        append_time_ms if stamped else None,
        hash_keys=topic.index_subjects == (RECORD_KEYS,),
    )


def policy_of(topic: Topic) -> IndexPolicy:
    """Return the policy that decides which record batches of the topic get an index entry."""
    return IndexPolicy(topic.index_interval_bytes, topic.index_subjects)


def limits_of(topic: Topic) -> SegmentLimits:
    """Return the limits at which the topic's segments roll.

    Retention removes whole segments. Topics with retention and no `segment.ms` roll after a week.
    """
    rolls_by_time = topic.segment_ms < INT64_MAX or topic.retention_ms < 0
    segment_ms = topic.segment_ms if rolls_by_time else WEEK_MS
    return SegmentLimits(topic.segment_bytes, segment_ms, topic.segment_index_bytes)


class NewSegment(NamedTuple):
    """A segment to write, from the base offset of its id to `end_offset`, exclusive."""

    id: SegmentId
    end_offset: int
    policy: IndexPolicy
    created_at_ms: int


class WrittenLog(NamedTuple):
    """The columns of a catalog row about the log: size, checksum, timestamp type, codec.

    `external` is the URI of a log that is outside the lake.
    """

    size_bytes: int
    crc32c: int
    timestamp_type: str
    codec: str
    external: str | None = None


class SegmentWriter:
    """Writes segments of a log partition by the topic's rules, starting at the offset of `first`.

    As a context manager, it publishes no file after an error.
    """

    def __init__(self, store: Store, first: SegmentId, topic: Topic, created_at_ms: int) -> None:
        self._store, self._first, self._created_at_ms = store, first, created_at_ms
        self._topic, self._policy = topic, policy_of(topic)
        self._roller = Roller(first.base_offset, limits_of(topic), self._policy)
        self._open: ExitStack | None = None
        self._sink: Any = None
        self._crc = 0
        self._keys = KeyIndexBuilder(first.base_offset, self._policy)
        self.rows: list[SegmentRow] = []

    def append(self, batches: EncodedBatches) -> None:
        """Append record batches with ascending absolute offsets.

        A segment begins at the end offset of the preceding segment, even if its first record is
        higher.
        """
        table, row = batches.table, 0
        while row < len(table):
            appended = self._roller.append(table[row:])
            if appended:
                start = int(table["position"][row])
                last = table[row + appended - 1]
                data = batches.data[start : int(last["position"]) + int(last["size"])]
                self._write(data)
                self._keys.add(table[row : row + appended], data, _part(batches, row, appended))
            row += appended
            if row < len(table):
                self._seal()
                self._roller.begin(self.rows[-1].end_offset)
                self._keys = KeyIndexBuilder(self._roller.base_offset, self._policy)

    def close(self) -> list[SegmentRow]:
        """Seal the last segment. Return the rows of all segments."""
        if self._roller.size_bytes:
            self._seal()
        return self.rows

    def __enter__(self) -> SegmentWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._open is not None:
            self._open.__exit__(*error)

    def _write(self, data: Any) -> None:
        if self._open is None:
            self._open = ExitStack()
            self._sink = self._open.enter_context(self._store.writer(self._id.key("log")))
            self._crc = 0
        self._sink.write(data)
        self._crc = crc32c.crc32c(data, self._crc)

    @property
    def _id(self) -> SegmentId:
        return self._first._replace(base_offset=self._roller.base_offset)

    def _seal(self) -> None:
        assert self._open is not None  # noqa: S101  # a segment is sealed only after a write
        self._open.close()
        self._open = None
        sealed = self._roller.seal()
        new = NewSegment(self._id, sealed.end_offset, self._policy, self._created_at_ms)
        kinds = self._topic.message_timestamp_type, self._topic.compression_type
        log = WrittenLog(self._roller.size_bytes, self._crc, *kinds)
        self.rows.append(_row(self._store, new, sealed, log, self._keys))


class LogWriter:
    """Writes a log into a stream, and keeps the log's checksum and the table of its batches."""

    def __init__(self, sink: Any, base_offset: int, policy: IndexPolicy) -> None:
        self._sink, self._tables = sink, [np.empty(0, TABLE)]
        self.keys = KeyIndexBuilder(base_offset, policy)
        self.size = self.crc = 0
        self.end = base_offset  # the offset after the last batch

    def write(self, batches: EncodedBatches) -> None:
        """Append batches."""
        if not len(batches.table):
            return
        self._sink.write(batches.data)
        self.crc = crc32c.crc32c(batches.data.data, self.crc)
        self.size += len(batches.data)
        self.end = int(batches.table["last_offset"][-1]) + 1
        self._tables.append(batches.table)
        self.keys.add(batches.table, batches.data)

    @property
    def table(self) -> BatchTable:
        """Return the table of all batches."""
        return end_to_end(join_tables(self._tables))


def write_segment(store: Store, new: NewSegment, parts: Iterable[EncodedBatches]) -> SegmentRow:
    """Write consecutive batches, with complete tables, as a segment.

    If the last batch ends below `new.end_offset`, an empty batch is added. The row has the codec
    that most bytes have, and the timestamp type of the last record. After an error there is no
    segment, but its log may exist. Raises CorruptData, UsageError, StoreError, and any error of
    `parts`.
    """
    base = new.id.base_offset
    with store.writer(new.id.key("log")) as sink:
        log = LogWriter(sink, base, new.policy)
        for batches in parts:
            log.write(batches)
        if log.end < new.end_offset:
            log.write(blank(log.end, new.end_offset - 1))
    return sealed_row(store, new, log)


def sealed_row(
    store: Store, new: NewSegment, log: LogWriter, external: str | None = None
) -> SegmentRow:
    """Write the index files of a segment whose log exists, in the lake or outside. Return its row.

    Raises CorruptData, UsageError and StoreError.
    """
    table = log.table
    sealed = rebuild(new.id.base_offset, table, new.policy)
    written = WrittenLog(log.size, log.crc, *_kinds(table), external)
    return _row(store, new, sealed, written, log.keys)


def _part(batches: EncodedBatches, row: int, count: int) -> KeyHashes | None:
    """Return the key hashes of `count` batches from `row` on, or None if the batches have none."""
    if batches.keys is None:
        return None
    counts = batches.table["count"]
    first = int(counts[:row].sum(dtype=np.int64))
    return batches.keys.part(first, first + int(counts[row : row + count].sum(dtype=np.int64)))


def _row(
    store: Store, new: NewSegment, sealed: Sealed, log: WrittenLog, keys: KeyIndexBuilder
) -> SegmentRow:
    """Write the index files of a segment, and return its row."""
    return SegmentRow(
        topic=new.id.topic,
        partition=new.id.partition,
        base_offset=new.id.base_offset,
        end_offset=new.end_offset,
        record_count=sealed.record_count,
        min_timestamp=sealed.min_timestamp,
        max_timestamp=sealed.max_timestamp,
        offset_of_max_timestamp=sealed.offset_of_max_timestamp,
        max_lateness_ms=sealed.max_lateness_ms,
        timestamp_type=log.timestamp_type,
        codec=log.codec,
        log_bytes=log.size_bytes,
        log_crc32c=log.crc32c,
        index_interval=new.policy.interval,
        attempt_id=new.id.attempt_id,
        created_at_ms=new.created_at_ms,
        external=log.external,
        **put_indexes(store, new.id, sealed.files | keys.finish(log.size_bytes)),
    )


def _kinds(table: BatchTable) -> tuple[str, str]:
    """Return the timestamp type of the last batch, and the codec with the most bytes."""
    filled = table[table["count"] > 0]
    sizes = np.bincount(filled["attributes"] & CODEC_MASK, filled["size"], len(NAMES))
    stamped = len(filled) > 0 and bool(filled["attributes"][-1] & LOG_APPEND_TIME)
    return TIMESTAMP_TYPES[stamped], NAMES[int(sizes.argmax())]
