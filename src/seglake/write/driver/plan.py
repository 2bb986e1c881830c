"""Planning between map and reduce: which blobs a piece reads, and at which offset it begins.

These are pure functions of the rows in the spool. A log partition with too many bytes is cut into
pieces, so that all cores work on a hot partition. Cuts are places at which blobs begin: a function
of the blobs alone, never of the number of cores. A blob that overlaps a cut (a straddler) is
counted exactly and given to both pieces; each piece takes its own part of the records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from seglake.engine import share_out
from seglake.write.reduce.piece import Bounds
from seglake.write.spool.order import FIRST, LAST, Place
from seglake.write.spool.spool import places


@dataclass(frozen=True)
class Blobs:
    """The blobs with records, in columns: one item per blob."""

    partition: np.ndarray
    first: list[Place]  # of the first record
    last: list[Place]  # of the last record
    records: np.ndarray
    size_bytes: np.ndarray

    @classmethod
    def of(cls, spooled: pa.Table) -> Blobs:
        """From rows of SPOOLED; the number of a blob is the number of its row."""
        names = ("partition", "records", "size_bytes")
        partition, records, size_bytes = (spooled[name].to_numpy() for name in names)
        first = places(spooled, "sort_key", "tie_breaker")
        last = places(spooled, "last_sort_key", "last_tie_breaker")
        return cls(partition, first, last, records, size_bytes)

    def __len__(self) -> int:
        return len(self.first)


def cut_partitions(blobs: Blobs, max_bytes: int) -> list[Bounds]:
    """The pieces of every log partition that has records, each of about `max_bytes` of bodies."""
    pieces = []
    for partition in np.unique(blobs.partition).tolist():
        members = np.flatnonzero(blobs.partition == partition).tolist()
        members.sort(key=blobs.first.__getitem__)
        ends = np.cumsum(blobs.size_bytes[members])
        count = -(-int(ends[-1]) // max_bytes)
        targets = ends[-1] * np.arange(1, count) // count
        cuts = [blobs.first[members[i]] for i in np.searchsorted(ends, targets, "right").tolist()]
        edges = [FIRST, *sorted(set(cuts) - {blobs.first[members[0]]}), LAST]
        pieces += [Bounds(partition, *edge) for edge in pairwise(edges)]
    return pieces


def assign(blobs: Blobs, pieces: Sequence[Bounds]) -> list[tuple[int, int]]:
    """(blob, piece) for every piece that may have records of a blob, in ascending order."""
    of_partition: dict[int, list[int]] = {}
    for number, piece in enumerate(pieces):
        of_partition.setdefault(piece.partition, []).append(number)
    return [
        (blob, piece)
        for blob, partition in enumerate(blobs.partition.tolist())
        for piece in of_partition[partition]
        if blobs.first[blob] < pieces[piece].end and blobs.last[blob] >= pieces[piece].start
    ]


def straddlers(assignments: list[tuple[int, int]]) -> dict[int, list[int]]:
    """The pieces of every blob that may have records in more than one piece."""
    pieces: dict[int, list[int]] = {}
    for blob, piece in assignments:
        pieces.setdefault(blob, []).append(piece)
    return {blob: members for blob, members in pieces.items() if len(members) > 1}


def count_records(
    blobs: Blobs, assignments: list[tuple[int, int]], straddling: Mapping[tuple[int, int], int]
) -> list[int]:
    """The count of records of each piece; `straddling` counts those of (straddler, piece)."""
    totals = [0] * (1 + max((piece for _, piece in assignments), default=-1))
    for blob, piece in assignments:
        totals[piece] += straddling.get((blob, piece), int(blobs.records[blob]))
    return totals


def base_offsets(pieces: Sequence[Bounds], counts: list[int], ends: Mapping[int, int]) -> list[int]:
    """The first offset of each piece; each log partition goes on from its end offset."""
    next_offsets = dict(ends)
    bases = []
    for piece, count in zip(pieces, counts, strict=True):
        bases.append(next_offsets.get(piece.partition, 0))
        next_offsets[piece.partition] = bases[-1] + count
    return bases


def fixed_ends(
    pieces: Sequence[Bounds], ends: Mapping[int, int]
) -> list[tuple[int | None, int | None]]:
    """(first offset, end) of each piece whose records keep their offsets, which are sort keys.

    The first piece of a log partition begins where the log goes on: None. The last one ends at the
    end of its log partition, if `ends` has it.
    """
    found = list[tuple[int | None, int | None]]()
    for piece in pieces:
        start = None if piece.start == FIRST else piece.start.sort_key
        end = ends.get(piece.partition) if piece.end == LAST else piece.end.sort_key
        found.append((start, end))
    return found


def share_pieces(
    blobs: Blobs, assignments: list[tuple[int, int]], pieces: int, tasks: int
) -> list[list[tuple[int, list[int]]]]:
    """For each of at most `tasks` tasks: (piece, its blobs in the order of their places)."""
    members: list[list[int]] = [[] for _ in range(pieces)]
    for blob, piece in assignments:
        members[piece].append(blob)
    sizes = [int(blobs.size_bytes[of_piece].sum()) for of_piece in members]
    ordered = [sorted(of_piece, key=blobs.first.__getitem__) for of_piece in members]
    return [[(piece, ordered[piece]) for piece in share] for share in share_out(sizes, tasks)]
