"""Times on the command line: with a zone, as a local time with --zone, or as --last 1h."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import re
from datetime import datetime

from seglake.clock import now_ms
from seglake.errors import UsageError
from seglake.times.instants import format_ms

_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_NAMED = ("earliest", "latest", "max-timestamp")  # of `seglake offsets`

Bounds = tuple[str | None, str | None]


def window(start: str | None, end: str | None, last: str | None, zone: str | None) -> Bounds:
    """Start and end of a window, as texts with a zone; None if not given. Raises UsageError."""
    if last is None:
        return absolute(start, zone), absolute(end, zone)
    if start is not None or end is not None:
        raise UsageError("--last does not go with --start and --end: keep one")
    end_ms = now_ms()
    return format_ms(end_ms - span_ms(last)), format_ms(end_ms)


def span_ms(text: str) -> int:
    """The milliseconds of a time span such as 90s, 15m, 1h, 2d or 1w. Raises UsageError."""
    found = re.fullmatch(r"([0-9]{1,9})([smhdw])", text.strip())
    if not found or not int(found[1]):
        raise UsageError(f"--last {text!r} is not a time span: write 90s, 15m, 1h, 2d or 1w")
    return int(found[1]) * _UNITS_MS[found[2]]


def absolute(text: str | None, zone: str | None) -> str | None:
    """A date or a local time of a zone as a text in UTC; any other text as it is.

    A date means its midnight. A local time that occurs twice means the earlier one; a time that
    clocks skip means the first time after it. Raises UsageError for an unknown zone.
    """
    if text is None or zone is None or text in _NAMED:
        return text
    try:
        local = datetime.fromisoformat(text.strip())
    except ValueError:
        return text  # whoever reads it says what is wrong
    return text if local.tzinfo is not None else format_ms(_utc_ms(local, zone))


def _utc_ms(local: datetime, zone: str) -> int:
    from zoneinfo import ZoneInfoNotFoundError

    import numpy as np

    from seglake.times.zones import to_utc

    clock = np.array([np.datetime64(local, "ms").astype(np.int64)], np.int64)
    try:
        return int(to_utc(clock, np.array([True]), zone)[0])
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(f"--zone {zone!r} is unknown; write it as in Europe/Berlin") from error
