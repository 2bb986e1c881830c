"""Check whether texts in a buffer are valid UTF-8."""

import numpy as np

from seglake.compile.jit import njit
from seglake.format.records import Bytes, Flags, Int32s, Int64s
from seglake.text.simd import WIDTH, byte_at, high_mask, lowest_bit


@njit(cache=True, nogil=True, forceinline=True)
def utf8_sequence(base: int, position: int) -> int:
    """Return the length of the UTF-8 sequence at `position`, or 0 if it is not well-formed.

    Unicode defines well-formed sequences (chapter 3, table 3-7): no overlong forms, no surrogates,
    nothing above U+10FFFF.
    """
    first = byte_at(base, position)
    if first < 0x80:
        return 1
    second = byte_at(base, position + 1)
    if 0xC2 <= first <= 0xDF:
        return 2 if second & 0xC0 == 0x80 else 0
    third = byte_at(base, position + 2)
    if 0xE0 <= first <= 0xEF:
        low = 0xA0 if first == 0xE0 else 0x80
        high = 0x9F if first == 0xED else 0xBF
        return 3 if low <= second <= high and third & 0xC0 == 0x80 else 0
    if 0xF0 <= first <= 0xF4:
        low = 0x90 if first == 0xF0 else 0x80
        high = 0x8F if first == 0xF4 else 0xBF
        fine = third & 0xC0 == 0x80 and byte_at(base, position + 3) & 0xC0 == 0x80
        return 4 if low <= second <= high and fine else 0
    return 0


@njit(cache=True, nogil=True)
def invalid_utf8(data: Bytes, starts: Int64s, lengths: Int32s) -> Flags:
    """Return, for each item of the padded buffer `data`, whether it is invalid UTF-8."""
    base = data.ctypes.data
    invalid = np.zeros(len(starts), np.bool_)
    for row in range(len(starts)):
        position, end = starts[row], starts[row] + max(lengths[row], 0)
        while position < end:
            mask = high_mask(base, position)
            position += lowest_bit(mask) if mask else WIDTH
            if mask == 0 or position >= end:
                continue
            size = utf8_sequence(base, position)
            if size == 0 or position + size > end:
                invalid[row] = True
                break
            position += size
    return invalid
