"""Times without a year that go back within a file: the file goes on in the year after.

All times of a pipeline get `timestamp.year`, so those after New Year lie a year too early.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from seglake.config import Pipeline
from seglake.format.records import Int64s
from seglake.shown import counted
from seglake.times.instants import format_ms

_HALF_A_YEAR_MS = 183 * 86_400_000


class Course(NamedTuple):
    """How the times of some records go, in the order of the file; all are -1 without records.

    `from_ms` and `to_ms` are the times of two neighbours, of which the second lies farthest below
    the first; -1 if no time lies below the one before.
    """

    first_ms: int = -1
    last_ms: int = -1
    from_ms: int = -1
    to_ms: int = -1

    def then(self, later: Course) -> Course:
        """The course of these records and, behind them, of `later` ones."""
        if self.last_ms < 0 or later.last_ms < 0:
            return later if self.last_ms < 0 else self
        steps = [(self.from_ms, self.to_ms), (later.from_ms, later.to_ms)]
        if later.first_ms < self.last_ms:
            steps.append((self.last_ms, later.first_ms))
        return Course(self.first_ms, later.last_ms, *max(steps, key=lambda step: step[0] - step[1]))


def course_of(timestamps: Int64s) -> Course:
    """The course of times in ms."""
    if not len(timestamps):
        return Course()
    first, last = int(timestamps[0]), int(timestamps[-1])
    steps = np.diff(timestamps)
    at = int(steps.argmin()) if len(steps) else 0
    if not len(steps) or steps[at] >= 0:
        return Course(first, last)
    return Course(first, last, int(timestamps[at]), int(timestamps[at + 1]))


def lacks_years(pipeline: Pipeline) -> bool:
    """Whether times of files get their year from the settings."""
    stamped = pipeline.topic.message_timestamp_type == "LogAppendTime"
    return pipeline.timestamp.year is not None and pipeline.input.kind.in_files and not stamped


def year_notes(pipeline: Pipeline, parts: Iterable[tuple[str, Course]]) -> list[str]:
    """A note on the first file whose times go back by more than half a year, if they have no year.

    `parts` are the paths and courses of all parts of files, in the order of files.
    """
    if not lacks_years(pipeline):
        return []
    files = dict[str, Course]()
    for path, course in parts:
        files[path] = files.get(path, Course()).then(course)
    back = {
        path: course
        for path, course in files.items()
        if course.from_ms - course.to_ms > _HALF_A_YEAR_MS
    }
    year = pipeline.timestamp.year
    return [_sentence(year, *next(iter(back.items())), len(back) - 1)] if back else []


def _sentence(year: int | None, path: str, course: Course, more: int) -> str:
    others = f" (and those of {counted(more, 'file')} more)" if more else ""
    return (
        f"{path}: times go back from {format_ms(course.from_ms)} to {format_ms(course.to_ms)}"
        f"{others}: they name no year, and all get timestamp.year = {year}; ingest lines of "
        "another year from files of their own, by a pipeline with that year"
    )
