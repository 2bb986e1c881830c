"""From streams to chunks of whole lines: a line ends at LF, and one CR before it is not part of it.

A chunk is a function of the file's bytes, the split and `task.chunk_bytes` alone, however the bytes
arrive. A line that is longer than a chunk is never held: its beginning is handed out, marked as too
long, and the rest is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from seglake.format.records import Bytes, Int32s, Int64s, Spans
from seglake.text.simd import (
    PADDING,
    WIDTH,
    byte_at,
    high_mask,
    lowest_bit,
    newline_mask,
    padded,
    utf8_sequence,
)
from seglake.write.input.streams import Stream

REJECTED_BYTES = 64 * 1024  # of a rejected row are kept
_TAIL_BYTES = 64 * 1024  # read at once to find the end of a split's last line
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@njit(cache=True, nogil=True)
def count_newlines(data: Bytes, start: int, end: int) -> int:
    """LF bytes in data[start:end]; `data` is padded."""
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
def split_lines(data: Bytes, start: int, end: int) -> tuple[Int64s, Int32s, Int64s, int]:
    """Positions, lengths and numbers of the lines in data[start:end], and the count of all lines.

    A last line without LF is a line. Empty lines are no rows and are left out, but they count in
    the numbers, which are 0-based, and in the count. `data` is padded.
    """
    base = data.ctypes.data
    size = count_newlines(data, start, end) + 1
    starts, lengths = np.empty(size, np.int64), np.empty(size, np.int32)
    numbers = np.empty(size, np.int64)
    kept = number = 0
    line = position = start
    while position < end:
        mask = newline_mask(base, position)
        if end - position < WIDTH:
            mask &= (1 << (end - position)) - 1
        while mask:
            stop = position + lowest_bit(mask)
            mask &= mask - 1
            length = stop - line
            length -= length > 0 and byte_at(base, stop - 1) == 0x0D
            starts[kept], lengths[kept], numbers[kept] = line, length, number
            kept += length > 0
            number += 1
            line = stop + 1
        position += WIDTH
    if line < end:
        length = end - line
        length -= byte_at(base, end - 1) == 0x0D
        starts[kept], lengths[kept], numbers[kept] = line, length, number
        kept += length > 0
        number += 1
    return starts[:kept], lengths[:kept], numbers[:kept], number


@njit(cache=True, nogil=True)
def first_newline(data: Bytes, start: int, end: int) -> int:
    """Position of the first LF in data[start:end], or `end`; `data` is padded."""
    base = data.ctypes.data
    while start < end:
        mask = newline_mask(base, start)
        if mask:
            return min(start + lowest_bit(mask), end)
        start += WIDTH
    return end


@njit(cache=True, nogil=True)
def last_newline(data: Bytes, start: int, end: int) -> int:
    """Position of the last LF in data[start:end], or -1."""
    base = data.ctypes.data
    position = end - 1
    while position >= start:
        if byte_at(base, position) == 0x0A:
            return position
        position -= 1
    return -1


@njit(cache=True, nogil=True)
def invalid_utf8(data: Bytes, starts: Int64s, lengths: Int32s) -> npt.NDArray[np.bool_]:
    """For each item of the padded buffer `data`: whether it is not valid UTF-8."""
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


class Lines:
    """Rows that are `raw` lines of a file."""

    raw: Spans

    def shown(self, rows: Int64s) -> Spans:
        """Some rows, by position, as the quarantine shows them."""
        return self.raw.take(rows)


class Window:
    """The part of a stream that is in memory: data[begin:filled], of which nothing was used yet.

    `position` is where data[0] stands in the stream; `final` says that the stream ends at `filled`.
    """

    def __init__(self, stream: Stream, size: int, limit: int) -> None:
        self._stream, self._size, self._limit = stream, size, limit
        self.data = padded(0)
        self.position = self.begin = self.filled = 0
        self.final = False

    def fill(self) -> bool:
        """Move what is unused to a new buffer and read on; False when nothing is left."""
        if self.final:
            return self.begin < self.filled
        kept = self.data[self.begin : self.filled]
        self.position += self.begin
        fresh = padded(self._wanted(len(kept)) + len(kept))
        fresh[: len(kept)] = kept
        self.begin, self.filled, target = 0, len(kept), len(fresh) - PADDING
        while self.filled < target and not self.final:
            size = self._stream.readinto(memoryview(fresh.data)[self.filled : target])
            self.final = size == 0
            self.filled += size
        self.data = fresh[: self.filled + PADDING]
        self.data[self.filled :] = 0
        return self.filled > 0

    def _wanted(self, kept: int) -> int:
        """How much to read: to the limit at once, beyond it in steps that grow with the line."""
        ahead = self._limit - self.position - kept
        return min(self._size - kept, max(ahead, kept, _TAIL_BYTES))

    @property
    def full(self) -> bool:
        """Whether a whole buffer holds unused bytes only."""
        return self.begin == 0 and self.filled == self._size

    @property
    def has_line(self) -> bool:
        """Whether a line ends in the window."""
        return first_newline(self.data, self.begin, self.filled) < self.filled

    @property
    def done(self) -> bool:
        """Whether everything that begins before the limit was used."""
        return self.position + self.begin >= self._limit

    def line_end(self) -> int:
        """The end of the last whole line that belongs here, or `begin` if there is none.

        At the limit that is the line which holds the limit's last byte.
        """
        target = max(self._limit - 1 - self.position, self.begin)
        if target < self.filled:
            stop = first_newline(self.data, target, self.filled)
            if stop < self.filled:
                return stop + 1
        if self.final:
            return self.filled
        return max(last_newline(self.data, self.begin, self.filled) + 1, self.begin)

    def skip_line(self) -> bool:
        """Use everything up to and with the next LF; whether it was in the window."""
        stop = first_newline(self.data, self.begin, self.filled)
        self.begin = min(stop + 1, self.filled)
        return stop < self.filled

    def skip_mark(self) -> None:
        """Use the byte order mark, if the window begins with one."""
        if self.data[self.begin : self.begin + 3].tobytes() == _BYTE_ORDER_MARK:
            self.begin += 3


class Chunk(NamedTuple):
    """Whole lines, data[start:end] of a padded buffer; or the beginning of one that is too long."""

    data: Bytes
    start: int
    end: int
    too_long: bool


def line_chunks(stream: Stream, size: int, limit: int, partial: bool) -> Iterator[Chunk]:
    """The lines that begin in the first `limit` bytes of `stream`, at most `size` bytes a chunk.

    With `partial` the stream begins inside a line, or with the LF of one, that is not wanted.
    """
    window = Window(stream, size, limit)
    skipping, at_start = partial, not partial
    while not window.done and window.fill():
        if at_start:
            window.skip_mark()
            at_start = False
        if skipping:
            skipping = not window.skip_line()
            if skipping or window.done:
                continue
        end = window.line_end()
        if end > window.begin:
            yield Chunk(window.data, window.begin, end, False)
            window.begin = end
        elif window.full:
            end = min(window.filled, REJECTED_BYTES)
            yield Chunk(window.data, 0, end, True)
            skipping = True
