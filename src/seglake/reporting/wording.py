"""Sizes, durations and times as people read them."""

from __future__ import annotations

from seglake.times.instants import format_ms


def duration(ms: int) -> str:
    """A time span in two units at most, as in "3 d 4 h"."""
    if ms < 1000:
        return f"{ms} ms"
    units = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
    parts = [(ms // size if i == 0 else ms % units[i - 1][1] // size, name)
             for i, (name, size) in enumerate(units)]  # fmt: skip
    first = next(i for i, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {name}" for count, name in parts[first : first + 2] if count)


def minute(ms: int) -> str:
    """A time to the minute, in UTC; "-" for a negative one, which stands for none."""
    return "-" if ms < 0 else format_ms(ms)[:16].replace("T", " ") + " UTC"


def counted(number: int, what: str) -> str:
    """A count and a noun, as in "1 row" or "2 rows"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
