"""Read times: numbers, ISO 8601, and the steps of a compiled strptime pattern."""

import numpy as np
import numpy.typing as npt

from seglake.compile.jit import njit
from seglake.format.records import Bytes, Flags, Int32s, Int64s
from seglake.text.simd import byte_at
from seglake.times.grammar import (
    BLANKS,
    DAY,
    FRACTION,
    HALF,
    HALF_HOUR,
    HAS_ZONE,
    HOUR,
    LITERAL,
    MILLISECOND,
    MINUTE,
    MONTH,
    NAME,
    NUMBER,
    OFFSET,
    PARTS,
    SECOND,
    SHORT_YEAR,
    YEAR,
    YEAR_DAY,
    ZONE,
)  # fmt: skip

READ, UNREADABLE, OUT_OF_RANGE = 0, 1, 2
AMBIGUOUS, NONEXISTENT = 3, 4  # local times that the settings reject
MAX_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z

_ISO_STEPS = (
    (YEAR, 4, 0),
    (MONTH, 2, ord("-")),
    (DAY, 2, ord("-")),
    (HOUR, 2, ord("T")),
    (MINUTE, 2, ord(":")),
    (SECOND, 2, ord(":")),
)

Codes = npt.NDArray[np.int8]
Names = npt.NDArray[np.uint8]
Steps = npt.NDArray[np.int64]


@njit(cache=True, nogil=True)
def _number(base: int, position: int, end: int, power: int) -> tuple[int, int]:
    """Return (the decimal number [position, end) times 10 ** power, rounded down; a code).

    The fraction of the number follows a point or, as in many countries, a comma.
    """
    negative = position < end and byte_at(base, position) == 0x2D
    position += negative
    mantissa = digits = used = 0
    point = False
    while position < end:
        byte = byte_at(base, position)
        if 0x30 <= byte <= 0x39:
            digits += 1
            if used < 18:
                mantissa = mantissa * 10 + byte - 0x30
                used += mantissa > 0
                power -= point
            else:
                power += not point
        elif byte in (0x2E, 0x2C) and not point and digits > 0:
            point = True
        else:
            break
        position += 1
    if digits == 0 or byte_at(base, position - 1) in (0x2E, 0x2C):
        return 0, UNREADABLE
    if position < end and byte_at(base, position) | 0x20 == 0x65:
        sign = byte_at(base, position + 1) if position + 1 < end else 0
        position += 2 if sign in (0x2B, 0x2D) else 1
        exponent, begin = 0, position
        while position < end and 0x30 <= byte_at(base, position) <= 0x39:
            exponent = min(exponent * 10 + byte_at(base, position) - 0x30, 10_000)
            position += 1
        power += -exponent if sign == 0x2D else exponent
        if position == begin:
            return 0, UNREADABLE
    if position != end:
        return 0, UNREADABLE
    if mantissa == 0:
        return 0, READ
    if negative:
        return -1, OUT_OF_RANGE
    while power > 0 and mantissa <= MAX_MS:
        mantissa *= 10
        power -= 1
    while power < 0 and mantissa > 0:
        mantissa //= 10
        power += 1
    return mantissa, READ


@njit(cache=True, nogil=True)
def read_numbers(data: Bytes, starts: Int64s, lengths: Int32s, power: int) -> tuple[Int64s, Codes]:
    """Read decimal numbers times 10 ** power. Return milliseconds and codes."""
    base = data.ctypes.data
    ms, codes = np.zeros(len(starts), np.int64), np.empty(len(starts), np.int8)
    for row in range(len(starts)):
        codes[row] = UNREADABLE
        if lengths[row] > 0:
            start = starts[row]
            ms[row], codes[row] = _number(base, start, start + lengths[row], power)
    return ms, codes


@njit(cache=True, nogil=True)
def _days(year: int, month: int, day: int) -> int:
    """Return the days from 1970-01-01 in the civil calendar, by Howard Hinnant's formula."""
    year -= month <= 2
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return (
        era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    ) - 719_468


@njit(cache=True, nogil=True)
def _month_days(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if month == 2:
        return 29 if leap else 28
    return 30 if month in (4, 6, 9, 11) else 31


@njit(cache=True, nogil=True)
def _digits(base: int, position: int, end: int, most: int) -> tuple[int, int]:
    """Read up to `most` digits at `position`. Return the value and the number of digits."""
    value = count = 0
    while count < most and position < end and 0x30 <= byte_at(base, position) <= 0x39:
        value = value * 10 + byte_at(base, position) - 0x30
        position += 1
        count += 1
    return value, count


@njit(cache=True, nogil=True)
def _fraction(base: int, position: int, end: int) -> tuple[int, int]:
    """Read one to nine digits of a second's fraction.

    Returns milliseconds, rounded down, and the number of digits.
    """
    value, count = _digits(base, position, end, 9)
    for _ in range(count, 3):
        value *= 10
    for _ in range(3, count):
        value //= 10
    return value, count


@njit(cache=True, nogil=True)
def _zone(base: int, position: int, end: int) -> tuple[int, int]:
    """Read Z, +hh:mm, +hhmm or +hh. Return the zone's offset in minutes and the number of bytes.

    The number of bytes is 0 if there is no zone.
    """
    sign = byte_at(base, position) if position < end else 0
    if sign in (0x5A, 0x7A):
        return 0, 1
    if sign not in (0x2B, 0x2D):
        return 0, 0
    hours, count = _digits(base, position + 1, end, 2)
    if count != 2 or hours > 23:
        return 0, 0
    size = 3
    colon = position + 3 < end and byte_at(base, position + 3) == 0x3A
    minutes, count = _digits(base, position + 3 + colon, end, 2)
    if count == 2 and minutes < 60:
        size += 2 + colon
    elif count == 0 and not colon:
        minutes = 0
    else:
        return 0, 0
    offset = hours * 60 + minutes
    return -offset if sign == 0x2D else offset, size


@njit(cache=True, nogil=True)
def _instant(parts: Int64s) -> tuple[int, bool]:
    """Return (the clock time in `parts` minus the zone's offset, in ms; whether it exists)."""
    year, month, day = parts[YEAR], parts[MONTH], parts[DAY]
    hour, minute, second = parts[HOUR], parts[MINUTE], parts[SECOND]
    if not (1 <= month <= 12 and hour < 24 and minute < 60 and second <= 60):
        return 0, False
    if parts[YEAR_DAY] >= 0:
        month, day = 1, parts[YEAR_DAY]
        if not 1 <= day <= 337 + _month_days(year, 2):
            return 0, False
    elif not 1 <= day <= _month_days(year, month):
        return 0, False
    minutes = (_days(year, month, 1) + day - 1) * 1440 + hour * 60 + minute - parts[OFFSET]
    return (minutes * 60 + second) * 1000 + parts[MILLISECOND], True


@njit(cache=True, nogil=True)
def _iso(base: int, position: int, end: int, parts: Int64s) -> bool:
    """Fill `parts` from a text in the extended form of ISO 8601. Return False for another form.

    The zone may also be " UTC", as BigQuery writes it.
    """
    for part, width, mark in _ISO_STEPS:
        if part > YEAR:
            byte = byte_at(base, position) if position < end else 0
            if part == HOUR and position == end:
                return True
            if part == SECOND and byte != mark:
                break
            if byte != mark and not (part == HOUR and byte in (0x74, 0x20)):
                return False
            position += 1
        parts[part], count = _digits(base, position, end, width)
        if count != width:
            return False
        position += width
        if part == SECOND and position < end and (byte_at(base, position) in (0x2E, 0x2C)):
            parts[MILLISECOND], count = _fraction(base, position + 1, end)
            if count == 0:
                return False
            position += 1 + count
    if position == end:
        return True
    parts[OFFSET], size = _zone(base, position, end)
    if end - position == 4 and byte_at(base, position) == 0x20 and byte_at(base, end - 3) == 0x55:
        is_utc = byte_at(base, end - 2) == 0x54 and byte_at(base, end - 1) == 0x43
        size = 4 if is_utc else 0
    parts[HAS_ZONE] = size > 0
    return size > 0 and position + size == end


@njit(cache=True, nogil=True)
def read_iso(data: Bytes, starts: Int64s, lengths: Int32s) -> tuple[Int64s, Codes, Flags]:
    """Read ISO 8601 texts. Return milliseconds, codes, and a mask of texts without a zone."""
    base = data.ctypes.data
    ms, codes = np.zeros(len(starts), np.int64), np.empty(len(starts), np.int8)
    local = np.zeros(len(starts), np.bool_)
    parts = np.empty(PARTS, np.int64)
    for row in range(len(starts)):
        codes[row] = UNREADABLE
        parts[:] = 0
        parts[YEAR_DAY] = -1
        if lengths[row] > 0 and _iso(base, starts[row], starts[row] + lengths[row], parts):
            ms[row], fine = _instant(parts)
            codes[row] = READ if fine else UNREADABLE
            local[row] = parts[HAS_ZONE] == 0
    return ms, codes, local


@njit(cache=True, nogil=True)
def _name(
    base: int, position: int, end: int, names: Names, first: int, last: int
) -> tuple[int, int]:
    """Return the number (from 1) of the name in names[first:last] at `position`, and its length.

    Return (0, 0) if no name is there.
    """
    for row in range(first, last):
        size = 0
        while size < names.shape[1] and names[row, size] != 0:
            if position + size >= end or byte_at(base, position + size) | 0x20 != names[row, size]:
                break
            size += 1
        if size == names.shape[1] or names[row, size] == 0:
            return row - first + 1, size
    return 0, 0


@njit(cache=True, nogil=True)
def _blank(base: int, position: int, end: int) -> int:
    """Return the number of bytes of the blank at `position`, 0 if another character is there.

    A blank is ASCII whitespace, U+00A0, or U+202F, which some locales put in front of "PM".
    """
    left = end - position
    first = byte_at(base, position) if left > 0 else 0
    if first == 0x20 or 0x09 <= first <= 0x0D:
        return 1
    if first == 0xC2 and left > 1 and byte_at(base, position + 1) == 0xA0:
        return 2
    if first == 0xE2 and left > 2 and byte_at(base, position + 1) == 0x80:
        return 3 if byte_at(base, position + 2) == 0xAF else 0
    return 0


@njit(cache=True, nogil=True)
def _step(
    base: int, position: int, end: int, steps: Steps, number: int, names: Names, parts: Int64s
) -> int:
    """Execute one step. Return the position after the step's text, or -1 if the text differs."""
    kind, part = steps[number, 0], steps[number, 1]
    few, most = steps[number, 2], steps[number, 3]
    byte = byte_at(base, position) if position < end else 0
    if kind == LITERAL:
        return position + 1 if position < end and byte == part else -1
    if kind == BLANKS:
        begin, size = position, _blank(base, position, end)
        while size:
            position += size
            size = _blank(base, position, end)
        return position if position > begin else -1
    if kind == NUMBER:
        position += part == DAY and byte == 0x20
        parts[part], count = _digits(base, position, end, most)
    elif kind == FRACTION:
        parts[MILLISECOND], count = _fraction(base, position, end)
    elif kind == NAME:
        parts[part], count = _name(base, position, end, names, few, most)
    elif kind == ZONE:
        parts[OFFSET], count = _zone(base, position, end)
        parts[HAS_ZONE] = 1
    else:
        _, count = _name(base, position, end, names, few, most)
        parts[HAS_ZONE] = 1
    return position + count if count >= (few if kind == NUMBER else 1) else -1


@njit(cache=True, nogil=True)
def read_pattern(
    data: Bytes, starts: Int64s, lengths: Int32s, steps: Steps, names: Names, year: int
) -> tuple[Int64s, Codes, Flags]:
    """Read texts of one pattern. Return milliseconds, codes, and a mask of texts without a zone.

    `year` is the year of texts without a year. If the pattern has a year, `year` is -1.
    """
    base = data.ctypes.data
    ms, codes = np.zeros(len(starts), np.int64), np.empty(len(starts), np.int8)
    local = np.zeros(len(starts), np.bool_)
    parts = np.empty(PARTS, np.int64)
    for row in range(len(starts)):
        position, end = starts[row], starts[row] + lengths[row]
        codes[row] = UNREADABLE
        parts[:] = 0
        parts[YEAR], parts[MONTH], parts[DAY] = year, 1, 1
        parts[YEAR_DAY] = parts[SHORT_YEAR] = parts[HALF_HOUR] = -1
        for k in range(len(steps)):
            if position >= 0:
                position = _step(base, position, end, steps, k, names, parts)
        if lengths[row] <= 0 or position != end:
            continue
        if parts[SHORT_YEAR] >= 0:  # POSIX: 69 to 99 are in the 20th century
            parts[YEAR] = parts[SHORT_YEAR] + (1900 if parts[SHORT_YEAR] >= 69 else 2000)
        if parts[HALF_HOUR] >= 0:
            if not 1 <= parts[HALF_HOUR] <= 12:
                continue
            parts[HOUR] = parts[HALF_HOUR] % 12 + (12 if parts[HALF] % 2 == 0 else 0)
        ms[row], fine = _instant(parts)
        codes[row] = READ if fine else UNREADABLE
        local[row] = parts[HAS_ZONE] == 0
    return ms, codes, local
