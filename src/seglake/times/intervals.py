"""Compute with intervals of time, all [start, end): closed at the start, open at the end.

A *set* of intervals is a list of disjoint intervals in order that do not touch.
"""

import re
from collections.abc import Iterable, Sequence

Interval = tuple[int, int]


def covers(intervals: Iterable[Interval], start: int, end: int) -> bool:
    """Return whether the intervals together cover all of [start, end). They may be in any order."""
    return not without([(start, end)], united(intervals))


def united(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union of the intervals, as a set. They may be in any order, and may be empty."""
    union: list[Interval] = []
    for low, high in sorted(interval for interval in intervals if interval[0] < interval[1]):
        if union and low <= union[-1][1]:
            union[-1] = union[-1][0], max(union[-1][1], high)
        else:
            union.append((low, high))
    return union


def common(left: Sequence[Interval], right: Sequence[Interval]) -> list[Interval]:
    """Return the intersection of two sets."""
    shared, at, beside = [], 0, 0
    while at < len(left) and beside < len(right):
        low, high = max(left[at][0], right[beside][0]), min(left[at][1], right[beside][1])
        if low < high:
            shared.append((low, high))
        ahead = left[at][1] < right[beside][1]
        at, beside = at + ahead, beside + (not ahead)
    return shared


def without(left: Sequence[Interval], right: Sequence[Interval]) -> list[Interval]:
    """Return the difference of two sets: the parts of `left` that are not in `right`."""
    if not left:
        return []
    bounds = [left[0][0], *(bound for interval in right for bound in interval), left[-1][1]]
    holes = zip(bounds[::2], bounds[1::2], strict=True)
    return common(left, [(low, high) for low, high in holes if low < high])


# ---------------- durations
# Parse durations such as 90s, 15m, "12 hours", 7d, 2w.

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
    """Return the milliseconds of a duration, or None for any other text.

    A text without a unit is not a duration. M is refused, because it may be minutes or months.
    """
    match = re.fullmatch(r"([0-9]{1,18})\s*(?!M$)([A-Za-z]+)", text.strip())
    if match is None:
        return None
    name = match[2].lower()
    unit = next((unit for unit in (name, name.removesuffix("s")) if unit in _UNITS_MS), None)
    return None if unit is None else int(match[1]) * _UNITS_MS[unit]
