"""The compiled loops of decoding: which record batches are wanted, and copies into Arrow columns.

As in `format.encode_kernels`; the one kernel called from another module is `put_bytes`.
"""

from typing import Any

import numpy.typing as npt

from seglake.format.batch import BatchTable
from seglake.format.encode_kernels import put_bytes
from seglake.format.records import Bytes, Int32s, Int64s
from seglake.jit import njit

_CONTROL = 0x20


@njit(cache=True, nogil=True)
def wanted_batches(
    table: BatchTable, owner_of: Int32s, limits: npt.NDArray[Any], rows: Int64s
) -> int:
    """Fill `rows` with the batches that may have a record in the window of their piece.

    Piece p has the window limits[p]: smallest and largest timestamp, smallest and largest offset.
    Returns how many batches there are.
    """
    found = 0
    for i in range(len(table)):
        row, window = table[i], limits[owner_of[i]]
        if (
            row.attributes & _CONTROL == 0
            and row.max_timestamp >= window[0]
            and row.last_offset >= window[2]
            and row.base_offset <= window[3]
        ):
            rows[found] = i
            found += 1
    return found


@njit(cache=True, nogil=True)
def bytes_of_batches(table: BatchTable, batches: Int32s) -> int:
    """Bytes of the different batches among the ascending `batches`."""
    total, last = 0, -1
    for batch in batches:
        if batch != last:
            total += table[batch].size
            last = batch
    return total


@njit(cache=True, nogil=True)
def append_items(
    data: Bytes, starts: Int64s, lengths: Int32s,
    at: int, offsets: Int32s, out: Bytes, valid: Bytes,
) -> int:  # fmt: skip
    """Copy items behind the first `at` items of an Arrow column; returns how many are null."""
    nulls = 0
    used = int(offsets[at])
    for i in range(len(starts)):
        length = int(lengths[i])
        used = put_bytes(out, used, data, starts[i], length)
        offsets[at + i + 1] = used
        valid[at + i] = length >= 0
        nulls += length < 0
    return nulls
