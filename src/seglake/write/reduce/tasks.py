"""The reduce tasks: each writes pieces, which are contiguous parts of a log partition."""

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
from seglake.log.encoding import encoding_of
from seglake.log.writer import SegmentWriter
from seglake.store import Store
from seglake.write.spool.sorted_records import (
    Place,
    PlacedRecords,
    SortedRecords,
    join_sorted,
    joined,
    require_unique,
)
from seglake.write.spool.spool import (
    BATCHES,
    SpooledBlob,
    packed_rows,
    place_of,
    read_blobs,
    unpack_batches,
    unpacked_rows,
)


class PieceBounds(NamedTuple):
    """The part of a log partition that is a piece: the places [start, end)."""

    partition: int
    start: Place
    end: Place


class ReducePiece(NamedTuple):
    """The log partition and attempt that a piece is written for, and its first offset.

    `end_offset` (exclusive) is where the piece must end if its records keep their offsets; without
    it the piece ends behind its last record.
    """

    topic: str
    partition: int
    attempt_id: str
    base_offset: int
    created_at_ms: int
    end_offset: int | None = None

    @property
    def first_segment(self) -> SegmentId:
        """The segment that the piece begins with."""
        writer = self.attempt_id
        return SegmentId(self.topic, self.partition, self.base_offset, writer, writer)


class PieceInput(NamedTuple):
    """A piece, and the rows of its blobs in SPOOLED, packed, in the order of their places.

    `records` counts its records; `of` counts those of its blobs, also those of other pieces.
    """

    piece: ReducePiece
    bounds: PieceBounds
    packed: bytes
    records: int

    @staticmethod
    def of(piece: ReducePiece, bounds: PieceBounds, spooled: pa.Table) -> PieceInput:
        """Pack the rows."""
        records = int(spooled["records"].to_numpy().sum())
        return PieceInput(piece, bounds, packed_rows(spooled), records)


class StraddlingBlob(NamedTuple):
    """A blob with records in several pieces; `spooled` is its row."""

    number: int
    bounds: dict[int, PieceBounds]  # by the number of the piece
    spooled: pa.Table

    @property
    def records(self) -> int:
        """Records of the blob."""
        return int(self.spooled["records"][0].as_py())


class CountStraddling(NamedTuple):
    """The task: straddling blobs → the count of their records in each piece."""

    store: Store

    def __call__(self, blobs: Sequence[StraddlingBlob]) -> dict[tuple[int, int], int]:
        """The count of records of each (blob, piece)."""
        spooled = read_blobs(self.store, pa.concat_tables([blob.spooled for blob in blobs]))
        return {
            (blob.number, piece): records.count_before(end) - records.count_before(start)
            for blob, records in zip(blobs, map(_placed, spooled), strict=True)
            for piece, (_, start, end) in blob.bounds.items()
        }

    def amounts(self, items: Sequence[Sequence[StraddlingBlob]]) -> Amounts:
        """The records of each item's blobs."""
        each = [sum(blob.records for blob in blobs) for blobs in items]
        return Amounts("records of straddling blobs", each)  # each is one of the run's records, too


class WritePieces(NamedTuple):
    """The task: the blobs of pieces → segments, and their catalog rows.

    `order_column` is the order column of a DataFrame; None for files.
    """

    store: Store
    topic: Topic
    append_time_ms: int
    merge_bytes: int
    order_column: str | None

    def __call__(self, inputs: Sequence[PieceInput]) -> list[SegmentRow]:
        """Write the segments of some pieces; returns their rows."""
        rows: list[SegmentRow] = []
        for piece, bounds, packed, _ in inputs:
            blobs = read_blobs(self.store, unpacked_rows([packed]))
            created_at_ms = piece.created_at_ms
            with SegmentWriter(
                self.store, piece.first_segment, self.topic, created_at_ms
            ) as writer:
                for batches in self._batches(blobs, bounds, piece):
                    writer.append(batches)
                rows += writer.close()
        return rows

    def amounts(self, inputs: Sequence[Sequence[PieceInput]]) -> Amounts:
        """The records of each item."""
        return Amounts("records", [sum(piece.records for piece in pieces) for pieces in inputs])

    def _batches(
        self, blobs: Iterator[SpooledBlob], bounds: PieceBounds, piece: ReducePiece
    ) -> Iterator[EncodedBatches]:
        if self.topic.offset_field is not None:
            return self._at_offsets(blobs, bounds, piece)
        base_offset, first = piece.base_offset, next(blobs)
        blobs = chain([first], blobs)
        if first.row["kind"] == BATCHES:
            return consecutive((unpack_batches(blob.data) for blob in blobs), base_offset)
        inside = (_within(_placed(blob), bounds) for blob in blobs)
        merged = merge(inside, self.merge_bytes, self.order_column)
        return encode(merged, encoding_of(self.topic, self.append_time_ms), base_offset)

    def _at_offsets(
        self, blobs: Iterator[SpooledBlob], bounds: PieceBounds, piece: ReducePiece
    ) -> Iterator[EncodedBatches]:
        inside = (_within(_placed(blob), bounds) for blob in blobs)
        merged = merge(inside, self.merge_bytes)
        name = f"{piece.topic}-{piece.partition}"
        covered = Covered(name, piece.base_offset, piece.end_offset)
        return encode_at(merged, encoding_of(self.topic, self.append_time_ms), covered)


def _placed(blob: SpooledBlob) -> PlacedRecords:
    return PlacedRecords(place_of(blob.row), blob.records())


def _within(records: PlacedRecords, bounds: PieceBounds) -> PlacedRecords:
    return records.part(records.count_before(bounds.start), records.count_before(bounds.end))


# ---------------- batches
# Sorted records as record batches at their final offsets.


class Covered(NamedTuple):
    """The offsets [start, end) of a log partition, named in errors, that batches are to cover.

    Without an end they end behind the last record.
    """

    name: str
    start: int
    end: int | None


def encode(
    parts: Iterator[SortedRecords], encoding: Encoding, base_offset: int
) -> Iterator[EncodedBatches]:
    """The record batches of consecutive records, offsets from `base_offset` on."""

    def framed(records: SortedRecords, before: int) -> EncodedBatches:
        return encode_batches(
            records.timestamps, records.bodies, encoding, base_offset=base_offset + before
        )

    return _filled(parts, framed, encoding.batch_bytes)


def _filled(
    parts: Iterator[SortedRecords],
    framed: Callable[[SortedRecords, int], EncodedBatches],
    batch_bytes: int,
) -> Iterator[EncodedBatches]:
    """The record batches of the parts, `framed` from records and the count of those before.

    The last record batch of a part is filled up with records of the next part, so where record
    batches end does not depend on where parts end.
    """
    done, unfilled = 0, cast("SortedRecords | None", None)
    for part in parts:
        records = part
        if unfilled is not None:
            head = joined([unfilled, part.part(0, _enough(part, batch_bytes))])
            first = _first(framed(head, done), 1)
            count = int(first.table["count"].sum(dtype=np.int64))
            if count == len(head):  # perhaps it is not full yet
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


def _enough(records: SortedRecords, batch_bytes: int) -> int:
    """How many records are more than one batch has; all of them if there are fewer."""
    return int(np.searchsorted(np.cumsum(records.bodies.sizes), batch_bytes, "right")) + 1


def _first(batches: EncodedBatches, count: int) -> EncodedBatches:
    """The first batches; none of a negative count."""
    table = batches.table[: max(count, 0)]
    end = int(table["position"][-1]) + int(table["size"][-1]) if len(table) else 0
    keys = batches.keys and batches.keys.part(0, int(table["count"].sum(dtype=np.int64)))
    return EncodedBatches(batches.data[:end], table, keys)


def consecutive(parts: Iterator[EncodedBatches], base_offset: int) -> Iterator[EncodedBatches]:
    """The parts, each with offsets from 0, moved to consecutive offsets from `base_offset` on."""
    for part in parts:
        yield rebase(part.data, part.table, base_offset)._replace(keys=part.keys)
        base_offset += int(part.table["last_offset"][-1]) + 1


def encode_at(
    parts: Iterator[SortedRecords], encoding: Encoding, covered: Covered
) -> Iterator[EncodedBatches]:
    """The record batches of records that keep their offsets, which are their sort keys.

    A gap is no batch, except where it is too long for one segment and at the end: there batches
    without a record cover it. Raises InputError for an offset that is there twice, or not covered.
    """
    at = covered.start

    def framed(records: SortedRecords, _before: int) -> EncodedBatches:
        return _at_offsets(records, encoding)

    for batches in _filled(_rising(parts, covered), framed, encoding.batch_bytes):
        yield from _bridged(batches, at)
        at = int(batches.table["last_offset"][-1]) + 1
    yield from _blanks(at, at if covered.end is None else covered.end)


def _rising(parts: Iterator[SortedRecords], covered: Covered) -> Iterator[SortedRecords]:
    """The parts with records, if their offsets are covered and rise; else InputError."""
    last, end = covered.start - 1, INT64_MAX if covered.end is None else covered.end
    for part in parts:
        offsets = np.append(last, part.sort_keys)
        for wrong in offsets[1:][np.diff(offsets) <= 0][:1]:
            raise InputError(
                f"{covered.name} has offset {wrong} twice in the input of one run: an offset is "
                "that of one record; remove the other"
            )
        last = int(offsets[-1])
        if last >= end:
            raise InputError(f"{covered.name}: the offset {last} is not below the end, {end}")
        if len(part):
            yield part


def _at_offsets(records: SortedRecords, encoding: Encoding) -> EncodedBatches:
    ties = records.tie_breakers
    return encode_batches(
        records.timestamps, records.bodies, replace(encoding, append_time_ms=None),
        offsets=records.sort_keys, stamped=None if ties is None else ties != 0,
    )  # fmt: skip


def _bridged(batches: EncodedBatches, at: int) -> Iterator[EncodedBatches]:
    """The batches behind the offset `at`, with others in gaps that no segment can span."""
    table = batches.table
    before = np.append(at, table["last_offset"] + 1)[:-1]  # the end of what precedes each batch
    far = np.flatnonzero(table["last_offset"] - before > INT32_MAX).tolist()
    for first, end in pairwise(sorted({0, *far, len(table)})):
        if first in far:
            yield from _blanks(int(before[first]), int(table["base_offset"][first]))
        yield EncodedBatches(batches.data, table[first:end])


def _blanks(start: int, end: int) -> Iterator[EncodedBatches]:
    """Batches without a record for the offsets [start, end)."""
    for first in range(start, end, INT32_MAX):
        yield blank(first, min(first + INT32_MAX, end) - 1)


# ---------------- merge
# Sorted blobs are merged into one sorted stream, in memory bounded by how far the blobs overlap.
#
# Blobs come in the order of their first records. So a record is final if it stands before the
# first record of the next blob. Records are collected until there are enough, then the final
# records are sorted and yielded together.


def merge(
    blobs: Iterator[PlacedRecords], buffer_bytes: int, order_column: str | None = None
) -> Iterator[SortedRecords]:
    """The records of all blobs in total order, about `buffer_bytes` at a time.

    `blobs` must come in the order of their places. Memory: `buffer_bytes`, and twice the
    blobs that overlap one place. With `order_column` two records with the same sort key and
    tie-breaker are an InputError that names the column; such records are always yielded together.
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
            enough = pending_bytes + buffer_bytes  # so overlapping blobs are not cut each time
        pending.append(blob)
        pending_bytes += blob.records.size_bytes
    if pending:
        yield join_sorted(pending)


def _rest(blobs: list[PlacedRecords], cuts: list[int]) -> list[PlacedRecords]:
    """The records at and behind the cuts."""
    pairs = zip(blobs, cuts, strict=True)
    return [blob.part(cut, len(blob.records)) for blob, cut in pairs if cut < len(blob.records)]
