"""Convert a caller's times to a window."""

from __future__ import annotations

from seglake.errors import UsageError
from seglake.limits import INT64_MIN, NO_END
from seglake.log.piece import Window
from seglake.times.instants import Time, to_epoch_ms


def window_of(start: Time, end: Time) -> Window:
    """Return the window [start, end). Raises UsageError if it ends before it starts."""
    return _checked(start, end, to_epoch_ms(start), to_epoch_ms(end))


def _checked(start: Time | None, end: Time | None, start_ms: int, end_ms: int) -> Window:
    if start_ms > end_ms:
        raise UsageError(f"the window would end before it starts: {start!r} to {end!r}")
    return Window.of_times(start_ms, end_ms)


def open_window(start: Time | None, end: Time | None) -> Window:
    """Return the window [start, end). None leaves a side open; without both, it has all records."""
    if start is None and end is None:
        return Window()
    start_ms = INT64_MIN if start is None else to_epoch_ms(start)
    return _checked(start, end, start_ms, NO_END if end is None else to_epoch_ms(end))
