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
    """The milliseconds of a duration; None for any other text.

    Such as a number without a unit, and M, which may be minutes or months.
    """
    match = re.fullmatch(r"([0-9]{1,18})\s*(?!M$)([A-Za-z]+)", text.strip())
    if match is None:
        return None
    name = match[2].lower()
    unit = next((unit for unit in (name, name.removesuffix("s")) if unit in _UNITS_MS), None)
    return None if unit is None else int(match[1]) * _UNITS_MS[unit]
