"""Files whose times all lie in January 1970: seconds that were read as milliseconds lie there.

So do milliseconds that were read as microseconds, and the like. Times of too large a unit lie after
the year 9999, and are rejected.
"""

from collections.abc import Iterable
from typing import NamedTuple

from seglake.config import Pipeline
from seglake.format.records import Int64s
from seglake.shown import counted
from seglake.times.grammar import EPOCH_POWERS
from seglake.times.instants import format_ms

_FEBRUARY_MS = 31 * 86_400_000  # 1970-02-01, exclusive; seconds of the years to 2054 are below it
_OTHERWISE = range(100_000_000_000, 4_102_444_800_000)  # 1973 to 2099: what is meant lies there


class FileTimes(NamedTuple):
    """The times of the records of a file, or of a part of it.

    `newest_ms` is the latest one, -1 if there is none; `early` of the `records` lie in January
    1970.
    """

    path: str
    newest_ms: int
    early: int = 0
    records: int = 0


def count_early(timestamps: Int64s) -> int:
    """How many times, in ms, lie in January 1970."""
    return int(((timestamps >= 0) & (timestamps < _FEBRUARY_MS)).sum())


def january_problem(pipeline: Pipeline, parts: Iterable[FileTimes]) -> str | None:
    """What is wrong, and the remedy, if all times of a file lie in January 1970; else None.

    `parts` are those of all files, in the order of files. Times that no record gets do not count,
    nor do those that records keep from a broker.
    """
    if _may_be_early(pipeline):
        return None
    early = [file for file in _by_file(parts) if 0 <= file.newest_ms < _FEBRUARY_MS]
    return _sentence(pipeline, early) if early else None


def january_notes(pipeline: Pipeline, parts: Iterable[FileTimes]) -> list[str]:
    """A note if some, but not all, times of a file lie in January 1970.

    `parts` are as those of `january_problem`; the first such file is named.
    """
    if _may_be_early(pipeline):
        return []
    some = [file for file in _by_file(parts) if file.newest_ms >= _FEBRUARY_MS and file.early]
    if not some:
        return []
    path, _, early, records = some[0]
    lie = "lies" if early == 1 else "lie"
    more = f" (and such of {counted(len(some) - 1, 'file')} more)" if len(some) > 1 else ""
    finding = f"{early:,} of {records:,} times of {path}{more} {lie} in January 1970"
    early_for = pipeline.timestamp.format in EPOCH_POWERS.keys() - {"epoch_s"}
    why = "seconds read as milliseconds?" if early_for else "of a clock that was not set?"
    return [f"{finding}: {why}"]


def _may_be_early(pipeline: Pipeline) -> bool:
    stamped = pipeline.topic.message_timestamp_type == "LogAppendTime"
    return pipeline.timestamp.allow_1970 or stamped or pipeline.topic.offset_field is not None


def _by_file(parts: Iterable[FileTimes]) -> list[FileTimes]:
    files = dict[str, FileTimes]()
    for path, *counts in parts:
        _, newest_ms, early, records = files.get(path, FileTimes(path, -1))
        newest_ms = max(newest_ms, counts[0])
        files[path] = FileTimes(path, newest_ms, early + counts[1], records + counts[2])
    return [*files.values()]


def _sentence(pipeline: Pipeline, early: list[FileTimes]) -> str:
    path, ms, *_ = early[0]
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
