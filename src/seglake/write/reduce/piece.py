"""Pieces: the contiguous parts of a log partition that reduce tasks write."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from seglake.write.spool.order import Place


class Bounds(NamedTuple):
    """The places of a piece in its log partition: [start, end)."""

    partition: int
    start: Place
    end: Place


class Piece(NamedTuple):
    """Where a piece goes: it begins at `base_offset`."""

    topic: str
    partition: int
    attempt_id: str
    base_offset: int
    created_at_ms: int


class PieceInput(NamedTuple):
    """A piece, and its blobs: rows of SPOOLED in the order of their places."""

    piece: Piece
    bounds: Bounds
    spooled: pa.Table


class StraddlingBlob(NamedTuple):
    """A blob with records in several pieces; `spooled` is its row."""

    number: int
    bounds: dict[int, Bounds]  # by piece
    spooled: pa.Table
