"""Files whose times all lie in January 1970: seconds that were read as milliseconds lie there.

So do milliseconds that were read as microseconds, and the like. Times of too large a unit lie after
the year 9999, and are rejected.
"""

from collections.abc import Iterable
from typing import NamedTuple

from seglake.config import Pipeline
from seglake.times.formats import EPOCH_POWERS
from seglake.times.instants import format_ms

_FEBRUARY_MS = 31 * 86_400_000  # 1970-02-01, exclusive; seconds of the years to 2054 are below it
_OTHERWISE = range(100_000_000_000, 4_102_444_800_000)  # 1973 to 2099: what is meant lies there


class LatestTime(NamedTuple):
    """The latest time of the records of a file, or of a part of it, in ms; -1 if there is none."""

    path: str
    ms: int


def january_problem(pipeline: Pipeline, parts: Iterable[LatestTime]) -> str | None:
    """What is wrong, and the remedy, if all times of a file lie in January 1970; else None.

    `parts` are those of all files, in the order of files. Times that no record gets do not count,
    nor do those that records keep from a broker.
    """
    stamped = pipeline.topic.message_timestamp_type == "LogAppendTime"
    if pipeline.timestamp.allow_1970 or stamped or pipeline.topic.offset_field is not None:
        return None
    newest = dict[str, int]()
    for path, ms in parts:
        newest[path] = max(ms, newest.get(path, -1))
    early = [LatestTime(path, ms) for path, ms in newest.items() if 0 <= ms < _FEBRUARY_MS]
    return _sentence(pipeline, early) if early else None


def _sentence(pipeline: Pipeline, early: list[LatestTime]) -> str:
    path, ms = early[0]
    more = f" (and those of {len(early) - 1:,} more)" if len(early) > 1 else ""
    return (
        f"{path}: all times lie in January 1970{more}, the latest at {format_ms(ms)}: "
        f"{_remedy(pipeline.timestamp.format, ms)}; if they are meant, set "
        "timestamp.allow_1970 = true"
    )


def _remedy(form: str | None, ms: int) -> str:
    """Which unit makes sense of a time that was read in another one."""
    if form in EPOCH_POWERS:
        for other in EPOCH_POWERS:
            meant_ms = ms * 10 ** max(EPOCH_POWERS[other] - EPOCH_POWERS[form], 0)
            if meant_ms in _OTHERWISE:
                return f"with timestamp.format = {other!r} that is {format_ms(meant_ms)}"
    return "correct the unit, or the field that timestamp.field names"
