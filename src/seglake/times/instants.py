"""Convert times of callers to milliseconds since the epoch, and back to text, in UTC.

A time is an aware datetime, an ISO 8601 text with a zone, or an integer of epoch milliseconds (as
an int or as digits). Several times are one array of such integers. Times are bounds of windows,
`start <= timestamp < end`, and stored timestamps are whole milliseconds. So both bounds are rounded
up to a millisecond, which does not change the records inside.

Integers that look like another unit are refused, and the error contains the milliseconds. From
10**8 to 10**11 (exclusive, either sign) an integer looks like seconds: as seconds it is in 1973 to
5138, as milliseconds in the first years after 1970. After the year 9999 it looks like micro- or
nanoseconds. Smaller integers are milliseconds: 0 usually stands for "from the beginning". From
2**62 on, an integer stands for "to the end": in every unit, it is a time after 2116.

A read may end in the future. A command that removes all records before a time may not: see
`to_past_ms`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from numbers import Integral
from typing import TYPE_CHECKING

from seglake.errors import UsageError
from seglake.limits import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Time = datetime | str | int

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_LOOKS_LIKE_SECONDS = range(10**8, 10**11)
_MAX_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z, the limit for times in events, too
_FOREVER = 2**62
_SLACK_MS = 3_600_000  # the clock of a caller may be ahead by this much


def to_epoch_ms(value: Time, zone: str | None = None, ambiguous: str = "earliest") -> int:
    """Return a time in milliseconds since the epoch, rounded up.

    Args:
        value: A time. A date is its midnight.
        zone: The zone of a text without a zone. By default such a text is an error.
        ambiguous: "earliest" or "latest", for a local time that occurs twice. A local time that
            clocks skip is converted to the first time after it.

    Raises:
        UsageError: The value is not a time, has no zone or an unknown one, is an integer that
            looks like another unit, or is beyond 64 bits.
    """
    if isinstance(value, datetime):
        return _from_datetime(value, str(value))
    if isinstance(value, int | Integral) and not isinstance(value, bool):  # NumPy's, too
        return _from_integer(int(value))
    if not isinstance(value, str):
        raise UsageError(f"{value!r} is not a time. Give a datetime, ISO 8601 text or milliseconds")
    text = value.strip()
    if re.fullmatch(r"[+-]?[0-9]{1,20}", text):
        return _from_integer(int(text))
    try:
        moment = datetime.fromisoformat(_to_microseconds(text))
    except ValueError:
        raise UsageError(
            f"{text!r} is not a time. Write it as in 2026-01-31T12:00:00Z, or as epoch milliseconds"
        ) from None
    if zone is not None and moment.tzinfo is None:
        return _from_local(moment, zone, ambiguous)
    return _from_datetime(moment, text)


def is_open(ms: int) -> bool:
    """Return whether a time of a caller sets no bound: `ms` is at least 2**62 or at most -2**62."""
    return abs(ms) >= _FOREVER


def to_past_ms(value: Time, now_ms: int, remedy: str) -> int:
    """Convert a time to milliseconds, for a command that removes all records before it.

    The time must be from 1970 to `now_ms` + 1 hour.

    Raises:
        UsageError: The time is invalid for `to_epoch_ms`, is before 1970, or is later. A later time
            would remove every record, so the message ends with `remedy`.
    """
    ms = to_epoch_ms(value)
    if ms < 0:
        raise UsageError(f"{value!r} is before 1970, but no record is. Give a later time")
    if ms > now_ms + _SLACK_MS:
        raise UsageError(f"{format_ms(ms)} is later than now, {format_ms(now_ms)}: {remedy}")
    return ms


def to_epoch_ms_array(values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return times from an array of integers of milliseconds since the epoch.

    Raises:
        UsageError: The values are not one array of 64-bit integers, or one looks like another unit.
    """
    import numpy as np  # noqa: PLC0415  # the command line usually shows times without it

    times = np.asarray(values)
    whole = times.dtype.kind in "iu" and np.can_cast(times.dtype, np.int64)
    if times.ndim != 1 or (len(times) and not whole):
        raise UsageError(
            "give times as one array of integers, milliseconds since the epoch, not as "
            f"{times.dtype} in {times.ndim} dimensions"
        )
    in_ms = times.astype(np.int64)
    sizes = np.abs(in_ms)  # the smallest integer overflows; it is an open end, so it passes
    doubtful = (sizes >= _LOOKS_LIKE_SECONDS.start) & (sizes < _LOOKS_LIKE_SECONDS.stop)
    doubtful |= (sizes > _MAX_MS) & (sizes < _FOREVER)
    for at in np.flatnonzero(doubtful)[:1]:
        _from_integer(int(in_ms[at]))
    return in_ms


def _to_microseconds(text: str) -> str:
    """Return the text with at most six digits of a second's fraction. More are rounded up."""
    match = re.search(r"(?<=[.,])([0-9]{6})([0-9]+)", text)
    if not match:
        return text
    whole = match[1] if not match[2].strip("0") or match[1] == "999999" else str(int(match[1]) + 1)
    return f"{text[: match.start()]}{whole.zfill(6)}{text[match.end() :]}"


def _from_datetime(value: datetime, shown: str) -> int:
    if value.utcoffset() is None:
        raise UsageError(f"{shown} has no time zone. Add one, as in 2026-01-31T12:00:00Z")
    if type(value) is not datetime:  # Airflow passes pendulum's, which cannot be divided
        value = datetime.fromisoformat(_to_microseconds(value.isoformat()))
    return -((_EPOCH - value) // _MILLISECOND)


def _from_local(local: datetime, zone: str, ambiguous: str) -> int:
    # Imported here, because the command line usually shows times without them.
    from zoneinfo import ZoneInfoNotFoundError  # noqa: PLC0415

    import numpy as np  # noqa: PLC0415

    from seglake.times.zones import to_utc  # noqa: PLC0415

    clock = np.array([_from_datetime(local.replace(tzinfo=UTC), str(local))], np.int64)
    try:
        return int(to_utc(clock, np.array([True]), zone, ambiguous)[0])
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(f"zone {zone!r} is unknown. Write it as in Europe/Berlin") from error


def _from_integer(value: int) -> int:
    size, sign = abs(value), -1 if value < 0 else 1
    if not INT64_MIN <= value <= INT64_MAX:
        raise UsageError(f"{value} does not fit 64 bits. Give milliseconds since the epoch")
    if size in _LOOKS_LIKE_SECONDS:
        raise _other_unit(value, "seconds", value * 1000)
    if _MAX_MS < size < _FOREVER:
        in_us = size // 1000 <= _MAX_MS
        unit, per_ms = ("microseconds", 1000) if in_us else ("nanoseconds", 10**6)
        raise _other_unit(value, unit, sign * (size // per_ms))
    return value


def _other_unit(value: int, unit: str, in_ms: int) -> UsageError:
    return UsageError(f"{value} looks like {unit}. Give milliseconds: {in_ms}")


def format_ms(ms: int) -> str:
    """Return a time as ISO 8601 in UTC with milliseconds: "2026-01-31T12:00:00.000Z".

    A time outside the years 1 to 9999 is shown as its number.

    Example:
        >>> seglake.format_ms(1780315200000)
        '2026-06-01T12:00:00.000Z'
    """
    try:
        moment = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return str(ms)
    return moment.strftime(f"{moment.year:04}-%m-%dT%H:%M:%S.") + f"{ms % 1000:03}Z"
