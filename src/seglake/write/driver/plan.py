"""Planning between the stages: which blob goes to which piece, and where each piece begins.

Pure functions over what the driver knows of the blobs. A log partition whose records exceed a bound
is cut into pieces, so that all cores work on a hot partition; the cuts are places at which blobs
begin, chosen from the blobs alone, never from the number of cores. A blob that overlaps a cut is
counted exactly (`straddlers`) and sent to both sides, where each keeps its own part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from seglake.limits import INT64_MAX, INT64_MIN
from seglake.write.reduce.merge import Place

TASKS_PER_CORE = 3  # enough to balance, few enough to pay for

FIRST = Place(INT64_MIN, 0, 0, 0)
LAST = Place(INT64_MAX, INT64_MAX, INT64_MAX, 0)


@dataclass(frozen=True)
class Cut:
    """A piece of one log partition: the records at places in [start, end)."""

    partition: int
    start: Place
    end: Place


@dataclass(frozen=True)
class Blobs:
    """What the driver knows of the blobs with records: one item of each column per blob."""

    partition: np.ndarray
    begin: list[Place]  # place of the first record
    last: list[Place]  # place of the last record
    records: np.ndarray
    size_bytes: np.ndarray

    @classmethod
    def of(cls, staged: pa.Table) -> Blobs:
        """From rows of STAGED; the number of a blob is that of its row."""
        column = {name: staged[name].to_numpy() for name in staged.column_names}
        tails = [column["unit"].tolist(), column["sequence"].tolist()]
        begin = zip(column["key"].tolist(), column["second"].tolist(), *tails, strict=True)
        last = zip(column["last_key"].tolist(), column["last_second"].tolist(), *tails, strict=True)
        return cls(
            column["partition"],
            [Place(*each) for each in begin],
            [Place(*each) for each in last],
            column["records"],
            column["size_bytes"],
        )

    def __len__(self) -> int:
        return len(self.begin)


def cut_partitions(blobs: Blobs, max_bytes: int) -> list[Cut]:
    """The pieces of every log partition that has records, each of about `max_bytes` of bodies."""
    cuts = []
    for partition in np.unique(blobs.partition).tolist():
        members = np.flatnonzero(blobs.partition == partition).tolist()
        members.sort(key=blobs.begin.__getitem__)
        ends = np.cumsum(blobs.size_bytes[members])
        count = -(-int(ends[-1]) // max_bytes)
        targets = ends[-1] * np.arange(1, count) // count
        places = [blobs.begin[members[i]] for i in np.searchsorted(ends, targets, "right").tolist()]
        edges = [FIRST, *sorted(set(places) - {blobs.begin[members[0]]}), LAST]
        cuts += [Cut(partition, *edge) for edge in pairwise(edges)]
    return cuts


def assign(blobs: Blobs, cuts: list[Cut]) -> list[tuple[int, int]]:
    """(blob, piece) for every piece in which a blob may have records, in ascending order."""
    pieces: dict[int, list[int]] = {}
    for number, cut in enumerate(cuts):
        pieces.setdefault(cut.partition, []).append(number)
    return [
        (blob, piece)
        for blob, partition in enumerate(blobs.partition.tolist())
        for piece in pieces[partition]
        if blobs.begin[blob] < cuts[piece].end and blobs.last[blob] >= cuts[piece].start
    ]


def straddlers(assignments: list[tuple[int, int]]) -> dict[int, list[int]]:
    """The pieces of every blob that has records in more than one."""
    pieces: dict[int, list[int]] = {}
    for blob, piece in assignments:
        pieces.setdefault(blob, []).append(piece)
    return {blob: members for blob, members in pieces.items() if len(members) > 1}


def count_pieces(
    blobs: Blobs, assignments: list[tuple[int, int]], counted: Mapping[tuple[int, int], int]
) -> list[int]:
    """Records in each piece; `counted` has those of each (straddling blob, piece)."""
    totals = [0] * (1 + max((piece for _, piece in assignments), default=-1))
    for blob, piece in assignments:
        totals[piece] += counted.get((blob, piece), int(blobs.records[blob]))
    return totals


def base_offsets(cuts: list[Cut], counts: list[int], ends: Mapping[int, int]) -> list[int]:
    """The first offset of each piece, when each log partition goes on from its end offset."""
    following = dict(ends)
    bases = []
    for cut, count in zip(cuts, counts, strict=True):
        bases.append(following.get(cut.partition, 0))
        following[cut.partition] = bases[-1] + count
    return bases


def pack(sizes: list[int], bins: int) -> list[int]:
    """The bin of each item: the largest first into the emptiest, at most `bins` of them."""
    loads = np.zeros(max(min(bins, len(sizes)), 1), np.int64)
    chosen = [0] * len(sizes)
    for item in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        chosen[item] = int(np.argmin(loads))
        loads[chosen[item]] += sizes[item] + 1
    return chosen


def share_out(
    blobs: Blobs, assignments: list[tuple[int, int]], pieces: int, max_tasks: int
) -> list[list[tuple[int, list[int]]]]:
    """The (piece, its blobs in order of their places) of each task."""
    members: list[list[int]] = [[] for _ in range(pieces)]
    for blob, piece in assignments:
        members[piece].append(blob)
    bins = pack([int(blobs.size_bytes[blobs_of].sum()) for blobs_of in members], max_tasks)
    tasks: list[list[tuple[int, list[int]]]] = [[] for _ in range(max(bins, default=-1) + 1)]
    for piece, blobs_of in enumerate(members):
        tasks[bins[piece]].append((piece, sorted(blobs_of, key=blobs.begin.__getitem__)))
    return tasks
