"""Scan CSV: find the positions of records and of the requested fields.

A CSV record ends at an LF outside quotes. If there is a CR in front of the LF, it belongs to the
line end. A quote is special only at the beginning of a field. An escape is special only inside
quotes, in front of a quote or another escape, as Spark writes it.

`marks` are (delimiter, quote, whether quoted fields may contain line feeds, escape, character that
begins a comment). The last two are -1 if they are not set. `slots` has, for each column, its number
among the requested fields, or -1.
"""

import numpy as np
import numpy.typing as npt

from seglake.compile.jit import njit
from seglake.format.records import Bytes, Flags, Int32s, Int64s
from seglake.text.newlines import count_newlines, first_newline, mark_length
from seglake.text.simd import PADDING, WIDTH, byte_at, lowest_bit, pair_mask

_BAD_QUOTES = -1
_NOT_ENDED = -2
_FIELDS = tuple(b"fields")

Codes = npt.NDArray[np.int8]


@njit(cache=True, nogil=True)
def _next(base: int, position: int, end: int, byte: int, other: int) -> int:
    """Return the position of the next LF, `byte` or `other` in [position, end), or `end`.

    A negative `other` is ignored.
    """
    while position < end:
        mask = pair_mask(base, position, byte)
        if other >= 0:
            mask |= pair_mask(base, position, other)
        if mask:
            return min(position + lowest_bit(mask), end)
        position += WIDTH
    return end


@njit(cache=True, nogil=True)
def _closing_quote(
    base: int, position: int, end: int, quote: int, escape: int
) -> tuple[int, int, int]:
    """Find the closing quote. `position` is the byte after the opening quote.

    Returns (position of the closing quote, or `end` if it is missing; number of doubled quotes and
    escapes; number of line feeds).
    """
    pairs = feeds = 0
    while True:
        position = _next(base, position, end, quote, escape)
        if position == end:
            return end, pairs, feeds
        byte = byte_at(base, position)
        after = byte_at(base, position + 1) if position + 1 < end else -1
        if byte == quote and after != quote:
            return position, pairs, feeds
        is_pair = byte == quote or (byte == escape and after in (quote, escape))
        pairs += is_pair
        feeds += byte == 0x0A
        position += 1 + is_pair


@njit(cache=True, nogil=True)
def _record(
    base: int, position: int, end: int, marks: Int64s, slots: Int64s, spans: Int64s
) -> tuple[int, int, int]:
    """Scan one record. Return (position of its LF or `end`, number of columns, number of LFs).

    For a column with a slot, spans[slot] is set to (start, length, number of doubled quotes and
    escapes). If quotes are wrong, the position is _BAD_QUOTES, or _NOT_ENDED if `end` is inside
    quotes.
    """
    delimiter, quote = marks[0], marks[1]
    column = feeds = 0
    while True:
        doubled = 0
        start = position
        if position < end and byte_at(base, position) == quote:
            start += 1
            stop, doubled, inside = _closing_quote(base, start, end, quote, marks[3])
            feeds += inside
            if inside and not marks[2]:
                return _BAD_QUOTES, column, feeds
            if stop == end:
                return _NOT_ENDED, column, feeds
            position = stop + 1
            after = byte_at(base, position) if position < end else 0x0A
            if after == 0x0D and (position + 1 >= end or byte_at(base, position + 1) == 0x0A):
                position = min(position + 1, end)
                after = 0x0A
            if after not in (delimiter, 0x0A):
                return _BAD_QUOTES, column, feeds
        else:
            position = _next(base, position, end, delimiter, -1)
            stop = position
            if (stop == end or byte_at(base, stop) == 0x0A) and stop > start:
                stop -= byte_at(base, stop - 1) == 0x0D
        slot = slots[column] if column < len(slots) else -1
        if slot >= 0:
            spans[slot, 0], spans[slot, 1], spans[slot, 2] = start, stop - start, doubled
        column += 1
        if position == end or byte_at(base, position) == 0x0A:
            return position, column, feeds
        position += 1


@njit(cache=True, nogil=True)
def _names_columns(base: int, position: int) -> bool:
    """Return whether the comment at `position` begins with `#Fields:` or, as in Zeek, `#fields`.

    The case of letters does not matter.
    """
    for k in range(len(_FIELDS)):
        if byte_at(base, position + 1 + k) | 0x20 != _FIELDS[k]:
            return False
    return byte_at(base, position + 1 + len(_FIELDS)) in (0x3A, 0x09)


@njit(cache=True, nogil=True)
def scan_records(
    data: Bytes,
    position: int,
    end: int,
    final: bool,
    marks: Int64s,
    slots: Int64s,
    slot_count: int,
    most: int,
    stop_at: int,
) -> tuple[Int64s, Int64s, Int64s, Codes, Int64s, int, int, int, bool, bool]:
    """Find at most `most` records in data[position:end] that begin before `stop_at`.

    Returns five arrays: the start, length, line number (from 0), reason and spans of each record.
    The reason is 0 or, for a record that cannot be read, 1. Then three integers: the position where
    the records end, and the numbers of lines and comments before that position. Then two flags:
    whether other lines follow, and whether the first of them is a comment that names columns.

    Unless `final`, a record or comment that reaches `end` is omitted, and the last two results are
    False. A byte order mark at the beginning of a line is skipped, because files may be joined.
    """
    base = data.ctypes.data
    most = min(count_newlines(data, position, min(stop_at, end)) + 1, most)
    starts, lengths = np.empty(most, np.int64), np.empty(most, np.int64)
    numbers, reasons = np.empty(most, np.int64), np.zeros(most, np.int8)
    spans = np.zeros((most, slot_count, 3), np.int64)
    row = number = comments = 0
    named = False
    while position < min(stop_at, end) and row < most:
        position += mark_length(base, position)
        if byte_at(base, position) == marks[4]:
            stop = first_newline(data, position, end)
            if stop == end and not final:
                end = position
                break
            if _names_columns(base, position):
                named = True
                break
            number += 1
            comments += 1
            position = min(stop + 1, end)
            continue
        stop, columns, feeds = _record(base, position, end, marks, slots, spans[row])
        reason = 0 if columns == len(slots) else 1
        if stop < 0:
            if stop == _NOT_ENDED and not final:
                end = position
                break
            reason, feeds = 1, 0
            stop = first_newline(data, position, end)
        if stop == end and not final:
            end = position
            break
        length = stop - position
        length -= length > 0 and byte_at(base, stop - 1) == 0x0D
        if length > 0:
            starts[row], lengths[row], numbers[row] = position, length, number
            reasons[row] = reason
            if reason:
                spans[row] = 0
            row += 1
        number += feeds + 1
        position = min(stop + 1, end)
    return (
        starts[:row], lengths[:row], numbers[:row], reasons[:row], spans[:row],
        position, number, comments, position < end, named,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def scan_values(
    data: Bytes, starts: Int64s, lengths: Int32s, marks: Int64s, slots: Int64s, slot_count: int
) -> tuple[Flags, Int64s]:
    """Return (whether each item is one record with all columns, spans of the fields of each item).

    See `_record` for the spans. `data` must be padded.
    """
    base = data.ctypes.data
    fine = np.zeros(len(starts), np.bool_)
    spans = np.zeros((len(starts), slot_count, 3), np.int64)
    for row in range(len(starts)):
        position, end = starts[row], starts[row] + lengths[row]
        if position < end and byte_at(base, end - 1) == 0x0A:
            end -= 1
        if position >= end or (position + 1 == end and byte_at(base, position) == 0x0D):
            continue
        stop, columns, _ = _record(base, position, end, marks, slots, spans[row])
        fine[row] = stop == end and columns == len(slots)
        if not fine[row]:
            spans[row] = 0
    return fine, spans


@njit(cache=True, nogil=True)
def undouble(
    data: Bytes, starts: Int64s, lengths: Int32s, pairs: Int64s, quote: int, escape: int
) -> tuple[Bytes, Int64s]:
    """Copy the items without the first character of each pair. Return (bytes, item ends).

    A pair is a doubled quote, or an escape and the escaped character. `pairs` has the number of
    pairs in each item.
    """
    total = 0
    for row in range(len(starts)):
        total += max(lengths[row], 0) - pairs[row]
    out, ends = np.empty(total + PADDING, np.uint8), np.empty(len(starts), np.int64)
    base, size = data.ctypes.data, 0
    for row in range(len(starts)):
        position, end = starts[row], starts[row] + max(lengths[row], 0)
        while position < end:
            byte = byte_at(base, position)
            if pairs[row] > 0 and byte in (quote, escape) and position + 1 < end:
                after = byte_at(base, position + 1)
                position += byte == quote or after in (quote, escape)
            out[size] = byte_at(base, position)
            position += 1
            size += 1
        ends[row] = size
    return out, ends
