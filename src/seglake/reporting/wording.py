"""Times as people read them on a page."""

from __future__ import annotations

from seglake.times.instants import format_ms


def minute(ms: int) -> str:
    """A time to the minute, in UTC; "-" for a negative one, which stands for none."""
    return "-" if ms < 0 else format_ms(ms)[:16].replace("T", " ") + " UTC"
