"""Find lines in a buffer. A line ends at LF. A CR in front of the LF belongs to the line end.

A byte order mark at the beginning of a line does not belong to the line, because files may be
joined.
"""

import numpy as np

from seglake.compile.jit import njit
from seglake.format.records import Bytes, Int32s, Int64s
from seglake.text.simd import WIDTH, byte_at, lowest_bit, newline_mask


@njit(cache=True, nogil=True)
def count_newlines(data: Bytes, start: int, end: int) -> int:
    """Return the number of LF bytes in data[start:end]. `data` must be padded."""
    base = data.ctypes.data
    count = 0
    position = start
    while position < end:
        mask = newline_mask(base, position)
        if end - position < WIDTH:
            mask &= (1 << (end - position)) - 1
        while mask:
            mask &= mask - 1
            count += 1
        position += WIDTH
    return count


@njit(cache=True, nogil=True)
def mark_length(base: int, position: int) -> int:
    """Return the number of bytes of all UTF-8 byte order marks at `position`.

    Several marks may follow each other if files were joined.
    """
    length = 0
    while (
        byte_at(base, position + length) == 0xEF
        and byte_at(base, position + length + 1) == 0xBB
        and byte_at(base, position + length + 2) == 0xBF
    ):
        length += 3
    return length


@njit(cache=True, nogil=True)
def split_lines(data: Bytes, start: int, end: int) -> tuple[Int64s, Int32s, Int64s, int]:
    """Return (starts, lengths, line numbers, line count) of the lines in data[start:end].

    The last line may have no LF. Empty lines are omitted from the arrays, but line numbers (from 0)
    and the line count include them. `data` must be padded.
    """
    base = data.ctypes.data
    size = count_newlines(data, start, end) + 1
    starts, lengths = np.empty(size, np.int64), np.empty(size, np.int32)
    numbers = np.empty(size, np.int64)
    rows = number = 0
    line = position = start
    while position < end:
        mask = newline_mask(base, position)
        if end - position < WIDTH:
            mask &= (1 << (end - position)) - 1
        while mask:
            stop = position + lowest_bit(mask)
            mask &= mask - 1
            line += mark_length(base, line)
            length = stop - line
            length -= length > 0 and byte_at(base, stop - 1) == 0x0D
            starts[rows], lengths[rows], numbers[rows] = line, length, number
            rows += length > 0
            number += 1
            line = stop + 1
        position += WIDTH
    if line < end:
        line += mark_length(base, line)
        length = end - line
        length -= byte_at(base, end - 1) == 0x0D
        starts[rows], lengths[rows], numbers[rows] = line, length, number
        rows += length > 0
        number += 1
    return starts[:rows], lengths[:rows], numbers[:rows], number


@njit(cache=True, nogil=True)
def first_newline(data: Bytes, start: int, end: int) -> int:
    """Return the position of the first LF in data[start:end], or `end`. `data` must be padded."""
    base = data.ctypes.data
    while start < end:
        mask = newline_mask(base, start)
        if mask:
            return min(start + lowest_bit(mask), end)
        start += WIDTH
    return end


@njit(cache=True, nogil=True)
def last_newline(data: Bytes, start: int, end: int) -> int:
    """Return the position of the last LF in data[start:end], or -1 if there is no LF."""
    base = data.ctypes.data
    position = end - 1
    while position >= start:
        if byte_at(base, position) == 0x0A:
            return position
        position -= 1
    return -1


@njit(cache=True, nogil=True)
def skip_lines(data: Bytes, start: int, end: int, count: int) -> int:
    """Return the position after the first `count` lines of data[start:end], or `end`.

    `data` must be padded.
    """
    base = data.ctypes.data
    position = start
    while position < end:
        mask = newline_mask(base, position)
        while mask:
            stop = position + lowest_bit(mask) + 1
            mask &= mask - 1
            count -= 1
            if count == 0:
                return min(stop, end)
        position += WIDTH
    return end
