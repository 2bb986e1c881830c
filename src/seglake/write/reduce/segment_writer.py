"""The reduce side: record batches become segments on storage.

A piece is a contiguous part of one log partition, its base offset known. Its batches are appended
to a segment until Kafka's rules roll it; a finished segment is four immutable files and one catalog
row. Nothing here knows Spark: the code that executors run is tested without a JVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import crc32c
import numpy as np

from seglake.catalog.index_files import put_indexes
from seglake.catalog.rows import SegmentRow
from seglake.config import Topic
from seglake.format.batch import Batches, Encoding, encode_batches, rebase
from seglake.format.index import IndexPolicy
from seglake.format.segment import Roller, SegmentLimits
from seglake.layout import SegmentFile, Suffix, segment_key
from seglake.store import Store
from seglake.write.reduce.merge import join_bodies
from seglake.write.spool.blob import Run


@dataclass(frozen=True)
class Piece:
    """Where a contiguous part of a log partition goes: [base_offset, base_offset + records)."""

    topic: str
    partition: int
    attempt_id: str
    base_offset: int
    created_at_ms: int


def limits_of(topic: Topic) -> SegmentLimits:
    """When the topic's segments roll."""
    return SegmentLimits(topic.segment_bytes, topic.segment_ms, topic.segment_index_bytes)


def policy_of(topic: Topic) -> IndexPolicy:
    """When the topic's batches get an index entry."""
    return IndexPolicy(*topic.index_interval)


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
        """Append batches with absolute, consecutive offsets."""
        table, at = batches.table, 0
        while at < len(table):
            taken = self._roller.append(table[at:])
            if taken:
                start = int(table["position"][at])
                last = table[at + taken - 1]
                self._write(batches.data[start : int(last["position"]) + int(last["size"])])
            at += taken
            if at < len(table):
                self._seal()
                self._roller.begin(int(table["base_offset"][at]))

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
            self._sink = self._open.enter_context(self._store.writer(self._key("log")))
            self._crc = 0
        self._sink.write(data)
        self._crc = crc32c.crc32c(data, self._crc)

    def _key(self, suffix: Suffix) -> str:
        piece, base = self._piece, self._roller.base_offset
        return segment_key(
            SegmentFile(piece.topic, piece.partition, piece.attempt_id, base, suffix)
        )

    def _seal(self) -> None:
        assert self._open is not None  # noqa: S101  # a segment is sealed only after a write
        self._open.close()
        self._open = None
        sealed = self._roller.seal()
        described = put_indexes(self._store, self._key, sealed)
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
                **described,
            )
        )


def encode_runs(runs: Iterator[Run], encoding: Encoding, base_offset: int) -> Iterator[Batches]:
    """The batches of consecutive runs, offsets from `base_offset` on.

    A batch that a run leaves unfilled is finished with the records of the next one, so batch
    boundaries do not depend on how the records were buffered.
    """
    left: Run | None = None
    for run in runs:
        whole = run if left is None else _append(left, run)
        batches = encode_batches(whole.timestamps, whole.bodies, encoding, base_offset=base_offset)
        table = batches.table[:-1]
        done = int(batches.table["base_offset"][-1]) - base_offset if len(batches.table) else 0
        if done:
            yield Batches(batches.data[: int(batches.table["position"][-1])], table)
        left = whole.part(done, len(whole)).detached()
        base_offset += done
    if left is not None and len(left):
        yield encode_batches(left.timestamps, left.bodies, encoding, base_offset=base_offset)


def _append(first: Run, second: Run) -> Run:
    """`second` after `first`, unsorted: order is settled already."""
    return Run(
        np.concatenate([first.keys, second.keys]),
        None,
        np.concatenate([first.timestamps, second.timestamps]),
        join_bodies([first.bodies, second.bodies]),
    )


def rebase_all(parts: Iterator[Batches], base_offset: int) -> Iterator[Batches]:
    """Batches whose offsets each begin at 0, moved to follow each other from `base_offset` on."""
    for part in parts:
        yield rebase(part.data, part.table, base_offset)
        base_offset += int(part.table["last_offset"][-1]) + 1
