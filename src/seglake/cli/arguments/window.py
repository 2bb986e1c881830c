"""Parse times on the command line: with a zone, as local times with --zone, or as --last 1h."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from seglake.clock import now_ms
from seglake.errors import UsageError
from seglake.terminal.wording import wrap
from seglake.times.instants import format_ms, to_epoch_ms
from seglake.times.intervals import duration_ms

_NAMED = ("earliest", "latest", "max-timestamp")  # special times of `seglake offsets`

Bounds = tuple[str | None, str | None]


def window(start: str | None, end: str | None, last: str | None, zone: str | None) -> Bounds:
    """Return the start and end of a window, as text with a zone or None. Raises UsageError."""
    if last is None:
        return absolute(start, zone), absolute(end, zone)
    if start is not None or end is not None:
        raise UsageError("--last contradicts --start and --end. Keep one")
    _require_known(zone)
    end_ms = now_ms()
    return format_ms(end_ms - span_ms(last)), format_ms(end_ms)


def span_ms(text: str) -> int:
    """Return the milliseconds of a time span such as 90s, 15m, 1h, 2d or 1w. Raises UsageError."""
    ms = duration_ms(text)
    if not ms:
        records = f"; `seglake read --tail {text}` gives the last records" * text.isdecimal()
        raise UsageError(
            f"--last {text!r} is not a time span. Write 90s, 15m, 1h, 2d or 1w{records}"
        )
    return ms


def absolute(text: str | None, zone: str | None) -> str | None:
    """Convert a date or a local time in a zone to text in UTC. Without `zone`, keep the text.

    If clocks show a local time twice, use the first instant. If clocks skip a local time, use the
    time that they show instead. In both cases, print a note to standard error.

    Raises:
        UsageError: The zone is unknown, or the text is not a time, or has no zone without `zone`.
    """
    if text is None or text in _NAMED:
        return text
    if zone is None:
        _require_zone(text)
        return text
    _require_known(zone)
    first, second = (format_ms(to_epoch_ms(text, zone, which)) for which in ("earliest", "latest"))
    if first != second:
        line = (
            f"{text} occurs twice in {zone}, and {first} is used. Write {second} for the later time"
        )
        print(wrap(line, sys.stderr), file=sys.stderr)
    elif _is_skipped(text, first, zone):
        line = f"{text} does not exist in {zone}, because clocks skip it. {first} is used"
        print(wrap(line, sys.stderr), file=sys.stderr)
    return first


def _is_skipped(text: str, meant: str, zone: str) -> bool:
    """Return whether clocks skip a local time. `meant` is the time in UTC that replaces it."""
    try:
        local = datetime.fromisoformat(text)
    except ValueError:  # an integer, or a time in another form
        return False
    shown = datetime.fromisoformat(meant).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    return local.tzinfo is None and abs(shown - local) >= timedelta(minutes=1)


def _require_known(zone: str | None) -> None:
    """Raise UsageError for an unknown zone, even if times have their own zone."""
    to_epoch_ms("2000-01-01", zone or "UTC")


def _require_zone(text: str) -> None:
    try:
        to_epoch_ms(text)
    except UsageError:
        # This raises the same error, unless only the zone is missing.
        to_epoch_ms(text, "UTC")
        raise UsageError(
            f"{text} has no time zone. Give --zone, such as --zone UTC or --zone Europe/Berlin, or "
            "a time with its zone, such as 2026-01-31T12:00:00Z"
        ) from None
