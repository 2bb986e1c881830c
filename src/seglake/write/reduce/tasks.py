"""The tasks of the reduce side. Each is pickled to where it runs, with one item of work.

CountStraddling   straddling blobs → records per piece   only where a hot partition was cut
WritePieces       blobs of pieces → segments
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from seglake.catalog.schema import SegmentRow
from seglake.config import Topic
from seglake.engine import Amounts
from seglake.format.encode import EncodedBatches
from seglake.log.encoding import encoding_of
from seglake.log.writer import SegmentWriter
from seglake.store import Store
from seglake.write.reduce.batches import Covered, consecutive, encode, encode_at
from seglake.write.reduce.merge import merge
from seglake.write.reduce.piece import PieceBounds, PieceInput, ReducePiece, StraddlingBlob
from seglake.write.spool.merge_order import PlacedRecords
from seglake.write.spool.packing import unpack_batches
from seglake.write.spool.spool import BATCHES, SpooledBlob, place_of, read_blobs, unpacked_rows


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
