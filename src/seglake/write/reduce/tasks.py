"""Run reduce tasks. A task merges the blobs of pieces, and writes each piece as segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa

from seglake.catalog.schema import SegmentId, SegmentRow
from seglake.config import Topic
from seglake.engine import Amounts
from seglake.errors import InputError
from seglake.format.encode import EncodedBatches, Encoding, encode_batches, rebase
from seglake.format.filter import blank
from seglake.limits import INT32_MAX, INT64_MAX
from seglake.log.writer import SegmentWriter, encoding_of
from seglake.store import Store
from seglake.write.spool.sorted_records import (
    Place,
    PlacedRecords,
    SortedRecords,
    join_records,
    join_sorted,
    require_unique,
)
from seglake.write.spool.spool import BATCHES, read_blobs, unpack_batches, unpack_rows


class PieceBounds(NamedTuple):
    """The bounds [start, end) of a piece in the total order of a log partition's records."""

    partition: int
    start: Place
    end: Place


class PieceInput(NamedTuple):
    """A piece of a log partition, and the packed SPOOLED rows of its blobs in total order.

    If `end_offset` (exclusive) is not None, the segments must cover all offsets up to it, because
    another piece follows and records keep their offsets. Otherwise the piece ends after its last
    record. `records` is the number of records of the piece or, if records keep their offsets, of
    its blobs, which may have records of other pieces.
    """

    bounds: PieceBounds
    base_offset: int
    end_offset: int | None
    packed: bytes
    records: int


class SpanningBlob(NamedTuple):
    """A blob with records in several pieces. `spooled` is its row in SPOOLED."""

    number: int
    bounds: dict[int, PieceBounds]  # number of the piece → its bounds
    spooled: pa.Table


class CountSpanningBlobs(NamedTuple):
    """The task that counts the records of blobs that span several pieces, for each piece."""

    store: Store

    def __call__(self, blobs: Sequence[SpanningBlob]) -> dict[tuple[int, int], int]:
        """Return (blob number, piece number) → number of the blob's records in the piece."""
        spooled = read_blobs(self.store, pa.concat_tables([blob.spooled for blob in blobs]))
        return {
            (blob.number, piece): records.count_before(end) - records.count_before(start)
            for blob, records in zip(blobs, (each.placed() for each in spooled), strict=True)
            for piece, (_, start, end) in blob.bounds.items()
        }

    def amounts(self, items: Sequence[Sequence[SpanningBlob]]) -> Amounts:
        """Return the number of records in each item's blobs."""
        each = [sum(blob.spooled["records"][0].as_py() for blob in blobs) for blobs in items]
        # The name differs from "records", because `WritePieces` counts the same records again.
        return Amounts("records of blobs", each)


class WritePieces(NamedTuple):
    """The task that writes the blobs of pieces as segments, and returns their catalog rows.

    `attempt_id` and `created_at_ms` become part of the segments' names and rows. `merge_bytes` is
    the memory for a merge. `order_column` is the order column of a DataFrame, or None for files.
    """

    store: Store
    topic: Topic
    attempt_id: str
    created_at_ms: int
    append_time_ms: int
    merge_bytes: int
    order_column: str | None

    def __call__(self, inputs: Sequence[PieceInput]) -> list[SegmentRow]:
        """Write the segments of the pieces, and return their catalog rows."""
        rows: list[SegmentRow] = []
        topic, writer_id = self.topic.name, self.attempt_id
        for piece in inputs:
            partition, base_offset = piece.bounds.partition, piece.base_offset
            first = SegmentId(topic, partition, base_offset, writer_id, writer_id)
            with SegmentWriter(self.store, first, self.topic, self.created_at_ms) as writer:
                for batches in self._batches(piece):
                    writer.append(batches)
                rows += writer.close()
        return rows

    def amounts(self, inputs: Sequence[Sequence[PieceInput]]) -> Amounts:
        """Return the number of records in each item's pieces."""
        return Amounts("records", [sum(piece.records for piece in pieces) for pieces in inputs])

    def _batches(self, piece: PieceInput) -> Iterator[EncodedBatches]:
        blobs = read_blobs(self.store, unpack_rows([piece.packed]))
        base_offset, first = piece.base_offset, next(blobs)
        blobs = chain([first], blobs)
        if first.row["kind"] == BATCHES:
            return consecutive((unpack_batches(blob.data) for blob in blobs), base_offset)
        inside = (_within(blob.placed(), piece.bounds) for blob in blobs)
        encoding = encoding_of(self.topic, self.append_time_ms)
        if self.topic.offset_field is None:
            merged = merge(inside, self.merge_bytes, self.order_column)
            return encode(merged, encoding, base_offset)
        name = f"{self.topic.name}-{piece.bounds.partition}"
        covered = CoveredOffsets(name, base_offset, piece.end_offset)
        return encode_at(merge(inside, self.merge_bytes), encoding, covered)


def _within(records: PlacedRecords, bounds: PieceBounds) -> PlacedRecords:
    return records.part(records.count_before(bounds.start), records.count_before(bounds.end))


# ---------------- batches
# Encode sorted records as record batches at their final offsets.


class CoveredOffsets(NamedTuple):
    """The offsets [start, end) of a log partition that record batches must cover.

    If `end` is None, the covered offsets end after the last record. Error messages contain `name`.
    """

    name: str
    start: int
    end: int | None


def encode(
    parts: Iterator[SortedRecords], encoding: Encoding, base_offset: int
) -> Iterator[EncodedBatches]:
    """Encode `parts` as record batches with consecutive offsets from `base_offset` on."""

    def framed(records: SortedRecords, before: int) -> EncodedBatches:
        first = base_offset + before
        return encode_batches(records.timestamps, records.bodies, encoding, base_offset=first)

    return _filled(parts, framed, encoding.batch_bytes)


def _filled(
    parts: Iterator[SortedRecords],
    framed: Callable[[SortedRecords, int], EncodedBatches],
    batch_bytes: int,
) -> Iterator[EncodedBatches]:
    """Yield the record batches of the parts, each of about `batch_bytes`.

    The last record batch of a part is filled with records of the next part. So the ends of record
    batches do not depend on the ends of parts. `framed(records, before)` encodes records, and
    `before` is the number of records in front of them.
    """
    done, unfilled = 0, cast("SortedRecords | None", None)
    for part in parts:
        records = part
        if unfilled is not None:
            head = join_records([unfilled, part.part(0, _shortest_full_batch(part, batch_bytes))])
            first = _first(framed(head, done), 1)
            count = int(first.table["count"].sum(dtype=np.int64))
            if count == len(head):  # the batch may not be full yet
                unfilled = head.detached()
                continue
            yield first
            done += count
            records = part.part(count - len(unfilled), len(part))
        batches = framed(records, done)
        full = _first(batches, len(batches.table) - 1)
        count = int(full.table["count"].sum(dtype=np.int64))
        if count:
            yield full
        done += count
        unfilled = records.part(count, len(records)).detached() if len(records) else None
    if unfilled is not None:
        yield framed(unfilled, done)


def _shortest_full_batch(records: SortedRecords, batch_bytes: int) -> int:
    """Return the smallest number of first records that together exceed the size of one batch.

    If all records fit in a batch, return their number plus one.
    """
    return int(np.searchsorted(np.cumsum(records.bodies.sizes), batch_bytes, "right")) + 1


def _first(batches: EncodedBatches, count: int) -> EncodedBatches:
    """Return the first `count` batches with their data and keys. 0 or less gives no batches."""
    table = batches.table[: max(count, 0)]
    end = int(table["position"][-1]) + int(table["size"][-1]) if len(table) else 0
    keys = batches.keys and batches.keys.part(0, int(table["count"].sum(dtype=np.int64)))
    return EncodedBatches(batches.data[:end], table, keys)


def consecutive(parts: Iterator[EncodedBatches], base_offset: int) -> Iterator[EncodedBatches]:
    """Move record batches to consecutive offsets from `base_offset` on.

    The offsets of each part must begin at 0.
    """
    for part in parts:
        yield rebase(part.data, part.table, base_offset)._replace(keys=part.keys)
        base_offset += int(part.table["last_offset"][-1]) + 1


def encode_at(
    parts: Iterator[SortedRecords], encoding: Encoding, covered: CoveredOffsets
) -> Iterator[EncodedBatches]:
    """Encode record batches whose records keep their offsets. Sort keys must be the offsets.

    Empty record batches cover a gap only if it is too long for one segment, or if it is at the end
    of the covered range. Raises InputError for an offset that occurs twice, or is outside of the
    range.
    """
    at, rising = covered.start, _rising(parts, covered)
    for batches in _filled(rising, lambda r, _: _at_offsets(r, encoding), encoding.batch_bytes):
        yield from _bridged(batches, at)
        at = int(batches.table["last_offset"][-1]) + 1
    yield from _blanks(at, at if covered.end is None else covered.end)


def _rising(parts: Iterator[SortedRecords], covered: CoveredOffsets) -> Iterator[SortedRecords]:
    """Yield the parts that have records.

    Raises InputError if an offset occurs twice or is not below the end of the range.
    """
    last, end = covered.start - 1, INT64_MAX if covered.end is None else covered.end
    for part in parts:
        offsets = np.append(last, part.sort_keys)
        for wrong in offsets[1:][np.diff(offsets) <= 0][:1]:
            raise InputError(
                f"{covered.name} has offset {wrong} twice in the input of one run, but an offset "
                f"belongs to one record. Remove the other row"
            )
        last = int(offsets[-1])
        if last >= end:
            raise InputError(f"{covered.name} has offset {last}, but its declared end is {end}")
        if len(part):
            yield part


def _at_offsets(records: SortedRecords, encoding: Encoding) -> EncodedBatches:
    ties = records.tie_breakers
    return encode_batches(
        records.timestamps, records.bodies, replace(encoding, append_time_ms=None),
        offsets=records.sort_keys, stamped=None if ties is None else ties != 0,
    )  # fmt: skip


def _bridged(batches: EncodedBatches, at: int) -> Iterator[EncodedBatches]:
    """Yield the batches, and fill gaps of more than INT32_MAX offsets with empty batches.

    `at` is the end offset of the batch before the first one of `batches`.
    """
    table = batches.table
    before = np.append(at, table["last_offset"] + 1)[:-1]  # end offset of the preceding batch
    far = np.flatnonzero(table["last_offset"] - before > INT32_MAX).tolist()
    for first, end in pairwise(sorted({0, *far, len(table)})):
        if first in far:
            yield from _blanks(int(before[first]), int(table["base_offset"][first]))
        yield EncodedBatches(batches.data, table[first:end])


def _blanks(start: int, end: int) -> Iterator[EncodedBatches]:
    """Yield empty record batches that cover the offsets [start, end)."""
    for first in range(start, end, INT32_MAX):
        yield blank(first, min(first + INT32_MAX, end) - 1)


# ---------------- merge
# Merge sorted blobs into one sorted stream. The memory depends on how far the blobs overlap.
#
# Blobs are in the order of their first records. So a record is final if it is smaller than the
# first record of the next blob. Records are collected until they reach `buffer_bytes`. Then the
# final records are sorted and yielded together.


def merge(
    blobs: Iterator[PlacedRecords], buffer_bytes: int, order_column: str | None = None
) -> Iterator[SortedRecords]:
    """Yield the records of all blobs in total order, about `buffer_bytes` at a time.

    `blobs` must be in the total order of their first records. Memory is `buffer_bytes` plus twice
    the size of the blobs that overlap at one `Place`. With an `order_column`, raises InputError,
    which names the column, if two records have equal sort keys and tie-breakers.
    """
    for records in _merge(blobs, buffer_bytes):
        if order_column is not None:
            require_unique(records, order_column)
        yield records


def _merge(blobs: Iterator[PlacedRecords], buffer_bytes: int) -> Iterator[SortedRecords]:
    pending: list[PlacedRecords] = []
    pending_bytes, enough = 0, buffer_bytes
    for blob in blobs:
        if pending_bytes >= enough:
            cuts = [part.count_before(blob.place) for part in pending]
            if any(cuts):
                final = zip(pending, cuts, strict=True)
                yield join_sorted([part.part(0, cut) for part, cut in final])
            pending = _rest(pending, cuts)
            pending_bytes = sum(part.records.size_bytes for part in pending)
            # Count only new blobs, so that overlapping blobs are not cut again for each of them.
            enough = pending_bytes + buffer_bytes
        pending.append(blob)
        pending_bytes += blob.records.size_bytes
    if pending:
        yield join_sorted(pending)


def _rest(blobs: list[PlacedRecords], cuts: list[int]) -> list[PlacedRecords]:
    """Return the blobs without the records before their cuts. Empty blobs are left out."""
    pairs = zip(blobs, cuts, strict=True)
    return [blob.part(cut, len(blob.records)) for blob, cut in pairs if cut < len(blob.records)]
