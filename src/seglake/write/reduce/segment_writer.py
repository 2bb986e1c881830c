"""Record batches become segments on storage.

The record batches of a piece are appended to a segment until Kafka's rules roll the segment. A
finished segment is four immutable files and one catalog row.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import crc32c

from seglake.catalog.rows import SegmentId, SegmentRow
from seglake.catalog.segment_files import put_indexes
from seglake.config import Topic
from seglake.format.encode import Batches
from seglake.format.segment import Roller
from seglake.store import Store
from seglake.write.encoding import limits_of, policy_of
from seglake.write.reduce.piece import Piece


class SegmentWriter:
    """Writes one piece as segments; a context manager that publishes no file after an error."""

    def __init__(self, store: Store, piece: Piece, topic: Topic) -> None:
        self._store, self._piece, self._topic = store, piece, topic
        self._roller = Roller(piece.base_offset, limits_of(topic), policy_of(topic))
        self._open: ExitStack | None = None
        self._sink: Any = None
        self._crc = 0
        self.rows: list[SegmentRow] = []

    def append(self, batches: Batches) -> None:
        """Append record batches with absolute offsets, which rise.

        A segment begins where the one before it ends, even if its first record stands higher.
        """
        table, row = batches.table, 0
        while row < len(table):
            appended = self._roller.append(table[row:])
            if appended:
                start = int(table["position"][row])
                last = table[row + appended - 1]
                self._write(batches.data[start : int(last["position"]) + int(last["size"])])
            row += appended
            if row < len(table):
                self._seal()
                self._roller.begin(self.rows[-1].end_offset)

    def close(self) -> list[SegmentRow]:
        """Seal the last segment; returns the rows of all segments of the piece."""
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
        piece, base = self._piece, self._roller.base_offset
        return SegmentId(piece.topic, piece.partition, base, piece.attempt_id, piece.attempt_id)

    def _seal(self) -> None:
        assert self._open is not None  # noqa: S101  # a segment is sealed only after a write
        self._open.close()
        self._open = None
        sealed = self._roller.seal()
        index_columns = put_indexes(self._store, self._id, sealed)
        piece, topic = self._piece, self._topic
        by, interval = topic.index_interval
        self.rows.append(
            SegmentRow(
                topic=piece.topic,
                partition=piece.partition,
                base_offset=self._roller.base_offset,
                end_offset=sealed.end_offset,
                record_count=sealed.record_count,
                min_timestamp=sealed.min_timestamp,
                max_timestamp=sealed.max_timestamp,
                offset_of_max_timestamp=sealed.offset_of_max_timestamp,
                max_lateness_ms=sealed.max_lateness_ms,
                timestamp_type=topic.message_timestamp_type,
                codec=topic.compression_type,
                index_interval_kind=by,
                index_interval=interval,
                attempt_id=piece.attempt_id,
                created_at_ms=piece.created_at_ms,
                log_bytes=self._roller.size_bytes,
                log_crc32c=self._crc,
                **index_columns,
            )
        )
