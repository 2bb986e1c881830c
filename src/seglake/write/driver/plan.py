"""Plan the reduce tasks: the blobs that each piece reads, and the offset at which it begins.

A log partition with too many bytes is cut into pieces, so that all cores work on a hot partition.
A cut is always the first record of a blob. So cuts depend only on the blobs, never on the number of
cores. If a cut lies inside the range of another blob, both pieces read that blob, and each uses its
part of the records. The plan counts the records of these parts exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seglake.engine import TASKS_PER_CORE, share_out
from seglake.format.records import Int64s
from seglake.write.driver.attempt import Attempt, end_offsets
from seglake.write.reduce.tasks import CountSpanningBlobs, PieceBounds, PieceInput, SpanningBlob
from seglake.write.spool.sorted_records import FIRST, LAST, Place
from seglake.write.spool.spool import pack_rows, rows_at

_UNIT_SHIFT = 32  # a blob's name is (unit << 32 | number in the unit)


@dataclass(frozen=True)
class Blobs:
    """All blobs that have records, as columns with one item per blob.

    `first` and `last` are the ranks of the `Place` of each blob's first and last record, among the
    first and last records of all blobs. Equal places have equal ranks.
    """

    partition: Int64s
    first: Int64s
    last: Int64s
    records: Int64s
    size_bytes: Int64s
    places: tuple[Int64s, ...]  # the columns of the `Place` of the first record

    @classmethod
    def from_spooled(cls, spooled: pa.Table) -> Blobs:
        """Create the columns from SPOOLED rows. The number of a blob is the position of its row."""
        partition, records, size_bytes, unit, number, *sorted_by = (
            spooled[name].to_numpy().astype(np.int64, copy=False) for name in _NAMES
        )
        places, ends = (*sorted_by[:2], unit, number), (*sorted_by[2:], unit, number)
        ranks = _ranks(*map(np.concatenate, zip(places, ends, strict=True)))
        first, last = ranks[: len(unit)], ranks[len(unit) :]
        return cls(partition, first, last, records, size_bytes, places)

    def __len__(self) -> int:
        return len(self.first)

    def place(self, blob: int) -> Place:
        """Return the `Place` of the first record of the blob with the number `blob`."""
        return Place(*(int(column[blob]) for column in self.places))

    def ranks_of(self, places: Sequence[Place]) -> Int64s:
        """Return the rank of each `Place`, which must be `FIRST` or a blob's first place.

        The rank of `FIRST` is -1.
        """
        names = (self.places[2] << _UNIT_SHIFT) | self.places[3]
        asked = np.array([place.unit << _UNIT_SHIFT | place.blob for place in places], np.int64)
        candidates = np.flatnonzero(np.isin(names, asked)).tolist()
        ranks = {self.place(blob): int(self.first[blob]) for blob in candidates}
        return np.array([ranks.get(place, -1) for place in places], np.int64)


_NAMES = (
    "partition", "records", "size_bytes", "unit", "number",
    "sort_key", "tie_breaker", "last_sort_key", "last_tie_breaker",
)  # fmt: skip


def _ranks(*columns: Int64s) -> Int64s:
    """Return the rank of each row, from 0, in the order of the columns. Equal rows share a rank."""
    order = np.lexsort(columns[::-1])
    above = np.zeros(len(order), bool)
    for column in columns:
        ordered = column[order]
        above[1:] |= ordered[1:] != ordered[:-1]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(above)
    return ranks


class BlobAssignment(NamedTuple):
    """Sorted pairs (blob number, number of a piece that may contain records of the blob)."""

    blobs: Int64s
    pieces: Int64s

    def spanning(self) -> Any:
        """Return, for each pair, whether its blob occurs in several pairs."""
        same = self.blobs[1:] == self.blobs[:-1]
        return (np.append(False, same) | np.append(same, False))[: len(self.blobs)]


def cut_partitions(blobs: Blobs, max_bytes: int) -> list[PieceBounds]:
    """Cut each log partition that has records into pieces of about `max_bytes` of record bodies."""
    order = np.lexsort((blobs.first, blobs.partition))
    partitions, begins = np.unique(blobs.partition[order], return_index=True)
    pieces = []
    for partition, members in zip(partitions.tolist(), np.split(order, begins)[1:], strict=True):
        ends = np.cumsum(blobs.size_bytes[members])
        count = -(-int(ends[-1]) // max_bytes)
        targets = ends[-1] * np.arange(1, count) // count
        cuts = np.unique(np.searchsorted(ends, targets, "right"))
        edges = [FIRST, *(blobs.place(members[cut]) for cut in cuts[cuts > 0].tolist()), LAST]
        pieces += [PieceBounds(partition, *edge) for edge in pairwise(edges)]
    return pieces


def assign(blobs: Blobs, pieces: Sequence[PieceBounds]) -> BlobAssignment:
    """Assign each blob to the pieces that may contain its records.

    The bounds of the pieces of a log partition must be adjacent, from `FIRST` to `LAST`.
    """
    width = 2 * len(blobs) + 2  # above every rank, so that log partitions do not overlap
    partitions = np.array([piece.partition for piece in pieces], np.int64)
    starts = partitions * width + blobs.ranks_of([piece.start for piece in pieces]) + 1
    order = np.argsort(starts)
    starts, own = starts[order], blobs.partition * width + 1
    lows, highs = (starts.searchsorted(own + r, "right") - 1 for r in (blobs.first, blobs.last))
    counts = highs - lows + 1
    numbers = np.repeat(np.arange(len(blobs)), counts)
    nth = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
    return BlobAssignment(numbers, order[lows[numbers] + nth])


def spanning_blobs(routes: BlobAssignment) -> dict[int, list[int]]:
    """Return blob number → piece numbers, for each blob that is assigned to several pieces."""
    pieces_of: dict[int, list[int]] = {}
    several = routes.spanning()
    pairs = zip(routes.blobs[several].tolist(), routes.pieces[several].tolist(), strict=True)
    for blob, piece in pairs:
        pieces_of.setdefault(blob, []).append(piece)
    return pieces_of


def count_records(
    blobs: Blobs, routes: BlobAssignment, straddling: Mapping[tuple[int, int], int]
) -> list[int]:
    """Return the number of records of each piece.

    `straddling` has the number of records of each (blob, piece) for blobs in several pieces.
    """
    records, several = blobs.records[routes.blobs], routes.spanning()
    pairs = zip(routes.blobs[several].tolist(), routes.pieces[several].tolist(), strict=True)
    records[several] = [straddling[pair] for pair in pairs]
    totals = np.zeros(1 + int(routes.pieces.max(initial=-1)), np.int64)
    np.add.at(totals, routes.pieces, records)
    return totals.tolist()


def base_offsets(
    pieces: Sequence[PieceBounds], counts: list[int], ends: Mapping[int, int]
) -> list[int]:
    """Return the first offset of each piece. Pieces of a log partition must be in ascending order.

    `counts` has the number of records of each piece, and `ends` the end offset of each log
    partition that exists already.
    """
    next_offsets = dict(ends)
    bases = []
    for piece, count in zip(pieces, counts, strict=True):
        bases.append(next_offsets.get(piece.partition, 0))
        next_offsets[piece.partition] = bases[-1] + count
    return bases


def share_pieces(
    blobs: Blobs, routes: BlobAssignment, pieces: int, tasks: int
) -> list[list[tuple[int, Int64s]]]:
    """Distribute pieces, numbered below `pieces`, over at most `tasks` tasks of similar size.

    Each task is a list of pairs (piece number, numbers of its blobs in total order).
    """
    order = np.lexsort((blobs.first[routes.blobs], routes.pieces))
    members, numbers = routes.blobs[order], routes.pieces[order]
    begins = numbers.searchsorted(np.arange(pieces))
    of_piece = np.split(members, begins)[1:]
    sizes = [int(blobs.size_bytes[blobs_of_piece].sum()) for blobs_of_piece in of_piece]
    return [[(piece, of_piece[piece]) for piece in share] for share in share_out(sizes, tasks)]


def plan_tasks(attempt: Attempt, spooled: pa.Table) -> list[list[PieceInput]]:
    """Return the pieces that each reduce task writes, with their blobs and offsets."""
    blobs, counts = Blobs.from_spooled(spooled), list[int]()
    pieces = cut_partitions(blobs, attempt.pipeline.task.piece_bytes)
    offsets: list[tuple[int, int | None]]  # the first offset of each piece, and its fixed end
    routes, ends = assign(blobs, pieces), end_offsets(attempt.base, attempt.topic)
    if attempt.settings.topic.offset_field is None:
        counts = count_records(blobs, routes, _count_spanning(attempt, spooled, routes, pieces))
        offsets = [(base, None) for base in base_offsets(pieces, counts, ends)]
    else:
        bases = [ends.get(p, 0) if start == FIRST else start.sort_key for p, start, _ in pieces]
        fixed_ends = [None if end == LAST else end.sort_key for _, _, end in pieces]
        offsets = list(zip(bases, fixed_ends, strict=True))

    def piece_input(number: int, members: Int64s) -> PieceInput:
        rows = rows_at(spooled, members)
        records = counts[number] if counts else int(rows["records"].to_numpy().sum())
        return PieceInput(pieces[number], *offsets[number], pack_rows(rows), records)

    most = TASKS_PER_CORE * attempt.engine.cores_for(int(blobs.size_bytes.sum()))
    tasks = share_pieces(blobs, routes, len(pieces), most)
    return [[piece_input(number, members) for number, members in task] for task in tasks]


def _count_spanning(
    attempt: Attempt, spooled: pa.Table, routes: BlobAssignment, pieces: list[PieceBounds]
) -> dict[tuple[int, int], int]:
    """Return (blob number, piece number) → number of records, for blobs in several pieces."""
    pieces_of = spanning_blobs(routes)
    rows = rows_at(spooled, np.fromiter(pieces_of, np.int64))
    straddling = [
        SpanningBlob(blob, {piece: pieces[piece] for piece in members}, rows.take([at]))
        for at, (blob, members) in enumerate(pieces_of.items())
    ]
    cores = attempt.engine.cores_for(int(rows["size_bytes"].to_numpy().sum()))
    tasks = min(len(straddling), TASKS_PER_CORE * cores)
    shares = [straddling[first::tasks] for first in range(tasks)]
    by_task = attempt.engine.map(CountSpanningBlobs(attempt.store), shares)
    return dict(chain.from_iterable(counts.items() for counts in by_task))
