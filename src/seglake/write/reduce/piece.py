"""Pieces: the contiguous parts of a log partition that reduce tasks write."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from seglake.catalog.schema import SegmentId
from seglake.write.spool.sorted_records import Place
from seglake.write.spool.spool import packed_rows


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
