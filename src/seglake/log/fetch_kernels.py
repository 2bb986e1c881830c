"""Kernels of fetching: where batches are in a log, and which batches fill ranges."""

import numpy as np
import numpy.typing as npt

from seglake.compile.fallback import INTERPRETED, meanwhile
from seglake.compile.jit import njit
from seglake.format.batch import BatchTable
from seglake.format.records import Int32s, Int64s

BAD_OFFSETS, BAD_BOUNDARY = 1, 2
_MIXING, _SLOT_SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(48)
_ONCE, _AGAIN = np.uint64(0), np.uint64(1)
SEEN_SLOTS = 2**16

STRETCH = np.dtype(
    [
        ("owner", "i8"),  # the number of its piece
        ("start", "i8"),  # where it begins in the data
        ("shift", "i8"),  # added to a position in the data, gives the position in the log
        ("first_offset", "i8"),  # its batches have offsets from this one
        ("end_offset", "i8"),  # to this one, exclusive
    ]
)
"""A part of fetched data that is contiguous in one log."""

Stretches = npt.NDArray[np.void]  # of dtype STRETCH


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def place_batches(
    table: BatchTable, stretches: Stretches, last_offset: int, owner_of: Int32s,
    log_positions: Int64s,
) -> tuple[int, int]:  # fmt: skip
    """Find the stretch of the data that contains each batch, and check the batch's offsets.

    The kernel fills in the piece and the log position of each batch. It returns (0, 0), or the row
    of the first bad batch and its problem. BAD_OFFSETS: the offsets of the batch are outside the
    stretch, or do not ascend from `last_offset` on (offsets are outside the checksum).
    BAD_BOUNDARY: the batch has bytes of the next stretch.
    """
    current = 0
    last = last_offset
    for i in range(len(table)):
        position, base = table[i].position, table[i].base_offset
        if current + 1 < len(stretches) and position >= stretches[current + 1].start:
            current += 1
            if position != stretches[current].start:
                return max(i - 1, 0), BAD_BOUNDARY
            if stretches[current].owner != stretches[current - 1].owner:
                last = -1
        stretch, above = stretches[current], last
        last = table[i].last_offset
        if base <= above or base < stretch.first_offset or last >= stretch.end_offset:
            return i, BAD_OFFSETS
        owner_of[i] = stretch.owner
        log_positions[i] = position + stretch.shift
    unmet = len(stretches) - current - 1
    if unmet and len(table):
        end = table[-1].position + table[-1].size
        # Otherwise only the last stretch has no whole batch.
        if unmet > 1 or end != stretches[current + 1].start:
            return len(table) - 1, BAD_BOUNDARY
    return 0, 0


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def covering(
    positions: Int64s, stops: Int64s, starts: Int64s, ends: Int64s, numbers: Int64s
) -> int:
    """Fill `numbers` with the batches that fill the ranges without a gap. Return their number.

    Batch i is at [positions[i], stops[i]) of a log; batches ascend. Returns -1 if a byte of a range
    is in no batch, or if a batch extends beyond its range.
    """
    count = 0
    for i in range(len(starts)):
        at = starts[i]
        number = np.searchsorted(positions, at)
        while at < ends[i]:
            if number == len(positions) or positions[number] != at or count == len(numbers):
                return -1
            numbers[count] = number
            count += 1
            at = stops[number]
            number += 1
        if at != ends[i]:
            return -1
    return count


@njit(cache=True, nogil=True, inline="always")
def _mark(log: int, position: int) -> np.uint64:
    """Return the mark of the batch at a position of a log. Its highest bits are its slot.

    The lowest bit is 0 in the mark of a batch that was read once, and 1 if it was read again.
    """
    return np.uint64(log + position) * _MIXING & ~_AGAIN


@njit(cache=True, nogil=True)
@meanwhile(INTERPRETED)
def mark_seen(
    seen: npt.NDArray[np.uint64], logs: Int64s, owner_of: Int32s, positions: Int64s
) -> int:
    """Mark that these batches were read. Return how many of them were read at least twice before.

    The count is approximate, because two batches may share a slot of `seen`.

    Batch b is at positions[b] of logs[owner_of[b]].
    """
    count = 0
    for b in range(len(positions)):
        mark = _mark(logs[owner_of[b]], positions[b])
        count += seen[mark >> _SLOT_SHIFT] == mark | _AGAIN
    for b in range(len(positions)):
        mark = _mark(logs[owner_of[b]], positions[b])
        slot = mark >> _SLOT_SHIFT
        seen[slot] = mark | (_AGAIN if seen[slot] & ~_AGAIN == mark else _ONCE)
    return count
