"""Durations that people write: 90s, 15m, "12 hours", 7d, 2w."""

import re

_UNITS_MS = {
    unit: ms
    for units, ms in (
        (("ms", "millisecond"), 1),
        (("s", "sec", "second"), 1000),
        (("m", "min", "minute"), 60_000),
        (("h", "hour"), 3_600_000),
        (("d", "day"), 86_400_000),
        (("w", "week"), 604_800_000),
    )
    for unit in units
}


def duration_ms(text: str) -> int | None:
    """The milliseconds of a duration; None for any other text, also for a number without a unit."""
    match = re.fullmatch(r"([0-9]{1,18})\s*([a-z]+)", text.strip().lower())
    units = [match[2], match[2].removesuffix("s")] if match else []
    unit = next((unit for unit in units if unit in _UNITS_MS), None)
    return None if match is None or unit is None else int(match[1]) * _UNITS_MS[unit]
