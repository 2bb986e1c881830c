"""Kernels over bitmaps of offsets. Bit 0 of a bitmap is the lowest bit of its first byte."""

import numpy as np
import numpy.typing as npt

from seglake.compile.jit import njit
from seglake.format.records import Bytes, Int64s


@njit(cache=True, nogil=True)
def count_bits(bits: Bytes, starts: Int64s, ends: Int64s, counts: Int64s) -> None:
    """Fill counts[i] with the number of set bits from starts[i] to ends[i] (exclusive)."""
    for i in range(len(starts)):
        at, end, count = starts[i], ends[i], 0
        while at < end:
            byte = int(bits[at >> 3])
            if at & 7 == 0 and end - at >= 8:
                byte = byte - ((byte >> 1) & 0x55)
                byte = (byte & 0x33) + ((byte >> 2) & 0x33)
                count += (byte + (byte >> 4)) & 0x0F
                at += 8
            else:
                count += (byte >> (at & 7)) & 1
                at += 1
        counts[i] = count


@njit(cache=True, nogil=True)
def pick_bits(bits: Bytes, numbers: Int64s, picked: npt.NDArray[np.bool_]) -> None:
    """Fill `picked` with the bits that have these numbers."""
    for i in range(len(numbers)):
        picked[i] = (bits[numbers[i] >> 3] >> (numbers[i] & 7)) & 1
