"""Times that callers give or see, as milliseconds since the epoch, in UTC.

A time is an aware datetime, an ISO 8601 text with a zone, or an integer of epoch milliseconds (as
an int or as digits); many times are one array of such integers. Times are bounds of windows,
`start <= timestamp < end`, and stored timestamps are whole milliseconds. So both bounds are rounded
up to a millisecond, which leaves the same records inside.

Of integers, what cannot be meant is refused, with the milliseconds that are. From 10**8 to 10**11
(exclusive, either sign) one looks like seconds: as seconds it lies in 1973 to 5138, as milliseconds
in the first years after 1970. After the year 9999 it looks like micro- or nanoseconds. Smaller
integers are milliseconds: 0 usually means "from the beginning". From 2**62 on an integer means "to
the end": no clock shows it in any unit before 2116.

A read may end in the future. What removes all before a time may not: see `to_past_ms`.
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
_MAX_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z, as of the times in events
_FOREVER = 2**62
_SLACK_MS = 3_600_000  # by which the clock of a caller may be ahead


def to_epoch_ms(value: Time, zone: str | None = None, ambiguous: str = "earliest") -> int:
    """A time in milliseconds since the epoch, rounded up.

    A text without a zone is a local time of `zone`, if there is one; a date means its midnight. A
    local time that occurs twice means the one that `ambiguous` says, "earliest" or "latest"; a time
    that clocks skip means the first time after it.

    Raises:
        UsageError: not a time, no zone or an unknown one, an integer that looks like another unit,
            or beyond 64 bits.
    """
    if isinstance(value, datetime):
        return _from_datetime(value, str(value))
    if isinstance(value, Integral) and not isinstance(value, bool):  # NumPy's integers too
        return _from_integer(int(value))
    if not isinstance(value, str):
        raise UsageError(f"{value!r} is not a time; give a datetime, ISO 8601 text or milliseconds")
    text = value.strip()
    if re.fullmatch(r"[+-]?[0-9]{1,20}", text):
        return _from_integer(int(text))
    try:
        moment = datetime.fromisoformat(_to_microseconds(text))
    except ValueError:
        raise UsageError(
            f"{text!r} is not a time; write it as in 2026-01-31T12:00:00Z, or as epoch milliseconds"
        ) from None
    if zone is not None and moment.tzinfo is None:
        return _from_local(moment, zone, ambiguous)
    return _from_datetime(moment, text)


def is_open(ms: int) -> bool:
    """Whether a time of a caller stands for none: a window has no such end."""
    return abs(ms) >= _FOREVER


def to_past_ms(value: Time, now_ms: int, remedy: str) -> int:
    """A time up to which all is removed, in milliseconds: from 1970 to an hour after `now_ms`.

    Raises:
        UsageError: as `to_epoch_ms`, before 1970, or later: every record there is would go. Then
            the message ends with `remedy`.
    """
    ms = to_epoch_ms(value)
    if ms < 0:
        raise UsageError(f"{value!r} lies before 1970: nothing is older")
    if ms > now_ms + _SLACK_MS:
        raise UsageError(f"{format_ms(ms)} is later than now, {format_ms(now_ms)}: {remedy}")
    return ms


def to_epoch_ms_array(values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Many times, as integers of milliseconds since the epoch.

    Raises:
        UsageError: not one array of 64-bit integers, or one of them looks like another unit.
    """
    import numpy as np  # noqa: PLC0415  # the command line shows times without it

    times = np.asarray(values)
    whole = times.dtype.kind in "iu" and np.can_cast(times.dtype, np.int64)
    if times.ndim != 1 or (len(times) and not whole):
        raise UsageError(
            "give times as one array of integers, milliseconds since the epoch, not as "
            f"{times.dtype} in {times.ndim} dimensions"
        )
    in_ms = times.astype(np.int64)
    sizes = np.abs(in_ms)  # negative for the smallest integer, which is an open end
    doubtful = (sizes >= _LOOKS_LIKE_SECONDS.start) & (sizes < _LOOKS_LIKE_SECONDS.stop)
    doubtful |= (sizes > _MAX_MS) & (sizes < _FOREVER)
    for at in np.flatnonzero(doubtful)[:1]:
        _from_integer(int(in_ms[at]))
    return in_ms


def _to_microseconds(text: str) -> str:
    """The text with at most six digits of a second's fraction; more digits are rounded up."""
    match = re.search(r"(?<=[.,])([0-9]{6})([0-9]+)", text)
    if not match:
        return text
    whole = match[1] if not match[2].strip("0") or match[1] == "999999" else str(int(match[1]) + 1)
    return f"{text[: match.start()]}{whole.zfill(6)}{text[match.end() :]}"


def _from_datetime(value: datetime, shown: str) -> int:
    if value.utcoffset() is None:
        raise UsageError(f"{shown} has no time zone; add one, as in 2026-01-31T12:00:00Z")
    if type(value) is not datetime:  # pendulum's, which Airflow gives, cannot be divided
        value = datetime.fromisoformat(_to_microseconds(value.isoformat()))
    return -((_EPOCH - value) // _MILLISECOND)


def _from_local(local: datetime, zone: str, ambiguous: str) -> int:
    # the command line shows times without these
    from zoneinfo import ZoneInfoNotFoundError  # noqa: PLC0415

    import numpy as np  # noqa: PLC0415

    from seglake.times.zones import to_utc  # noqa: PLC0415

    clock = np.array([_from_datetime(local.replace(tzinfo=UTC), str(local))], np.int64)
    try:
        return int(to_utc(clock, np.array([True]), zone, ambiguous)[0])
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(f"zone {zone!r} is unknown; write it as in Europe/Berlin") from error


def _from_integer(value: int) -> int:
    size, sign = abs(value), -1 if value < 0 else 1
    if not INT64_MIN <= value <= INT64_MAX:
        raise UsageError(f"{value} is beyond 64 bits; give milliseconds since the epoch")
    if size in _LOOKS_LIKE_SECONDS:
        raise _other_unit(value, "seconds", value * 1000)
    if _MAX_MS < size < _FOREVER:
        in_us = size // 1000 <= _MAX_MS
        unit, per_ms = ("microseconds", 1000) if in_us else ("nanoseconds", 10**6)
        raise _other_unit(value, unit, sign * (size // per_ms))
    return value


def _other_unit(value: int, unit: str, in_ms: int) -> UsageError:
    return UsageError(f"{value} looks like {unit}; give milliseconds: {in_ms}")


def format_ms(ms: int) -> str:
    """A time as ISO 8601 in UTC with milliseconds: "2026-01-31T12:00:00.000Z".

    A time outside the years 1 to 9999 is shown as its number.
    """
    try:
        moment = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return str(ms)
    return moment.strftime(f"{moment.year:04}-%m-%dT%H:%M:%S.") + f"{ms % 1000:03}Z"
